//! Decides on prompts, thinking and responses.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    PromptAmend, PromptSubmit, ResponseEnd, ResponseStart, ThinkingStart, Visibility,
    VisibilityGroup,
};
use pvp_protocol::{MessageId, ParticipantId, Refusal, ServerMessage};

use super::{AnswerResult, DecisionBuilder};
use crate::entry::{Audience, Viewers};
use crate::input::SubmittedMessage;
use crate::state::AgentStreamKind;

/// The most streams that one agent may have open at a time.
const MAX_OPEN_STREAMS: usize = 32;

impl DecisionBuilder<'_> {
    pub(super) fn prompt_submit(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        prompt: PromptSubmit,
    ) -> AnswerResult {
        self.check_not_paused()?;
        // People answer prompts too.
        let target = self.session.members.get(&prompt.target_agent);
        if target.is_none_or(|target| target.left) {
            return Err(Refusal::NoSuchParticipant(prompt.target_agent));
        }
        Ok(self.relay(by, submitted, prompt))
    }

    pub(super) fn prompt_amend(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        amend: PromptAmend,
    ) -> AnswerResult {
        self.check_not_paused()?;
        if !self
            .session
            .prompts
            .values()
            .any(|prompt| prompt.id == amend.original_prompt)
        {
            let problem = format!("there is no recent prompt `{}`", amend.original_prompt);
            return Err(Refusal::InvalidState(problem));
        }
        Ok(self.relay(by, submitted, amend))
    }

    pub(super) fn thinking_start(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        start: ThinkingStart,
    ) -> AnswerResult {
        self.check_stream_limit(by)?;
        let most = self.decision_context.settings.limits.participants;
        if let Visibility::People(people) = &start.visible_to
            && people.len() > most as usize
        {
            return Err(Refusal::Malformed(format!(
                "`visible_to` names at most {most} people"
            )));
        }
        let who = match &start.visible_to {
            Visibility::Group(VisibilityGroup::All) => Viewers::Everyone,
            Visibility::Group(VisibilityGroup::ApproversOnly) => Viewers::Approvers {
                and: BTreeSet::from([by.clone()]),
            },
            Visibility::People(people) => {
                Viewers::Only(people.iter().chain([by]).cloned().collect())
            }
        };
        Ok(self.relay_to(by, submitted, start, Audience { who, fork: None }))
    }

    pub(super) fn response_start(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        start: ResponseStart,
    ) -> AnswerResult {
        self.check_stream_limit(by)?;
        Ok(self.relay(by, submitted, start))
    }

    /// Relays a chunk or the end of thinking to those who may see its start.
    pub(super) fn thinking_continue(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        message: impl Into<ServerMessage>,
    ) -> AnswerResult {
        self.continue_stream(by, submitted, message.into(), AgentStreamKind::Thinking)
    }

    pub(super) fn response_continue(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        message: impl Into<ServerMessage>,
    ) -> AnswerResult {
        self.continue_stream(by, submitted, message.into(), AgentStreamKind::Response)
    }

    /// Relays the end of a response. One that was never started, or has ended, is told all the same.
    pub(super) fn response_end(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        end: ResponseEnd,
    ) -> AnswerResult {
        let named = submitted.reference.as_ref();
        if self
            .find_open_stream(by, named, AgentStreamKind::Response)
            .is_ok()
        {
            return self.response_continue(by, submitted, end);
        }
        // It refers to nothing: a reference would end whatever stream it names.
        let submitted = SubmittedMessage {
            reference: None,
            ..submitted.clone()
        };
        Ok(self.relay(by, &submitted, end))
    }

    fn continue_stream(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        message: ServerMessage,
        kind: AgentStreamKind,
    ) -> AnswerResult {
        let (start, audience) = self.find_open_stream(by, submitted.reference.as_ref(), kind)?;
        let submitted = SubmittedMessage {
            reference: Some(start),
            ..submitted.clone()
        };
        Ok(self.relay_to(by, &submitted, message, audience))
    }

    /// The stream that a chunk belongs to: the one it names, or else the agent's latest.
    fn find_open_stream(
        &self,
        by: &ParticipantId,
        named: Option<&MessageId>,
        kind: AgentStreamKind,
    ) -> Result<(MessageId, Audience), Refusal> {
        self.session
            .agent_streams
            .iter()
            .filter(|(_, stream)| stream.agent == *by && stream.kind == kind)
            .filter(|(id, _)| named.is_none_or(|named| named == *id))
            .max_by_key(|(_, stream)| stream.started_seq)
            .map(|(id, stream)| (id.clone(), stream.audience.clone()))
            .ok_or_else(|| {
                Refusal::InvalidState(
                    "you have not started this; send its start message first".to_owned(),
                )
            })
    }

    fn check_stream_limit(&self, by: &ParticipantId) -> Result<(), Refusal> {
        let open = self
            .session
            .agent_streams
            .values()
            .filter(|stream| stream.agent == *by)
            .count();
        if open >= MAX_OPEN_STREAMS {
            return Err(Refusal::TooMany {
                what: "open streams",
                limit: MAX_OPEN_STREAMS as u64,
            });
        }
        Ok(())
    }
}
