//! The part of a hook bridge that stays: it is present in the session for a client whose hooks come
//! and go, renews the leases of the calls that run, and takes what people want of the agent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_agent::proposer::{PersonRequest, PersonRequestKind, ProposeError, Proposer};
use pvp_client::{ConnectError, ConnectOptions, Link, RecordCheck};
use pvp_protocol::MessageId;
use pvp_protocol::payload::{ClientOrigin, Degree, InterruptAction, InterruptRaise};
use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::client_files::{CallStage, ClientFiles, ClientSettings, WaitingPrompt};
use crate::client_processes::ClientProcesses;
use crate::mcp::{McpOptions, RelayListener};
use crate::supervisor::agent_inputs::person_requests;
use crate::supervisor::{CallReport, SupervisedClient, acknowledge, connect_options};

/// How often leases are renewed, and the files looked at.
const INTERVAL: Duration = Duration::from_secs(4);

/// How long what the client runs may take to end after it was asked to.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long the calls of an interrupted agent are waited for before the interrupt is acknowledged.
const STOP_WAIT: Duration = Duration::from_secs(8);

/// The client's process, as far as it is known.
type SharedProcesses = Arc<Mutex<Option<ClientProcesses>>>;

/// The interrupt that is being acted on, until it is acknowledged.
type SharedInterrupt = Arc<Mutex<Option<MessageId>>>;

/// Keeps a client's place in a session, until it is dropped.
pub struct Keeper {
    /// Its connection to the session.
    proposer: Proposer,
    /// What is kept about the client.
    files: ClientFiles,
    /// The client's processes.
    processes: SharedProcesses,
    /// An interrupt that nobody has acknowledged.
    interrupt: SharedInterrupt,
    /// Renews leases and hears people.
    task: tokio::task::JoinHandle<()>,
    /// The tools that the client is offered, if it is.
    tools: Option<OfferedTools>,
}

/// The tools of an agent that a client is offered in place of its own.
struct OfferedTools {
    agent: Arc<Agent>,
    /// Serves them until it is aborted.
    server: tokio::task::JoinHandle<()>,
}

impl Keeper {
    /// Joins the session.
    pub async fn start(
        files: ClientFiles,
        settings: &ClientSettings,
        link: Link,
        record_check: RecordCheck,
    ) -> Result<Self, ConnectError> {
        let client = SupervisedClient {
            name: settings.client.clone(),
            version: settings.version.clone(),
            workspace: settings.workspace.clone(),
            degree: Degree::Hooked,
        };
        let options = ConnectOptions {
            session: Some(settings.session.clone()),
            record_check,
            ..connect_options(&client)
        };
        let (proposer, requests) = Proposer::connect_with_requests(link, options).await?;
        Ok(Self::stay(
            proposer,
            files,
            requests,
            Acknowledging::Here,
            None,
        ))
    }

    /// Keeps the place of an agent that has joined already, and offers the client its tools.
    pub fn offer_tools(
        files: ClientFiles,
        settings: &ClientSettings,
        mut agent: Agent,
        listener: RelayListener,
    ) -> Self {
        let options = McpOptions {
            client: Some(ClientOrigin {
                client: settings.client.clone(),
                version: settings.version.clone(),
                ..ClientOrigin::default()
            }),
            ..McpOptions::default()
        };
        let requests = person_requests(agent.take_inputs());
        let proposer = agent.proposer().clone();
        let agent = Arc::new(agent);
        let server = tokio::spawn(listener.serve(agent.clone(), options));
        let tools = Some(OfferedTools { agent, server });
        Self::stay(proposer, files, requests, Acknowledging::ByTheAgent, tools)
    }

    fn stay(
        proposer: Proposer,
        files: ClientFiles,
        requests: mpsc::Receiver<PersonRequest>,
        acknowledging: Acknowledging,
        tools: Option<OfferedTools>,
    ) -> Self {
        let processes = SharedProcesses::default();
        let interrupt = SharedInterrupt::default();
        let task = KeeperTask {
            proposer: proposer.clone(),
            files: files.clone(),
            processes: processes.clone(),
            interrupt: interrupt.clone(),
            acknowledging,
        };
        Self {
            task: tokio::spawn(task.run(requests)),
            proposer,
            files,
            processes,
            interrupt,
            tools,
        }
    }

    /// Says which process the client is, so that what it runs can be stopped.
    pub fn watch_processes(&self, client: u32) {
        *lock(&self.processes) = Some(ClientProcesses::note(client));
    }

