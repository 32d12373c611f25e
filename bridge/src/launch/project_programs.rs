//! What a repository's own settings make a client run or use without asking anybody.

use std::path::{Path, PathBuf};

use super::project_settings::{self, SettingsProblem};
use crate::hooks::HookClient;

/// Names that are shown of one file.
const MAX_NAMES: usize = 5;

/// Entries that are read of one directory: more than those that count for nothing.
const MAX_ENTRIES: usize = 1000;

/// Bytes of the longest file of which the lines are read.
const MAX_LINES_BYTES: u64 = 1024 * 1024;

/// What counts of a file in a repository.
enum Counts {
    /// That it is there.
    Present,
    /// Every name in its JSON but these, which only say how something looks or which model is used.
    NamesBut(&'static [&'static str]),
    /// Everything in the directory but these.
    EntriesBut(&'static [&'static str]),
    /// Every line but empty ones, comments, and `name = value` with one of these names.
    LinesBut(&'static [&'static str]),
}

/// Up to where a client looks for a file.
#[derive(PartialEq, Eq)]
enum Above {
    Repository,
    Root,
}

type ProjectFile = (&'static str, Above, Counts);

const CLAUDE: &[ProjectFile] = &[
    (".claude/settings.json", Above::Repository, Counts::Present),
    (
        ".claude/settings.local.json",
        Above::Repository,
        Counts::Present,
    ),
    (".claude/skills", Above::Repository, Counts::Present),
    (".claude/agents", Above::Repository, Counts::Present),
    (".claude/commands", Above::Repository, Counts::Present),
    (".mcp.json", Above::Repository, Counts::Present),
];

const INERT_FOR_OPENCODE: &[&str] = &[
    "$schema",
    "autoupdate",
    "instructions",
    "keybinds",
    "model",
    "share",
    "small_model",
    "theme",
    "username",
];

/// Half of this client leaves them out when told to; the other half still loads plugins.
const OPENCODE: &[ProjectFile] = &[
    (
        "opencode.json",
        Above::Root,
        Counts::NamesBut(INERT_FOR_OPENCODE),
    ),
    (
        "opencode.jsonc",
        Above::Root,
        Counts::NamesBut(INERT_FOR_OPENCODE),
    ),
    (
        ".opencode",
        Above::Root,
        Counts::EntriesBut(&[
            ".gitignore",
            "agent",
            "agents",
            "bun.lock",
            "command",
            "commands",
            "node_modules",
            "package-lock.json",
            "package.json",
            "plans",
            "skill",
            "skills",
            "themes",
        ]),
    ),
];

const GEMINI: &[ProjectFile] = &[
    (
        ".gemini/settings.json",
        Above::Repository,
        Counts::NamesBut(&[
            "$schema",
            "context",
            "contextFileName",
            "general",
            // What it may not say is looked at with the plan.
            "hooksConfig",
            "model",
            "output",
            "privacy",
            "theme",
            "ui",
        ]),
    ),
    (
        ".gemini/.env",
        Above::Root,
        Counts::LinesBut(&[
            "GEMINI_API_KEY",
            "GEMINI_MODEL",
            "GOOGLE_API_KEY",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ]),
    ),
    (".gemini/agents", Above::Repository, Counts::Present),
    (".gemini/extensions", Above::Repository, Counts::Present),
];

const INERT_FOR_COPILOT: &[&str] = &[
    "$schema",
    "disableAllHooks",
    "includeCoAuthoredBy",
    "model",
    "permissions",
    "theme",
];

const COPILOT: &[ProjectFile] = &[
    (".mcp.json", Above::Repository, Counts::Present),
    (".github/mcp.json", Above::Repository, Counts::Present),
    (".vscode/mcp.json", Above::Repository, Counts::Present),
    (".lsp.json", Above::Repository, Counts::Present),
    (".github/lsp.json", Above::Repository, Counts::Present),
    (".github/hooks", Above::Repository, Counts::Present),
    (".github/extensions", Above::Repository, Counts::Present),
    (".github/agents", Above::Repository, Counts::Present),
    (".claude/agents", Above::Repository, Counts::Present),
    (
        ".github/copilot/settings.json",
        Above::Repository,
        Counts::NamesBut(INERT_FOR_COPILOT),
    ),
    (
        ".github/copilot/settings.local.json",
        Above::Repository,
        Counts::NamesBut(INERT_FOR_COPILOT),
    ),
    (
        ".claude/settings.json",
        Above::Repository,
        Counts::NamesBut(INERT_FOR_COPILOT),
    ),
    (
        ".claude/settings.local.json",
        Above::Repository,
        Counts::NamesBut(INERT_FOR_COPILOT),
    ),
];

const CODEX: &[ProjectFile] = &[(
    ".codex/config.toml",
    Above::Repository,
    Counts::LinesBut(&[
        "model",
        "model_reasoning_effort",
        "model_reasoning_summary",
        "model_verbosity",
        "personality",
        "project_doc_max_bytes",
    ]),
)];

/// What a client would run or use of the workspace, and of the repository around it.
pub(super) fn find(
    client: HookClient,
    workspace: &Path,
    home: Option<&Path>,
) -> Vec<SettingsProblem> {
    let files = match client {
        HookClient::Claude => CLAUDE,
        HookClient::OpenCode => OPENCODE,
        HookClient::Gemini => GEMINI,
        HookClient::Copilot => COPILOT,
        HookClient::Codex => CODEX,
    };
    let repository = project_settings::directories_of(workspace);
    let all: Vec<PathBuf> = workspace.ancestors().map(Path::to_owned).collect();
    let home = home.map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
    let mut problems = Vec::new();
    for (name, above, counts) in files {
        let directories = match above {
            Above::Repository => &repository,
            Above::Root => &all,
        };
        // What is in the home directory is the person's own.
        let foreign = directories
            .iter()
            .filter(|directory| Some(*directory) != home.as_ref());
        for file in foreign.map(|directory| directory.join(name)) {
            if let Some(what) = counts.found_in(&file) {
                problems.push(SettingsProblem { file, what });
            }
        }
    }
    problems
}

impl Counts {
    /// What counts in a file, or why it cannot be read: the client may read it differently.
    fn found_in(&self, file: &Path) -> Option<String> {
        let unread = |why: String| Some(format!("something that cannot be read: {why}"));
        match std::fs::symlink_metadata(file) {
            Ok(_) => {}
            Err(error) if is_missing(&error) => return None,
            Err(error) => return unread(error.to_string()),
        }
        match self {
            Self::Present => match std::fs::read_dir(file) {
                Ok(mut entries) => entries.next().map(|_| "something in it".to_owned()),
                Err(_) => Some("settings".to_owned()),
            },
            Self::NamesBut(inert) => match project_settings::read(file) {
                Ok(None) => None,
                Ok(Some(settings)) => {
                    let names = settings.keys().map(String::as_str);
                    listed(names.filter(|name| !inert.contains(name)))
                }
                Err(why) => unread(why),
            },
            Self::EntriesBut(inert) => match read_entries(file) {
                Ok(names) => {
                    let names = names.iter().map(String::as_str);
                    listed(names.filter(|name| !inert.contains(name)))
                }
                Err(error) => unread(error.to_string()),
            },
            Self::LinesBut(inert) => match read_lines(file) {
                Ok(text) => listed(names_of_lines(&text).filter(|name| !inert.contains(name))),
                Err(why) => unread(why),
            },
        }
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// The names in a directory, in order.
fn read_entries(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?.take(MAX_ENTRIES);
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn read_lines(file: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(file).map_err(|error| error.to_string())?;
    match metadata.is_file() && metadata.len() <= MAX_LINES_BYTES {
        true => std::fs::read_to_string(file).map_err(|error| error.to_string()),
        false => Err("it is not a file, or too long".to_owned()),
    }
}

/// What each line sets; a line that is read otherwise counts as a name that nobody expects.
fn names_of_lines(text: &str) -> impl Iterator<Item = &str> {
    // Clients in JavaScript end a line at these too.
    text.split(['\n', '\r', '\u{2028}', '\u{2029}'])
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.strip_prefix("export ").unwrap_or(line))
        .map(|line| line.split_once('=').map_or(line, |(name, _)| name).trim())
}

/// Names in one line, as a person can read them; `None` if there are none.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let shown = |name: &str| {
        let plain: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        format!("`{plain}`")
    };
    let names: Vec<_> = names.take(MAX_NAMES).map(shown).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace inside a repository, with one file.
    fn found(client: HookClient, name: &str, text: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().join("sub/work");
        std::fs::create_dir_all(root.path().join(".git")).unwrap();
        // A repository inside that is none does not hide what is around it.
        std::fs::create_dir_all(root.path().join("sub/.git")).unwrap();
        std::fs::create_dir_all(&workspace).unwrap();
        let file = root.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let own = find(client, &workspace, Some(root.path()));
        assert_eq!(own, [], "what is in the home directory is the person's own");
        let problems = find(client, &workspace, None);
        problems.into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn what_a_repository_runs_is_found() {
        use HookClient::{Claude, Codex, Copilot, Gemini, OpenCode};
        for (client, name, text, what) in [
            (Claude, ".claude/settings.json", "{}", "settings"),
            (
                Claude,
                ".claude/skills/a/SKILL.md",
                "text",
                "something in it",
            ),
            (
                OpenCode,
                "opencode.jsonc",
                r#"{"model": "x", "plugin": [],} // y"#,
                "`plugin`",
            ),
            (OpenCode, ".opencode/plugin/a.js", "", "`plugin`"),
            (OpenCode, ".opencode/opencode.json", "{}", "`opencode.json`"),
            (
                Gemini,
                ".gemini/settings.json",
                r#"{"ui": {}, "tools": {"discoveryCommand": "x"}, "mcpServers": {}}"#,
                "`tools`, `mcpServers`",
            ),
            (
                Gemini,
                ".gemini/.env",
                "GEMINI_API_KEY=x\n# y\u{2028}export LD_PRELOAD=z\n",
                "`LD_PRELOAD`",
            ),
            (Copilot, ".mcp.json", "{}", "settings"),
            (Copilot, ".github/hooks/a.json", "{}", "something in it"),
            (
                Copilot,
                ".claude/settings.json",
                r#"{"permissions": {}, "env": {}}"#,
                "`env`",
            ),
            (
                Codex,
                ".codex/config.toml",
                "model = \"x\"\n[mcp_servers.evil]\ncommand = \"sh\"\n",
                "`[mcp_servers.evil]`, `command`",
            ),
            (Codex, ".codex/config.toml", "notify = [\"sh\"]", "`notify`"),
        ] {
            assert_eq!(found(client, name, text), [what], "{client:?} {name}");
        }
    }

    #[test]
    fn what_runs_nothing_is_not_found() {
        use HookClient::{Codex, Copilot, Gemini, OpenCode};
        for (client, name, text) in [
            (OpenCode, "opencode.json", r#"{"model": "x"}"#),
            (OpenCode, ".opencode/themes/a.json", "{}"),
            (Gemini, ".gemini/settings.json", r#"{"ui": {}}"#),
            (Gemini, ".gemini/.env", "# key\r\nGEMINI_API_KEY = 'x'\r\n"),
            (Copilot, ".claude/settings.json", r#"{"permissions": {}}"#),
            (Codex, ".codex/config.toml", "# x\nmodel = \"y\"\n"),
        ] {
            assert_eq!(found(client, name, text), [""; 0], "{client:?} {name}");
        }
    }

    #[test]
    fn what_cannot_be_read_counts() {
        let what = found(HookClient::Gemini, ".gemini/settings.json", "{ broken");
        assert!(what[0].starts_with("something that cannot be read"));
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(".codex/config.toml")).unwrap();
        assert_eq!(find(HookClient::Codex, root.path(), None).len(), 1);
    }
}
