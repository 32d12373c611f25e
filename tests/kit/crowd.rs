//! People and agents who speak as fast as they are answered, and go on after the server has died.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use super::proof::{kind, public};
use super::{Client, Invited};

/// Messages that a member leaves unanswered at a time.
const WINDOW: usize = 8;

/// Proposals that an agent has open at a time, besides the one that waits and the one that runs on.
const OPEN: usize = 4;

/// The proposal that gets one vote of two, and waits.
pub const HOLD: &str = "hold";

/// The proposal that runs in the background and never ends.
pub const STAY: &str = "stay";

/// Random numbers that a seed repeats.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// When a member goes home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When the server is gone.
    Killed,
    /// When everything it has said is answered.
    Answered,
}

/// What a member does.
pub enum Part {
    /// Adds context and takes it away again.
    Writer { written: u64 },
    /// Votes on what is asked. `holds`: does not vote on [`HOLD`].
    Voter {
        holds: bool,
        special: BTreeMap<String, String>,
    },
    /// Proposes, and reports on what it was granted.
    Agent {
        proposed: u64,
        open: BTreeSet<String>,
        granted: BTreeSet<String>,
        stays: Option<String>,
        printed: u64,
    },
}

/// Someone in a session, with what they said and were told.
pub struct Member {
    pub session: String,
    pub who: Invited,
    pub part: Part,
    pub dice: Dice,
    /// The last seq that was told.
    pub seen: u64,
    /// Told since this was last looked at.
    pub told: Vec<Value>,
    /// Said without an answer yet, in order.
    pub unanswered: VecDeque<Value>,
    pub acked: BTreeMap<String, u64>,
    pub refused: BTreeSet<String>,
    /// Decided on and not said yet.
    wishes: VecDeque<(&'static str, Value)>,
}

impl Member {
    pub fn new(session: &str, who: Invited, part: Part, seed: u64) -> Self {
        Self {
            session: session.to_owned(),
            who,
            part,
            dice: Dice(seed),
            seen: 0,
            told: Vec::new(),
            unanswered: VecDeque::new(),
            acked: BTreeMap::new(),
            refused: BTreeSet::new(),
            wishes: VecDeque::new(),
        }
    }

    /// Joins where it was, says again what was not answered, and goes on. `acks` counts.
    pub async fn live(&mut self, address: &str, until: Until, acks: &watch::Sender<u64>) {
        let bearer = format!("Bearer {}", self.who.token);
        let headers = [("Authorization", bearer.as_str())];
        let name = self.who.participant.clone();
        let Ok(mut client) = Client::try_connect(address, "/ws", &headers, &name).await else {
            return;
        };
        client.session = self.session.clone();
        let join = json!({ "participant": self.who.announce(), "supported_versions": [1], "after": self.seen });
        if client.try_send("session.join", join).await.is_none() {
            return;
        }
        let mut joined = false;
        while let Some(message) = client.next().await {
            if kind(&message) == "session.welcome" {
                joined = true;
                let head = message["payload"]["head"].as_u64().unwrap();
                assert!(head >= self.seen, "told {} of {head}", self.seen);
                for said in self.unanswered.clone() {
                    if !client.try_send_frame(Message::text(said.to_string())).await {
                        return;
                    }
                }
            }
            self.hear(&message, acks);
            if joined && until == Until::Answered && self.unanswered.is_empty() {
                return;
            }
            if joined && until == Until::Killed && !self.speak(&mut client).await {
                return;
            }
        }
    }

    /// Says what there is to say; false if the server is gone.
    async fn speak(&mut self, client: &mut Client) -> bool {
        while self.unanswered.len() < WINDOW
            && let Some((kind, payload)) = self.next_wish()
        {
            let said = client.envelope(kind, payload);
            if let ("tool.propose", Part::Agent { open, stays, .. }) = (kind, &mut self.part) {
                let id = said["id"].as_str().unwrap();
                match said["payload"]["description"].as_str().unwrap() {
                    STAY => *stays = Some(id.to_owned()),
                    HOLD => {}
                    _ => drop(open.insert(id.to_owned())),
                }
            }
            let text = said.to_string();
            self.unanswered.push_back(said);
            if !client.try_send_frame(Message::text(text)).await {
                return false;
            }
        }
        true
    }

