//! Decides on interrupts and their acknowledgements.

use pvp_protocol::payload::{
    GateOutcome, GateResolve, InterruptAcknowledge, InterruptAction, InterruptRaise,
    InterruptUrgency, ResolutionCause, ToolCancel,
};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, Refusal};

use super::context::SharedContent;
use super::{AnswerResult, DecisionBuilder};
use crate::input::SubmittedMessage;
use crate::member::Member;

impl DecisionBuilder<'_> {
    pub(super) fn interrupt_raise(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        interrupt: InterruptRaise,
    ) -> AnswerResult {
        if let Some(target) = &interrupt.target
            && !self
                .session
                .members
                .get(target)
                .is_some_and(Member::is_present_agent)
        {
            return Err(Refusal::NoSuchParticipant(target.clone()));
        }
        let answer = self.relay(by, submitted, interrupt.clone());
        self.share_injected_context(by, &submitted.id, &interrupt);
        match interrupt.urgency {
            InterruptUrgency::Pause => {}
            InterruptUrgency::Stop | InterruptUrgency::Emergency => {
                self.cancel_open_work(by, &interrupt);
            }
        }
        Ok(answer)
    }

    /// Tells what an interrupt brings as an item of context, where agents look for it.
    fn share_injected_context(
        &mut self,
        by: &ParticipantId,
        id: &MessageId,
        interrupt: &InterruptRaise,
    ) {
        let content = SharedContent {
            content: interrupt.inject_context.clone(),
            reference: interrupt.inject_context_ref.clone(),
            source: Some(by.to_string()),
        };
        self.share_context(format!("interrupt_{id}"), content, id.clone());
    }

    /// Withdraws proposals that wait, so that a late vote starts nothing, and cancels runs.
    fn cancel_open_work(&mut self, by: &ParticipantId, interrupt: &InterruptRaise) {
        let target = interrupt.target.as_ref();
        let concerned = |executor: &ParticipantId| target.is_none_or(|target| target == executor);
        let waiting: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .filter(|(proposal, _)| concerned(&proposal.executor))
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        let running: Vec<_> = self
            .session
            .running()
            .filter(|(proposal, _)| concerned(&proposal.executor))
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            let (outcome, how) = (GateOutcome::Cancelled, ResolutionCause::Cancel);
            let resolve = GateResolve {
                reason: Some(interrupt.message.clone()),
                ..self.build_resolution(&proposal, outcome, how, Some(by))
            };
            self.close_gate(resolve);
        }
        for tool_proposal in running {
            let reason = Some(format!("interrupted by {by}"));
            self.append_system(
                ToolCancel {
                    tool_proposal,
                    reason,
                    extra: ExtraFields::new(),
                },
                None,
            );
        }
    }

    pub(super) fn interrupt_acknowledge(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        acknowledgement: InterruptAcknowledge,
    ) -> AnswerResult {
        let id = &acknowledgement.interrupt;
        let open = self
            .session
            .interrupts
            .get(id)
            .filter(|open| open.awaited.contains(by));
        let Some(open) = open else {
            let problem = format!("no interrupt `{id}` waits for you");
            return Err(Refusal::InvalidState(problem));
        };
        if acknowledgement.action_taken == InterruptAction::Ignored
            && open.urgency != InterruptUrgency::Pause
        {
            return Err(Refusal::InvalidState(
                "stop and emergency may not be ignored".to_owned(),
            ));
        }
        Ok(self.relay(by, submitted, acknowledgement))
    }
}
