//! The timeline: what happened in a session as a person reads it, item by item.

use std::collections::VecDeque;

use pvp_protocol::payload::{
    FinalState, FinishReason, GateOutcome, InterruptAction, InterruptUrgency, PresenceStatus,
    ResolutionCause, TimeoutResolution, UsageStats,
};
use pvp_protocol::{ErrorCode, MessageId, ParticipantId, ParticipantKind, Role, Sender, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::text::truncate;
use super::version::CommandVersion;

/// Maximum number of items kept; older ones can be read from the log.
pub const MAX_ITEMS: usize = 2000;

/// Maximum bytes of prompts, thinking and responses kept in total.
pub const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// Maximum bytes kept of one prompt, thinking block or response.
pub const MAX_ITEM_BYTES: usize = 256 * 1024;

/// One item of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineItem {
    /// The message's id; for thinking and responses, the id of their start message.
    pub id: MessageId,
    /// The message's sequence number in the log; `None` if only the viewer received it.
    pub seq: Option<u64>,
    pub at: Timestamp,
    pub who: Sender,
    #[serde(flatten)]
    pub event: TimelineEvent,
}

/// Text that may still grow, up to [`MAX_ITEM_BYTES`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TruncatedText {
    pub text: String,
    /// Bytes at the end that are not kept.
    pub cut_bytes: u64,
}

impl TruncatedText {
    pub(super) fn new(text: &str) -> Self {
        let mut kept = Self::default();
        kept.push(text);
        kept
    }

    fn push(&mut self, text: &str) {
        let room = if self.cut_bytes == 0 {
            MAX_ITEM_BYTES - self.text.len()
        } else {
            0
        };
        let kept = truncate(text, room);
        self.cut_bytes = self
            .cut_bytes
            .saturating_add((text.len() - kept.len()) as u64);
        self.text.push_str(&kept);
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TimelineEvent {
    Created {
        name: Option<String>,
    },
    Joined {
        name: String,
        participant_kind: ParticipantKind,
        roles: Vec<Role>,
    },
    Left {
        reason: Option<String>,
    },
    RolesChanged {
        participant: ParticipantId,
        old_roles: Vec<Role>,
        new_roles: Vec<Role>,
        reason: Option<String>,
    },
    /// A participant timed out, or is back and counts for decisions again.
    Attendance {
        participant: ParticipantId,
        status: PresenceStatus,
    },
    Configured {
        /// The fields that changed; null if they are too long to keep.
        changes: Value,
        reason: String,
    },
    Ended {
        reason: String,
        final_state: FinalState,
    },
    Prompt {
        #[serde(flatten)]
        text: TruncatedText,
        to: ParticipantId,
        context_keys: Vec<String>,
    },
    PromptAmended {
        prompt: MessageId,
        #[serde(flatten)]
        text: TruncatedText,
        reason: String,
    },
    Thinking {
        /// The prompt it answers; `None` if its start message was not received.
        prompt: Option<MessageId>,
        #[serde(flatten)]
        text: TruncatedText,
        open: bool,
        summary: Option<String>,
        duration_ms: Option<u64>,
    },
    Response {
        /// The prompt it answers; `None` if its start message was not received.
        prompt: Option<MessageId>,
        #[serde(flatten)]
        text: TruncatedText,
        open: bool,
        finish_reason: Option<FinishReason>,
        usage: Option<UsageStats>,
    },
    /// An agent proposed a command; `View::proposal` tells what became of it.
    Proposed {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
    },
    /// A person ran their own command; `View::proposal` tells what became of it.
    Executed {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
    },
    Approved {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        comment: Option<String>,
    },
    Rejected {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        reason: String,
        suggestion: Option<String>,
    },
    Edited {
        proposal: MessageId,
        /// What the edit made of the command.
        #[serde(flatten)]
        command: CommandVersion,
        /// What it was before.
        before: CommandVersion,
        /// Whose approvals the edit made void.
        void_votes: Vec<ParticipantId>,
        reason: Option<String>,
    },
    DeadlinePassed {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        resolution: TimeoutResolution,
        received: u32,
        required: u32,
    },
    Resolved {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        outcome: GateOutcome,
        how: ResolutionCause,
        by: Option<ParticipantId>,
        reason: Option<String>,
        /// The allow rule whose author's vote approved it, if one did.
        rule: Option<MessageId>,
    },
    /// A command was tried in the sandbox, and needs approval after all.
    TrialDiscarded {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        why: String,
    },
    CancelAsked {
        proposal: MessageId,
        #[serde(flatten)]
        command: CommandVersion,
        reason: Option<String>,
    },
    Interrupted {
        target: Option<ParticipantId>,
        urgency: InterruptUrgency,
        message: String,
    },
    Acknowledged {
        interrupt: MessageId,
        action_taken: InterruptAction,
        reason: Option<String>,
    },
    ContextAdded {
        key: String,
        bytes: u64,
    },
    ContextUpdated {
        key: String,
        bytes: u64,
        reason: String,
    },
    ContextRemoved {
        key: String,
        reason: String,
    },
    SecretShared {
        key: String,
        scope: Vec<ParticipantId>,
    },
    SecretRevoked {
        key: String,
        reason: String,
    },
    Allowed {
        prefix: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        read_root: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
        expires_at: Timestamp,
        reason: Option<String>,
    },
    AllowRevoked {
        rule: MessageId,
        reason: Option<String>,
    },
    /// The server refused a message of the viewer, or an agent reports a failure.
    Error {
        code: ErrorCode,
        message: String,
        recoverable: bool,
        related_to: Option<MessageId>,
    },
}

/// Which of an agent's two text streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentTextKind {
    Thinking,
    Response,
}

impl TimelineEvent {
    /// Which text stream this item belongs to, if it is still open.
    fn open_text_kind(&self) -> Option<AgentTextKind> {
        if let TimelineEvent::Thinking { open: true, .. } = self {
            Some(AgentTextKind::Thinking)
        } else if let TimelineEvent::Response { open: true, .. } = self {
            Some(AgentTextKind::Response)
        } else {
            None
        }
    }

