//! How each client is started, what its tools are called, and what it cannot do.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod opencode;
mod qwen;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::model::{ScriptedCall, ScriptedModel, ScriptedTurn};
use crate::scenarios::Scenario;
use crate::support::cli::CliEnv;

pub use claude::{CLAUDE, CLAUDE_DEFERRED, CLAUDE_HEADLESS, CLAUDE_INSTALLED};
pub use codex::{CODEX, CODEX_HEADLESS};
pub use copilot::{COPILOT, COPILOT_ACP};
pub use gemini::{GEMINI, GEMINI_ACP};
pub use opencode::{OPENCODE, OPENCODE_ACP, OPENCODE_EDITOR};
pub use qwen::QWEN_ACP;

/// The clients that `pvp run` starts.
pub const UNDER_RUN: &[&Client] = &[&CLAUDE, &CODEX, &OPENCODE, &GEMINI, &COPILOT];

/// The other routes.
pub const OTHER_ROUTES: &[&Client] = &[
    &CLAUDE_HEADLESS,
    &CODEX_HEADLESS,
    &OPENCODE_ACP,
    &GEMINI_ACP,
    &COPILOT_ACP,
    &QWEN_ACP,
    &OPENCODE_EDITOR,
    &CLAUDE_DEFERRED,
    &CLAUDE_INSTALLED,
];

/// What the model is told; it follows its script whatever that is.
pub const PROMPT: &str = "Follow the script.";

/// A client on one of its routes.
pub struct Client {
    /// What this route of this client is called where it is chosen.
    pub key: &'static str,
    /// Who starts it, and with what.
    pub started_by: StartedBy,
    /// The name of its program.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Its package in npm.
    pub package: &'static str,
    /// How its calls come to us.
    pub route: &'static str,
    /// The degree that its cards say.
    pub degree: &'static str,
    /// Whether its version is known here.
    pub says_version: bool,
    /// Tools of its own that the model must not be offered.
    pub removed_tools: &'static [&'static str],
    /// What becomes of a call that waits when the server goes away.
    pub server_away: ServerAway,
    /// What asks us, and dies if it is killed in the middle of a question.
    pub asker: Asker,
    /// How it asks about the calls of one answer.
    pub several: Several,
    /// Whether it runs what people edited, or nothing at all.
    pub edits: Edits,
    /// When its model reads why a call was rejected.
    pub reasons: Reasons,
    /// What it is started with.
    pub launch: fn(&LaunchPlace) -> Launch,
    /// What it is started with in place of that to have a screen.
    pub screen: fn(&LaunchPlace) -> Launch,
    /// What it asks on its screen at first, with the keys that answer it.
    pub first_questions: &'static [(&'static str, &'static str)],
    /// Runs a command line.
    pub shell: fn(&str) -> ScriptedCall,
    /// Reads a file.
    pub read: fn(&Path) -> ScriptedCall,
    /// What happens when it wants to read outside its directory.
    pub reads_elsewhere: ReadsElsewhere,
    /// Writes a file: its path and content.
    pub write: fn(&Path, &str) -> ScriptedCall,
    /// The path, the text that is there, and the text that takes its place.
    pub edit: fn(&Path, &str, &str) -> ScriptedCall,
    /// A tool of its own that writes and must not, whatever people say.
    pub denied_write: Option<fn(&Path, &str) -> ScriptedCall>,
    /// Calls `echo` of the MCP server `echo`.
    pub mcp_echo: fn(&str) -> ScriptedCall,
    /// The turns with which the model has a subagent follow a script.
    pub subagent: fn(&[ScriptedTurn]) -> Vec<ScriptedTurn>,
    /// Whether the calls of a subagent say whose they are.
    pub names_subagents: bool,
    /// How often its model is asked at most after people interrupted it.
    pub most_requests_after_interrupt: usize,
    /// Files by which a repository would rule over it; the argument is a directory for marks.
    pub hostile_files: fn(&Path) -> Vec<HostileFile>,
    /// What becomes of such files under `pvp run`.
    pub project_settings: ProjectSettings,
    /// What it is started with to work without `pvp run`, in a directory that it trusts.
    pub unsupervised: fn(&LaunchPlace) -> Launch,
    /// What runs although what asks is broken, as `pvp doctor` finds it.
    pub fails_open: &'static [FailsOpen],
    /// The scenarios that it passes in its own way, with what is different.
    pub notes: &'static [(Scenario, &'static str)],
    /// The scenarios that it cannot pass, with the reason.
    pub cannot: &'static [(Scenario, &'static str)],
}

/// Who starts a client, and who prompts it.
#[derive(Clone, Copy)]
pub enum StartedBy {
    /// `pvp run`, with the prompt among the client's arguments.
    Run,
    /// `pvp run --defer-after`: it ends while a call waits, and goes on with these arguments.
    Deferred(fn(&LaunchPlace) -> Launch),
    /// `pvp agent --client`; people prompt it from the session.
    Headless,
    /// `pvp agent --acp`; people prompt it from the session.
    AcpAgent,
    /// An editor, with `pvp acp` in between; the editor prompts it.
    Editor,
    /// Nobody of ours: its hooks are installed in its own settings.
    Installed,
}

