//! Random runs with crashes, in which every invariant is checked after every step.

use std::collections::BTreeMap;

use crate::support::simulation::{FailurePrinting, SessionSimulation};
use crate::support::simulation_step::SimulationStep;
use crate::support::{announcement, at, executor_announcement, shell_proposal};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestError, TestRunner};
use pvp_protocol::payload::OutputStream;
use pvp_session::{Answer, Proposal, ProposalStage, SessionSettings};
use serde_json::{Value, json};

/// One random move: which one, and random numbers for its choices.
type RandomMove = (u8, u16, u16, u16);

type MoveAction = fn(&mut RandomDriver, [u16; 3]);

const PEOPLE: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];
const EVERYONE: [&str; 9] = [
    "ann", "bob", "cat", "dan", "eve", "fay", "bot", "bee", "cli",
];
const ROLES: [&str; 6] = [
    "admin",
    "approver",
    "navigator",
    "driver",
    "observer",
    "adversary",
];
const COMMANDS: [&str; 10] = [
    "ls",
    "make",
    "make",
    "make test",
    "cat README.md",
    "rm -rf build",
    "rm -rf /",
    "git push --force",
    "python3 -c 'print(1)'",
    "unheard-of --version",
];

/// The moves with their weights.
const MOVES: [(u32, MoveAction); 31] = [
    (10, RandomDriver::propose),
    (8, RandomDriver::propose_client_call),
    (2, RandomDriver::lease_ends),
    (2, RandomDriver::defer),
    (1, RandomDriver::renew),
    (16, RandomDriver::approve),
    (2, RandomDriver::reject),
    (5, RandomDriver::amend),
    (3, RandomDriver::cancel),
    (8, RandomDriver::output),
    (6, RandomDriver::result),
    (5, RandomDriver::discard),
    (2, RandomDriver::join),
    (2, RandomDriver::leave),
    (2, RandomDriver::change_roles),
    (2, RandomDriver::configure),
    (2, RandomDriver::times_out),
    (2, RandomDriver::comes_back),
    (4, RandomDriver::wait),
    (6, RandomDriver::shell_exec),
    (4, RandomDriver::repeat),
    (2, RandomDriver::reuse_id),
    (2, RandomDriver::allow),
    (1, RandomDriver::revoke),
    (2, RandomDriver::interrupt),
    (2, RandomDriver::secret),
    (2, RandomDriver::context),
    (2, RandomDriver::think),
    (1, RandomDriver::type_keys),
    (12, RandomDriver::durable),
    (2, RandomDriver::crash),
];

/// Drives a simulation with random moves.
struct RandomDriver {
    /// The session and its store.
    simulation: SessionSimulation,
    /// How many ids have been used.
    ids: u32,
    /// The ids of proposals made so far.
    proposals: Vec<String>,
    /// The ids of allow rules made so far.
    rules: Vec<String>,
    /// The ids of interrupts raised so far.
    interrupts: Vec<String>,
    /// Messages sent so far, to repeat them.
    sent: Vec<SimulationStep>,
}

fn pick<'a>(from: &[&'a str], choice: u16) -> &'a str {
    from[usize::from(choice) % from.len()]
}

fn one_in(times: u16, choice: u16) -> bool {
    choice.is_multiple_of(times)
}

fn quorum(choice: u16) -> Value {
    match choice % 8 {
        0 => json!({"type": "any", "count": 1}),
        1..=3 => json!({"type": "any", "count": 2}),
        4 => json!({"type": "all"}),
        5 => json!({"type": "role", "role": "navigator", "count": 1}),
        6 => json!({"type": "specific", "participants": ["bob", "cat"]}),
        _ => json!({"type": "majority"}),
    }
}

fn configuration(a: u16, b: u16, c: u16) -> Value {
    json!({
        "default_gate_quorum": quorum(a),
        "quorum_by_category": {"destructive": quorum(a / 8)},
        "on_gate_timeout": pick(&["reject", "escalate", "auto_approve"], b),
        "on_participant_timeout": pick(&["wait", "skip", "pause_session"], b / 3),
        "shell_exec": pick(&["direct", "direct_all", "gated", "off"], b / 9),
        "four_eyes": one_in(2, c),
        "solo": !one_in(2, c) && one_in(3, a),
        "trust_reads": one_in(3, c),
        "client_reads": pick(&["ask", "workspace"], a / 16),
        "try_unknown": one_in(2, a),
        "gate_timeout_seconds": if one_in(5, c) { 0 } else { 60 },
        "require_approval_for": if one_in(7, c) { json!(["shell_execute"]) } else { json!([]) },
    })
}

