//! What a session is at one moment.

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

/// One session: everything that its log says, folded.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) head: u64,
    pub(crate) clock: Timestamp,
    pub(crate) name: Option<String>,
    pub(crate) config: SessionConfig,
    pub(crate) ended: Option<SessionEnd>,
    pub(crate) participants: BTreeMap<ParticipantId, Member>,
    pub(crate) context: BTreeMap<String, ContextItem>,
    pub(crate) secrets: BTreeMap<String, SharedSecret>,
    /// Thinking and responses that have begun and not ended, by the id of their start.
    pub(crate) agent_streams: BTreeMap<MessageId, AgentStream>,
    /// Recent prompts, for amending.
    pub(crate) prompts: BTreeMap<u64, MessageId>,
    /// Proposals that are waiting or running.
    pub(crate) proposals: BTreeMap<MessageId, Proposal>,
    /// The proposal that each gate, open or closed, was for.
    pub(crate) proposal_by_gate: BTreeMap<MessageId, MessageId>,
    pub(crate) closed_proposals: BTreeMap<MessageId, ClosedProposal>,
    pub(crate) allow_rules: BTreeMap<MessageId, AllowRule>,
    pub(crate) interrupts: BTreeMap<MessageId, OpenInterrupt>,
    pub(crate) recent_messages: RecentMessages,
}

/// One piece of shared context.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContextItem {
    pub(crate) by: Option<ParticipantId>,
    pub(crate) audience: Audience,
    pub(crate) bytes: usize,
    /// Told to newcomers, for the server's own keys.
    pub(crate) sent_on_join: Option<ContextAdd>,
}

impl ContextItem {
    /// What a piece takes of the session's budget: its key, its content, and who may see it.
    pub(crate) fn stored_bytes(add: &ContextAdd, audience: &Audience) -> usize {
        add.key.len() + add.content.as_ref().map_or(0, Content::size) + audience.stored_bytes()
    }

    /// What it takes after an update: new content replaces what is held, a diff adds to it.
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

/// A secret that is known by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedSecret {
    pub(crate) by: ParticipantId,
    pub(crate) scope: BTreeSet<ParticipantId>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// What an agent streams besides output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentStreamKind {
    Thinking,
    Response,
}

/// A stream that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentStream {
    pub(crate) kind: AgentStreamKind,
    pub(crate) agent: ParticipantId,
    pub(crate) audience: Audience,
    pub(crate) started_seq: u64,
}

/// A prefix that runs without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowRule {
    pub(crate) by: ParticipantId,
    pub(crate) at: Timestamp,
    pub(crate) prefix: Vec<String>,
    pub(crate) expires_at: Timestamp,
    pub(crate) reason: Option<String>,
}

/// An interrupt that some agent has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenInterrupt {
    pub(crate) urgency: InterruptUrgency,
    pub(crate) awaited: BTreeSet<ParticipantId>,
    pub(crate) raised_seq: u64,
}

impl Session {
    /// A session of which nothing has been said yet.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            head: 0,
            clock: Timestamp::default(),
            name: None,
            config: SessionConfig::default(),
            ended: None,
            participants: BTreeMap::new(),
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

    /// The session's name in the world.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// What people call it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The seq of the last entry; 0 before the session is created.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Whether the session has been created.
    pub fn is_created(&self) -> bool {
        self.head > 0
    }

    /// Whether nothing more can happen.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The configuration in force.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Someone who has joined, whether or not they have left since.
    pub fn member(&self, id: &ParticipantId) -> Option<&Member> {
        self.participants.get(id)
    }

    /// Everyone who has joined and not left.
    pub fn members(&self) -> impl Iterator<Item = (&ParticipantId, &Member)> {
        self.participants.iter().filter(|(_, member)| !member.left)
    }

    /// Proposals that are waiting or running.
    pub fn proposals(&self) -> impl Iterator<Item = &Proposal> {
        self.proposals.values()
    }

    /// A proposal that is waiting or running.
    pub fn proposal(&self, id: &MessageId) -> Option<&Proposal> {
        self.proposals.get(id)
    }

