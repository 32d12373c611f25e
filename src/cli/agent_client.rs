//! `pvp agent` with a client in place of a brain: people prompt an agent program that has no screen,
//! and its calls go through the gates.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use pvp_agent::agent::InterruptAnswers;
use pvp_agent::proposer::PersonRequest;
use pvp_bridge::acp::{AcpAgent, AcpCommand};
use pvp_bridge::claude_control;
use pvp_bridge::client_files::IdentityLock;
use pvp_bridge::headless::{DriveEnd, DriveUntil, HeadlessClient, drive};
use pvp_bridge::hooks::HookClient;
use pvp_bridge::launch::{ProjectPlace, ProjectTrust};
use pvp_bridge::supervisor::{SupervisedClient, Supervisor, connect_options};
use pvp_client::{ConnectOptions, Link, RecordCheck};
use pvp_protocol::payload::Degree;
use pvp_protocol::{ParticipantKind, Role};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::agent_flags::{
    self, AgentLinkArguments, ExecutorArguments, until_shutdown, wait_until_left,
};
use super::run::{client_of, client_version};
use super::run_codex::{self, DrivenCodex};
use super::{one_line, print_line, print_warning};

/// How long leaving the session may take once the client has ended.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client's place in a session.
pub(super) struct JoinedClient {
    pub(super) supervisor: Supervisor,
    /// What people ask of the client.
    pub(super) requests: mpsc::Receiver<PersonRequest>,
    /// That no other client has the same identity; `None` on a server without login, where nobody
    /// was named.
    pub(super) identity: Option<IdentityLock>,
}

/// The directory that a client works in, as an absolute path without links.
pub(super) fn workspace() -> anyhow::Result<PathBuf> {
    let workspace = super::current_directory()?;
    workspace
        .canonicalize()
        .with_context(|| format!("cannot work in {}", workspace.display()))
}

impl JoinedClient {
    /// Joins the session of a link for a client that runs everything by itself.
    pub(super) async fn join(
        link: Link,
        arguments: &AgentLinkArguments,
        client: SupervisedClient,
    ) -> anyhow::Result<Self> {
        let identity = agent_flags::lock_identity(&link, arguments.participant.as_ref()).await?;
        let options = ConnectOptions {
            session: arguments.session.clone(),
            participant: arguments.participant.clone(),
            kind: Some(ParticipantKind::Agent),
            roles: link.token().is_none().then(|| vec![Role::Driver]),
            record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
            ..connect_options(&client)
        };
        let (supervisor, requests) = Supervisor::connect_with(link, options, client).await?;
        Ok(Self {
            supervisor,
            requests,
            identity,
        })
    }

    /// Starts the client, and lets people prompt it until one of them is gone or a signal asks for
    /// the end.
    pub(super) async fn run(
        self,
        start: impl AsyncFnOnce(&Supervisor) -> anyhow::Result<HeadlessClient>,
        until: DriveUntil,
    ) -> anyhow::Result<()> {
        let supervisor = &self.supervisor;
        let requests = self.requests;
        let driven = until_shutdown(async {
            let client = start(supervisor).await?;
            anyhow::Ok(drive(supervisor, requests, client, until).await)
        });
        let driven = driven.await?;
        let over = self.supervisor.stopped();
        let why = match driven {
            Some(Ok(DriveEnd::SessionOver)) => None,
            Some(Ok(DriveEnd::Answered)) => Some("the prompt is answered"),
            Some(Ok(DriveEnd::ClientGone) | Err(_)) => Some("the client has ended"),
            None => Some("it was told to stop"),
        };
        if let Some(why) = why {
            let left = tokio::time::timeout(LEAVE_TIMEOUT, self.supervisor.leave(why)).await;
            if !matches!(left, Ok(Ok(()))) {
                print_warning("the end of the client may be recorded only later");
            }
        }
        drop(self.identity);
        match driven.transpose()? {
            Some(DriveEnd::ClientGone) => bail!("the client has ended"),
            Some(DriveEnd::SessionOver) => match over.await {
                Some(why) => bail!("{why}"),
                None => Ok(()),
            },
            Some(DriveEnd::Answered) | None => Ok(()),
        }
    }
}

/// A known client without a screen, as the flags describe it.
pub(super) struct KnownClient<'a> {
    pub(super) program: &'a OsString,
    /// Its own flags.
    pub(super) words: &'a [OsString],
    pub(super) link_arguments: &'a AgentLinkArguments,
    pub(super) executor: &'a ExecutorArguments,
    pub(super) quiet: bool,
}

