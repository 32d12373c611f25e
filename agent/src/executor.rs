//! Runs what is granted to this participant, and tells of it.

mod active;
mod errand;
mod job_file;
mod notes;
mod telling;
mod work;

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

use crate::confine::{self, Share};
use crate::journal::Journal;
use crate::orders::Orders;
use crate::run::{Keyboard, Overflow, Reapers};
use active::Active;
pub(crate) use errand::directory;
use work::Work;

/// Runs whose stop was asked for before their grant came; more are forgotten, oldest id first.
const MOST_UNWANTED: usize = 256;

/// Bytes of memory of each process of a read, unless the settings say otherwise.
pub const READ_MEMORY: u64 = 2 * 1024 * 1024 * 1024;

/// What an executor does for git beside running it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitSettings {
    /// `Name <address>` that is added to commits as a co-author, before they are proposed.
    pub co_author: Option<String>,
    /// Whether approved commits get a note that says who approved them.
    pub notes: bool,
}

/// How an executor runs things.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What reapers are started from: this program.
    pub program: PathBuf,
    /// Where commands run unless they say otherwise.
    pub workspace: PathBuf,
    /// Where the journal and the output of background jobs are kept.
    pub state: PathBuf,
    /// A prefix that every approved command runs behind, such as a container.
    pub runner: Vec<String>,
    /// Commands at a time; more wait their turn.
    pub at_once: usize,
    /// Background jobs at a time; one more is refused, because they do not end by themselves.
    pub jobs: usize,
    /// Between asking a command to end and ending it.
    pub grace: Duration,
    /// What each command may use.
    pub share: Share,
    /// Bytes of memory of each process of a read, because nobody was asked whether it may run.
    pub read_memory: u64,
    /// What becomes of a command that prints more than it may.
    pub on_overflow: Overflow,
    pub git: GitSettings,
}

impl Settings {
    /// The usual ones for a workspace.
    pub fn new(workspace: PathBuf, state: PathBuf) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            workspace,
            state,
            runner: Vec::new(),
            at_once: 8,
            jobs: 16,
            grace: Duration::from_secs(2),
            share: Share::default(),
            read_memory: READ_MEMORY,
            on_overflow: Overflow::Kill,
            git: GitSettings::default(),
        }
    }

    /// What to announce at joining.
    pub fn ability(&self) -> ExecutorInfo {
        ExecutorInfo {
            profiles: confine::enforceable(),
            shell_exec: true,
            working_directory: self.workspace.to_str().map(str::to_owned),
            runner: self.runner.clone(),
            shell: Some(errand::login_shell()),
        }
    }
}

/// What happens to runs, for whoever proposed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    Started {
        proposal: MessageId,
        pid: u32,
        /// Where a background job's output is kept on this machine.
        file: Option<PathBuf>,
    },
    /// Its result is on its way.
    Over { proposal: MessageId },
}

/// What the executor's own tasks tell it.
enum Note {
    Started {
        proposal: MessageId,
        pid: u32,
        file: Option<PathBuf>,
        keyboard: Option<Keyboard>,
    },
    Over {
        proposal: MessageId,
    },
}

/// How things stood when we were welcomed; what is told up to `head` is past.
struct Past {
    head: u64,
    /// What the session thinks we run, and we may still begin.
    running: BTreeSet<MessageId>,
}

/// Runs what is granted to one participant of one session.
pub struct Executor {
    connection: Connection,
    settings: Arc<Settings>,
    reapers: Arc<Reapers>,
    policy: Arc<Policy>,
    orders: Orders,
    journal: Arc<Mutex<Journal>>,
    slots: Arc<Semaphore>,
    active: BTreeMap<MessageId, Active>,
    /// Stopped before their grant was told.
    unwanted: BTreeMap<MessageId, String>,
    past: Option<Past>,
    /// Begun by an earlier life of this executor, which did not live to tell how they ended.
    orphaned: BTreeSet<MessageId>,
    notes: mpsc::UnboundedReceiver<Note>,
    note: mpsc::UnboundedSender<Note>,
}

