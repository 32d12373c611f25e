//! Acts on deadlines that have passed.

use pvp_protocol::payload::{
    GateOutcome, GateResolve, GateTimeout, ResolutionCause, SecretRevoke, TimeoutResolution,
};
use pvp_protocol::{ExtraFields, GateTimeoutAction, MessageId};

use super::DecisionBuilder;
use super::proposals::eligible_admins;
use crate::gate::{Clearance, Gate, escalated_rule};
use crate::proposal::Proposal;

impl DecisionBuilder<'_> {
    /// Acts on every deadline that is due, oldest first.
    pub(super) fn tick(&mut self) {
        let due: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .filter(|(_, gate)| gate.is_due(self.at))
            .map(|(proposal, gate)| ((*proposal).clone(), (*gate).clone()))
            .collect();
        for (proposal, gate) in due {
            self.expire_gate(&proposal, &gate);
        }
        let overdue: Vec<_> = self
            .session
            .running()
            .filter(|(_, execution)| execution.deadline.is_some_and(|due| due <= self.at))
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in overdue {
            self.close_run_as_unknown(&proposal, "no result came within its time limit");
        }
        self.expire_deferred();
        self.expire_secrets();
    }

    fn expire_gate(&mut self, proposal: &Proposal, gate: &Gate) {
        let paused = self.session.paused_for().is_some() || self.session.has_ended();
        let category = proposal.assessment.category;
        match gate.request.on_timeout.for_gate(category, gate.escalated) {
            GateTimeoutAction::Escalate => self.escalate(proposal, gate),
            GateTimeoutAction::AutoApprove if !paused => match gate.clear_by_deadline(proposal) {
                Some(clearance) => self.approve_at_deadline(proposal, gate, clearance),
                None => self.reject_at_deadline(proposal, gate),
            },
            GateTimeoutAction::AutoApprove | GateTimeoutAction::Reject => {
                self.reject_at_deadline(proposal, gate)
            }
        }
    }

    fn reject_at_deadline(&mut self, proposal: &Proposal, gate: &Gate) {
        let timeout = self.build_timeout(proposal, gate, TimeoutResolution::Rejected);
        self.append_system(timeout, Some(proposal.id.clone()));
        let resolve = GateResolve {
            reason: Some("nobody decided before the deadline".to_owned()),
            ..self.build_resolution(
                &proposal.id,
                GateOutcome::TimedOut,
                ResolutionCause::Deadline,
                None,
            )
        };
        self.append_system(resolve, Some(proposal.id.clone()));
    }

    fn approve_at_deadline(&mut self, proposal: &Proposal, gate: &Gate, clearance: Clearance) {
        let timeout = self.build_timeout(proposal, gate, TimeoutResolution::AutoApproved);
        self.append_system(timeout, Some(proposal.id.clone()));
        self.append_resolution(
            &proposal.id,
            GateOutcome::Approved,
            ResolutionCause::Clock,
            None,
        );
        self.append_grant(clearance);
    }

    fn escalate(&mut self, proposal: &Proposal, gate: &Gate) {
        let config = &self.session.config;
        let seconds = gate
            .request
            .timeout_seconds
            .max(config.gate_timeout_seconds);
        let timeout = GateTimeout {
            deadline: Some(self.at.plus_seconds(u64::from(seconds))),
            quorum: Some(escalated_rule(&gate.request.quorum)),
            voters: Some(
                eligible_admins(self, &proposal.proposer)
                    .into_iter()
                    .collect(),
            ),
            ..self.build_timeout(proposal, gate, TimeoutResolution::Escalated)
        };
        self.append_system(timeout, Some(proposal.id.clone()));
        self.grant_passed_gates();
    }

    fn build_timeout(
        &self,
        proposal: &Proposal,
        gate: &Gate,
        resolution: TimeoutResolution,
    ) -> GateTimeout {
        let tally = gate.tally(&self.session.approvers(gate, &proposal.proposer));
        GateTimeout {
            gate: proposal.id.clone(),
            gate_request: Some(gate.id.clone()),
            approvals_received: tally.received,
            approvals_required: tally.required,
            resolution,
            deadline: None,
            quorum: None,
            voters: None,
        }
    }

    fn expire_secrets(&mut self) {
        let secrets = self.session.secrets.iter();
        let expired: Vec<_> = secrets
            .filter(|(_, secret)| secret.expires_at.is_some_and(|expires| expires <= self.at))
            .map(|(key, _)| key.clone())
            .collect();
        for key in expired {
            let revoke = SecretRevoke {
                key,
                reason: "expired".to_owned(),
                extra: ExtraFields::new(),
            };
            self.append_system(revoke, None::<MessageId>);
        }
    }
}