impl StartedBy {
    /// The subcommand of `pvp` that stays beside the client.
    pub fn bridge(self) -> &'static str {
        match self {
            Self::Run | Self::Deferred(_) => "run",
            Self::Headless | Self::AcpAgent => "agent",
            Self::Editor => "acp",
            Self::Installed => "hook",
        }
    }

    /// Whether it begins only when somebody in the session says something.
    pub fn is_prompted_in_session(self) -> bool {
        match self {
            Self::Headless | Self::AcpAgent => true,
            Self::Run | Self::Deferred(_) | Self::Editor | Self::Installed => false,
        }
    }
}

/// What is different when people edit what an agent asks over ACP.
const ACP_EDITS: (Scenario, &str) = (
    Scenario::Edit,
    "ACP has no words for another command, so what was proposed does not run: the model is told what was approved, and when it asks for that, people decide again.",
);

/// A file of a repository that would change what a client does.
pub struct HostileFile {
    /// Where it lies in the repository.
    pub path: &'static str,
    pub text: String,
    /// The file that it has somebody write in the directory for marks; `None` if it only allows.
    pub mark: Option<&'static str>,
}

/// What becomes of a repository's own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectSettings {
    /// The client is started without them.
    LeftOut,
    /// The client is not started.
    Refused,
}

/// A check of `pvp doctor` that a client does not pass.
pub struct FailsOpen {
    /// What is tried: `command` or `read`.
    pub kind: &'static str,
    /// What the hook does.
    pub hook: &'static str,
    /// What that means to people.
    pub note: &'static str,
}

/// What asks us about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A process of its own for each question: `pvp hook run`.
    Hook,
    /// The process that started the client, such as `pvp run`.
    Bridge,
}

/// What becomes of a call that waits when the server goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAway {
    /// It is denied after a while, and the model reads why.
    Denied,
    /// It is denied after a while, and the client's turn ends.
    EndsTurn,
    /// It waits until the server is back, and is decided then.
    Waits,
}

/// What happens to a read outside the directory of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadsElsewhere {
    /// People are asked.
    Asked,
    /// The client refuses it by itself.
    Refused,
}

/// How a client asks about several calls that the model makes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Several {
    /// All of them wait at the same time.
    SideBySide,
    /// The next one is asked about when the one before is decided or has ended.
    InTurn,
    /// Only the first one is asked about; the others do not run until the model asks again.
    AskedAgain,
}

/// When a model reads why a call was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasons {
    /// Before it calls anything else.
    AtOnce,
    /// When it has nothing more to do.
    AtTheEnd,
}

/// What happens to a call that people edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edits {
    /// It runs as edited.
    Run,
    /// It does not run, and the model is told to ask for the edited one.
    AskedAgain,
}

/// Where a client is started.
pub struct LaunchPlace {
    /// The address of the model, without a path.
    pub model: String,
    pub home: PathBuf,
    /// The directory that the client works in.
    pub workdir: PathBuf,
    /// The MCP server with the tool `echo`, if the client shall have it.
    pub mcp_server: Option<PathBuf>,
    /// How long a call waits before a client ends that does not stay for it.
    pub defer_after: &'static str,
}

impl LaunchPlace {
    /// A place without an MCP server.
    pub fn of(cli: &CliEnv, model: &ScriptedModel) -> Self {
        Self {
            model: model.url(),
            home: cli.home(),
            workdir: cli.workdir(),
            mcp_server: None,
            defer_after: "1s",
        }
    }

    /// Writes a file of the client's settings, below the home.
    pub fn write(&self, path: &str, content: &str) -> PathBuf {
        let path = self.home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// What a client is started with.
pub struct Launch {
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
}

impl Client {
    /// Its program, as installed by `make bridge-clients`.
    pub fn program(&self) -> PathBuf {
        packages().join(".bin").join(self.name)
    }

    /// The installed version.
    pub fn version(&self) -> String {
        let path = packages().join(self.package).join("package.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; run `make bridge-clients`", path.display())
        });
        let package: Value = serde_json::from_str(&text).unwrap();
        package["version"].as_str().unwrap().to_owned()
    }

    /// Why it cannot pass a scenario; `None` if it must.
    pub fn reason_against(&self, scenario: Scenario) -> Option<&'static str> {
        let found = self.cannot.iter().find(|(cannot, _)| *cannot == scenario);
        found.map(|(_, reason)| *reason)
    }

    /// Everything that is said of it below the table.
    pub fn all_notes(&self) -> Vec<&'static str> {
        let scenarios = Scenario::all_of(self);
        let notes = self.notes.iter().chain(self.cannot);
        let notes = notes.filter(|(scenario, _)| scenarios.contains(scenario));
        let notes = notes.map(|(_, note)| *note);
        let open = self.fails_open.iter().map(|open| open.note);
        let open = open.filter(|_| scenarios.contains(&Scenario::Doctor));
        notes.chain(open).collect()
    }

    /// What is different when it passes a scenario.
    pub fn note_on(&self, scenario: Scenario) -> Option<&'static str> {
        let found = self.notes.iter().find(|(noted, _)| *noted == scenario);
        found.map(|(_, note)| *note)
    }
}

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bridges/clients/node_modules")
}

/// A program that leaves a mark, as the words of a command.
fn mark_words(marks: &Path, mark: &str) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), mark_line(marks, mark)]
}

/// The same as a command line.
fn mark_line(marks: &Path, mark: &str) -> String {
    format!("touch '{}'", text(&marks.join(mark)))
}

/// The prompt of a subagent, which has its script.
fn subagent_prompt(script: &[ScriptedTurn]) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!("SUBAGENT-SCRIPT: {script}")
}

/// A path as the clients take it.
fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