/// An agent client, which runs its calls by itself.
fn client_announcement() -> Value {
    let place = json!({"profiles": [], "edits": true, "working_directory": "/srv/app"});
    executor_announcement("cli", place)
}

impl RandomDriver {
    fn new((a, b, c): (u16, u16, u16), failure_printing: FailurePrinting) -> Self {
        let open = one_in(11, c);
        let settings = SessionSettings {
            open_mode: open,
            ..SessionSettings::default()
        };
        let mut driver = Self {
            simulation: SessionSimulation::new(settings, failure_printing),
            ids: 0,
            proposals: Vec::new(),
            rules: Vec::new(),
            interrupts: Vec::new(),
            sent: Vec::new(),
        };
        driver.simulation.step(SimulationStep::Create {
            by: "ann".to_owned(),
            id: "create".to_owned(),
            open,
            config: serde_json::from_value(configuration(a, b, c)).expect("a configuration"),
        });
        for (who, role) in PEOPLE.iter().zip(ROLES).take(5) {
            driver.join_as(announcement(who, "human", &[role]));
        }
        driver.join_as(executor_announcement(
            "bot",
            json!({"profiles": ["read"], "trials": true, "shell_exec": true}),
        ));
        driver.join_as(executor_announcement("bee", json!({"profiles": []})));
        driver.join_as(client_announcement());
        driver
    }

    fn join_as(&mut self, announce: Value) {
        let announce = serde_json::from_value(announce).expect("an announcement");
        let id = self.next_id("j");
        self.simulation.step(SimulationStep::Join { id, announce });
    }

    fn next_id(&mut self, letter: &str) -> String {
        self.ids += 1;
        format!("{letter}{}", self.ids)
    }

    fn send(&mut self, by: &str, kind: &str, payload: Value) -> Option<Answer> {
        let id = self.next_id("m");
        self.send_with_id(by, &id, kind, payload)
    }

    fn send_with_id(&mut self, by: &str, id: &str, kind: &str, payload: Value) -> Option<Answer> {
        let step = SimulationStep::say(by, id, kind, payload);
        self.sent.push(step.clone());
        self.simulation.step(step)
    }

    fn apply_move(&mut self, (which, a, b, c): RandomMove) {
        let all: u32 = MOVES.iter().map(|(weight, _)| weight).sum();
        let mut left = u32::from(which) * all / 256;
        for (weight, driver) in MOVES {
            if left < weight {
                return driver(self, [a, b, c]);
            }
            left -= weight;
        }
    }

    /// The id of a proposal, usually an open one.
    fn some_proposal(&self, choice: u16) -> String {
        let open: Vec<_> = self
            .simulation
            .live
            .proposals()
            .map(|p| p.id.to_string())
            .collect();
        let among = if open.is_empty() || one_in(8, choice) {
            &self.proposals
        } else {
            &open
        };
        let index = usize::from(choice / 8) % among.len().max(1);
        among.get(index).cloned().unwrap_or_else(|| "p0".to_owned())
    }

    fn open_proposal(&self, id: &str) -> Option<&Proposal> {
        self.simulation
            .live
            .proposal(&crate::support::message_id(id))
    }

    /// Usually an open gate, by its own id or its proposal's, with the digest of the action.
    fn some_gate(&self, choice: u16) -> (String, Value) {
        let gates = self.simulation.live.open_gates();
        if gates.is_empty() || one_in(8, choice) {
            let proposal = self.some_proposal(choice);
            let digest = self
                .open_proposal(&proposal)
                .map(|p| json!(p.assessment.digest));
            return (proposal, digest.unwrap_or_else(|| json!("0".repeat(64))));
        }
        let (proposal, gate) = gates[usize::from(choice / 8) % gates.len()];
        let name = if one_in(5, choice) {
            &gate.id
        } else {
            &proposal.id
        };
        (name.to_string(), json!(proposal.assessment.digest))
    }

