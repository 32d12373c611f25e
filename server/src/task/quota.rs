//! Keeps a session within its quotas of bytes.

use pvp_protocol::{ClientMessage, Refusal, ServerMessage};
use pvp_session::Entry;

use super::SessionTask;

/// What a session may add to its log beyond its quota, so that what runs can be stopped, can report,
/// and the session can be ended.
const CLOSING_BYTES: u64 = 16 * 1024 * 1024;

/// What a message does to a session whose log is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageUse {
    /// It begins or adds something.
    Work,
    /// It stops or reports what was begun before.
    Closing,
    /// Without it, the session could not be ended, or what ran would not be on record.
    Last,
}

impl SessionTask {
    /// Counts an entry that was decided.
    pub(super) fn count_usage(&mut self, entry: &Entry, bytes: usize) {
        let bytes = bytes as u64;
        self.usage.log_bytes += bytes;
        if let ServerMessage::ContextAdd(_) | ServerMessage::ContextUpdate(_) =
            entry.envelope.message
        {
            self.usage.context_bytes += bytes;
        }
    }

    /// Refuses a message that the session has no room for.
    pub(super) fn check_quotas(&self, message: &ClientMessage) -> Result<(), Refusal> {
        let limit = self.directory.config.session_log_bytes;
        let room = match message_use(message) {
            MessageUse::Work => limit,
            MessageUse::Closing => limit.saturating_add(CLOSING_BYTES),
            MessageUse::Last => u64::MAX,
        };
        self.check_log_bytes(room)?;
        let limit = self.directory.config.context_update_bytes;
        let adds_context = matches!(
            message,
            ClientMessage::ContextAdd(_) | ClientMessage::ContextUpdate(_)
        );
        match adds_context && self.usage.context_bytes >= limit {
            true => Err(self.quota_refusal("context_update_bytes", limit)),
            false => Ok(()),
        }
    }

    /// Refuses somebody who joins a session that has no room even for those who would end it.
    pub(super) fn check_join_quota(&self) -> Result<(), Refusal> {
        let limit = self.directory.config.session_log_bytes;
        self.check_log_bytes(limit.saturating_add(CLOSING_BYTES))
    }

    fn check_log_bytes(&self, room: u64) -> Result<(), Refusal> {
        if self.usage.log_bytes < room {
            return Ok(());
        }
        let limit = self.directory.config.session_log_bytes;
        Err(self.quota_refusal("session_log_bytes", limit))
    }

    fn quota_refusal(&self, quota: &'static str, limit: u64) -> Refusal {
        Refusal::SessionQuota {
            session: self.id.clone(),
            quota,
            limit,
        }
    }
}

fn message_use(message: &ClientMessage) -> MessageUse {
    match message {
        ClientMessage::SessionEnd(_)
        | ClientMessage::ToolResult(_)
        | ClientMessage::ToolDiscard(_) => MessageUse::Last,
        ClientMessage::SessionLeave(_)
        | ClientMessage::SessionJoin(_)
        | ClientMessage::Announce(_)
        | ClientMessage::HeartbeatPing(_)
        | ClientMessage::HeartbeatPong(_)
        | ClientMessage::PresenceUpdate(_)
        | ClientMessage::ContextRemove(_)
        | ClientMessage::SecretRevoke(_)
        | ClientMessage::PromptDraft(_)
        | ClientMessage::ThinkingEnd(_)
        | ClientMessage::ResponseEnd(_)
        | ClientMessage::ToolReject(_)
        | ClientMessage::ToolOutput(_)
        | ClientMessage::GateReject(_)
        | ClientMessage::InterruptRaise(_)
        | ClientMessage::InterruptAcknowledge(_)
        | ClientMessage::ToolCancel(_)
        | ClientMessage::ToolRenew(_)
        | ClientMessage::ToolDefer(_)
        | ClientMessage::PolicyRevoke(_)
        | ClientMessage::OutputRead(_) => MessageUse::Closing,
        ClientMessage::SessionCreate(_)
        | ClientMessage::SessionConfigUpdate(_)
        | ClientMessage::RoleChange(_)
        | ClientMessage::ContextAdd(_)
        | ClientMessage::ContextUpdate(_)
        | ClientMessage::SecretShare(_)
        | ClientMessage::PromptSubmit(_)
        | ClientMessage::PromptAmend(_)
        | ClientMessage::ThinkingStart(_)
        | ClientMessage::ThinkingChunk(_)
        | ClientMessage::ResponseStart(_)
        | ClientMessage::ResponseChunk(_)
        | ClientMessage::ToolPropose(_)
        | ClientMessage::ToolApprove(_)
        | ClientMessage::GateApprove(_)
        | ClientMessage::ForkCreate(_)
        | ClientMessage::ForkSwitch(_)
        | ClientMessage::MergePropose(_)
        | ClientMessage::MergeExecute(_)
        | ClientMessage::Error(_)
        | ClientMessage::GateAmend(_)
        | ClientMessage::ToolInput(_)
        | ClientMessage::ShellExec(_)
        | ClientMessage::PolicyAllow(_) => MessageUse::Work,
    }
}
