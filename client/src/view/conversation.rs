//! Folds the messages of the conversation with agents: drafts, prompts, thinking, responses and
//! interrupts.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    InterruptAcknowledge, InterruptRaise, InterruptUrgency, PromptAmend, PromptDraft, PromptSubmit,
    ResponseEnd, ResponseStart, ThinkingEnd, ThinkingStart, UsageStats,
};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, Sender, Timestamp};
use serde::Serialize;

use super::text::{truncate, truncate_line, truncate_optional_line};
use super::timeline::{AgentTextKind, TimelineEvent, TruncatedText};
use super::{MessageMeta, View, push_bounded};

/// Maximum bytes kept of a draft: more than fits on the line that shows it.
const MAX_DRAFT_BYTES: usize = 16 * 1024;

/// Maximum number of drafts, one per participant; a session has at most 200 participants unless its
/// server allows more.
const MAX_DRAFTS: usize = 200;

/// Maximum number of unacknowledged interrupts; as many as the server keeps.
const MAX_INTERRUPTS: usize = 256;

/// Maximum number of context keys kept of a prompt.
const MAX_CONTEXT_KEYS: usize = 64;

/// What someone else is typing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DraftView {
    pub text: String,
    pub to: Option<ParticipantId>,
    pub at: Timestamp,
}

/// An interrupt that some agent has not acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InterruptView {
    /// The interrupt's id.
    pub interrupt: MessageId,
    /// Who raised it.
    pub by: Sender,
    /// When it was raised.
    pub at: Timestamp,
    /// How urgently the agents must react.
    pub urgency: InterruptUrgency,
    /// The agent it is for; `None` means all agents.
    pub target: Option<ParticipantId>,
    /// What the agents read.
    pub message: String,
    /// The agents that have not acknowledged it.
    pub awaited: BTreeSet<ParticipantId>,
}

impl View {
    pub(super) fn fold_draft(&mut self, meta: &MessageMeta<'_>, draft: &PromptDraft) {
        let Some(by) = meta.participant().filter(|by| !self.is_me(by)) else {
            return;
        };
        if draft.content.is_empty() {
            self.drafts.remove(by);
        } else if self.drafts.len() < MAX_DRAFTS || self.drafts.contains_key(by) {
            let (text, to) = (
                truncate(&draft.content, MAX_DRAFT_BYTES),
                draft.target_agent.clone(),
            );
            self.drafts.insert(
                by.clone(),
                DraftView {
                    text,
                    to,
                    at: meta.at,
                },
            );
        }
    }

    pub(super) fn fold_prompt(&mut self, meta: &MessageMeta<'_>, prompt: &PromptSubmit) {
        if let Some(by) = meta.participant() {
            self.drafts.remove(by);
        }
        let keys = prompt.context_keys.iter().take(MAX_CONTEXT_KEYS);
        let event = TimelineEvent::Prompt {
            text: TruncatedText::new(&prompt.content),
            to: prompt.target_agent.clone(),
            context_keys: keys.map(|key| truncate_line(key)).collect(),
        };
        self.push_logged_item(meta, event);
    }

    pub(super) fn fold_prompt_amend(&mut self, meta: &MessageMeta<'_>, amend: &PromptAmend) {
        let event = TimelineEvent::PromptAmended {
            prompt: amend.original_prompt.clone(),
            text: TruncatedText::new(&amend.amendment),
            reason: truncate_line(&amend.reason),
        };
        self.push_logged_item(meta, event);
    }

    pub(super) fn fold_thinking_start(&mut self, meta: &MessageMeta<'_>, start: &ThinkingStart) {
        self.push_logged_item(meta, thinking_event(Some(&start.prompt_ref), ""));
    }

    pub(super) fn fold_response_start(&mut self, meta: &MessageMeta<'_>, start: &ResponseStart) {
        self.push_logged_item(meta, response_event(Some(&start.prompt_ref), ""));
    }

    pub(super) fn fold_thinking_chunk(&mut self, meta: &MessageMeta<'_>, text: &str) {
        if !self
            .stream
            .append_text(AgentTextKind::Thinking, meta.sender, meta.reference, text)
        {
            self.push_partial_item(meta, thinking_event(None, text));
        }
    }

    pub(super) fn fold_response_chunk(&mut self, meta: &MessageMeta<'_>, text: &str) {
        if !self
            .stream
            .append_text(AgentTextKind::Response, meta.sender, meta.reference, text)
        {
            self.push_partial_item(meta, response_event(None, text));
        }
    }

