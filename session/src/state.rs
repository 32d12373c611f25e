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
use crate::proposal::{Closed, Execution, OutputSpan, Past, Proposal, Stage, Trail};
use crate::seen::Seen;

/// One session: everything that its log says, folded.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) head: u64,
    pub(crate) clock: Timestamp,
    pub(crate) name: Option<String>,
    pub(crate) config: SessionConfig,
    pub(crate) ended: Option<SessionEnd>,
    pub(crate) people: BTreeMap<ParticipantId, Member>,
    pub(crate) context: BTreeMap<String, ContextItem>,
    pub(crate) secrets: BTreeMap<String, SharedSecret>,
    /// Thinking and responses that have begun and not ended, by the id of their start.
    pub(crate) streams: BTreeMap<MessageId, OpenStream>,
    /// Recent prompts, for amending.
    pub(crate) prompts: BTreeMap<u64, MessageId>,
    /// Proposals that are waiting or running.
    pub(crate) proposals: BTreeMap<MessageId, Proposal>,
    /// The proposal that each gate, open or closed, was for.
    pub(crate) gates: BTreeMap<MessageId, MessageId>,
    pub(crate) closed: BTreeMap<MessageId, Closed>,
    pub(crate) rules: BTreeMap<MessageId, AllowRule>,
    pub(crate) interrupts: BTreeMap<MessageId, OpenInterrupt>,
    pub(crate) seen: Seen,
}

/// One piece of shared context.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContextItem {
    pub(crate) by: Option<ParticipantId>,
    pub(crate) audience: Audience,
    pub(crate) bytes: usize,
    /// Told to newcomers, for the server's own keys.
    pub(crate) shown: Option<ContextAdd>,
}

impl ContextItem {
    /// What a piece takes of the session's budget: its key, its content, and who may see it.
    pub(crate) fn cost(add: &ContextAdd, audience: &Audience) -> usize {
        add.key.len() + add.content.as_ref().map_or(0, Content::size) + audience.cost()
    }

    /// What it takes after an update: new content replaces what is held, a diff adds to it.
    pub(crate) fn cost_after(&self, update: &ContextUpdate) -> usize {
        let frame = update.key.len() + self.audience.cost();
        match (&update.new_content, &update.new_content_ref, &update.diff) {
            (Some(content), ..) => frame + content.size(),
            (None, Some(_), _) => frame,
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
pub(crate) enum StreamKind {
    Thinking,
    Response,
}

/// A stream that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenStream {
    pub(crate) kind: StreamKind,
    pub(crate) agent: ParticipantId,
    pub(crate) audience: Audience,
    pub(crate) begun_seq: u64,
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
            people: BTreeMap::new(),
            context: BTreeMap::new(),
            secrets: BTreeMap::new(),
            streams: BTreeMap::new(),
            prompts: BTreeMap::new(),
            proposals: BTreeMap::new(),
            gates: BTreeMap::new(),
            closed: BTreeMap::new(),
            rules: BTreeMap::new(),
            interrupts: BTreeMap::new(),
            seen: Seen::default(),
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
    pub fn exists(&self) -> bool {
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
        self.people.get(id)
    }

    /// Everyone who has joined and not left.
    pub fn members(&self) -> impl Iterator<Item = (&ParticipantId, &Member)> {
        self.people.iter().filter(|(_, member)| !member.left)
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
    pub fn closed(&self, id: &MessageId) -> Option<&Closed> {
        self.closed.get(id)
    }

    /// Open gates with the proposals they guard, oldest first.
    pub fn open_gates(&self) -> Vec<(&Proposal, &Gate)> {
        let mut gates: Vec<_> = self
            .proposals
            .values()
            .filter_map(|proposal| match &proposal.stage {
                Stage::Gated(gate) => Some((proposal, gate)),
                Stage::Judged | Stage::Cleared { .. } | Stage::Running(_) => None,
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
                Stage::Running(execution) => Some((proposal, execution)),
                Stage::Judged | Stage::Cleared { .. } | Stage::Gated(_) => None,
            })
    }

    /// The proposal that a gate id or a proposal id names, whether or not its gate is open.
    pub fn proposal_of(&self, gate: &MessageId) -> Option<&MessageId> {
        let named = self.gates.get(gate).unwrap_or(gate);
        let open = self.proposals.get_key_value(named).map(|(id, _)| id);
        open.or_else(|| self.closed.get_key_value(named).map(|(id, _)| id))
    }

    /// Where the steps of a proposal are in the log.
    pub fn trail(&self, proposal: &MessageId) -> Option<Trail> {
        let open = self.proposals.get(proposal).map(|open| open.trail);
        open.or_else(|| self.closed.get(proposal).map(|closed| closed.trail))
    }

    /// The last `most` proposals that were made before `before`, newest first.
    pub fn proposals_before(&self, before: u64, most: usize) -> Vec<Past> {
        let open = self.proposals.values().map(|proposal| Past {
            id: proposal.id.clone(),
            trail: proposal.trail,
            end: None,
        });
        let closed = self.closed.iter().map(|(id, closed)| Past {
            id: id.clone(),
            trail: closed.trail,
            end: Some((closed.ending, closed.last_seq)),
        });
        let earlier = |past: &Past| past.trail.first < before;
        let mut all: Vec<_> = open.chain(closed).filter(earlier).collect();
        all.sort_unstable_by_key(|past| std::cmp::Reverse(past.trail.first));
        all.truncate(most);
        all
    }

    /// Where the output of a command is recorded.
    pub fn output_span(&self, proposal: &MessageId) -> Option<OutputSpan> {
        let open = self.proposals.get(proposal).map(|proposal| OutputSpan {
            first_seq: proposal.trail.first,
            last_seq: None,
        });
        open.or_else(|| {
            self.closed.get(proposal).map(|closed| OutputSpan {
                first_seq: closed.trail.first,
                last_seq: Some(closed.last_seq),
            })
        })
    }

    /// The people who decide a gate on something this participant proposed.
    pub fn approvers(&self, gate: &Gate, proposer: &ParticipantId) -> Approvers {
        let skip_absent = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let four_eyes = self.config.four_eyes;
        let mut approvers = Approvers::default();
        for (id, member) in &self.people {
            let barred = id == proposer || (four_eyes && gate.amended_by.as_ref() == Some(id));
            let wrong_level = gate.escalated && !member.holds(Role::Admin);
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
    pub fn paused(&self) -> Option<String> {
        if self.config.on_participant_timeout != ParticipantTimeoutAction::PauseSession {
            return None;
        }
        let away: Vec<_> = self
            .people
            .iter()
            .filter(|(_, member)| member.timed_out && member.matters())
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
