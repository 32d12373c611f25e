//! A call of the client while it is under way: progress goes out, and a cancellation comes in.

use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_protocol::MessageId;
use pvp_protocol::payload::ClientOrigin;
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::watch;

use super::progress::{GateWatch, ProgressReporter};
use crate::claimed_text::claimed_text;

/// The result of a call that the client has cancelled. The client does not read it.
pub(super) const CANCELLED: &str = "The client cancelled the call.";

/// What a client is called that does not name itself.
const NAMELESS: &str = "mcp-client";

pub(super) struct FollowedCall<'a> {
    pub(super) agent: &'a Agent,
    context: RequestContext<RoleServer>,
    progress: ProgressReporter,
    /// Becomes true when the client has closed its side.
    closed: watch::Receiver<bool>,
}

impl<'a> FollowedCall<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        context: RequestContext<RoleServer>,
        progress_interval: Duration,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let token = context.meta.get_progress_token();
        let progress = ProgressReporter::new(token, context.peer.clone(), progress_interval);
        Self {
            agent,
            context,
            progress,
            closed,
        }
    }

    /// The client as it describes itself, which nobody checks.
    pub(super) fn claimed_client(&self) -> ClientOrigin {
        let info = self.context.peer.peer_info();
        let client = info.as_ref().map(|info| &info.client_info);
        let name = client.and_then(|client| claimed_text(&client.name));
        ClientOrigin {
            client: name.unwrap_or_else(|| NAMELESS.to_owned()),
            version: client.and_then(|client| claimed_text(&client.version)),
            ..ClientOrigin::default()
        }
    }

    /// What the client calls the call.
    pub(super) fn call_id(&self) -> Option<String> {
        claimed_text(&self.context.id.to_string())
    }

    /// Reports progress while the call is being proposed, however long the server takes.
    pub(super) async fn starting<T>(&self, work: impl Future<Output = T>) -> T {
        let otherwise = "waiting for the PVP server";
        self.progress.during(work, None, otherwise).await
    }

    /// Follows a proposal to its end. If the client cancels the call, withdraws or stops the
    /// proposal and returns `None`.
    pub(super) async fn follow<T>(
        &self,
        proposal: Option<&MessageId>,
        gate: Option<GateWatch>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            result = self.progress.during(work, gate, "running") => Some(result),
            () = self.given_up() => {
                if let Some(proposal) = proposal {
                    self.withdraw(proposal).await;
                }
                None
            }
        }
    }

    /// Waits until the client wants no answer any more.
    async fn given_up(&self) {
        let mut closed = self.closed.clone();
        tokio::select! {
            () = self.context.ct.cancelled() => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }

    async fn withdraw(&self, proposal: &MessageId) {
        if let Err(error) = self
            .agent
            .cancel(proposal, "the client cancelled the call")
            .await
        {
            // It may have ended just before.
            tracing::debug!(%error, "could not cancel a call");
        }
    }
}