    fn text_mut(&mut self) -> Option<&mut TruncatedText> {
        if let TimelineEvent::Thinking { text, .. } | TimelineEvent::Response { text, .. } = self {
            Some(text)
        } else {
            None
        }
    }

    fn text_bytes(&self) -> usize {
        if let TimelineEvent::Prompt { text, .. }
        | TimelineEvent::PromptAmended { text, .. }
        | TimelineEvent::Thinking { text, .. }
        | TimelineEvent::Response { text, .. } = self
        {
            text.text.len()
        } else {
            // Every other text has a bounded length.
            0
        }
    }
}

/// What happened in a session, as much of it as is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Oldest first.
    pub items: VecDeque<TimelineItem>,
    /// The number of older items that are not kept.
    pub dropped: u64,
    /// Bytes of prompts, thinking and responses in `items`.
    #[serde(skip)]
    text_bytes: usize,
}

impl Timeline {
    pub(super) fn push(&mut self, item: TimelineItem) {
        self.text_bytes += item.event.text_bytes();
        self.items.push_back(item);
        self.trim();
    }

    /// The sender's open item of this kind: the one with this id, or the latest if `id` is `None`.
    pub(super) fn open_item_mut(
        &mut self,
        kind: AgentTextKind,
        sender: &Sender,
        id: Option<&MessageId>,
    ) -> Option<&mut TimelineItem> {
        self.items.iter_mut().rev().find(|item| {
            id.is_none_or(|id| *id == item.id)
                && item.who == *sender
                && item.event.open_text_kind() == Some(kind)
        })
    }

    /// Appends to the sender's open item of this kind; false if there is none.
    pub(super) fn append_text(
        &mut self,
        kind: AgentTextKind,
        sender: &Sender,
        id: Option<&MessageId>,
        text: &str,
    ) -> bool {
        let open = self.open_item_mut(kind, sender, id);
        let Some(open_text) = open.and_then(|item| item.event.text_mut()) else {
            return false;
        };
        let before = open_text.text.len();
        open_text.push(text);
        self.text_bytes += open_text.text.len() - before;
        self.trim();
        true
    }

    /// Closes the open items of a sender who left.
    pub(super) fn close_items_of(&mut self, sender: &Sender) {
        for item in self.items.iter_mut().filter(|item| item.who == *sender) {
            if let TimelineEvent::Thinking { open, .. } | TimelineEvent::Response { open, .. } =
                &mut item.event
            {
                *open = false;
            }
        }
    }

    fn trim(&mut self) {
        while self.items.len() > MAX_ITEMS
            || (self.text_bytes > MAX_TEXT_BYTES && self.items.len() > 1)
        {
            let oldest = self.items.pop_front();
            self.text_bytes -= oldest.map_or(0, |item| item.event.text_bytes());
            self.dropped += 1;
        }
    }
}
