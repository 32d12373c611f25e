//! A server that says whatever a test wants to an agent, and an agent that believes it as far as it
//! must.

use std::path::{Path, PathBuf};

use futures_util::{SinkExt, StreamExt};
use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::proposer::ProposalHandle;
use pvp_client::{ConnectOptions, Link, now};
use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{Approval, ClearedBy, GrantTerms, RunBy, SessionWelcome};
use pvp_protocol::{
    Action, Command, ExecutionLimits, Limits, MessageId, ParticipantId, ParticipantKind,
    SandboxProfile, SessionConfig, SessionId,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::{TEST_TIMEOUT, fresh_id};

pub fn participant(name: &str) -> ParticipantId {
    ParticipantId::parse(name).unwrap()
}

pub fn message_id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

pub fn shell(line: &str) -> Action {
    let line = line.to_owned();
    Action::new(Command::Shell { line })
}

/// A server that says whatever the test wants, to one client.
pub struct LyingServer {
    listener: TcpListener,
    pub socket: Option<WebSocketStream<TcpStream>>,
    /// The last sequence number given.
    pub seq: u64,
}

impl LyingServer {
    pub async fn listen() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            socket: None,
            seq: 0,
        }
    }

    pub fn link(&self) -> Link {
        let address = self.listener.local_addr().unwrap();
        Link::parse(&format!("http://{address}/")).unwrap()
    }

    pub fn options() -> ConnectOptions {
        ConnectOptions {
            session: Some(SessionId::parse("owl").unwrap()),
            participant: Some(participant("bot")),
            kind: Some(ParticipantKind::Agent),
            ..ConnectOptions::default()
        }
    }

    /// Accepts a connection and returns its join message.
    pub async fn accept(&mut self) -> Value {
        let accepted = tokio::time::timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (stream, _) = accepted.expect("it connects in time").unwrap();
        let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        self.socket = Some(socket);
        self.receive("session.join").await
    }

    /// Accepts a connection and welcomes it.
    pub async fn welcome(&mut self) {
        let join = self.accept().await;
        let announce = &join["payload"]["participant"];
        let mut bot = announce.clone();
        bot["presence"] = json!("active");
        let welcome = SessionWelcome {
            participant: participant("bot"),
            roles: Vec::new(),
            capabilities: Vec::new(),
            name: None,
            config: SessionConfig::default(),
            head: self.seq,
            people: vec![serde_json::from_value(bot).unwrap()],
            gates: Vec::new(),
            running: Vec::new(),
            rules: Vec::new(),
            secrets: Vec::new(),
            limits: Limits::default(),
            extensions: serde_json::from_value(json!({
                "supports_shell_exec": true, "supports_amend": true, "supports_allow_rules": true,
                "supports_resume": true, "supports_output_read": true, "supports_forks": false,
            }))
            .unwrap(),
            paused: None,
            server: "a liar".to_owned(),
        };
        let envelope = json!({
            "type": "session.welcome", "payload": welcome, "ref": join["id"],
        });
        self.send_envelope(&fresh_id("welcome"), "system", envelope)
            .await;
    }

    pub async fn send_envelope(&mut self, id: &str, sender: &str, rest: Value) {
        let mut envelope =
            json!({ "v": 1, "id": id, "ts": now(), "session": "owl", "sender": sender });
        for (key, value) in rest.as_object().unwrap() {
            envelope[key] = value.clone();
        }
        let socket = self.socket.as_mut().unwrap();
        let text = Message::text(envelope.to_string());
        socket.send(text).await.unwrap();
    }

    /// Says that this message is in the log.
    pub async fn log(&mut self, id: &str, sender: &str, kind: &str, payload: Value) {
        self.seq += 1;
        let rest = json!({ "type": kind, "payload": payload, "seq": self.seq });
        self.send_envelope(id, sender, rest).await;
    }

    /// Receives the next message of a type, and acknowledges everything on the way.
    pub async fn receive(&mut self, kind: &str) -> Value {
        loop {
            let socket = self.socket.as_mut().unwrap();
            let frame = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await;
            let frame = frame.unwrap_or_else(|_| panic!("no {kind} comes"));
            let Message::Text(text) = frame.expect("it is connected").unwrap() else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["type"] != "session.join" {
                let ack = json!({ "id": message["id"] });
                let rest = json!({ "type": "session.ack", "payload": ack, "ref": message["id"] });
                self.send_envelope(&fresh_id("ack"), "system", rest).await;
            }
            if message["type"] == kind {
                return message;
            }
        }
    }

    pub async fn grant(&mut self, proposal: &str, grant: &GrantTerms) {
        let approved_by: Vec<_> = grant.approvals.iter().map(|it| &it.participant).collect();
        let execute =
            json!({ "tool_proposal": proposal, "approved_by": approved_by, "grant": grant });
        self.log(&fresh_id("execute"), "system", "tool.execute", execute)
            .await;
    }
}

