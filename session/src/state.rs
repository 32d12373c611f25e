//! The state of a session.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{Content, ContextAdd, ContextUpdate, InterruptUrgency, SessionEnd};
use pvp_protocol::{
    Approvers, MessageId, ParticipantId, ParticipantTimeoutAction, Role, SessionConfig, SessionId,
    Timestamp,
};

use serde::{Deserialize, Serialize};

use crate::closed_proposals::ClosedProposals;
use crate::entry::Audience;
use crate::gate::Gate;
use crate::input::Ceiling;
use crate::member::Member;
use crate::proposal::{Execution, Proposal, ProposalRecord, ProposalStage};
use crate::recent_messages::RecentMessages;

/// The state of one session, folded from its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The session's id.
    pub(crate) id: SessionId,
    /// The sequence number of the last entry; 0 for an empty log.
    pub(crate) head: u64,
    /// When it was created.
    pub(crate) created_at: Timestamp,
    /// The time of the last entry; time never goes backwards in a log.
    pub(crate) last_entry_at: Timestamp,
    /// The session's name for people, if it has one.
    pub(crate) name: Option<String>,
    /// The current configuration.
    pub(crate) config: SessionConfig,
    /// How it ended; `None` while it is open.
    pub(crate) ended: Option<SessionEnd>,
    /// Everyone who has ever joined.
    pub(crate) members: BTreeMap<ParticipantId, Member>,
    /// The shared context that everyone sees, by key.
    pub(crate) context: BTreeMap<String, ContextItem>,
    /// The shared context that only some see, by key and by who added it. Keys are their owner's
    /// alone, so that nobody learns of a key by trying to use it.
    pub(crate) private_context: BTreeMap<String, BTreeMap<ParticipantId, ContextItem>>,
    /// The shared secrets, by key, without their values.
    pub(crate) secrets: BTreeMap<String, SharedSecret>,
    /// Thinking and responses that have started and not ended, by the id of their start.
    pub(crate) agent_streams: BTreeMap<MessageId, AgentStream>,
    /// Recent prompts, which can be amended, by sequence number.
    pub(crate) prompts: BTreeMap<u64, RecentPrompt>,
    /// The proposals that are waiting or running.
    pub(crate) proposals: BTreeMap<MessageId, Proposal>,
    /// The proposal of each gate that is open or was closed recently.
    pub(crate) proposal_by_gate: BTreeMap<MessageId, MessageId>,
    /// The proposals that were closed.
    pub(crate) closed_proposals: ClosedProposals,
    /// The allow rules, by the id of their `policy.allow`.
    pub(crate) allow_rules: BTreeMap<MessageId, AllowRule>,
    /// The interrupts that some agents have not acknowledged.
    pub(crate) interrupts: BTreeMap<MessageId, OpenInterrupt>,
    /// The ids of recent messages, to detect duplicates.
    pub(crate) recent_messages: RecentMessages,
}

/// One item of shared context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContextItem {
    pub(crate) by: Option<ParticipantId>,
    pub(crate) audience: Audience,
    pub(crate) bytes: usize,
    /// What to send to those who join; set for the server's own keys.
    pub(crate) sent_on_join: Option<ContextAdd>,
}

impl ContextItem {
    /// How many bytes of the session's context limit an item uses: its key, content and audience.
    pub(crate) fn stored_bytes(add: &ContextAdd, audience: &Audience) -> usize {
        add.key.len() + add.content.as_ref().map_or(0, Content::size) + audience.stored_bytes()
    }

    /// The same after an update: new content replaces the old, a diff adds to it.
    pub(crate) fn stored_bytes_after(&self, update: &ContextUpdate) -> usize {
        let fixed = update.key.len() + self.audience.stored_bytes();
        match (&update.new_content, &update.new_content_ref, &update.diff) {
            (Some(content), ..) => fixed + content.size(),
            (None, Some(_), _) => fixed,
            (None, None, Some(diff)) => self.bytes + diff.len(),
            (None, None, None) => self.bytes,
        }
    }
}

/// Where an item of context is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContextSlot {
    /// Among those that everyone sees.
    Public,
    /// Among those that only some see, added by this participant.
    Private(ParticipantId),
}

/// A shared secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedSecret {
    pub(crate) by: ParticipantId,
    pub(crate) scope: BTreeSet<ParticipantId>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A prompt that was submitted recently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecentPrompt {
    pub(crate) id: MessageId,
    /// Who should answer it.
    pub(crate) target: ParticipantId,
    /// Whether they have begun to.
    pub(crate) taken: bool,
}

/// What an agent streams besides the output of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AgentStreamKind {
    Thinking,
    Response,
}

/// A stream that has started and not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentStream {
    pub(crate) kind: AgentStreamKind,
    pub(crate) agent: ParticipantId,
    pub(crate) audience: Audience,
    pub(crate) started_seq: u64,
}

