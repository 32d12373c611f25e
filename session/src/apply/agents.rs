//! Prompts, and what agents think and answer.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    PromptAmend, PromptSubmit, ResponseStart, ThinkingStart, Visibility, VisibilityWord,
};
use pvp_protocol::{MessageId, ParticipantId, Refusal, ServerMessage};

use super::{Decided, Decision};
use crate::entry::{Audience, Who};
use crate::input::Said;
use crate::state::StreamKind;

/// Most streams that one agent has open at a time.
const MAX_STREAMS: usize = 32;

impl Decision<'_> {
    pub(super) fn prompt_submit(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        prompt: PromptSubmit,
    ) -> Decided {
        self.not_paused()?;
        let target = self.session.people.get(&prompt.target_agent);
        if !target.is_some_and(crate::Member::is_present_agent) {
            return Err(Refusal::NoSuchParticipant(prompt.target_agent));
        }
        Ok(self.relay(by, said, prompt))
    }

    pub(super) fn prompt_amend(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        amend: PromptAmend,
    ) -> Decided {
        self.not_paused()?;
        if !self
            .session
            .prompts
            .values()
            .any(|prompt| *prompt == amend.original_prompt)
        {
            let problem = format!("there is no recent prompt `{}`", amend.original_prompt);
            return Err(Refusal::InvalidState(problem));
        }
        Ok(self.relay(by, said, amend))
    }

    pub(super) fn thinking_start(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        start: ThinkingStart,
    ) -> Decided {
        self.may_begin(by)?;
        let most = self.terms.settings.limits.participants;
        if let Visibility::People(people) = &start.visible_to
            && people.len() > most as usize
        {
            return Err(Refusal::Malformed(format!(
                "`visible_to` names at most {most} people"
            )));
        }
        let who = match &start.visible_to {
            Visibility::Group(VisibilityWord::All) => Who::Everyone,
            Visibility::Group(VisibilityWord::ApproversOnly) => Who::Approvers {
                and: BTreeSet::from([by.clone()]),
            },
            Visibility::People(people) => Who::Only(people.iter().chain([by]).cloned().collect()),
        };
        Ok(self.relay_to(by, said, start, Audience { who, fork: None }))
    }

    pub(super) fn response_start(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        start: ResponseStart,
    ) -> Decided {
        self.may_begin(by)?;
        Ok(self.relay(by, said, start))
    }

    /// A chunk or the end of thinking is for those who may see its start.
    pub(super) fn thinking_goes_on(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        message: impl Into<ServerMessage>,
    ) -> Decided {
        self.goes_on(by, said, message.into(), StreamKind::Thinking)
    }

    pub(super) fn response_goes_on(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        message: impl Into<ServerMessage>,
    ) -> Decided {
        self.goes_on(by, said, message.into(), StreamKind::Response)
    }

    fn goes_on(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        message: ServerMessage,
        kind: StreamKind,
    ) -> Decided {
        let (start, audience) = self.open_stream(by, said.reference.as_ref(), kind)?;
        let said = Said {
            reference: Some(start),
            ..said.clone()
        };
        Ok(self.relay_to(by, &said, message, audience))
    }

    /// The stream a chunk belongs to: the one it names, else the agent's latest.
    fn open_stream(
        &self,
        by: &ParticipantId,
        named: Option<&MessageId>,
        kind: StreamKind,
    ) -> Result<(MessageId, Audience), Refusal> {
        self.session
            .streams
            .iter()
            .filter(|(_, stream)| stream.agent == *by && stream.kind == kind)
            .filter(|(id, _)| named.is_none_or(|named| named == *id))
            .max_by_key(|(_, stream)| stream.begun_seq)
            .map(|(id, stream)| (id.clone(), stream.audience.clone()))
            .ok_or_else(|| {
                Refusal::InvalidState(
                    "nothing of yours is open here; send its start first".to_owned(),
                )
            })
    }

    fn may_begin(&self, by: &ParticipantId) -> Result<(), Refusal> {
        let open = self
            .session
            .streams
            .values()
            .filter(|stream| stream.agent == *by)
            .count();
        if open >= MAX_STREAMS {
            return Err(Refusal::TooMany {
                what: "open streams",
                limit: MAX_STREAMS as u64,
            });
        }
        Ok(())
    }
}