    fn propose(&mut self, [a, b, c]: [u16; 3]) {
        let id = self.next_id("p");
        let agent = pick(&["bot", "bot", "bee", "dan"], a);
        let mut propose = shell_proposal(agent, pick(&COMMANDS, b));
        propose["risk_level"] = json!(pick(&["safe", "safe", "safe", "low", "high"], c));
        propose["requires_approval"] = json!(one_in(13, c));
        propose["category"] = json!(pick(&["shell_execute", "file_read"], c / 5));
        match c % 17 {
            0 => propose["arguments"]["mode"] = json!("background"),
            1 => propose["arguments"]["mode"] = json!("pty"),
            2 => propose["arguments"] = json!({"command": "make", "args": ["all"]}),
            3 => propose["arguments"]["env"] = json!({"A": "b"}),
            4 => propose["streaming"] = json!(true),
            _ => {}
        }
        self.proposals.push(id.clone());
        self.send_with_id(agent, &id, "tool.propose", propose);
    }

    /// A call that its client runs, or says that it does.
    fn propose_client_call(&mut self, [a, b, c]: [u16; 3]) {
        let id = self.next_id("c");
        let agent = pick(&["cli", "cli", "cli", "bot"], a);
        let mut propose = shell_proposal(agent, pick(&COMMANDS, b));
        propose["arguments"]["cwd"] = json!("/srv/app");
        propose["runs"] = json!("client");
        propose["origin"] = json!({"client": "claude", "call": id});
        match c % 9 {
            0 => propose["degree"] = json!("held"),
            1 => propose["degree"] = json!("executed"),
            2 => propose["arguments"]["mode"] = json!("background"),
            3 => propose["requires_approval"] = json!(true),
            _ => {}
        }
        self.proposals.push(id.clone());
        self.send_with_id(agent, &id, "tool.propose", propose);
    }

    fn lease_ends(&mut self, [a, _, _]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        self.simulation.step(SimulationStep::LeaseEnds { proposal });
    }

    fn defer(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.pick_sender(&proposal, b);
        let seconds = [0, 60, 604_800, 604_801][usize::from(c % 4)];
        let defer = json!({"tool_proposal": proposal, "seconds": seconds});
        self.send(&who, "tool.defer", defer);
    }

    fn renew(&mut self, [a, b, c]: [u16; 3]) {
        let proposals = [self.some_proposal(a), self.some_proposal(c)];
        let who = self.pick_sender(&proposals[0], b);
        self.send(&who, "tool.renew", json!({"tool_proposals": proposals}));
    }

    fn approve(&mut self, [a, b, c]: [u16; 3]) {
        let (gate, digest) = self.some_gate(b);
        let proposer = self.open_proposal(&gate).map(|p| p.proposer.to_string());
        let who = match &proposer {
            Some(proposer) if one_in(7, c) => proposer,
            Some(_) | None => pick(&EVERYONE, a),
        };
        let digest = match c % 6 {
            0 => json!("0".repeat(64)),
            1 => Value::Null,
            _ => digest,
        };
        let claimed = if one_in(19, c) { "bob" } else { who };
        if one_in(4, c) {
            let vote = json!({"tool_proposal": gate, "approver": claimed, "digest": digest});
            self.send(who, "tool.approve", vote);
        } else {
            let vote = json!({"gate": gate, "approver": claimed, "digest": digest});
            self.send(who, "gate.approve", vote);
        }
    }

    fn reject(&mut self, [a, b, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a);
        let (gate, digest) = self.some_gate(b);
        let vote = json!({"gate": gate, "rejector": who, "reason": "no", "digest": digest});
        self.send(who, "gate.reject", vote);
    }

    fn amend(&mut self, [a, b, c]: [u16; 3]) {
        let (gate, digest) = self.some_gate(b);
        let line = pick(&["make -n", "ls", "rm -rf build", "rm -rf /", "make"], c);
        let edit = json!({"gate": gate, "arguments": {"full_command": line}, "digest": digest});
        self.send(
            pick(&["ann", "bob", "cat", "dan", "bot"], a),
            "gate.amend",
            edit,
        );
    }

