//! Clients that send as fast as they are answered, and resume after the server was killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use super::audit::{message_type, public_copy};
use super::{TestClient, TestUser};

/// Messages that a client has unanswered at a time.
const MAX_UNANSWERED: usize = 8;

/// Proposals that an agent has open at a time, besides the held one and the long-running one.
const MAX_OPEN_PROPOSALS: usize = 4;

/// The proposal that gets one vote of two and stays at its gate.
pub const HELD_PROPOSAL: &str = "hold";

/// The proposal that runs in the background and never ends.
pub const LONG_RUNNING_PROPOSAL: &str = "stay";

/// Random numbers that are the same for the same seed.
pub struct Rng(pub u64);

impl Rng {
    /// A random number below `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// When a client stops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StopWhen {
    /// When the server is gone.
    Killed,
    /// When everything it sent is answered.
    Answered,
}

/// What a client does.
pub enum LoadRole {
    /// Adds context and removes it again.
    Writer { written: u64 },
    /// Votes on every gate. With `skips_held`, except on [`HELD_PROPOSAL`].
    Voter {
        skips_held: bool,
        special_proposals: BTreeMap<String, String>,
    },
    /// Proposes commands and reports results for those it was granted.
    Agent {
        proposed: u64,
        open: BTreeSet<String>,
        granted: BTreeSet<String>,
        long_running: Option<String>,
        printed: u64,
    },
}

/// A participant's client, with the messages it sent and received.
pub struct LoadClient {
    /// The session that it joins.
    pub session: String,
    /// The user that it is.
    pub user: TestUser,
    /// What it does.
    pub role: LoadRole,
    /// Its random numbers.
    pub rng: Rng,
    /// The last sequence number that was received.
    pub last_seq: u64,
    /// Log entries received since this was last emptied.
    pub received: Vec<Value>,
    /// Messages sent and not answered yet, in order.
    pub unanswered: VecDeque<Value>,
    /// Acknowledged messages: id to sequence number.
    pub acked: BTreeMap<String, u64>,
    /// Ids of refused messages.
    pub refused: BTreeSet<String>,
    /// Messages to send next: type and payload.
    queued: VecDeque<(&'static str, Value)>,
}

impl LoadClient {
    pub fn new(session: &str, user: TestUser, role: LoadRole, seed: u64) -> Self {
        Self {
            session: session.to_owned(),
            user,
            role,
            rng: Rng(seed),
            last_seq: 0,
            received: Vec::new(),
            unanswered: VecDeque::new(),
            acked: BTreeMap::new(),
            refused: BTreeSet::new(),
            queued: VecDeque::new(),
        }
    }

    /// Resumes the session, resends what was not answered, and continues. `acks` counts the
    /// acknowledgements.
    pub async fn run_until(&mut self, address: &str, until: StopWhen, acks: &watch::Sender<u64>) {
        let bearer = format!("Bearer {}", self.user.token);
        let headers = [("Authorization", bearer.as_str())];
        let name = self.user.participant.clone();
        let Ok(mut client) = TestClient::try_connect(address, "/ws", &headers, &name).await else {
            return;
        };
        client.session = self.session.clone();
        let join = json!({ "participant": self.user.announce(), "supported_versions": [1], "after": self.last_seq });
        if client.try_send("session.join", join).await.is_none() {
            return;
        }
        let mut joined = false;
        while let Some(message) = client.next().await {
            if message_type(&message) == "session.welcome" {
                joined = true;
                let head = message["payload"]["head"].as_u64().unwrap();
                assert!(head >= self.last_seq, "told {} of {head}", self.last_seq);
                for said in self.unanswered.clone() {
                    if !client.try_send_frame(Message::text(said.to_string())).await {
                        return;
                    }
                }
            }
            self.on_message(&message, acks);
            if joined && until == StopWhen::Answered && self.unanswered.is_empty() {
                return;
            }
            if joined && until == StopWhen::Killed && !self.send_pending(&mut client).await {
                return;
            }
        }
    }

