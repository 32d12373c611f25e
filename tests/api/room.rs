//! A session with people who are there over HTTP and an agent on a socket.

use serde_json::{Value, json};

use crate::http::{Api, joining, stored};
use crate::kit::{Client, Invited, Server};

pub(crate) const ROOM: &str = "room";

/// Someone of the room, and their way to ask.
pub(crate) struct Someone {
    pub(crate) who: Invited,
    pub(crate) api: Api,
}

impl Someone {
    pub(crate) async fn invited(server: &Server, name: &str, roles: &[&str]) -> Self {
        Self::from(server, server.invite(name, roles, &[])).await
    }

    pub(crate) async fn from(server: &Server, who: Invited) -> Self {
        let api = Api::of(server, &who).await;
        Self { who, api }
    }

    pub(crate) fn id(&self) -> &str {
        &self.who.participant
    }

    pub(crate) async fn join(&self, session: &str) {
        let answer = self.api.tell(session, "session.join", joining(&self.who));
        assert!(answer.await.ok()["seq"].is_u64());
    }
}

pub(crate) struct Room {
    pub(crate) server: Server,
    /// May approve, drive and administer.
    pub(crate) ann: Someone,
    /// May approve.
    pub(crate) bob: Someone,
    /// May watch.
    pub(crate) eve: Someone,
    pub(crate) bot: Someone,
    pub(crate) agent: Client,
}

impl Room {
    pub(crate) async fn open(config: Value) -> Self {
        Self::with(config, &[]).await
    }

    pub(crate) async fn with(config: Value, environment: &[(&str, &str)]) -> Self {
        let server = Server::start_env(&[], environment).await;
        server.create(ROOM, config).await;
        let ann = Someone::invited(&server, "ann", &["driver", "approver", "admin"]).await;
        let bob = Someone::invited(&server, "bob", &["approver"]).await;
        let eve = Someone::invited(&server, "eve", &["observer"]).await;
        for person in [&ann, &bob, &eve] {
            person.join(ROOM).await;
        }
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let agent = server.join(ROOM, &bot).await;
        let bot = Someone::from(&server, bot).await;
        Self {
            server,
            ann,
            bob,
            eve,
            bot,
            agent,
        }
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        stored(&self.server, ROOM)
    }

    /// How the gate of a proposal stands.
    pub(crate) async fn gate(&self, proposal: &str) -> Value {
        let path = format!("/api/sessions/{ROOM}/gates/{proposal}");
        self.ann.api.get(&path).await.ok()
    }

    /// Proposes a command without a claim about its risk, and gives the proposal's id.
    pub(crate) async fn propose(&mut self, command: &str) -> String {
        let mut payload = self.agent.proposal(command);
        payload["risk_level"] = json!("safe");
        let id = self.agent.send("tool.propose", payload).await;
        self.agent.acked(&id).await;
        id
    }

    /// The agent says what a command printed.
    pub(crate) async fn print(&mut self, proposal: &str, stream: &str, text: &str) {
        let output =
            json!({ "tool_proposal": proposal, "stream": stream, "text": text, "complete": false });
        self.agent.say("tool.output", output).await;
    }

    /// The agent says how a command ended.
    pub(crate) async fn finish(&mut self, proposal: &str, exit_code: i64) {
        let result = json!({
            "tool_proposal": proposal, "success": exit_code == 0, "duration_ms": 3,
            "result": { "exitCode": exit_code, "stdout": "", "stderr": "" },
        });
        self.agent.say("tool.result", result).await;
    }
}

pub(crate) fn approve() -> Value {
    json!({ "vote": "approve" })
}

pub(crate) fn reject(reason: &str) -> Value {
    json!({ "vote": "reject", "reason": reason })
}

/// An edit of what has this digest.
pub(crate) fn edit(command: &str, digest: &str) -> Value {
    let arguments = json!({ "command": "sh", "args": [], "full_command": command });
    json!({ "arguments": arguments, "digest": digest })
}

pub(crate) fn context(key: &str) -> Value {
    json!({ "key": key, "content_type": "text", "content": "c" })
}

/// The ids of messages, in order.
pub(crate) fn ids(messages: &[Value]) -> Vec<&str> {
    let ids = messages.iter().map(|message| message["id"].as_str());
    ids.map(Option::unwrap).collect()
}