    fn cancel(&mut self, [a, b, _]: [u16; 3]) {
        let (gate, _) = self.some_gate(b);
        let cancel = json!({"tool_proposal": gate});
        self.send(pick(&EVERYONE, a), "tool.cancel", cancel);
    }

    /// Usually the executor, sometimes someone else.
    fn pick_sender(&self, proposal: &str, choice: u16) -> String {
        let executor = self.open_proposal(proposal).map(|p| p.executor.to_string());
        match executor {
            Some(executor) if !one_in(4, choice) => executor,
            Some(_) | None => pick(&EVERYONE, choice / 4).to_owned(),
        }
    }

    fn output(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.pick_sender(&proposal, b);
        let so_far = match self.open_proposal(&proposal).map(|p| &p.stage) {
            Some(ProposalStage::Running(run)) => run.stream(OutputStream::Stdout).bytes,
            _ => 0,
        };
        let offset = match c % 6 {
            0 => json!(so_far + 3),
            1 => json!(so_far.saturating_sub(2)),
            2 => Value::Null,
            _ => json!(so_far),
        };
        let output = json!({
            "tool_proposal": proposal, "stream": pick(&["stdout", "stdout", "stderr"], c),
            "text": pick(&["", "a", "hé", "0123456789"], c / 3), "complete": one_in(10, c),
            "offset": offset,
        });
        self.send(&who, "tool.output", output);
    }

    fn result(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.pick_sender(&proposal, b);
        let body = json!({"exitCode": c % 3, "stdout": "hé0123456789", "stderr": ""});
        let mut result = json!({
            "tool_proposal": proposal, "success": one_in(3, c), "duration_ms": c, "result": body,
        });
        // Of a client's call.
        if proposal.starts_with('c') && one_in(2, c / 3) {
            result["success"] = json!(false);
            result["outcome"] = json!(pick(&["not_run", "not_run", "unknown"], c / 6));
        } else if one_in(5, c / 3) {
            result["outcome"] = json!("not_run");
            result["attested"] = json!(true);
        }
        self.send(&who, "tool.result", result);
    }

    fn discard(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.pick_sender(&proposal, b);
        match c % 5 {
            0 => {
                let lost = json!({
                    "tool_proposal": proposal, "success": false, "duration_ms": 0,
                    "error": "lost", "outcome": "unknown",
                });
                self.send(&who, "tool.result", lost);
            }
            _ => {
                let trial = json!({"denied": ["write z"]});
                let discard = json!({"tool_proposal": proposal, "trial": trial});
                self.send(&who, "tool.discard", discard);
            }
        }
    }

    fn join(&mut self, [a, b, _]: [u16; 3]) {
        match a % 9 {
            8 => self.join_as(client_announcement()),
            6 => self.join_as(executor_announcement(
                "bot",
                json!({"profiles": ["read"], "trials": true, "shell_exec": true}),
            )),
            7 => self.join_as(executor_announcement(
                "bee",
                json!({"shell_exec": one_in(2, b)}),
            )),
            _ => {
                let who = PEOPLE[usize::from(a % 6)];
                self.join_as(announcement(who, "human", &[pick(&ROLES, b)]));
            }
        }
    }

    fn leave(&mut self, [a, _, _]: [u16; 3]) {
        self.send(pick(&EVERYONE, a), "session.leave", json!({}));
    }

    fn change_roles(&mut self, [a, b, c]: [u16; 3]) {
        let who = pick(&EVERYONE, a);
        let member = self
            .simulation
            .live
            .member(&crate::support::participant_id(who));
        let old = member.map(|member| json!(member.announce.roles));
        let by = pick(&["ann", "ann", "ann", "bob"], c);
        let change = json!({
            "participant": who, "old_roles": old.unwrap_or_else(|| json!([])),
            "new_roles": [pick(&ROLES, b)], "changed_by": by,
        });
        self.send(by, "participant.role_change", change);
    }

    fn configure(&mut self, [a, b, c]: [u16; 3]) {
        let mut changes = configuration(a, b, c);
        if c % 10 == 1 {
            changes["heartbeat_interval_seconds"] = json!(0);
        }
        let update = json!({"changes": changes, "reason": "r"});
        self.send(
            pick(&["ann", "ann", "dan"], c),
            "session.config_update",
            update,
        );
    }

