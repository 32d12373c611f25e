//! Tells each open proposal what happens to it, from the messages of the session and the view that
//! is folded from them.

use std::collections::BTreeMap;

use pvp_client::View;
use pvp_client::view::{ProposalState, ProposalView};
use pvp_protocol::payload::{ClearedBy, GateAmend, GateOutcome, OutputPage, RunBy, ToolExecute};
use pvp_protocol::{
    Action, Envelope, ExecutionLimits, MessageId, ParticipantId, Sender, ServerMessage,
};
use tokio::sync::oneshot;

use super::{EventSender, GateProgress, ProposalEvent};

/// A request of a [`Proposer`](super::Proposer) to the task that folds the view.
pub(crate) enum ProposerRequest {
    /// Registers a proposal that is about to be sent, so that its events and its grant are
    /// expected.
    Track {
        id: MessageId,
        action: Box<Action>,
        /// Who runs it.
        runs: RunBy,
        events: EventSender,
        /// Notified once the proposal is registered, or why it cannot be; only then it is sent. Says
        /// which entry was the last one then.
        registered: oneshot::Sender<Result<u64, String>>,
    },
    /// Registers a read of output that is about to be sent.
    TrackOutputRead {
        id: MessageId,
        page: oneshot::Sender<OutputPage>,
    },
    /// Asks how many bytes of output the grant of a proposal allows; `None` if that is not known.
    OutputLimit {
        proposal: MessageId,
        limit: oneshot::Sender<Option<u64>>,
    },
}

/// The proposals of one process that are not over, and the reads of output that are not answered.
#[derive(Default)]
pub(crate) struct ProposalTracker {
    open: BTreeMap<MessageId, OpenProposal>,
    /// Who waits for the page of each output read, by the id of the request.
    pending_reads: BTreeMap<MessageId, oneshot::Sender<OutputPage>>,
    /// Whether a welcome was folded whose replay has not been looked at.
    welcomed: bool,
}

struct OpenProposal {
    events: EventSender,
    /// Whether the log has it.
    logged: bool,
    /// Whether it was passed on that it is granted.
    granted: bool,
}

impl ProposalTracker {
    /// Answers a request, from the view where that knows the answer.
    pub(crate) fn on_request(&mut self, request: ProposerRequest, view: &View) {
        // In each case the caller may have gone; then nobody waits for the answer.
        match request {
            ProposerRequest::Track {
                id,
                events,
                registered,
                action: _,
                runs: _,
            } => {
                self.open.retain(|_, open| !open.events.is_closed());
                let open = OpenProposal {
                    events,
                    logged: false,
                    granted: false,
                };
                self.open.insert(id, open);
                let _ = registered.send(Ok(view.known_head()));
            }
            ProposerRequest::TrackOutputRead { id, page } => {
                self.pending_reads.retain(|_, page| !page.is_closed());
                self.pending_reads.insert(id, page);
            }
            ProposerRequest::OutputLimit { proposal, limit } => {
                let run = view.proposal(&proposal).and_then(|it| it.run.as_ref());
                // A run without limits is one by a client.
                let limits = run.map(|run| run.limits.unwrap_or(ExecutionLimits::CLIENT_RUN));
                let _ = limit.send(limits.map(|limits| limits.output_bytes));
            }
        }
    }

    /// Whether this process proposed it and waits for what becomes of it.
    pub(crate) fn is_open(&self, proposal: &MessageId) -> bool {
        self.open.contains_key(proposal)
    }

