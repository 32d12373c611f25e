//! A session with an agent that runs commands, and screens of the people in it.

use std::path::PathBuf;

use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_client::Link;

pub(crate) use crate::support::screen::{TestScreen, send_signal};
use crate::support::{TestClient, TestServer, TestUser};

/// Proposes a read, which is granted at once; returns its id.
pub(crate) async fn propose_read(agent: &mut TestClient, command: &str) -> String {
    let propose = serde_json::json!({
        "tool_name": "shell", "arguments": { "full_command": command },
        "agent": agent.participant, "risk_level": "safe", "description": "a test",
        "requires_approval": false, "category": "shell_execute",
    });
    let id = agent.send("tool.propose", propose).await;
    agent
        .wait(|message| {
            message["type"] == "tool.execute" && message["payload"]["tool_proposal"] == id.as_str()
        })
        .await;
    id
}

/// A session with an agent that really runs commands.
pub(crate) struct TuiFixture {
    pub(crate) server: TestServer,
    pub(crate) agent: Agent,
    pub(crate) workspace: PathBuf,
    _directory: tempfile::TempDir,
}

impl TuiFixture {
    pub(crate) async fn new(config: serde_json::Value) -> Self {
        let server = TestServer::start(&[]).await;
        server.create_session("owl", config).await;
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap().join("work");
        std::fs::create_dir(&workspace).unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), place.path().join("state"));
        settings.program = env!("CARGO_BIN_EXE_pvp").into();
        settings.accepted.shell_exec = true;
        let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
        let agent = Agent::connect(link, settings).await.unwrap();
        Self {
            server,
            agent,
            workspace,
            _directory: place,
        }
    }

    pub(crate) fn invite(&self, name: &str, roles: &[&str]) -> TestUser {
        self.server.invite(name, roles, &[])
    }

    /// Starts a screen for a new user in the session.
    pub(crate) fn screen(&self, name: &str, roles: &[&str]) -> TestScreen {
        let user = self.invite(name, roles);
        let screen = TestScreen::start(&self.server.link(&user, Some("owl")), 100, 30);
        screen.wait_for_text("● connected");
        screen
    }
}
