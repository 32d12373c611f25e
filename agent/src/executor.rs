//! Runs the commands that are granted to this participant, and reports their output and results.

mod active_run;
mod git_notes;
mod job_file;
mod output_sender;
mod run_task;
mod spawn_spec;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_client::{Connection, now};
use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{
    ExecutorInfo, GateOutcome, InterruptUrgency, RunOutcome, SessionWelcome, ToolExecute,
    ToolInput, ToolResult,
};
use pvp_protocol::{Envelope, ExtraFields, MessageId, RunMode, Sender, ServerMessage};
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::grant_check::GrantCheck;
use crate::journal::Journal;
use crate::run::{OverflowAction, PtyInput, ReaperPool};
use crate::sandbox::{self, ResourceLimits};
use active_run::ActiveRun;
use run_task::RunTask;
pub(crate) use spawn_spec::resolve_directory;

/// Runs whose cancel arrived before their grant; beyond this, those with the lowest ids are
/// dropped.
const MAX_EARLY_STOPS: usize = 256;

/// Memory in bytes for each process of a read, unless the settings say otherwise.
pub const DEFAULT_READ_MEMORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// What an executor does for git besides running it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitSettings {
    /// `Name <address>` that is added to commits as a co-author, before they are proposed.
    pub co_author: Option<String>,
    /// Whether approved commits get a note that says who approved them.
    pub notes: bool,
}

/// How an executor runs commands.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// The program that reapers are started from: this one.
    pub program: PathBuf,
    /// The directory that commands run in unless they name another.
    pub workspace: PathBuf,
    /// The directory for the journal and the output of background jobs.
    pub state_directory: PathBuf,
    /// A prefix for every approved command, such as the start of a container.
    pub runner: Vec<String>,
    /// Commands that run at a time; others wait.
    pub max_commands: usize,
    /// Background jobs at a time; one more is refused, because jobs may never end by themselves.
    pub max_background_jobs: usize,
    /// Time between asking a command to end and killing it.
    pub kill_grace: Duration,
    /// What each command may use of the machine.
    pub limits: ResourceLimits,
    /// Memory in bytes for each process of a read. Reads have their own limit because they run
    /// without approval.
    pub read_memory_bytes: u64,
    /// What to do with a command that prints more than it may.
    pub on_overflow: OverflowAction,
    /// What to do for git besides running it.
    pub git: GitSettings,
}

impl ExecutorSettings {
    /// The default settings for a workspace.
    pub fn new(workspace: PathBuf, state_directory: PathBuf) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            workspace,
            state_directory,
            runner: Vec::new(),
            max_commands: 8,
            max_background_jobs: 16,
            kill_grace: Duration::from_secs(2),
            limits: ResourceLimits::default(),
            read_memory_bytes: DEFAULT_READ_MEMORY_BYTES,
            on_overflow: OverflowAction::Kill,
            git: GitSettings::default(),
        }
    }

    /// What the executor announces when it joins.
    pub fn executor_info(&self) -> ExecutorInfo {
        ExecutorInfo {
            profiles: sandbox::enforceable_profiles(),
            shell_exec: true,
            working_directory: self.workspace.to_str().map(str::to_owned),
            runner: self.runner.clone(),
            shell: Some(spawn_spec::login_shell()),
        }
    }
}

/// What happens to runs, for whoever proposed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    Started {
        proposal: MessageId,
        pid: u32,
        /// The local file that stores a background job's output; `None` for other commands.
        file: Option<PathBuf>,
    },
    /// The run has ended and its result was sent.
    Finished { proposal: MessageId },
}

/// What the task of a run reports to the executor.
enum RunTaskEvent {
    Started {
        proposal: MessageId,
        pid: u32,
        file: Option<PathBuf>,
        pty_input: Option<PtyInput>,
    },
    Finished {
        proposal: MessageId,
    },
}