/// Runs a known client in the session of a link.
pub(super) fn run(
    link: Link,
    arguments: &KnownClient<'_>,
    until: DriveUntil,
) -> anyhow::Result<()> {
    let known = client_of(arguments.program)?;
    let program = &run_codex::absolute_program(arguments.program)?;
    let workspace = arguments.executor.workspace()?;
    // The client works where it is started, and looks for its settings there.
    std::env::set_current_dir(&workspace)
        .with_context(|| format!("cannot work in {}", workspace.display()))?;
    let place = ProjectPlace {
        workspace: &workspace,
        trust: ProjectTrust::Untrusted,
    };
    for warning in place.check(known)? {
        print_warning(&one_line(&warning));
    }
    let client = SupervisedClient {
        name: known.name().to_owned(),
        version: client_version(program)?,
        workspace,
        degree: Degree::Held,
    };
    let runtime = super::runtime()?;
    let ended = runtime.block_on(async {
        let command = match known {
            HookClient::Claude => {
                let words = arguments.words;
                let command = claude_control::command(program, words, &client.workspace)?;
                DrivenClient::Claude(without_links(command))
            }
            HookClient::Codex => DrivenClient::Codex(DrivenCodex::plan(program, arguments.words)?),
            HookClient::OpenCode | HookClient::Gemini | HookClient::Copilot => {
                bail!(
                    "{0} is not driven so; `pvp agent --acp` drives an agent that speaks ACP",
                    known.name()
                )
            }
        };
        let joined = JoinedClient::join(link, arguments.link_arguments, client).await?;
        if !arguments.quiet {
            print_joined(&joined.supervisor)?;
        }
        let start = async |supervisor: &Supervisor| match command {
            DrivenClient::Claude(command) => {
                claude_control::start(supervisor.clone(), command).await
            }
            DrivenClient::Codex(codex) => codex.start(supervisor),
        };
        joined.run(start, until).await
    });
    runtime.shutdown_background();
    ended
}

/// How a client without a screen is started.
enum DrivenClient {
    Claude(Command),
    Codex(DrivenCodex),
}

/// Takes from a client what would let it speak for the people and agents of this machine.
pub(super) fn without_links(mut command: Command) -> Command {
    for name in ["PVP_LINK", "PVP_AGENT_LINK"] {
        command.env_remove(name);
    }
    command
}

/// How an agent that speaks ACP is started. Says what the person should know.
pub(super) fn acp_command(
    words: &[OsString],
    workspace: &Path,
    trust: ProjectTrust,
) -> anyhow::Result<AcpCommand> {
    let place = ProjectPlace { workspace, trust };
    let (command, warnings) = AcpCommand::plan(words.to_vec(), place)?;
    for warning in warnings {
        print_warning(&one_line(&warning));
    }
    Ok(command)
}

/// An agent that speaks ACP, as the flags describe it.
pub(super) struct AcpClient<'a> {
    pub(super) command: &'a [OsString],
    pub(super) trust: ProjectTrust,
    pub(super) link_arguments: &'a AgentLinkArguments,
    pub(super) executor: &'a ExecutorArguments,
    pub(super) quiet: bool,
}

impl AcpClient<'_> {
    /// Starts it, joins the session, and lets people prompt it.
    pub(super) async fn run(&self, link: Link, until: DriveUntil) -> anyhow::Result<()> {
        let workspace = self.executor.workspace()?;
        let command = acp_command(self.command, &workspace, self.trust)?;
        let acp_agent = AcpAgent::start(&command, &workspace).await?;
        let name = self
            .command
            .first()
            .map(Path::new)
            .and_then(Path::file_name);
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let client = SupervisedClient {
            name: name.unwrap_or_else(|| "acp".to_owned()),
            version: acp_agent.version(),
            workspace,
            // It asks about what it chooses to ask about.
            degree: Degree::Hooked,
        };
        let answers = InterruptAnswers::ByReader;
        let executor = self
            .executor
            .join_answering(link, self.link_arguments, answers);
        let joined = executor.await?;
        let mut agent = joined.agent;
        let (supervisor, requests) = Supervisor::over_agent(&mut agent, client);
        if !self.quiet {
            print_joined(&supervisor)?;
            print_line(ACP_NOTICE)?;
        }
        let joined = JoinedClient {
            supervisor,
            requests,
            identity: joined.identity,
        };
        let (agent, over) = (Arc::new(agent), joined.supervisor.stopped());
        // When the last one of these is gone, it leaves, and reports nothing more.
        let staying = agent.clone();
        let start = async |supervisor: &Supervisor| acp_agent.open(supervisor, agent).await;
        let ended = joined.run(start, until).await;
        drop(staying);
        wait_until_left(over).await;
        ended
    }
}

/// What whoever starts such an agent must know.
const ACP_NOTICE: &str = "people decide about what the agent asks; what it reports to have done unasked is recorded afterwards, and what it does not report nobody sees";

/// Says who the client is, before it starts.
pub(super) fn print_joined(supervisor: &Supervisor) -> anyhow::Result<()> {
    print_line(format!(
        "{} joined {}; `{}` works in {}",
        supervisor.participant(),
        supervisor.session(),
        supervisor.client().name,
        supervisor.client().workspace.display()
    ))
}
