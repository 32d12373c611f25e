//! The task behind a proposer that stands alone: folds the view, and passes on grants for exactly
//! what was proposed.

use pvp_client::{Connection, ConnectionEvents, View};
use pvp_protocol::payload::{GateOutcome, ToolExecute};
use pvp_protocol::{Envelope, Sender, ServerMessage};
use tokio::sync::mpsc;

use super::{PersonRequest, PersonRequestKind, ProposalTracker, ProposerRequest};
use crate::received::{Received, next_received};
use crate::run_results::failed_result;
use crate::shown_actions::{AcceptedOrigins, ShownActions};

pub(super) struct ProposerTask {
    /// The connection to the session.
    connection: Connection,
    /// The session as the server describes it.
    view: View,
    /// Who waits for what becomes of which proposal.
    tracker: ProposalTracker,
    /// What this process proposed, as it knows by itself.
    shown: ShownActions,
    /// Where it goes what people ask; closed if nobody wants to know.
    people: mpsc::Sender<PersonRequest>,
}

impl ProposerTask {
    pub(super) fn new(connection: Connection, people: mpsc::Sender<PersonRequest>) -> Self {
        Self {
            view: View::default(),
            tracker: ProposalTracker::default(),
            shown: ShownActions::new(connection.participant().clone(), AcceptedOrigins::default()),
            connection,
            people,
        }
    }

    /// Runs until every proposer is dropped or the session is over for this participant. Returns
    /// why the server no longer lets it in, if that is the reason.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<ProposerRequest>,
        mut events: ConnectionEvents,
    ) -> Option<String> {
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => return None,
                },
                received = next_received(&mut events) => match received {
                    Received::Message(envelope) => {
                        self.on_message(&envelope);
                        if let ServerMessage::SessionEnd(_) = envelope.message {
                            return None;
                        }
                    }
                    Received::NotResumed => self.view = View::default(),
                    Received::Over(refusal) => return refusal,
                },
            }
        }
    }

    fn on_request(&mut self, request: ProposerRequest) {
        if let ProposerRequest::Track { id, action, .. } = &request {
            self.shown.record_proposal(id, action);
        }
        self.tracker.on_request(request, &self.view);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else changes nothing about what may be granted"
    )]
    fn on_message(&mut self, envelope: &Envelope) {
        self.view.fold(envelope);
        match &envelope.message {
            ServerMessage::GateAmend(amend) => {
                if let Some(proposal) = self.view.proposal_at_gate(&amend.gate) {
                    self.shown.record_edit(&proposal.id, amend);
                }
            }
            ServerMessage::ToolExecute(execute) if self.refuses(execute) => return,
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.shown.forget(&resolve.tool_proposal);
            }
            ServerMessage::ToolResult(result) => self.shown.forget(&result.tool_proposal),
            _ => {}
        }
        self.tracker.on_message(&self.view, envelope);
        if !self.view.is_history(envelope.seq) {
            self.pass_on_request(envelope);
        }
    }

    /// Passes on what a person asks of this participant. What was typed into the client itself is
    /// there already.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not for this participant"
    )]
    fn pass_on_request(&self, envelope: &Envelope) {
        let Sender::Participant(by) = &envelope.header.sender else {
            return;
        };
        let me = self.connection.participant();
        let kind = match &envelope.message {
            ServerMessage::PromptSubmit(prompt)
                if prompt.target_agent == *me && prompt.origin.is_none() =>
            {
                PersonRequestKind::Prompt(Box::new(prompt.clone()))
            }
            ServerMessage::PromptAmend(amend) => PersonRequestKind::Amend(Box::new(amend.clone())),
            ServerMessage::InterruptRaise(interrupt)
                if interrupt.target.as_ref().is_none_or(|target| target == me) =>
            {
                PersonRequestKind::Interrupt(Box::new(interrupt.clone()))
            }
            _ => return,
        };
        let request = PersonRequest {
            id: envelope.header.id.clone(),
            by: by.clone(),
            name: self.view.display_name(by).to_owned(),
            kind,
        };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.people.try_send(request) {
            tracing::warn!("the queue of requests is full; a message was dropped");
        }
    }

    /// Refuses a grant for a proposal of this process that is not for exactly what it proposed, or
    /// comes too late; the result says so. Other processes of the same participant answer for what
    /// they proposed.
    fn refuses(&self, execute: &ToolExecute) -> bool {
        if !self.tracker.is_open(&execute.tool_proposal) {
            return false;
        }
        let Some(Err(why)) = self.shown.check(execute, self.connection.server_now()) else {
            return false;
        };
        let proposal = execute.tool_proposal.clone();
        tracing::warn!(%proposal, %why, "did not pass on a grant");
        let result = failed_result(proposal, &why.to_string());
        let connection = self.connection.clone();
        // Sending may wait for room in the queue, and this task must go on reading messages.
        tokio::spawn(async move {
            if let Err(error) = connection.send_and_wait(result).await {
                tracing::warn!(%error, "the server did not accept a result");
            }
        });
        true
    }
}
