//! A gate card: everything a person needs to decide a gate, and whether they may vote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pvp_protocol::payload::{Approval, GateRequest};
use pvp_protocol::{
    Approvers, Category, Digest, GateTimeoutAction, MessageId, ParticipantId, ParticipantKind,
    ParticipantTimeoutAction, QuorumRule, Role, SessionConfig, Timestamp, dependent_approvals,
    tally,
};
use serde::Serialize;

use super::participants::{ParticipantView, SelfView};
use super::requested_action::RequestedAction;
use super::text::truncate_line;

/// Whether the viewer may vote, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteEligibility {
    MayVote,
    /// The viewer has approved, and may still reject.
    Approved,
    /// The viewer is not in the session.
    NotHere,
    /// Agents never vote.
    Agent,
    /// The viewer proposed the command.
    Proposer,
    /// The viewer's roles do not include approving.
    NotAnApprover,
    /// Under the four-eyes rule, whoever edited a command does not vote on it.
    Editor,
    /// The deadline has passed, so only admins decide.
    AdminsOnly,
    /// The command is too long to be shown whole.
    NotShownWhole,
}

impl VoteEligibility {
    /// Whether a vote of the viewer would count.
    pub fn may_vote(self) -> bool {
        match self {
            VoteEligibility::MayVote | VoteEligibility::Approved => true,
            VoteEligibility::NotHere
            | VoteEligibility::Agent
            | VoteEligibility::Proposer
            | VoteEligibility::NotAnApprover
            | VoteEligibility::Editor
            | VoteEligibility::AdminsOnly
            | VoteEligibility::NotShownWhole => false,
        }
    }

    /// The eligibility as a sentence to show.
    pub fn description(self) -> &'static str {
        match self {
            VoteEligibility::MayVote => "you may vote",
            VoteEligibility::Approved => "you approved; you may still reject",
            VoteEligibility::NotHere => "you are not in this session",
            VoteEligibility::Agent => "agents cannot vote; a person has to decide",
            VoteEligibility::Proposer => "you proposed this, so somebody else has to decide",
            VoteEligibility::NotAnApprover => "your roles do not include approving",
            VoteEligibility::Editor => "you edited this, so somebody else has to decide",
            VoteEligibility::AdminsOnly => "the deadline has passed; the admins decide",
            VoteEligibility::NotShownWhole => {
                "the command is too long to be shown in full, so it cannot be approved here"
            }
        }
    }
}

/// What it would do if the viewer allowed commands that begin like the one on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixOffer {
    /// No rule can cover the command, or the viewer may not make one.
    NotPossible,
    /// The rule is also the vote that this command still needs.
    AlsoApproves,
    /// The rule covers later commands only; this one still needs its votes.
    LaterOnly,
}

/// An open gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateCard {
    /// The gate's id.
    pub gate: MessageId,
    /// The id of the proposal that waits at the gate.
    pub proposal: MessageId,
    /// When the gate opened; `None` if that was before the messages received.
    pub opened_at: Option<Timestamp>,
    /// The action to decide on.
    #[serde(flatten)]
    pub requested: Arc<RequestedAction>,
    /// The category of the command.
    pub category: Category,
    /// The digest of the action as shown; a vote names it and counts only for that action.
    pub digest: Digest,
    /// The server's description of what the gate waits for.
    pub message: String,
    /// Who must approve, and how many.
    pub quorum: QuorumRule,
    /// The quorum in words.
    pub quorum_words: String,
    /// The approvals given so far.
    pub votes: BTreeMap<ParticipantId, Approval>,
    /// Who could approve when the gate opened, except those who have since left or lost the right.
    pub voters: BTreeSet<ParticipantId>,
    /// How many approvals count so far.
    pub received: u32,
    /// How many approvals the gate needs.
    pub required: u32,
    /// Approvals that do not count as those of one more person, and who keeps them from it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_counted: BTreeMap<ParticipantId, ParticipantId>,
    /// Participants who must approve and have not.
    pub awaited: BTreeSet<ParticipantId>,
    /// Participants who have not approved and whose approval would count.
    pub undecided: BTreeSet<ParticipantId>,
    /// Whether the viewer may vote.
    pub standing: VoteEligibility,
    /// What it would do if the viewer allowed commands that begin like this one.
    pub allow_prefix: PrefixOffer,
    /// When the gate times out; `None` if it never does.
    pub deadline: Option<Timestamp>,
    /// What happens at the deadline.
    pub on_timeout: GateTimeoutAction,
    /// What happens at the deadline, as a sentence to show.
    pub at_deadline: String,
    /// The first deadline has passed, so only admins decide.
    pub escalated: bool,
}

