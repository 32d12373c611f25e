//! The stream that a person reads, in the order things happened.

use std::collections::VecDeque;

use pvp_protocol::payload::{
    FinalState, FinishReason, GateOutcome, InterruptAction, InterruptUrgency, PresenceStatus,
    ResolutionCause, TimeoutResolution, UsageStats,
};
use pvp_protocol::{ErrorCode, MessageId, ParticipantId, ParticipantKind, Role, Sender, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::text::truncate;

/// Most items that are kept; more is read from the log.
pub const MAX_ITEMS: usize = 2000;

/// Bytes of prompts, thinking and responses that are kept, all together.
pub const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of one prompt, thought or response that are kept.
pub const MAX_ITEM_BYTES: usize = 256 * 1024;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineItem {
    /// The message that said so; thinking and responses are named by their start.
    pub id: MessageId,
    /// Its place in the session's order; what only I was told has none.
    pub seq: Option<u64>,
    pub at: Timestamp,
    pub who: Sender,
    #[serde(flatten)]
    pub event: TimelineEvent,
}

/// Text that may still grow.
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
    /// Someone counts for decisions again, or no longer does.
    Attendance {
        participant: ParticipantId,
        status: PresenceStatus,
    },
    Configured {
        /// The fields that changed; null if they are too many to keep.
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
        /// Unknown if its beginning was not told.
        prompt: Option<MessageId>,
        #[serde(flatten)]
        text: TruncatedText,
        open: bool,
        summary: Option<String>,
        duration_ms: Option<u64>,
    },
    Response {
        /// Unknown if its beginning was not told.
        prompt: Option<MessageId>,
        #[serde(flatten)]
        text: TruncatedText,
        open: bool,
        finish_reason: Option<FinishReason>,
        usage: Option<UsageStats>,
    },
    /// An agent's command; look it up by this id.
    Proposed {
        proposal: MessageId,
    },
    /// A person's own command; look it up by this id.
    Executed {
        proposal: MessageId,
    },
    Approved {
        proposal: MessageId,
        comment: Option<String>,
    },
    Rejected {
        proposal: MessageId,
        reason: String,
        suggestion: Option<String>,
    },
    Edited {
        proposal: MessageId,
        shown: String,
        reason: Option<String>,
    },
    DeadlinePassed {
        proposal: MessageId,
        resolution: TimeoutResolution,
        received: u32,
        required: u32,
    },
    Resolved {
        proposal: MessageId,
        outcome: GateOutcome,
        how: ResolutionCause,
        by: Option<ParticipantId>,
        reason: Option<String>,
    },
    CancelAsked {
        proposal: MessageId,
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
        expires_at: Timestamp,
        reason: Option<String>,
    },
    AllowRevoked {
        rule: MessageId,
        reason: Option<String>,
    },
    /// Something of mine was refused, or an agent reports that it failed.
    Error {
        code: ErrorCode,
        message: String,
        recoverable: bool,
        related_to: Option<MessageId>,
    },
}

/// Which of an agent's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentTextKind {
    Thinking,
    Response,
}

impl TimelineEvent {
    /// The voice that is still speaking, if this is one.
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
            // Every other text is a line of bounded length.
            0
        }
    }
}

/// The stream that a person reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Oldest first.
    pub items: VecDeque<TimelineItem>,
    /// Older items that are not kept.
    pub dropped: u64,
    #[serde(skip)]
    text_bytes: usize,
}

impl Timeline {
    pub(super) fn push(&mut self, item: TimelineItem) {
        self.text_bytes += item.event.text_bytes();
        self.items.push_back(item);
        self.trim();
    }

    /// The open item of this voice: the one that was named, else the sender's latest.
    pub(super) fn open_item_mut(
        &mut self,
        kind: AgentTextKind,
        who: &Sender,
        id: Option<&MessageId>,
    ) -> Option<&mut TimelineItem> {
        self.items.iter_mut().rev().find(|item| {
            id.is_none_or(|named| *named == item.id)
                && item.who == *who
                && item.event.open_text_kind() == Some(kind)
        })
    }

    /// Appends to the open item of this voice; false if there is none.
    pub(super) fn append_text(
        &mut self,
        kind: AgentTextKind,
        who: &Sender,
        id: Option<&MessageId>,
        text: &str,
    ) -> bool {
        let open = self.open_item_mut(kind, who, id);
        let Some(open_text) = open.and_then(|item| item.event.text_mut()) else {
            return false;
        };
        let before = open_text.text.len();
        open_text.push(text);
        self.text_bytes += open_text.text.len() - before;
        self.trim();
        true
    }

    /// Whoever left says no more.
    pub(super) fn close_items_of(&mut self, who: &Sender) {
        for item in self.items.iter_mut().filter(|item| item.who == *who) {
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
