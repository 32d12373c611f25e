//! Runs what is granted to this participant, and tells of it.

mod errand;
mod telling;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_client::{Connection, now};
use pvp_policy::{Place, Policy};
use pvp_protocol::payload::{
    ExecutorAbility, GateOutcome, GrantTerms, InterruptUrgency, Outcome, SessionWelcome,
    ToolExecute, ToolResult,
};
use pvp_protocol::{Envelope, Extra, MessageId, Mode, ServerMessage};
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::confine::{self, Share};
use crate::journal::Journal;
use crate::orders::Orders;
use crate::run::{self, Bounds, Overflow, Run, RunError, Stopper};

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
    /// Between asking a command to end and ending it.
    pub grace: Duration,
    /// What each process of a command may use.
    pub share: Share,
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
            grace: Duration::from_secs(2),
            share: Share::default(),
        }
    }

    /// What to announce at joining.
    pub fn ability(&self) -> ExecutorAbility {
        ExecutorAbility {
            profiles: confine::enforceable(),
            shell_exec: true,
            working_directory: self.workspace.to_str().map(str::to_owned),
            runner: self.runner.clone(),
            shell: Some(errand::login_shell()),
        }
    }
}

/// A run under way.
struct Active {
    stopper: Stopper,
    mode: Mode,
}

/// What the executor's own tasks tell it.
enum Note {
    Started { proposal: MessageId, active: Active },
    Over { proposal: MessageId },
}

/// Runs what is granted to one participant of one session.
pub struct Executor {
    connection: Connection,
    settings: Arc<Settings>,
    policy: Arc<Policy>,
    orders: Orders,
    journal: Arc<Mutex<Journal>>,
    slots: Arc<Semaphore>,
    active: BTreeMap<MessageId, Active>,
    /// Stopped before they had begun.
    unwanted: BTreeMap<MessageId, String>,
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
        let place = Place {
            workspace: settings.workspace.to_str().map(str::to_owned),
        };
        let (note, notes) = mpsc::unbounded_channel();
        Ok(Self {
            orders: Orders::new(connection.participant().clone(), place),
            slots: Arc::new(Semaphore::new(settings.at_once.max(1))),
            settings: Arc::new(settings),
            connection,
            policy,
            journal: Arc::new(Mutex::new(journal)),
            active: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            notes,
            note,
        })
    }

    /// Notes a proposal of ours before it is sent, so that its grant finds it.
    pub fn orders(&mut self) -> &mut Orders {
        &mut self.orders
    }

    /// Commands that are running, with the mode they run in.
    pub fn running(&mut self) -> Vec<(MessageId, Mode)> {
        self.settle();
        self.active
            .iter()
            .map(|(id, active)| (id.clone(), active.mode))
            .collect()
    }

    /// Takes what its own runs have reported.
    fn settle(&mut self) {
        while let Ok(note) = self.notes.try_recv() {
            match note {
                Note::Started { proposal, active } => {
                    if let Some(why) = self.unwanted.remove(&proposal) {
                        active.stopper.stop(&why);
                    }
                    self.active.insert(proposal, active);
                }
                Note::Over { proposal } => {
                    self.active.remove(&proposal);
                    self.unwanted.remove(&proposal);
                }
            }
        }
    }

    /// Takes every message that the server tells; acts on those that concern execution.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else does not concern execution"
    )]
    pub fn hear(&mut self, envelope: &Envelope) {
        self.settle();
        let id = &envelope.heading.id;
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => self.welcomed(welcome),
            ServerMessage::ToolPropose(propose) => self.orders.proposed(id, propose),
            ServerMessage::ShellExec(exec) => self.orders.asked(id, exec),
            ServerMessage::GateRequest(request) => self.orders.gated(id, request),
            ServerMessage::GateAmend(amend) => self.orders.amended(amend),
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.orders.closed(&resolve.tool_proposal);
            }
            ServerMessage::ToolExecute(execute) => self.granted(execute),
            ServerMessage::ToolResult(result) => self.orders.closed(&result.tool_proposal),
            ServerMessage::ToolCancel(cancel) => {
                let why = cancel.reason.as_deref().unwrap_or("cancelled");
                self.stop(&cancel.tool_proposal, why);
            }
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
    }

    /// What the session thinks we run and we do not is lost: it says so instead of waiting.
    fn welcomed(&mut self, welcome: &SessionWelcome) {
        let me = self.connection.participant();
        for running in welcome.running.iter().filter(|run| run.executor == *me) {
            let proposal = running.tool_proposal.clone();
            if self.active.contains_key(&proposal) {
                continue;
            }
            let (connection, journal) = (self.connection.clone(), self.journal.clone());
            tokio::spawn(async move {
                // A grant that was never begun may still come; one that was is not run again.
                if journal.lock().await.is_unfinished(&proposal) {
                    let why =
                        "the executor was restarted in the middle; it may or may not have finished";
                    telling::send(&connection, unknown(proposal, why)).await;
                }
            });
        }
    }

    fn granted(&mut self, execute: &ToolExecute) {
        let Some(checked) = self.orders.check(execute, &self.policy, now()) else {
            return;
        };
        let (proposal, connection) = (execute.tool_proposal.clone(), self.connection.clone());
        if let Err(refused) = checked {
            tracing::warn!(%proposal, %refused, "did not act on a grant");
            let known = self.active.contains_key(&proposal);
            let journal = self.journal.clone();
            let grant = execute.grant.id.clone();
            tokio::spawn(async move {
                // A grant told again is not an answer to the run that it began.
                if !known && !journal.lock().await.knows(&grant) {
                    telling::send(&connection, failed(proposal, &refused.to_string())).await;
                }
            });
            return;
        }
        let work = Work {
            connection,
            settings: self.settings.clone(),
            journal: self.journal.clone(),
            slots: self.slots.clone(),
            note: self.note.clone(),
            proposal,
            grant: execute.grant.clone(),
        };
        tokio::spawn(work.run());
    }

    /// Asks one run to end.
    pub fn stop(&mut self, proposal: &MessageId, why: &str) {
        match self.active.get(proposal) {
            Some(active) => active.stopper.stop(why),
            None => {
                self.unwanted.insert(proposal.clone(), why.to_owned());
            }
        }
    }

    fn interrupted(&mut self, urgency: InterruptUrgency, why: &str) {
        for active in self.active.values() {
            match urgency {
                // What runs may finish; the brain begins nothing more.
                InterruptUrgency::Pause => {}
                InterruptUrgency::Stop => active.stopper.stop(why),
                InterruptUrgency::Emergency => active.stopper.kill(why),
            }
        }
    }

    /// The session is over: nothing of it goes on.
    pub fn end_all(&mut self, why: &str) {
        self.settle();
        for active in self.active.values() {
            active.stopper.stop(why);
        }
    }
}