    fn times_out(&mut self, [a, _, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a).to_owned();
        self.simulation.step(SimulationStep::Quiet { who });
    }

    fn comes_back(&mut self, [a, _, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a).to_owned();
        self.simulation.step(SimulationStep::Back { who });
    }

    fn wait(&mut self, [a, b, _]: [u16; 3]) {
        let ms = [1, 1_000, 30_000, 60_000, 61_000, 200_000, 86_400_000][usize::from(a % 7)];
        self.simulation.step(SimulationStep::Wait { ms });
        if !one_in(4, b) {
            self.simulation.step(SimulationStep::Tick);
        }
    }

    fn shell_exec(&mut self, [a, b, c]: [u16; 3]) {
        let id = self.next_id("s");
        let mut exec = json!({"command": pick(&COMMANDS, b)});
        if one_in(2, c) {
            exec["executor"] = json!(pick(&["bot", "bee"], c / 2));
        }
        self.proposals.push(id.clone());
        self.send_with_id(
            pick(&["ann", "ann", "ann", "dan", "bob"], a),
            &id,
            "shell.exec",
            exec,
        );
    }

    /// Sends an earlier message again.
    fn repeat(&mut self, [a, _, _]: [u16; 3]) {
        let index = usize::from(a) % self.sent.len().max(1);
        if let Some(step) = self.sent.get(index).cloned() {
            self.simulation.step(step);
        }
    }

    /// Sends another message with an id that was used before, perhaps by a message that was lost.
    fn reuse_id(&mut self, [a, b, _]: [u16; 3]) {
        let index = usize::from(a) % self.sent.len().max(1);
        if let Some(SimulationStep::Say { id, .. }) = self.sent.get(index).cloned() {
            if one_in(2, b) {
                self.proposals.push(id.clone());
                let step = SimulationStep::say(
                    "bot",
                    &id,
                    "tool.propose",
                    shell_proposal("bot", "make again"),
                );
                self.simulation.step(step);
            } else {
                let vote = json!({"gate": self.some_proposal(b), "approver": "bob"});
                self.simulation
                    .step(SimulationStep::say("bob", &id, "gate.approve", vote));
            }
        }
    }

    fn allow(&mut self, [a, b, _]: [u16; 3]) {
        let id = self.next_id("r");
        let prefix = match b % 3 {
            0 => json!(["make"]),
            1 => json!(["make", "test"]),
            _ => json!(["rm"]),
        };
        let mut allow = json!({"prefix": prefix, "expires_at": at(u64::from(b)).to_string()});
        if b % 5 == 0 {
            allow = json!({"read_root": "/data", "expires_at": allow["expires_at"]});
        }
        self.rules.push(id.clone());
        self.send_with_id(pick(&EVERYONE, a), &id, "policy.allow", allow);
    }

    fn revoke(&mut self, [a, b, _]: [u16; 3]) {
        let index = usize::from(b) % self.rules.len().max(1);
        if let Some(rule) = self.rules.get(index).cloned() {
            self.send(pick(&PEOPLE, a), "policy.revoke", json!({"rule": rule}));
        }
    }

    fn interrupt(&mut self, [a, b, c]: [u16; 3]) {
        if one_in(2, a) {
            let id = self.next_id("i");
            self.interrupts.push(id.clone());
            let urgency = pick(&["pause", "stop", "emergency"], b);
            let raise = json!({"urgency": urgency, "message": "m"});
            self.send_with_id(pick(&PEOPLE, c), &id, "interrupt.raise", raise);
        } else {
            let agent = pick(&["bot", "bee"], b);
            let index = usize::from(c) % self.interrupts.len().max(1);
            if let Some(interrupt) = self.interrupts.get(index).cloned() {
                let action = pick(&["stopped", "ignored"], c);
                let done = json!({"interrupt": interrupt, "by": agent, "action_taken": action});
                self.send(agent, "interrupt.acknowledge", done);
            }
        }
    }

