//! Assesses calls of tools other than the shell: by the rules that name them, by their paths and by
//! their addresses.

mod command_lines;
mod guards;
mod judged_path;
mod kind;
mod patch;
mod unruled;

use pvp_protocol::{
    Action, Category, Command, FileTool, JsonObject, Risk, SandboxProfile, path_arguments,
    text_arguments,
};

use crate::assess::{Assessor, SpanVerdict, possible_names};
use crate::normalize::expand_braces;
use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::rule_table::{RuleOrigin, RuleTable};
use crate::secret_files::{is_aimed_at_secret, is_secret};
use crate::tool_rules::ToolRule;
use crate::verdict::CommandVerdict;
use crate::web_address::{WebAddress, percent_decoded};
use crate::word::ShellWord;
use judged_path::{JudgedPath, PathPlace};
use kind::CallKind;
pub use kind::{FileUse, file_use, searches_content};

/// The paths that the text of a patch names, as they are written; empty if it is none that is
/// understood.
pub fn patched_paths(text: &str) -> Vec<&str> {
    let files = patch::files(text).unwrap_or_default();
    files.iter().map(|file| file.path).collect()
}

/// Linux opens no longer path.
const MAX_PATH_BYTES: usize = 4096;

/// Paths of one call that rules look at. With more, nothing is a read.
const MAX_PATHS: usize = 64;

/// Texts of one call that are searched for the names of secret files, in bytes. With more, nothing
/// is a read.
const MAX_SEARCHED_BYTES: usize = 32 * 1024;

/// Parts of the names of arguments that hold addresses.
const ADDRESS_WORDS: &[&str] = &["url", "uri", "href", "link", "host", "address", "endpoint"];

