//! The state of a session.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{Content, ContextAdd, ContextUpdate, InterruptUrgency, SessionEnd};
use pvp_protocol::{
    Approvers, MessageId, ParticipantId, ParticipantTimeoutAction, Role, SessionConfig, SessionId,
    Timestamp,
};

use crate::entry::Audience;
use crate::gate::Gate;
use crate::member::Member;
use crate::proposal::{
    ClosedProposal, Execution, OutputRange, Proposal, ProposalRecord, ProposalSeqs, ProposalStage,
};
use crate::recent_messages::RecentMessages;

/// The state of one session, folded from its log.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The session's id.
    pub(crate) id: SessionId,
    /// The sequence number of the last entry; 0 for an empty log.
    pub(crate) head: u64,
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
    /// The shared context, by key.
    pub(crate) context: BTreeMap<String, ContextItem>,
    /// The shared secrets, by key, without their values.
    pub(crate) secrets: BTreeMap<String, SharedSecret>,
    /// Thinking and responses that have started and not ended, by the id of their start.
    pub(crate) agent_streams: BTreeMap<MessageId, AgentStream>,
    /// Recent prompts, which can be amended, by sequence number.
    pub(crate) prompts: BTreeMap<u64, MessageId>,
    /// The proposals that are waiting or running.
    pub(crate) proposals: BTreeMap<MessageId, Proposal>,
    /// The proposal of each gate, open or closed.
    pub(crate) proposal_by_gate: BTreeMap<MessageId, MessageId>,
    /// The records of closed proposals.
    pub(crate) closed_proposals: BTreeMap<MessageId, ClosedProposal>,
    /// The allow rules, by the id of their `policy.allow`.
    pub(crate) allow_rules: BTreeMap<MessageId, AllowRule>,
    /// The interrupts that some agents have not acknowledged.
    pub(crate) interrupts: BTreeMap<MessageId, OpenInterrupt>,
    /// The ids of recent messages, to detect duplicates.
    pub(crate) recent_messages: RecentMessages,
}

/// One item of shared context.
#[derive(Debug, Clone, PartialEq)]
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

/// A shared secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedSecret {
    pub(crate) by: ParticipantId,
    pub(crate) scope: BTreeSet<ParticipantId>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// What an agent streams besides the output of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentStreamKind {
    Thinking,
    Response,
}

/// A stream that has started and not ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentStream {
    pub(crate) kind: AgentStreamKind,
    pub(crate) agent: ParticipantId,
    pub(crate) audience: Audience,
    pub(crate) started_seq: u64,
}

/// A command prefix that runs without a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowRule {
    pub(crate) by: ParticipantId,
    pub(crate) at: Timestamp,
    pub(crate) prefix: Vec<String>,
    pub(crate) expires_at: Timestamp,
    pub(crate) reason: Option<String>,
}

/// An interrupt that some agents have not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenInterrupt {
    pub(crate) urgency: InterruptUrgency,
    pub(crate) awaited: BTreeSet<ParticipantId>,
    pub(crate) raised_seq: u64,
}

impl Session {
    /// A session with an empty log.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            head: 0,
            last_entry_at: Timestamp::default(),
            name: None,
            config: SessionConfig::default(),
            ended: None,
            members: BTreeMap::new(),
            context: BTreeMap::new(),
            secrets: BTreeMap::new(),
            agent_streams: BTreeMap::new(),
            prompts: BTreeMap::new(),
            proposals: BTreeMap::new(),
            proposal_by_gate: BTreeMap::new(),
            closed_proposals: BTreeMap::new(),
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

    /// The record of a closed proposal.
    pub fn closed_proposal(&self, id: &MessageId) -> Option<&ClosedProposal> {
        self.closed_proposals.get(id)
    }

    /// The open gates with their proposals, oldest first.
    pub fn open_gates(&self) -> Vec<(&Proposal, &Gate)> {
        let mut gates: Vec<_> = self
            .proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                ProposalStage::Gated(gate) => Some((proposal, gate)),
                ProposalStage::Assessed | ProposalStage::Cleared | ProposalStage::Running(_) => {
                    None
                }
            })
            .collect();
        gates.sort_by_key(|(_, gate)| gate.opened_seq);
        gates
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

    /// The proposal that a gate id or a proposal id names, whether or not its gate is open.
    pub fn proposal_id_of(&self, gate: &MessageId) -> Option<&MessageId> {
        let named = self.proposal_by_gate.get(gate).unwrap_or(gate);
        let open = self.proposals.get_key_value(named).map(|(id, _)| id);
        open.or_else(|| self.closed_proposals.get_key_value(named).map(|(id, _)| id))
    }

    /// The sequence numbers of a proposal's steps.
    pub fn proposal_seqs(&self, proposal: &MessageId) -> Option<ProposalSeqs> {
        let open = self.proposals.get(proposal).map(|open| open.seqs);
        open.or_else(|| {
            self.closed_proposals
                .get(proposal)
                .map(|closed| closed.seqs)
        })
    }

    /// The last `most` proposals with a sequence number below `before`, newest first.
    pub fn proposals_before(&self, before: u64, limit: usize) -> Vec<ProposalRecord> {
        let open = self.proposals.values().map(|proposal| ProposalRecord {
            id: proposal.id.clone(),
            seqs: proposal.seqs,
            closed: None,
        });
        let closed = self
            .closed_proposals
            .iter()
            .map(|(id, closed)| ProposalRecord {
                id: id.clone(),
                seqs: closed.seqs,
                closed: Some((closed.outcome, closed.last_seq)),
            });
        let earlier = |past: &ProposalRecord| past.seqs.proposed < before;
        let mut all: Vec<_> = open.chain(closed).filter(earlier).collect();
        all.sort_unstable_by_key(|past| std::cmp::Reverse(past.seqs.proposed));
        all.truncate(limit);
        all
    }

    /// The range of entries that contains a command's output.
    pub fn output_range(&self, proposal: &MessageId) -> Option<OutputRange> {
        let open = self.proposals.get(proposal).map(|proposal| OutputRange {
            first_seq: proposal.seqs.proposed,
            last_seq: None,
        });
        open.or_else(|| {
            self.closed_proposals
                .get(proposal)
                .map(|closed| OutputRange {
                    first_seq: closed.seqs.proposed,
                    last_seq: Some(closed.last_seq),
                })
        })
    }

    /// The people who decide a gate on a proposal of this participant.
    pub fn approvers(&self, gate: &Gate, proposer: &ParticipantId) -> Approvers {
        let skip_absent = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let four_eyes = self.config.four_eyes;
        let mut approvers = Approvers::default();
        for (id, member) in &self.members {
            let is_proposer_or_editor =
                id == proposer || (four_eyes && gate.amended_by.as_ref() == Some(id));
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
        [gates, runs, secrets].into_iter().flatten().min()
    }

    /// How many bytes of context the session holds.
    pub(crate) fn context_bytes(&self) -> usize {
        self.context.values().map(|item| item.bytes).sum()
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