/// Something that runs without a vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllowRule {
    /// Who made it.
    pub(crate) by: ParticipantId,
    /// When it was made.
    pub(crate) at: Timestamp,
    /// What it allows.
    pub(crate) allowed: Allowed,
    /// When it expires.
    pub(crate) expires_at: Timestamp,
    /// The reason given, if any.
    pub(crate) reason: Option<String>,
}

/// What an allow rule allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Allowed {
    Commands {
        /// The words that a command must begin with.
        prefix: Vec<String>,
        /// Where the command must run; the executor's own directory if `None`, anywhere if `*`.
        directory: Option<String>,
    },
    /// Reads below this directory.
    Reading { root: String },
}

/// An interrupt that some agents have not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenInterrupt {
    pub(crate) urgency: InterruptUrgency,
    pub(crate) awaited: BTreeSet<ParticipantId>,
    pub(crate) raised_seq: u64,
}

impl Session {
    /// The item that a participant means by a key: their own, then one that was shared with them,
    /// then the one that everyone sees. One that they may not see is as good as missing.
    pub(crate) fn context_slot(&self, by: &ParticipantId, key: &str) -> Option<ContextSlot> {
        let may_approve = self.members.get(by).is_some_and(Member::may_vote);
        let private = self.private_context.get(key);
        if private.is_some_and(|items| items.contains_key(by)) {
            return Some(ContextSlot::Private(by.clone()));
        }
        let shared = private.into_iter().flatten();
        let mut shared = shared.filter(|(_, item)| item.audience.includes(by, may_approve));
        if let Some((owner, _)) = shared.next() {
            return Some(ContextSlot::Private(owner.clone()));
        }
        self.context
            .contains_key(key)
            .then_some(ContextSlot::Public)
    }

    pub(crate) fn context_item(&self, key: &str, slot: &ContextSlot) -> Option<&ContextItem> {
        match slot {
            ContextSlot::Public => self.context.get(key),
            ContextSlot::Private(owner) => self.private_context.get(key)?.get(owner),
        }
    }