/// One grant on its way to its result.
struct Work {
    connection: Connection,
    settings: Arc<Settings>,
    journal: Arc<Mutex<Journal>>,
    slots: Arc<Semaphore>,
    note: mpsc::UnboundedSender<Note>,
    proposal: MessageId,
    grant: GrantTerms,
}

impl Work {
    async fn run(self) {
        let Ok(_slot) = self.slots.clone().acquire_owned().await else {
            return;
        };
        let (grant, proposal) = (self.grant.id.clone(), self.proposal.clone());
        match self.begin().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                let why = format!("it could not be noted that it runs, so it does not: {error:#}");
                telling::send(&self.connection, failed(proposal, &why)).await;
                return;
            }
        }
        let result = self.execute().await;
        // Nobody waits any more once the executor is gone.
        let _ = self.note.send(Note::Over {
            proposal: proposal.clone(),
        });
        if telling::send(&self.connection, result).await
            && let Err(error) = self.journal.lock().await.done(&grant)
        {
            tracing::warn!(%error, "could not note a result");
        }
    }

    /// Notes the grant on disk; false if it was acted on before.
    async fn begin(&self) -> anyhow::Result<bool> {
        if self.grant.expires_at <= now() {
            anyhow::bail!("the grant expired while other commands ran");
        }
        let journal = self.journal.clone();
        let (grant, proposal) = (self.grant.id.clone(), self.proposal.clone());
        let expires = self.grant.expires_at;
        tokio::task::spawn_blocking(move || {
            journal.blocking_lock().begin(&grant, &proposal, expires)
        })
        .await
        .context("the journal's task ended")?
    }

    async fn execute(&self) -> ToolResult {
        let temporary = match tempfile::Builder::new().prefix("pvp-").tempdir() {
            Ok(temporary) => temporary,
            Err(error) => {
                return failed(
                    self.proposal.clone(),
                    &format!("no temporary directory: {error}"),
                );
            }
        };
        let errand = match errand::of(&self.grant, &self.settings, temporary.path()) {
            Ok(errand) => errand,
            Err(why) => return failed(self.proposal.clone(), &why),
        };
        let (stopper, asked) = run::stopping();
        let started = Run::start(&self.settings.program, &errand, asked).await;
        let run = match started {
            Ok(run) => run,
            Err(error) => return failed(self.proposal.clone(), &error.to_string()),
        };
        let mode = self.grant.action.mode;
        let active = Active { stopper, mode };
        let _ = self.note.send(Note::Started {
            proposal: self.proposal.clone(),
            active,
        });
        let limits = self.grant.limits;
        let bounds = Bounds {
            timeout: (limits.timeout_ms > 0).then(|| Duration::from_millis(limits.timeout_ms)),
            output_bytes: limits.output_bytes,
            on_overflow: Overflow::Kill,
        };
        let secrets = self.grant.secret_env.clone().unwrap_or_default();
        let (pieces, told) = mpsc::channel(4);
        let telling = telling::Telling::new(&self.connection, &self.proposal, &self.settings, mode);
        let (finish, ()) = tokio::join!(run.finish(bounds, &secrets, pieces), telling.tell(told));
        match finish {
            Ok(finish) => telling::result(&self.proposal, &finish, limits),
            Err(error @ (RunError::NotStarted(_) | RunError::Unwanted(_))) => {
                failed(self.proposal.clone(), &error.to_string())
            }
            Err(error @ RunError::Lost(_)) => unknown(self.proposal.clone(), &error.to_string()),
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
        outcome: Some(Outcome::Known),
        extra: Extra::new(),
    }
}

/// A result that says that nobody knows.
fn unknown(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        outcome: Some(Outcome::Unknown),
        ..failed(tool_proposal, why)
    }
}
