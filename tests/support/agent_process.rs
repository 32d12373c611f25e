//! A real `pvp agent` process in a session.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::cli::{CliEnv, CliProcess};
use super::{TestServer, TestUser};

/// An agent with its own workspace and state directory; killed when dropped.
pub struct AgentProcess {
    /// Its working directory and home.
    pub cli: CliEnv,
    /// The running process.
    pub process: CliProcess,
    /// The user that it runs as.
    pub user: TestUser,
    /// The link that it was started with.
    link: String,
    /// Its flags, for a restart.
    arguments: Vec<String>,
    /// Its extra environment variables, for a restart.
    environment: Vec<(OsString, OsString)>,
}

impl AgentProcess {
    /// Starts an agent and waits until it has joined.
    pub async fn start(server: &TestServer, session: &str, arguments: &[&str]) -> Self {
        Self::start_at(CliEnv::new(), server, session, arguments).await
    }

    /// As `start`, in a CLI environment that the test has prepared.
    pub async fn start_at(
        cli: CliEnv,
        server: &TestServer,
        session: &str,
        arguments: &[&str],
    ) -> Self {
        let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some(session));
        Self::start_with_link(cli, user, link, arguments, &[]).await
    }

    /// As `start_at`, with a given link, which may lead through a proxy, and extra environment
    /// variables.
    pub async fn start_with_link(
        cli: CliEnv,
        user: TestUser,
        link: String,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        let process = launch(&cli, &link, &arguments, &environment);
        let mut agent_process = Self {
            cli,
            process,
            user,
            link,
            arguments,
            environment,
        };
        agent_process
            .process
            .wait_for_line(" and runs commands in ")
            .await;
        agent_process
    }

    /// Starts an agent that follows this script and then leaves.
    pub async fn start_scripted(server: &TestServer, session: &str, script: &str) -> Self {
        Self::start_scripted_with(server, session, script, &["--once"]).await
    }

    /// Starts an agent that waits for prompts and runs people's own commands, with extra environment
    /// variables.
    pub async fn start_idle(
        server: &TestServer,
        session: &str,
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let cli = CliEnv::new();
        let path = write_script(&cli, "[[step]]\nwait = 'prompt'\n");
        let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some(session));
        let flags = ["--script", &path, "--accept-shell"];
        Self::start_with_link(cli, user, link, &flags, environment).await
    }

    /// Starts an agent that follows this script, with extra flags.
    pub async fn start_scripted_with(
        server: &TestServer,
        session: &str,
        script: &str,
        more: &[&str],
    ) -> Self {
        let cli = CliEnv::new();
        let path = write_script(&cli, script);
        let flags: Vec<_> = ["--script", &path].iter().chain(more).copied().collect();
        Self::start_at(cli, server, session, &flags).await
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill_9(&mut self) {
        self.process.kill_9().await;
    }

    /// Starts the same agent again, in the same workspace.
    pub async fn restart(&mut self) {
        self.process = launch(&self.cli, &self.link, &self.arguments, &self.environment);
        self.process.wait_for_line(" and runs commands in ").await;
    }

    pub fn workspace(&self) -> PathBuf {
        self.cli.workdir()
    }

    /// The content of a file in the workspace; empty if there is no such file.
    pub fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.workspace().join(name)).unwrap_or_default()
    }

    /// Waits until no command runs in the workspace.
    pub async fn wait_until_idle(&self) {
        super::session::wait_until("nothing is left", || self.running_commands().is_empty()).await;
    }

    /// The command lines of the processes that work in the workspace. They do not include the agent
    /// itself, nor its prestarted reaper once that waits for the next read.
    pub fn running_commands(&self) -> Vec<String> {
        let mut processes = processes_in(&self.workspace());
        if let Some(agent) = self.process.try_pid() {
            let waits = |(_, line): &&(u32, String)| line.ends_with("__exec_step ");
            let waiting: Vec<_> = processes
                .iter()
                .filter(waits)
                .map(|(pid, _)| *pid)
                .collect();
            let reapers: Vec<_> = waiting.iter().filter_map(|pid| parent_pid(*pid)).collect();
            let idle = [vec![agent], waiting, reapers].concat();
            processes.retain(|(pid, _)| !idle.contains(pid));
        }
        processes.into_iter().map(|(_, line)| line).collect()
    }
}

/// Writes a script into the CLI environment and returns its path.
pub fn write_script(cli: &CliEnv, script: &str) -> String {
    let path = cli.home().join("script.toml");
    std::fs::write(&path, script).unwrap();
    path.to_str().unwrap().to_owned()
}

fn launch(
    cli: &CliEnv,
    link: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> CliProcess {
    let mut command = cli.command(&["agent"]);
    command
        .args(arguments)
        .env("PVP_LINK", link)
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .envs(environment.iter().cloned());
    CliProcess::spawn(&mut command)
}

/// The parent of a process, if the process still exists.
fn parent_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// The processes whose working directory is in this directory, or whose command line names it.
pub fn processes_in(directory: &Path) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut found = Vec::new();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let cwd = std::fs::read_link(process.path().join("cwd"));
        let line = std::fs::read_to_string(process.path().join("cmdline"));
        // During exec a process has no command line for a moment; one that has ended has no cwd.
        if let (Ok(cwd), Ok(line)) = (cwd, line)
            && (cwd.starts_with(directory) || line.contains(directory.to_str().unwrap()))
        {
            found.push((pid, line.replace('\0', " ")));
        }
    }
    found
}
