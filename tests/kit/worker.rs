//! A real `pvp agent` process at work in a session.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::desk::{Desk, Going};
use super::{Invited, Server};

/// An agent with a workspace and a state of its own; killed when dropped.
pub struct Worker {
    pub desk: Desk,
    pub going: Going,
    pub who: Invited,
    link: String,
    arguments: Vec<String>,
    environment: Vec<(OsString, OsString)>,
}

impl Worker {
    /// Starts an agent and waits until it has joined.
    pub async fn start(server: &Server, session: &str, arguments: &[&str]) -> Self {
        Self::start_at(Desk::new(), server, session, arguments).await
    }

    /// The same at a desk that was prepared.
    pub async fn start_at(desk: Desk, server: &Server, session: &str, arguments: &[&str]) -> Self {
        let who = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&who, Some(session));
        Self::start_by(desk, who, link, arguments, &[]).await
    }

    /// The same by a link that may lead over a detour, with variables of its own.
    pub async fn start_by(
        desk: Desk,
        who: Invited,
        link: String,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        let going = launch(&desk, &link, &arguments, &environment);
        let mut worker = Self {
            desk,
            going,
            who,
            link,
            arguments,
            environment,
        };
        worker.going.line_with(" is in ").await;
        worker
    }

    /// An agent that follows these steps, and then leaves.
    pub async fn scripted(server: &Server, session: &str, script: &str) -> Self {
        Self::scripted_with(server, session, script, &["--once"]).await
    }

    /// An agent that waits to be asked, with variables of its own.
    pub async fn idle(server: &Server, session: &str, environment: &[(&str, &OsStr)]) -> Self {
        let desk = Desk::new();
        let path = script_at(&desk, "[[step]]\nwait = 'prompt'\n");
        let who = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&who, Some(session));
        Self::start_by(desk, who, link, &["--script", &path], environment).await
    }

    /// An agent that follows these steps, with more flags.
    pub async fn scripted_with(
        server: &Server,
        session: &str,
        script: &str,
        more: &[&str],
    ) -> Self {
        let desk = Desk::new();
        let path = script_at(&desk, script);
        let flags: Vec<_> = ["--script", &path].iter().chain(more).copied().collect();
        Self::start_at(desk, server, session, &flags).await
    }

    /// Ends it without warning, and waits until it is gone.
    pub async fn kill_9(&mut self) {
        self.going.kill_9().await;
    }

    /// Starts it again, as the same agent in the same place.
    pub async fn again(&mut self) {
        self.going = launch(&self.desk, &self.link, &self.arguments, &self.environment);
        self.going.line_with(" is in ").await;
    }

    pub fn workspace(&self) -> PathBuf {
        self.desk.here()
    }

    /// What is in a file of its workspace; nothing if there is no such file.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.workspace().join(name)).unwrap_or_default()
    }

    /// Waits until nothing works in its workspace.
    pub async fn is_quiet(&self) {
        super::room::until("nothing is left", || self.at_work().is_empty()).await;
    }

    /// Processes that work in its workspace, by their command lines. The agent itself is none, nor
    /// is the reaper that waits for the next read while the agent lives; until that waits, it is.
    pub fn at_work(&self) -> Vec<String> {
        let mut processes = at_work_in(&self.workspace());
        if let Some(agent) = self.going.try_pid() {
            let waits = |(_, line): &&(u32, String)| line.ends_with("__enter ");
            let waiting: Vec<_> = processes
                .iter()
                .filter(waits)
                .map(|(pid, _)| *pid)
                .collect();
            let reapers: Vec<_> = waiting.iter().filter_map(|pid| parent(*pid)).collect();
            let idle = [vec![agent], waiting, reapers].concat();
            processes.retain(|(pid, _)| !idle.contains(pid));
        }
        processes.into_iter().map(|(_, line)| line).collect()
    }
}

/// Writes a script to a desk; gives its path.
pub fn script_at(desk: &Desk, script: &str) -> String {
    let path = desk.home().join("script.toml");
    std::fs::write(&path, script).unwrap();
    path.to_str().unwrap().to_owned()
}

fn launch(
    desk: &Desk,
    link: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> Going {
    let mut command = desk.command(&["agent", link]);
    command
        .args(arguments)
        .env_remove("XDG_STATE_HOME")
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .envs(environment.iter().cloned());
    Going::start(&mut command)
}

/// The process that started another, if that is still there.
fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// The processes that work in this directory or below, or name it, with their command lines.
pub fn at_work_in(directory: &Path) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut found = Vec::new();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let cwd = std::fs::read_link(process.path().join("cwd"));
        let line = std::fs::read_to_string(process.path().join("cmdline"));
        // One that is becoming another program has no line for a moment; one that ended, no place.
        if let (Ok(cwd), Ok(line)) = (cwd, line)
            && (cwd.starts_with(directory) || line.contains(directory.to_str().unwrap()))
        {
            found.push((pid, line.replace('\0', " ")));
        }
    }
    found
}
