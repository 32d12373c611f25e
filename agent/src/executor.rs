//! Runs the commands that are granted to this participant, and reports their output and results.
//!
//! An executor acts on grants and on nothing else. It proposes nothing and needs neither a proposer
//! nor a brain: whoever proposes for the same participant tells it so with
//! [`record_proposal`](Executor::record_proposal) before sending, and people ask for commands of
//! their own with `shell.exec`.
//!
//! Two kinds of knowledge meet here. The [`View`] is folded from what the server says, and is good
//! for finding the command behind a gate and for telling the past from the present. Whether a grant
//! is acted on rests on what the executor knows by itself: what it was told to expect
//! ([`ShownActions`](crate::shown_actions::ShownActions)), its own policy ([`GrantCheck`]), and the
//! grants that it has used ([`Journal`]).

mod active_run;
mod file_run;
mod git_notes;
mod job_file;
mod output_sender;
mod read_roots;
mod run_task;
mod spawn_spec;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_client::{Connection, ConnectionEvents, View, now};
use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{
    ClearedBy, Degree, ExecutorInfo, GateOutcome, GrantTerms, InterruptUrgency, RunBy,
    RunningCommand, SessionWelcome, ToolDiscard, ToolExecute, ToolInput, ToolResult,
};
use pvp_protocol::{Action, Envelope, MessageId, RunMode, SandboxProfile, Sender, ServerMessage};
use tokio::sync::{Mutex, Semaphore, mpsc};

pub use crate::binding_key::BindingKey;
use crate::grant_check::{GrantCheck, GrantLimits};
use crate::journal::Journal;
use crate::private_paths::check_workspace;
use crate::received::{Received, next_received};
use crate::run::{OverflowAction, PtyInput, ReaperPool};
use crate::run_results::{failed_result, unknown_result};
use crate::sandbox::{self, ResourceLimits};
use crate::secret_files::SecretFileFinder;
pub use crate::shown_actions::AcceptedOrigins;
use active_run::ActiveRun;
pub(crate) use file_run::unavailable_with as file_tools_unavailable_with;
use read_roots::ReadRoots;
use run_task::RunTask;

/// Runs whose cancel arrived before their grant; beyond this, those with the lowest ids are
/// dropped.
const MAX_EARLY_STOPS: usize = 256;

/// Values of secrets that are masked; a session has at most 200 secrets at a time.
const MAX_KNOWN_SECRETS: usize = 1000;

/// How long the server may take to accept the last results and the leave message.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// What else reads may not see, besides the state directory and what is known to be private:
    /// the file of the agent's link, the data of a server.
    pub private_paths: Vec<PathBuf>,
    /// Finds the files with secrets that reads may not see.
    pub secret_files: Arc<SecretFileFinder>,
    /// Binds changes of such files to their content.
    pub binding_key: BindingKey,
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
    /// What it takes from the server besides grants for its own proposals.
    pub accepted: AcceptedOrigins,
    /// The widest sandbox of commands that somebody approved; the session may name a narrower one.
    pub profile: SandboxProfile,
    /// Whether reads may run unconfined, if the session allows it and this machine cannot confine
    /// them.
    pub unconfined_reads: bool,
    /// Whether reads may see the session's read roots.
    pub accept_read_roots: bool,
    /// Whether commands may be tried in the sandbox, if the session says so and this machine can
    /// count what the sandbox denies.
    pub trials: bool,
    /// Whether the agent's client runs calls too, whose ends are reported for it elsewhere. They are
    /// left alone here; without this, a grant for a client is refused.
    pub client_runs: bool,
}

