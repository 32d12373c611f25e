//! Decides on votes and amendments. Each person has one vote, on exactly what was shown.

use pvp_protocol::payload::{
    GateAmend, GateApprove, GateOutcome, GateReject, GateResolve, ResolutionCause, ToolApprove,
    ToolReject,
};
use pvp_protocol::{
    Action, Category, Command, Digest, MessageId, ParticipantId, QuorumRule, Refusal, Role,
    ServerMessage,
};

use super::claims::{raise_to_claimed_kind, raise_to_claimed_risk};
use super::proposals::proposal_id_of;
use super::{Answer, AnswerResult, DecisionBuilder};
use crate::gate::Gate;
use crate::input::SubmittedMessage;
use crate::member::Member;
use crate::proposal::{Proposal, ProposalStage};

/// The longest comment of an approval, in bytes. The log repeats all comments of a gate twice.
const MAX_COMMENT_BYTES: usize = 4096;

/// A vote, sent as `gate.*` or as `tool.*`.
pub(super) struct Ballot {
    /// The gate's id, or that of its proposal.
    gate: MessageId,
    /// The digest of the action that was shown; `None` if the client sends none.
    digest: Option<Digest>,
    /// The size of the comment, to check its limit.
    comment_bytes: usize,
    /// Why the command is rejected; `None` for an approval.
    reason: Option<String>,
    /// What to do instead, if the voter says so.
    suggestion: Option<String>,
    /// The message to log.
    message: ServerMessage,
}

impl From<ToolApprove> for Ballot {
    fn from(vote: ToolApprove) -> Self {
        let (gate, digest) = (vote.tool_proposal.clone(), vote.digest);
        Self {
            gate,
            digest,
            comment_bytes: vote.comment.as_ref().map_or(0, String::len),
            reason: None,
            suggestion: None,
            message: vote.into(),
        }
    }
}

impl From<GateApprove> for Ballot {
    fn from(vote: GateApprove) -> Self {
        let (gate, digest) = (vote.gate.clone(), vote.digest);
        Self {
            gate,
            digest,
            comment_bytes: vote.comment.as_ref().map_or(0, String::len),
            reason: None,
            suggestion: None,
            message: vote.into(),
        }
    }
}

impl From<ToolReject> for Ballot {
    fn from(vote: ToolReject) -> Self {
        Self {
            gate: vote.tool_proposal.clone(),
            digest: vote.digest,
            comment_bytes: 0,
            reason: Some(vote.reason.clone()),
            suggestion: vote.suggestion.clone(),
            message: vote.into(),
        }
    }
}

impl From<GateReject> for Ballot {
    fn from(vote: GateReject) -> Self {
        Self {
            gate: vote.gate.clone(),
            digest: vote.digest,
            comment_bytes: 0,
            reason: Some(vote.reason.clone()),
            suggestion: None,
            message: vote.into(),
        }
    }
}

