//! An agent as a library: proposes commands, runs what is granted, and yields what becomes of each.

mod recap;
mod session_context;
mod task;
mod trailer;

use std::path::PathBuf;
use std::sync::Arc;

use pvp_client::{ConnectError, ConnectOptions, Connection, Link, SendError, fresh_id};
use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{
    ErrorReport, GateResolve, InterruptRaise, OutputPage, OutputRead, OutputStream, PromptAmend,
    PromptSubmit, ToolPropose, ToolResult,
};
use pvp_protocol::{
    Action, ActionError, Assessment, Category, ErrorCode, ExtraFields, JsonObject, MessageId,
    ParticipantId, Risk, SessionId, ToolCategory,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::brain::tools::BackgroundJob;
use crate::executor::{self, Executor, ExecutorSettings};
pub use recap::SessionRecap;
use task::{AgentCommand, AgentTask};

/// Wishes that wait to be taken; people who want more at once are not heard.
const INPUT_QUEUE_LEN: usize = 1024;

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0:#}")]
    Executor(anyhow::Error),
}

/// Why a command was not proposed. Nothing ran, and unless the server refused it nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("blocked by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
    #[error("{0}")]
    BadArguments(#[from] ActionError),
    #[error("{0}")]
    BadDirectory(String),
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("the agent has stopped")]
    AgentStopped,
}

impl From<SendError> for ProposeError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(report) => ProposeError::Refused(report),
            SendError::Closed | SendError::Dropped => ProposeError::AgentStopped,
        }
    }
}

/// What becomes of a proposal, in order; the last one is `Finished` or `NotRun`.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalEvent {
    /// The server's verdict.
    Assessed(Box<Assessment>),
    /// People are asked; what it waits for.
    GateOpened {
        quorum: String,
    },
    /// Someone edited it; this is what would run.
    Edited {
        by: Option<ParticipantId>,
        command: String,
        reason: Option<String>,
    },
    /// It may run.
    Granted {
        approved_by: Vec<ParticipantId>,
    },
    /// It runs, as this process; a background job's output is also kept in a file.
    Started {
        pid: u32,
        file: Option<PathBuf>,
    },
    Output {
        stream: OutputStream,
        text: String,
    },
    Finished(Box<ToolResult>),
    /// It does not run: how its gate closed.
    NotRun(Box<GateResolve>),
}

/// A command on its way.
pub struct ProposalHandle {
    /// Names it from here on, its output too.
    pub id: MessageId,
    events: mpsc::UnboundedReceiver<ProposalEvent>,
}

impl ProposalHandle {
    /// The next step; `None` after the last one. Output is bounded by what the grant allows.
    pub async fn next(&mut self) -> Option<ProposalEvent> {
        self.events.recv().await
    }

    /// Waits for the end: the result, or why it did not run.
    pub async fn outcome(mut self) -> Option<ProposalEvent> {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last
    }
}

/// Someone who wants something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub id: ParticipantId,
    /// What people call them.
    pub name: String,
}

/// What people want of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentInput {
    Prompt {
        id: MessageId,
        by: Requester,
        prompt: Box<PromptSubmit>,
        /// What the prompt's context keys stand for, as far as it is known here.
        context: Vec<(String, String)>,
    },
    /// Someone thought better of a prompt.
    Amend {
        id: MessageId,
        by: Requester,
        amend: Box<PromptAmend>,
    },
    /// Acknowledged already; stopping what runs is done already, too.
    Interrupt {
        id: MessageId,
        by: Requester,
        interrupt: Box<InterruptRaise>,
    },
    /// What this agent did here before it was started, told once, before anything else.
    Recap(Box<SessionRecap>),
}

/// What people want, in order.
pub struct AgentInputs(mpsc::Receiver<AgentInput>);

impl AgentInputs {
    /// The next wish; `None` when the session is over for us. May be given up without losing one.
    pub async fn next(&mut self) -> Option<AgentInput> {
        self.0.recv().await
    }
}

