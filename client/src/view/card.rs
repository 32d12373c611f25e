//! A gate card: everything a person needs to decide, and whether they may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pvp_protocol::payload::{Approval, GateRequest};
use pvp_protocol::{
    Approvers, Category, Digest, GateTimeoutAction, MessageId, ParticipantId, ParticipantKind,
    ParticipantTimeoutAction, QuorumRule, Role, SessionConfig, Timestamp, tally,
};
use serde::Serialize;

use super::asked::Asked;
use super::people::{Me, Person};
use super::text::line;

/// Whether I may vote, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    MayVote,
    /// I have approved, and may still change my mind.
    Approved,
    /// I am not in the session.
    NotHere,
    /// Agents never vote.
    Agent,
    /// I proposed it.
    Proposer,
    /// My roles do not approve.
    NotAnApprover,
    /// With four eyes, who edited a command does not vote on it.
    Editor,
    /// The deadline has passed, and admins decide.
    AdminsOnly,
    /// It is too long to be shown whole.
    NotShownWhole,
}

impl Standing {
    /// Whether a vote of mine would be taken.
    pub fn may_vote(self) -> bool {
        match self {
            Standing::MayVote | Standing::Approved => true,
            Standing::NotHere
            | Standing::Agent
            | Standing::Proposer
            | Standing::NotAnApprover
            | Standing::Editor
            | Standing::AdminsOnly
            | Standing::NotShownWhole => false,
        }
    }

    /// The same as a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Standing::MayVote => "you may vote",
            Standing::Approved => "you approved; you may still reject",
            Standing::NotHere => "you are not in this session",
            Standing::Agent => "agents do not vote; a person has to decide",
            Standing::Proposer => "you proposed this, so others decide",
            Standing::NotAnApprover => "your roles do not approve",
            Standing::Editor => "you edited this, so others decide",
            Standing::AdminsOnly => "the deadline has passed; the admins decide",
            Standing::NotShownWhole => {
                "it is too long to be shown whole, so not to be approved here"
            }
        }
    }
}

/// An open gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    pub gate: MessageId,
    pub proposal: MessageId,
    /// Unknown if that was before what was told.
    pub opened_at: Option<Timestamp>,
    #[serde(flatten)]
    pub asked: Arc<Asked>,
    pub category: Category,
    /// What was shown; a vote binds it.
    pub digest: Digest,
    /// What the server says it waits for.
    pub message: String,
    pub quorum: QuorumRule,
    pub quorum_words: String,
    /// Who has approved, by person.
    pub votes: BTreeMap<ParticipantId, Approval>,
    /// Who could approve when the gate opened, without those who left or lost the right since.
    pub voters: BTreeSet<ParticipantId>,
    /// Approvals that count, and how many it takes.
    pub received: u32,
    pub required: u32,
    /// Those without whom it does not pass.
    pub awaited: BTreeSet<ParticipantId>,
    /// Those who have not approved and whose approval would count.
    pub undecided: BTreeSet<ParticipantId>,
    pub standing: Standing,
    pub deadline: Option<Timestamp>,
    pub on_timeout: GateTimeoutAction,
    /// What happens when the deadline comes, as a sentence.
    pub at_deadline: String,
    /// The deadline has passed once, and admins decide.
    pub escalated: bool,
}

/// Everything outside a card that its count depends on.
pub(super) struct Company<'a> {
    pub(super) people: &'a BTreeMap<ParticipantId, Person>,
    pub(super) config: &'a SessionConfig,
    pub(super) me: Option<&'a Me>,
}

impl Card {
    pub(super) fn new(gate: MessageId, request: &GateRequest, asked: Arc<Asked>) -> Self {
        Self {
            gate,
            proposal: request.action_ref.clone(),
            opened_at: None,
            asked,
            category: request.category,
            digest: request.digest,
            message: line(&request.message),
            quorum: request.quorum.clone(),
            quorum_words: String::new(),
            votes: BTreeMap::new(),
            voters: request.voters.iter().cloned().collect(),
            received: 0,
            required: 0,
            awaited: BTreeSet::new(),
            undecided: BTreeSet::new(),
            standing: Standing::NotHere,
            deadline: request.deadline,
            on_timeout: request.on_timeout,
            at_deadline: String::new(),
            escalated: false,
        }
    }

