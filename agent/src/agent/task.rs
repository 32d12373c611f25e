//! The task behind an agent: hears everything, runs what is granted, and passes on what concerns
//! whoever proposed or listens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pvp_client::{Connection, ConnectionEvent, ConnectionEvents, EndReason};
use pvp_protocol::payload::{
    GateAmend, GateOutcome, InterruptAcknowledge, InterruptAction, InterruptRaise,
    InterruptUrgency, OutputPage, SessionWelcome, ToolPropose, ToolResult,
};
use pvp_protocol::{Action, Envelope, ExtraFields, MessageId, RunMode, Sender, ServerMessage};
use tokio::sync::{mpsc, oneshot};

use super::lore::Lore;
use super::memory::Memory;
use super::{Step, Wish};
use crate::brain::tools::Job;
use crate::executor::{Executor, Happening};

/// Jobs that are remembered; the oldest that have ended are forgotten first.
const JOBS: usize = 64;

/// Prompts whose amendments are for us.
const PROMPTS: usize = 64;

/// How long a server may take to hear how everything ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// What the agent's task is asked to do.
pub(super) enum Ask {
    /// A proposal is about to be sent: its grant and its steps are awaited.
    Expect {
        id: MessageId,
        propose: Box<ToolPropose>,
        command: String,
        mode: RunMode,
        steps: mpsc::UnboundedSender<Step>,
        noted: oneshot::Sender<()>,
    },
    /// A page of output is about to be asked for.
    Read {
        id: MessageId,
        page: oneshot::Sender<OutputPage>,
    },
    Jobs {
        jobs: oneshot::Sender<Vec<Job>>,
    },
    /// How a job ends; at once if it has, or is not known.
    End {
        id: MessageId,
        ended: oneshot::Sender<Option<String>>,
    },
}

pub(super) struct Task {
    connection: Connection,
    executor: Executor,
    open: BTreeMap<MessageId, mpsc::UnboundedSender<Step>>,
    gates: BTreeMap<MessageId, MessageId>,
    reads: BTreeMap<MessageId, oneshot::Sender<OutputPage>>,
    jobs: VecDeque<Job>,
    ends: Vec<(MessageId, oneshot::Sender<Option<String>>)>,
    prompts: VecDeque<MessageId>,
    lore: Lore,
    /// What is told up to here happened before we came.
    past: Option<(u64, Memory)>,
    met: bool,
    wish: mpsc::Sender<Wish>,
}

impl Task {
    pub(super) fn new(
        connection: Connection,
        executor: Executor,
        wish: mpsc::Sender<Wish>,
    ) -> Self {
        Self {
            connection,
            executor,
            open: BTreeMap::new(),
            gates: BTreeMap::new(),
            reads: BTreeMap::new(),
            jobs: VecDeque::new(),
            ends: Vec::new(),
            prompts: VecDeque::new(),
            lore: Lore::default(),
            past: None,
            met: false,
            wish,
        }
    }

    /// Lives until nobody asks any more, or the session is over for us; gives why the server does
    /// not let us in any more, if that is so.
    pub(super) async fn live(
        mut self,
        mut inbox: mpsc::Receiver<Ask>,
        mut events: ConnectionEvents,
    ) -> Option<String> {
        let turned_away = loop {
            tokio::select! {
                ask = inbox.recv() => match ask {
                    Some(ask) => self.asked(ask),
                    None => break None,
                },
                happening = self.executor.next() => self.happened(happening),
                event = events.next() => match event {
                    Some(ConnectionEvent::Message { envelope: Some(envelope), .. }) => {
                        self.hear(&envelope);
                        if let ServerMessage::SessionEnd(_) = envelope.message {
                            break None;
                        }
                    }
                    Some(ConnectionEvent::Connected { resumed }) => self.met &= resumed,
                    Some(ConnectionEvent::Disconnected { .. } | ConnectionEvent::Message { envelope: None, .. }) => {}
                    Some(ConnectionEvent::Ended(EndReason::Refused(report))) => break Some(report.message),
                    Some(ConnectionEvent::Ended(EndReason::Closed | EndReason::Left)) | None => break None,
                },
            }
        };
        self.leave(events).await;
        turned_away
    }

