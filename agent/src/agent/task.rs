//! The task behind an agent: folds the view, hands every message to the executor and the proposals,
//! and passes on what people ask.

use std::collections::{BTreeMap, VecDeque};

use pvp_client::view::ProposalView;
use pvp_client::{Connection, ConnectionEvents, View, now};
use pvp_protocol::payload::{
    InterruptAcknowledge, InterruptAction, InterruptRaise, InterruptUrgency, RunBy, SessionWelcome,
};
use pvp_protocol::{Envelope, ExtraFields, MessageId, Sender, ServerMessage};
use tokio::sync::{mpsc, oneshot};

use super::recap::SessionRecap;
use super::shared_context::SharedContext;
use super::{AgentInput, InterruptAnswers, MAX_NAME_BYTES, Requester};
use crate::brain::result_text::truncate_middle;
use crate::brain::tools::BackgroundJob;
use crate::client_calls::ClientCalls;
use crate::executor::{Executor, RunEvent};
use crate::proposer::{ProposalEvent, ProposalTracker, ProposerRequest};
use crate::received::{Received, next_received};

/// Recent prompts to this agent; an amendment of an older one is ignored.
const MAX_PROMPTS: usize = 64;

/// Secrets that one command receives; the server takes no more.
const MAX_SECRETS: usize = 100;

/// A command from the [`Agent`](super::Agent) handle to its task.
pub(super) enum AgentCommand {
    ListJobs {
        jobs: oneshot::Sender<Vec<BackgroundJob>>,
    },
    /// Asks for the names of the secrets that are shared with this agent.
    ListSecrets { names: oneshot::Sender<Vec<String>> },
    /// Waits until a job ends; answers at once if it has ended or is not known.
    AwaitJobEnd {
        id: MessageId,
        ended: oneshot::Sender<Option<String>>,
    },
}

pub(super) struct AgentTask {
    /// The connection to the session.
    connection: Connection,
    /// The session as the server describes it: the one fold that everything here reads.
    view: View,
    /// Runs the granted commands.
    executor: Executor,
    /// What a client of this agent runs by itself; the executor has no part in it.
    client_calls: ClientCalls,
    /// Who waits for what becomes of which proposal.
    proposals: ProposalTracker,
    /// The process ids of background jobs, which only this machine knows; those that the view has
    /// forgotten are dropped.
    job_pids: BTreeMap<MessageId, u32>,
    /// Who waits for the end of which job.
    job_waiters: Vec<(MessageId, oneshot::Sender<Option<String>>)>,
    /// The latest prompts to this agent, oldest first, at most [`MAX_PROMPTS`].
    recent_prompts: VecDeque<MessageId>,
    /// The contents of the shared context.
    shared_context: SharedContext,
    /// The recap of the past that is being replayed; `None` before the welcome and afterwards.
    recap: Option<SessionRecap>,
    /// Whether the welcome of this connection was handled; reset when a reconnect does not resume.
    welcomed: bool,
    /// Where the inputs go.
    inputs: mpsc::Sender<AgentInput>,
    /// Who acknowledges interrupts.
    interrupt_answers: InterruptAnswers,
}

impl AgentTask {
    pub(super) fn new(
        connection: Connection,
        executor: Executor,
        inputs: mpsc::Sender<AgentInput>,
        interrupt_answers: InterruptAnswers,
    ) -> Self {
        Self {
            client_calls: ClientCalls::new(connection.clone()),
            connection,
            view: View::default(),
            executor,
            proposals: ProposalTracker::default(),
            job_pids: BTreeMap::new(),
            job_waiters: Vec::new(),
            recent_prompts: VecDeque::new(),
            shared_context: SharedContext::default(),
            recap: None,
            welcomed: false,
            inputs,
            interrupt_answers,
        }
    }