impl DecisionBuilder<'_> {
    pub(super) fn approve(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        ballot: Ballot,
    ) -> AnswerResult {
        self.check_may_vote(by, &ballot)?;
        self.check_deadline(&ballot.gate)?;
        if ballot.comment_bytes > MAX_COMMENT_BYTES {
            let problem = format!("`comment` is at most {MAX_COMMENT_BYTES} bytes");
            return Err(Refusal::Malformed(problem));
        }
        if let Some(seq) = self.earlier_approval(by, &ballot.gate) {
            return Ok(Answer::Duplicate(seq));
        }
        let message = self.name_gate(ballot.message);
        let answer = self.relay(by, submitted, message);
        self.grant_passed_gates();
        Ok(answer)
    }

    pub(super) fn reject(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        ballot: Ballot,
    ) -> AnswerResult {
        let proposal = self.check_may_vote(by, &ballot)?;
        let message = self.name_gate(ballot.message);
        let told = matches!(message, ServerMessage::GateReject(_));
        let answer = self.relay(by, submitted, message);
        let resolve = GateResolve {
            reason: ballot.reason,
            suggestion: ballot.suggestion,
            ..self.build_resolution(
                &proposal,
                GateOutcome::Rejected,
                ResolutionCause::Rejection,
                Some(by),
            )
        };
        match told {
            true => {
                self.append_system(resolve, Some(proposal));
            }
            false => self.close_gate(resolve),
        }
        Ok(answer)
    }

    /// A vote that names its gate as published clients do: by the proposal.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a ballot is one of these four messages"
    )]
    fn name_gate(&self, mut message: ServerMessage) -> ServerMessage {
        let names = |id: &MessageId| {
            let proposal = proposal_id_of(self, id).unwrap_or_else(|| id.clone());
            let open = self.session.proposals.get(&proposal);
            let gate_request = open.and_then(|open| open.gate.clone());
            (proposal, gate_request)
        };
        match &mut message {
            ServerMessage::GateApprove(vote) => {
                (vote.gate, vote.gate_request) = names(&vote.gate);
            }
            ServerMessage::GateReject(vote) => {
                (vote.gate, vote.gate_request) = names(&vote.gate);
            }
            ServerMessage::ToolApprove(vote) => vote.tool_proposal = names(&vote.tool_proposal).0,
            ServerMessage::ToolReject(vote) => vote.tool_proposal = names(&vote.tool_proposal).0,
            _ => {}
        }
        message
    }

    /// Closes a gate that did not pass, in our own words and in those of the published protocol.
    pub(super) fn close_gate(&mut self, resolve: GateResolve) {
        let proposal = resolve.tool_proposal.clone();
        let proposer = self.session.proposals.get(&proposal);
        let proposer = proposer.map(|open| open.proposer.clone());
        let published = proposer.is_some_and(|proposer| self.is_published_agent(&proposer));
        let reason = rejection_reason(&resolve);
        let gate_request = Some(resolve.gate.clone());
        self.append_system(resolve, Some(proposal.clone()));
        if published {
            self.append_rejection(proposal, gate_request, reason);
        }
    }

    /// Whether a proposer may wait for messages of the published protocol: an agent that announces
    /// no executor does not know this server's own.
    pub(super) fn is_published_agent(&self, proposer: &ParticipantId) -> bool {
        let proposer = self.session.members.get(proposer);
        self.decision_context.settings.open_mode || proposer.is_some_and(Member::is_published_agent)
    }

    /// Tells in the words of the published protocol that a proposal is over.
    pub(super) fn append_rejection(
        &mut self,
        proposal: MessageId,
        gate_request: Option<MessageId>,
        reason: String,
    ) {
        let rejection = GateReject::by_server(proposal.clone(), gate_request, reason);
        self.append_system(rejection, Some(proposal));
    }

    /// The sequence number of this voter's approval of the action that waits at the gate, if there
    /// is one. Approving it again says nothing new.
    fn earlier_approval(&self, by: &ParticipantId, gate: &MessageId) -> Option<u64> {
        let (_, gate) = self.find_open_gate(gate).ok()?;
        gate.approvals.get(by)?;
        gate.approval_seqs.get(by).copied()
    }

    /// The proposal that a ballot is for, if this voter may vote on it.
    fn check_may_vote(&self, by: &ParticipantId, ballot: &Ballot) -> Result<MessageId, Refusal> {
        let (proposal, gate) = self.find_open_gate(&ballot.gate)?;
        if proposal.proposer == *by && !self.session.config.solo {
            return Err(Refusal::OwnProposal);
        }
        if self.session.config.four_eyes && gate.amended_by.as_ref() == Some(by) {
            return Err(Refusal::OwnAmendment);
        }
        self.check_escalation(gate)?;
        self.check_voting_role(by, gate)?;
        let shown = match ballot.digest {
            Some(digest) => digest == proposal.assessment.digest,
            // A client that does not know of edits has seen only the first version.
            None => gate.amended_by.is_none(),
        };
        if !shown {
            return Err(Refusal::CommandChanged);
        }
        Ok(proposal.id.clone())
    }

    /// Refuses everyone but admins after the first deadline.
    pub(super) fn check_escalation(&self, gate: &Gate) -> Result<(), Refusal> {
        if gate.escalated && !self.sender()?.has_role(Role::Admin) {
            let problem = "the deadline has passed and the gate went to the admins";
            return Err(Refusal::Unauthorized(problem.to_owned()));
        }
        Ok(())
    }

    /// Refuses a vote that would count for a role which the voter holds and their token does not.
    pub(super) fn check_voting_role(&self, by: &ParticipantId, gate: &Gate) -> Result<(), Refusal> {
        let QuorumRule::Role { role, .. } = gate.request.quorum else {
            return Ok(());
        };
        if self.session.members[by].has_role(role) && !self.sender()?.has_role(role) {
            return Err(Refusal::Unauthorized(format!(
                "this gate counts the votes of {}s, and your token does not have that role",
                role.as_str()
            )));
        }
        Ok(())
    }

    /// Refuses an approval after the deadline, even if the deadline has not acted yet.
    fn check_deadline(&self, gate: &MessageId) -> Result<(), Refusal> {
        let (_, gate) = self.find_open_gate(gate)?;
        if gate.is_due(self.at) {
            return Err(Refusal::GateClosed("its deadline has passed".to_owned()));
        }
        Ok(())
    }

    fn find_open_gate(&self, id: &MessageId) -> Result<(&Proposal, &Gate), Refusal> {
        let name = proposal_id_of(self, id).ok_or_else(|| Refusal::NoSuchGate(id.clone()))?;
        // Open ones first: what is remembered of closed ones is a hash that an open one may share.
        let Some(proposal) = self.session.proposals.get(&name) else {
            let closed = self.session.closed_proposals.get(&name);
            let outcome = closed.map_or_else(String::new, |closed| closed.outcome_text());
            return Err(Refusal::GateClosed(format!("the proposal is {outcome}")));
        };
        match &proposal.stage {
            ProposalStage::Gated(gate) => Ok((proposal, gate)),
            ProposalStage::Assessed | ProposalStage::Cleared | ProposalStage::Running(_) => {
                Err(Refusal::GateClosed("the command was granted".to_owned()))
            }
        }
    }

    pub(super) fn gate_amend(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut amend: GateAmend,
    ) -> AnswerResult {
        self.check_deadline(&amend.gate)?;
        let (proposal, gate) = self.find_open_gate(&amend.gate)?;
        let (proposal, gate_id) = (proposal.clone(), gate.id.clone());
        if amend.digest != proposal.assessment.digest {
            return Err(Refusal::CommandChanged);
        }
        self.check_escalation(gate)?;
        let tool = match &proposal.action.command {
            Command::Shell { .. } | Command::Argv { .. } => "shell".to_owned(),
            Command::Tool { name, .. } => name.clone(),
            Command::LoginShell { .. } => {
                let problem = "a person's own command is not edited by others; reject it instead";
                return Err(Refusal::InvalidState(problem.to_owned()));
            }
        };
        self.check_takes_edits(&proposal.executor)?;
        let action = Action::from_arguments(&tool, &amend.arguments)
            .map_err(|error| Refusal::Malformed(error.to_string()))?;
        self.check_action(&action)?;
        if action == proposal.action {
            return Err(Refusal::InvalidState("the edit changes nothing".to_owned()));
        }
        let mut assessment = self.assess(&action, &proposal.executor);
        self.note_unbound_files(&mut assessment, &action, &proposal.executor);
        // What the agent said of its call holds for an edit of it, too.
        raise_to_claimed_risk(&mut assessment, proposal.claimed_risk);
        raise_to_claimed_kind(
            &mut assessment,
            proposal.tool_kind,
            proposal.claimed_category,
        );
        if assessment.category == Category::Blocked {
            let (rule, reason) = (assessment.rule, assessment.reason);
            return Err(Refusal::Blocked { rule, reason });
        }
        amend.gate = gate_id;
        amend.quorum = Some(self.quorum_for_action(&proposal, &action, &assessment));
        amend.deadline = self.gate_deadline();
        amend.voters = Some(self.electorate(&proposal.proposer));
        amend.assessment = Some(assessment);
        Ok(self.relay(by, submitted, amend))
    }

    /// Refuses an edit that the executor would not run.
    fn check_takes_edits(&self, executor: &ParticipantId) -> Result<(), Refusal> {
        let member = self.session.members.get(executor);
        match member.and_then(|member| member.announce.executor.as_ref()) {
            Some(info) if info.edits => Ok(()),
            Some(_) => Err(Refusal::InvalidState(format!(
                "`{executor}` runs only what it proposed itself; reject the command, and say what \
                 to run instead"
            ))),
            None => Err(Refusal::InvalidState(format!(
                "`{executor}` cannot be told of an edit, because it did not announce that it runs \
                 commands for this server; reject the command, and say what to run instead"
            ))),
        }
    }

    /// Grants every gate that has passed, after a vote or a change of who may vote.
    pub(super) fn grant_passed_gates(&mut self) {
        if self.session.paused_for().is_some() || self.session.has_ended() {
            return;
        }
        let passed: Vec<_> = self
            .session
            .open_gates()
            .into_iter()
            .filter(|(_, gate)| !gate.is_due(self.at))
            .filter_map(|(proposal, gate)| {
                let approvers = self.session.approvers(gate, &proposal.proposer);
                gate.clear_by_quorum(proposal, &approvers)
            })
            .collect();
        for clearance in passed {
            let proposal = clearance.proposal.clone();
            let resolve = GateResolve {
                approvals: clearance.approvals.clone(),
                ..self.build_resolution(
                    &proposal,
                    GateOutcome::Approved,
                    ResolutionCause::Quorum,
                    None,
                )
            };
            self.append_system(resolve, Some(proposal));
            self.append_grant(clearance);
        }
    }

    /// Closes a gate without a decision by its voters.
    pub(super) fn append_resolution(
        &mut self,
        proposal: &MessageId,
        outcome: GateOutcome,
        cause: ResolutionCause,
        by: Option<&ParticipantId>,
    ) {
        let resolve = self.build_resolution(proposal, outcome, cause, by);
        match outcome {
            GateOutcome::Approved => {
                self.append_system(resolve, Some(proposal.clone()));
            }
            GateOutcome::Rejected | GateOutcome::TimedOut | GateOutcome::Cancelled => {
                self.close_gate(resolve);
            }
        }
    }

    pub(super) fn build_resolution(
        &self,
        proposal: &MessageId,
        outcome: GateOutcome,
        cause: ResolutionCause,
        by: Option<&ParticipantId>,
    ) -> GateResolve {
        let (_, gate) = self
            .find_open_gate(proposal)
            .expect("only open gates are resolved");
        GateResolve {
            gate: gate.id.clone(),
            tool_proposal: proposal.clone(),
            outcome,
            how: cause,
            at: self.at,
            approvals: gate.approvals.values().cloned().collect(),
            by: by.cloned(),
            reason: None,
            suggestion: None,
            rule: None,
        }
    }
}

/// Why a gate did not pass, for an agent that reads nothing else.
fn rejection_reason(resolve: &GateResolve) -> String {
    let by = resolve.by.as_ref();
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let what = match resolve.how {
        ResolutionCause::Rejection => format!("rejected{by}"),
        ResolutionCause::Cancel => format!("cancelled{by}"),
        ResolutionCause::ProposerLeft => "cancelled: its agent left the session".to_owned(),
        ResolutionCause::SessionEnded => "cancelled: the session has ended".to_owned(),
        ResolutionCause::Deadline | ResolutionCause::Clock => "timed out".to_owned(),
        ResolutionCause::Quorum => "closed".to_owned(),
    };
    let suggestion = resolve.suggestion.as_ref();
    let suggestion = suggestion.map(|text| format!("suggestion: {text}"));
    let parts = [Some(what), resolve.reason.clone(), suggestion];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.join("; ")
}