impl ExecutorSettings {
    /// The default settings for a workspace.
    pub fn new(workspace: PathBuf, state_directory: PathBuf) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            workspace,
            state_directory,
            private_paths: Vec::new(),
            secret_files: Arc::default(),
            binding_key: BindingKey::random(),
            runner: Vec::new(),
            max_commands: 8,
            max_background_jobs: 16,
            kill_grace: Duration::from_secs(2),
            limits: ResourceLimits::default(),
            read_memory_bytes: DEFAULT_READ_MEMORY_BYTES,
            on_overflow: OverflowAction::Kill,
            git: GitSettings::default(),
            accepted: AcceptedOrigins::default(),
            profile: SandboxProfile::None,
            unconfined_reads: false,
            accept_read_roots: true,
            trials: true,
            client_runs: false,
        }
    }

    fn grant_limits(&self) -> GrantLimits {
        GrantLimits {
            accepted: self.accepted,
            profile: self.profile,
            unconfined_reads: self.unconfined_reads,
            enforceable: self.enforceable_profiles(),
            trials: self.trials && sandbox::can_count_denials(),
        }
    }

    /// The sandboxes that can be enforced here. Reads need one that keeps secrets out of sight, and
    /// some workspaces are too large to find them all.
    fn enforceable_profiles(&self) -> Vec<SandboxProfile> {
        let mut profiles = sandbox::enforceable_profiles();
        if let Err(error) = self.secret_files.find(&self.workspace) {
            tracing::warn!(%error, "reads need approval here");
            profiles.retain(|profile| *profile == SandboxProfile::Workspace);
        }
        profiles
    }

    /// What the executor announces when it joins.
    pub fn executor_info(&self) -> ExecutorInfo {
        ExecutorInfo {
            profiles: self.enforceable_profiles(),
            trials: self.trials && sandbox::can_count_denials(),
            shell_exec: self.accepted.shell_exec,
            edits: self.accepted.edits,
            working_directory: self.workspace.to_str().map(str::to_owned),
            runner: self.runner.clone(),
            shell: Some(spawn_spec::login_shell()),
            read_roots: self.accept_read_roots,
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
        grant: MessageId,
    },
}

