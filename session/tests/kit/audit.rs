//! The promises, checked from the log alone: a second bookkeeping that trusts no decision.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{
    Announce, ClearedBy, GateOutcome, GateResolve, Outcome, PresenceStatus, ResolvedHow, Stream,
    TimeoutResolution, ToolExecute, ToolOutput, ToolResult,
};
use pvp_protocol::{
    Action, Assessment, Capability, Category, Command, GateTimeoutAction, MessageId, Mode,
    ParticipantId, ParticipantKind, ParticipantTimeoutAction, QuorumRule, Role, Sender,
    ServerMessage, SessionConfig, ShellExecMode, Timestamp, ToolCategory, capabilities_of,
};
use pvp_session::{Audience, Entry, Session, Settings};

use super::oracle;

/// Secrets in tests contain this, so that a leak is found wherever it is.
pub const SECRET: &str = "hunter2";

#[derive(Clone)]
struct Person {
    announce: Announce,
    left: bool,
    away: bool,
}

impl Person {
    fn votes(&self) -> bool {
        let explicit = self.announce.capabilities.iter().flatten();
        let may = capabilities_of(self.announce.kind, &self.announce.roles, explicit);
        self.announce.kind == ParticipantKind::Human
            && !self.left
            && may.contains(&Capability::Approve)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Door {
    Open,
    Passed(ResolvedHow),
    Shut,
}

#[derive(Clone)]
struct Vote {
    id: MessageId,
    rule: QuorumRule,
    asked: BTreeSet<ParticipantId>,
    approved: BTreeSet<ParticipantId>,
    escalated: bool,
    amended_by: Option<ParticipantId>,
    deadline: Option<Timestamp>,
    then: GateTimeoutAction,
    door: Door,
}

#[derive(Clone)]
struct Work {
    proposer: ParticipantId,
    executor: ParticipantId,
    own_command: bool,
    tool_category: Option<ToolCategory>,
    action: Action,
    verdict: Assessment,
    vote: Option<Vote>,
    executed: bool,
    budget: u64,
    streams: BTreeMap<Stream, (u64, bool)>,
    over: bool,
}

/// What the log says so far, and what it may therefore not say next.
#[derive(Clone)]
pub struct Audit {
    settings: Settings,
    config: SessionConfig,
    ended: bool,
    head: u64,
    clock: Timestamp,
    ids: BTreeSet<MessageId>,
    people: BTreeMap<ParticipantId, Person>,
    work: BTreeMap<MessageId, Work>,
    gates: BTreeMap<MessageId, MessageId>,
    rules: BTreeMap<MessageId, (ParticipantId, Vec<String>, Timestamp)>,
    nonces: BTreeSet<String>,
    thinking: BTreeMap<MessageId, Audience>,
    context: BTreeMap<String, Audience>,
}

/// The stored bytes of an entry say the same as the entry, and fold to the same state.
pub fn invariant_stored_form(shadow: &mut Session, entry: &Entry) {
    let stored = Entry::read(&entry.meta(), &entry.body()).unwrap();
    assert_eq!(&stored, entry, "an entry survives being stored");
    assert_eq!(
        (stored.meta(), stored.body()),
        (entry.meta(), entry.body()),
        "byte for byte"
    );
    shadow.replay(&stored).unwrap();
}

impl Audit {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            config: SessionConfig::default(),
            ended: false,
            head: 0,
            clock: Timestamp::default(),
            ids: BTreeSet::new(),
            people: BTreeMap::new(),
            work: BTreeMap::new(),
            gates: BTreeMap::new(),
            rules: BTreeMap::new(),
            nonces: BTreeSet::new(),
            thinking: BTreeMap::new(),
            context: BTreeMap::new(),
        }
    }