    /// Ends everything that runs, tells how it ended, and leaves the session; a server that is
    /// away is not waited for.
    async fn leave(mut self, mut events: ConnectionEvents) {
        // Answers come only while events are taken.
        let passing = tokio::spawn(async move { while events.next().await.is_some() {} });
        let farewell = async {
            self.executor.end_all("the agent has stopped");
            while self.executor.running() > 0 {
                self.executor.next().await;
            }
            let why = Some("the agent has stopped".to_owned());
            self.connection.clone().leave(why).await
        };
        match tokio::time::timeout(FAREWELL, farewell).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "left without a word"),
            Err(_) => tracing::warn!("the server did not hear that the agent has stopped"),
        }
        passing.abort();
    }

    fn asked(&mut self, ask: Ask) {
        match ask {
            Ask::Expect {
                id,
                propose,
                command,
                mode,
                steps,
                noted,
            } => {
                self.executor.orders().proposed(&id, &propose);
                if mode == RunMode::Background {
                    self.add_job(id.clone(), command);
                }
                self.open.retain(|_, steps| !steps.is_closed());
                self.open.insert(id, steps);
                // Who asked may have gone; then nothing is sent.
                let _ = noted.send(());
            }
            Ask::Read { id, page } => {
                self.reads.retain(|_, page| !page.is_closed());
                self.reads.insert(id, page);
            }
            Ask::Jobs { jobs } => {
                let begun = |job: &&Job| job.pid.is_some();
                let _ = jobs.send(self.jobs.iter().filter(begun).cloned().collect());
            }
            Ask::End { id, ended } => self.await_end(id, ended),
        }
    }

    /// Answers now or when it ends.
    fn await_end(&mut self, id: MessageId, ended: oneshot::Sender<Option<String>>) {
        let known = self.job(&id).map(|job| job.ended.clone());
        match known {
            Some(None) => {
                self.ends.retain(|(_, ended)| !ended.is_closed());
                self.ends.push((id, ended));
            }
            // Who asked may have gone.
            Some(how) => drop(ended.send(how)),
            None => drop(ended.send(None)),
        }
    }

    fn add_job(&mut self, reference: MessageId, command: String) {
        self.jobs.push_back(Job {
            reference,
            command,
            pid: None,
            ended: None,
        });
        if self.jobs.len() > JOBS {
            let over = self.jobs.iter().position(|job| job.ended.is_some());
            self.jobs.remove(over.unwrap_or(0));
        }
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Started {
                proposal,
                pid,
                file,
            } => {
                if let Some(job) = self.job(&proposal) {
                    job.pid = Some(pid);
                }
                self.step(&proposal, Step::Started { pid, file });
            }
            Happening::Over { .. } => {}
        }
    }

    fn job(&mut self, proposal: &MessageId) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.reference == *proposal)
    }

    fn hear(&mut self, envelope: &Envelope) {
        self.executor.hear(envelope);
        self.lore.learn(envelope);
        if let ServerMessage::SessionWelcome(welcome) = &envelope.message {
            self.welcomed(welcome);
        }
        // The last of the past may not be for us to see.
        self.remember(|head| envelope.seq.is_some_and(|seq| seq > head));
        match &mut self.past {
            Some((_, memory)) if envelope.seq.is_some() => {
                memory.take(envelope, self.connection.participant(), &self.lore);
            }
            Some(_) | None => self.follow(envelope),
        }
        self.remember(|head| envelope.seq == Some(head));
    }

    /// Tells the past once all of it was heard.
    fn remember(&mut self, is_over: impl Fn(u64) -> bool) {
        if let Some((_, memory)) = self.past.take_if(|(head, _)| is_over(*head))
            && !memory.is_empty()
        {
            self.wish(Wish::Remember(Box::new(memory)));
        }
    }

    fn welcomed(&mut self, welcome: &SessionWelcome) {
        if std::mem::replace(&mut self.met, true) {
            return;
        }
        self.past = Some((welcome.head, Memory::default()));
        let me = self.connection.participant();
        let open: BTreeSet<_> = self.open.keys().cloned().collect();
        for gate in &welcome.gates {
            let proposal = gate.request.action_ref.clone();
            // Whoever proposed it is gone, and would not hear what becomes of it.
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

    /// What happens to proposals, and what people want.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is for screens"
    )]
    fn follow(&mut self, envelope: &Envelope) {
        let id = &envelope.heading.id;
        match &envelope.message {
            ServerMessage::ToolPropose(propose) => {
                if let Some(assessment) = &propose.assessment {
                    self.step(id, Step::Judged(Box::new(assessment.clone())));
                }
            }
            ServerMessage::GateRequest(request) => {
                if self.open.contains_key(&request.action_ref) {
                    self.gates.insert(id.clone(), request.action_ref.clone());
                }
                let quorum = request.quorum.to_string();
                self.step(&request.action_ref, Step::Waiting { quorum });
            }
            ServerMessage::GateAmend(amend) => self.edited(envelope, amend),
            ServerMessage::GateResolve(resolve) => {
                self.gates.remove(&resolve.gate);
                if resolve.outcome != GateOutcome::Approved {
                    let step = Step::NotRun(Box::new(resolve.clone()));
                    self.last_step(&resolve.tool_proposal, step);
                }
            }
            ServerMessage::ToolExecute(execute) => {
                let approved_by = execute.approved_by.clone();
                self.step(&execute.tool_proposal, Step::Granted { approved_by });
            }
            ServerMessage::ToolOutput(output) if !output.text.is_empty() => {
                let (stream, text) = (output.stream, output.text.clone());
                self.step(&output.tool_proposal, Step::Output { stream, text });
            }
            ServerMessage::ToolResult(result) => self.finished(result),
            ServerMessage::OutputPage(page) => {
                let asked = envelope.heading.reference.as_ref();
                if let Some(waiting) = asked.and_then(|id| self.reads.remove(id)) {
                    // Who asked may not care any more.
                    let _ = waiting.send(page.clone());
                }
            }
            ServerMessage::Error(report) => {
                // A refused proposal takes no steps.
                if let Some(id) = &report.related_to {
                    self.open.remove(id);
                }
            }
            _ => self.wanted(envelope),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not for this agent"
    )]
    fn wanted(&mut self, envelope: &Envelope) {
        let id = envelope.heading.id.clone();
        let Some(by) = self.lore.speaker(&envelope.heading.sender) else {
            return;
        };
        let me = self.connection.participant();
        match &envelope.message {
            ServerMessage::PromptSubmit(prompt) if prompt.target_agent == *me => {
                self.prompts.push_back(id.clone());
                if self.prompts.len() > PROMPTS {
                    self.prompts.pop_front();
                }
                let context = self.lore.recall(&prompt.context_keys);
                let prompt = Box::new(prompt.clone());
                self.wish(Wish::Prompt {
                    id,
                    by,
                    prompt,
                    context,
                });
            }
            ServerMessage::PromptAmend(amend) if self.prompts.contains(&amend.original_prompt) => {
                let amend = Box::new(amend.clone());
                self.wish(Wish::Amend { id, by, amend });
            }
            ServerMessage::InterruptRaise(interrupt)
                if interrupt.target.as_ref().is_none_or(|target| target == me) =>
            {
                self.acknowledge(&id, interrupt);
                let interrupt = Box::new(interrupt.clone());
                self.wish(Wish::Interrupt { id, by, interrupt });
            }
            _ => {}
        }
    }

    fn wish(&self, wish: Wish) {
        // An agent that does not listen to people still runs what they approve.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.wish.try_send(wish) {
            tracing::warn!("people want more than this agent takes; a wish was not heard");
        }
    }

    fn edited(&mut self, envelope: &Envelope, amend: &GateAmend) {
        let proposal = self.gates.get(&amend.gate).unwrap_or(&amend.gate).clone();
        if let Ok(action) = Action::from_arguments("shell", &amend.arguments) {
            let by = match &envelope.heading.sender {
                Sender::System => None,
                Sender::Participant(by) => Some(by.clone()),
            };
            let command = action.command.summary();
            if let Some(job) = self.job(&proposal) {
                job.command.clone_from(&command);
            }
            let reason = amend.reason.clone();
            self.step(
                &proposal,
                Step::Edited {
                    by,
                    command,
                    reason,
                },
            );
        }
    }

    fn finished(&mut self, result: &ToolResult) {
        let id = &result.tool_proposal;
        if let Some(job) = self.job(id) {
            let code = result.result.as_ref().and_then(|body| body.exit_code);
            let how = match (&result.error, code) {
                (Some(why), _) => why.clone(),
                (None, Some(code)) => format!("exit code {code}"),
                (None, None) => "by a signal".to_owned(),
            };
            job.ended = Some(how.clone());
            for (_, ended) in self.ends.extract_if(.., |(awaited, _)| awaited == id) {
                // Who asked may have gone.
                let _ = ended.send(Some(how.clone()));
            }
        }
        let step = Step::Finished(Box::new(result.clone()));
        self.last_step(&result.tool_proposal, step);
    }

    fn acknowledge(&self, id: &MessageId, interrupt: &InterruptRaise) {
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
        // Sending may wait for room, and this task must go on hearing meanwhile.
        tokio::spawn(async move {
            // If it is not taken, the session shows that nobody acknowledged.
            let _ = connection.send(acknowledge).await;
        });
    }

    fn step(&self, proposal: &MessageId, step: Step) {
        if let Some(steps) = self.open.get(proposal) {
            // Who proposed it may not care any more.
            let _ = steps.send(step);
        }
    }

    fn last_step(&mut self, proposal: &MessageId, step: Step) {
        self.step(proposal, step);
        self.open.remove(proposal);
    }
}