    /// Whether this card is meant by the id of a gate or of a proposal.
    pub fn is_named(&self, name: &MessageId) -> bool {
        self.gate == *name || self.proposal == *name
    }

    /// Milliseconds until the deadline; `None` if there is none.
    pub fn remaining(&self, now: Timestamp) -> Option<u64> {
        self.deadline.map(|deadline| deadline.millis_since(now))
    }

    /// My approval, if I gave one.
    pub fn vote_of(&self, who: &ParticipantId) -> Option<&Approval> {
        self.votes.get(who)
    }

    /// Counts again, after something changed here or around.
    pub(super) fn recount(&mut self, company: &Company<'_>) {
        let approvers = self.approvers(company);
        let approved = self.votes.keys().cloned().collect();
        let tally = tally(&self.quorum, &approvers, &approved);
        self.received = tally.received;
        self.required = tally.required;
        self.awaited = tally.awaited;
        self.undecided = self.undecided(&approvers);
        self.standing = self.standing(company);
        self.quorum_words = self.quorum.to_string();
        self.at_deadline = self.at_deadline().to_owned();
    }

    /// The people who decide, as far as a client knows them; the server decides with its own list.
    fn approvers(&self, company: &Company<'_>) -> Approvers {
        let skip_absent = company.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let mut approvers = Approvers::default();
        for (id, person) in company.people {
            if !person.may_vote() || self.bars(person, company.config).is_some() {
                continue;
            }
            approvers.eligible.insert(id.clone());
            let roles = person.roles.iter().copied().collect();
            approvers.roles.insert(id.clone(), roles);
            if self.voters.contains(id) && !(skip_absent && person.timed_out) {
                approvers.electorate.insert(id.clone());
            }
        }
        approvers
    }

    /// Why someone who approves in general does not here.
    fn bars(&self, person: &Person, config: &SessionConfig) -> Option<Standing> {
        if self.asked.proposer.as_ref() == Some(&person.id) {
            return Some(Standing::Proposer);
        }
        if config.four_eyes && self.asked.edited_by.as_ref() == Some(&person.id) {
            return Some(Standing::Editor);
        }
        let wrong_level = self.escalated && !person.roles.contains(&Role::Admin);
        wrong_level.then_some(Standing::AdminsOnly)
    }

    fn undecided(&self, approvers: &Approvers) -> BTreeSet<ParticipantId> {
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
        let eligible = approvers.eligible.iter();
        let silent = eligible.filter(|id| !self.votes.contains_key(*id));
        silent.filter(would_count).cloned().collect()
    }

    fn standing(&self, company: &Company<'_>) -> Standing {
        let me = company
            .me
            .and_then(|me| company.people.get(&me.participant));
        let Some(me) = me.filter(|me| !me.left) else {
            return Standing::NotHere;
        };
        if self.asked.proposer.as_ref() == Some(&me.id) {
            return Standing::Proposer;
        }
        if me.kind == ParticipantKind::Agent {
            return Standing::Agent;
        }
        if !me.may_vote() {
            return Standing::NotAnApprover;
        }
        if let Some(bar) = self.bars(me, company.config) {
            return bar;
        }
        if self.asked.cut_bytes > 0 {
            return Standing::NotShownWhole;
        }
        match self.votes.contains_key(&me.id) {
            true => Standing::Approved,
            false => Standing::MayVote,
        }
    }

    fn at_deadline(&self) -> &'static str {
        match (self.deadline, self.on_timeout) {
            (None, _) => "it waits until someone decides",
            (Some(_), GateTimeoutAction::Escalate) if !self.escalated => {
                "at the deadline it goes to the admins, who get as long again"
            }
            (Some(_), GateTimeoutAction::AutoApprove) if self.category <= Category::Write => {
                "at the deadline the clock approves it"
            }
            (
                Some(_),
                GateTimeoutAction::Reject
                | GateTimeoutAction::Escalate
                | GateTimeoutAction::AutoApprove,
            ) => "at the deadline it is rejected",
        }
    }
}
