//! Finds out with a canary whether a client, as it is installed here, obeys its hooks.
//!
//! The client is started as `pvp run` starts it, or with hooks in its own settings, in a temporary
//! directory with a home of its own, against a model on loopback that asks for one harmless call. A stand-in for the hook denies it,
//! allows it, or breaks; what then lies in the directory says what the client did.

mod app_server;
mod client;
mod http;
mod model;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pvp_protocol::JsonObject;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::hooks::{HookAnswer, HookClient, HooksFrom};
use crate::install::{self, InstallError, InstallPlace, InstallScope, InstalledHook};
use crate::launch::{self, HookProgram, LaunchError, LaunchPlan};
use model::CanaryModel;

/// How long a client may take for one canary.
const RUN_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a hook that does not answer is waited for before the client is stopped.
const HANG_WAIT: Duration = Duration::from_secs(4);

/// How often the canary's directory is looked at while a client runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Characters of what a client printed that are repeated if it did not make the call.
const MAX_SAID: usize = 400;

/// The reason that must reach the model.
const REASON: &str = "the canary of pvp doctor must not run";

/// What the file says that the canary reads.
const READABLE: &str = "only whoever reads this file knows it";

/// What the stand-in for the hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookBehaviour {
    Denies,
    Allows,
    Crashes,
    IsKilled,
    PrintsGarbage,
    Hangs,
    IsMissing,
}

impl HookBehaviour {
    pub const ALL: [Self; 7] = [
        Self::Denies,
        Self::Allows,
        Self::Crashes,
        Self::IsKilled,
        Self::PrintsGarbage,
        Self::Hangs,
        Self::IsMissing,
    ];

    pub fn text(self) -> &'static str {
        match self {
            HookBehaviour::Denies => "denies",
            HookBehaviour::Allows => "allows",
            HookBehaviour::Crashes => "crashes",
            HookBehaviour::IsKilled => "is killed",
            HookBehaviour::PrintsGarbage => "prints garbage",
            HookBehaviour::Hangs => "hangs",
            HookBehaviour::IsMissing => "is missing",
        }
    }
}

/// What the model asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryKind {
    /// A command that makes a file.
    Command,
    /// A read of a file.
    Read,
}

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    pub client: HookClient,
    pub hooks_from: HooksFrom,
    pub kind: CanaryKind,
}

/// What a client did with the canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CanaryRun {
    pub hook: HookBehaviour,
    pub kind: CanaryKind,
    /// Whether the canary ran.
    pub ran: bool,
    /// What the model was told about its call; `None` if it was told nothing.
    pub told: Option<String>,
    /// What the client printed, if the model was told nothing.
    pub said: Option<String>,
}

impl CanaryRun {
    /// Whether the client refused the call because the hook did.
    pub fn was_denied(&self) -> bool {
        !self.ran && self.told.is_some()
    }

    /// Whether the denial reached the model with its reason.
    pub fn reason_arrived(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.contains(REASON))
    }
}

/// Why a canary could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error("the canary could not be set up: {0}")]
    Io(#[from] std::io::Error),
}

/// Where a canary is tried.
#[derive(Debug, Clone)]
pub struct CanaryPlace {
    root: PathBuf,
}

impl CanaryPlace {
    fn make(root: &Path) -> std::io::Result<Self> {
        let place = Self {
            root: root.canonicalize()?,
        };
        for directory in [place.home(), place.workspace(), place.files()] {
            std::fs::create_dir_all(directory)?;
        }
        Ok(place)
    }

    fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    fn workspace(&self) -> PathBuf {
        self.root.join("work")
    }

    fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    fn canary(&self) -> PathBuf {
        self.workspace().join("canary")
    }

    /// The file that the canary reads.
    fn readable(&self) -> PathBuf {
        self.workspace().join("readable.txt")
    }

    fn asked(&self) -> PathBuf {
        self.root.join("asked")
    }
}

