//! Talking with agents: prompts, what they think and answer, and interrupting them.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    InterruptAcknowledge, InterruptRaise, InterruptUrgency, PromptAmend, PromptDraft, PromptSubmit,
    ResponseEnd, ResponseStart, ThinkingEnd, ThinkingStart, UsageStats,
};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, Sender, Timestamp};
use serde::Serialize;

use super::text::{clip, line, some_line};
use super::timeline::{Text, Voice, What};
use super::{Told, View, push_newest};

/// Bytes of a draft that are kept: more than fits on the line that shows it.
const DRAFT_BYTES: usize = 16 * 1024;

/// Drafts that are kept, one a person; a session has at most 200 people unless its server allows
/// more.
const DRAFTS: usize = 200;

/// Interrupts that wait at a time; as many as the server remembers.
const INTERRUPTS: usize = 256;

/// Most context keys that are kept of a prompt.
const KEYS: usize = 64;

/// What someone else is typing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Draft {
    pub text: String,
    pub to: Option<ParticipantId>,
    pub at: Timestamp,
}

/// An interrupt that some agent has not acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenInterrupt {
    pub interrupt: MessageId,
    pub by: Sender,
    pub at: Timestamp,
    pub urgency: InterruptUrgency,
    pub target: Option<ParticipantId>,
    pub message: String,
    /// The agents that have not answered.
    pub awaited: BTreeSet<ParticipantId>,
}

impl View {
    pub(super) fn fold_draft(&mut self, told: &Told<'_>, draft: &PromptDraft) {
        let Some(by) = told.by().filter(|by| !self.is_me(by)) else {
            return;
        };
        if draft.content.is_empty() {
            self.drafts.remove(by);
        } else if self.drafts.len() < DRAFTS || self.drafts.contains_key(by) {
            let (text, to) = (
                clip(&draft.content, DRAFT_BYTES),
                draft.target_agent.clone(),
            );
            self.drafts.insert(
                by.clone(),
                Draft {
                    text,
                    to,
                    at: told.at,
                },
            );
        }
    }

    pub(super) fn fold_prompt(&mut self, told: &Told<'_>, prompt: &PromptSubmit) {
        if let Some(by) = told.by() {
            self.drafts.remove(by);
        }
        let keys = prompt.context_keys.iter().take(KEYS);
        let what = What::Prompt {
            text: Text::new(&prompt.content),
            to: prompt.target_agent.clone(),
            context_keys: keys.map(|key| line(key)).collect(),
        };
        self.tell(told, what);
    }

    pub(super) fn fold_prompt_amend(&mut self, told: &Told<'_>, amend: &PromptAmend) {
        let what = What::PromptAmended {
            prompt: amend.original_prompt.clone(),
            text: Text::new(&amend.amendment),
            reason: line(&amend.reason),
        };
        self.tell(told, what);
    }

    pub(super) fn fold_thinking_start(&mut self, told: &Told<'_>, start: &ThinkingStart) {
        self.tell(told, thinking(Some(&start.prompt_ref), ""));
    }

    pub(super) fn fold_response_start(&mut self, told: &Told<'_>, start: &ResponseStart) {
        self.tell(told, response(Some(&start.prompt_ref), ""));
    }

    pub(super) fn fold_thinking_chunk(&mut self, told: &Told<'_>, text: &str) {
        if !self
            .stream
            .grow(Voice::Thinking, told.who, told.reference, text)
        {
            self.begin_midway(told, thinking(None, text));
        }
    }

    pub(super) fn fold_response_chunk(&mut self, told: &Told<'_>, text: &str) {
        if !self
            .stream
            .grow(Voice::Response, told.who, told.reference, text)
        {
            self.begin_midway(told, response(None, text));
        }
    }

    /// A chunk whose beginning was before what was told begins an item under the id of its start.
    fn begin_midway(&mut self, told: &Told<'_>, what: What) {
        let id = told.reference.unwrap_or(told.id);
        let named = |item: &super::Item| item.id == *id;
        if self.stream.items.iter().any(named) {
            return;
        }
        self.tell(&Told { id, ..*told }, what);
    }

    pub(super) fn fold_thinking_end(&mut self, told: &Told<'_>, end: &ThinkingEnd) {
        let item = self.stream.open(Voice::Thinking, told.who, told.reference);
        if let Some(What::Thinking {
            open,
            summary,
            duration_ms,
            ..
        }) = item.map(|item| &mut item.what)
        {
            *open = false;
            *summary = some_line(end.summary.as_ref());
            *duration_ms = end.duration_ms;
        }
    }

    pub(super) fn fold_response_end(&mut self, told: &Told<'_>, end: &ResponseEnd) {
        let item = self.stream.open(Voice::Response, told.who, told.reference);
        if let Some(What::Response {
            open,
            finish_reason,
            usage,
            ..
        }) = item.map(|item| &mut item.what)
        {
            *open = false;
            *finish_reason = Some(end.finish_reason);
            *usage = end.usage.as_ref().map(bounded);
        }
    }

    pub(super) fn fold_interrupt(&mut self, told: &Told<'_>, interrupt: &InterruptRaise) {
        let (urgency, target) = (interrupt.urgency, interrupt.target.clone());
        let message = line(&interrupt.message);
        let what = What::Interrupted {
            target: target.clone(),
            urgency,
            message: message.clone(),
        };
        self.tell(told, what);
        let awaited = self.agents_meant(target.as_ref());
        if awaited.is_empty() {
            return;
        }
        let open = OpenInterrupt {
            interrupt: told.id.clone(),
            by: told.who.clone(),
            at: told.at,
            urgency,
            target,
            message,
            awaited,
        };
        push_newest(&mut self.interrupts, open, INTERRUPTS);
    }

    fn agents_meant(&self, target: Option<&ParticipantId>) -> BTreeSet<ParticipantId> {
        let agents = self
            .people
            .values()
            .filter(|person| person.is_present_agent());
        let meant = agents.filter(|agent| target.is_none_or(|target| *target == agent.id));
        meant.map(|agent| agent.id.clone()).collect()
    }

    pub(super) fn fold_acknowledge(&mut self, told: &Told<'_>, done: &InterruptAcknowledge) {
        let what = What::Acknowledged {
            interrupt: done.interrupt.clone(),
            action_taken: done.action_taken,
            reason: some_line(done.ignore_reason.as_ref()),
        };
        self.tell(told, what);
        let meant = |open: &&mut OpenInterrupt| open.interrupt == done.interrupt;
        if let Some(open) = self.interrupts.iter_mut().find(meant) {
            open.awaited.remove(&done.by);
        }
        self.interrupts.retain(|open| !open.awaited.is_empty());
    }
}

fn thinking(prompt: Option<&MessageId>, text: &str) -> What {
    What::Thinking {
        prompt: prompt.cloned(),
        text: Text::new(text),
        open: true,
        summary: None,
        duration_ms: None,
    }
}

fn response(prompt: Option<&MessageId>, text: &str) -> What {
    What::Response {
        prompt: prompt.cloned(),
        text: Text::new(text),
        open: true,
        finish_reason: None,
        usage: None,
    }
}

fn bounded(usage: &UsageStats) -> UsageStats {
    UsageStats {
        model: some_line(usage.model.as_ref()),
        extra: ExtraFields::new(),
        ..usage.clone()
    }
}