/// Assesses a call, and returns the text that people must be able to see to trust it.
pub(crate) fn assess(
    table: &RuleTable,
    action: &Action,
    workspace: &Workspace,
    assessor: &mut Assessor<'_>,
) -> String {
    let Command::Tool { name, arguments } = &action.command else {
        return String::new();
    };
    let call = JudgedCall::new(action, name, arguments, workspace);
    let verdict = call.verdict(table, assessor);
    let verdict = call.raised_by_command_lines(table, assessor, verdict);
    assessor.span_verdicts.push(SpanVerdict {
        span: 0..0,
        verdict,
    });
    call.add_doubts_and_notes(assessor);
    let paths = call.paths.iter().map(|path| path.text);
    let hosts = call.addresses.iter().flat_map(|address| &address.hosts);
    std::iter::once(name.as_str())
        .chain(paths)
        .chain(hosts.map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A call with what its arguments say about files and addresses.
struct JudgedCall<'a> {
    /// The name of the tool.
    name: &'a str,
    /// Its arguments.
    arguments: &'a JsonObject,
    /// What such a tool does.
    kind: CallKind<'a>,
    /// Every path that the arguments name.
    paths: Vec<JudgedPath<'a>>,
    /// Whether there may be others.
    more_paths: bool,
    /// Every text in the arguments that may name a file, whatever its argument is called.
    texts: Vec<&'a str>,
    /// Every text in the arguments that is an address.
    addresses: Vec<WebAddress>,
    /// Whether there may be others.
    more_addresses: bool,
    /// Where the call works.
    place: PathPlace<'a>,
}

impl<'a> JudgedCall<'a> {
    fn new(
        action: &Action,
        name: &'a str,
        arguments: &'a JsonObject,
        workspace: &'a Workspace,
    ) -> Self {
        let kind = CallKind::new(action, name, arguments);
        let place = PathPlace::new(workspace, action.cwd.as_deref());
        let place = match kind {
            CallKind::File(_) => place,
            CallKind::ClientRead(_)
            | CallKind::ClientWrite
            | CallKind::Patch(_)
            | CallKind::Fetch
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Stdin { .. }
            | CallKind::Mcp { .. }
            | CallKind::Other => place.of_foreign_tool(),
        };
        let path = || arguments.get("path").and_then(|it| it.as_str());
        let (path_texts, texts) = match &kind {
            CallKind::File(_) => (path().into_iter().collect(), Vec::new()),
            CallKind::Patch(Some(files)) => {
                (files.iter().map(|file| file.path).collect(), Vec::new())
            }
            CallKind::ClientRead(reads) => {
                let paths = path_arguments(arguments);
                let paths = if paths.is_empty() { vec!["."] } else { paths };
                (paths, kind::file_texts(*reads, arguments))
            }
            CallKind::ClientWrite
            | CallKind::Patch(None)
            | CallKind::Fetch
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Stdin { .. }
            | CallKind::Mcp { .. }
            | CallKind::Other => (path_arguments(arguments), text_arguments(arguments)),
        };
        let usable = path_texts
            .iter()
            .filter(|text| text.len() <= MAX_PATH_BYTES);
        let paths = usable
            .take(MAX_PATHS)
            .map(|text| JudgedPath::new(text, &place))
            .collect::<Vec<_>>();
        let (addresses, more_addresses) = match &kind {
            CallKind::File(_) | CallKind::Patch(_) => (Vec::new(), false),
            CallKind::ClientRead(_)
            | CallKind::ClientWrite
            | CallKind::Fetch
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Stdin { .. }
            | CallKind::Mcp { .. }
            | CallKind::Other => addresses_in(arguments),
        };
        Self {
            name,
            arguments,
            more_paths: paths.len() < path_texts.len(),
            kind,
            paths,
            texts,
            addresses,
            more_addresses,
            place,
        }
    }

    fn verdict(&self, table: &RuleTable, assessor: &mut Assessor<'_>) -> CommandVerdict {
        let matching = |rule: &&ToolRule| self.is_named_by(rule);
        let rules: Vec<&ToolRule> = table.tool_rules.iter().filter(matching).collect();
        let ids = rules.iter().map(|rule| rule.data.id.get_ref().clone());
        assessor.matched_rules.extend(ids);
        let notes = rules.iter().filter_map(|rule| rule.data.note.clone());
        assessor.notes.extend(notes);
        let reads = || {
            rules
                .iter()
                .filter(|rule| rule.data.category == Category::Read)
        };
        // Where both a user's rule and a built-in one allow it, the user's says more.
        let read = reads()
            .find(|rule| rule.origin == RuleOrigin::User)
            .or(reads().next());
        let touches_nothing = reads().any(|rule| rule.origin == RuleOrigin::BuiltIn)
            && matches!(self.kind, CallKind::Other);
        let guarded = match touches_nothing {
            true => None,
            false => self.guard_verdict(assessor),
        };
        let certain = self.certain_verdict(assessor);
        let secret = match (read, touches_nothing) {
            (Some(_), false) => self.secret_verdict(assessor),
            _ => None,
        };
        let private = match read.is_some_and(|read| read.has_hosts()) || touches_nothing {
            true => None,
            false => self.private_host_verdict(),
        };
        let is_covered = self.is_covered_by(&rules);
        let raising = rules.iter().filter(|rule| {
            let by_user = read.is_some_and(|read| read.origin == RuleOrigin::User) || is_covered;
            let lowered = by_user && rule.origin == RuleOrigin::BuiltIn && !rule.is_limited();
            rule.data.category > Category::Read
                && !(lowered && rule.data.category == Category::Write)
        });
        let raising: Vec<CommandVerdict> = raising.map(|rule| rule.verdict()).collect();
        // What rules say about some of the paths is not all that is to say about the call.
        let is_partial = !raising.is_empty() && rules.iter().all(|rule| rule.is_limited());
        let rest = (is_partial && !is_covered && read.is_none()).then(|| self.unruled_verdict());
        let worst = guarded
            .into_iter()
            .chain(certain)
            .chain(secret)
            .chain(private)
            .chain(raising)
            .chain(rest)
            .reduce(CommandVerdict::max);
        match (worst, read) {
            (Some(worst), _) => worst,
            (None, Some(read)) => {
                let mut verdict = read.verdict();
                verdict.profile = self.read_profile();
                verdict
            }
            (None, None) => self.unruled_verdict(),
        }
    }

    /// Whether rules of a user that raise are about all of this call: each of its paths and
    /// addresses.
    fn is_covered_by(&self, rules: &[&ToolRule]) -> bool {
        let users: Vec<_> = rules
            .iter()
            .filter(|rule| rule.origin == RuleOrigin::User && rule.data.category > Category::Read)
            .collect();
        let has_path = |path: &JudgedPath<'_>| {
            let mut users = users.iter();
            users.any(|rule| !rule.has_paths() || rule.matches_path(&path.relative))
        };
        let has_host = |address: &WebAddress| {
            let all = |rule: &ToolRule| address.hosts.iter().all(|host| rule.matches_host(host));
            users.iter().any(|rule| !rule.has_hosts() || all(rule))
        };
        let is_whole = users.iter().any(|rule| !rule.is_limited());
        let is_all_seen = !self.more_paths && !self.more_addresses;
        let all_covered = self.paths.iter().all(has_path) && self.addresses.iter().all(has_host);
        !users.is_empty() && (is_whole || is_all_seen && all_covered)
    }

    /// Whether a rule is about this call. A rule that lowers must be about all of its paths and
    /// addresses, one that raises about any.
    fn is_named_by(&self, rule: &ToolRule) -> bool {
        rule.names_tool(self.name) && self.paths_fit(rule) && self.hosts_fit(rule)
    }

    fn paths_fit(&self, rule: &ToolRule) -> bool {
        let mut paths = self.paths.iter();
        match rule.data.category {
            _ if !rule.has_paths() => true,
            Category::Read => {
                let fits =
                    |path: &JudgedPath<'_>| path.is_inside && rule.matches_path(&path.relative);
                let texts_fit = || {
                    let mut texts = self.texts.iter().filter(|text| may_be_path(text));
                    texts.all(|text| {
                        text.len() <= MAX_PATH_BYTES
                            && !has_other_meaning(text)
                            && fits(&JudgedPath::new(text, &self.place))
                    })
                };
                !self.more_paths
                    && !self.paths.is_empty()
                    && self.texts.len() <= MAX_PATHS
                    && paths.all(|path| {
                        fits(path) && (self.texts.is_empty() || !has_other_meaning(path.text))
                    })
                    && texts_fit()
            }
            Category::Write | Category::Destructive | Category::Blocked => {
                // No file has a path that is too long, so nothing is written there.
                let unseen = self.more_paths && !matches!(self.kind, CallKind::File(_));
                unseen || paths.any(|path| rule.matches_path(&path.relative))
            }
        }
    }

    fn hosts_fit(&self, rule: &ToolRule) -> bool {
        let fits = |address: &WebAddress| address.hosts.iter().any(|host| rule.matches_host(host));
        let mut addresses = self.addresses.iter();
        match rule.data.category {
            _ if !rule.has_hosts() => true,
            Category::Read => {
                !self.more_addresses
                    && !self.addresses.is_empty()
                    && addresses.all(|address| address.is_plain && fits(address))
            }
            Category::Write | Category::Destructive | Category::Blocked => addresses.any(fits),
        }
    }

    /// What no rule of a user lowers, because of the form of the call or its path.
    fn certain_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        let unclear =
            |risk: Risk, reason: &str| Some(CommandVerdict::write(risk, "tool.arguments", reason));
        match &self.kind {
            CallKind::File(file_tool) => {
                let Some(path) = self.paths.first() else {
                    return unclear(Risk::High, "its path is too long for any file");
                };
                match file_tool {
                    FileTool::Read { .. } => self.read_verdict(path, assessor),
                    FileTool::Write { .. } | FileTool::Edit { .. } => {
                        self.write_verdict(path, assessor)
                    }
                }
            }
            CallKind::ClientRead(_) => self.client_read_verdict(assessor),
            CallKind::ClientWrite if self.paths.is_empty() => {
                unclear(Risk::High, "changes a file that its arguments do not name")
            }
            CallKind::ClientWrite | CallKind::Patch(Some(_)) => {
                let verdicts = self.paths.iter();
                let verdicts = verdicts.filter_map(|path| self.write_verdict(path, assessor));
                let too_many = self
                    .more_paths
                    .then_some("changes more files than are looked at");
                let too_many = too_many.and_then(|reason| unclear(Risk::High, reason));
                let verdicts: Vec<_> = verdicts.chain(too_many).collect();
                verdicts.into_iter().reduce(CommandVerdict::max)
            }
            CallKind::Patch(None) => {
                let reason = "applies a patch that PVP cannot read, so its files are not known";
                Some(CommandVerdict::write(Risk::High, "client.patch", reason))
            }
            CallKind::Stdin { types: true } => {
                let reason = "types into a shell that is already running, where nothing is judged";
                Some(CommandVerdict::new(
                    Category::Blocked,
                    Risk::Critical,
                    "client.write-stdin",
                    reason,
                ))
            }
            CallKind::Stdin { types: false }
            | CallKind::Fetch
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Mcp { .. }
            | CallKind::Other => {
                let reason = format!("its arguments are not those of PVP's own `{}`", self.name);
                FileTool::is_name(self.name).then(|| unclear(Risk::Medium, &reason))?
            }
        }
    }

    /// The verdict on a client's own reading tool, unless all that it reads is in the workspace and
    /// none of it is secret.
    fn client_read_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        if let Some(name) = kind::unknown_read_argument(self.arguments) {
            let reason = format!("has an argument that PVP does not know: `{}`", shown(name));
            return Some(CommandVerdict::write(Risk::Low, "tool.arguments", &reason));
        }
        if self.more_paths || self.texts.len() > MAX_PATHS {
            let reason = "names more files than are looked at";
            return Some(CommandVerdict::write(Risk::Low, "tool.arguments", reason));
        }
        let of_text = |text: &&&'a str| may_be_path(text) && text.len() <= MAX_PATH_BYTES;
        let texts = self.texts.iter().filter(of_text);
        let texts: Vec<_> = texts
            .map(|text| JudgedPath::new(text, &self.place))
            .collect();
        let mut paths = self.paths.iter().chain(&texts);
        paths.find_map(
            |path| match has_other_meaning(path.text) && !is_brace_glob(path.text) {
                true => Some(self.outside_verdict(path, assessor)),
                false if self.searches_repository(path) => {
                    let reason = format!("searches all of `{}`, where secrets may be", path.text);
                    let verdict = CommandVerdict::sensitive_read;
                    Some(verdict(Risk::Medium, "path.secret", &reason))
                }
                false if path.is_workspace => None,
                false => self.read_verdict(path, assessor),
            },
        )
    }

    /// Whether this is a search through git's own directory, whose settings may hold tokens.
    fn searches_repository(&self, path: &JudgedPath<'_>) -> bool {
        let is_repository = path
            .resolved
            .components
            .last()
            .is_some_and(|it| it == ".git");
        is_repository && matches!(self.kind, CallKind::ClientRead(kind::ReadKind::Content))
    }

    /// The verdict on a call of a tool that is not ours, if a text in its arguments names a secret
    /// file: whoever vouches for a tool does not vouch for every file that it is given.
    fn secret_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        let length: usize = self.texts.iter().map(|text| text.len()).sum();
        if length > MAX_SEARCHED_BYTES {
            let reason = "its arguments are too long to search them for secret files";
            return Some(CommandVerdict::write(Risk::Low, "tool.arguments", reason));
        }
        let shown = self
            .texts
            .iter()
            .find_map(|text| self.secret_name_in(text))?;
        assessor.notes.insert(format!("may hold secrets: {shown}"));
        let reason = format!("names `{shown}`, which may hold secrets");
        let (risk, rule) = (Risk::High, "path.secret");
        Some(match matches!(self.kind, CallKind::ClientRead(_)) {
            true => CommandVerdict::sensitive_read(risk, rule, &reason),
            false => CommandVerdict::write(risk, rule, &reason),
        })
    }

    fn secret_name_in(&self, text: &str) -> Option<String> {
        let is_secret_name = |name: &str| {
            let path = self.place.directory.join(name);
            is_secret(&path) || is_aimed_at_secret(&path)
        };
        texts_meant(text).iter().find_map(|text| {
            let mut names = std::iter::once(text.as_str()).chain(possible_names(text));
            names.find(|name| is_secret_name(name)).map(str::to_owned)
        })
    }

    fn read_verdict(
        &self,
        path: &JudgedPath<'_>,
        assessor: &mut Assessor<'_>,
    ) -> Option<CommandVerdict> {
        let shown = &path.relative;
        if is_secret(&path.resolved) {
            assessor.notes.insert(format!("may hold secrets: {shown}"));
            let reason = format!("reads `{shown}`, which may hold secrets");
            return Some(CommandVerdict::sensitive_read(
                Risk::High,
                "path.secret",
                &reason,
            ));
        }
        (!path.is_inside).then(|| self.outside_verdict(path, assessor))
    }

    fn outside_verdict(
        &self,
        path: &JudgedPath<'_>,
        assessor: &mut Assessor<'_>,
    ) -> CommandVerdict {
        let text = path.text;
        assessor
            .notes
            .insert(format!("outside the workspace: {text}"));
        let reason = format!("reads `{text}`, which is not certain to be in the workspace");
        CommandVerdict::sensitive_read(Risk::Low, "path.outside", &reason)
    }

    fn write_verdict(
        &self,
        path: &JudgedPath<'_>,
        assessor: &mut Assessor<'_>,
    ) -> Option<CommandVerdict> {
        let destructive = |rule: &str, reason: &str| {
            CommandVerdict::new(Category::Destructive, Risk::High, rule, reason)
        };
        let mut verdicts = Vec::new();
        if !path.is_inside {
            let text = path.text;
            assessor
                .notes
                .insert(format!("outside the workspace: {text}"));
            let reason = format!("writes to `{text}`, which is not certain to be in the workspace");
            verdicts.push(destructive("tool.file-outside", &reason));
            // What no redirection may overwrite, no tool may.
            let directory = &self.place.directory;
            verdicts.extend(assessor.output_verdicts(&ShellWord::literal(text), directory));
        }
        if is_secret(&path.resolved) {
            let shown = &path.relative;
            assessor.notes.insert(format!("may hold secrets: {shown}"));
            let reason = format!("overwrites `{shown}`, which may hold secrets");
            verdicts.push(destructive("tool.file-secret", &reason));
        }
        verdicts.into_iter().reduce(CommandVerdict::max)
    }

    /// How a read is held to reading. Nothing of ours confines another program's tool; its owner
    /// has vouched for it.
    fn read_profile(&self) -> SandboxProfile {
        match matches!(self.kind, CallKind::File(FileTool::Read { .. })) {
            true => SandboxProfile::Read,
            false => SandboxProfile::None,
        }
    }

    fn add_doubts_and_notes(&self, assessor: &mut Assessor<'_>) {
        let control = |path: &JudgedPath<'_>| path.text.chars().any(char::is_control);
        if self.paths.iter().any(control) {
            let doubt = "its path contains control characters";
            assessor.doubts.push(doubt.to_owned());
        }
        let CallKind::File(
            FileTool::Write { content: text, .. } | FileTool::Edit { new_text: text, .. },
        ) = &self.kind
        else {
            return;
        };
        if text.chars().any(turns_text_around) {
            let note = "the new text contains characters that change the order in which text is \
                        displayed; it may not be what it seems";
            assessor.notes.insert(note.to_owned());
        }
    }
}