    fn next_wish(&mut self) -> Option<(&'static str, Value)> {
        if let Some(wish) = self.wishes.pop_front() {
            return Some(wish);
        }
        match &mut self.part {
            Part::Voter { .. } => None,
            Part::Writer { written } => {
                *written += 1;
                let key = |number: u64| format!("note-{number}");
                if *written % 8 == 0 {
                    let payload = json!({ "key": key(*written - 4), "reason": "old" });
                    return Some(("context.remove", payload));
                }
                let content = format!("{} wrote {written}", self.who.participant);
                let payload =
                    json!({ "key": key(*written), "content_type": "text", "content": content });
                Some(("context.add", payload))
            }
            Part::Agent {
                proposed,
                open,
                granted,
                stays,
                printed,
            } => {
                if open.len() >= OPEN {
                    let stays = stays.as_ref().filter(|id| granted.contains(*id))?;
                    *printed += 1;
                    return Some(("tool.output", output(stays, *printed - 1)));
                }
                let description = match *proposed {
                    0 => HOLD,
                    1 => STAY,
                    _ => "a file",
                };
                let mut arguments = json!({ "command": "touch", "args": [], "full_command": format!("touch file-{proposed}") });
                if description == STAY {
                    arguments["mode"] = json!("background");
                }
                *proposed += 1;
                let payload = json!({
                    "tool_name": "shell", "arguments": arguments, "agent": self.who.participant,
                    "risk_level": "low", "description": description,
                    "requires_approval": false, "category": "shell_execute",
                });
                Some(("tool.propose", payload))
            }
        }
    }

    fn hear(&mut self, message: &Value, acks: &watch::Sender<u64>) {
        if let Some(seq) = message["seq"].as_u64() {
            let who = &self.who.participant;
            assert_eq!(seq, self.seen + 1, "{who} was told out of order: {message}");
            self.seen = seq;
            self.react(message);
            self.told.push(public(message));
        }
        match kind(message) {
            "session.ack" => {
                let id = message["payload"]["id"].as_str().unwrap();
                if self.is_answered(id) {
                    let seq = message["payload"]["seq"]
                        .as_u64()
                        .expect("all of it is kept");
                    let before = self.acked.insert(id.to_owned(), seq);
                    assert_eq!(before, None, "answered twice: {message}");
                    acks.send_modify(|count| *count += 1);
                }
            }
            "error" => {
                let id = message["payload"]["related_to"].as_str().unwrap();
                let may_be = matches!(self.part, Part::Voter { .. })
                    && message["payload"]["code"] == "INVALID_STATE";
                assert!(may_be && self.is_answered(id), "refused: {message}");
                self.refused.insert(id.to_owned());
            }
            _ => {}
        }
    }

    fn is_answered(&mut self, id: &str) -> bool {
        let at = self.unanswered.iter().position(|said| said["id"] == id);
        at.is_some_and(|at| self.unanswered.remove(at).is_some())
    }

    fn react(&mut self, entry: &Value) {
        let payload = &entry["payload"];
        let me = &self.who.participant;
        match &mut self.part {
            Part::Writer { .. } => {}
            Part::Voter { holds, special } => match kind(entry) {
                "tool.propose" => {
                    let description = payload["description"].as_str().unwrap();
                    if matches!(description, HOLD | STAY) {
                        let id = entry["id"].as_str().unwrap();
                        special.insert(id.to_owned(), description.to_owned());
                    }
                }
                "gate.request" => {
                    let special = special.get(payload["action_ref"].as_str().unwrap());
                    if *holds && special.is_some_and(|description| description == HOLD) {
                        return;
                    }
                    let gate = &entry["id"];
                    let approve = json!({ "gate": gate, "approver": me });
                    let reject = json!({ "gate": gate, "rejector": me, "reason": "no" });
                    let certain = special.is_some();
                    match self.dice.roll(10) {
                        0 if !certain => self.wishes.push_back(("gate.reject", reject)),
                        1 if !certain => self
                            .wishes
                            .extend([("gate.approve", approve), ("gate.reject", reject)]),
                        _ => self.wishes.push_back(("gate.approve", approve)),
                    }
                }
                _ => {}
            },
            Part::Agent {
                open,
                granted,
                stays,
                ..
            } => match kind(entry) {
                "tool.execute" => {
                    let id = payload["tool_proposal"].as_str().unwrap();
                    assert!(payload["grant"]["nonce"].is_string(), "{entry}");
                    assert!(granted.insert(id.to_owned()), "granted twice: {entry}");
                    if stays.as_deref() == Some(id) {
                        return;
                    }
                    let pieces = self.dice.roll(4);
                    self.wishes
                        .extend((0..pieces).map(|piece| ("tool.output", output(id, piece))));
                    let result = json!({
                        "tool_proposal": id, "success": true, "duration_ms": 1,
                        "result": { "exitCode": 0, "stdout": "", "stderr": "" },
                    });
                    self.wishes.push_back(("tool.result", result));
                }
                "tool.result" => {
                    open.remove(payload["tool_proposal"].as_str().unwrap());
                }
                "gate.resolve" if payload["outcome"] != "approved" => {
                    open.remove(payload["tool_proposal"].as_str().unwrap());
                }
                _ => {}
            },
        }
    }
}

fn output(proposal: &str, piece: u64) -> Value {
    json!({ "tool_proposal": proposal, "stream": "stdout", "text": format!("piece {piece}\n"), "complete": false })
}
