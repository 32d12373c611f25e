//! Grants, each of which permits one executor to run one action, once.

use pvp_protocol::payload::{AllowedBy, GrantTerms, ToolExecute};
use pvp_protocol::{
    ExecutionLimits, ExtraFields, MessageId, ParticipantId, RunMode, SandboxProfile, Timestamp,
};

use crate::entry::GrantNonce;
use crate::gate::Clearance;
use crate::proposal::Proposal;

/// Permission to run one action, once. Only a clearance gives one, and only the `tool.execute`
/// entry consumes it.
///
/// ```compile_fail
/// let forged = pvp_session::Grant { .. };
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail
/// fn twice(grant: pvp_session::Grant) { let again = grant.clone(); }
/// ```
///
/// or read from a message:
///
/// ```compile_fail
/// let forged: pvp_session::Grant = serde_json::from_str("{}").unwrap();
/// ```
#[derive(Debug)]
pub struct Grant {
    proposal: MessageId,
    approved_by: Vec<ParticipantId>,
    terms: GrantTerms,
    nonce: Option<String>,
}

/// What an executor holds a run to, and the proof that it is the one who may run it.
pub(crate) struct RunTerms {
    /// Proves to the executor that this is its own copy.
    pub(crate) nonce: String,
    /// How long it may run, and how much it may print.
    pub(crate) limits: ExecutionLimits,
    /// The sandbox that it runs in.
    pub(crate) profile: SandboxProfile,
}

/// What the session adds to a clearance.
pub(crate) struct GrantDetails {
    /// The id of the grant.
    pub(crate) id: MessageId,
    /// What the executor holds the run to; `None` if a client runs it, which nothing holds.
    pub(crate) terms: Option<RunTerms>,
    /// When the grant can no longer be used.
    pub(crate) expires_at: Timestamp,
    /// What the clearance's rule allows, if a rule cleared the proposal.
    pub(crate) allowed_by: Option<AllowedBy>,
}

impl Grant {
    /// Spends a clearance on the proposal it is for.
    pub(crate) fn from_clearance(
        clearance: Clearance,
        proposal: &Proposal,
        details: GrantDetails,
    ) -> Self {
        assert_eq!(
            clearance.proposal, proposal.id,
            "a clearance is for one proposal"
        );
        assert_eq!(
            clearance.digest, proposal.assessment.digest,
            "and for exactly what was shown"
        );
        let approved_by: Vec<_> = clearance
            .approvals
            .iter()
            .map(|approval| approval.participant.clone())
            .collect();
        let driver = match proposal.action.mode {
            RunMode::Pty => proposal
                .action
                .driver
                .clone()
                .or_else(|| approved_by.first().cloned()),
            RunMode::Normal | RunMode::Slow | RunMode::Background => None,
        };
        let terms = GrantTerms {
            id: details.id,
            executor: proposal.executor.clone(),
            action: proposal.action.clone(),
            digest: clearance.digest,
            runs: proposal.runs(),
            limits: details.terms.as_ref().map(|terms| terms.limits),
            profile: details.terms.as_ref().map(|terms| terms.profile),
            expires_at: details.expires_at,
            cleared_by: clearance.cleared_by,
            approvals: clearance.approvals,
            rule: clearance.rule,
            allowed_by: details.allowed_by,
            driver,
            nonce: None,
            secret_env: None,
        };
        Self {
            proposal: clearance.proposal,
            approved_by,
            terms,
            nonce: details.terms.map(|terms| terms.nonce),
        }
    }

    /// The message for everyone, and the nonce for the executor alone, if one runs it.
    pub(crate) fn into_parts(self) -> (ToolExecute, Option<GrantNonce>) {
        let private = self.nonce.map(|nonce| GrantNonce {
            to: self.terms.executor.clone(),
            nonce,
        });
        let execute = ToolExecute {
            tool_proposal: self.proposal,
            approved_by: self.approved_by,
            grant: self.terms,
            extra: ExtraFields::new(),
        };
        (execute, private)
    }
}