/// The addresses among the arguments, and whether there may be others.
fn addresses_in(arguments: &JsonObject) -> (Vec<WebAddress>, bool) {
    let texts = text_arguments(arguments);
    let usable = texts.iter().filter(|text| text.len() <= MAX_PATH_BYTES);
    let found = usable.filter_map(|text| WebAddress::parse(text));
    let found: Vec<_> = found.take(MAX_PATHS + 1).collect();
    let is_address = |text: &str| WebAddress::parse(text).is_some();
    let may_be_one = |text: &&str| {
        !is_address(text) && (text.starts_with("//") || !text.contains(' ') && text.contains("://"))
    };
    let named = |name: &str| {
        let name = name.to_ascii_lowercase();
        ADDRESS_WORDS.iter().any(|word| name.contains(word))
    };
    let named_otherwise = arguments
        .iter()
        .filter(|(name, _)| named(name))
        .any(|(_, value)| !value.as_str().is_some_and(is_address));
    let long = texts.iter().any(|text| text.len() > MAX_PATH_BYTES);
    let more = found.len() > MAX_PATHS || long || named_otherwise || texts.iter().any(may_be_one);
    (found, more)
}

/// Whether a text may be a path, whatever its argument is called.
fn may_be_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text == ".." || text.starts_with('~')
}

