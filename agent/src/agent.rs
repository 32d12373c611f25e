//! An agent as a library: a proposer and an executor of one participant, and what people ask of it.
//!
//! One task receives every message and folds one [`View`](pvp_client::View), which the proposer, the
//! executor and the agent's own lists read. Each keeps beside it only what no message says: who
//! waits for which proposal, what the executor [knows by itself](crate::executor), the process ids
//! of jobs, and the contents of the shared context, which a view leaves out.

mod file_proposal;
mod recap;
mod shared_context;
mod task;
mod trailer;

use std::sync::Arc;

use pvp_client::{ConnectError, ConnectOptions, Connection, Link};
use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{
    ClientOrigin, InterruptRaise, OutputPage, OutputRead, PromptAmend, PromptSubmit,
};
use pvp_protocol::{
    Action, Category, Command, FileTool, JsonObject, MessageId, ParticipantId, Risk, SessionId,
    ToolCategory,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::bound_files::{self, ProposedFiles, ShownFile, ShownFiles};
use crate::brain::tools::BackgroundJob;
use crate::deleted_files;
use crate::executor::{Executor, ExecutorSettings};
use crate::proposer::{ProposalHandle, ProposeError, Proposer, ToolRequest};
use crate::unasked_reads::UnaskedReads;
use crate::working_directory::WorkingDirectory;
use file_proposal::FileProposals;
pub use file_proposal::{BoundClientCall, ClientFileCalls};
pub use recap::SessionRecap;
use task::{AgentCommand, AgentTask};

/// Inputs that may wait to be read; further ones are dropped while the queue is full.
const INPUT_QUEUE_LEN: usize = 1024;

/// Bytes of a participant's name as the agent repeats it.
const MAX_NAME_BYTES: usize = 200;

/// Why an agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0:#}")]
    Executor(anyhow::Error),
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
    /// An interrupt. The agent has already stopped what it had to stop, and acknowledged it unless
    /// that is left to [whoever reads it](InterruptAnswers::ByReader).
    Interrupt {
        id: MessageId,
        by: Requester,
        interrupt: Box<InterruptRaise>,
    },
    /// What this agent did in the session before it was started; sent once, before anything else.
    Recap(Box<SessionRecap>),
}