    fn secret(&mut self, [a, b, c]: [u16; 3]) {
        let key = pick(&["A", "B"], b);
        if one_in(3, c) {
            let revoke = json!({"key": key, "reason": "r"});
            self.send(pick(&EVERYONE, a), "secret.revoke", revoke);
        } else {
            let share = json!({
                "key": key, "scope": ["bot"], "value_ref": "v", "value": crate::support::auditor::SECRET,
                "expires_at": at(u64::from(c)).to_string(),
            });
            self.send(pick(&EVERYONE, a), "secret.share", share);
        }
    }

    fn context(&mut self, [a, b, c]: [u16; 3]) {
        let (who, key) = (pick(&PEOPLE, a), pick(&["x", "y"], b));
        match c % 4 {
            0 => self.send(
                who,
                "context.update",
                json!({"key": key, "diff": "+", "reason": "r"}),
            ),
            1 => self.send(who, "context.remove", json!({"key": key, "reason": "r"})),
            2 => self.send(
                who,
                "context.add",
                json!({"key": key, "content_type": "text", "content": "c", "visible_to": ["cat"]}),
            ),
            _ => self.send(
                who,
                "context.add",
                json!({"key": key, "content_type": "text", "content": "c"}),
            ),
        };
    }

    fn think(&mut self, [a, b, _]: [u16; 3]) {
        let agent = pick(&["bot", "bee"], a);
        let visible_to = match b % 3 {
            0 => json!("all"),
            1 => json!("approvers_only"),
            _ => json!(["dan"]),
        };
        match a / 2 % 3 {
            0 => {
                let start = json!({"agent": agent, "prompt_ref": "q", "visible_to": visible_to});
                self.send(agent, "thinking.start", start)
            }
            1 => self.send(agent, "thinking.chunk", json!({"text": "hm"})),
            _ => self.send(agent, "thinking.end", json!({})),
        };
    }

    fn type_keys(&mut self, [a, b, _]: [u16; 3]) {
        let keys = json!({"tool_proposal": self.some_proposal(a), "data": "q"});
        self.send(pick(&EVERYONE, b), "tool.input", keys);
    }

    fn durable(&mut self, [a, _, _]: [u16; 3]) {
        let batches = usize::from(a % 6) + 1;
        self.simulation.step(SimulationStep::Durable { batches });
    }

    fn crash(&mut self, _: [u16; 3]) {
        self.simulation.step(SimulationStep::Lost);
    }
}

fn run_moves(
    setup: (u16, u16, u16),
    moves: &[RandomMove],
    failure_printing: FailurePrinting,
) -> SessionSimulation {
    let mut driver = RandomDriver::new(setup, failure_printing);
    for one in moves {
        driver.apply_move(*one);
    }
    driver.simulation.finish();
    driver.simulation
}

fn random_runs() -> impl Strategy<Value = ((u16, u16, u16), Vec<RandomMove>)> {
    let setup = any::<(u16, u16, u16)>();
    (setup, proptest::collection::vec(any::<RandomMove>(), 1..64))
}

#[test]
fn every_invariant_holds_in_every_random_run() {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&random_runs(), |(setup, moves)| {
        run_moves(setup, &moves, FailurePrinting::Off);
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, (setup, moves))) => {
            run_moves(setup, &moves, FailurePrinting::On);
            panic!("it failed once and then no more: {reason}");
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Random runs are only useful if the interesting outcomes occur in them.
#[test]
fn random_runs_reach_the_interesting_outcomes() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..240 {
        let ((a, b, c), moves) = random_runs()
            .new_tree(&mut runner)
            .expect("a story")
            .current();
        let simulation = run_moves((a, b, c), &moves, FailurePrinting::On);
        for word in simulation.entry_kinds() {
            *seen.entry(word).or_default() += 1;
        }
    }
    for word in [
        "tool.execute read",
        "tool.execute quorum",
        "tool.execute direct",
        "tool.execute tried",
        "tool.discard",
        "gate.amend",
        "gate.resolve rejected",
        "gate.resolve timed_out",
        "gate.resolve cancelled",
        "gate.timeout escalated",
        "tool.output",
        "tool.result known",
        "tool.result unknown",
        "tool.result known attested",
        "tool.result unknown attested",
        "tool.result not_run attested",
        "tool.defer",
        "session.leave",
    ] {
        assert!(seen.contains_key(word), "never {word}: {seen:?}");
    }
}
