//! How each client is started under supervision, without changing any of its files.

pub(crate) mod claude;
mod codex;
pub(crate) mod copilot;
mod flags;
pub(crate) mod gemini;
pub(crate) mod opencode;
mod project_programs;
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
    #[error(
        "settings of this machine keep the hooks of `pvp run` from running: {0}; ask its administrator for `pvp hook install claude --managed` and start claude itself, or use `pvp mcp`"
    )]
    ManagedSwitchesOff(SettingsProblem),
    #[error(
        "{0}, which the client would run or use without asking anybody; take it out, or pass `--trust-project` to `pvp` if you trust it"
    )]
    ProjectRuns(SettingsProblem),
    #[error(
        "`{flag}` would let this directory's own settings run programs without asking anybody; leave it out, or pass `--trust-project` to `pvp run` if you trust them"
    )]
    BringsProject { flag: String },
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
}

/// Variables that are set, or removed.
pub type Environment = Vec<(String, Option<OsString>)>;

/// What a client is started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchPlan {
    pub arguments: Vec<OsString>,
    pub environment: Environment,
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

/// Whether a person trusts what the settings of the directory run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProjectTrust {
    #[default]
    Untrusted,
    Trusted,
}

impl ProjectTrust {
    /// As a person says it with the flag `--trust-project`.
    pub fn of_flag(trusts: bool) -> Self {
        match trusts {
            true => Self::Trusted,
            false => Self::Untrusted,
        }
    }
}

/// Where a client works, and whether what it finds there is trusted.
#[derive(Debug, Clone, Copy)]
pub struct ProjectPlace<'a> {
    pub workspace: &'a Path,
    pub trust: ProjectTrust,
}

impl ProjectPlace<'_> {
    /// Refuses a directory whose own settings make the client run or use something without asking
    /// anybody; returns what the person should know. Comes before anything of the client runs.
    pub fn check(&self, client: HookClient) -> Result<Vec<String>, LaunchError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let problems = project_programs::find(client, self.workspace, home.as_deref());
        let leaves_out = match client {
            // It can be told to leave such settings out.
            HookClient::Claude => true,
            HookClient::OpenCode | HookClient::Gemini | HookClient::Copilot | HookClient::Codex => {
                false
            }
        };
        let said = match (self.trust, leaves_out) {
            (ProjectTrust::Trusted, _) => "the client runs or uses it without asking anybody",
            (ProjectTrust::Untrusted, true) => "it is left out; `--trust-project` uses it",
            (ProjectTrust::Untrusted, false) => match problems.into_iter().next() {
                Some(problem) => return Err(LaunchError::ProjectRuns(problem)),
                None => return Ok(Vec::new()),
            },
        };
        let warnings = problems.iter().map(|problem| format!("{problem}: {said}"));
        Ok(warnings.collect())
    }
}

/// What a directory may bring to an agent that nothing tells to leave anything out: one that is spoken
/// to over ACP, or Codex.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentProject {
    /// The clients that the agent is, or is made of.
    clients: Vec<HookClient>,
    trust: ProjectTrust,
}

impl AgentProject {
    /// For the agent that a command starts: an adapter has the name of its client in its own. A
    /// program without such a name may fetch one.
    pub fn new(command: &[OsString], trust: ProjectTrust) -> Self {
        let names = |client: HookClient, word: &OsString| {
            let name = Path::new(word).file_name().unwrap_or_default();
            name.to_string_lossy().contains(client.name())
        };
        let named_by = |words: &[OsString]| {
            let clients = HookClient::ALL.into_iter();
            let named = clients.filter(|client| words.iter().any(|word| names(*client, word)));
            named.collect::<Vec<_>>()
        };
        let clients = match named_by(command.get(..1).unwrap_or_default()) {
            clients if clients.is_empty() => named_by(command),
            clients => clients,
        };
        Self { clients, trust }
    }

    /// Whether the agent is this client, or made of it.
    pub(crate) fn is_of(&self, client: HookClient) -> bool {
        self.clients.contains(&client)
    }

    /// Refuses a directory whose own settings make the agent run or use something without asking
    /// anybody; returns what the person should know.
    pub fn check(&self, directory: &Path) -> Result<Vec<String>, LaunchError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let clients = self.clients.iter();
        let problems =
            clients.flat_map(|client| project_programs::find(*client, directory, home.as_deref()));
        let mut problems = problems.peekable();
        match (self.trust, problems.peek()) {
            (ProjectTrust::Untrusted, Some(problem)) => {
                Err(LaunchError::ProjectRuns(problem.clone()))
            }
            (ProjectTrust::Untrusted, None) | (ProjectTrust::Trusted, _) => Ok(problems
                .map(|problem| {
                    format!("{problem}: the agent runs or uses it without asking anybody")
                })
                .collect()),
        }
    }
}

/// Plans how a client is started with its hooks.
pub fn plan_hooks(
    client: HookClient,
    arguments: &[OsString],
    hook: &HookProgram,
    place: ProjectPlace<'_>,
    waiting: &WaitingText,
) -> Result<LaunchPlan, LaunchError> {
    match client {
        HookClient::Claude => claude::plan(arguments, hook, place, waiting),
        HookClient::OpenCode => {
            let given = std::env::var("OPENCODE_CONFIG_CONTENT").ok();
            opencode::plan(arguments, hook, place, given.as_deref(), waiting)
        }
        HookClient::Gemini => {
            let files = gemini::GeminiPlace::of_this_user()?;
            gemini::plan(arguments, hook, place, &files)
        }
        HookClient::Copilot => copilot::plan(arguments, hook, place.workspace),
        // What is supervised is its app-server: see `plan_codex`.
        HookClient::Codex => Err(LaunchError::NotSupervised {
            command: client.name().to_owned(),
        }),
    }
}

/// Plans how an agent is started that is spoken to over ACP. Its arguments are a person's.
pub(crate) fn plan_acp(
    project: &AgentProject,
    place: ProjectPlace<'_>,
) -> Result<Environment, LaunchError> {
    if !project.is_of(HookClient::OpenCode) {
        // The others ask by themselves.
        return Ok(Environment::new());
    }
    let given = |name| std::env::var(name).ok();
    let config = given("OPENCODE_CONFIG_CONTENT");
    let rules = given("OPENCODE_PERMISSION");
    let given = opencode::GivenVariables {
        config: config.as_deref(),
        rules: rules.as_deref(),
    };
    opencode::plan_acp(place, given)
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
    let trust = ProjectTrust::Untrusted;
    let place = ProjectPlace { workspace, trust };
    match client {
        HookClient::OpenCode => opencode::plan(arguments, hook, place, None, &waiting),
        HookClient::Gemini => {
            let files = gemini::GeminiPlace::with_home(home);
            gemini::plan(arguments, hook, place, &files)
        }
        HookClient::Claude | HookClient::Copilot | HookClient::Codex => {
            plan_hooks(client, arguments, hook, place, &waiting)
        }
    }
}

/// Writes a file that only this user reads.
pub(crate) fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(path)?.write_all(content.as_bytes())
}
