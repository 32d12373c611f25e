//! Random stories with crashes: every promise after every step.

mod kit;

use std::collections::BTreeMap;

use kit::step::Step;
use kit::world::{Telling, World};
use kit::{announcement, at, executor, shell};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestError, TestRunner};
use pvp_protocol::payload::Stream;
use pvp_session::{Answer, Proposal, Settings, Stage};
use serde_json::{Value, json};

/// One random move: which, and what it may choose with.
type Move = (u8, u16, u16, u16);

type Act = fn(&mut Play, [u16; 3]);

const PEOPLE: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];
const EVERYONE: [&str; 8] = ["ann", "bob", "cat", "dan", "eve", "fay", "bot", "bee"];
const ROLES: [&str; 6] = [
    "admin",
    "approver",
    "navigator",
    "driver",
    "observer",
    "adversary",
];
const COMMANDS: [&str; 8] = [
    "ls",
    "make",
    "make",
    "make test",
    "cat README.md",
    "rm -rf build",
    "rm -rf /",
    "git push --force",
];

/// What happens how often.
const MOVES: [(u32, Act); 26] = [
    (10, Play::propose),
    (16, Play::approve),
    (2, Play::reject),
    (5, Play::amend),
    (3, Play::cancel),
    (8, Play::output),
    (6, Play::result),
    (2, Play::join),
    (2, Play::leave),
    (2, Play::change_roles),
    (2, Play::configure),
    (2, Play::goes_quiet),
    (2, Play::is_back),
    (4, Play::wait),
    (6, Play::shell_exec),
    (4, Play::repeat),
    (2, Play::reuse_id),
    (2, Play::allow),
    (1, Play::revoke),
    (2, Play::interrupt),
    (2, Play::secret),
    (2, Play::context),
    (2, Play::think),
    (1, Play::type_keys),
    (12, Play::durable),
    (2, Play::lost),
];

/// A world, and what the players remember of it.
struct Play {
    world: World,
    ids: u32,
    proposals: Vec<String>,
    rules: Vec<String>,
    interrupts: Vec<String>,
    said: Vec<Step>,
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
        "trust_reads": one_in(3, c),
        "gate_timeout_seconds": if one_in(5, c) { 0 } else { 60 },
        "require_approval_for": if one_in(7, c) { json!(["shell_execute"]) } else { json!([]) },
    })
}

impl Play {
    fn begin((a, b, c): (u16, u16, u16), telling: Telling) -> Self {
        let open = one_in(11, c);
        let settings = Settings {
            open,
            ..Settings::default()
        };
        let mut play = Self {
            world: World::new(settings, telling),
            ids: 0,
            proposals: Vec::new(),
            rules: Vec::new(),
            interrupts: Vec::new(),
            said: Vec::new(),
        };
        play.world.step(Step::Create {
            by: "ann".to_owned(),
            id: "create".to_owned(),
            open,
            config: serde_json::from_value(configuration(a, b, c)).expect("a configuration"),
        });
        for (who, role) in PEOPLE.iter().zip(ROLES).take(5) {
            play.enter(announcement(who, "human", &[role]));
        }
        play.enter(executor(
            "bot",
            json!({"profiles": ["read"], "shell_exec": true}),
        ));
        play.enter(executor("bee", json!({"profiles": []})));
        play
    }

    fn enter(&mut self, announce: Value) {
        let announce = serde_json::from_value(announce).expect("an announcement");
        let id = self.fresh("j");
        self.world.step(Step::Join { id, announce });
    }

    fn fresh(&mut self, letter: &str) -> String {
        self.ids += 1;
        format!("{letter}{}", self.ids)
    }

    fn say(&mut self, by: &str, kind: &str, payload: Value) -> Option<Answer> {
        let id = self.fresh("m");
        self.say_as(by, &id, kind, payload)
    }

    fn say_as(&mut self, by: &str, id: &str, kind: &str, payload: Value) -> Option<Answer> {
        let step = Step::say(by, id, kind, payload);
        self.said.push(step.clone());
        self.world.step(step)
    }

    fn take(&mut self, (which, a, b, c): Move) {
        let all: u32 = MOVES.iter().map(|(weight, _)| weight).sum();
        let mut left = u32::from(which) * all / 256;
        for (weight, play) in MOVES {
            if left < weight {
                return play(self, [a, b, c]);
            }
            left -= weight;
        }
    }

