//! `pvp demo --tour`: walks one person through deciding about an agent's commands, step by step.
//!
//! The tour proposes real commands as the demo's agent, says what to type, and reads in the
//! session's log what the person did. A wrong turn gets a hint, and the step starts over.

mod guide;
mod log_watcher;
mod second_person;
mod steps;
mod typed_commands;

use std::path::PathBuf;
use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_client::Link;
use rustix::process::{Signal, getpid, kill_process};

use guide::{Guide, Left};

/// How long the agent may take to leave the session.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A tour that is ready to begin.
pub(super) struct Tour {
    agent: Agent,
    own_link: Link,
    second_person: Link,
    data: PathBuf,
}

impl Tour {
    pub(super) fn new(agent: Agent, own_link: Link, second_person: Link, data: PathBuf) -> Self {
        Self {
            agent,
            own_link,
            second_person,
            data,
        }
    }

    /// Runs the tour, and then stops the server of this process.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let agent_stopped = self.agent.stopped();
        let result = self.walk().await;
        // What the agent says last should still be logged; if it takes too long, it is not.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, agent_stopped).await;
        // As Ctrl-C does, so that the server ends its connections and closes its log in order.
        kill_process(getpid(), Signal::TERM)?;
        match result {
            Err(error) if error.is::<Left>() => Ok(()),
            other => other,
        }
    }

    async fn walk(self) -> anyhow::Result<()> {
        let mut guide = Guide::start(self.agent, self.own_link).await?;
        steps::introduce(&guide)?;
        steps::approve(&mut guide).await?;
        steps::reject(&mut guide).await?;
        steps::edit(&mut guide).await?;
        steps::allow(&mut guide).await?;
        steps::interrupt(&mut guide).await?;
        steps::own_command(&mut guide).await?;
        steps::quorum(&mut guide, self.second_person).await?;
        steps::finish(&guide, &self.data)
    }
}