    /// Waits until the session is over for this participant.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        self.proposer.stopped()
    }

    /// Closes what the client left open, and leaves. Calls that wait for its return stay.
    pub async fn leave(self, why: &str) -> Result<(), ProposeError> {
        self.task.abort();
        let mut deferred = false;
        for (id, call) in self.files.open_calls() {
            match call.stage {
                CallStage::Running => {
                    close_as_unknown(&self.proposer, &id).await;
                    self.files.end_call(&id);
                }
                CallStage::Waiting => {
                    if let Err(error) = self.proposer.cancel(&id, "the client is gone").await {
                        tracing::debug!(%error, "a call was not withdrawn");
                    }
                    self.files.end_call(&id);
                }
                CallStage::Background => self.files.end_call(&id),
                CallStage::Deferred => deferred = true,
            }
        }
        let interrupt = lock(&self.interrupt).take();
        if let Some(interrupt) = interrupt {
            // A client that was stopped may end before anybody said that it was.
            acknowledge(&self.proposer, &interrupt, InterruptAction::Stopped).await;
        }
        if let Some(tools) = self.tools {
            tools.server.abort();
            // It holds the agent too, until it has ended.
            let _ = tools.server.await;
            let stopped = tools.agent.stopped();
            drop(tools.agent);
            stopped.await;
            return Ok(());
        }
        match deferred {
            // Leaving would withdraw them.
            true => Ok(()),
            false => self.proposer.leave(why).await,
        }
    }
}

/// Who acknowledges interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledging {
    Here,
    ByTheAgent,
}

async fn close_as_unknown(proposer: &Proposer, id: &MessageId) {
    let report = CallReport::unknown("the client is gone");
    if let Err(error) = proposer.report(id, report.into()).await {
        tracing::debug!(%error, "an unknown outcome was not reported");
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct KeeperTask {
    proposer: Proposer,
    files: ClientFiles,
    processes: SharedProcesses,
    interrupt: SharedInterrupt,
    acknowledging: Acknowledging,
}

impl KeeperTask {
    async fn run(self, mut requests: mpsc::Receiver<PersonRequest>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => self.renew().await,
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request).await,
                    None => return,
                },
            }
        }
    }

    /// Renews the leases of what runs. What waits is renewed by the hook that waits.
    async fn renew(&self) {
        let running = self.files.open_calls().into_iter();
        let running = running.filter(|(_, call)| call.stage == CallStage::Running);
        let ids: Vec<_> = running.map(|(id, _)| id).collect();
        if !ids.is_empty()
            && let Err(error) = self.proposer.renew(ids).await
        {
            tracing::debug!(%error, "leases were not renewed");
        }
    }

    async fn on_request(&self, request: PersonRequest) {
        match request.kind {
            // The client has what was typed into it.
            PersonRequestKind::Prompt(prompt) if prompt.origin.is_some() => {}
            PersonRequestKind::Prompt(prompt) => {
                self.queue(&request.id, &request.name, prompt.content);
            }
            PersonRequestKind::Amend(amend) => {
                self.queue(&request.id, &request.name, amend.amendment);
            }
            PersonRequestKind::Interrupt(interrupt) => {
                self.interrupt(&request.id, &request.name, &interrupt).await;
            }
        }
    }

    fn queue(&self, id: &MessageId, by: &str, text: String) {
        let prompt = WaitingPrompt {
            by: by.to_owned(),
            text,
        };
        match self.files.queue_prompt(id, &prompt) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("a prompt was dropped, because too many wait"),
            Err(error) => tracing::warn!(%error, "a prompt was dropped"),
        }
    }

    /// Lets nothing more run, and stops what runs.
    async fn interrupt(&self, id: &MessageId, by: &str, interrupt: &InterruptRaise) {
        if self.acknowledging != Acknowledging::ByTheAgent {
            *lock(&self.interrupt) = Some(id.clone());
        }
        let busy = self.files.is_in_turn() || !self.files.open_calls().is_empty();
        if busy {
            let message = &interrupt.message;
            let reason = format!("{by} interrupted: {message} Nothing more runs; stop here.");
            if let Err(error) = self.files.request_stop(&reason) {
                tracing::error!(%error, "an interrupt could not be noted for the next call");
            }
            self.stop_processes().await;
        }
        if self.acknowledging == Acknowledging::ByTheAgent {
            return;
        }
        let still_runs = !self.wait_until_nothing_runs().await;
        let action_taken = match still_runs {
            true => InterruptAction::Acknowledged,
            false => InterruptAction::Stopped,
        };
        acknowledge(&self.proposer, id, action_taken).await;
        *lock(&self.interrupt) = None;
    }

    async fn stop_processes(&self) {
        let signal = |signal: Signal| {
            let processes = lock(&self.processes);
            processes.as_ref().map_or(0, |it| it.signal_later(signal))
        };
        let is_running = || self.something_runs();
        if is_running() && signal(Signal::TERM) > 0 {
            tokio::time::sleep(STOP_GRACE).await;
            if is_running() {
                signal(Signal::KILL);
            }
        }
        for (id, call) in self.files.open_calls() {
            if call.stage == CallStage::Background {
                self.files.end_call(&id);
            }
        }
    }

    /// Whether the client runs something, as far as it has said.
    fn something_runs(&self) -> bool {
        let calls = self.files.open_calls();
        let runs = |stage| matches!(stage, CallStage::Running | CallStage::Background);
        calls.iter().any(|(_, call)| runs(call.stage))
    }

    /// Whether nothing runs any more, after a while.
    async fn wait_until_nothing_runs(&self) -> bool {
        let deadline = tokio::time::Instant::now() + STOP_WAIT;
        loop {
            if !self.something_runs() {
                return true;
            }
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