    /// Runs until the agent is dropped or the session is over for it. Returns why the server no
    /// longer lets it in, if that is the reason.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<AgentCommand>,
        mut requests: mpsc::Receiver<ProposerRequest>,
        mut events: ConnectionEvents,
    ) -> Option<String> {
        let refusal = loop {
            tokio::select! {
                agent_command = commands.recv() => match agent_command {
                    Some(agent_command) => self.handle_command(agent_command),
                    None => break None,
                },
                Some(request) = requests.recv() => self.on_request(request).await,
                run_event = self.executor.next_event() => self.on_run_event(run_event),
                received = next_received(&mut events) => match received {
                    Received::Message(envelope) => {
                        self.on_message(&envelope);
                        if let ServerMessage::SessionEnd(_) = envelope.message {
                            break None;
                        }
                    }
                    Received::NotResumed => {
                        self.view = View::default();
                        self.welcomed = false;
                    },
                    Received::Over(refusal) => break refusal,
                },
            }
        };
        self.executor.leave(events).await;
        refusal
    }

    /// The executor writes a proposal down before it is sent; one that it cannot write down is not.
    async fn on_request(&mut self, request: ProposerRequest) {
        if let ProposerRequest::Track {
            id,
            action,
            runs: RunBy::Client,
            ..
        } = &request
        {
            self.client_calls.record(id, action);
        } else if let ProposerRequest::Track { id, action, .. } = &request
            && let Err(error) = self.executor.record_proposal(id, action).await
        {
            if let ProposerRequest::Track { registered, .. } = request {
                // The caller may have gone.
                let _ = registered.send(Err(format!("{error:#}")));
            }
            return;
        }
        self.proposals.on_request(request, &self.view);
    }

    fn handle_command(&mut self, agent_command: AgentCommand) {
        // In each case the caller may have gone; then nobody waits for the answer.
        match agent_command {
            AgentCommand::ListJobs { jobs } => drop(jobs.send(self.jobs())),
            AgentCommand::ListSecrets { names } => drop(names.send(self.secret_names())),
            AgentCommand::AwaitJobEnd { id, ended } => {
                self.job_waiters.retain(|(_, ended)| !ended.is_closed());
                self.job_waiters.push((id, ended));
                self.answer_job_waiters();
            }
        }
    }

    /// The secrets that are shared with this agent and that a command may receive.
    fn secret_names(&self) -> Vec<String> {
        let (me, now) = (self.connection.participant(), now());
        let usable = self.view.secrets.iter().filter(|(name, secret)| {
            secret.scope.contains(me)
                && secret.expires_at.is_none_or(|expires| expires > now)
                && !pvp_policy::changes_meaning(name)
        });
        let names = usable.map(|(name, _)| name.clone());
        names.take(MAX_SECRETS).collect()
    }

    /// The background jobs that this process started, oldest first, as far as the view has them.
    fn jobs(&self) -> Vec<BackgroundJob> {
        let started = |proposal: &ProposalView| {
            Some(BackgroundJob {
                reference: proposal.id.clone(),
                command: proposal.requested.command.clone(),
                pid: Some(*self.job_pids.get(&proposal.id)?),
                ended: end_of(proposal),
            })
        };
        let mine = self.view.proposals_of(self.connection.participant());
        mine.filter_map(started).collect()
    }

    /// Answers whoever waits for a job that has ended, or that is not a job of this agent.
    fn answer_job_waiters(&mut self) {
        let (view, me) = (&self.view, self.connection.participant());
        let is_job = |proposal: &&ProposalView| {
            proposal.is_background() && proposal.requested.proposer.as_ref() == Some(me)
        };
        let mut waiting = Vec::new();
        for (id, ended) in self.job_waiters.drain(..) {
            let job = view.proposal(&id).filter(is_job);
            match job {
                Some(job) if !job.state.is_over() => waiting.push((id, ended)),
                // The caller may have gone.
                Some(_) | None => drop(ended.send(job.and_then(end_of))),
            }
        }
        self.job_waiters = waiting;
    }

    fn on_run_event(&mut self, run_event: RunEvent) {
        match run_event {
            RunEvent::Started {
                proposal,
                pid,
                file,
            } => {
                let view = &self.view;
                if view
                    .proposal(&proposal)
                    .is_some_and(ProposalView::is_background)
                {
                    self.job_pids.retain(|id, _| view.proposal(id).is_some());
                    self.job_pids.insert(proposal.clone(), pid);
                }
                let started = ProposalEvent::Started { pid, file };
                self.proposals.send(&proposal, started);
            }
            RunEvent::Finished { .. } => {}
        }
    }

    fn on_message(&mut self, envelope: &Envelope) {
        self.view.fold(envelope);
        self.client_calls.on_message(&self.view, envelope);
        if self.is_of_client(envelope) {
            if self.refuses(envelope) {
                return;
            }
        } else {
            self.executor.on_message(&self.view, envelope);
        }
        self.proposals.on_message(&self.view, envelope);
        self.shared_context.on_message(envelope);
        if !self.job_waiters.is_empty() {
            self.answer_job_waiters();
        }
        if let ServerMessage::SessionWelcome(welcome) = &envelope.message {
            self.on_welcome(welcome);
        }
        let is_history = self.view.is_history(envelope.seq);
        let recapped = self.recap.as_mut().filter(|_| is_history).map(|recap| {
            recap.on_message(envelope, self.connection.participant(), &self.view);
        });
        if envelope.seq.is_some() && !self.view.is_replaying() {
            self.send_recap();
        }
        if recapped.is_none() {
            self.on_live_message(envelope);
        }
    }

    /// Whether it is about the run of a call that a client runs, of which the executor must not know.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else may be for the executor too"
    )]
    fn is_of_client(&self, envelope: &Envelope) -> bool {
        match &envelope.message {
            ServerMessage::ToolExecute(it) => self.client_calls.knows(&it.tool_proposal),
            ServerMessage::ToolResult(it) => self.client_calls.knows(&it.tool_proposal),
            ServerMessage::ToolCancel(it) => self.client_calls.knows(&it.tool_proposal),
            _ => false,
        }
    }

    fn refuses(&self, envelope: &Envelope) -> bool {
        let ServerMessage::ToolExecute(execute) = &envelope.message else {
            return false;
        };
        self.client_calls.refuses(execute)
    }

    /// Sends the recap of the replay that is complete.
    fn send_recap(&mut self) {
        if let Some(recap) = self.recap.take().filter(|recap| !recap.is_empty()) {
            self.send_input(AgentInput::Recap(Box::new(recap)));
        }
    }

    fn on_welcome(&mut self, welcome: &SessionWelcome) {
        if std::mem::replace(&mut self.welcomed, true) {
            return;
        }
        self.recap = Some(SessionRecap::default());
        let me = self.connection.participant();
        for gate in &welcome.gates {
            let proposal = gate.request.action_ref.clone();
            // The process that made this proposal is gone, so nobody would act on its result.
            if gate.proposer == *me && !self.proposals.is_open(&proposal) {
                let connection = self.connection.clone();
                tokio::spawn(async move {
                    let why = Some("the agent that proposed it was restarted".to_owned());
                    if let Err(error) = connection.cancel(&proposal, why).await {
                        tracing::warn!(%error, "could not withdraw an old proposal");
                    }
                });
            }
        }
    }

    /// The participant who sent a message; `None` if it was the server.
    fn requester(&self, sender: &Sender) -> Option<Requester> {
        match sender {
            Sender::System => None,
            Sender::Participant(id) => Some(Requester {
                id: id.clone(),
                name: truncate_middle(self.view.display_name(id), MAX_NAME_BYTES),
            }),
        }
    }

    /// Handles people's requests.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not for this agent"
    )]
    fn on_live_message(&mut self, envelope: &Envelope) {
        let id = envelope.header.id.clone();
        let Some(by) = self.requester(&envelope.header.sender) else {
            return;
        };
        let me = self.connection.participant();
        match &envelope.message {
            ServerMessage::PromptSubmit(prompt) if prompt.target_agent == *me => {
                self.recent_prompts.push_back(id.clone());
                if self.recent_prompts.len() > MAX_PROMPTS {
                    self.recent_prompts.pop_front();
                }
                let context = self.shared_context.lookup(&prompt.context_keys);
                let prompt = Box::new(prompt.clone());
                self.send_input(AgentInput::Prompt {
                    id,
                    by,
                    prompt,
                    context,
                });
            }
            ServerMessage::PromptAmend(amend)
                if self.recent_prompts.contains(&amend.original_prompt) =>
            {
                let amend = Box::new(amend.clone());
                self.send_input(AgentInput::Amend { id, by, amend });
            }
            ServerMessage::InterruptRaise(interrupt)
                if interrupt.target.as_ref().is_none_or(|target| target == me) =>
            {
                match self.interrupt_answers {
                    InterruptAnswers::AtOnce => self.acknowledge_interrupt(&id, interrupt),
                    InterruptAnswers::ByReader => {}
                }
                let interrupt = Box::new(interrupt.clone());
                self.send_input(AgentInput::Interrupt { id, by, interrupt });
            }
            _ => {}
        }
    }

    fn send_input(&self, input: AgentInput) {
        // An agent whose inputs nobody reads still runs granted commands.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.inputs.try_send(input) {
            tracing::warn!("the queue of inputs is full; a message was dropped");
        }
    }

    fn acknowledge_interrupt(&self, id: &MessageId, interrupt: &InterruptRaise) {
        let action_taken = match interrupt.urgency {
            InterruptUrgency::Pause => InterruptAction::Paused,
            InterruptUrgency::Stop | InterruptUrgency::Emergency => InterruptAction::Stopped,
        };
        let acknowledge = InterruptAcknowledge {
            interrupt: id.clone(),
            by: self.connection.participant().clone(),
            action_taken,
            ignore_reason: None,
            extra: ExtraFields::new(),
        };
        let connection = self.connection.clone();
        // Sending may wait for room in the queue, and this task must go on reading messages.
        tokio::spawn(async move {
            // If this fails, the session shows the interrupt as not acknowledged.
            let _ = connection.send(acknowledge).await;
        });
    }
}

/// How a command ended; `None` if it has not.
fn end_of(proposal: &ProposalView) -> Option<String> {
    if !proposal.state.is_over() {
        return None;
    }
    let Some(finish) = &proposal.finish else {
        return Some(format!("it did not run: {}", proposal.state.as_str()));
    };
    Some(match (&finish.error, finish.exit_code) {
        (Some(why), _) => why.clone(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "by a signal".to_owned(),
    })
}
