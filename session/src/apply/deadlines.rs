//! What happens by itself when its time has come.

use pvp_protocol::payload::{
    GateOutcome, GateResolve, GateTimeout, ResolvedHow, SecretRevoke, TimeoutResolution,
};
use pvp_protocol::{Extra, GateTimeoutAction, MessageId};

use super::Decision;
use super::proposals::admins;
use crate::entry::Audience;
use crate::gate::{Clearance, Gate, escalated};
use crate::proposal::Proposal;

impl Decision<'_> {
    /// Everything that is due, oldest first.
    pub(super) fn tick(&mut self) {
        let due: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .filter(|(_, gate)| gate.is_due(self.at))
            .map(|(proposal, gate)| ((*proposal).clone(), (*gate).clone()))
            .collect();
        for (proposal, gate) in due {
            self.gate_is_due(&proposal, &gate);
        }
        let overdue: Vec<_> = self
            .session
            .running()
            .filter(|(_, execution)| execution.deadline.is_some_and(|due| due <= self.at))
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in overdue {
            self.give_up(&proposal, "no result came within its time limit");
        }
        self.expire_secrets();
    }

    fn gate_is_due(&mut self, proposal: &Proposal, gate: &Gate) {
        let paused = self.session.paused().is_some() || self.session.has_ended();
        match gate.request.on_timeout {
            GateTimeoutAction::Escalate if !gate.escalated => self.escalate(proposal, gate),
            GateTimeoutAction::AutoApprove if !paused => match gate.clear_by_clock(proposal) {
                Some(clearance) => self.clock_approves(proposal, gate, clearance),
                None => self.time_out(proposal, gate),
            },
            GateTimeoutAction::Escalate
            | GateTimeoutAction::AutoApprove
            | GateTimeoutAction::Reject => self.time_out(proposal, gate),
        }
    }

    fn time_out(&mut self, proposal: &Proposal, gate: &Gate) {
        let timeout = self.timeout(proposal, gate, TimeoutResolution::Rejected);
        self.tell(timeout, Some(proposal.id.clone()));
        let resolve = GateResolve {
            reason: Some("nobody decided before the deadline".to_owned()),
            ..self.resolution(
                &proposal.id,
                GateOutcome::TimedOut,
                ResolvedHow::Deadline,
                None,
            )
        };
        self.tell(resolve, Some(proposal.id.clone()));
    }

    fn clock_approves(&mut self, proposal: &Proposal, gate: &Gate, clearance: Clearance) {
        let timeout = self.timeout(proposal, gate, TimeoutResolution::AutoApproved);
        self.tell(timeout, Some(proposal.id.clone()));
        self.resolve(
            &proposal.id,
            GateOutcome::Approved,
            ResolvedHow::Clock,
            None,
        );
        self.grant(clearance);
    }

    fn escalate(&mut self, proposal: &Proposal, gate: &Gate) {
        let config = &self.session.config;
        let seconds = gate
            .request
            .timeout_seconds
            .max(config.gate_timeout_seconds);
        let timeout = GateTimeout {
            deadline: Some(self.at.plus_seconds(u64::from(seconds))),
            quorum: Some(escalated(&gate.request.quorum)),
            voters: Some(admins(self, &proposal.proposer).into_iter().collect()),
            ..self.timeout(proposal, gate, TimeoutResolution::Escalated)
        };
        self.tell(timeout, Some(proposal.id.clone()));
        self.settle_gates();
    }

    fn timeout(
        &self,
        proposal: &Proposal,
        gate: &Gate,
        resolution: TimeoutResolution,
    ) -> GateTimeout {
        let tally = gate.tally(&self.session.approvers(gate, &proposal.proposer));
        GateTimeout {
            gate: gate.id.clone(),
            approvals_received: tally.received,
            approvals_required: tally.required,
            resolution,
            deadline: None,
            quorum: None,
            voters: None,
        }
    }

    fn expire_secrets(&mut self) {
        let expired: Vec<_> = self
            .session
            .secrets
            .iter()
            .filter(|(_, secret)| secret.expires_at.is_some_and(|expires| expires <= self.at))
            .map(|(key, secret)| {
                (
                    key.clone(),
                    secret
                        .scope
                        .iter()
                        .chain([&secret.by])
                        .cloned()
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        for (key, people) in expired {
            let revoke = SecretRevoke {
                key,
                reason: "expired".to_owned(),
                extra: Extra::new(),
            };
            self.tell_to(revoke, None::<MessageId>, Audience::only(people), None);
        }
    }
}