/// The state of the replay that follows a welcome: entries up to `head` are in the past.
struct ReplayState {
    head: u64,
    /// Runs of ours according to the session whose grant may still arrive in the replay.
    running: BTreeSet<MessageId>,
}

/// Runs what is granted to one participant of one session.
pub struct Executor {
    /// The connection to the session.
    connection: Connection,
    /// How commands are run.
    settings: Arc<ExecutorSettings>,
    /// Processes that commands are started under.
    reapers: Arc<ReaperPool>,
    /// The local rules; a command that they block does not run.
    policy: Arc<Policy>,
    /// Decides which grants are acted on.
    grant_check: GrantCheck,
    /// The durable list of grants that were acted on.
    journal: Arc<Mutex<Journal>>,
    /// One permit for each command that may run at the same time.
    slots: Arc<Semaphore>,
    /// Runs that are under way or about to start, by proposal.
    active_runs: BTreeMap<MessageId, ActiveRun>,
    /// Proposals that were stopped before their grant arrived, with the reason.
    early_stops: BTreeMap<MessageId, String>,
    /// The replay that is under way; `None` before the welcome and when the replay is complete.
    replay: Option<ReplayState>,
    /// Runs that an earlier process of this executor started without recording a result.
    orphaned: BTreeSet<MessageId>,
    /// Events from the tasks of the runs.
    run_events: mpsc::UnboundedReceiver<RunTaskEvent>,
    /// Cloned into the task of each run.
    run_event_sender: mpsc::UnboundedSender<RunTaskEvent>,
}

impl Executor {
    /// Opens the journal. Nothing runs until [`on_message`](Self::on_message) receives a grant.
    pub fn new(
        connection: Connection,
        settings: ExecutorSettings,
        policy: Arc<Policy>,
    ) -> anyhow::Result<Self> {
        let journal = Journal::open(&settings.state_directory, now())
            .context("opening the journal of grants")?;
        let workspace = Workspace {
            directory: settings.workspace.to_str().map(str::to_owned),
        };
        let orphaned: BTreeSet<_> = journal.unfinished_proposals().cloned().collect();
        for proposal in &orphaned {
            job_file::close_orphan(&settings, proposal);
        }
        job_file::remove_oldest(&settings);
        let (run_event_sender, run_events) = mpsc::unbounded_channel();
        Ok(Self {
            grant_check: GrantCheck::new(connection.participant().clone(), workspace),
            slots: Arc::new(Semaphore::new(settings.max_commands.max(1))),
            reapers: Arc::new(ReaperPool::with_spare(&settings.program)),
            settings: Arc::new(settings),
            connection,
            policy,
            orphaned,
            journal: Arc::new(Mutex::new(journal)),
            active_runs: BTreeMap::new(),
            early_stops: BTreeMap::new(),
            replay: None,
            run_events,
            run_event_sender,
        })
    }

    /// For registering a proposal of ours before it is sent, so that its grant is recognized.
    pub fn grant_check(&mut self) -> &mut GrantCheck {
        &mut self.grant_check
    }

    /// The number of commands that are running or about to start.
    pub fn running_count(&self) -> usize {
        self.active_runs.len()
    }

    /// Waits for the next event of a run. Cancel safe: dropping the future loses no event.
    pub async fn next_event(&mut self) -> RunEvent {
        let event = self.run_events.recv().await;
        let event = event.expect("the executor itself holds a sender");
        self.on_run_task_event(event)
    }

    fn on_run_task_event(&mut self, event: RunTaskEvent) -> RunEvent {
        match event {
            RunTaskEvent::Started {
                proposal,
                pid,
                file,
                pty_input,
            } => {
                if let Some(active) = self.active_runs.get_mut(&proposal) {
                    active.on_started(pty_input);
                }
                RunEvent::Started {
                    proposal,
                    pid,
                    file,
                }
            }
            RunTaskEvent::Finished { proposal } => {
                self.active_runs.remove(&proposal);
                RunEvent::Finished { proposal }
            }
        }
    }