/// Who acknowledges interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptAnswers {
    /// The agent does, once it has told its executor to stop.
    AtOnce,
    /// Whoever reads the inputs does, once what the interrupt is about has ended.
    ByReader,
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
    /// Proposes, and hears what becomes of it.
    proposer: Proposer,
    /// The rules that are checked here, before a proposal is sent.
    policy: Arc<Policy>,
    /// How the executor runs commands.
    settings: ExecutorSettings,
    /// The workspace as the policy needs it to assess a command.
    workspace: Workspace,
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
        let answers = InterruptAnswers::AtOnce;
        Self::connect_answering(link, options, settings, policy, answers).await
    }

    /// Like [`connect_with`](Self::connect_with), and says who acknowledges interrupts.
    pub async fn connect_answering(
        link: Link,
        options: ConnectOptions,
        settings: ExecutorSettings,
        policy: Policy,
        interrupt_answers: InterruptAnswers,
    ) -> Result<Self, AgentError> {
        let options = ConnectOptions {
            executor: Some(settings.executor_info()),
            ..options
        };
        let workspace = Workspace {
            directory: settings.workspace.to_str().map(str::to_owned),
            ..Workspace::default()
        };
        let policy = Arc::new(policy);
        let (connection, events) = Connection::open(link, options).await?;
        let executor = Executor::new(connection.clone(), settings.clone(), policy.clone())
            .map_err(AgentError::Executor)?;
        let (commands, command_receiver) = mpsc::channel(16);
        let (requests, request_receiver) = mpsc::channel(16);
        let (input_sender, input_receiver) = mpsc::channel(INPUT_QUEUE_LEN);
        let task = AgentTask::new(
            connection.clone(),
            executor,
            input_sender,
            interrupt_answers,
        );
        let (stopped_sender, stopped) = watch::channel(None);
        tokio::spawn(async move {
            let refusal = task.run(command_receiver, request_receiver, events).await;
            stopped_sender.send_replace(refusal);
        });
        Ok(Self {
            commands,
            inputs: Some(AgentInputs(input_receiver)),
            proposer: Proposer::new(connection, requests, stopped),
            policy,
            settings,
            workspace,
        })
    }

    /// Waits until the agent has left and everything that it ran has ended. Returns why the server
    /// no longer lets it in, if that is the reason.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        self.proposer.stopped()
    }

    pub fn participant(&self) -> &ParticipantId {
        self.proposer.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.proposer.session()
    }

    /// The connection, for sending other messages.
    pub fn connection(&self) -> &Connection {
        self.proposer.connection()
    }

    /// The part of the agent that proposes, for calls of other tools than the executor has.
    pub fn proposer(&self) -> &Proposer {
        &self.proposer
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
            None => self.submit(arguments, purpose, None).await,
        }
    }

    /// Like [`propose`](Self::propose), but sends blocked commands too, so that the log shows the
    /// attempt. `origin` names the client that makes the call, if it is not the agent itself.
    pub async fn propose_even_if_blocked(
        &self,
        arguments: JsonObject,
        purpose: &str,
        origin: Option<ClientOrigin>,
    ) -> Result<ProposalHandle, ProposeError> {
        let arguments = self.with_co_author(arguments)?;
        let blocked = self.blocked_by_policy(&Action::from_arguments("shell", &arguments)?);
        match self.submit(arguments, purpose, origin).await {
            Err(by_server @ ProposeError::Blocked { .. }) => Err(blocked.unwrap_or(by_server)),
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
        origin: Option<ClientOrigin>,
    ) -> Result<ProposalHandle, ProposeError> {
        let (arguments, shown_files) = self.bind(arguments).await?;
        let request = ToolRequest {
            tool_name: "shell",
            category: ToolCategory::ShellExecute,
            // This claim can only raise the risk; `Safe` leaves the assessment to the server.
            risk: Risk::Safe,
            arguments,
            origin,
        };
        self.proposer
            .propose_with_contents(request, purpose, shown_files)
            .await
    }

    /// Proposes a call of a file tool, with the file as it is now. A call that the server blocks is
    /// in the log all the same. `origin` is as for a [command](Self::propose_even_if_blocked).
    pub async fn propose_file_tool(
        &self,
        file_tool: &FileTool,
        purpose: &str,
        origin: Option<ClientOrigin>,
    ) -> Result<ProposalHandle, ProposeError> {
        let proposals = FileProposals {
            policy: self.policy.clone(),
            workspace: self.workspace.clone(),
            settings: self.settings.clone(),
        };
        let call = file_tool.clone();
        let prepared = tokio::task::spawn_blocking(move || proposals.prepare(&call)).await;
        let prepared = prepared.map_err(|_| ProposeError::Closed)?;
        let prepared = prepared.map_err(ProposeError::BadFile)?;
        let request = ToolRequest {
            tool_name: file_tool.name(),
            category: match file_tool {
                FileTool::Read { .. } => ToolCategory::FileRead,
                FileTool::Write { .. } | FileTool::Edit { .. } => ToolCategory::FileWrite,
            },
            risk: prepared.risk,
            arguments: prepared.arguments,
            origin,
        };
        self.proposer
            .propose_with_contents(request, purpose, prepared.shown_files)
            .await
    }

    /// Adds to the arguments what people could not see otherwise, and what must not change between
    /// their vote and the start: the directory that `cwd` leads to, the names of the secrets, and
    /// the hashes of the files that the command runs. Returns what people are shown of files too.
    async fn bind(
        &self,
        mut arguments: JsonObject,
    ) -> Result<(JsonObject, ShownFiles), ProposeError> {
        arguments.remove("secrets");
        arguments.remove("files");
        let mut action = Action::from_arguments("shell", &arguments)?;
        if let Some(resolved) = self.resolved_directory(&action)? {
            arguments.insert("cwd".to_owned(), resolved.into());
            action = Action::from_arguments("shell", &arguments)?;
        }
        match self.policy.assess(&action, &self.workspace).category {
            // A read gets no secrets and runs nothing by its path.
            Category::Read => return Ok((arguments, ShownFiles::default())),
            Category::Write | Category::Destructive | Category::Blocked => {}
        }
        let secrets = self.secret_names().await?;
        if !secrets.is_empty() {
            arguments.insert("secrets".to_owned(), secrets.into());
        }
        let bound = self.bind_files(action).await?;
        if !bound.files.is_empty() {
            let files = serde_json::to_value(&bound.files).unwrap_or_default();
            arguments.insert("files".to_owned(), files);
        }
        Ok((arguments, bound.shown))
    }

    /// The path behind the working directory, if the given one leads through links.
    fn resolved_directory(&self, action: &Action) -> Result<Option<String>, ProposeError> {
        let workspace = &self.settings.workspace;
        let cwd = action.cwd.as_deref();
        let directory =
            WorkingDirectory::open(cwd, workspace).map_err(ProposeError::BadDirectory)?;
        let Some(cwd) = cwd else {
            return Ok(None);
        };
        let bad = |why: &str| ProposeError::BadDirectory(format!("cannot work in {cwd}: {why}"));
        let resolved = directory.resolved_path();
        let resolved = resolved.map_err(|error| bad(&error.to_string()))?;
        if resolved == workspace.join(cwd) {
            return Ok(None);
        }
        let text = resolved.to_str().map(str::to_owned);
        text.map(Some)
            .ok_or_else(|| bad("its path is not valid UTF-8"))
    }

    async fn bind_files(&self, action: Action) -> Result<ProposedFiles, ProposeError> {
        let (policy, workspace) = (self.policy.clone(), self.workspace.clone());
        let settings = self.settings.clone();
        let binding = tokio::task::spawn_blocking(move || {
            let named = policy.named_files(&action, &workspace).files;
            let unasked_reads = UnaskedReads::new(&settings);
            // What `cat` could not print without a vote is not sent along either.
            let may_show = |shown: ShownFile<'_>| {
                let command = Command::Argv {
                    command: "cat".to_owned(),
                    args: vec!["--".to_owned(), shown.path.to_owned()],
                };
                let assessment = policy.assess(&Action::new(command), &workspace);
                assessment.category == Category::Read && unasked_reads.may_show(shown)
            };
            let directory = &settings.workspace;
            let mut proposed = bound_files::bind(directory, &named, may_show);
            let deleted = policy.deleted_files(&action, &workspace);
            proposed.shown.deleted = deleted_files::describe(directory, &deleted);
            proposed
        });
        binding.await.map_err(|_| ProposeError::Closed)
    }

    /// The names of the secrets that are shared with this agent.
    async fn secret_names(&self) -> Result<Vec<String>, ProposeError> {
        let (names, answer) = oneshot::channel();
        self.send_command(AgentCommand::ListSecrets { names })
            .await?;
        answer.await.map_err(|_| ProposeError::Closed)
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

    /// Withdraws a proposal of this agent, or stops it with everything that it started.
    pub async fn cancel(&self, proposal: &MessageId, why: &str) -> Result<(), ProposeError> {
        self.proposer.cancel(proposal, why).await
    }

    /// Reads lines of a command's output, by the id of its proposal.
    pub async fn read_output(&self, read: OutputRead) -> Result<OutputPage, ProposeError> {
        self.proposer.read_output(read).await
    }

    /// The background jobs of this agent, oldest first, including some that have ended.
    pub async fn jobs(&self) -> Result<Vec<BackgroundJob>, ProposeError> {
        let (jobs, answer) = oneshot::channel();
        self.send_command(AgentCommand::ListJobs { jobs }).await?;
        answer.await.map_err(|_| ProposeError::Closed)
    }

    /// Stops a background job of this agent, with everything that it started, or withdraws it.
    /// Returns how it ended, if this agent knows the job.
    pub async fn stop_job(
        &self,
        job: &MessageId,
        why: &str,
    ) -> Result<Option<String>, ProposeError> {
        self.proposer.cancel(job, why).await?;
        let (ended, answer) = oneshot::channel();
        let id = job.clone();
        self.send_command(AgentCommand::AwaitJobEnd { id, ended })
            .await?;
        answer.await.map_err(|_| ProposeError::Closed)
    }

    async fn send_command(&self, agent_command: AgentCommand) -> Result<(), ProposeError> {
        self.commands
            .send(agent_command)
            .await
            .map_err(|_| ProposeError::Closed)
    }
}
