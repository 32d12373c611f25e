//! The task behind an agent: passes every message to the executor, and events to whoever proposed
//! a command or reads the inputs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pvp_client::{Connection, ConnectionEvent, ConnectionEvents, EndReason};
use pvp_protocol::payload::{
    GateAmend, GateOutcome, InterruptAcknowledge, InterruptAction, InterruptRaise,
    InterruptUrgency, OutputPage, SessionWelcome, ToolPropose, ToolResult,
};
use pvp_protocol::{Action, Envelope, ExtraFields, MessageId, RunMode, Sender, ServerMessage};
use tokio::sync::{mpsc, oneshot};

use super::recap::SessionRecap;
use super::session_context::SessionContext;
use super::{AgentInput, ProposalEvent};
use crate::brain::tools::BackgroundJob;
use crate::executor::{Executor, RunEvent};

/// Background jobs that are remembered; those that have ended are dropped first, oldest first.
const MAX_JOBS: usize = 64;

/// Recent prompts to this agent; an amendment of an older one is ignored.
const MAX_PROMPTS: usize = 64;

/// How long the server may take to accept the last results and the leave message.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A command from the [`Agent`](super::Agent) handle to its task.
pub(super) enum AgentCommand {
    /// Registers a proposal that is about to be sent, so that its grant and its events are
    /// expected.
    TrackProposal {
        /// The proposal's id.
        id: MessageId,
        /// The message that is about to be sent.
        propose: Box<ToolPropose>,
        /// The command as people read it, for the list of jobs.
        command: String,
        /// How the command runs; a background command is added to the list of jobs.
        mode: RunMode,
        /// Where the proposal's events go.
        events: mpsc::UnboundedSender<ProposalEvent>,
        /// Notified once the proposal is registered; only then it is sent.
        registered: oneshot::Sender<()>,
    },
    /// Registers a read of output that is about to be sent.
    TrackOutputRead {
        id: MessageId,
        page: oneshot::Sender<OutputPage>,
    },
    ListJobs {
        jobs: oneshot::Sender<Vec<BackgroundJob>>,
    },
    /// Waits until a job ends; answers at once if it has ended or is not known.
    AwaitJobEnd {
        id: MessageId,
        ended: oneshot::Sender<Option<String>>,
    },
}

pub(super) struct AgentTask {
    /// The connection to the session.
    connection: Connection,
    /// Runs the granted commands.
    executor: Executor,
    /// Where the events of each unfinished proposal go.
    open_proposals: BTreeMap<MessageId, mpsc::UnboundedSender<ProposalEvent>>,
    /// The proposal behind each open gate.
    gate_proposals: BTreeMap<MessageId, MessageId>,
    /// Who waits for the page of each output read, by the id of the request.
    pending_reads: BTreeMap<MessageId, oneshot::Sender<OutputPage>>,
    /// The background jobs, oldest first, at most [`MAX_JOBS`].
    jobs: VecDeque<BackgroundJob>,
    /// Who waits for the end of which job.
    job_waiters: Vec<(MessageId, oneshot::Sender<Option<String>>)>,
    /// The latest prompts to this agent, oldest first, at most [`MAX_PROMPTS`].
    recent_prompts: VecDeque<MessageId>,
    /// The names of participants and the shared context.
    session_context: SessionContext,
    /// The head of the log at the time of joining, and the recap of the entries up to it; `None`
    /// before the welcome and once the replay has passed the head.
    replay: Option<(u64, SessionRecap)>,
    /// Whether the welcome of this connection was handled; reset when a reconnect does not resume.
    welcomed: bool,
    /// Where the inputs go.
    inputs: mpsc::Sender<AgentInput>,
}

