//! Checks the invariants from the log alone, independently of the session's decisions.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{
    Announce, ClearedBy, Degree, GateOutcome, GateReject, GateResolve, GrantTerms, OutputStream,
    PresenceStatus, ResolutionCause, RunBy, RunOutcome, TimeoutResolution, ToolDiscard,
    ToolExecute, ToolOutput, ToolResult,
};
use pvp_protocol::{
    Action, Assessment, Capability, Category, ClientReads, Command, ExecutionLimits,
    GateTimeoutAction, MessageId, ParticipantId, ParticipantKind, ParticipantTimeoutAction,
    QuorumRule, Role, RunMode, SandboxProfile, Sender, ServerMessage, SessionConfig, ShellExecMode,
    Timestamp, ToolCategory, capabilities_of,
};
use pvp_session::{Audience, Entry, Session, SessionSettings};

use super::quorum_oracle;

/// All secrets in tests contain this text, so that a leak is found anywhere.
pub const SECRET: &str = "hunter2";

#[derive(Clone)]
struct AuditedParticipant {
    announce: Announce,
    left: bool,
    away: bool,
    /// Whether they were told to be gone.
    gone: bool,
}

impl AuditedParticipant {
    fn can_vote(&self) -> bool {
        let explicit = self.announce.capabilities.iter().flatten();
        let may = capabilities_of(self.announce.kind, &self.announce.roles, explicit);
        self.announce.kind == ParticipantKind::Human
            && !self.left
            && may.contains(&Capability::Approve)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum VoteState {
    Open,
    Passed(ResolutionCause),
    Closed,
}

#[derive(Clone)]
struct AuditedVote {
    /// The gate's id.
    id: MessageId,
    /// The quorum rule.
    rule: QuorumRule,
    /// Those who could approve when the gate opened.
    electorate: BTreeSet<ParticipantId>,
    /// Those who have approved.
    approved: BTreeSet<ParticipantId>,
    /// Whether only admins decide.
    escalated: bool,
    /// Who edited the command last.
    amended_by: Option<ParticipantId>,
    /// When the gate times out, if it does.
    deadline: Option<Timestamp>,
    /// What happens at the deadline.
    on_timeout: GateTimeoutAction,
    /// The allow rule whose author's vote let it pass, if one did.
    passed_by_rule: Option<MessageId>,
    /// Whether the gate is open, and how it closed.
    state: VoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuditedTrial {
    Never,
    UnderWay,
    Discarded,
}

#[derive(Clone)]
struct AuditedProposal {
    /// Who proposed it.
    proposer: ParticipantId,
    /// Who would run it.
    executor: ParticipantId,
    /// Whether its executor runs it, or an agent client by itself.
    runs: RunBy,
    /// Whether it waits without its client, which said that it would come back.
    deferred: bool,
    /// Whether it is a person's own command.
    own_command: bool,
    /// The agent's claim of the kind of tool; `None` for a person's own command.
    tool_category: Option<ToolCategory>,
    /// What would run.
    action: Action,
    /// The assessment in the log.
    assessment: Assessment,
    /// The gate; `None` if it has none.
    vote: Option<AuditedVote>,
    /// Whether it was granted.
    executed: bool,
    /// Whether it is, or was, tried in the sandbox.
    trial: AuditedTrial,
    /// How many bytes of output it may have.
    budget: u64,
    /// Bytes logged of each stream, and whether it is complete.
    streams: BTreeMap<OutputStream, (u64, bool)>,
    /// Whether it is over.
    closed: bool,
}

/// What the log contains so far, to check the next entry against.
#[derive(Clone)]
pub struct LogAuditor {
    /// The server's settings.
    settings: SessionSettings,
    /// The current configuration.
    config: SessionConfig,
    /// Whether the session has ended.
    ended: bool,
    /// The sequence number of the last entry.
    head: u64,
    /// The time of the last entry.
    clock: Timestamp,
    /// The ids of all messages.
    ids: BTreeSet<MessageId>,
    /// Everyone who has ever joined.
    participants: BTreeMap<ParticipantId, AuditedParticipant>,
    /// All proposals.
    proposals: BTreeMap<MessageId, AuditedProposal>,
    /// The proposal of each gate.
    gates: BTreeMap<MessageId, MessageId>,
    /// The author, prefix and expiry of each allow rule.
    rules: BTreeMap<MessageId, (ParticipantId, Vec<String>, Timestamp)>,
    /// The nonces of all grants.
    nonces: BTreeSet<String>,
    /// Who may see each stream of thinking.
    thinking: BTreeMap<MessageId, Audience>,
    /// Who may see each context item.
    context: BTreeMap<String, Audience>,
}

/// A snapshot gives the same state as folding the log.
pub fn invariant_snapshot(session: &Session) {
    let snapshot = session.to_snapshot();
    let loaded = Session::from_snapshot(session.id(), session.head(), &snapshot);
    assert_eq!(loaded.as_ref(), Ok(session), "a snapshot keeps everything");
}

/// The stored bytes of an entry decode to the same entry and fold to the same state.
pub fn invariant_stored_form(shadow: &mut Session, entry: &Entry) {
    let stored = Entry::decode(&entry.meta(), &entry.body()).unwrap();
    assert_eq!(&stored, entry, "an entry survives being stored");
    assert_eq!(
        (stored.meta(), stored.body()),
        (entry.meta(), entry.body()),
        "byte for byte"
    );
    shadow.replay(&stored).unwrap();
}

impl LogAuditor {
    pub fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            config: SessionConfig::default(),
            ended: false,
            head: 0,
            clock: Timestamp::default(),
            ids: BTreeSet::new(),
            participants: BTreeMap::new(),
            proposals: BTreeMap::new(),
            gates: BTreeMap::new(),
            rules: BTreeMap::new(),
            nonces: BTreeSet::new(),
            thinking: BTreeMap::new(),
            context: BTreeMap::new(),
        }
    }

    /// Checks everything that must hold for the next entry.
    pub fn invariant_entry(&mut self, entry: &Entry) {
        self.invariant_order(entry);
        self.invariant_nothing_leaks(entry);
        let by = match &entry.envelope.header.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id.clone()),
        };
        self.invariant_sender(entry, by.as_ref());
        self.check_message(entry, by.as_ref());
    }

    /// Sequence numbers have no gaps or repeats, time never goes backwards, no id is used twice.
    fn invariant_order(&mut self, entry: &Entry) {
        assert_eq!(entry.seq(), self.head + 1, "seq has no gap and no repeat");
        self.head += 1;
        assert!(entry.envelope.at >= self.clock, "time runs backwards");
        self.clock = entry.envelope.at;
        assert!(self.ids.insert(entry.id().clone()), "id used twice");
    }

    /// No entry contains the value of a secret, and no envelope contains a nonce.
    fn invariant_nothing_leaks(&mut self, entry: &Entry) {
        let body = String::from_utf8(entry.body()).unwrap();
        let meta = String::from_utf8(entry.meta()).unwrap();
        assert!(!body.contains(SECRET), "a secret in a body: {body}");
        assert!(!meta.contains(SECRET), "a secret in a meta: {meta}");
        let for_executor = matches!(
            &entry.envelope.message,
            ServerMessage::ToolExecute(execute) if execute.grant.runs == RunBy::Executor
        );
        assert_eq!(
            for_executor,
            entry.grant_nonce.is_some(),
            "only grants for executors are private"
        );
        if let Some(private) = &entry.grant_nonce {
            assert!(private.nonce.len() >= 32);
            assert!(
                self.nonces.insert(private.nonce.clone()),
                "nonce used twice"
            );
        }
        for nonce in &self.nonces {
            assert!(!body.contains(nonce), "a nonce in a body: {body}");
        }
    }

    /// Server-only messages come from the server, and others from participants in the session.
    fn invariant_sender(&self, entry: &Entry, by: Option<&ParticipantId>) {
        use ServerMessage as M;
        let servers = matches!(
            entry.envelope.message,
            M::GateRequest(_) | M::GateResolve(_) | M::GateTimeout(_) | M::ToolExecute(_)
        );
        if servers {
            assert_eq!(by, None, "only the server says this");
        }
        let coming = matches!(entry.envelope.message, M::SessionCreate(_) | M::Announce(_));
        if let Some(by) = by
            && !coming
        {
            assert!(!self.participants[by].left, "someone speaks who has left");
        }
        if self.ended {
            let late = matches!(
                entry.envelope.message,
                M::ToolOutput(_)
                    | M::ToolResult(_)
                    | M::ToolDiscard(_)
                    | M::ToolCancel(_)
                    | M::GateResolve(_)
                    | M::GateReject(_)
                    | M::SecretRevoke(_)
            );
            assert!(late, "something happens after the end");
        }
    }

    fn check_message(&mut self, entry: &Entry, by: Option<&ParticipantId>) {
        use ServerMessage as M;
        let (id, at) = (entry.id(), entry.envelope.at);
        match &entry.envelope.message {
            M::SessionCreate(create) => self.config = create.config.clone(),
            M::SessionConfigUpdate(update) => {
                self.config = self.config.clone().with_changes(&update.changes);
            }
            M::SessionEnd(_) => self.ended = true,
            M::Announce(announce) => self.record_announce(announce),
            M::SessionLeave(leave) if leave.connection_lost => {
                assert!(entry.submitted_digest.is_none(), "said by the participant");
                self.participants.get_mut(by.unwrap()).unwrap().gone = true;
            }
            M::SessionLeave(_) => {
                let by = by.unwrap();
                let participant = self.participants.get_mut(by).unwrap();
                (participant.left, participant.away) = (true, false);
                self.remove_from_votes(by);
            }
            M::RoleChange(change) => {
                let participant = self.participants.get_mut(&change.participant).unwrap();
                participant.announce.roles.clone_from(&change.new_roles);
                if change.capabilities.is_some() {
                    participant
                        .announce
                        .capabilities
                        .clone_from(&change.capabilities);
                }
                if !participant.can_vote() {
                    self.remove_from_votes(&change.participant);
                }
                assert!(
                    change.votes_void.is_none() || by.is_none(),
                    "only the server voids"
                );
                if change.votes_void == Some(true) {
                    for proposal in self.proposals.values_mut() {
                        if let Some(vote) = &mut proposal.vote
                            && vote.state == VoteState::Open
                        {
                            vote.approved.remove(&change.participant);
                        }
                    }
                }
            }
            M::PresenceUpdate(presence) => {
                let away = presence.status != PresenceStatus::Active;
                self.participants
                    .get_mut(&presence.participant)
                    .unwrap()
                    .away = away;
            }
            M::ContextAdd(add) => {
                self.context.insert(add.key.clone(), entry.audience.clone());
            }
            M::ContextUpdate(update) => {
                if self.settings.open_mode && !self.context.contains_key(&update.key) {
                    let everyone = pvp_session::Audience::everyone();
                    self.context.insert(update.key.clone(), everyone);
                }
                self.invariant_context(&update.key, entry, by);
            }
            M::ContextRemove(remove) => {
                self.invariant_context(&remove.key, entry, by);
                self.context.remove(&remove.key);
            }
            M::ThinkingStart(_) => {
                self.thinking.insert(id.clone(), entry.audience.clone());
            }
            M::ThinkingChunk(_) | M::ThinkingEnd(_) => {
                let start = entry.envelope.header.reference.as_ref().unwrap();
                assert_eq!(
                    entry.audience, self.thinking[start],
                    "a chunk is seen by others"
                );
            }
            M::ToolPropose(propose) => {
                let action =
                    Action::from_arguments(&propose.tool_name, &propose.arguments).unwrap();
                let assessment = propose.assessment.clone().unwrap();
                assert_eq!(by, Some(&propose.agent));
                let kind = Some(propose.category);
                self.record_proposal(id, &propose.agent, &propose.agent, action, assessment, kind);
                self.proposals.get_mut(id).unwrap().runs = propose.runs;
                let ours = matches!(propose.degree, None | Some(Degree::Hooked));
                let clients = matches!(propose.degree, Some(Degree::Hooked | Degree::Held));
                assert!(
                    if propose.runs == RunBy::Client {
                        clients
                    } else {
                        ours
                    },
                    "it is not so sure: {:?}",
                    propose.degree
                );
            }
            M::ShellExec(exec) => {
                let action = Action::from_shell_exec(exec);
                let executor = exec.executor.clone().unwrap();
                let assessment = exec.assessment.clone().unwrap();
                self.record_proposal(id, by.unwrap(), &executor, action, assessment, None);
            }
            M::GateRequest(request) => {
                let electorate: BTreeSet<_> = request.voters.iter().cloned().collect();
                let proposal = &self.proposals[&request.action_ref];
                assert!(proposal.vote.is_none() && !proposal.executed && !proposal.closed);
                assert_ne!(proposal.assessment.category, Category::Blocked);
                assert_eq!(
                    electorate,
                    self.electorate(&proposal.proposer),
                    "who is asked"
                );
                let vote = AuditedVote {
                    id: id.clone(),
                    rule: request.quorum.clone(),
                    electorate,
                    approved: BTreeSet::new(),
                    escalated: false,
                    amended_by: None,
                    deadline: request.deadline,
                    on_timeout: request.on_timeout,
                    state: VoteState::Open,
                    passed_by_rule: None,
                };
                self.gates.insert(id.clone(), request.action_ref.clone());
                self.proposals.get_mut(&request.action_ref).unwrap().vote = Some(vote);
            }
            M::GateApprove(vote) => self.invariant_vote(by, &vote.approver, &vote.gate, true),
            M::ToolApprove(vote) => {
                self.invariant_vote(by, &vote.approver, &vote.tool_proposal, true);
            }
            M::GateReject(vote) if by.is_none() => self.invariant_told_rejection(vote),
            M::GateReject(vote) => self.invariant_vote(by, &vote.rejector, &vote.gate, false),
            M::ToolReject(vote) => {
                self.invariant_vote(by, &vote.rejector, &vote.tool_proposal, false);
            }
            M::GateAmend(amend) => {
                let proposal = self.gates[&amend.gate].clone();
                let proposer = self.proposals[&proposal].proposer.clone();
                let electorate = self.electorate(&proposer);
                let proposal = self.proposals.get_mut(&proposal).unwrap();
                assert_eq!(
                    amend.digest, proposal.assessment.digest,
                    "an edit of something else"
                );
                let tool = match &proposal.action.command {
                    Command::Tool { name, .. } => name.clone(),
                    Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
                        "shell".to_owned()
                    }
                };
                proposal.action = Action::from_arguments(&tool, &amend.arguments).unwrap();
                proposal.assessment = amend.assessment.clone().unwrap();
                assert_eq!(proposal.action.digest(), proposal.assessment.digest);
                assert_ne!(proposal.assessment.category, Category::Blocked);
                let vote = proposal.vote.as_mut().unwrap();
                assert_eq!(vote.state, VoteState::Open, "an edit behind a closed gate");
                vote.approved.clear();
                vote.electorate = electorate;
                vote.amended_by = by.cloned();
                vote.escalated = false;
                vote.rule = amend.quorum.clone().unwrap();
                vote.deadline = amend.deadline;
            }
            M::GateTimeout(timeout) => {
                let gate = timeout.gate_request.as_ref().unwrap();
                let proposal = self.gates[gate].clone();
                assert_eq!(timeout.gate, proposal, "it names the proposal");
                let vote = self
                    .proposals
                    .get_mut(&proposal)
                    .unwrap()
                    .vote
                    .as_mut()
                    .unwrap();
                assert!(vote.deadline.unwrap() <= at, "a deadline before its time");
                if timeout.resolution == TimeoutResolution::Escalated {
                    assert!(!vote.escalated, "escalated twice");
                    vote.escalated = true;
                    vote.rule = timeout.quorum.clone().unwrap();
                    vote.electorate = timeout.voters.iter().flatten().cloned().collect();
                    vote.deadline = timeout.deadline;
                }
            }
            M::GateResolve(resolve) => self.invariant_resolution(resolve, at),
            M::ToolExecute(execute) => self.invariant_grant(execute, entry),
            M::ToolOutput(output) => self.invariant_output(by, output),
            M::ToolResult(result) => self.invariant_result(by, result),
            M::ToolDiscard(discard) => self.invariant_discard(by, discard),
            M::ToolDefer(defer) => {
                let proposal = self.proposals.get_mut(&defer.tool_proposal).unwrap();
                assert_eq!(by, Some(&proposal.proposer), "deferred by someone else");
                assert_eq!(proposal.runs, RunBy::Client, "an executor goes nowhere");
                assert!(!proposal.closed, "deferred after it was over");
                proposal.deferred = defer.seconds > 0;
            }
            M::PolicyAllow(allow) => {
                // A rule for reading clears no command by itself.
                if allow.read_root.is_none() {
                    let rule = (by.unwrap().clone(), allow.prefix.clone(), allow.expires_at);
                    self.rules.insert(id.clone(), rule);
                }
            }
            M::PolicyRevoke(revoke) => {
                self.rules.remove(&revoke.rule);
            }
            M::SecretShare(_)
            | M::SecretRevoke(_)
            | M::PromptDraft(_)
            | M::PromptSubmit(_)
            | M::PromptAmend(_)
            | M::ResponseStart(_)
            | M::ResponseChunk(_)
            | M::ResponseEnd(_)
            | M::InterruptRaise(_)
            | M::InterruptAcknowledge(_)
            | M::ToolCancel(_)
            | M::ToolInput(_)
            | M::Error(_) => {}
            M::SessionWelcome(_)
            | M::SessionAck(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_)
            | M::OutputPage(_) => panic!("never an entry"),
        }
    }

    fn record_announce(&mut self, announce: &Announce) {
        let here = self
            .participants
            .get(&announce.id)
            .filter(|participant| !participant.left);
        let participant = AuditedParticipant {
            announce: announce.clone(),
            left: false,
            away: here.is_some_and(|participant| participant.away),
            gone: false,
        };
        let votes = participant.can_vote();
        self.participants.insert(announce.id.clone(), participant);
        if !votes {
            self.remove_from_votes(&announce.id);
        }
    }

    /// Removes someone who left or lost the right to vote from every open gate.
    fn remove_from_votes(&mut self, who: &ParticipantId) {
        for vote in self
            .proposals
            .values_mut()
            .filter_map(|proposal| proposal.vote.as_mut())
        {
            vote.electorate.remove(who);
            vote.approved.remove(who);
        }
    }

    /// Whom a gate that opens now is about.
    fn electorate(&self, proposer: &ParticipantId) -> BTreeSet<ParticipantId> {
        let mut voters = self.voters(proposer);
        voters.retain(|id| !self.participants[id].gone);
        voters
    }

    fn voters(&self, proposer: &ParticipantId) -> BTreeSet<ParticipantId> {
        let voters = self
            .participants
            .iter()
            .filter(|(_, participant)| participant.can_vote());
        voters
            .map(|(id, _)| id.clone())
            .filter(|id| self.config.solo || id != proposer)
            .collect()
    }

    fn record_proposal(
        &mut self,
        id: &MessageId,
        proposer: &ParticipantId,
        executor: &ParticipantId,
        action: Action,
        assessment: Assessment,
        tool_category: Option<ToolCategory>,
    ) {
        assert_eq!(
            action.digest(),
            assessment.digest,
            "a verdict on something else"
        );
        assert!(!self.paused(), "a proposal while the session is paused");
        let proposal = AuditedProposal {
            proposer: proposer.clone(),
            executor: executor.clone(),
            runs: RunBy::Executor,
            deferred: false,
            own_command: tool_category.is_none(),
            tool_category,
            action,
            closed: assessment.category == Category::Blocked,
            assessment,
            vote: None,
            executed: false,
            trial: AuditedTrial::Never,
            budget: 0,
            streams: BTreeMap::new(),
        };
        assert!(
            self.proposals.insert(id.clone(), proposal).is_none(),
            "proposed twice"
        );
    }

    fn paused(&self) -> bool {
        self.config.on_participant_timeout == ParticipantTimeoutAction::PauseSession
            && self.participants.values().any(|participant| {
                let explicit = participant.announce.capabilities.iter().flatten();
                let kind = participant.announce.kind;
                let may = capabilities_of(kind, &participant.announce.roles, explicit);
                let matters = kind == ParticipantKind::Agent || !may.is_empty();
                participant.away && !participant.left && matters
            })
    }

    fn invariant_context(&self, key: &str, entry: &Entry, by: Option<&ParticipantId>) {
        let known = &self.context[key];
        assert_eq!(&entry.audience, known, "a change is told to others");
        let by = by.unwrap();
        assert!(
            known.includes(by, self.participants[by].can_vote()),
            "changed unseen"
        );
    }

    /// The server tells in published words only of what is over already.
    fn invariant_told_rejection(&self, told: &GateReject) {
        let proposal = &self.proposals[&told.gate];
        assert_eq!(told.rejector.as_str(), "system");
        let gate = proposal.vote.as_ref().map(|vote| &vote.id);
        assert_eq!(told.gate_request.as_ref(), gate);
        let blocked = proposal.assessment.category == Category::Blocked;
        let closed = proposal
            .vote
            .as_ref()
            .is_some_and(|it| it.state == VoteState::Closed);
        assert!(blocked || closed, "told of what is open");
        assert!(!proposal.executed, "told of what runs");
    }

    /// A vote comes from a person, is on somebody else's proposal, and its gate is open.
    fn invariant_vote(
        &mut self,
        by: Option<&ParticipantId>,
        voter: &ParticipantId,
        gate: &MessageId,
        yes: bool,
    ) {
        assert_eq!(by, Some(voter), "a vote in another's name");
        assert!(
            self.participants[voter].can_vote(),
            "a vote without the right"
        );
        let proposal = self.gates.get(gate).unwrap_or(gate).clone();
        let proposal = self.proposals.get_mut(&proposal).unwrap();
        assert!(
            self.config.solo || proposal.proposer != *voter,
            "a proposer votes"
        );
        let vote = proposal.vote.as_mut().unwrap();
        assert_eq!(vote.state, VoteState::Open, "a vote at a closed gate");
        if vote.escalated {
            let admin = self.participants[voter]
                .announce
                .roles
                .contains(&Role::Admin);
            assert!(admin, "an escalated gate is for admins");
        }
        if yes {
            assert!(vote.deadline.is_none_or(|due| due > self.clock), "too late");
            vote.approved.insert(voter.clone());
        } else {
            vote.approved.remove(voter);
        }
    }

    /// Those whose vote counts at a gate at this time, and those of them it waits for.
    fn eligible_voters(
        &self,
        proposal: &AuditedProposal,
        vote: &AuditedVote,
    ) -> (BTreeSet<ParticipantId>, BTreeSet<ParticipantId>) {
        let skip = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let mut eligible = self.voters(&proposal.proposer);
        eligible.retain(|id| {
            let edited = vote.amended_by.as_ref() == Some(id);
            let admin = self.participants[id].announce.roles.contains(&Role::Admin);
            !(self.config.four_eyes && edited) && (admin || !vote.escalated)
        });
        let mut electorate = eligible.clone();
        electorate
            .retain(|id| vote.electorate.contains(id) && !(skip && self.participants[id].away));
        (eligible, electorate)
    }

    fn quorum_is_met(&self, proposal: &AuditedProposal, vote: &AuditedVote) -> bool {
        let (eligible, electorate) = self.eligible_voters(proposal, vote);
        let roles = self
            .participants
            .iter()
            .map(|(id, participant)| {
                (
                    id.clone(),
                    participant.announce.roles.iter().copied().collect(),
                )
            })
            .collect();
        let mut approved = vote.approved.clone();
        if self.config.quorum_independent && quorum_oracle::counts_people(&vote.rule, &electorate) {
            let counts = |id: &ParticipantId| eligible.contains(id) && vote.approved.contains(id);
            let owner = self.owner_of(proposal);
            approved.retain(|voter| {
                let above = self.inviters(voter);
                !above
                    .iter()
                    .any(|id| id != voter && (counts(id) || owner.as_ref() == Some(id)))
            });
        }
        quorum_oracle::quorum_met(&vote.rule, &eligible, &electorate, &roles, &approved)
    }

    /// Whom a proposal speaks for.
    fn owner_of(&self, proposal: &AuditedProposal) -> Option<ParticipantId> {
        let announce = &self.participants[&proposal.proposer].announce;
        match announce.kind {
            ParticipantKind::Human => Some(proposal.proposer.clone()),
            ParticipantKind::Agent => announce.invited_by.clone(),
        }
    }

    /// Everyone who invited this participant during the session, or whoever did.
    fn inviters(&self, who: &ParticipantId) -> BTreeSet<ParticipantId> {
        let mut all = BTreeSet::new();
        let mut next = Some(who.clone());
        while let Some(id) = next {
            let announce = self.participants.get(&id).map(|it| &it.announce);
            let inviter = announce.filter(|it| it.invited_before_session.is_none());
            next = inviter
                .and_then(|it| it.invited_by.clone())
                .filter(|id| all.insert(id.clone()));
        }
        all
    }

    /// A gate that is resolved as passed has passed, by a recount or by a deadline that may
    /// approve.
    fn invariant_resolution(&mut self, resolve: &GateResolve, at: Timestamp) {
        let proposal = &self.proposals[&resolve.tool_proposal];
        let vote = proposal.vote.as_ref().unwrap();
        assert_eq!(vote.id, resolve.gate);
        assert_eq!(vote.state, VoteState::Open, "resolved twice");
        let given: BTreeSet<_> = resolve
            .approvals
            .iter()
            .map(|a| a.participant.clone())
            .collect();
        assert!(given.is_subset(&vote.approved), "approvals nobody gave");
        let state = if resolve.outcome == GateOutcome::Approved {
            assert!(
                !self.paused() && !self.ended,
                "granted in a pause or after the end"
            );
            match resolve.how {
                ResolutionCause::Quorum => {
                    let mut vote = vote.clone();
                    if let Some(rule) = &resolve.rule {
                        // A rule stands for the vote of its author, and for no more than that.
                        let author = self.rules[rule].0.clone();
                        assert_eq!(resolve.by.as_ref(), Some(&author), "another's rule");
                        assert!(vote.deadline.is_none_or(|due| due > at), "too late");
                        vote.approved.insert(author);
                    }
                    assert!(self.quorum_is_met(proposal, &vote), "the quorum is not met");
                    let (eligible, _) = self.eligible_voters(proposal, &vote);
                    assert!(given.is_subset(&eligible), "someone counts who may not");
                }
                ResolutionCause::Clock => {
                    assert_eq!(vote.on_timeout, GateTimeoutAction::AutoApprove);
                    assert!(vote.deadline.unwrap() <= at);
                    assert!(proposal.assessment.category <= Category::Write);
                }
                ResolutionCause::Rejection
                | ResolutionCause::Deadline
                | ResolutionCause::Cancel
                | ResolutionCause::ProposerLeft
                | ResolutionCause::SessionEnded => panic!("approved by {:?}", resolve.how),
            }
            VoteState::Passed(resolve.how)
        } else {
            VoteState::Closed
        };
        let proposal = self.proposals.get_mut(&resolve.tool_proposal).unwrap();
        proposal.closed = state == VoteState::Closed;
        let vote = proposal.vote.as_mut().unwrap();
        vote.state = state;
        vote.passed_by_rule.clone_from(&resolve.rule);
    }

    /// No grant without a clearance, at most one per proposal, and for exactly what was shown.
    fn invariant_grant(&mut self, execute: &ToolExecute, entry: &Entry) {
        let grant = &execute.grant;
        let proposal = &self.proposals[&execute.tool_proposal];
        assert!(!proposal.executed, "granted twice");
        assert!(!proposal.closed, "granted after it was over");
        assert!(!self.paused() && !self.ended);
        assert_eq!(
            (&grant.action, grant.digest),
            (&proposal.action, proposal.action.digest())
        );
        assert_eq!(grant.executor, proposal.executor);
        self.invariant_terms(proposal, grant, entry);
        assert_eq!((&grant.nonce, &grant.secret_env), (&None, &None));
        assert!(
            !self.participants[&proposal.executor].left,
            "granted to someone who left"
        );
        let approved_by: Vec<_> = grant
            .approvals
            .iter()
            .map(|a| a.participant.clone())
            .collect();
        assert_eq!(execute.approved_by, approved_by);
        for voter in &execute.approved_by {
            assert!(
                self.config.solo || *voter != proposal.proposer,
                "the proposer counts"
            );
            assert!(
                self.participants[voter].can_vote(),
                "someone counts who may not"
            );
        }
        let passed = proposal.vote.as_ref().map(|vote| vote.state.clone());
        let by_rule = proposal
            .vote
            .as_ref()
            .and_then(|it| it.passed_by_rule.clone());
        match grant.cleared_by {
            ClearedBy::Quorum => {
                assert_eq!(passed, Some(VoteState::Passed(ResolutionCause::Quorum)));
                assert_eq!(by_rule, None);
            }
            ClearedBy::Clock => assert_eq!(passed, Some(VoteState::Passed(ResolutionCause::Clock))),
            ClearedBy::Read => {
                assert_eq!(
                    (passed, proposal.assessment.category),
                    (None, Category::Read)
                );
                assert!(!self.always_requires_approval(proposal));
                assert!(self.may_read_unasked(proposal));
            }
            ClearedBy::AllowRule => {
                match &by_rule {
                    None => assert_eq!(passed, None),
                    Some(_) => assert_eq!(by_rule, grant.rule),
                }
                assert!(!self.always_requires_approval(proposal));
                self.invariant_rule(proposal, &grant.rule.clone().unwrap());
            }
            ClearedBy::Direct => {
                assert_eq!((passed, proposal.own_command), (None, true));
                let most = match self.config.shell_exec {
                    ShellExecMode::Direct => Category::Write,
                    ShellExecMode::DirectAll => Category::Destructive,
                    ShellExecMode::Gated | ShellExecMode::Off => panic!("not direct here"),
                };
                assert!(proposal.assessment.category <= most);
            }
            ClearedBy::Tried => self.invariant_trial(proposal, grant),
        }
        let trial = match grant.cleared_by {
            ClearedBy::Tried => AuditedTrial::UnderWay,
            ClearedBy::Read
            | ClearedBy::Quorum
            | ClearedBy::Clock
            | ClearedBy::AllowRule
            | ClearedBy::Direct => proposal.trial,
        };
        let limits = grant.limits.unwrap_or(ExecutionLimits::CLIENT_RUN);
        let budget = limits.output_bytes;
        let proposal = self.proposals.get_mut(&execute.tool_proposal).unwrap();
        (proposal.executed, proposal.budget) = (true, budget);
        proposal.trial = trial;
    }

    /// A grant for an executor has a nonce for it alone, limits and a sandbox; one for a client has
    /// none of them, because nothing would hold the client to them.
    fn invariant_terms(&self, proposal: &AuditedProposal, grant: &GrantTerms, entry: &Entry) {
        assert_eq!(grant.runs, proposal.runs, "granted to something else");
        let nonce_for = entry.grant_nonce.as_ref().map(|private| &private.to);
        match proposal.runs {
            RunBy::Executor => {
                assert_eq!(nonce_for, Some(&proposal.executor));
                assert!(grant.limits.is_some() && grant.profile.is_some());
            }
            RunBy::Client => {
                assert_eq!((nonce_for, grant.limits, grant.profile), (None, None, None));
            }
        }
    }

    /// A read needs no vote where a sandbox holds it, or where the session trusts it.
    fn may_read_unasked(&self, proposal: &AuditedProposal) -> bool {
        match proposal.runs {
            RunBy::Client => self.config.client_reads == ClientReads::Workspace,
            RunBy::Executor => {
                let executor = &self.participants[&proposal.executor].announce.executor;
                let holds = executor
                    .as_ref()
                    .is_some_and(|able| able.profiles.contains(&proposal.assessment.profile));
                holds || self.config.trust_reads || self.settings.open_mode
            }
        }
    }

    /// A trial is before any gate, once, only where the session and the executor try, only of a plain
    /// write, in the read sandbox and with short limits.
    fn invariant_trial(&self, proposal: &AuditedProposal, grant: &GrantTerms) {
        assert!(self.config.try_unknown, "tried although nobody wants it");
        assert_eq!(proposal.trial, AuditedTrial::Never, "tried twice");
        assert!(proposal.vote.is_none() && !proposal.own_command);
        assert_eq!(
            proposal.runs,
            RunBy::Executor,
            "nothing of ours confines it"
        );
        assert_eq!(proposal.assessment.category, Category::Write);
        assert!(!self.always_requires_approval(proposal));
        assert_eq!(grant.profile, Some(SandboxProfile::Read));
        let limits = grant.limits.unwrap();
        assert!(limits.timeout_ms <= 10_000 && limits.output_bytes <= 1 << 20);
        let executor = &self.participants[&proposal.executor].announce.executor;
        assert!(executor.as_ref().is_some_and(|able| able.trials));
    }

    /// A trial is discarded by its executor or by the server, before any output.
    fn invariant_discard(&mut self, by: Option<&ParticipantId>, discard: &ToolDiscard) {
        let proposal = self.proposals.get_mut(&discard.tool_proposal).unwrap();
        assert!(by.is_none_or(|by| *by == proposal.executor));
        assert!(proposal.executed && !proposal.closed);
        assert_eq!(proposal.trial, AuditedTrial::UnderWay);
        let total: u64 = proposal.streams.values().map(|(bytes, _)| bytes).sum();
        assert_eq!(total, 0, "discarded after it was told");
        proposal.streams.clear();
        (proposal.executed, proposal.trial) = (false, AuditedTrial::Discarded);
    }

    fn always_requires_approval(&self, proposal: &AuditedProposal) -> bool {
        let listed = &self.config.require_approval_for;
        let shell = !matches!(proposal.action.command, Command::Tool { .. });
        proposal
            .tool_category
            .is_some_and(|kind| listed.contains(&kind))
            || listed.contains(&ToolCategory::All)
            || (shell && listed.contains(&ToolCategory::ShellExecute))
    }

    /// An allow rule is in force, covers only a plain write, and its author could approve alone.
    fn invariant_rule(&self, proposal: &AuditedProposal, rule: &MessageId) {
        let (author, prefix, expires_at) = &self.rules[rule];
        assert!(*expires_at > self.clock, "an expired rule");
        assert!(proposal.assessment.category <= Category::Write);
        assert!(proposal.action.mode != RunMode::Pty && proposal.action.env.is_empty());
        let words: Vec<String> = match &proposal.action.command {
            Command::Shell { line } => line.split(' ').map(str::to_owned).collect(),
            Command::Argv { command, args } => [command].into_iter().chain(args).cloned().collect(),
            Command::LoginShell { .. } | Command::Tool { .. } => panic!("no words to allow"),
        };
        assert!(
            words.starts_with(prefix),
            "{words:?} does not begin {prefix:?}"
        );
        let alone = AuditedVote {
            id: rule.clone(),
            rule: self
                .config
                .quorum_by_category
                .write
                .clone()
                .unwrap_or_else(|| self.config.default_gate_quorum.clone()),
            electorate: self.electorate(&proposal.proposer),
            approved: BTreeSet::from([author.clone()]),
            escalated: false,
            amended_by: None,
            deadline: None,
            on_timeout: GateTimeoutAction::Reject,
            state: VoteState::Open,
            passed_by_rule: None,
        };
        assert!(
            self.quorum_is_met(proposal, &alone),
            "one person's rule outweighs the quorum"
        );
    }

    /// Output comes from the executor, without gaps, within its limit, and before the result.
    fn invariant_output(&mut self, by: Option<&ParticipantId>, output: &ToolOutput) {
        let proposal = self.proposals.get_mut(&output.tool_proposal).unwrap();
        assert_eq!(by, Some(&proposal.executor), "output from someone else");
        assert!(
            proposal.executed && !proposal.closed,
            "output outside the run"
        );
        let (bytes, complete) = proposal.streams.entry(output.stream).or_default();
        assert!(!*complete, "output after the end of the stream");
        assert_eq!(output.offset, Some(*bytes), "a gap in the output");
        *bytes += output.text.len() as u64;
        *complete = output.complete;
        let total: u64 = proposal.streams.values().map(|(bytes, _)| bytes).sum();
        let most = if self.settings.open_mode {
            proposal.budget.max(24 * 1024 * 1024)
        } else {
            proposal.budget
        };
        assert!(total <= most, "more output than the budget");
    }

    /// A run has one result, from the executor, for whom a success is always known, or from the
    /// server with an unknown outcome.
    fn invariant_result(&mut self, by: Option<&ParticipantId>, result: &ToolResult) {
        let proposal = self.proposals.get_mut(&result.tool_proposal).unwrap();
        assert!(!proposal.closed, "a second result");
        proposal.closed = !result.more_output;
        assert!(!result.more_output || by.is_some());
        // A trial that was cancelled ends without a run.
        let cancelled_trial = !proposal.executed && proposal.trial == AuditedTrial::Discarded;
        assert!(proposal.executed || cancelled_trial, "a result of nothing");
        assert_eq!(
            result.attested,
            proposal.runs == RunBy::Client,
            "only of what a client ran there is nothing but its word"
        );
        let not_run = result.outcome == Some(RunOutcome::NotRun);
        assert!(
            !not_run || (result.attested && by.is_some()),
            "only a client leaves it"
        );
        match by {
            None if cancelled_trial => assert!(!result.success && result.result.is_none()),
            Some(by) => {
                assert_eq!(*by, proposal.executor);
                assert!(result.outcome.is_some());
                assert!(!result.success || result.outcome == Some(RunOutcome::Known));
            }
            None => assert_eq!(
                (result.outcome, result.success),
                (Some(RunOutcome::Unknown), false)
            ),
        }
    }

    /// The calls that end with their clients, in the order of their ids.
    pub fn leased(&self) -> impl Iterator<Item = &MessageId> {
        let needs = |it: &AuditedProposal| it.runs == RunBy::Client && !it.closed && !it.deferred;
        let leased = self.proposals.iter().filter(move |(_, it)| needs(it));
        leased.map(|(id, _)| id)
    }

    /// After a batch, every proposal is gated, running or closed, and no open gate has passed.
    pub fn invariant_nothing_half_done(&self) {
        for (id, proposal) in &self.proposals {
            let open = proposal
                .vote
                .as_ref()
                .filter(|vote| vote.state == VoteState::Open);
            assert!(
                proposal.closed || proposal.executed || open.is_some(),
                "{id} is nowhere"
            );
            if let Some(vote) = open.filter(|_| !self.paused() && !self.ended) {
                let due = vote.deadline.is_some_and(|due| due <= self.clock);
                assert!(
                    due || !self.quorum_is_met(proposal, vote),
                    "{id} has passed and waits"
                );
            }
        }
    }
}