/// A grant as an honest server would give it after ann's approval.
pub fn grant(action: Action) -> GrantTerms {
    GrantTerms {
        id: message_id(&fresh_id("grant")),
        executor: participant("bot"),
        digest: action.digest(),
        action,
        runs: RunBy::Executor,
        limits: Some(ExecutionLimits {
            timeout_ms: 60_000,
            output_bytes: 100_000,
        }),
        profile: Some(SandboxProfile::None),
        expires_at: now().plus_seconds(60),
        cleared_by: ClearedBy::Quorum,
        approvals: vec![Approval {
            participant: participant("ann"),
            at: now(),
            comment: None,
        }],
        rule: None,
        allowed_by: None,
        driver: None,
        nonce: Some("n".repeat(64)),
        secret_env: None,
    }
}

/// An agent with its executor, whose server lies.
pub struct DeceivedAgent {
    pub server: LyingServer,
    pub agent: Agent,
    directory: tempfile::TempDir,
}

impl DeceivedAgent {
    pub async fn new() -> Self {
        Self::with_settings(|_| {}).await
    }

    /// As `new`, with other settings of the executor.
    pub async fn with_settings(change: impl FnOnce(&mut ExecutorSettings)) -> Self {
        let mut server = LyingServer::listen().await;
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().canonicalize().unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
        change(&mut settings);
        let connecting = Agent::connect_with(
            server.link(),
            LyingServer::options(),
            settings,
            Policy::built_in(),
        );
        let (agent, ()) = tokio::join!(connecting, server.welcome());
        Self {
            server,
            agent: agent.unwrap(),
            directory,
        }
    }

    pub fn workspace(&self) -> &Path {
        self.directory.path()
    }

    /// Proposes a command, which the server logs; returns its id and its handle.
    pub async fn propose(&mut self, line: &str) -> (String, ProposalHandle) {
        let proposing = self.agent.propose_shell(line);
        let (handle, propose) = tokio::join!(proposing, self.server.receive("tool.propose"));
        let id = propose["id"].as_str().unwrap().to_owned();
        let payload = propose["payload"].clone();
        self.server.log(&id, "bot", "tool.propose", payload).await;
        (id, handle.unwrap())
    }

    /// Proposes `ls`, which the server says ann edited to this line; returns the proposal's id.
    pub async fn propose_edited(&mut self, line: &str) -> String {
        let (proposal, _handle) = self.propose("ls").await;
        let (gate, digest) = (fresh_id("gate"), shell("ls").digest());
        let request = json!({
            "action_type": "tool", "action_ref": proposal, "message": "", "digest": digest,
            "quorum": { "type": "any", "count": 1 }, "timeout_seconds": 0, "category": "read",
            "on_timeout": "reject", "voters": ["ann"],
        });
        let assessment = Policy::built_in().assess(&shell(line), &Workspace::default());
        let amend = json!({
            "gate": gate, "arguments": { "full_command": line }, "digest": digest,
            "assessment": assessment,
        });
        let server = &mut self.server;
        server.log(&gate, "system", "gate.request", request).await;
        server
            .log(&fresh_id("amend"), "ann", "gate.amend", amend)
            .await;
        proposal
    }

    /// Waits for the result of a proposal.
    pub async fn result(&mut self, proposal: &str) -> Value {
        loop {
            let result = self.server.receive("tool.result").await;
            if result["payload"]["tool_proposal"] == proposal {
                return result["payload"].clone();
            }
        }
    }

    /// Asserts that this grant is refused with this reason, and that nothing runs because of it.
    pub async fn expect_refused(&mut self, proposal: &str, grant: &GrantTerms, why: &str) {
        self.server.grant(proposal, grant).await;
        let result = self.result(proposal).await;
        assert_eq!(result["success"], false, "{result}");
        let error = result["error"].as_str().unwrap();
        assert!(error.contains(why), "{error}");
        // Whatever was started by mistake has had its chance when the next command has ended.
        self.expect_runs("echo honest").await;
        let marker = self.workspace().join("marker");
        assert!(!marker.exists(), "{:?} ran", grant.action);
    }

    /// An honest grant runs, so a refusal above is not because nothing would.
    pub async fn expect_runs(&mut self, line: &str) {
        let (proposal, _handle) = self.propose(line).await;
        self.server.grant(&proposal, &grant(shell(line))).await;
        let result = self.result(&proposal).await;
        assert_eq!(result["success"], true, "{result}");
    }
}
