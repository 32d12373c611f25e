//! A session with people who use HTTP and an agent on a WebSocket.

use serde_json::{Value, json};

use crate::http_client::{HttpTestClient, join_payload, stored_log};
use crate::support::{TestClient, TestServer, TestUser};

pub(crate) const SESSION: &str = "room";

/// A participant with their HTTP client.
pub(crate) struct ApiUser {
    pub(crate) user: TestUser,
    pub(crate) api: HttpTestClient,
}

impl ApiUser {
    pub(crate) async fn invite(server: &TestServer, name: &str, roles: &[&str]) -> Self {
        Self::with_user(server, server.invite(name, roles, &[])).await
    }

    pub(crate) async fn with_user(server: &TestServer, user: TestUser) -> Self {
        let api = HttpTestClient::with_token(server, &user).await;
        Self { user, api }
    }

    pub(crate) fn id(&self) -> &str {
        &self.user.participant
    }

    pub(crate) async fn join(&self, session: &str) {
        let answer = self
            .api
            .send_message(session, "session.join", join_payload(&self.user));
        assert!(answer.await.expect_ok()["seq"].is_u64());
    }
}

pub(crate) struct ApiFixture {
    /// The server.
    pub(crate) server: TestServer,
    /// Approver, driver and admin.
    pub(crate) ann: ApiUser,
    /// Approver.
    pub(crate) bob: ApiUser,
    /// Observer.
    pub(crate) eve: ApiUser,
    /// The agent's user and HTTP client.
    pub(crate) bot: ApiUser,
    /// The agent's WebSocket.
    pub(crate) agent: TestClient,
}

impl ApiFixture {
    pub(crate) async fn new(config: Value) -> Self {
        Self::with_env(config, &[]).await
    }

    pub(crate) async fn with_env(config: Value, environment: &[(&str, &str)]) -> Self {
        let server = TestServer::start_with_env(&[], environment).await;
        server.create_session(SESSION, config).await;
        let ann = ApiUser::invite(&server, "ann", &["driver", "approver", "admin"]).await;
        let bob = ApiUser::invite(&server, "bob", &["approver"]).await;
        let eve = ApiUser::invite(&server, "eve", &["observer"]).await;
        for person in [&ann, &bob, &eve] {
            person.join(SESSION).await;
        }
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let agent = server.join(SESSION, &bot).await;
        let bot = ApiUser::with_user(&server, bot).await;
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
        stored_log(&self.server, SESSION)
    }

    /// The gate of a proposal, as the API returns it.
    pub(crate) async fn gate(&self, proposal: &str) -> Value {
        let path = format!("/api/sessions/{SESSION}/gates/{proposal}");
        self.ann.api.get(&path).await.expect_ok()
    }

    /// Proposes a command without claiming a risk; returns the proposal's id.
    pub(crate) async fn propose(&mut self, command: &str) -> String {
        let mut payload = self.agent.proposal(command);
        payload["risk_level"] = json!("safe");
        let id = self.agent.send("tool.propose", payload).await;
        self.agent.expect_ack(&id).await;
        id
    }

    /// Sends output of a command as the agent.
    pub(crate) async fn send_output(&mut self, proposal: &str, stream: &str, text: &str) {
        let output =
            json!({ "tool_proposal": proposal, "stream": stream, "text": text, "complete": false });
        self.agent.send_and_ack("tool.output", output).await;
    }

    /// Sends the result of a command as the agent.
    pub(crate) async fn send_result(&mut self, proposal: &str, exit_code: i64) {
        let result = json!({
            "tool_proposal": proposal, "success": exit_code == 0, "duration_ms": 3,
            "result": { "exitCode": exit_code, "stdout": "", "stderr": "" },
        });
        self.agent.send_and_ack("tool.result", result).await;
    }
}

pub(crate) fn approve_vote() -> Value {
    json!({ "vote": "approve" })
}

pub(crate) fn reject_vote(reason: &str) -> Value {
    json!({ "vote": "reject", "reason": reason })
}

/// The request body for an edit of the action with this digest.
pub(crate) fn amend_body(command: &str, digest: &str) -> Value {
    let arguments = json!({ "command": "sh", "args": [], "full_command": command });
    json!({ "arguments": arguments, "digest": digest })
}

pub(crate) fn context_payload(key: &str) -> Value {
    json!({ "key": key, "content_type": "text", "content": "c" })
}

/// The ids of messages, in order.
pub(crate) fn message_ids(messages: &[Value]) -> Vec<&str> {
    let ids = messages.iter().map(|message| message["id"].as_str());
    ids.map(Option::unwrap).collect()
}