/// Everything outside a card that its tally depends on.
pub(super) struct TallyContext<'a> {
    pub(super) people: &'a BTreeMap<ParticipantId, ParticipantView>,
    pub(super) config: &'a SessionConfig,
    pub(super) me: Option<&'a SelfView>,
}

impl GateCard {
    pub(super) fn new(
        gate: MessageId,
        request: &GateRequest,
        requested: Arc<RequestedAction>,
    ) -> Self {
        Self {
            gate,
            proposal: request.action_ref.clone(),
            opened_at: None,
            requested,
            category: request.category,
            digest: request.digest,
            message: truncate_line(&request.message),
            quorum: request.quorum.clone(),
            quorum_words: String::new(),
            votes: BTreeMap::new(),
            voters: request.voters.iter().cloned().collect(),
            received: 0,
            required: 0,
            not_counted: BTreeMap::new(),
            awaited: BTreeSet::new(),
            undecided: BTreeSet::new(),
            standing: VoteEligibility::NotHere,
            allow_prefix: PrefixOffer::NotPossible,
            deadline: request.deadline,
            on_timeout: request.on_timeout,
            at_deadline: String::new(),
            escalated: false,
        }
    }

    /// Whether the id is that of this card's gate or of its proposal.
    pub fn has_id(&self, id: &MessageId) -> bool {
        self.gate == *id || self.proposal == *id
    }

