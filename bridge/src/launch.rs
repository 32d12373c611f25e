//! How each client is started under supervision, without changing any of its files.

pub(crate) mod claude;
mod codex;
pub(crate) mod copilot;
mod flags;
pub(crate) mod gemini;
pub(crate) mod opencode;
mod project_settings;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::hooks::HookClient;

pub use codex::{CodexPlan, ExecPlan, ScreenPlan, plan as plan_codex};
pub use project_settings::SettingsProblem;

/// Why a client is not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error("`{flag}` would switch the supervision off; leave it out")]
    SwitchesOff { flag: String },
    #[error(
        "the settings of this directory would switch the supervision off: {0}; take it out or start the client elsewhere"
    )]
    ProjectSwitchesOff(SettingsProblem),
    #[error("the settings for the client cannot be used: {0}")]
    Settings(String),
    #[error("the plugin for the client cannot be written: {0}")]
    Plugin(String),
    #[error(
        "`{command}` cannot be supervised; start it without `pvp run` if nobody has to decide about what it does"
    )]
    NotSupervised { command: String },
    #[error("`{flag}` does not work under supervision; leave it out{instead}")]
    NotTaken { flag: String, instead: &'static str },
    #[error("{0} cannot be started so yet; `pvp mcp` gives it tools that people decide about")]
    NotYet(&'static str),
}

/// What a client is started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchPlan {
    pub arguments: Vec<OsString>,
    /// Variables that are set, or removed.
    pub environment: Vec<(String, Option<OsString>)>,
    /// Whether the client is offered the tools of an agent in place of its own.
    pub offers_tools: bool,
}

/// The program that clients call as their hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookProgram {
    /// This program, as an absolute path.
    pub program: PathBuf,
    /// The directory with the files of the client.
    pub files: PathBuf,
}

impl HookProgram {
    /// The command line of a hook, for a shell. The files are named here and not in the environment,
    /// which a repository's settings may change.
    pub fn command(&self, client: HookClient, event: Option<&str>) -> String {
        let event = event.map_or(String::new(), |event| format!(" --event {event}"));
        format!(
            "{} hook run {}{event} --files {}",
            quoted(&self.program),
            client.name(),
            quoted(&self.files)
        )
    }

    /// The command line that prints what waits.
    pub fn status_command(&self) -> String {
        let (program, files) = (quoted(&self.program), quoted(&self.files));
        format!("{program} hook status --files {files}")
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a client is asked to show while a call waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingText(pub String);

/// What a repository's settings make a client run or use by itself, for a warning: nobody is asked
/// about the hooks and servers that a repository brings along.
pub fn warn_of_project_settings(client: HookClient, workspace: &Path) -> Vec<String> {
    let files: &[(&str, &[&str])] = match client {
        HookClient::Claude => &claude::ACTIVE_SETTINGS,
        HookClient::Gemini => &[(
            ".gemini/settings.json",
            &["hooks", "mcpServers", "tools", "env"],
        )],
        HookClient::Copilot => &[
            (".github/hooks", &[]),
            (".github/copilot/settings.json", &["hooks", "env"]),
            (".claude/settings.json", &["hooks", "env"]),
            (".mcp.json", &["mcpServers"]),
        ],
        HookClient::OpenCode => &[
            ("opencode.json", &["plugin", "mcp"]),
            ("opencode.jsonc", &["plugin", "mcp"]),
        ],
        HookClient::Codex => &[],
    };
    project_settings::warn_of(workspace, files)
}

/// Plans how a client is started with its hooks.
pub fn plan_hooks(
    client: HookClient,
    arguments: &[OsString],
    hook: &HookProgram,
    workspace: &Path,
    waiting: &WaitingText,
) -> Result<LaunchPlan, LaunchError> {
    match client {
        HookClient::Claude => claude::plan(arguments, hook, waiting),
        HookClient::OpenCode => {
            let given = std::env::var("OPENCODE_CONFIG_CONTENT").ok();
            opencode::plan(arguments, hook, given.as_deref())
        }
        HookClient::Gemini => {
            let place = gemini::GeminiPlace::of_this_user()?;
            gemini::plan(arguments, hook, workspace, &place)
        }
        HookClient::Copilot => copilot::plan(arguments, hook, workspace),
        HookClient::Codex => Err(LaunchError::NotYet(client.name())),
    }
}

/// Plans how a client is started with a home directory of its own, to try what it does.
pub(crate) fn plan_canary(
    client: HookClient,
    arguments: &[OsString],
    hook: &HookProgram,
    workspace: &Path,
    home: &Path,
) -> Result<LaunchPlan, LaunchError> {
    let waiting = WaitingText("a canary".to_owned());
    match client {
        HookClient::OpenCode => opencode::plan(arguments, hook, None),
        HookClient::Gemini => {
            let place = gemini::GeminiPlace::with_home(home);
            gemini::plan(arguments, hook, workspace, &place)
        }
        HookClient::Claude | HookClient::Copilot | HookClient::Codex => {
            plan_hooks(client, arguments, hook, workspace, &waiting)
        }
    }
}

/// Writes a file that only this user reads.
pub(crate) fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(path)?.write_all(content.as_bytes())
}