impl Executor {
    /// Opens the journal. Nothing runs before [`hear`](Self::hear) is told of a grant.
    pub fn new(
        connection: Connection,
        settings: Settings,
        policy: Arc<Policy>,
    ) -> anyhow::Result<Self> {
        let journal =
            Journal::open(&settings.state, now()).context("opening the journal of grants")?;
        let place = Workspace {
            directory: settings.workspace.to_str().map(str::to_owned),
        };
        let orphaned: BTreeSet<_> = journal.unfinished().cloned().collect();
        for proposal in &orphaned {
            job_file::close_orphan(&settings, proposal);
        }
        job_file::remove_oldest(&settings);
        let (note, notes) = mpsc::unbounded_channel();
        Ok(Self {
            orders: Orders::new(connection.participant().clone(), place),
            slots: Arc::new(Semaphore::new(settings.at_once.max(1))),
            reapers: Arc::new(Reapers::one_ahead(&settings.program)),
            settings: Arc::new(settings),
            connection,
            policy,
            orphaned,
            journal: Arc::new(Mutex::new(journal)),
            active: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            past: None,
            notes,
            note,
        })
    }

    /// Notes a proposal of ours before it is sent, so that its grant finds it.
    pub fn orders(&mut self) -> &mut Orders {
        &mut self.orders
    }

    /// How many commands are running or about to.
    pub fn running(&self) -> usize {
        self.active.len()
    }

    /// Waits for the next thing that happens to a run. May be given up without losing anything.
    pub async fn next(&mut self) -> Happening {
        let note = self.notes.recv().await;
        let note = note.expect("the executor itself holds a sender");
        self.take(note)
    }

    fn take(&mut self, note: Note) -> Happening {
        match note {
            Note::Started {
                proposal,
                pid,
                file,
                keyboard,
            } => {
                if let Some(active) = self.active.get_mut(&proposal) {
                    active.begun(keyboard);
                }
                Happening::Started {
                    proposal,
                    pid,
                    file,
                }
            }
            Note::Over { proposal } => {
                self.active.remove(&proposal);
                Happening::Over { proposal }
            }
        }
    }

