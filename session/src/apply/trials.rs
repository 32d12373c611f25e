//! Decides which commands are tried in the read sandbox, and what follows if that fails.

use pvp_protocol::payload::{DiscardedTrial, RunOutcome, ToolDiscard, ToolResult};
use pvp_protocol::{
    Action, Assessment, Category, ExecutionLimits, ExtraFields, MessageId, ParticipantId, Refusal,
    SandboxProfile,
};

use super::{Answer, AnswerResult, DecisionBuilder};
use crate::input::SubmittedMessage;
use crate::proposal::{ExecutionKind, ProposalStage};

/// What a command that is tried may use. Nobody waits long for a vote that may not be needed.
pub(super) const TRIAL_LIMITS: ExecutionLimits = ExecutionLimits {
    timeout_ms: 10_000,
    output_bytes: 1024 * 1024,
};

/// The most denials that a discarded trial may name.
const MAX_DENIALS: usize = 16;

/// The longest text about a discarded trial, in bytes.
const MAX_DENIAL_BYTES: usize = 1024;

/// Whether a proposal is tried before anybody is asked.
pub(super) enum TrialEligibility {
    Eligible,
    NotEligible,
    /// It would be tried, if the executor could, with a note for those who vote.
    NotPossible(String),
}

impl DecisionBuilder<'_> {
    /// Whether this session tries an action on this executor.
    pub(super) fn trial_eligibility(
        &self,
        action: &Action,
        assessment: &Assessment,
        executor: &ParticipantId,
    ) -> TrialEligibility {
        let workspace = self.workspace_of(executor);
        if !self.session.config.try_unknown
            || assessment.category != Category::Write
            || !self.decision_context.policy.may_try(action, &workspace)
        {
            return TrialEligibility::NotEligible;
        }
        match self.tries(executor) {
            true => TrialEligibility::Eligible,
            false => TrialEligibility::NotPossible(
                "not tried in the sandbox: the executor cannot count what it denies, or was told \
                 not to try"
                    .to_owned(),
            ),
        }
    }

    fn tries(&self, executor: &ParticipantId) -> bool {
        let member = self.session.members.get(executor);
        let executor_info = member.and_then(|member| member.announce.executor.as_ref());
        executor_info
            .is_some_and(|info| info.trials && info.profiles.contains(&SandboxProfile::Read))
    }

    /// Refuses the setting where executors are present and none of them tries commands.
    pub(super) fn check_somebody_tries(&self) -> Result<(), Refusal> {
        let mut executors = self
            .session
            .members()
            .filter(|(_, member)| member.announce.executor.is_some())
            .map(|(id, _)| id)
            .peekable();
        if executors.peek().is_none() || executors.any(|executor| self.tries(executor)) {
            return Ok(());
        }
        Err(Refusal::InvalidConfig(
            "`try_unknown` needs an executor that can count what its sandbox denies, and none here \
             can; `pvp doctor` on its machine says why"
                .to_owned(),
        ))
    }

    pub(super) fn tool_discard(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        discard: ToolDiscard,
    ) -> AnswerResult {
        let (_, execution) = self.find_own_run(by, &discard.tool_proposal)?;
        let problem = match execution.kind {
            ExecutionKind::Run => Some("this command was not tried but runs; send its result"),
            ExecutionKind::Trial if execution.output_bytes() > 0 => {
                Some("its output was sent already; send its result")
            }
            ExecutionKind::Trial => None,
        };
        if let Some(problem) = problem {
            return Err(Refusal::InvalidState(problem.to_owned()));
        }
        check_discarded_trial(&discard.trial)?;
        Ok(self.relay_discard(by, submitted, discard))
    }

    /// A result of a trial that has no output: nothing ran, or nobody knows how far.
    pub(super) fn discard_failed_trial(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        result: ToolResult,
    ) -> Answer {
        let reason = result.error.unwrap_or_default();
        let discard = discarded(&result.tool_proposal, &reason);
        self.relay_discard(by, submitted, discard)
    }

    fn relay_discard(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        discard: ToolDiscard,
    ) -> Answer {
        let proposal = discard.tool_proposal.clone();
        let cancelled = self.is_cancelled(&proposal);
        let answer = self.relay(by, submitted, discard);
        self.decide_after_trial(&proposal, cancelled);
        answer
    }

    /// Discards a trial that its executor will not report on; returns whether it was one. An
    /// executor that left takes its proposals with it, and output that was told stays told.
    pub(super) fn discard_lost_trial(&mut self, proposal: &MessageId, why: &str) -> bool {
        let Some(open) = self.session.proposals.get(proposal) else {
            return false;
        };
        let ProposalStage::Running(execution) = &open.stage else {
            return false;
        };
        let executor = self.session.members.get(&open.executor);
        let has_left = executor.is_none_or(|member| member.left);
        if execution.kind == ExecutionKind::Run || execution.output_bytes() > 0 || has_left {
            return false;
        }
        let cancelled = self.is_cancelled(proposal);
        self.append_system(discarded(proposal, why), Some(proposal.clone()));
        self.decide_after_trial(proposal, cancelled);
        true
    }

    fn is_cancelled(&self, proposal: &MessageId) -> bool {
        match self.session.proposals.get(proposal).map(|it| &it.stage) {
            Some(ProposalStage::Running(execution)) => execution.cancelled,
            Some(ProposalStage::Assessed | ProposalStage::Gated(_) | ProposalStage::Cleared)
            | None => false,
        }
    }

    /// Asks, as if the command had not been tried, unless somebody has cancelled it.
    fn decide_after_trial(&mut self, proposal: &MessageId, cancelled: bool) {
        if !cancelled && !self.session.has_ended() {
            let proposal = self.session.proposals[proposal].clone();
            self.open_gate(&proposal);
            return;
        }
        let result = ToolResult {
            tool_proposal: proposal.clone(),
            success: false,
            result: None,
            error: Some("stopped while it was tried in the sandbox".to_owned()),
            duration_ms: 0,
            outcome: Some(RunOutcome::Known),
            more_output: false,
            attested: false,
            extra: ExtraFields::new(),
        };
        self.append_system(result, Some(proposal.clone()));
    }
}

fn discarded(proposal: &MessageId, reason: &str) -> ToolDiscard {
    let end = reason.floor_char_boundary(MAX_DENIAL_BYTES);
    let visible = |c: &char| !c.is_control();
    let reason: String = reason[..end].chars().filter(visible).collect();
    ToolDiscard {
        tool_proposal: proposal.clone(),
        trial: DiscardedTrial {
            denied: Vec::new(),
            reason: (!reason.is_empty()).then_some(reason),
        },
        extra: ExtraFields::new(),
    }
}

/// Checks what an executor says about a trial, because it is shown to those who vote.
fn check_discarded_trial(trial: &DiscardedTrial) -> Result<(), Refusal> {
    let texts = || trial.denied.iter().chain(&trial.reason);
    let bad = |text: &String| text.len() > MAX_DENIAL_BYTES || text.chars().any(char::is_control);
    if trial.denied.len() > MAX_DENIALS || texts().any(bad) {
        return Err(Refusal::Malformed(format!(
            "`trial` names at most {MAX_DENIALS} denials, of at most {MAX_DENIAL_BYTES} bytes each \
             and without control characters"
        )));
    }
    Ok(())
}