    /// Passes on what a message means for the open proposals; `view` is folded up to it.
    pub(crate) fn on_message(&mut self, view: &View, envelope: &Envelope) {
        self.send_events(view, envelope);
        // Output comes often, and changes nothing about a gate.
        if !matches!(envelope.message, ServerMessage::ToolOutput(_)) {
            for (id, open) in &self.open {
                let card = view.card(id);
                let progress = card.map(|card| GateProgress::new(card, view));
                open.events.set_gate_progress(progress);
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not about proposals"
    )]
    fn send_events(&mut self, view: &View, envelope: &Envelope) {
        let id = &envelope.header.id;
        match &envelope.message {
            ServerMessage::SessionWelcome(_) => self.welcomed = true,
            ServerMessage::ToolPropose(propose) => {
                if let Some(open) = self.open.get_mut(id) {
                    open.logged = true;
                }
                if let Some(assessment) = &propose.assessment {
                    self.send(id, ProposalEvent::Assessed(Box::new(assessment.clone())));
                }
            }
            ServerMessage::GateRequest(request) => {
                let quorum = request.quorum.to_string();
                self.send(&request.action_ref, ProposalEvent::GateOpened { quorum });
            }
            ServerMessage::GateAmend(amend) => self.on_edit(view, &envelope.header.sender, amend),
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                let event = ProposalEvent::NotRun(Box::new(resolve.clone()));
                self.send_last(&resolve.tool_proposal, event);
            }
            ServerMessage::ToolExecute(execute) => self.on_grant(execute),
            ServerMessage::ToolOutput(output) if !output.text.is_empty() => {
                let (stream, text) = (output.stream, output.text.clone());
                self.send(
                    &output.tool_proposal,
                    ProposalEvent::Output { stream, text },
                );
            }
            ServerMessage::ToolResult(result) => {
                let event = ProposalEvent::Finished(Box::new(result.clone()));
                self.send_last(&result.tool_proposal, event);
            }
            ServerMessage::ToolCancel(cancel) => {
                // The gate says it when one that waits is withdrawn.
                let proposal = view.proposal(&cancel.tool_proposal);
                if proposal.is_some_and(ProposalView::is_running) {
                    let by = participant(&envelope.header.sender);
                    let reason = cancel.reason.clone();
                    let event = ProposalEvent::CancelRequested { by, reason };
                    self.send(&cancel.tool_proposal, event);
                }
            }
            ServerMessage::OutputPage(page) => {
                let request = envelope.header.reference.as_ref();
                if let Some(waiting) = request.and_then(|id| self.pending_reads.remove(id)) {
                    // The caller may have gone.
                    let _ = waiting.send(page.clone());
                }
            }
            _ => {}
        }
        if self.welcomed && !view.is_replaying() {
            self.welcomed = false;
            self.close_lost(view);
        }
    }

    fn on_edit(&mut self, view: &View, sender: &Sender, amend: &GateAmend) {
        let Some(proposal) = view.proposal_at_gate(&amend.gate) else {
            return;
        };
        let tool = proposal.requested.tool.as_deref().unwrap_or("shell");
        if let Ok(action) = Action::from_arguments(tool, &amend.arguments) {
            let event = ProposalEvent::Edited {
                by: participant(sender),
                command: action.command.summary(),
                action: Box::new(action),
                reason: amend.reason.clone(),
            };
            self.send(&proposal.id, event);
        }
    }

    /// A grant is passed on once, however often it arrives.
    fn on_grant(&mut self, execute: &ToolExecute) {
        // Only an executor may try a command, in its sandbox; nobody else may run it yet.
        if execute.grant.cleared_by == ClearedBy::Tried {
            return;
        }
        if let Some(open) = self.open.get_mut(&execute.tool_proposal)
            && !std::mem::replace(&mut open.granted, true)
        {
            open.events.send(ProposalEvent::Granted {
                approved_by: execute.approved_by.clone(),
                action: Box::new(execute.grant.action.clone()),
                expires_at: execute.grant.expires_at,
            });
        }
    }

    /// After a replay, closes what was in the log and is over, without a message that says how.
    fn close_lost(&mut self, view: &View) {
        let is_lost = |id: &MessageId| {
            let proposal = view.proposal(id);
            proposal.is_none_or(|proposal| proposal.state == ProposalState::Over)
        };
        for (_, lost) in self
            .open
            .extract_if(.., |id, open| open.logged && is_lost(id))
        {
            lost.events.send_last(ProposalEvent::Lost);
        }
    }

    pub(crate) fn send(&self, proposal: &MessageId, event: ProposalEvent) {
        if let Some(open) = self.open.get(proposal) {
            open.events.send(event);
        }
    }

    fn send_last(&mut self, proposal: &MessageId, event: ProposalEvent) {
        if let Some(open) = self.open.remove(proposal) {
            open.events.send_last(event);
        }
    }
}

/// The participant who sent a message; `None` if it was the server.
fn participant(sender: &Sender) -> Option<ParticipantId> {
    match sender {
        Sender::System => None,
        Sender::Participant(id) => Some(id.clone()),
    }
}
