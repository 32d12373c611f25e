//! A call of the client while it is under way: progress goes out, and a cancellation comes in.

use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_protocol::MessageId;
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::watch;

use super::progress::{GateWatch, ProgressReporter};

/// The result of a call that the client has cancelled. The client does not read it.
pub(super) const CANCELLED: &str = "The client cancelled the call.";

/// Characters of a client's name and version that are kept.
const MAX_NAME_CHARS: usize = 60;

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

    /// What the client calls itself, and its version.
    pub(super) fn client(&self) -> (String, Option<String>) {
        let info = self.context.peer.peer_info();
        let client = info.as_ref().map(|info| &info.client_info);
        let short = |text: &str| -> String { text.chars().take(MAX_NAME_CHARS).collect() };
        let name = client.map(|client| short(&client.name));
        let name = name.filter(|name| !name.is_empty());
        let version = client.map(|client| short(&client.version));
        (name.unwrap_or_else(|| "mcp-client".to_owned()), version)
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
