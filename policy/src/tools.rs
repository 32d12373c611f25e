//! Assesses calls of tools other than the shell: by the rules that name them, and those of the file
//! tools by their path.

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
use crate::word::ShellWord;

/// Linux opens no longer path.
const MAX_PATH_BYTES: usize = 4096;

/// Paths of one call that rules look at. With more, nothing is a read.
const MAX_PATHS: usize = 64;

/// Texts of one call that are searched for the names of secret files, in bytes. With more, nothing
/// is a read.
const MAX_SEARCHED_BYTES: usize = 32 * 1024;

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
    assessor.span_verdicts.push(SpanVerdict {
        span: 0..0,
        verdict,
    });
    call.add_doubts_and_notes(assessor);
    let paths = call.paths.iter().map(|path| path.text);
    std::iter::once(name.as_str())
        .chain(paths)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A path in the arguments.
struct JudgedPath<'a> {
    /// As it is written.
    text: &'a str,
    resolved: ResolvedPath,
    /// From the workspace; the whole path if it is elsewhere.
    relative: String,
    /// Whether it is certain to be in the workspace, unless a link leads out of it.
    is_inside: bool,
}

impl<'a> JudgedPath<'a> {
    fn new(text: &'a str, workspace: &Workspace) -> Self {
        let directory = workspace.resolve_cwd(None);
        // A tool may take `~` for a home, as a shell does.
        let resolved = match text.strip_prefix('~') {
            Some(rest) => ResolvedPath::new(PathRoot::Home).join(rest.trim_start_matches('/')),
            None => directory.join(text),
        };
        // What a `..` leads to depends on links, so nothing is certain about it.
        let certain = !text.is_empty() && text.split('/').all(|name| name != "..");
        let is_inside = certain && workspace.contains(&resolved) && resolved != directory;
        let from = directory.components.len();
        let relative = match workspace.contains(&resolved) {
            true => resolved.components[from..].join("/"),
            false => resolved.to_string(),
        };
        Self {
            text,
            resolved,
            relative,
            is_inside,
        }
    }
}

/// A call with what its arguments say about files.
struct JudgedCall<'a> {
    /// The name of the tool.
    name: &'a str,
    /// The call, if it is one of our file tools in exactly their form.
    file_tool: Option<FileTool>,
    /// Every path that the arguments name.
    paths: Vec<JudgedPath<'a>>,
    /// Whether there may be others.
    more_paths: bool,
    /// Every text in the arguments of a tool that is not ours, whatever its argument is called.
    texts: Vec<&'a str>,
    /// Where the executor works.
    workspace: &'a Workspace,
}

impl<'a> JudgedCall<'a> {
    fn new(
        action: &Action,
        name: &'a str,
        arguments: &'a JsonObject,
        workspace: &'a Workspace,
    ) -> Self {
        let file_tool = FileTool::from_action(action);
        let texts = match &file_tool {
            Some(_) => arguments
                .get("path")
                .and_then(|it| it.as_str())
                .into_iter()
                .collect(),
            None => path_arguments(arguments),
        };
        let all_texts = match &file_tool {
            Some(_) => Vec::new(),
            None => text_arguments(arguments),
        };
        let usable = texts.iter().filter(|text| text.len() <= MAX_PATH_BYTES);
        let paths = usable
            .take(MAX_PATHS)
            .map(|text| JudgedPath::new(text, workspace))
            .collect::<Vec<_>>();
        Self {
            name,
            file_tool,
            more_paths: paths.len() < texts.len(),
            paths,
            texts: all_texts,
            workspace,
        }
    }

    fn verdict(&self, table: &RuleTable, assessor: &mut Assessor<'_>) -> CommandVerdict {
        let matching = |rule: &&ToolRule| self.is_named_by(rule);
        let rules: Vec<&ToolRule> = table.tool_rules.iter().filter(matching).collect();
        let ids = rules.iter().map(|rule| rule.data.id.get_ref().clone());
        assessor.matched_rules.extend(ids);
        let certain = self.certain_verdict(assessor);
        let read = rules
            .iter()
            .find(|rule| rule.data.category == Category::Read);
        let secret = read.and_then(|_| self.secret_verdict(assessor));
        let raising = rules.iter().filter(|rule| {
            let by_user = read.is_some_and(|read| read.origin == RuleOrigin::User);
            let lowered = by_user && rule.origin == RuleOrigin::BuiltIn && !rule.has_paths();
            rule.data.category > Category::Read
                && !(lowered && rule.data.category == Category::Write)
        });
        let worst = certain
            .into_iter()
            .chain(secret)
            .chain(raising.map(|rule| rule.verdict()))
            .reduce(CommandVerdict::max);
        match (worst, read) {
            (Some(worst), _) => worst,
            (None, Some(read)) => {
                let mut verdict = read.verdict();
                verdict.profile = self.read_profile();
                verdict
            }
            (None, None) => {
                let reason = format!("nothing is known about the tool `{}`", self.name);
                CommandVerdict::write(Risk::Medium, "tool.unknown", &reason)
            }
        }
    }