    /// The category as people read it.
    pub fn category_label(&self) -> &'static str {
        let assessment = self.requested.assessment.as_ref();
        let sensitive_read = assessment.is_some_and(|assessment| assessment.sensitive_read);
        self.category.label(sensitive_read)
    }

    /// Milliseconds until the deadline; `None` if there is none.
    pub fn remaining_ms(&self, now: Timestamp) -> Option<u64> {
        self.deadline.map(|deadline| deadline.millis_since(now))
    }

    /// Recomputes the tally after the card or its context changed.
    pub(super) fn recount(&mut self, context: &TallyContext<'_>) {
        let approvers = self.approvers(context);
        let approved = self.votes.keys().cloned().collect();
        let tally = tally(&self.quorum, &approvers, &approved);
        self.not_counted = dependent_approvals(&self.quorum, &approvers, &approved);
        self.received = tally.received;
        self.required = tally.required;
        self.awaited = tally.awaited;
        self.undecided = self.undecided_voters(&approvers);
        self.standing = self.vote_eligibility(context);
        self.allow_prefix = self.prefix_offer(context, &approvers);
        self.quorum_words = self.quorum.to_string();
        self.at_deadline = self.deadline_description().to_owned();
    }

    /// How many approvals are still missing.
    pub fn missing_approvals(&self) -> u32 {
        self.required.saturating_sub(self.received)
    }

    fn prefix_offer(&self, context: &TallyContext<'_>, approvers: &Approvers) -> PrefixOffer {
        let me = context.me.filter(|me| me.may_approve);
        // Where a session asks for every tool of a kind, no rule answers.
        let always_asks = !context.config.require_approval_for.is_empty();
        let Some(me) = me.filter(|_| !self.requested.prefix.is_empty() && !always_asks) else {
            return PrefixOffer::NotPossible;
        };
        if !may_allow_alone(&me.participant, context) {
            return PrefixOffer::NotPossible;
        }
        let voted = self
            .votes
            .keys()
            .chain([&me.participant])
            .cloned()
            .collect();
        let passes = tally(&self.quorum, approvers, &voted).passed;
        match passes && approvers.eligible.contains(&me.participant) {
            true => PrefixOffer::AlsoApproves,
            false => PrefixOffer::LaterOnly,
        }
    }

    /// The participants whose approval counts, as far as this client knows; the server's own list
    /// is decisive.
    fn approvers(&self, context: &TallyContext<'_>) -> Approvers {
        let skip_absent = context.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let mut approvers = Approvers {
            owner: self.owner(context),
            ..Approvers::default()
        };
        for (id, participant) in context.people {
            if let Some(inviter) = &participant.invited_by
                && context.config.quorum_independent
                && !participant.invited_before_session
            {
                approvers.invited_by.insert(id.clone(), inviter.clone());
            }
            if !participant.may_vote() || self.ineligibility(participant, context.config).is_some()
            {
                continue;
            }
            approvers.eligible.insert(id.clone());
            let roles = participant.roles.iter().copied().collect();
            approvers.roles.insert(id.clone(), roles);
            if self.voters.contains(id) && !(skip_absent && participant.timed_out) {
                approvers.electorate.insert(id.clone());
            }
        }
        approvers
    }

    /// Whom the proposal speaks for: a person for themselves, an agent for who invited it.
    fn owner(&self, context: &TallyContext<'_>) -> Option<ParticipantId> {
        let proposer = self.requested.proposer.as_ref()?;
        let participant = context.people.get(proposer)?;
        match participant.kind {
            ParticipantKind::Human => Some(proposer.clone()),
            ParticipantKind::Agent => participant.invited_by.clone(),
        }
    }

    /// Why a participant who may approve in general may not vote on this card.
    fn ineligibility(
        &self,
        participant: &ParticipantView,
        config: &SessionConfig,
    ) -> Option<VoteEligibility> {
        if self.requested.proposer.as_ref() == Some(&participant.id) && !config.solo {
            return Some(VoteEligibility::Proposer);
        }
        if config.four_eyes && self.requested.edited_by.as_ref() == Some(&participant.id) {
            return Some(VoteEligibility::Editor);
        }
        let needs_admin = self.escalated && !participant.roles.contains(&Role::Admin);
        needs_admin.then_some(VoteEligibility::AdminsOnly)
    }

    fn undecided_voters(&self, approvers: &Approvers) -> BTreeSet<ParticipantId> {
        let would_count = |id: &&ParticipantId| match &self.quorum {
            QuorumRule::Any { .. } | QuorumRule::Majority => true,
            QuorumRule::All => {
                approvers.electorate.is_empty() || approvers.electorate.contains(*id)
            }
            QuorumRule::Role { role, .. } => approvers
                .roles
                .get(*id)
                .is_some_and(|roles| roles.contains(role)),
            QuorumRule::Specific { participants } => participants.contains(id),
        };
        let voted: BTreeSet<_> = self.votes.keys().cloned().collect();
        let eligible = approvers.eligible.iter();
        let not_voted = eligible.filter(|id| !voted.contains(*id));
        let with_vote = |id: &ParticipantId| voted.iter().chain([id]).cloned().collect();
        not_voted
            .filter(would_count)
            .filter(|id| {
                let dependent = dependent_approvals(&self.quorum, approvers, &with_vote(id));
                !dependent.contains_key(*id)
            })
            .cloned()
            .collect()
    }

    fn vote_eligibility(&self, context: &TallyContext<'_>) -> VoteEligibility {
        let me = context
            .me
            .and_then(|me| context.people.get(&me.participant));
        let Some(me) = me.filter(|me| !me.left) else {
            return VoteEligibility::NotHere;
        };
        if self.requested.proposer.as_ref() == Some(&me.id) && !context.config.solo {
            return VoteEligibility::Proposer;
        }
        if me.kind == ParticipantKind::Agent {
            return VoteEligibility::Agent;
        }
        if !me.may_vote() || !context.me.is_some_and(|me| me.may_approve) {
            return VoteEligibility::NotAnApprover;
        }
        if let Some(ineligibility) = self.ineligibility(me, context.config) {
            return ineligibility;
        }
        if self.requested.cut_bytes > 0 {
            return VoteEligibility::NotShownWhole;
        }
        match self.votes.contains_key(&me.id) {
            true => VoteEligibility::Approved,
            false => VoteEligibility::MayVote,
        }
    }

    fn deadline_description(&self) -> &'static str {
        if self.deadline.is_none() {
            return "none";
        }
        match self.on_timeout.for_gate(self.category, self.escalated) {
            GateTimeoutAction::Escalate => "then it goes to the admins, with a new deadline",
            GateTimeoutAction::AutoApprove => "then it is approved automatically",
            GateTimeoutAction::Reject => "then it is rejected",
        }
    }
}

/// Whether one approval of this participant is enough for a write, which a rule needs.
fn may_allow_alone(me: &ParticipantId, context: &TallyContext<'_>) -> bool {
    let config = context.config;
    let quorum = config.quorum_by_category.write.as_ref();
    let quorum = quorum.unwrap_or(&config.default_gate_quorum);
    let voters = || context.people.values().filter(|it| it.may_vote());
    let ids: BTreeSet<_> = voters().map(|it| it.id.clone()).collect();
    let roles = |it: &ParticipantView| it.roles.iter().copied().collect();
    let approvers = Approvers {
        eligible: ids.clone(),
        electorate: ids,
        roles: voters().map(|it| (it.id.clone(), roles(it))).collect(),
        ..Approvers::default()
    };
    tally(quorum, &approvers, &BTreeSet::from([me.clone()])).passed
}