    /// A session with an empty log.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            head: 0,
            created_at: Timestamp::default(),
            last_entry_at: Timestamp::default(),
            name: None,
            config: SessionConfig::default(),
            ended: None,
            members: BTreeMap::new(),
            context: BTreeMap::new(),
            private_context: BTreeMap::new(),
            secrets: BTreeMap::new(),
            agent_streams: BTreeMap::new(),
            prompts: BTreeMap::new(),
            proposals: BTreeMap::new(),
            proposal_by_gate: BTreeMap::new(),
            closed_proposals: ClosedProposals::default(),
            allow_rules: BTreeMap::new(),
            interrupts: BTreeMap::new(),
            recent_messages: RecentMessages::default(),
        }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The session's name for people, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The sequence number of the last entry; 0 before the session is created.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Whether the session has been created.
    pub fn is_created(&self) -> bool {
        self.head > 0
    }

    /// Whether a message with this id was accepted recently, so that another would be a repetition.
    pub fn knows_message(&self, id: &MessageId) -> bool {
        self.recent_messages.contains(id)
    }

    /// The sequence number of the entry that has this id, among the latest
    /// [`MAX_RECENT_MESSAGES`](crate::MAX_RECENT_MESSAGES). Ids are compared by a short hash, so the
    /// caller looks at the entry.
    pub fn seq_of_recent_message(&self, id: &MessageId) -> Option<u64> {
        self.recent_messages.seq_of(id)
    }

    /// Whether the session has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The current configuration.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// A participant who has joined, even if they have left since.
    pub fn member(&self, id: &ParticipantId) -> Option<&Member> {
        self.members.get(id)
    }

    /// Everyone who is in the session.
    pub fn members(&self) -> impl Iterator<Item = (&ParticipantId, &Member)> {
        self.members.iter().filter(|(_, member)| !member.left)
    }

    /// The proposals that are waiting or running.
    pub fn proposals(&self) -> impl Iterator<Item = &Proposal> {
        self.proposals.values()
    }

    /// A proposal that is waiting or running.
    pub fn proposal(&self, id: &MessageId) -> Option<&Proposal> {
        self.proposals.get(id)
    }

    /// The open gates with their proposals, oldest first.
    pub fn open_gates(&self) -> Vec<(&Proposal, &Gate)> {
        let mut gates: Vec<_> = self.gated_proposals().collect();
        gates.sort_by_key(|(_, gate)| gate.opened_seq);
        gates
    }

    /// An open gate with its proposal.
    pub fn open_gate(&self, id: &MessageId) -> Option<(&Proposal, &Gate)> {
        self.gated_proposals().find(|(_, gate)| gate.id == *id)
    }

    fn gated_proposals(&self) -> impl Iterator<Item = (&Proposal, &Gate)> {
        self.proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                ProposalStage::Gated(gate) => Some((proposal, gate)),
                ProposalStage::Assessed | ProposalStage::Cleared | ProposalStage::Running(_) => {
                    None
                }
            })
    }

    /// The runs that have not ended.
    pub fn running(&self) -> impl Iterator<Item = (&Proposal, &Execution)> {
        self.proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                ProposalStage::Running(execution) => Some((proposal, execution)),
                ProposalStage::Assessed | ProposalStage::Cleared | ProposalStage::Gated(_) => None,
            })
    }

    /// The proposal that a gate id or a proposal id names, if it is open or was closed recently.
    pub fn find_proposal(&self, name: &MessageId) -> Option<ProposalRecord> {
        let id = self.proposal_by_gate.get(name).unwrap_or(name);
        let open = self.proposals.get(id).map(Proposal::record);
        open.or_else(|| self.closed_proposals.recent(id).cloned())
    }

    /// The proposals that are waiting or running, newest first.
    pub fn open_proposals(&self) -> Vec<ProposalRecord> {
        let mut open: Vec<_> = self.proposals.values().map(Proposal::record).collect();
        open.sort_unstable_by_key(|proposal| std::cmp::Reverse(proposal.seqs.proposed));
        open
    }

    /// The people who decide a gate on a proposal of this participant.
    pub fn approvers(&self, gate: &Gate, proposer: &ParticipantId) -> Approvers {
        let skip_absent = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let four_eyes = self.config.four_eyes;
        let mut approvers = Approvers {
            owner: self.owner_of(proposer),
            ..Approvers::default()
        };
        for (id, member) in &self.members {
            if let Some(inviter) = member.invited_during_session()
                && self.config.quorum_independent
            {
                approvers.invited_by.insert(id.clone(), inviter.clone());
            }
            let is_proposer_or_editor = (id == proposer && !self.config.solo)
                || (four_eyes && gate.amended_by.as_ref() == Some(id));
            let needs_admin = gate.escalated && !member.has_role(Role::Admin);
            if is_proposer_or_editor || needs_admin || !member.may_vote() {
                continue;
            }
            approvers.eligible.insert(id.clone());
            approvers
                .roles
                .insert(id.clone(), member.announce.roles.iter().copied().collect());
            if gate.electorate.contains(id) && !(skip_absent && member.timed_out) {
                approvers.electorate.insert(id.clone());
            }
        }
        approvers
    }

    /// Whether a participant may vote on somebody else's proposal, with a token that allows no more
    /// than this.
    pub fn may_vote(&self, participant: &ParticipantId, ceiling: &Ceiling) -> bool {
        let member = self.members.get(participant);
        member.is_some_and(|member| member.bounded_by(ceiling).is_ok_and(|it| it.may_vote()))
    }

    /// Whom a proposal speaks for: a person for themselves, an agent for who invited it.
    fn owner_of(&self, proposer: &ParticipantId) -> Option<ParticipantId> {
        let member = self.members.get(proposer)?;
        match member.is_human() {
            true => Some(proposer.clone()),
            false => member.announce.invited_by.clone(),
        }
    }

    /// Who the session is paused for, if it is paused.
    pub fn paused_for(&self) -> Option<String> {
        if self.config.on_participant_timeout != ParticipantTimeoutAction::PauseSession {
            return None;
        }
        let away: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| member.timed_out && member.pauses_session_when_away())
            .map(|(id, _)| id.as_str())
            .collect();
        (!away.is_empty()).then(|| away.join(" and "))
    }

    /// The next time at which a deadline acts.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let gates = self
            .open_gates()
            .into_iter()
            .filter_map(|(_, gate)| gate.deadline())
            .min();
        let runs = self
            .running()
            .filter_map(|(_, execution)| execution.deadline)
            .min();
        let secrets = self
            .secrets
            .values()
            .filter_map(|secret| secret.expires_at)
            .min();
        let deferred = self.proposals.values();
        let deferred = deferred.filter_map(|proposal| proposal.client_run.as_ref()?.deferred_until);
        let due = [gates, runs, secrets, deferred.min()];
        due.into_iter().flatten().min()
    }

    /// The proposals that are over as soon as their clients are gone.
    pub fn leased_proposals(&self) -> impl Iterator<Item = &MessageId> {
        let leased = self.proposals.values().filter(|it| it.needs_lease());
        leased.map(|proposal| &proposal.id)
    }

    /// How many bytes of context the session holds.
    pub(crate) fn context_bytes(&self) -> usize {
        let private = self.private_context.values().flat_map(BTreeMap::values);
        let items = self.context.values().chain(private);
        items.map(|item| item.bytes).sum()
    }

    /// The keys of the secrets that are shared with an executor.
    pub fn secrets_for(&self, executor: &ParticipantId, now: Timestamp) -> Vec<&str> {
        self.secrets
            .iter()
            .filter(|(_, secret)| secret.scope.contains(executor))
            .filter(|(_, secret)| secret.expires_at.is_none_or(|expires| expires > now))
            .map(|(key, _)| key.as_str())
            .collect()
    }
}