    /// Receives every message of the session and acts on those that concern execution.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else does not concern execution"
    )]
    pub fn on_message(&mut self, envelope: &Envelope) {
        let id = &envelope.header.id;
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => self.on_welcome(welcome),
            ServerMessage::ToolPropose(propose) => self.grant_check.on_propose(id, propose),
            ServerMessage::ShellExec(exec) => self.grant_check.on_shell_exec(id, exec),
            ServerMessage::GateRequest(request) => self.grant_check.on_gate_request(id, request),
            ServerMessage::GateAmend(amend) => self.grant_check.on_gate_amend(amend),
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.forget_proposal(&resolve.tool_proposal);
            }
            ServerMessage::ToolExecute(execute) => self.on_grant(execute, envelope.seq),
            ServerMessage::ToolResult(result) => self.on_result(result),
            ServerMessage::ToolCancel(cancel) => {
                let why = cancel.reason.as_deref().unwrap_or("cancelled");
                self.stop_run(&cancel.tool_proposal, why);
            }
            ServerMessage::ToolInput(input) => self.on_input(&envelope.header.sender, input),
            ServerMessage::InterruptRaise(raise)
                if raise
                    .target
                    .as_ref()
                    .is_none_or(|target| target == self.connection.participant()) =>
            {
                self.on_interrupt(raise.urgency, &raise.message);
            }
            ServerMessage::SessionEnd(end) => self.stop_all(&end.reason),
            _ => {}
        }
        self.finish_replay(envelope.seq);
    }

    fn on_welcome(&mut self, welcome: &SessionWelcome) {
        let me = self.connection.participant();
        let mine = welcome.running.iter().filter(|run| run.executor == *me);
        let lost = mine.filter(|run| !self.active_runs.contains_key(&run.tool_proposal));
        let lost = lost.map(|run| run.tool_proposal.clone());
        let (orphaned, running): (BTreeSet<_>, BTreeSet<_>) =
            lost.partition(|proposal| self.orphaned.contains(proposal));
        for proposal in orphaned {
            self.send_result(unknown_result(
                proposal,
                "the executor was restarted in the middle; it may or may not have finished",
            ));
        }
        let head = welcome.head;
        self.replay = Some(ReplayState { head, running });
    }

    /// Ends the replay once its head is reached. What the session believes we run and we do not run
    /// is lost; a result says so, instead of letting everyone wait.
    fn finish_replay(&mut self, seq: Option<u64>) {
        let reached = |replay: &mut ReplayState| seq.is_some_and(|seq| seq >= replay.head);
        let Some(replay) = self.replay.take_if(reached) else {
            return;
        };
        for proposal in replay.running {
            if !self.active_runs.contains_key(&proposal) {
                self.send_result(failed_result(
                    proposal,
                    "its grant was lost before the executor acted on it",
                ));
            }
        }
    }

    fn send_result(&self, result: ToolResult) {
        let connection = self.connection.clone();
        tokio::spawn(async move { output_sender::send_acknowledged(&connection, result).await });
    }

    fn on_grant(&mut self, execute: &ToolExecute, seq: Option<u64>) {
        let proposal = execute.tool_proposal.clone();
        // Of the replayed grants, only those that still count as running may start.
        let already_over = self.replay.as_ref().is_some_and(|replay| {
            seq.is_some_and(|seq| seq <= replay.head) && !replay.running.contains(&proposal)
        });
        // A grant that arrives a second time must not disturb the run that it started.
        if already_over || self.active_runs.contains_key(&proposal) {
            return;
        }
        let Some(checked) = self.grant_check.check(execute, &self.policy, now()) else {
            return;
        };
        let mode = execute.grant.action.mode;
        let refused = match checked {
            Err(refused) => Some(refused.to_string()),
            Ok(()) if mode == RunMode::Background => self.job_limit_refusal(),
            Ok(()) => None,
        };
        if let Some(why) = refused {
            if let Some(replay) = &mut self.replay {
                replay.running.remove(&proposal);
            }
            self.refuse_grant(proposal, execute.grant.id.clone(), why);
            return;
        }
        let (mut active_run, stop_receiver) = ActiveRun::new(mode, execute.grant.driver.clone());
        if let Some(why) = self.early_stops.remove(&proposal) {
            active_run.stop(&why);
        }
        self.active_runs.insert(proposal.clone(), active_run);
        let run_task = RunTask {
            connection: self.connection.clone(),
            settings: self.settings.clone(),
            reapers: self.reapers.clone(),
            journal: self.journal.clone(),
            slots: self.slots.clone(),
            events: self.run_event_sender.clone(),
            proposal,
            grant: execute.grant.clone(),
        };
        run_task.spawn(stop_receiver);
    }

    fn job_limit_refusal(&self) -> Option<String> {
        let jobs = self.active_runs.values();
        let jobs = jobs
            .filter(|active| active.mode() == RunMode::Background)
            .count();
        let running = match jobs {
            1 => "1 background job is".to_owned(),
            _ => format!("{jobs} background jobs are"),
        };
        let full = jobs >= self.settings.max_background_jobs;
        full.then(|| format!("{running} running here, which is the most; stop one first"))
    }

    /// Reports why a grant was not acted on, unless it was acted on before.
    fn refuse_grant(&self, proposal: MessageId, grant: MessageId, why: String) {
        tracing::warn!(%proposal, why, "did not act on a grant");
        let (connection, journal) = (self.connection.clone(), self.journal.clone());
        tokio::spawn(async move {
            if !journal.lock().await.contains(&grant) {
                output_sender::send_acknowledged(&connection, failed_result(proposal, &why)).await;
            }
        });
    }

    fn forget_proposal(&mut self, proposal: &MessageId) {
        self.grant_check.forget(proposal);
        self.early_stops.remove(proposal);
    }

    /// A result that is not ours closes a run that the session has given up, so stop it: nobody
    /// would see its output.
    fn on_result(&mut self, result: &ToolResult) {
        self.forget_proposal(&result.tool_proposal);
        if let Some(active) = self.active_runs.get_mut(&result.tool_proposal) {
            active.stop("the session has given it up");
        }
    }

    fn on_input(&mut self, sender: &Sender, input: &ToolInput) {
        if let Some(active) = self.active_runs.get_mut(&input.tool_proposal)
            && !active.on_input(sender, input)
        {
            tracing::warn!(proposal = %input.tool_proposal, "keys of someone who is not at them");
        }
    }

    /// Asks one run to end. A stop requested before the start prevents it.
    fn stop_run(&mut self, proposal: &MessageId, why: &str) {
        if let Some(active) = self.active_runs.get_mut(proposal) {
            active.stop(why);
            return;
        }
        self.early_stops.insert(proposal.clone(), why.to_owned());
        if self.early_stops.len() > MAX_EARLY_STOPS {
            self.early_stops.pop_first();
        }
    }

    fn on_interrupt(&mut self, urgency: InterruptUrgency, why: &str) {
        for active in self.active_runs.values_mut() {
            match urgency {
                // Running commands may finish; the brain starts nothing more.
                InterruptUrgency::Pause => {}
                InterruptUrgency::Stop => active.stop(why),
                InterruptUrgency::Emergency => active.kill(why),
            }
        }
    }

    /// Asks every run to end, because the session is over or the agent stops.
    pub fn stop_all(&mut self, why: &str) {
        for active in self.active_runs.values_mut() {
            active.stop(why);
        }
    }
}

/// A result that says why nothing ran.
fn failed_result(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        tool_proposal,
        success: false,
        result: None,
        error: Some(why.to_owned()),
        duration_ms: 0,
        outcome: Some(RunOutcome::Known),
        extra: ExtraFields::new(),
    }
}

/// A result whose outcome is not known.
fn unknown_result(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        outcome: Some(RunOutcome::Unknown),
        ..failed_result(tool_proposal, why)
    }
}
