//! A session with one person and an agent whose model is the test.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::start_session;
use crate::support::agent_process::AgentProcess;
use crate::support::cli::CliEnv;
use crate::support::fake_model::{FakeModelServer, ModelRequest};
use crate::support::{TestClient, TestServer};

pub struct ModelAgentFixture {
    pub server: TestServer,
    pub ann: TestClient,
    pub model_server: FakeModelServer,
    pub agent_process: AgentProcess,
}

impl ModelAgentFixture {
    pub async fn new() -> Self {
        Self::with_flags(&[], &[]).await
    }

    /// Starts it with extra flags and environment variables for the agent.
    pub async fn with_flags(more: &[&str], environment: &[(&str, &OsStr)]) -> Self {
        Self::with_provider("openai", more, environment).await
    }

    pub async fn with_provider(
        provider: &str,
        more: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let (server, ann) = start_session(json!({})).await;
        let model = FakeModelServer::listen().await;
        let flags = model.agent_flags_for(provider);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some("owl"));
        let flags = [&flags, more].concat();
        let agent_process =
            AgentProcess::start_with_link(CliEnv::new(), user, link, &flags, environment).await;
        Self {
            server,
            ann,
            model_server: model,
            agent_process,
        }
    }

    pub async fn send_prompt(&mut self, text: &str) -> String {
        self.send_prompt_with(text, json!({})).await
    }

    pub async fn send_prompt_with(&mut self, text: &str, more: Value) -> String {
        let mut prompt = json!({
            "content": text, "target_agent": self.agent_process.user.participant,
            "contributors": [self.ann.participant], "context_keys": [],
        });
        for (key, value) in more.as_object().unwrap() {
            prompt[key] = value.clone();
        }
        let id = self.ann.send("prompt.submit", prompt).await;
        self.ann.expect_ack(&id).await;
        id
    }

    /// Sends a prompt and waits until the agent calls the model.
    pub async fn prompt_and_wait(&mut self, text: &str) -> ModelRequest {
        self.send_prompt(text).await;
        self.model_server.next_request().await
    }

    /// Waits for the end of a response; returns its payload.
    pub async fn wait_response_end(&mut self) -> Value {
        self.ann.wait_for("response.end").await["payload"].clone()
    }

    /// Waits until a response without a tool call ends for this reason; returns all text of the
    /// agent.
    pub async fn wait_final_response(&mut self, reason: &str) -> String {
        let ends = |message: &Value| {
            let reason = &message["payload"]["finish_reason"];
            message["type"] == "response.end" && reason != "tool_use"
        };
        let end = self.ann.wait(ends).await;
        assert_eq!(end["payload"]["finish_reason"], reason);
        let said = self.ann.received.iter();
        said.filter(|message| message["type"] == "response.chunk")
            .map(|chunk| chunk["payload"]["text"].as_str().unwrap())
            .collect()
    }

    pub async fn interrupt(&mut self, urgency: &str, message: &str) {
        let raise = json!({ "urgency": urgency, "message": message });
        self.ann.send_and_ack("interrupt.raise", raise).await;
        let acknowledged = self.ann.wait_for("interrupt.acknowledge").await;
        let taken = if urgency == "pause" {
            "paused"
        } else {
            "stopped"
        };
        assert_eq!(acknowledged["payload"]["action_taken"], taken);
    }
}

/// Asserts that the text contains all of these parts.
pub fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Asserts how the text begins.
pub fn assert_starts_with(text: &str, beginning: &str) {
    assert!(text.starts_with(beginning), "{text}");
}

/// The `ref` that a result mentions.
pub fn extract_ref(text: &str) -> String {
    let rest = text.split("ref \"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}
