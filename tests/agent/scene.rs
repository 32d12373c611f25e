//! A session with one person and an agent whose model the test answers for.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::kit::desk::Desk;
use crate::kit::model::{Model, Question};
use crate::kit::worker::Worker;
use crate::kit::{Client, Server};
use crate::room;

pub struct Scene {
    pub server: Server,
    pub ann: Client,
    pub model: Model,
    pub worker: Worker,
}

impl Scene {
    pub async fn plain() -> Self {
        Self::set(&[], &[]).await
    }

    /// With more flags and variables for the agent.
    pub async fn set(more: &[&str], environment: &[(&str, &OsStr)]) -> Self {
        Self::with_provider("openai", more, environment).await
    }

    pub async fn with_provider(
        provider: &str,
        more: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let (server, ann) = room(json!({})).await;
        let model = Model::listen().await;
        let flags = model.flags_of(provider);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let who = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&who, Some("owl"));
        let flags = [&flags, more].concat();
        let worker = Worker::start_by(Desk::new(), who, link, &flags, environment).await;
        Self {
            server,
            ann,
            model,
            worker,
        }
    }

    pub async fn prompt(&mut self, text: &str) -> String {
        self.prompt_with(text, json!({})).await
    }

    pub async fn prompt_with(&mut self, text: &str, more: Value) -> String {
        let mut prompt = json!({
            "content": text, "target_agent": self.worker.who.participant,
            "contributors": [self.ann.participant], "context_keys": [],
        });
        for (key, value) in more.as_object().unwrap() {
            prompt[key] = value.clone();
        }
        let id = self.ann.send("prompt.submit", prompt).await;
        self.ann.acked(&id).await;
        id
    }

    /// Asks, and waits until the model is asked.
    pub async fn ask(&mut self, text: &str) -> Question {
        self.prompt(text).await;
        self.model.asked().await
    }

    /// Waits for the end of an answer; gives its payload.
    pub async fn answered(&mut self) -> Value {
        self.ann.wait_for("response.end").await["payload"].clone()
    }

    /// Waits until an answer has ended without a call, for this reason; gives all that was said in
    /// the session.
    pub async fn ended(&mut self, reason: &str) -> String {
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
        self.ann.say("interrupt.raise", raise).await;
        let acknowledged = self.ann.wait_for("interrupt.acknowledge").await;
        let taken = if urgency == "pause" {
            "paused"
        } else {
            "stopped"
        };
        assert_eq!(acknowledged["payload"]["action_taken"], taken);
    }
}

/// All of these are in the text.
pub fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// It begins so.
pub fn begins(text: &str, beginning: &str) {
    assert!(text.starts_with(beginning), "{text}");
}

/// The ref that a result names.
pub fn reference(text: &str) -> String {
    let rest = text.split("ref \"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}
