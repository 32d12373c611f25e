//! Rules for tools other than the shell: which calls they name, by tool, by path and by host.

use pvp_protocol::{Category, Command, Risk};

use crate::load::{PolicyError, RuleSource};
use crate::rule_file::ToolRuleData;
use crate::rule_table::RuleOrigin;
use crate::secret_files::glob_matches;
use crate::verdict::{CommandVerdict, default_risk};
use crate::web_address::HostPattern;

/// The longest pattern for paths, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// A rule that names tools, and perhaps the paths and hosts in their arguments.
#[derive(Debug, Clone)]
pub(crate) struct ToolRule {
    pub(crate) data: ToolRuleData,
    pub(crate) origin: RuleOrigin,
    names: Vec<NamePattern>,
    paths: Vec<PathPattern>,
    hosts: Vec<HostPattern>,
}

#[derive(Debug, Clone)]
enum NamePattern {
    Exact(String),
    /// All names that begin so.
    Prefix(String),
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// A pattern for paths from the workspace: `*` and `?` within a name, `**` for any number of
/// directories. One without a slash matches the last name of a path anywhere.
#[derive(Debug, Clone)]
struct PathPattern(Vec<PatternPart>);

#[derive(Debug, Clone)]
enum PatternPart {
    AnyDirectories,
    Name(Vec<char>),
}

impl PathPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("the path pattern `{text}` {why}"));
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
            return bad("must have 1 to 1024 bytes");
        }
        if text.contains(['[', ']', '{', '}', '\\']) {
            return bad("may have only `*`, `**` and `?`, no brackets or backslashes");
        }
        if text.starts_with('~') {
            return bad("must start in the workspace, or at `/`");
        }
        let names: Vec<&str> = text.strip_prefix('/').unwrap_or(text).split('/').collect();
        if names.iter().any(|name| ["", ".", ".."].contains(name)) {
            return bad("has an empty name, `.` or `..` in it");
        }
        if names
            .iter()
            .any(|name| name.contains("**") && *name != "**")
        {
            return bad("has `**` next to other characters; it stands for whole directories");
        }
        let mut parts = match text.contains('/') {
            true => Vec::new(),
            false => vec![PatternPart::AnyDirectories],
        };
        if text.starts_with('/') {
            parts.push(PatternPart::Name(Vec::new()));
        }
        parts.extend(names.iter().map(|name| match *name {
            "**" => PatternPart::AnyDirectories,
            name => PatternPart::Name(name.chars().collect()),
        }));
        Ok(Self(parts))
    }

    /// Whether the pattern matches; the first name of an absolute path is empty.
    fn matches(&self, names: &[&str]) -> bool {
        // How many of the names the pattern so far may have matched: a list, because going back
        // and trying again takes exponential time.
        let mut matched = vec![false; names.len() + 1];
        matched[0] = true;
        for (number, part) in self.0.iter().enumerate() {
            let is_last = number + 1 == self.0.len();
            match part {
                PatternPart::AnyDirectories => {
                    // `a/**` is what is in `a`, and not `a` itself.
                    let fewest = usize::from(is_last);
                    let from = matched.iter().position(|it| *it).map(|at| at + fewest);
                    matched.fill(false);
                    if let Some(rest) = from.and_then(|from| matched.get_mut(from..)) {
                        rest.fill(true);
                    }
                }
                PatternPart::Name(pattern) => {
                    for at in (0..names.len()).rev() {
                        let fits = matched[at] && name_matches(pattern, names[at]);
                        matched[at + 1] = fits;
                    }
                    matched[0] = false;
                }
            }
        }
        matched[names.len()]
    }
}

fn name_matches(pattern: &[char], name: &str) -> bool {
    match pattern.contains(&'*') || pattern.contains(&'?') {
        true => glob_matches(pattern, name),
        false => pattern.iter().copied().eq(name.chars()),
    }
}