    /// Everything that must hold of the next entry.
    pub fn invariant_entry(&mut self, entry: &Entry) {
        self.invariant_order(entry);
        self.invariant_nothing_leaks(entry);
        let by = match &entry.envelope.heading.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id.clone()),
        };
        self.invariant_sender(entry, by.as_ref());
        self.take(entry, by.as_ref());
    }

    /// Seq counts without gap or repeat, time does not run backwards, no id is used twice.
    fn invariant_order(&mut self, entry: &Entry) {
        assert_eq!(entry.seq(), self.head + 1, "seq has no gap and no repeat");
        self.head += 1;
        assert!(entry.envelope.at >= self.clock, "time runs backwards");
        self.clock = entry.envelope.at;
        assert!(self.ids.insert(entry.id().clone()), "id used twice");
    }

    /// No secret value anywhere; no nonce in anything that is told.
    fn invariant_nothing_leaks(&mut self, entry: &Entry) {
        let body = String::from_utf8(entry.body()).unwrap();
        let meta = String::from_utf8(entry.meta()).unwrap();
        assert!(!body.contains(SECRET), "a secret in a body: {body}");
        assert!(!meta.contains(SECRET), "a secret in a meta: {meta}");
        let execute = matches!(entry.envelope.message, ServerMessage::ToolExecute(_));
        assert_eq!(execute, entry.private.is_some(), "only grants are private");
        if let Some(private) = &entry.private {
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

    /// What only the server says is from the server, and nobody speaks who is not there.
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
            assert!(!self.people[by].left, "someone speaks who has left");
        }
        if self.ended {
            let late = matches!(
                entry.envelope.message,
                M::ToolOutput(_)
                    | M::ToolResult(_)
                    | M::ToolCancel(_)
                    | M::GateResolve(_)
                    | M::SecretRevoke(_)
            );
            assert!(late, "something happens after the end");
        }
    }

    fn take(&mut self, entry: &Entry, by: Option<&ParticipantId>) {
        use ServerMessage as M;
        let (id, at) = (entry.id(), entry.envelope.at);
        match &entry.envelope.message {
            M::SessionCreate(create) => self.config = create.config.clone(),
            M::SessionConfigUpdate(update) => {
                self.config = self.config.clone().with(&update.changes);
            }
            M::SessionEnd(_) => self.ended = true,
            M::Announce(announce) => self.take_announce(announce),
            M::SessionLeave(_) => {
                let by = by.unwrap();
                let person = self.people.get_mut(by).unwrap();
                (person.left, person.away) = (true, false);
                self.strike(by);
            }
            M::RoleChange(change) => {
                let person = self.people.get_mut(&change.participant).unwrap();
                person.announce.roles.clone_from(&change.new_roles);
                if change.capabilities.is_some() {
                    person
                        .announce
                        .capabilities
                        .clone_from(&change.capabilities);
                }
                if !person.votes() {
                    self.strike(&change.participant);
                }
            }
            M::PresenceUpdate(presence) => {
                let away = presence.status != PresenceStatus::Active;
                self.people.get_mut(&presence.participant).unwrap().away = away;
            }
            M::ContextAdd(add) => {
                self.context.insert(add.key.clone(), entry.audience.clone());
            }
            M::ContextUpdate(update) => self.invariant_context(&update.key, entry, by),
            M::ContextRemove(remove) => {
                self.invariant_context(&remove.key, entry, by);
                self.context.remove(&remove.key);
            }
            M::ThinkingStart(_) => {
                self.thinking.insert(id.clone(), entry.audience.clone());
            }
            M::ThinkingChunk(_) | M::ThinkingEnd(_) => {
                let start = entry.envelope.heading.reference.as_ref().unwrap();
                assert_eq!(
                    entry.audience, self.thinking[start],
                    "a chunk is seen by others"
                );
            }
            M::ToolPropose(propose) => {
                let action = Action::read(&propose.tool_name, &propose.arguments).unwrap();
                let verdict = propose.assessment.clone().unwrap();
                assert_eq!(by, Some(&propose.agent));
                let kind = Some(propose.category);
                self.propose(id, &propose.agent, &propose.agent, action, verdict, kind);
            }
            M::ShellExec(exec) => {
                let action = Action {
                    cwd: exec.cwd.clone(),
                    timeout_seconds: exec.timeout_seconds,
                    ..Action::plain(Command::LoginShell {
                        line: exec.command.clone(),
                    })
                };
                let executor = exec.executor.clone().unwrap();
                let verdict = exec.assessment.clone().unwrap();
                self.propose(id, by.unwrap(), &executor, action, verdict, None);
            }
            M::GateRequest(request) => {
                let asked: BTreeSet<_> = request.voters.iter().cloned().collect();
                let work = &self.work[&request.action_ref];
                assert!(work.vote.is_none() && !work.executed && !work.over);
                assert_ne!(work.verdict.category, Category::Blocked);
                assert_eq!(asked, self.electorate(&work.proposer), "who is asked");
                let vote = Vote {
                    id: id.clone(),
                    rule: request.quorum.clone(),
                    asked,
                    approved: BTreeSet::new(),
                    escalated: false,
                    amended_by: None,
                    deadline: request.deadline,
                    then: request.on_timeout,
                    door: Door::Open,
                };
                self.gates.insert(id.clone(), request.action_ref.clone());
                self.work.get_mut(&request.action_ref).unwrap().vote = Some(vote);
            }
            M::GateApprove(vote) => self.invariant_vote(by, &vote.approver, &vote.gate, true),
            M::ToolApprove(vote) => {
                self.invariant_vote(by, &vote.approver, &vote.tool_proposal, true);
            }
            M::GateReject(vote) => self.invariant_vote(by, &vote.rejector, &vote.gate, false),
            M::ToolReject(vote) => {
                self.invariant_vote(by, &vote.rejector, &vote.tool_proposal, false);
            }
            M::GateAmend(amend) => {
                let proposal = self.gates[&amend.gate].clone();
                let proposer = self.work[&proposal].proposer.clone();
                let asked = self.electorate(&proposer);
                let work = self.work.get_mut(&proposal).unwrap();
                assert_eq!(
                    amend.digest, work.verdict.digest,
                    "an edit of something else"
                );
                work.action = Action::read("shell", &amend.arguments).unwrap();
                work.verdict = amend.assessment.clone().unwrap();
                assert_eq!(work.action.digest(), work.verdict.digest);
                assert_ne!(work.verdict.category, Category::Blocked);
                let vote = work.vote.as_mut().unwrap();
                assert_eq!(vote.door, Door::Open, "an edit behind a closed gate");
                vote.approved.clear();
                vote.asked = asked;
                vote.amended_by = by.cloned();
                vote.escalated = false;
                vote.rule = amend.quorum.clone().unwrap();
                vote.deadline = amend.deadline;
            }
            M::GateTimeout(timeout) => {
                let proposal = self.gates[&timeout.gate].clone();
                let vote = self.work.get_mut(&proposal).unwrap().vote.as_mut().unwrap();
                assert!(vote.deadline.unwrap() <= at, "a deadline before its time");
                if timeout.resolution == TimeoutResolution::Escalated {
                    assert!(!vote.escalated, "escalated twice");
                    vote.escalated = true;
                    vote.rule = timeout.quorum.clone().unwrap();
                    vote.asked = timeout.voters.iter().flatten().cloned().collect();
                    vote.deadline = timeout.deadline;
                }
            }
            M::GateResolve(resolve) => self.invariant_resolution(resolve, at),
            M::ToolExecute(execute) => self.invariant_grant(execute, entry),
            M::ToolOutput(output) => self.invariant_output(by, output),
            M::ToolResult(result) => self.invariant_result(by, result),
            M::PolicyAllow(allow) => {
                let rule = (by.unwrap().clone(), allow.prefix.clone(), allow.expires_at);
                self.rules.insert(id.clone(), rule);
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

    fn take_announce(&mut self, announce: &Announce) {
        let here = self.people.get(&announce.id).filter(|person| !person.left);
        let person = Person {
            announce: announce.clone(),
            left: false,
            away: here.is_some_and(|person| person.away),
        };
        let votes = person.votes();
        self.people.insert(announce.id.clone(), person);
        if !votes {
            self.strike(&announce.id);
        }
    }

    /// Takes someone who left or lost the right out of every open vote.
    fn strike(&mut self, who: &ParticipantId) {
        for vote in self.work.values_mut().filter_map(|work| work.vote.as_mut()) {
            vote.asked.remove(who);
            vote.approved.remove(who);
        }
    }

    fn electorate(&self, proposer: &ParticipantId) -> BTreeSet<ParticipantId> {
        let voters = self.people.iter().filter(|(_, person)| person.votes());
        voters
            .map(|(id, _)| id.clone())
            .filter(|id| id != proposer)
            .collect()
    }

    fn propose(
        &mut self,
        id: &MessageId,
        proposer: &ParticipantId,
        executor: &ParticipantId,
        action: Action,
        verdict: Assessment,
        tool_category: Option<ToolCategory>,
    ) {
        assert_eq!(
            action.digest(),
            verdict.digest,
            "a verdict on something else"
        );
        assert!(!self.paused(), "a proposal while the session is paused");
        let work = Work {
            proposer: proposer.clone(),
            executor: executor.clone(),
            own_command: tool_category.is_none(),
            tool_category,
            action,
            over: verdict.category == Category::Blocked,
            verdict,
            vote: None,
            executed: false,
            budget: 0,
            streams: BTreeMap::new(),
        };
        assert!(
            self.work.insert(id.clone(), work).is_none(),
            "proposed twice"
        );
    }

    fn paused(&self) -> bool {
        self.config.on_participant_timeout == ParticipantTimeoutAction::PauseSession
            && self.people.values().any(|person| {
                let explicit = person.announce.capabilities.iter().flatten();
                let kind = person.announce.kind;
                let may = capabilities_of(kind, &person.announce.roles, explicit);
                let matters = kind == ParticipantKind::Agent || !may.is_empty();
                person.away && !person.left && matters
            })
    }

    fn invariant_context(&self, key: &str, entry: &Entry, by: Option<&ParticipantId>) {
        let known = &self.context[key];
        assert_eq!(&entry.audience, known, "a change is told to others");
        let by = by.unwrap();
        assert!(
            known.includes(by, self.people[by].votes()),
            "changed unseen"
        );
    }

    /// A vote is a person's, about somebody else's proposal, at an open gate.
    fn invariant_vote(
        &mut self,
        by: Option<&ParticipantId>,
        voter: &ParticipantId,
        gate: &MessageId,
        yes: bool,
    ) {
        assert_eq!(by, Some(voter), "a vote in another's name");
        assert!(self.people[voter].votes(), "a vote without the right");
        let proposal = self.gates.get(gate).unwrap_or(gate).clone();
        let work = self.work.get_mut(&proposal).unwrap();
        assert_ne!(work.proposer, *voter, "a proposer votes");
        let vote = work.vote.as_mut().unwrap();
        assert_eq!(vote.door, Door::Open, "a vote at a closed gate");
        if vote.escalated {
            let admin = self.people[voter].announce.roles.contains(&Role::Admin);
            assert!(admin, "an escalated gate is for admins");
        }
        if yes {
            assert!(vote.deadline.is_none_or(|due| due > self.clock), "too late");
            vote.approved.insert(voter.clone());
        } else {
            vote.approved.remove(voter);
        }
    }

    /// Those who count at a gate at this moment, and those of them it waits for.
    fn deciders(
        &self,
        work: &Work,
        vote: &Vote,
    ) -> (BTreeSet<ParticipantId>, BTreeSet<ParticipantId>) {
        let skip = self.config.on_participant_timeout == ParticipantTimeoutAction::Skip;
        let mut could = self.electorate(&work.proposer);
        could.retain(|id| {
            let edited = vote.amended_by.as_ref() == Some(id);
            let admin = self.people[id].announce.roles.contains(&Role::Admin);
            !(self.config.four_eyes && edited) && (admin || !vote.escalated)
        });
        let mut asked = could.clone();
        asked.retain(|id| vote.asked.contains(id) && !(skip && self.people[id].away));
        (could, asked)
    }

    fn recount(&self, work: &Work, vote: &Vote) -> bool {
        let (could, asked) = self.deciders(work, vote);
        let roles = self
            .people
            .iter()
            .map(|(id, person)| (id.clone(), person.announce.roles.iter().copied().collect()))
            .collect();
        oracle::enough(&vote.rule, &could, &asked, &roles, &vote.approved)
    }

    /// A gate that passes has passed: by a recount, or by a clock that may decide this.
    fn invariant_resolution(&mut self, resolve: &GateResolve, at: Timestamp) {
        let work = &self.work[&resolve.tool_proposal];
        let vote = work.vote.as_ref().unwrap();
        assert_eq!(vote.id, resolve.gate);
        assert_eq!(vote.door, Door::Open, "resolved twice");
        let given: BTreeSet<_> = resolve
            .approvals
            .iter()
            .map(|a| a.participant.clone())
            .collect();
        assert!(given.is_subset(&vote.approved), "approvals nobody gave");
        let door = if resolve.outcome == GateOutcome::Approved {
            assert!(
                !self.paused() && !self.ended,
                "granted in a pause or after the end"
            );
            match resolve.how {
                ResolvedHow::Quorum => {
                    assert!(self.recount(work, vote), "the quorum is not met");
                    let (could, _) = self.deciders(work, vote);
                    assert!(given.is_subset(&could), "someone counts who may not");
                }
                ResolvedHow::Clock => {
                    assert_eq!(vote.then, GateTimeoutAction::AutoApprove);
                    assert!(vote.deadline.unwrap() <= at);
                    assert!(work.verdict.category <= Category::Write);
                }
                ResolvedHow::Rejection
                | ResolvedHow::Deadline
                | ResolvedHow::Cancel
                | ResolvedHow::ProposerLeft
                | ResolvedHow::SessionEnded => panic!("approved by {:?}", resolve.how),
            }
            Door::Passed(resolve.how)
        } else {
            Door::Shut
        };
        let work = self.work.get_mut(&resolve.tool_proposal).unwrap();
        work.over = door == Door::Shut;
        work.vote.as_mut().unwrap().door = door;
    }

    /// No grant without a clearance, at most one for a proposal, and of exactly what was shown.
    fn invariant_grant(&mut self, execute: &ToolExecute, entry: &Entry) {
        let grant = &execute.grant;
        let work = &self.work[&execute.tool_proposal];
        assert!(!work.executed, "granted twice");
        assert!(!work.over, "granted after it was over");
        assert!(!self.paused() && !self.ended);
        assert_eq!(
            (&grant.action, grant.digest),
            (&work.action, work.action.digest())
        );
        assert_eq!(grant.executor, work.executor);
        assert_eq!(entry.private.as_ref().unwrap().to, work.executor);
        assert_eq!((&grant.nonce, &grant.secret_env), (&None, &None));
        assert!(
            !self.people[&work.executor].left,
            "granted to someone who left"
        );
        let approved_by: Vec<_> = grant
            .approvals
            .iter()
            .map(|a| a.participant.clone())
            .collect();
        assert_eq!(execute.approved_by, approved_by);
        for voter in &execute.approved_by {
            assert_ne!(*voter, work.proposer, "the proposer counts");
            assert!(self.people[voter].votes(), "someone counts who may not");
        }
        let passed = work.vote.as_ref().map(|vote| vote.door.clone());
        match grant.cleared_by {
            ClearedBy::Quorum => assert_eq!(passed, Some(Door::Passed(ResolvedHow::Quorum))),
            ClearedBy::Clock => assert_eq!(passed, Some(Door::Passed(ResolvedHow::Clock))),
            ClearedBy::Read => {
                assert_eq!((passed, work.verdict.category), (None, Category::Read));
                assert!(!self.always_asks(work));
                let executor = &self.people[&work.executor].announce.executor;
                let holds = executor
                    .as_ref()
                    .is_some_and(|able| able.profiles.contains(&work.verdict.profile));
                assert!(holds || self.config.trust_reads || self.settings.open);
            }
            ClearedBy::AllowRule => {
                assert_eq!(passed, None);
                assert!(!self.always_asks(work));
                self.invariant_rule(work, &grant.rule.clone().unwrap());
            }
            ClearedBy::Direct => {
                assert_eq!((passed, work.own_command), (None, true));
                let most = match self.config.shell_exec {
                    ShellExecMode::Direct => Category::Write,
                    ShellExecMode::DirectAll => Category::Destructive,
                    ShellExecMode::Gated | ShellExecMode::Off => panic!("not direct here"),
                };
                assert!(work.verdict.category <= most);
            }
        }
        let budget = grant.limits.output_bytes;
        let work = self.work.get_mut(&execute.tool_proposal).unwrap();
        (work.executed, work.budget) = (true, budget);
    }

    fn always_asks(&self, work: &Work) -> bool {
        let listed = &self.config.require_approval_for;
        let shell = !matches!(work.action.command, Command::Tool { .. });
        work.tool_category
            .is_some_and(|kind| listed.contains(&kind))
            || listed.contains(&ToolCategory::All)
            || (shell && listed.contains(&ToolCategory::ShellExecute))
    }

    /// A rule is one person's vote in advance: in force, on a plain write, by one who would do.
    fn invariant_rule(&self, work: &Work, rule: &MessageId) {
        let (author, prefix, expires_at) = &self.rules[rule];
        assert!(*expires_at > self.clock, "an expired rule");
        assert!(work.verdict.category <= Category::Write);
        assert!(work.action.mode != Mode::Pty && work.action.env.is_empty());
        let words: Vec<String> = match &work.action.command {
            Command::Shell { line } => line.split(' ').map(str::to_owned).collect(),
            Command::Argv { command, args } => [command].into_iter().chain(args).cloned().collect(),
            Command::LoginShell { .. } | Command::Tool { .. } => panic!("no words to allow"),
        };
        assert!(
            words.starts_with(prefix),
            "{words:?} does not begin {prefix:?}"
        );
        let alone = Vote {
            id: rule.clone(),
            rule: self
                .config
                .quorum_by_category
                .write
                .clone()
                .unwrap_or_else(|| self.config.default_gate_quorum.clone()),
            asked: self.electorate(&work.proposer),
            approved: BTreeSet::from([author.clone()]),
            escalated: false,
            amended_by: None,
            deadline: None,
            then: GateTimeoutAction::Reject,
            door: Door::Open,
        };
        assert!(
            self.recount(work, &alone),
            "one person's rule outweighs the quorum"
        );
    }

    /// Only the executor speaks of a run, without gaps, within its budget, until the result.
    fn invariant_output(&mut self, by: Option<&ParticipantId>, output: &ToolOutput) {
        let work = self.work.get_mut(&output.tool_proposal).unwrap();
        assert_eq!(by, Some(&work.executor), "output from someone else");
        assert!(work.executed && !work.over, "output outside the run");
        let (bytes, complete) = work.streams.entry(output.stream).or_default();
        assert!(!*complete, "output after the end of the stream");
        assert_eq!(output.offset, Some(*bytes), "a gap in the output");
        *bytes += output.text.len() as u64;
        *complete = output.complete;
        let total: u64 = work.streams.values().map(|(bytes, _)| bytes).sum();
        let most = if self.settings.open {
            work.budget.max(24 * 1024 * 1024)
        } else {
            work.budget
        };
        assert!(total <= most, "more output than the budget");
    }

    /// One result, by the executor, who knows that a success is one; or by the server, which then
    /// knows nothing.
    fn invariant_result(&mut self, by: Option<&ParticipantId>, result: &ToolResult) {
        let work = self.work.get_mut(&result.tool_proposal).unwrap();
        assert!(work.executed, "a result of nothing");
        assert!(!work.over, "a second result");
        work.over = true;
        match by {
            Some(by) => {
                assert_eq!(*by, work.executor);
                assert!(result.outcome.is_some());
                assert!(!result.success || result.outcome == Some(Outcome::Known));
            }
            None => assert_eq!(
                (result.outcome, result.success),
                (Some(Outcome::Unknown), false)
            ),
        }
    }

    /// After a batch, every proposal is at a gate, running or over; and no open gate has passed.
    pub fn invariant_nothing_half_done(&self) {
        for (id, work) in &self.work {
            let open = work.vote.as_ref().filter(|vote| vote.door == Door::Open);
            assert!(
                work.over || work.executed || open.is_some(),
                "{id} is nowhere"
            );
            if let Some(vote) = open.filter(|_| !self.paused() && !self.ended) {
                let due = vote.deadline.is_some_and(|due| due <= self.clock);
                assert!(
                    due || !self.recount(work, vote),
                    "{id} has passed and waits"
                );
            }
        }
    }
}