    /// Sends the queued messages; false if the server is gone.
    async fn send_pending(&mut self, client: &mut TestClient) -> bool {
        while self.unanswered.len() < MAX_UNANSWERED
            && let Some((kind, payload)) = self.next_message()
        {
            let said = client.envelope(kind, payload);
            if let (
                "tool.propose",
                LoadRole::Agent {
                    open,
                    long_running: stays,
                    ..
                },
            ) = (kind, &mut self.role)
            {
                let id = said["id"].as_str().unwrap();
                match said["payload"]["description"].as_str().unwrap() {
                    LONG_RUNNING_PROPOSAL => *stays = Some(id.to_owned()),
                    HELD_PROPOSAL => {}
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

    fn next_message(&mut self) -> Option<(&'static str, Value)> {
        if let Some(wish) = self.queued.pop_front() {
            return Some(wish);
        }
        match &mut self.role {
            LoadRole::Voter { .. } => None,
            LoadRole::Writer { written } => {
                *written += 1;
                let key = |number: u64| format!("note-{number}");
                if *written % 8 == 0 {
                    let payload = json!({ "key": key(*written - 4), "reason": "old" });
                    return Some(("context.remove", payload));
                }
                let content = format!("{} wrote {written}", self.user.participant);
                let payload =
                    json!({ "key": key(*written), "content_type": "text", "content": content });
                Some(("context.add", payload))
            }
            LoadRole::Agent {
                proposed,
                open,
                granted,
                long_running: stays,
                printed,
            } => {
                if open.len() >= MAX_OPEN_PROPOSALS {
                    let stays = stays.as_ref().filter(|id| granted.contains(*id))?;
                    *printed += 1;
                    return Some(("tool.output", output_payload(stays, *printed - 1)));
                }
                let description = match *proposed {
                    0 => HELD_PROPOSAL,
                    1 => LONG_RUNNING_PROPOSAL,
                    _ => "a file",
                };
                let mut arguments = json!({ "command": "touch", "args": [], "full_command": format!("touch file-{proposed}") });
                if description == LONG_RUNNING_PROPOSAL {
                    arguments["mode"] = json!("background");
                }
                *proposed += 1;
                let payload = json!({
                    "tool_name": "shell", "arguments": arguments, "agent": self.user.participant,
                    "risk_level": "low", "description": description,
                    "requires_approval": false, "category": "shell_execute",
                });
                Some(("tool.propose", payload))
            }
        }
    }

    fn on_message(&mut self, message: &Value, acks: &watch::Sender<u64>) {
        if let Some(seq) = message["seq"].as_u64() {
            let user = &self.user.participant;
            assert_eq!(
                seq,
                self.last_seq + 1,
                "{user} was told out of order: {message}"
            );
            self.last_seq = seq;
            self.on_entry(message);
            self.received.push(public_copy(message));
        }
        match message_type(message) {
            "session.ack" => {
                let id = message["payload"]["id"].as_str().unwrap();
                if self.mark_answered(id) {
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
                let may_be = matches!(self.role, LoadRole::Voter { .. })
                    && message["payload"]["code"] == "INVALID_STATE";
                assert!(may_be && self.mark_answered(id), "refused: {message}");
                self.refused.insert(id.to_owned());
            }
            _ => {}
        }
    }

    fn mark_answered(&mut self, id: &str) -> bool {
        let at = self.unanswered.iter().position(|said| said["id"] == id);
        at.is_some_and(|at| self.unanswered.remove(at).is_some())
    }

    fn on_entry(&mut self, entry: &Value) {
        let payload = &entry["payload"];
        let me = &self.user.participant;
        match &mut self.role {
            LoadRole::Writer { .. } => {}
            LoadRole::Voter {
                skips_held: holds,
                special_proposals: special,
            } => match message_type(entry) {
                "tool.propose" => {
                    let description = payload["description"].as_str().unwrap();
                    if matches!(description, HELD_PROPOSAL | LONG_RUNNING_PROPOSAL) {
                        let id = entry["id"].as_str().unwrap();
                        special.insert(id.to_owned(), description.to_owned());
                    }
                }
                "gate.request" => {
                    let special = special.get(payload["action_ref"].as_str().unwrap());
                    if *holds && special.is_some_and(|description| description == HELD_PROPOSAL) {
                        return;
                    }
                    let gate = &entry["id"];
                    let approve = json!({ "gate": gate, "approver": me });
                    let reject = json!({ "gate": gate, "rejector": me, "reason": "no" });
                    let certain = special.is_some();
                    match self.rng.below(10) {
                        0 if !certain => self.queued.push_back(("gate.reject", reject)),
                        1 if !certain => self
                            .queued
                            .extend([("gate.approve", approve), ("gate.reject", reject)]),
                        _ => self.queued.push_back(("gate.approve", approve)),
                    }
                }
                _ => {}
            },
            LoadRole::Agent {
                open,
                granted,
                long_running: stays,
                ..
            } => match message_type(entry) {
                "tool.execute" => {
                    let id = payload["tool_proposal"].as_str().unwrap();
                    assert!(payload["grant"]["nonce"].is_string(), "{entry}");
                    assert!(granted.insert(id.to_owned()), "granted twice: {entry}");
                    if stays.as_deref() == Some(id) {
                        return;
                    }
                    let pieces = self.rng.below(4);
                    self.queued.extend(
                        (0..pieces).map(|piece| ("tool.output", output_payload(id, piece))),
                    );
                    let result = json!({
                        "tool_proposal": id, "success": true, "duration_ms": 1,
                        "result": { "exitCode": 0, "stdout": "", "stderr": "" },
                    });
                    self.queued.push_back(("tool.result", result));
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

fn output_payload(proposal: &str, piece: u64) -> Value {
    json!({ "tool_proposal": proposal, "stream": "stdout", "text": format!("piece {piece}\n"), "complete": false })
}