/// Runs what is granted to one participant of one session.
pub struct Executor {
    /// The connection to the session.
    connection: Connection,
    /// How commands are run.
    settings: Arc<ExecutorSettings>,
    /// Processes that commands are started under.
    reapers: Arc<ReaperPool>,
    /// Decides which grants are acted on, by what this executor knows itself.
    grant_check: GrantCheck,
    /// The directories beside the workspace that the session lets reads see.
    read_roots: ReadRoots,
    /// The values of secrets that came with grants, which are masked in all output; by themselves,
    /// because one name may have had several.
    known_secrets: BTreeMap<String, String>,
    /// The durable list of grants that were acted on.
    journal: Arc<Mutex<Journal>>,
    /// One permit for each command that may run at the same time.
    slots: Arc<Semaphore>,
    /// Runs that are under way or about to start, by proposal.
    active_runs: BTreeMap<MessageId, ActiveRun>,
    /// Proposals that were stopped before their grant arrived, with the reason.
    early_stops: BTreeMap<MessageId, String>,
    /// During a replay, the runs of ours according to the welcome whose grant may still arrive;
    /// `None` before the welcome and when the replay is complete.
    replayed_runs: Option<BTreeSet<MessageId>>,
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
        check_workspace(&settings)?;
        let journal = Journal::open(&settings.state_directory, now())
            .context("opening the journal of grants")?;
        let workspace = Workspace {
            directory: settings.workspace.to_str().map(str::to_owned),
            ..Workspace::default()
        };
        let orphaned: BTreeSet<_> = journal.unfinished_proposals().cloned().collect();
        for proposal in &orphaned {
            job_file::close_orphan(&settings, proposal);
        }
        job_file::remove_oldest(&settings);
        let (run_event_sender, run_events) = mpsc::unbounded_channel();
        Ok(Self {
            grant_check: GrantCheck::new(
                connection.participant().clone(),
                policy,
                workspace,
                settings.grant_limits(),
            ),
            read_roots: ReadRoots::default(),
            known_secrets: BTreeMap::new(),
            slots: Arc::new(Semaphore::new(settings.max_commands.max(1))),
            reapers: Arc::new(ReaperPool::with_spare(&settings.program)),
            settings: Arc::new(settings),
            connection,
            orphaned,
            journal: Arc::new(Mutex::new(journal)),
            active_runs: BTreeMap::new(),
            early_stops: BTreeMap::new(),
            replayed_runs: None,
            run_events,
            run_event_sender,
        })
    }

    /// Acts on grants until the session is over for this participant, then leaves. Returns why the
    /// server no longer lets it in, if that is the reason. For an executor without a proposer.
    pub async fn run(mut self, mut events: ConnectionEvents) -> Option<String> {
        let mut view = View::default();
        let refusal = loop {
            tokio::select! {
                _ = self.next_event() => {}
                received = next_received(&mut events) => match received {
                    Received::Message(envelope) => {
                        view.fold(&envelope);
                        self.on_message(&view, &envelope);
                        if let ServerMessage::SessionEnd(_) = envelope.message {
                            break None;
                        }
                    }
                    Received::NotResumed => view = View::default(),
                    Received::Over(refusal) => break refusal,
                },
            }
        };
        self.leave(events).await;
        refusal
    }

    /// Stops everything that runs, reports how it ended, and leaves the session. Does not wait long
    /// for a server that cannot be reached.
    pub async fn leave(mut self, mut events: ConnectionEvents) {
        // Acknowledgements arrive only while events are read.
        let drain = tokio::spawn(async move { while events.next().await.is_some() {} });
        let shutdown = async {
            self.stop_all("the agent has stopped");
            while self.running_count() > 0 {
                self.next_event().await;
            }
            let why = Some("the agent has stopped".to_owned());
            self.connection.clone().leave(why).await
        };
        match tokio::time::timeout(LEAVE_TIMEOUT, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "left without telling the server"),
            Err(_) => tracing::warn!("could not tell the server that the agent has stopped"),
        }
        drain.abort();
    }

    /// Writes down a proposal of this participant that is about to be sent. A grant for anything
    /// that was not written down before is refused.
    pub async fn record_proposal(&mut self, id: &MessageId, action: &Action) -> anyhow::Result<()> {
        let (journal, digest) = (self.journal.clone(), action.digest());
        let proposal = id.clone();
        tokio::task::spawn_blocking(move || {
            let mut journal = journal.blocking_lock();
            journal.record_proposal(&proposal, digest)
        })
        .await
        .context("the journal's task ended")??;
        self.grant_check.shown.record_proposal(id, action);
        Ok(())
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
            RunTaskEvent::Finished { proposal, grant } => {
                // After a trial, another grant for the same proposal may have started already.
                let active = self.active_runs.get(&proposal);
                if active.is_some_and(|active| *active.grant() == grant) {
                    self.active_runs.remove(&proposal);
                }
                RunEvent::Finished { proposal }
            }
        }
    }

    /// Receives every message of the session, with the view folded up to it, and acts on those that
    /// concern execution.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else does not concern execution"
    )]
    pub fn on_message(&mut self, view: &View, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => {
                self.read_roots.on_welcome(welcome);
                self.on_welcome(welcome);
            }
            // For history, the welcome has already told what holds.
            ServerMessage::PolicyAllow(allow) if !view.is_history(envelope.seq) => {
                self.read_roots.on_allow(&envelope.header.id, allow);
            }
            ServerMessage::PolicyRevoke(revoke) => self.read_roots.on_revoke(revoke),
            ServerMessage::SessionConfigUpdate(update) if !view.is_history(envelope.seq) => {
                self.read_roots.on_config_update(update);
            }
            ServerMessage::ShellExec(exec) => {
                let shown = &mut self.grant_check.shown;
                shown.record_shell_exec(&envelope.header.id, exec);
            }
            ServerMessage::GateAmend(amend) => {
                if let Some(proposal) = view.proposal_at_gate(&amend.gate) {
                    self.grant_check.shown.record_edit(&proposal.id, amend);
                }
            }
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.forget_proposal(&resolve.tool_proposal);
            }
            ServerMessage::ToolExecute(execute) => {
                self.on_grant(execute, view.is_history(envelope.seq));
            }
            ServerMessage::ToolResult(result) => self.on_result(result),
            ServerMessage::ToolDiscard(discard) => self.on_discard(discard),
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
        if envelope.seq.is_some() && !view.is_replaying() {
            self.finish_replay();
        }
    }

    fn on_welcome(&mut self, welcome: &SessionWelcome) {
        let me = self.connection.participant();
        // What a client runs is closed by its lease.
        let is_run_here = |run: &&RunningCommand| {
            run.executor == *me && !matches!(run.degree, Some(Degree::Held | Degree::Hooked))
        };
        let mine = welcome.running.iter().filter(is_run_here);
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
        self.replayed_runs = Some(running);
    }

    /// Ends the replay. What the session believes we run and we do not run is lost; a result says
    /// so, instead of letting everyone wait.
    fn finish_replay(&mut self) {
        for proposal in self.replayed_runs.take().into_iter().flatten() {
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

    fn on_grant(&mut self, execute: &ToolExecute, is_history: bool) {
        let proposal = execute.tool_proposal.clone();
        if self.settings.client_runs && execute.grant.runs == RunBy::Client {
            if let Some(running) = &mut self.replayed_runs {
                running.remove(&proposal);
            }
            return;
        }
        // Of the replayed grants, only those that still count as running may start.
        let replayed_runs = self.replayed_runs.as_ref().filter(|_| is_history);
        let already_over = replayed_runs.is_some_and(|running| !running.contains(&proposal));
        // A grant that arrives a second time must not disturb the run that it started.
        let active = self.active_runs.get(&proposal);
        let is_trial = execute.grant.cleared_by == ClearedBy::Tried;
        if already_over || active.is_some_and(|active| is_trial || !active.is_trial()) {
            return;
        }
        let now = self.connection.server_now();
        let read_roots = self.read_roots.accepted(&self.settings, now);
        let read_root_names = read_roots.iter().map(|root| root.name.clone()).collect();
        self.grant_check.set_read_roots(read_root_names);
        let Some(checked) = self.grant_check.check(execute, now) else {
            return;
        };
        let mode = execute.grant.action.mode;
        let checked = checked.map_err(|refused| refused.to_string());
        let accepted = checked.and_then(|accepted| match mode {
            RunMode::Background => self.job_limit_refusal().map_or(Ok(accepted), Err),
            RunMode::Normal | RunMode::Slow | RunMode::Pty => Ok(accepted),
        });
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                if let Some(running) = &mut self.replayed_runs {
                    running.remove(&proposal);
                }
                self.refuse_grant(proposal, execute.grant.id.clone(), why);
                return;
            }
        };
        self.remember_secrets(&execute.grant);
        // One run for each proposal, and one trial before it, whatever else the server grants for it.
        match is_trial {
            true => self.grant_check.shown.record_trial(&proposal),
            false => self.grant_check.shown.forget(&proposal),
        }
        let (mut active_run, stop_receiver) = ActiveRun::new(&execute.grant);
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
            accepted,
            read_roots: read_roots.into_iter().map(|root| root.directory).collect(),
            masked: self.known_secrets.clone(),
        };
        run_task.spawn(stop_receiver);
    }

    /// A command may write a secret to a file, and a later one that did not receive it may print it.
    fn remember_secrets(&mut self, grant: &GrantTerms) {
        let values = grant.secret_env.iter().flat_map(|secrets| secrets.values());
        let values = values.map(|value| (value.clone(), value.clone()));
        self.known_secrets.extend(values);
        while self.known_secrets.len() > MAX_KNOWN_SECRETS {
            self.known_secrets.pop_first();
        }
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
        full.then(|| {
            format!("{running} already running here, and no more are allowed; stop one first")
        })
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
        self.grant_check.shown.forget(proposal);
        self.early_stops.remove(proposal);
    }

    /// A result that is not ours closes a run that the session has given up, so stop it: nobody
    /// would see its output.
    fn on_result(&mut self, result: &ToolResult) {
        self.forget_proposal(&result.tool_proposal);
        if let Some(active) = self.active_runs.get_mut(&result.tool_proposal) {
            active.stop("the session has abandoned it");
        }
    }

    /// A discard that is not ours ends a trial that the session has given up.
    fn on_discard(&mut self, discard: &ToolDiscard) {
        let active = self.active_runs.get_mut(&discard.tool_proposal);
        if let Some(active) = active.filter(|active| active.is_trial()) {
            active.stop("the session has abandoned it");
        }
    }

    fn on_input(&mut self, sender: &Sender, input: &ToolInput) {
        if let Some(active) = self.active_runs.get_mut(&input.tool_proposal)
            && !active.on_input(sender, input)
        {
            tracing::warn!(proposal = %input.tool_proposal, "ignored input from a participant who does not control the terminal");
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