/// An agent in a session. Dropping it ends its connection and everything it runs.
pub struct Agent {
    commands: mpsc::Sender<AgentCommand>,
    inputs: Option<AgentInputs>,
    connection: Connection,
    policy: Arc<Policy>,
    settings: ExecutorSettings,
    workspace: Workspace,
    stopped: watch::Receiver<Option<String>>,
}

impl Agent {
    /// Joins the session that a link leads to, ready to run what is granted.
    pub async fn connect(link: Link, settings: ExecutorSettings) -> Result<Self, AgentError> {
        Self::connect_with(
            link,
            ConnectOptions::default(),
            settings,
            Policy::built_in(),
        )
        .await
    }

    /// The same with more to say about joining, and rules of one's own.
    pub async fn connect_with(
        link: Link,
        options: ConnectOptions,
        settings: ExecutorSettings,
        policy: Policy,
    ) -> Result<Self, AgentError> {
        let options = ConnectOptions {
            executor: Some(settings.executor_info()),
            ..options
        };
        let workspace = Workspace {
            directory: settings.workspace.to_str().map(str::to_owned),
        };
        let policy = Arc::new(policy);
        let (connection, events) = Connection::open(link, options).await?;
        let executor = Executor::new(connection.clone(), settings.clone(), policy.clone())
            .map_err(AgentError::Executor)?;
        let (commands, command_receiver) = mpsc::channel(16);
        let (input_sender, input_receiver) = mpsc::channel(INPUT_QUEUE_LEN);
        let task = AgentTask::new(connection.clone(), executor, input_sender);
        let (stopped_sender, stopped) = watch::channel(None);
        tokio::spawn(async move {
            let refusal = task.run(command_receiver, events).await;
            stopped_sender.send_replace(refusal);
        });
        Ok(Self {
            commands,
            inputs: Some(AgentInputs(input_receiver)),
            connection,
            policy,
            settings,
            workspace,
            stopped,
        })
    }