    /// Takes every message that the server tells; acts on those that concern execution.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else does not concern execution"
    )]
    pub fn hear(&mut self, envelope: &Envelope) {
        let id = &envelope.heading.id;
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => self.welcomed(welcome),
            ServerMessage::ToolPropose(propose) => self.orders.proposed(id, propose),
            ServerMessage::ShellExec(exec) => self.orders.asked(id, exec),
            ServerMessage::GateRequest(request) => self.orders.gated(id, request),
            ServerMessage::GateAmend(amend) => self.orders.amended(amend),
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.closed(&resolve.tool_proposal);
            }
            ServerMessage::ToolExecute(execute) => self.granted(execute, envelope.seq),
            ServerMessage::ToolResult(result) => self.resulted(result),
            ServerMessage::ToolCancel(cancel) => {
                let why = cancel.reason.as_deref().unwrap_or("cancelled");
                self.stop(&cancel.tool_proposal, why);
            }
            ServerMessage::ToolInput(input) => self.typed(&envelope.heading.sender, input),
            ServerMessage::InterruptRaise(raise)
                if raise
                    .target
                    .as_ref()
                    .is_none_or(|target| target == self.connection.participant()) =>
            {
                self.interrupted(raise.urgency, &raise.message);
            }
            ServerMessage::SessionEnd(end) => self.end_all(&end.reason),
            _ => {}
        }
        self.settle_past(envelope.seq);
    }

    fn welcomed(&mut self, welcome: &SessionWelcome) {
        let me = self.connection.participant();
        let mine = welcome.running.iter().filter(|run| run.executor == *me);
        let lost = mine.filter(|run| !self.active.contains_key(&run.tool_proposal));
        let lost = lost.map(|run| run.tool_proposal.clone());
        let (orphaned, running): (BTreeSet<_>, BTreeSet<_>) =
            lost.partition(|proposal| self.orphaned.contains(proposal));
        for proposal in orphaned {
            self.report(unknown(
                proposal,
                "the executor was restarted in the middle; it may or may not have finished",
            ));
        }
        let head = welcome.head;
        self.past = Some(Past { head, running });
    }

    /// Once all of the past was told, what the session thinks we run and we do not is lost: we say
    /// so instead of letting everyone wait.
    fn settle_past(&mut self, told: Option<u64>) {
        let reached = |past: &mut Past| told.is_some_and(|told| told >= past.head);
        let Some(past) = self.past.take_if(reached) else {
            return;
        };
        for proposal in past.running {
            if !self.active.contains_key(&proposal) {
                self.report(failed(
                    proposal,
                    "its grant was lost before the executor acted on it",
                ));
            }
        }
    }

    fn report(&self, result: ToolResult) {
        let connection = self.connection.clone();
        tokio::spawn(async move { telling::send(&connection, result).await });
    }

    fn granted(&mut self, execute: &ToolExecute, told: Option<u64>) {
        let proposal = execute.tool_proposal.clone();
        // Of the past, only what still counts as running may be begun.
        let over = self.past.as_ref().is_some_and(|past| {
            told.is_some_and(|told| told <= past.head) && !past.running.contains(&proposal)
        });
        // A grant told again is not an answer to the run that it began.
        if over || self.active.contains_key(&proposal) {
            return;
        }
        let Some(checked) = self.orders.check(execute, &self.policy, now()) else {
            return;
        };
        let mode = execute.grant.action.mode;
        let refused = match checked {
            Err(refused) => Some(refused.to_string()),
            Ok(()) if mode == RunMode::Background => self.too_many_jobs(),
            Ok(()) => None,
        };
        if let Some(why) = refused {
            if let Some(past) = &mut self.past {
                past.running.remove(&proposal);
            }
            self.refuse(proposal, execute.grant.id.clone(), why);
            return;
        }
        let (mut active, asked) = Active::new(mode, execute.grant.driver.clone());
        if let Some(why) = self.unwanted.remove(&proposal) {
            active.stop(&why);
        }
        self.active.insert(proposal.clone(), active);
        let work = Work {
            connection: self.connection.clone(),
            settings: self.settings.clone(),
            reapers: self.reapers.clone(),
            journal: self.journal.clone(),
            slots: self.slots.clone(),
            note: self.note.clone(),
            proposal,
            grant: execute.grant.clone(),
        };
        work.begin(asked);
    }

    fn too_many_jobs(&self) -> Option<String> {
        let jobs = self.active.values();
        let jobs = jobs
            .filter(|active| active.mode() == RunMode::Background)
            .count();
        let running = match jobs {
            1 => "1 background job is".to_owned(),
            _ => format!("{jobs} background jobs are"),
        };
        let full = jobs >= self.settings.jobs;
        full.then(|| format!("{running} running here, which is the most; stop one first"))
    }

    /// Answers a grant that is not acted on, unless it was acted on before.
    fn refuse(&self, proposal: MessageId, grant: MessageId, why: String) {
        tracing::warn!(%proposal, why, "did not act on a grant");
        let (connection, journal) = (self.connection.clone(), self.journal.clone());
        tokio::spawn(async move {
            if !journal.lock().await.knows(&grant) {
                telling::send(&connection, failed(proposal, &why)).await;
            }
        });
    }

    fn closed(&mut self, proposal: &MessageId) {
        self.orders.closed(proposal);
        self.unwanted.remove(proposal);
    }

    /// A result that is not ours closes a run that the session has given up: nobody would see
    /// what it goes on doing.
    fn resulted(&mut self, result: &ToolResult) {
        self.closed(&result.tool_proposal);
        if let Some(active) = self.active.get_mut(&result.tool_proposal) {
            active.stop("the session has given it up");
        }
    }

    fn typed(&mut self, sender: &Sender, input: &ToolInput) {
        if let Some(active) = self.active.get_mut(&input.tool_proposal)
            && !active.typed(sender, input)
        {
            tracing::warn!(proposal = %input.tool_proposal, "keys of someone who is not at them");
        }
    }

    /// Asks one run to end.
    fn stop(&mut self, proposal: &MessageId, why: &str) {
        if let Some(active) = self.active.get_mut(proposal) {
            active.stop(why);
            return;
        }
        self.unwanted.insert(proposal.clone(), why.to_owned());
        if self.unwanted.len() > MOST_UNWANTED {
            self.unwanted.pop_first();
        }
    }

    fn interrupted(&mut self, urgency: InterruptUrgency, why: &str) {
        for active in self.active.values_mut() {
            match urgency {
                // What runs may finish; the brain begins nothing more.
                InterruptUrgency::Pause => {}
                InterruptUrgency::Stop => active.stop(why),
                InterruptUrgency::Emergency => active.kill(why),
            }
        }
    }

    /// The session is over: nothing of it goes on.
    pub fn end_all(&mut self, why: &str) {
        for active in self.active.values_mut() {
            active.stop(why);
        }
    }
}

/// A result that says why nothing ran.
fn failed(tool_proposal: MessageId, why: &str) -> ToolResult {
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

/// A result that says that nobody knows.
fn unknown(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        outcome: Some(RunOutcome::Unknown),
        ..failed(tool_proposal, why)
    }
}