    /// What is left of a proposal that is over.
    pub fn closed_proposal(&self, id: &MessageId) -> Option<&ClosedProposal> {
        self.closed_proposals.get(id)
    }

    /// Open gates with the proposals they guard, oldest first.
    pub fn open_gates(&self) -> Vec<(&Proposal, &Gate)> {
        let mut gates: Vec<_> = self
            .proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                ProposalStage::Gated(gate) => Some((proposal, gate)),
                ProposalStage::Assessed
                | ProposalStage::Cleared { .. }
                | ProposalStage::Running(_) => None,
            })
            .collect();
        gates.sort_by_key(|(_, gate)| gate.opened_seq);
        gates
    }

    /// Runs that are not finished.
    pub fn running(&self) -> impl Iterator<Item = (&Proposal, &Execution)> {
        self.proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                ProposalStage::Running(execution) => Some((proposal, execution)),
                ProposalStage::Assessed
                | ProposalStage::Cleared { .. }
                | ProposalStage::Gated(_) => None,
            })
    }

    /// The proposal that a gate id or a proposal id names, whether or not its gate is open.
    pub fn proposal_id_of(&self, gate: &MessageId) -> Option<&MessageId> {
        let named = self.proposal_by_gate.get(gate).unwrap_or(gate);
        let open = self.proposals.get_key_value(named).map(|(id, _)| id);
        open.or_else(|| self.closed_proposals.get_key_value(named).map(|(id, _)| id))
    }

    /// Where the steps of a proposal are in the log.
    pub fn proposal_seqs(&self, proposal: &MessageId) -> Option<ProposalSeqs> {
        let open = self.proposals.get(proposal).map(|open| open.seqs);
        open.or_else(|| {
            self.closed_proposals
                .get(proposal)
                .map(|closed| closed.seqs)
        })
    }

    /// The last `most` proposals that were made before `before`, newest first.
    pub fn proposals_before(&self, before: u64, most: usize) -> Vec<ProposalRecord> {
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
                closed: Some((closed.ending, closed.last_seq)),
            });
        let earlier = |past: &ProposalRecord| past.seqs.proposed < before;
        let mut all: Vec<_> = open.chain(closed).filter(earlier).collect();
        all.sort_unstable_by_key(|past| std::cmp::Reverse(past.seqs.proposed));
        all.truncate(most);
        all
    }

    /// Where the output of a command is recorded.
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

    /// The people who decide a gate on something this participant proposed.
    pub fn approvers(&self, gate: &Gate, proposer: &ParticipantId) -> Approvers {
        let skip_absent = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let four_eyes = self.config.four_eyes;
        let mut approvers = Approvers::default();
        for (id, member) in &self.participants {
            let barred = id == proposer || (four_eyes && gate.amended_by.as_ref() == Some(id));
            let wrong_level = gate.escalated && !member.has_role(Role::Admin);
            if barred || wrong_level || !member.may_vote() {
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

    /// Why nothing starts at the moment, if it does not.
    pub fn paused_until_back(&self) -> Option<String> {
        if self.config.on_participant_timeout != ParticipantTimeoutAction::PauseSession {
            return None;
        }
        let away: Vec<_> = self
            .participants
            .iter()
            .filter(|(_, member)| member.timed_out && member.pauses_session_when_away())
            .map(|(id, _)| id.as_str())
            .collect();
        (!away.is_empty()).then(|| away.join(" and "))
    }

    /// The next moment at which something happens by itself.
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

    /// Bytes of context held.
    pub(crate) fn context_bytes(&self) -> usize {
        self.context.values().map(|item| item.bytes).sum()
    }

    /// Secrets that an executor has been given, by name.
    pub fn secrets_for(&self, executor: &ParticipantId, now: Timestamp) -> Vec<&str> {
        self.secrets
            .iter()
            .filter(|(_, secret)| secret.scope.contains(executor))
            .filter(|(_, secret)| secret.expires_at.is_none_or(|expires| expires > now))
            .map(|(key, _)| key.as_str())
            .collect()
    }
}