    /// Whether a rule is about this call. A rule that lowers must be about all of its paths, one
    /// that raises about any.
    fn is_named_by(&self, rule: &ToolRule) -> bool {
        if !rule.names_tool(self.name) {
            return false;
        }
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
                            && fits(&JudgedPath::new(text, self.workspace))
                    })
                };
                !self.more_paths
                    && !self.paths.is_empty()
                    && self.texts.len() <= MAX_PATHS
                    && paths.all(|path| {
                        fits(path) && (self.file_tool.is_some() || !has_other_meaning(path.text))
                    })
                    && texts_fit()
            }
            Category::Write | Category::Destructive | Category::Blocked => {
                self.more_paths || paths.any(|path| rule.matches_path(&path.relative))
            }
        }
    }

    /// What no rule of a user lowers, because of the form of the call or its path.
    fn certain_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        let Some(file_tool) = &self.file_tool else {
            let reason = format!("its arguments are not those of PVP's own `{}`", self.name);
            return FileTool::is_name(self.name)
                .then(|| CommandVerdict::write(Risk::Medium, "tool.arguments", &reason));
        };
        let Some(path) = self.paths.first() else {
            let reason = "its path is too long for any file";
            return Some(CommandVerdict::write(Risk::High, "tool.arguments", reason));
        };
        match file_tool {
            FileTool::Read { .. } => self.read_verdict(path, assessor),
            FileTool::Write { .. } | FileTool::Edit { .. } => self.write_verdict(path, assessor),
        }
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
        Some(CommandVerdict::write(Risk::High, "path.secret", &reason))
    }

    fn secret_name_in(&self, text: &str) -> Option<String> {
        let directory = self.workspace.resolve_cwd(None);
        let is_secret_name = |name: &str| {
            let path = directory.join(name);
            is_secret(&path) || is_aimed_at_secret(&path)
        };
        let decoded = percent_decoded(text).replace('\\', "/");
        let expanded = match decoded.len() <= MAX_PATH_BYTES {
            true => expand_braces(&decoded),
            false => Vec::new(),
        };
        let mut texts = std::iter::once(&decoded).chain(&expanded);
        texts.find_map(|text| {
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
        if path.is_inside {
            return None;
        }
        assessor
            .notes
            .insert(format!("outside the workspace: {}", path.text));
        let reason = format!(
            "reads `{}`, which is not certain to be in the workspace; PVP's executor refuses that",
            path.text
        );
        Some(CommandVerdict::sensitive_read(
            Risk::Low,
            "path.outside",
            &reason,
        ))
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
            let reason = format!(
                "writes to `{text}`, which is not certain to be in the workspace; PVP's executor \
                 refuses that"
            );
            verdicts.push(destructive("tool.file-outside", &reason));
            // What no redirection may overwrite, no tool may.
            let directory = self.workspace.resolve_cwd(None);
            verdicts.extend(assessor.output_verdicts(&ShellWord::literal(text), &directory));
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
        match &self.file_tool {
            Some(FileTool::Read { .. }) => SandboxProfile::Read,
            Some(FileTool::Write { .. } | FileTool::Edit { .. }) | None => SandboxProfile::None,
        }
    }

    fn add_doubts_and_notes(&self, assessor: &mut Assessor<'_>) {
        let control = |path: &JudgedPath<'_>| path.text.chars().any(char::is_control);
        if self.paths.iter().any(control) {
            let doubt = "its path contains control characters";
            assessor.doubts.push(doubt.to_owned());
        }
        let text = match &self.file_tool {
            Some(FileTool::Write { content, .. }) => content,
            Some(FileTool::Edit { new_text, .. }) => new_text,
            Some(FileTool::Read { .. }) | None => return,
        };
        if text.chars().any(turns_text_around) {
            let note = "the new text contains characters that change the order in which text is \
                        displayed; it may not be what it seems";
            assessor.notes.insert(note.to_owned());
        }
    }
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

/// A text with the characters that are encoded in it as `%2e`.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| {
            let digit = after.get(at).map(|byte| char::from(*byte))?;
            digit.to_digit(16).and_then(|it| u8::try_from(it).ok())
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(high * 16 + low);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Characters by which source code looks different from what it means.
fn turns_text_around(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The file that a call of ours changes, from the workspace, if it is there.
pub(crate) fn changed_file(action: &Action, workspace: &Workspace) -> Option<String> {
    let file_tool = FileTool::from_action(action)?;
    match &file_tool {
        FileTool::Read { .. } => None,
        FileTool::Write { path, .. } | FileTool::Edit { path, .. } => {
            let path = JudgedPath::new(path, workspace);
            path.is_inside.then_some(path.relative)
        }
    }
}

/// Whether a path from the workspace names something that usually holds keys, passwords or tokens.
pub fn is_secret_path(path: &str) -> bool {
    is_secret(&ResolvedPath::new(PathRoot::Workspace).join(path))
}
