//! An agent as a library: proposes commands, runs granted ones, and reports what happens to each.

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

/// Inputs that may wait to be read; further ones are dropped while the queue is full.
const INPUT_QUEUE_LEN: usize = 1024;

/// Why an agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0:#}")]
    Executor(anyhow::Error),
}

/// Why a command was not proposed. Nothing ran, and nothing was sent unless the server refused it.
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

/// What happens to a proposal, in order; the last event is `Finished` or `NotRun`.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalEvent {
    /// The server's assessment.
    Assessed(Box<Assessment>),
    /// A gate was opened; `quorum` says which votes it waits for.
    GateOpened {
        quorum: String,
    },
    /// Someone edited the command; `command` is what would run now.
    Edited {
        by: Option<ParticipantId>,
        command: String,
        reason: Option<String>,
    },
    /// The proposal was approved and may run.
    Granted {
        approved_by: Vec<ParticipantId>,
    },
    /// The command runs under this process id; a background job's output also goes to `file`.
    Started {
        pid: u32,
        file: Option<PathBuf>,
    },
    Output {
        stream: OutputStream,
        text: String,
    },
    Finished(Box<ToolResult>),
    /// The command does not run; the payload says how its gate closed.
    NotRun(Box<GateResolve>),
}

/// A proposal that was sent, and the events about it.
pub struct ProposalHandle {
    /// The proposal's id; its output is read by the same id.
    pub id: MessageId,
    events: mpsc::UnboundedReceiver<ProposalEvent>,
}

impl ProposalHandle {
    /// The next event; `None` after the last one. The grant's output limit bounds the output.
    pub async fn next(&mut self) -> Option<ProposalEvent> {
        self.events.recv().await
    }

    /// Waits for the last event: the result, or why the command did not run.
    pub async fn outcome(mut self) -> Option<ProposalEvent> {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last
    }
}

/// The participant who sent an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub id: ParticipantId,
    /// The display name.
    pub name: String,
}

/// What an agent receives from the session: people's requests, and once a recap of the past.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentInput {
    Prompt {
        id: MessageId,
        by: Requester,
        prompt: Box<PromptSubmit>,
        /// The content of the prompt's context keys, as far as this agent knows it.
        context: Vec<(String, String)>,
    },
    /// Someone amended an earlier prompt.
    Amend {
        id: MessageId,
        by: Requester,
        amend: Box<PromptAmend>,
    },
    /// An interrupt. The agent has already acknowledged it and stopped what it had to stop.
    Interrupt {
        id: MessageId,
        by: Requester,
        interrupt: Box<InterruptRaise>,
    },
    /// What this agent did in the session before it was started; sent once, before anything else.
    Recap(Box<SessionRecap>),
}

/// The inputs of an agent, in order.
pub struct AgentInputs(mpsc::Receiver<AgentInput>);

impl AgentInputs {
    /// The next input; `None` when the session is over for this agent. Cancel safe: dropping the
    /// future loses no input.
    pub async fn next(&mut self) -> Option<AgentInput> {
        self.0.recv().await
    }
}

/// An agent in a session. Dropping it ends its connection and everything it runs.
pub struct Agent {
    /// Commands to the agent's task.
    commands: mpsc::Sender<AgentCommand>,
    /// The inputs; `None` once they were taken with [`take_inputs`](Self::take_inputs).
    inputs: Option<AgentInputs>,
    /// The connection to the session.
    connection: Connection,
    /// The rules that are checked here, before a proposal is sent.
    policy: Arc<Policy>,
    /// How the executor runs commands.
    settings: ExecutorSettings,
    /// The workspace as the policy needs it to assess a command.
    workspace: Workspace,
    /// Closes when the agent's task has ended; holds why the server refused the agent, if it did.
    stopped: watch::Receiver<Option<String>>,
}

impl Agent {
    /// Joins the session that a link points to, ready to run granted commands.
    pub async fn connect(link: Link, settings: ExecutorSettings) -> Result<Self, AgentError> {
        Self::connect_with(
            link,
            ConnectOptions::default(),
            settings,
            Policy::built_in(),
        )
        .await
    }

    /// Like [`connect`](Self::connect), with connection options and a policy of the caller's.
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

    /// Waits until the agent has left and everything that it ran has ended. Returns why the server
    /// no longer lets it in, if that is the reason.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        let mut stopped = self.stopped.clone();
        async move {
            // The sender is dropped after its last value.
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

    /// The connection, for sending other messages.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How the executor runs commands.
    pub fn settings(&self) -> &ExecutorSettings {
        &self.settings
    }

    /// The next input; `None` when the session is over for this agent, or after
    /// [`take_inputs`](Self::take_inputs).
    pub async fn next_input(&mut self) -> Option<AgentInput> {
        self.inputs.as_mut()?.next().await
    }

    /// Moves the inputs out, to be read apart from the agent; `None` if they were taken before.
    pub fn take_inputs(&mut self) -> Option<AgentInputs> {
        self.inputs.take()
    }

    /// Proposes a shell command line. A command that the local policy blocks is not sent.
    pub async fn propose_shell(&self, line: &str) -> Result<ProposalHandle, ProposeError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, "").await
    }

    /// Proposes a command with the arguments of `tool.propose`, and its purpose. A command that
    /// the local policy blocks is not sent.
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

    /// Like [`propose`](Self::propose), but sends blocked commands too, so that the log shows the
    /// attempt.
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

    /// Adds the co-author trailer.
    ///
    /// It is added before anyone sees the command, so that people approve exactly what runs.
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
            // This claim can only raise the risk; `Safe` leaves the assessment to the server.
            risk_level: Risk::Safe,
            description: purpose.to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            assessment: None,
            extra: ExtraFields::new(),
        }
    }

    /// Reads lines of a command's output, by the id of its proposal.
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
                // The connection was lost meanwhile. Reading has no effect, so it is safe to
                // repeat.
                Err(SendError::Dropped) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The background jobs of this agent, oldest first, including some that have ended.
    pub async fn jobs(&self) -> Result<Vec<BackgroundJob>, ProposeError> {
        let (jobs, answer) = oneshot::channel();
        self.send_command(AgentCommand::ListJobs { jobs }).await?;
        answer.await.map_err(|_| ProposeError::AgentStopped)
    }

    /// Stops a background job of this agent, with everything that it started. Returns how it
    /// ended, if this agent knows the job.
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