impl AgentTask {
    pub(super) fn new(
        connection: Connection,
        executor: Executor,
        inputs: mpsc::Sender<AgentInput>,
    ) -> Self {
        Self {
            connection,
            executor,
            open_proposals: BTreeMap::new(),
            gate_proposals: BTreeMap::new(),
            pending_reads: BTreeMap::new(),
            jobs: VecDeque::new(),
            job_waiters: Vec::new(),
            recent_prompts: VecDeque::new(),
            session_context: SessionContext::default(),
            replay: None,
            welcomed: false,
            inputs,
        }
    }

    /// Runs until the agent is dropped or the session is over for it. Returns why the server no
    /// longer lets it in, if that is the reason.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<AgentCommand>,
        mut events: ConnectionEvents,
    ) -> Option<String> {
        let refusal = loop {
            tokio::select! {
                agent_command = commands.recv() => match agent_command {
                    Some(agent_command) => self.handle_command(agent_command),
                    None => break None,
                },
                run_event = self.executor.next_event() => self.on_run_event(run_event),
                event = events.next() => match event {
                    Some(ConnectionEvent::Message { envelope: Some(envelope), .. }) => {
                        self.on_message(&envelope);
                        if let ServerMessage::SessionEnd(_) = envelope.message {
                            break None;
                        }
                    }
                    Some(ConnectionEvent::Connected { resumed }) => self.welcomed &= resumed,
                    Some(ConnectionEvent::Disconnected { .. } | ConnectionEvent::Message { envelope: None, .. }) => {}
                    Some(ConnectionEvent::Ended(EndReason::Refused(report))) => break Some(report.message),
                    Some(ConnectionEvent::Ended(EndReason::Closed | EndReason::Left)) | None => break None,
                },
            }
        };
        self.leave(events).await;
        refusal
    }

    /// Stops everything that runs, reports how it ended, and leaves the session. Does not wait long
    /// for a server that cannot be reached.
    async fn leave(mut self, mut events: ConnectionEvents) {
        // Acknowledgements arrive only while events are read.
        let drain = tokio::spawn(async move { while events.next().await.is_some() {} });
        let shutdown = async {
            self.executor.stop_all("the agent has stopped");
            while self.executor.running_count() > 0 {
                self.executor.next_event().await;
            }
            let why = Some("the agent has stopped".to_owned());
            self.connection.clone().leave(why).await
        };
        match tokio::time::timeout(LEAVE_TIMEOUT, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "left without a word"),
            Err(_) => tracing::warn!("the server did not hear that the agent has stopped"),
        }
        drain.abort();
    }

    fn handle_command(&mut self, agent_command: AgentCommand) {
        match agent_command {
            AgentCommand::TrackProposal {
                id,
                propose,
                command,
                mode,
                events,
                registered,
            } => {
                self.executor.grant_check().on_propose(&id, &propose);
                if mode == RunMode::Background {
                    self.add_job(id.clone(), command);
                }
                self.open_proposals.retain(|_, events| !events.is_closed());
                self.open_proposals.insert(id, events);
                // The caller may have gone; then nothing is sent.
                let _ = registered.send(());
            }
            AgentCommand::TrackOutputRead { id, page } => {
                self.pending_reads.retain(|_, page| !page.is_closed());
                self.pending_reads.insert(id, page);
            }
            AgentCommand::ListJobs { jobs } => {
                let has_started = |job: &&BackgroundJob| job.pid.is_some();
                let _ = jobs.send(self.jobs.iter().filter(has_started).cloned().collect());
            }
            AgentCommand::AwaitJobEnd { id, ended } => self.await_job_end(id, ended),
        }
    }

    /// Answers at once if the job has ended or is not known, otherwise when it ends.
    fn await_job_end(&mut self, id: MessageId, ended: oneshot::Sender<Option<String>>) {
        let known = self.job(&id).map(|job| job.ended.clone());
        match known {
            Some(None) => {
                self.job_waiters.retain(|(_, ended)| !ended.is_closed());
                self.job_waiters.push((id, ended));
            }
            // The caller may have gone.
            Some(how) => drop(ended.send(how)),
            None => drop(ended.send(None)),
        }
    }

    fn add_job(&mut self, reference: MessageId, command: String) {
        self.jobs.push_back(BackgroundJob {
            reference,
            command,
            pid: None,
            ended: None,
        });
        if self.jobs.len() > MAX_JOBS {
            let over = self.jobs.iter().position(|job| job.ended.is_some());
            self.jobs.remove(over.unwrap_or(0));
        }
    }

    fn on_run_event(&mut self, run_event: RunEvent) {
        match run_event {
            RunEvent::Started {
                proposal,
                pid,
                file,
            } => {
                if let Some(job) = self.job(&proposal) {
                    job.pid = Some(pid);
                }
                self.send_event(&proposal, ProposalEvent::Started { pid, file });
            }
            RunEvent::Finished { .. } => {}
        }
    }

    fn job(&mut self, proposal: &MessageId) -> Option<&mut BackgroundJob> {
        self.jobs.iter_mut().find(|job| job.reference == *proposal)
    }

    fn on_message(&mut self, envelope: &Envelope) {
        self.executor.on_message(envelope);
        self.session_context.on_message(envelope);
        if let ServerMessage::SessionWelcome(welcome) = &envelope.message {
            self.on_welcome(welcome);
        }
        // The entry at the head may not be visible to this agent.
        self.finish_replay(|head| envelope.seq.is_some_and(|seq| seq > head));
        match &mut self.replay {
            Some((_, recap)) if envelope.seq.is_some() => {
                recap.on_message(
                    envelope,
                    self.connection.participant(),
                    &self.session_context,
                );
            }
            Some(_) | None => self.on_live_message(envelope),
        }
        self.finish_replay(|head| envelope.seq == Some(head));
    }

    /// Sends the recap once the replay is complete.
    fn finish_replay(&mut self, is_over: impl Fn(u64) -> bool) {
        if let Some((_, recap)) = self.replay.take_if(|(head, _)| is_over(*head))
            && !recap.is_empty()
        {
            self.send_input(AgentInput::Recap(Box::new(recap)));
        }
    }

    fn on_welcome(&mut self, welcome: &SessionWelcome) {
        if std::mem::replace(&mut self.welcomed, true) {
            return;
        }
        self.replay = Some((welcome.head, SessionRecap::default()));
        let me = self.connection.participant();
        let open: BTreeSet<_> = self.open_proposals.keys().cloned().collect();
        for gate in &welcome.gates {
            let proposal = gate.request.action_ref.clone();
            // The process that made this proposal is gone, so nobody would act on its result.
            if gate.proposer == *me && !open.contains(&proposal) {
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

    /// Handles what happens to proposals, and people's requests.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is for screens"
    )]
    fn on_live_message(&mut self, envelope: &Envelope) {
        let id = &envelope.header.id;
        match &envelope.message {
            ServerMessage::ToolPropose(propose) => {
                if let Some(assessment) = &propose.assessment {
                    self.send_event(id, ProposalEvent::Assessed(Box::new(assessment.clone())));
                }
            }
            ServerMessage::GateRequest(request) => {
                if self.open_proposals.contains_key(&request.action_ref) {
                    self.gate_proposals
                        .insert(id.clone(), request.action_ref.clone());
                }
                let quorum = request.quorum.to_string();
                self.send_event(&request.action_ref, ProposalEvent::GateOpened { quorum });
            }
            ServerMessage::GateAmend(amend) => self.on_gate_amend(envelope, amend),
            ServerMessage::GateResolve(resolve) => {
                self.gate_proposals.remove(&resolve.gate);
                if resolve.outcome != GateOutcome::Approved {
                    let event = ProposalEvent::NotRun(Box::new(resolve.clone()));
                    self.send_last_event(&resolve.tool_proposal, event);
                }
            }
            ServerMessage::ToolExecute(execute) => {
                let approved_by = execute.approved_by.clone();
                self.send_event(
                    &execute.tool_proposal,
                    ProposalEvent::Granted { approved_by },
                );
            }
            ServerMessage::ToolOutput(output) if !output.text.is_empty() => {
                let (stream, text) = (output.stream, output.text.clone());
                self.send_event(
                    &output.tool_proposal,
                    ProposalEvent::Output { stream, text },
                );
            }
            ServerMessage::ToolResult(result) => self.on_tool_result(result),
            ServerMessage::OutputPage(page) => {
                let request = envelope.header.reference.as_ref();
                if let Some(waiting) = request.and_then(|id| self.pending_reads.remove(id)) {
                    // The caller may have gone.
                    let _ = waiting.send(page.clone());
                }
            }
            ServerMessage::Error(report) => {
                // A refused proposal has no further events.
                if let Some(id) = &report.related_to {
                    self.open_proposals.remove(id);
                }
            }
            _ => self.on_participant_message(envelope),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not for this agent"
    )]
    fn on_participant_message(&mut self, envelope: &Envelope) {
        let id = envelope.header.id.clone();
        let Some(by) = self.session_context.requester(&envelope.header.sender) else {
            return;
        };
        let me = self.connection.participant();
        match &envelope.message {
            ServerMessage::PromptSubmit(prompt) if prompt.target_agent == *me => {
                self.recent_prompts.push_back(id.clone());
                if self.recent_prompts.len() > MAX_PROMPTS {
                    self.recent_prompts.pop_front();
                }
                let context = self.session_context.lookup_context(&prompt.context_keys);
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
                self.acknowledge_interrupt(&id, interrupt);
                let interrupt = Box::new(interrupt.clone());
                self.send_input(AgentInput::Interrupt { id, by, interrupt });
            }
            _ => {}
        }
    }

    fn send_input(&self, input: AgentInput) {
        // An agent whose inputs nobody reads still runs granted commands.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.inputs.try_send(input) {
            tracing::warn!("people want more than this agent takes; a wish was not heard");
        }
    }

    fn on_gate_amend(&mut self, envelope: &Envelope, amend: &GateAmend) {
        let proposal = self
            .gate_proposals
            .get(&amend.gate)
            .unwrap_or(&amend.gate)
            .clone();
        if let Ok(action) = Action::from_arguments("shell", &amend.arguments) {
            let by = match &envelope.header.sender {
                Sender::System => None,
                Sender::Participant(by) => Some(by.clone()),
            };
            let command = action.command.summary();
            if let Some(job) = self.job(&proposal) {
                job.command.clone_from(&command);
            }
            let reason = amend.reason.clone();
            self.send_event(
                &proposal,
                ProposalEvent::Edited {
                    by,
                    command,
                    reason,
                },
            );
        }
    }

    fn on_tool_result(&mut self, result: &ToolResult) {
        let id = &result.tool_proposal;
        if let Some(job) = self.job(id) {
            let code = result.result.as_ref().and_then(|body| body.exit_code);
            let how = match (&result.error, code) {
                (Some(why), _) => why.clone(),
                (None, Some(code)) => format!("exit code {code}"),
                (None, None) => "by a signal".to_owned(),
            };
            job.ended = Some(how.clone());
            for (_, ended) in self
                .job_waiters
                .extract_if(.., |(awaited, _)| awaited == id)
            {
                // The caller may have gone.
                let _ = ended.send(Some(how.clone()));
            }
        }
        let event = ProposalEvent::Finished(Box::new(result.clone()));
        self.send_last_event(&result.tool_proposal, event);
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

    fn send_event(&self, proposal: &MessageId, event: ProposalEvent) {
        if let Some(events) = self.open_proposals.get(proposal) {
            // The caller may have dropped its handle.
            let _ = events.send(event);
        }
    }

    fn send_last_event(&mut self, proposal: &MessageId, event: ProposalEvent) {
        self.send_event(proposal, event);
        self.open_proposals.remove(proposal);
    }
}
