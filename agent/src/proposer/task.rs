//! The task behind a proposer that stands alone: folds the view, and passes on grants for exactly
//! what was proposed.

use pvp_client::{Connection, ConnectionEvents, View};
use pvp_protocol::payload::ToolExecute;
use pvp_protocol::{Envelope, Sender, ServerMessage};
use tokio::sync::mpsc;

use super::{PersonRequest, PersonRequestKind, ProposalTracker, ProposerRequest};
use crate::client_calls::ClientCalls;
use crate::received::{Received, next_received};

pub(super) struct ProposerTask {
    /// The connection to the session.
    connection: Connection,
    /// The session as the server describes it.
    view: View,
    /// Who waits for what becomes of which proposal.
    tracker: ProposalTracker,
    /// What this process proposed, as it knows by itself.
    calls: ClientCalls,
    /// Where it goes what people ask; closed if nobody wants to know.
    people: mpsc::Sender<PersonRequest>,
}

impl ProposerTask {
    pub(super) fn new(connection: Connection, people: mpsc::Sender<PersonRequest>) -> Self {
        Self {
            view: View::default(),
            tracker: ProposalTracker::default(),
            calls: ClientCalls::new(connection.clone()),
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
            self.calls.record(id, action);
        }
        self.tracker.on_request(request, &self.view);
    }

    fn on_message(&mut self, envelope: &Envelope) {
        self.view.fold(envelope);
        self.calls.on_message(&self.view, envelope);
        if let ServerMessage::ToolExecute(execute) = &envelope.message
            && self.refuses(execute)
        {
            return;
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
    /// comes too late. Other processes of the same participant answer for what they proposed.
    fn refuses(&self, execute: &ToolExecute) -> bool {
        self.tracker.is_open(&execute.tool_proposal) && self.calls.refuses(execute)
    }
}