    /// Waits until the agent has gone and everything that it ran has ended; gives why the server
    /// does not let it in any more, if that is so.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        let mut stopped = self.stopped.clone();
        async move {
            // The other end is dropped when all is said.
            while stopped.changed().await.is_ok() {}
            stopped.borrow().clone()
        }
    }

    pub fn participant(&self) -> &ParticipantId {
        self.connection.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.connection.session()
    }

    /// The connection, for saying other things.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How it runs things.
    pub fn settings(&self) -> &ExecutorSettings {
        &self.settings
    }

    /// The next thing that people want; `None` when the session is over for us, or when someone
    /// else listens.
    pub async fn next_input(&mut self) -> Option<AgentInput> {
        self.inputs.as_mut()?.next().await
    }

    /// What people want of this agent, apart from it; whoever asks first listens.
    pub fn take_inputs(&mut self) -> Option<AgentInputs> {
        self.inputs.take()
    }

    /// Proposes a line for the shell. What is blocked here is not even sent.
    pub async fn propose_shell(&self, line: &str) -> Result<ProposalHandle, ProposeError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, "").await
    }

    /// Proposes a command with arguments as `tool.propose` has them, and what it is for. What is
    /// blocked here is not even sent.
    pub async fn propose(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        let arguments = self.with_co_author(arguments)?;
        match self.blocked_by_policy(&Action::from_arguments("shell", &arguments)?) {
            Some(blocked) => Err(blocked),
            None => self.submit(arguments, purpose).await,
        }
    }

    /// The same, but what is blocked is sent too, so that the record shows that it was tried.
    pub async fn propose_even_if_blocked(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        let arguments = self.with_co_author(arguments)?;
        let blocked = self.blocked_by_policy(&Action::from_arguments("shell", &arguments)?);
        match self.submit(arguments, purpose).await {
            Err(ProposeError::Refused(report)) if report.code == ErrorCode::GateFailed => {
                let (rule, reason) = ("server".to_owned(), report.message);
                Err(blocked.unwrap_or(ProposeError::Blocked { rule, reason }))
            }
            other => other,
        }
    }

    fn blocked_by_policy(&self, action: &Action) -> Option<ProposeError> {
        let assessment = self.policy.assess(action, &self.workspace);
        let (rule, reason) = (assessment.rule, assessment.reason);
        (assessment.category == Category::Blocked).then_some(ProposeError::Blocked { rule, reason })
    }

    async fn submit(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        let action = Action::from_arguments("shell", &arguments)?;
        executor::resolve_directory(action.cwd.as_deref(), &self.settings.workspace)
            .map_err(ProposeError::BadDirectory)?;
        let (id, propose) = (fresh_id(), self.tool_propose(arguments, purpose));
        let (event_sender, event_receiver) = mpsc::unbounded_channel();
        let (registered, registration) = oneshot::channel();
        let agent_command = AgentCommand::TrackProposal {
            id: id.clone(),
            propose: Box::new(propose.clone()),
            command: action.command.summary(),
            mode: action.mode,
            events: event_sender,
            registered,
        };
        self.send_command(agent_command).await?;
        registration.await.map_err(|_| ProposeError::AgentStopped)?;
        let receipt = self
            .connection
            .send_with_id(id.clone(), None, propose)
            .await?;
        receipt.ack().await?;
        let events = event_receiver;
        Ok(ProposalHandle { id, events })
    }

    /// What the agent adds to a command, it adds before anyone sees it.
    fn with_co_author(&self, mut arguments: JsonObject) -> Result<JsonObject, ProposeError> {
        if let Some(author) = &self.settings.git.co_author {
            let action = Action::from_arguments("shell", &arguments)?;
            let assessment = self.policy.assess(&action, &self.workspace);
            if let Some(line) =
                trailer::with_co_author_trailer(&action.command, &assessment.parts, author)
            {
                arguments.insert("full_command".to_owned(), line.into());
            }
        }
        Ok(arguments)
    }

    fn tool_propose(&self, arguments: JsonObject, purpose: &str) -> ToolPropose {
        ToolPropose {
            tool_name: "shell".to_owned(),
            arguments,
            agent: self.participant().clone(),
            // A claim that can only raise the verdict: this one leaves it to the server.
            risk_level: Risk::Safe,
            description: purpose.to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            assessment: None,
            extra: ExtraFields::new(),
        }
    }

    /// Lines of what a command printed, by the id of its proposal.
    pub async fn read_output(&self, read: OutputRead) -> Result<OutputPage, ProposeError> {
        loop {
            let id = fresh_id();
            let (page, answer) = oneshot::channel();
            self.send_command(AgentCommand::TrackOutputRead {
                id: id.clone(),
                page,
            })
            .await?;
            let receipt = self.connection.send_with_id(id, None, read.clone()).await?;
            match receipt.ack().await {
                Ok(_) => return answer.await.map_err(|_| ProposeError::AgentStopped),
                // The connection was lost meanwhile; asking again changes nothing.
                Err(SendError::Dropped) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The background jobs of this agent, oldest first, also those that have ended lately.
    pub async fn jobs(&self) -> Result<Vec<BackgroundJob>, ProposeError> {
        let (jobs, answer) = oneshot::channel();
        self.send_command(AgentCommand::ListJobs { jobs }).await?;
        answer.await.map_err(|_| ProposeError::AgentStopped)
    }

    /// Stops a background job of this agent's, with everything that it started; gives how it
    /// ended, if that is known here.
    pub async fn stop_job(
        &self,
        job: &MessageId,
        why: &str,
    ) -> Result<Option<String>, ProposeError> {
        let receipt = self.connection.cancel(job, Some(why.to_owned())).await?;
        receipt.ack().await?;
        let (ended, answer) = oneshot::channel();
        let id = job.clone();
        self.send_command(AgentCommand::AwaitJobEnd { id, ended })
            .await?;
        answer.await.map_err(|_| ProposeError::AgentStopped)
    }

    async fn send_command(&self, agent_command: AgentCommand) -> Result<(), ProposeError> {
        self.commands
            .send(agent_command)
            .await
            .map_err(|_| ProposeError::AgentStopped)
    }
}