    /// A proposal, mostly one that is open.
    fn some_proposal(&self, choice: u16) -> String {
        let open: Vec<_> = self
            .world
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

    fn open(&self, id: &str) -> Option<&Proposal> {
        self.world.live.proposal(&kit::id(id))
    }

    /// Mostly an open gate, by its own id or by its proposal's, with the digest of what it guards.
    fn some_gate(&self, choice: u16) -> (String, Value) {
        let gates = self.world.live.open_gates();
        if gates.is_empty() || one_in(8, choice) {
            let proposal = self.some_proposal(choice);
            let digest = self.open(&proposal).map(|p| json!(p.assessment.digest));
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
        let id = self.fresh("p");
        let agent = pick(&["bot", "bot", "bee", "dan"], a);
        let mut propose = shell(agent, pick(&COMMANDS, b));
        propose["risk_level"] = json!(pick(&["safe", "safe", "safe", "low", "high"], c));
        propose["requires_approval"] = json!(one_in(13, c));
        propose["category"] = json!(pick(&["shell_execute", "file_read"], c / 5));
        match c % 17 {
            0 => propose["arguments"]["mode"] = json!("background"),
            1 => propose["arguments"]["mode"] = json!("pty"),
            2 => propose["arguments"] = json!({"command": "make", "args": ["all"]}),
            3 => propose["arguments"]["env"] = json!({"A": "b"}),
            _ => {}
        }
        self.proposals.push(id.clone());
        self.say_as(agent, &id, "tool.propose", propose);
    }

    fn approve(&mut self, [a, b, c]: [u16; 3]) {
        let (gate, digest) = self.some_gate(b);
        let proposer = self.open(&gate).map(|p| p.proposer.to_string());
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
            self.say(who, "tool.approve", vote);
        } else {
            let vote = json!({"gate": gate, "approver": claimed, "digest": digest});
            self.say(who, "gate.approve", vote);
        }
    }

    fn reject(&mut self, [a, b, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a);
        let (gate, digest) = self.some_gate(b);
        let vote = json!({"gate": gate, "rejector": who, "reason": "no", "digest": digest});
        self.say(who, "gate.reject", vote);
    }

    fn amend(&mut self, [a, b, c]: [u16; 3]) {
        let (gate, digest) = self.some_gate(b);
        let line = pick(&["make -n", "ls", "rm -rf build", "rm -rf /", "make"], c);
        let edit = json!({"gate": gate, "arguments": {"full_command": line}, "digest": digest});
        self.say(
            pick(&["ann", "bob", "cat", "dan", "bot"], a),
            "gate.amend",
            edit,
        );
    }

    fn cancel(&mut self, [a, b, _]: [u16; 3]) {
        let (gate, _) = self.some_gate(b);
        let cancel = json!({"tool_proposal": gate});
        self.say(pick(&EVERYONE, a), "tool.cancel", cancel);
    }

    /// Mostly the executor, sometimes someone else.
    fn speaker(&self, proposal: &str, choice: u16) -> String {
        let executor = self.open(proposal).map(|p| p.executor.to_string());
        match executor {
            Some(executor) if !one_in(4, choice) => executor,
            Some(_) | None => pick(&EVERYONE, choice / 4).to_owned(),
        }
    }

    fn output(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.speaker(&proposal, b);
        let so_far = match self.open(&proposal).map(|p| &p.stage) {
            Some(Stage::Running(run)) => run.stream(Stream::Stdout).bytes,
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
        self.say(&who, "tool.output", output);
    }

    fn result(&mut self, [a, b, c]: [u16; 3]) {
        let proposal = self.some_proposal(a);
        let who = self.speaker(&proposal, b);
        let body = json!({"exitCode": c % 3, "stdout": "hé0123456789", "stderr": ""});
        let result = json!({
            "tool_proposal": proposal, "success": one_in(3, c), "duration_ms": c, "result": body,
        });
        self.say(&who, "tool.result", result);
    }

    fn join(&mut self, [a, b, _]: [u16; 3]) {
        match a % 8 {
            6 => self.enter(executor(
                "bot",
                json!({"profiles": ["read"], "shell_exec": true}),
            )),
            7 => self.enter(executor("bee", json!({"shell_exec": one_in(2, b)}))),
            _ => {
                let who = PEOPLE[usize::from(a % 6)];
                self.enter(announcement(who, "human", &[pick(&ROLES, b)]));
            }
        }
    }

    fn leave(&mut self, [a, _, _]: [u16; 3]) {
        self.say(pick(&EVERYONE, a), "session.leave", json!({}));
    }

    fn change_roles(&mut self, [a, b, c]: [u16; 3]) {
        let who = pick(&EVERYONE, a);
        let member = self.world.live.member(&kit::person(who));
        let old = member.map(|member| json!(member.announce.roles));
        let by = pick(&["ann", "ann", "ann", "bob"], c);
        let change = json!({
            "participant": who, "old_roles": old.unwrap_or_else(|| json!([])),
            "new_roles": [pick(&ROLES, b)], "changed_by": by,
        });
        self.say(by, "participant.role_change", change);
    }

    fn configure(&mut self, [a, b, c]: [u16; 3]) {
        let mut changes = configuration(a, b, c);
        if c % 10 == 1 {
            changes["heartbeat_interval_seconds"] = json!(0);
        }
        let update = json!({"changes": changes, "reason": "r"});
        self.say(
            pick(&["ann", "ann", "dan"], c),
            "session.config_update",
            update,
        );
    }

    fn goes_quiet(&mut self, [a, _, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a).to_owned();
        self.world.step(Step::Quiet { who });
    }

    fn is_back(&mut self, [a, _, _]: [u16; 3]) {
        let who = pick(&EVERYONE, a).to_owned();
        self.world.step(Step::Back { who });
    }

    fn wait(&mut self, [a, b, _]: [u16; 3]) {
        let ms = [1, 1_000, 30_000, 60_000, 61_000, 200_000, 86_400_000][usize::from(a % 7)];
        self.world.step(Step::Wait { ms });
        if !one_in(4, b) {
            self.world.step(Step::Tick);
        }
    }

    fn shell_exec(&mut self, [a, b, c]: [u16; 3]) {
        let id = self.fresh("s");
        let mut exec = json!({"command": pick(&COMMANDS, b)});
        if one_in(2, c) {
            exec["executor"] = json!(pick(&["bot", "bee"], c / 2));
        }
        self.proposals.push(id.clone());
        self.say_as(
            pick(&["ann", "ann", "ann", "dan", "bob"], a),
            &id,
            "shell.exec",
            exec,
        );
    }

    /// The same message again, late.
    fn repeat(&mut self, [a, _, _]: [u16; 3]) {
        let index = usize::from(a) % self.said.len().max(1);
        if let Some(step) = self.said.get(index).cloned() {
            self.world.step(step);
        }
    }

    /// Another message under an id that was used, if only by a message that was lost.
    fn reuse_id(&mut self, [a, b, _]: [u16; 3]) {
        let index = usize::from(a) % self.said.len().max(1);
        if let Some(Step::Say { id, .. }) = self.said.get(index).cloned() {
            if one_in(2, b) {
                self.proposals.push(id.clone());
                let step = Step::say("bot", &id, "tool.propose", shell("bot", "make again"));
                self.world.step(step);
            } else {
                let vote = json!({"gate": self.some_proposal(b), "approver": "bob"});
                self.world.step(Step::say("bob", &id, "gate.approve", vote));
            }
        }
    }

    fn allow(&mut self, [a, b, _]: [u16; 3]) {
        let id = self.fresh("r");
        let prefix = match b % 3 {
            0 => json!(["make"]),
            1 => json!(["make", "test"]),
            _ => json!(["rm"]),
        };
        let allow = json!({"prefix": prefix, "expires_at": at(u64::from(b)).to_string()});
        self.rules.push(id.clone());
        self.say_as(pick(&EVERYONE, a), &id, "policy.allow", allow);
    }

    fn revoke(&mut self, [a, b, _]: [u16; 3]) {
        let index = usize::from(b) % self.rules.len().max(1);
        if let Some(rule) = self.rules.get(index).cloned() {
            self.say(pick(&PEOPLE, a), "policy.revoke", json!({"rule": rule}));
        }
    }

    fn interrupt(&mut self, [a, b, c]: [u16; 3]) {
        if one_in(2, a) {
            let id = self.fresh("i");
            self.interrupts.push(id.clone());
            let urgency = pick(&["pause", "stop", "emergency"], b);
            let raise = json!({"urgency": urgency, "message": "m"});
            self.say_as(pick(&PEOPLE, c), &id, "interrupt.raise", raise);
        } else {
            let agent = pick(&["bot", "bee"], b);
            let index = usize::from(c) % self.interrupts.len().max(1);
            if let Some(interrupt) = self.interrupts.get(index).cloned() {
                let action = pick(&["stopped", "ignored"], c);
                let done = json!({"interrupt": interrupt, "by": agent, "action_taken": action});
                self.say(agent, "interrupt.acknowledge", done);
            }
        }
    }

    fn secret(&mut self, [a, b, c]: [u16; 3]) {
        let key = pick(&["A", "B"], b);
        if one_in(3, c) {
            let revoke = json!({"key": key, "reason": "r"});
            self.say(pick(&EVERYONE, a), "secret.revoke", revoke);
        } else {
            let share = json!({
                "key": key, "scope": ["bot"], "value_ref": "v", "value": kit::audit::SECRET,
                "expires_at": at(u64::from(c)).to_string(),
            });
            self.say(pick(&EVERYONE, a), "secret.share", share);
        }
    }

    fn context(&mut self, [a, b, c]: [u16; 3]) {
        let (who, key) = (pick(&PEOPLE, a), pick(&["x", "y"], b));
        match c % 4 {
            0 => self.say(
                who,
                "context.update",
                json!({"key": key, "diff": "+", "reason": "r"}),
            ),
            1 => self.say(who, "context.remove", json!({"key": key, "reason": "r"})),
            2 => self.say(
                who,
                "context.add",
                json!({"key": key, "content_type": "text", "content": "c", "visible_to": ["cat"]}),
            ),
            _ => self.say(
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
                self.say(agent, "thinking.start", start)
            }
            1 => self.say(agent, "thinking.chunk", json!({"text": "hm"})),
            _ => self.say(agent, "thinking.end", json!({})),
        };
    }

    fn type_keys(&mut self, [a, b, _]: [u16; 3]) {
        let keys = json!({"tool_proposal": self.some_proposal(a), "data": "q"});
        self.say(pick(&EVERYONE, b), "tool.input", keys);
    }

    fn durable(&mut self, [a, _, _]: [u16; 3]) {
        let batches = usize::from(a % 6) + 1;
        self.world.step(Step::Durable { batches });
    }

    fn lost(&mut self, _: [u16; 3]) {
        self.world.step(Step::Lost);
    }
}

fn play(setup: (u16, u16, u16), moves: &[Move], telling: Telling) -> World {
    let mut play = Play::begin(setup, telling);
    for one in moves {
        play.take(*one);
    }
    play.world.finish();
    play.world
}

fn stories() -> impl Strategy<Value = ((u16, u16, u16), Vec<Move>)> {
    let setup = any::<(u16, u16, u16)>();
    (setup, proptest::collection::vec(any::<Move>(), 1..64))
}

#[test]
fn every_promise_holds_in_every_random_story() {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&stories(), |(setup, moves)| {
        play(setup, &moves, Telling::Quiet);
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, (setup, moves))) => {
            play(setup, &moves, Telling::Loud);
            panic!("it failed once and then no more: {reason}");
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Random stories are worth something only if the interesting things happen in them.
#[test]
fn random_stories_reach_what_matters() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..60 {
        let ((a, b, c), moves) = stories().new_tree(&mut runner).expect("a story").current();
        let world = play((a, b, c), &moves, Telling::Loud);
        for word in world.words() {
            *seen.entry(word).or_default() += 1;
        }
    }
    for word in [
        "tool.execute read",
        "tool.execute quorum",
        "tool.execute direct",
        "gate.amend",
        "gate.resolve rejected",
        "gate.resolve timed_out",
        "gate.resolve cancelled",
        "gate.timeout escalated",
        "tool.output",
        "tool.result known",
        "tool.result unknown",
        "session.leave",
    ] {
        assert!(seen.contains_key(word), "never {word}: {seen:?}");
    }
}
