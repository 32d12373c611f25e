//! The first gate: a person and an agent meet in a session, and a command waits for a yes.
//!
//! Start a server, then give this its admin link:
//!
//!     cargo run --example first_gate -- 'http://127.0.0.1:3000/?token=…'
//!
//! It speaks the protocol by hand, so that what goes over the wire can be read here.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// One participant's connection.
struct Participant {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    id: String,
    sent: u32,
}

impl Participant {
    async fn connect(server: &str, token: &str, session: &str, id: &str) -> anyhow::Result<Self> {
        let url = format!("{}/ws?token={token}", server.replacen("http", "ws", 1));
        let (socket, _) = connect_async(url).await.context("connecting")?;
        Ok(Self {
            socket,
            session: session.to_owned(),
            id: id.to_owned(),
            sent: 0,
        })
    }

    /// Sends a message and gives its id.
    async fn say(&mut self, kind: &str, payload: Value) -> anyhow::Result<String> {
        self.sent += 1;
        let id = format!("{}-{}-{}", self.session, self.id, self.sent);
        let envelope = json!({
            "v": 1, "id": id, "session": self.session, "sender": self.id,
            "type": kind, "payload": payload,
        });
        self.socket
            .send(Message::text(envelope.to_string()))
            .await?;
        Ok(id)
    }

    async fn join(&mut self, kind: &str, role: &str) -> anyhow::Result<()> {
        let participant = json!({
            "id": self.id, "name": self.id, "type": kind, "roles": [role], "transport": "websocket",
        });
        self.say(
            "session.join",
            json!({ "participant": participant, "supported_versions": [1] }),
        )
        .await?;
        self.hear("session.welcome").await?;
        Ok(())
    }

    /// Waits for a message of this type.
    async fn hear(&mut self, kind: &str) -> anyhow::Result<Value> {
        while let Some(frame) = self.socket.next().await {
            let Message::Text(text) = frame? else {
                continue;
            };
            let message: Value = serde_json::from_str(&text)?;
            if message["type"] == "error" {
                bail!("refused: {}", message["payload"]["message"]);
            }
            if message["type"] == kind {
                return Ok(message);
            }
        }
        bail!("the server closed the connection")
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::args()
        .nth(1)
        .context("give the admin link that `pvp server` printed")?;
    let (server, token) = link
        .split_once("/?token=")
        .context("that is not an admin link")?;
    let session = format!("first-gate-{}", std::process::id());

    // The admin makes a session and invites an agent to it.
    let mut admin = Participant::connect(server, token, &session, "admin").await?;
    admin
        .say("session.create", json!({ "name": "my first gate" }))
        .await?;
    admin.hear("session.ack").await?;
    admin.join("human", "admin").await?;
    let invitation: Value = ureq::post(format!("{server}/api/invites"))
        .header("Authorization", &format!("Bearer {token}"))
        .send_json(
            json!({ "name": "bot", "roles": ["driver"], "kind": "agent", "session": session }),
        )?
        .body_mut()
        .read_json()?;
    let text = |field: &str| invitation[field].as_str().unwrap_or_default().to_owned();
    let bot = text("participant");
    let mut agent = Participant::connect(server, &text("token"), &session, &bot).await?;
    agent.join("agent", "driver").await?;

    // The agent wants to run something; it waits.
    let proposal = agent
        .say(
            "tool.propose",
            json!({
                "tool_name": "shell", "arguments": { "full_command": "echo hello > greeting.txt" },
                "agent": bot, "risk_level": "low", "description": "leave a greeting",
                "requires_approval": true, "category": "shell_execute",
            }),
        )
        .await?;
    let gate = admin.hear("gate.request").await?;
    println!(
        "gate:     {}",
        gate["payload"]["message"].as_str().unwrap_or_default()
    );

    // The admin approves exactly what was shown; now it is granted, once.
    let vote = json!({
        "gate": gate["id"], "approver": "admin", "digest": gate["payload"]["digest"],
    });
    admin.say("gate.approve", vote).await?;
    let grant = agent.hear("tool.execute").await?;
    println!("granted:  approved by {}", grant["payload"]["approved_by"]);

    // A real executor would run it here; this one only reports.
    let done = json!({ "exitCode": 0, "stdout": "", "stderr": "" });
    let result =
        json!({ "tool_proposal": proposal, "success": true, "result": done, "duration_ms": 1 });
    agent.say("tool.result", result).await?;
    let result = admin.hear("tool.result").await?;
    println!("result:   exit {}", result["payload"]["result"]["exitCode"]);
    println!("read it:  pvp audit show --data DIR --session {session}");
    Ok(())
}