impl ToolRule {
    /// Checks and compiles a rule.
    pub(crate) fn new(
        data: ToolRuleData,
        source: RuleSource<'_>,
        origin: RuleOrigin,
    ) -> Result<Self, PolicyError> {
        let error = |reason: String| source.error(data.id.span().start, reason);
        let names = parse_names(&data).map_err(error)?;
        let paths: Result<_, _> = data.path.iter().map(|it| PathPattern::parse(it)).collect();
        let paths = paths.map_err(error)?;
        let hosts: Result<Vec<_>, _> = data.hosts.iter().map(|it| HostPattern::parse(it)).collect();
        let hosts = hosts.map_err(error)?;
        if data.category == Category::Read && hosts.contains(&HostPattern::Any) {
            let reason = "`*` is every host, so it cannot be a read; name the hosts";
            return Err(error(reason.to_owned()));
        }
        if data.category == Category::Read && origin == RuleOrigin::User {
            check_user_read(&data, &names).map_err(error)?;
        }
        if data.allow_read && data.category != Category::Read {
            return Err(error(
                "`allow_read` works only with category `read`".to_owned(),
            ));
        }
        for example in data.matches.iter().chain(&data.not) {
            Command::tool_call_from_line(example).map_err(|problem| {
                error(format!("the example `{example}` is not a call: {problem}"))
            })?;
        }
        Ok(Self {
            data,
            origin,
            names,
            paths,
            hosts,
        })
    }

    pub(crate) fn names_tool(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether the rule is about certain paths only.
    pub(crate) fn has_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether the rule is about certain hosts only.
    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether the rule is about some calls of its tools only.
    pub(crate) fn is_limited(&self) -> bool {
        self.has_paths() || self.has_hosts()
    }

    pub(crate) fn matches_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    pub(crate) fn matches_path(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.paths.iter().any(|pattern| pattern.matches(&names))
    }

    pub(crate) fn verdict(&self) -> CommandVerdict {
        let id = self.data.id.get_ref();
        CommandVerdict::new(self.data.category, self.risk(), id, &self.data.reason).by(self.origin)
    }

    pub(crate) fn risk(&self) -> Risk {
        let usual = default_risk(self.data.category);
        match self.data.category {
            Category::Read => Risk::Safe,
            Category::Write | Category::Destructive | Category::Blocked => {
                self.data.risk.unwrap_or(usual)
            }
        }
    }
}

fn parse_names(data: &ToolRuleData) -> Result<Vec<NamePattern>, String> {
    let id = data.id.get_ref();
    let mut names = Vec::new();
    for name in data.name.split_whitespace() {
        let pattern = match name.strip_suffix('*') {
            Some(prefix) => NamePattern::Prefix(prefix.to_owned()),
            None => NamePattern::Exact(name.to_owned()),
        };
        let (NamePattern::Exact(text) | NamePattern::Prefix(text)) = &pattern;
        if text.contains('*') {
            return Err(format!(
                "`*` stands only at the end of a name, not in `{name}`"
            ));
        }
        if name == "shell" {
            return Err("`shell` runs commands; write a `[[rule]]` for them".to_owned());
        }
        names.push(pattern);
    }
    match names.is_empty() {
        true => Err(format!("`name` of `{id}` names no tool")),
        false => Ok(names),
    }
}

/// A user may let calls of a tool run without a vote, but has to say so and to name the tool.
fn check_user_read(data: &ToolRuleData, names: &[NamePattern]) -> Result<(), String> {
    if !data.allow_read {
        return Err("set `allow_read = true` to lower a write to a read".to_owned());
    }
    let all = |pattern: &NamePattern| matches!(pattern, NamePattern::Prefix(it) if it.is_empty());
    match names.iter().any(all) {
        true => Err("`*` is every tool, so it cannot be a read; name the tools".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        PathPattern::parse(pattern).unwrap().matches(&names)
    }

    #[test]
    fn patterns_match_as_those_of_gitignore_do() {
        for (pattern, path) in [
            ("Makefile", "Makefile"),
            ("Makefile", "a/b/Makefile"),
            ("*.lock", "a/Cargo.lock"),
            ("docs/**", "docs/a"),
            ("docs/**", "docs/a/b.md"),
            ("**/.git/**", ".git/config"),
            ("**/.git/**", "a/b/.git/hooks/x"),
            ("a/*/c", "a/b/c"),
            ("a/**/c", "a/c"),
            ("a/**/c", "a/b/b/c"),
            ("?.md", "é.md"),
            ("**", "a/b"),
            ("/etc/**", "/etc/hosts"),
            ("a/**/b/**/c", "a/x/b/b/y/c"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("Makefile", "Makefile.am"),
            ("Makefile", "Makefile/a"),
            ("docs/**", "docs"),
            ("docs/**", "a/docs/b"),
            ("a/*/c", "a/b/b/c"),
            ("a/*", "a"),
            ("a/?", "a/"),
            ("etc/**", "/etc/hosts"),
            ("/etc/**", "etc/hosts"),
            ("**/x", "a/xx"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_would_mean_something_else_are_refused() {
        for pattern in [
            "", "a//b", "../a", "./a", "a/", "~/a", "a**/b", "{a,b}", "[ab]", "a\\*",
        ] {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