/// Starts a client in an empty directory with a hook that behaves so, and looks what it does.
pub async fn try_canary(
    canary: Canary,
    program: &Path,
    behaviour: HookBehaviour,
    root: &Path,
) -> Result<CanaryRun, DoctorError> {
    let client = canary.client;
    let place = CanaryPlace::make(root)?;
    std::fs::write(place.readable(), READABLE)?;
    let hook = HookProgram {
        program: write_hook(client, behaviour, &place)?,
        files: place.files(),
    };
    let model = CanaryModel::start(client::canary_call(canary, &place)).await?;
    if client == HookClient::Codex {
        let said = app_server::run(program, &model.address(), behaviour, &place).await?;
        return Ok(canary_run(canary, behaviour, &place, &model, said));
    }
    let start = client::start(client, &model.address(), &place)?;
    let (home, workspace) = (place.home(), place.workspace());
    let plan = match canary.hooks_from {
        HooksFrom::PvpRun => {
            launch::plan_canary(client, &start.arguments, &hook, &workspace, &home)?
        }
        HooksFrom::OwnSettings => {
            install_hooks(client, &hook, &place)?;
            LaunchPlan {
                arguments: start.arguments,
                ..LaunchPlan::default()
            }
        }
    };
    let mut command = Command::new(program);
    command
        .args(&plan.arguments)
        .current_dir(&workspace)
        .env_clear()
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for name in ["PATH", "LANG", "TERM", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    for (name, value) in plan.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .envs(start.environment)
        .env("HOME", &home)
        .env("PWD", &workspace)
        .env("XDG_CONFIG_HOME", home.join(".config"))
        .env("XDG_DATA_HOME", home.join(".local/share"))
        .env("XDG_STATE_HOME", home.join(".local/state"))
        .env("XDG_CACHE_HOME", home.join(".cache"));
    let child = command.spawn()?;
    let said = watch(child, behaviour, &place).await;
    Ok(canary_run(canary, behaviour, &place, &model, said))
}

/// Puts the hooks where `pvp hook install` puts them, in the home of the canary.
fn install_hooks(
    client: HookClient,
    hook: &HookProgram,
    place: &CanaryPlace,
) -> Result<(), InstallError> {
    let home = place.home();
    let installed = InstalledHook {
        words: vec![hook.program.to_string_lossy().into_owned()],
    };
    let place = InstallPlace {
        config: home.join(".config"),
        home,
        project: place.workspace(),
        root: place.root.join("root"),
        records: place.root.join("records"),
    };
    install::install(client, InstallScope::User, &place, &installed)?;
    Ok(())
}

fn canary_run(
    canary: Canary,
    behaviour: HookBehaviour,
    place: &CanaryPlace,
    model: &CanaryModel,
    said: String,
) -> CanaryRun {
    let told = model.told();
    CanaryRun {
        hook: behaviour,
        kind: canary.kind,
        ran: match canary.kind {
            CanaryKind::Command => place.canary().exists(),
            CanaryKind::Read => told.as_ref().is_some_and(|told| told.contains(READABLE)),
        },
        said: told.is_none().then_some(said),
        told,
    }
}

/// Waits for the client, and returns what it printed.
async fn watch(mut child: Child, behaviour: HookBehaviour, place: &CanaryPlace) -> String {
    let group = ProcessGroup::of(&child);
    let printed = [
        tokio::spawn(read_some(child.stdout.take())),
        tokio::spawn(read_some(child.stderr.take())),
    ];
    let _ = timeout(RUN_TIMEOUT, async {
        tokio::select! {
            _ = child.wait() => {}
            () = waited_in_vain(behaviour, place) => {}
        }
    })
    .await;
    drop(group);
    let _ = timeout(Duration::from_secs(5), child.wait()).await;
    let mut said = String::new();
    for reading in printed {
        // Nobody has the other end any more, unless something left the group.
        if let Ok(Ok(text)) = timeout(Duration::from_secs(5), reading).await {
            said.push_str(&text);
            said.push('\n');
        }
    }
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(MAX_SAID);
    said.chars().skip(skipped).collect()
}

/// The client and what it started; killed when dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(leader.and_then(Pid::from_raw))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // There may be nothing left of it.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Ends a while after a hook that never answers was asked; never for another hook.
async fn waited_in_vain(behaviour: HookBehaviour, place: &CanaryPlace) {
    if behaviour != HookBehaviour::Hangs {
        return std::future::pending().await;
    }
    while !place.asked().exists() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let until = Instant::now() + HANG_WAIT;
    while Instant::now() < until && !place.canary().exists() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn read_some(stream: Option<impl AsyncReadExt + Unpin>) -> String {
    const MAX_BYTES: usize = 64 * 1024;
    let mut text = String::new();
    let Some(mut stream) = stream else {
        return text;
    };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        // What is too much is read too, so that the client does not wait for room.
        if text.len() < MAX_BYTES {
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
    text
}

/// Writes the stand-in for the hook. It answers questions; to everything else it says nothing.
fn write_hook(
    client: HookClient,
    behaviour: HookBehaviour,
    place: &CanaryPlace,
) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let answer = match behaviour {
        HookBehaviour::Allows => HookAnswer::Allow { edited: None },
        HookBehaviour::Denies
        | HookBehaviour::Crashes
        | HookBehaviour::IsKilled
        | HookBehaviour::PrintsGarbage
        | HookBehaviour::Hangs
        | HookBehaviour::IsMissing => HookAnswer::deny(REASON),
    };
    let said = |answer: &HookAnswer| client.reply(answer).stdout.replace('\'', r"'\''");
    let asked = place.asked();
    let act = match behaviour {
        HookBehaviour::Denies | HookBehaviour::Allows => {
            format!("printf '%s' '{}'; exit 0", said(&answer))
        }
        HookBehaviour::Crashes => "exit 1".to_owned(),
        HookBehaviour::IsKilled => "kill -9 $$".to_owned(),
        HookBehaviour::PrintsGarbage => "echo 'garbage {'; exit 0".to_owned(),
        HookBehaviour::Hangs => "exec sleep 600".to_owned(),
        HookBehaviour::IsMissing => return Ok(place.root.join("no-such-hook")),
    };
    let questions = client::question_pattern(client);
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = mcp ] && exit 1\ninput=$(cat)\ncase \"$*$input\" in\n  {questions}) : > '{}'; {act};;\nesac\nprintf '%s' '{}'\n",
        asked.display(),
        said(&HookAnswer::Nothing),
    );
    let path = place.root.join("hook");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The call that the model asks for.
#[derive(Debug, Clone)]
struct CanaryCall {
    dialect: model::CanaryDialect,
    tool: &'static str,
    arguments: JsonObject,
}
