//! Interrupting agents.

use pvp_protocol::payload::{
    ActionTaken, GateOutcome, InterruptAcknowledge, InterruptRaise, InterruptUrgency, ResolvedHow,
    ToolCancel,
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
        let (urgency, target) = (interrupt.urgency, interrupt.target.clone());
        let answer = self.relay(by, said, interrupt);
        match urgency {
            InterruptUrgency::Pause => {}
            InterruptUrgency::Stop | InterruptUrgency::Emergency => {
                self.stop_work_of(by, target.as_ref());
            }
        }
        Ok(answer)
    }

    /// What waits is withdrawn, so that a late vote starts nothing; what runs is told to stop.
    fn stop_work_of(&mut self, by: &ParticipantId, target: Option<&ParticipantId>) {
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
            self.resolve(
                &proposal,
                GateOutcome::Cancelled,
                ResolvedHow::Cancel,
                Some(by),
            );
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