/// Whether a tool may take this path for another than it seems to be: an address, a path of
/// Windows, or one with lists, variables or encoded characters in it.
fn has_other_meaning(path: &str) -> bool {
    path.contains(['\\', '{', '}', '$', '%', ':'])
}

/// Whether a pattern only lists endings and names, as `src/**/*.{ts,tsx}` does.
fn is_brace_glob(path: &str) -> bool {
    !path.contains(['\\', '$', '%', ':'])
        && expand_braces(path).iter().all(|one| {
            !one.contains(['{', '}']) && !one.starts_with(['/', '~']) && !one.contains("..")
        })
}

/// What a text may mean to a tool that decodes it, takes it for a path of Windows, or expands lists.
fn texts_meant(text: &str) -> Vec<String> {
    let decoded = percent_decoded(text).replace('\\', "/");
    let expanded = match decoded.len() <= MAX_PATH_BYTES {
        true => expand_braces(&decoded),
        false => Vec::new(),
    };
    std::iter::once(decoded).chain(expanded).collect()
}

/// The beginning of a text that an agent chose, as it may stand in a reason.
fn shown(text: &str) -> String {
    const MAX_SHOWN_CHARACTERS: usize = 60;
    let visible = |c: &char| !crate::is_invisible(*c) && *c != '\n' && *c != '`';
    let all: String = text.chars().filter(visible).collect();
    match all.chars().count() > MAX_SHOWN_CHARACTERS {
        true => format!(
            "{}…",
            all.chars().take(MAX_SHOWN_CHARACTERS).collect::<String>()
        ),
        false => all,
    }
}

/// Characters by which source code looks different from what it means.
fn turns_text_around(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The file that a call of ours changes, from the workspace, if it is there.
pub(crate) fn changed_file(action: &Action, workspace: &Workspace) -> Option<String> {
    let file_tool = kind::file_tool(action)?;
    match &file_tool {
        FileTool::Read { .. } => None,
        FileTool::Write { path, .. } | FileTool::Edit { path, .. } => {
            let path = JudgedPath::new(path, &PathPlace::new(workspace, action.cwd.as_deref()));
            path.is_inside.then_some(path.relative)
        }
    }
}

/// Whether a path from the workspace names something that usually holds keys, passwords or tokens.
pub fn is_secret_path(path: &str) -> bool {
    is_secret(&ResolvedPath::new(PathRoot::Workspace).join(path))
}