    /// Begins an item for a chunk whose start was before the messages received. The item gets the
    /// id of that start.
    fn push_partial_item(&mut self, meta: &MessageMeta<'_>, event: TimelineEvent) {
        let id = meta.reference.unwrap_or(meta.id);
        let has_id = |item: &super::TimelineItem| item.id == *id;
        if self.stream.items.iter().any(has_id) {
            return;
        }
        self.push_logged_item(&MessageMeta { id, ..*meta }, event);
    }

    pub(super) fn fold_thinking_end(&mut self, meta: &MessageMeta<'_>, end: &ThinkingEnd) {
        let item = self
            .stream
            .open_item_mut(AgentTextKind::Thinking, meta.sender, meta.reference);
        if let Some(TimelineEvent::Thinking {
            open,
            summary,
            duration_ms,
            ..
        }) = item.map(|item| &mut item.event)
        {
            *open = false;
            *summary = truncate_optional_line(end.summary.as_ref());
            *duration_ms = end.duration_ms;
        }
    }

    pub(super) fn fold_response_end(&mut self, meta: &MessageMeta<'_>, end: &ResponseEnd) {
        let item = self
            .stream
            .open_item_mut(AgentTextKind::Response, meta.sender, meta.reference);
        if let Some(TimelineEvent::Response {
            open,
            finish_reason,
            usage,
            ..
        }) = item.map(|item| &mut item.event)
        {
            *open = false;
            *finish_reason = Some(end.finish_reason);
            *usage = end.usage.as_ref().map(truncated_usage);
        }
    }

    pub(super) fn fold_interrupt(&mut self, meta: &MessageMeta<'_>, interrupt: &InterruptRaise) {
        let (urgency, target) = (interrupt.urgency, interrupt.target.clone());
        let message = truncate_line(&interrupt.message);
        let event = TimelineEvent::Interrupted {
            target: target.clone(),
            urgency,
            message: message.clone(),
        };
        self.push_logged_item(meta, event);
        let awaited = self.target_agents(target.as_ref());
        if awaited.is_empty() {
            return;
        }
        let open = InterruptView {
            interrupt: meta.id.clone(),
            by: meta.sender.clone(),
            at: meta.at,
            urgency,
            target,
            message,
            awaited,
        };
        push_bounded(&mut self.interrupts, open, MAX_INTERRUPTS);
    }

    fn target_agents(&self, target: Option<&ParticipantId>) -> BTreeSet<ParticipantId> {
        let agents = self
            .people
            .values()
            .filter(|participant| participant.is_present_agent());
        let targets = agents.filter(|agent| target.is_none_or(|target| *target == agent.id));
        targets.map(|agent| agent.id.clone()).collect()
    }

    pub(super) fn fold_acknowledge(
        &mut self,
        meta: &MessageMeta<'_>,
        acknowledge: &InterruptAcknowledge,
    ) {
        let event = TimelineEvent::Acknowledged {
            interrupt: acknowledge.interrupt.clone(),
            action_taken: acknowledge.action_taken,
            reason: truncate_optional_line(acknowledge.ignore_reason.as_ref()),
        };
        self.push_logged_item(meta, event);
        let is_acknowledged = |open: &&mut InterruptView| open.interrupt == acknowledge.interrupt;
        if let Some(open) = self.interrupts.iter_mut().find(is_acknowledged) {
            open.awaited.remove(&acknowledge.by);
        }
        self.interrupts.retain(|open| !open.awaited.is_empty());
    }
}

fn thinking_event(prompt: Option<&MessageId>, text: &str) -> TimelineEvent {
    TimelineEvent::Thinking {
        prompt: prompt.cloned(),
        text: TruncatedText::new(text),
        open: true,
        summary: None,
        duration_ms: None,
    }
}

fn response_event(prompt: Option<&MessageId>, text: &str) -> TimelineEvent {
    TimelineEvent::Response {
        prompt: prompt.cloned(),
        text: TruncatedText::new(text),
        open: true,
        finish_reason: None,
        usage: None,
    }
}

fn truncated_usage(usage: &UsageStats) -> UsageStats {
    UsageStats {
        model: truncate_optional_line(usage.model.as_ref()),
        extra: ExtraFields::new(),
        ..usage.clone()
    }
}
