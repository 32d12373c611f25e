//! A client on its route, and every process that comes of it.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::clients::{Client, Launch, LaunchPlace, StartedBy};
use crate::editor;
use crate::support::cli::CliEnv;

/// A running client. Everything that it started ends when this is dropped.
pub struct ClientProcess {
    pub cli: CliEnv,
    /// The `pvp` that starts the client, or the client itself.
    child: Child,
    /// The editor that prompts the client.
    editor: Option<JoinHandle<()>>,
    /// The variable that every process of this client has, and no other.
    mark: String,
}

impl ClientProcess {
    /// Starts a client on its route, with the link of its agent.
    pub fn start(client: &Client, cli: CliEnv, place: &LaunchPlace, agent_link: &str) -> Self {
        let command = route_command(client, &cli, place, agent_link);
        let mut process = Self::of(command, cli, (client.launch)(place), client.started_by);
        if let StartedBy::Editor = client.started_by {
            let output = output(&process.cli, "client.out");
            process.editor = Some(editor::start(&mut process.child, &place.workdir, output));
        }
        process
    }

    /// Starts a client again that has ended, with other arguments.
    pub fn start_again(
        &mut self,
        client: &Client,
        place: &LaunchPlace,
        agent_link: &str,
        launch: Launch,
    ) {
        let command = route_command(client, &self.cli, place, agent_link);
        self.child = spawn(command, &self.cli, launch, client.started_by);
    }

    /// Starts a client alone, in a directory that it trusts.
    pub fn start_unsupervised(client: &Client, cli: CliEnv, place: &LaunchPlace) -> Self {
        let command = cli.program(client.program());
        Self::of(command, cli, (client.unsupervised)(place), StartedBy::Run)
    }

    fn of(command: Command, cli: CliEnv, launch: Launch, started_by: StartedBy) -> Self {
        Self {
            child: spawn(command, &cli, launch, started_by),
            editor: None,
            mark: format!("HOME={}", cli.home().display()),
            cli,
        }
    }

    /// Waits for something that happens while the client runs.
    pub async fn while_running<T>(&mut self, event: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            event = event => event,
            status = self.child.wait() => {
                panic!("the client ended too early: {}", status.unwrap())
            }
        }
    }

    /// Waits until the client has ended, and who started it; returns the exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let code = self.child.wait().await.unwrap().code();
        if let Some(editor) = self.editor.take() {
            editor.await.unwrap();
        }
        code
    }

    /// What the client and whoever started it have printed.
    pub fn output(&self) -> String {
        let read = |name: &str| {
            let path = self.cli.home().join(name);
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        format!("{}{}", read("client.out"), read("client.err"))
    }

    /// Everything that runs.
    pub fn running(&self) -> Vec<RunningProcess> {
        processes_with(&self.mark).collect()
    }

    /// Kills the processes that are such; returns how many.
    pub fn kill_9(&self, is_victim: impl Fn(&RunningProcess) -> bool) -> usize {
        let victims = processes_with(&self.mark).filter(is_victim);
        victims.filter(RunningProcess::kill).count()
    }
}

/// What starts a client on its route, with the link of its agent.
fn route_command(client: &Client, cli: &CliEnv, place: &LaunchPlace, agent_link: &str) -> Command {
    let words: &[&str] = match client.started_by {
        StartedBy::Run => &["run", "--"],
        StartedBy::Deferred(_) => &["run", "--defer-after", place.defer_after, "--"],
        StartedBy::Headless => &["agent", "--once", "--client"],
        StartedBy::AcpAgent => &["agent", "--once", "--acp"],
        StartedBy::Editor => &["acp", "--"],
        StartedBy::Installed => return cli.program(client.program()),
    };
    let mut command = cli.command(words);
    command
        .arg(client.program())
        .env("PVP_AGENT_LINK", agent_link);
    command
}

fn spawn(mut command: Command, cli: &CliEnv, launch: Launch, started_by: StartedBy) -> Child {
    command
        .args(launch.arguments)
        .envs(launch.environment)
        // So that a client reads no other's settings, and is sure of where it works.
        .env("PWD", cli.workdir())
        .env("XDG_DATA_HOME", cli.home().join("data"))
        .env("XDG_CACHE_HOME", cli.home().join("cache"))
        // Claude Code runs nothing as root unless it is told that the machine is a sandbox.
        .env("IS_SANDBOX", "1")
        .stderr(output(cli, "client.err"));
    match started_by {
        StartedBy::Editor => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
        StartedBy::Run
        | StartedBy::Deferred(_)
        | StartedBy::Headless
        | StartedBy::AcpAgent
        | StartedBy::Installed => command
            .stdin(Stdio::null())
            .stdout(output(cli, "client.out")),
    };
    command.spawn().unwrap()
}

/// A file for what is printed, after what it has already.
fn output(cli: &CliEnv, name: &str) -> File {
    let mut options = OpenOptions::new();
    let path = cli.home().join(name);
    options.create(true).append(true).open(path).unwrap()
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        kill_all(&self.mark);
    }
}

/// Kills everything that has this in its environment.
fn kill_all(mark: &str) {
    // Something may be starting at this moment.
    while processes_with(mark).filter(RunningProcess::kill).count() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Everything that was started with a home. It ends when this is dropped.
pub struct ProcessesOf(String);

impl ProcessesOf {
    pub fn home(cli: &CliEnv) -> Self {
        Self(format!("HOME={}", cli.home().display()))
    }
}

impl Drop for ProcessesOf {
    fn drop(&mut self) {
        kill_all(&self.0);
    }
}

/// A process at some moment.
#[derive(Debug)]
pub struct RunningProcess {
    pid: i32,
    /// The words of its command line.
    words: Vec<String>,
}

impl RunningProcess {
    /// Whether it is `pvp` with this subcommand.
    pub fn is_pvp(&self, subcommand: &str) -> bool {
        let program = self.words.first().map(Path::new);
        let is_pvp = program == Some(Path::new(env!("CARGO_BIN_EXE_pvp")));
        is_pvp && self.words.get(1).is_some_and(|word| word == subcommand)
    }

    /// Whether it is a shell, or what a shell runs, and not the client.
    pub fn is_shell_with(&self, text: &str) -> bool {
        let is_shell = self.words.first().is_some_and(|word| word.ends_with("sh"));
        is_shell && self.words.iter().any(|word| word.contains(text))
    }

    fn kill(&self) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

/// The processes that have this in their environment and have not ended.
fn processes_with(mark: &str) -> impl Iterator<Item = RunningProcess> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(move |entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |name: &str| std::fs::read(entry.path().join(name)).ok();
        // Those that have ended and nobody waited for have none.
        let environment = read("environ")?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.find(|it| *it == mark.as_bytes())?;
        let words = read("cmdline")?;
        let words = words.split(|byte| *byte == 0);
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        Some(RunningProcess {
            pid,
            words: words.collect(),
        })
    })
}
