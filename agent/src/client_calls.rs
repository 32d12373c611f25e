//! The calls that a participant proposed for an agent client to run: passes a grant on only if it is
//! for exactly what was proposed.

use pvp_client::{Connection, View};
use pvp_protocol::payload::{GateOutcome, ToolExecute};
use pvp_protocol::{Action, Envelope, MessageId, ServerMessage};

use crate::run_results::failed_result;
use crate::shown_actions::{AcceptedOrigins, ShownActions};

pub(crate) struct ClientCalls {
    /// The connection to the session.
    connection: Connection,
    /// What this process proposed, as it knows by itself.
    shown: ShownActions,
}

impl ClientCalls {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            shown: ShownActions::new(connection.participant().clone(), AcceptedOrigins::default()),
            connection,
        }
    }

    /// Writes down a call that is about to be proposed.
    pub(crate) fn record(&mut self, id: &MessageId, action: &Action) {
        self.shown.record_proposal(id, action);
    }

    /// Whether this process proposed it.
    pub(crate) fn knows(&self, id: &MessageId) -> bool {
        self.shown.is_proposed(id)
    }

    /// Notes what a message changes about what may be granted; `view` is folded up to it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else changes nothing about what may be granted"
    )]
    pub(crate) fn on_message(&mut self, view: &View, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::GateAmend(amend) => {
                if let Some(proposal) = view.proposal_at_gate(&amend.gate) {
                    self.shown.record_edit(&proposal.id, amend);
                }
            }
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                self.shown.forget(&resolve.tool_proposal);
            }
            ServerMessage::ToolResult(result) => self.shown.forget(&result.tool_proposal),
            _ => {}
        }
    }

    /// Refuses a grant that is not for exactly what was proposed, or comes too late; the result says
    /// so.
    pub(crate) fn refuses(&self, execute: &ToolExecute) -> bool {
        let Some(Err(why)) = self.shown.check(execute, self.connection.server_now()) else {
            return false;
        };
        let proposal = execute.tool_proposal.clone();
        tracing::warn!(%proposal, %why, "did not pass on a grant");
        let result = failed_result(proposal, &why.to_string());
        let connection = self.connection.clone();
        // Sending may wait for room in the queue, and the caller must go on reading messages.
        tokio::spawn(async move {
            if let Err(error) = connection.send_and_wait(result).await {
                tracing::warn!(%error, "the server did not accept a result");
            }
        });
        true
    }
}
