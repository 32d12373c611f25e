//! Interrupting agents.

use pvp_protocol::payload::{
    ActionTaken, GateOutcome, GateResolve, InterruptAcknowledge, InterruptRaise, InterruptUrgency,
    ResolvedHow, ToolCancel,
};
use pvp_protocol::{Extra, ParticipantId, Refusal};

use super::{Decided, Decision};
use crate::input::Said;
use crate::member::Member;

impl Decision<'_> {
    pub(super) fn interrupt(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        interrupt: InterruptRaise,
    ) -> Decided {
        if let Some(target) = &interrupt.target
            && !self
                .session
                .people
                .get(target)
                .is_some_and(Member::is_present_agent)
        {
            return Err(Refusal::NoSuchParticipant(target.clone()));
        }
        let answer = self.relay(by, said, interrupt.clone());
        match interrupt.urgency {
            InterruptUrgency::Pause => {}
            InterruptUrgency::Stop | InterruptUrgency::Emergency => {
                self.stop_work(by, &interrupt);
            }
        }
        Ok(answer)
    }

    /// What waits is withdrawn, so that a late vote starts nothing; what runs is told to stop.
    fn stop_work(&mut self, by: &ParticipantId, interrupt: &InterruptRaise) {
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
            let (outcome, how) = (GateOutcome::Cancelled, ResolvedHow::Cancel);
            let resolve = GateResolve {
                reason: Some(interrupt.message.clone()),
                ..self.resolution(&proposal, outcome, how, Some(by))
            };
            self.tell(resolve, Some(proposal));
        }
        for tool_proposal in running {
            let reason = Some(format!("interrupted by {by}"));
            self.tell(
                ToolCancel {
                    tool_proposal,
                    reason,
                    extra: Extra::new(),
                },
                None,
            );
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        acknowledgement: InterruptAcknowledge,
    ) -> Decided {
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
        if acknowledgement.action_taken == ActionTaken::Ignored
            && open.urgency != InterruptUrgency::Pause
        {
            return Err(Refusal::InvalidState(
                "stop and emergency may not be ignored".to_owned(),
            ));
        }
        Ok(self.relay(by, said, acknowledgement))
    }
}
