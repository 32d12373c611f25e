//! The standard input and output of Claude Code, which speaks in lines of JSON.

use anyhow::bail;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::HOOKED_EVENTS;
use crate::hooks::LONGEST_WAIT_SECONDS;
use crate::json_lines::{JsonLine, JsonLines};

/// The two ends of the client.
pub(super) struct Pipe {
    pub(super) stdin: ChildStdin,
    pub(super) lines: JsonLines<BufReader<ChildStdout>>,
    /// How many requests were sent, to number the next.
    pub(super) requests: u64,
}

impl Pipe {
    /// Registers the hooks, and waits until the client has taken them.
    pub(super) async fn initialize(&mut self) -> anyhow::Result<()> {
        let hooks: serde_json::Map<_, _> = HOOKED_EVENTS
            .into_iter()
            .map(|event| {
                let hook = json!({
                    "matcher": "*", "hookCallbackIds": [event], "timeout": LONGEST_WAIT_SECONDS,
                });
                (event.to_owned(), json!([hook]))
            })
            .collect();
        let id = self
            .request(json!({ "subtype": "initialize", "hooks": hooks }))
            .await?;
        loop {
            let Some(line) = self.lines.next().await else {
                bail!("the client ended before it said hello");
            };
            let JsonLine::Value(line) = line else {
                continue;
            };
            let response = &line["response"];
            if line["type"] == "control_response" && response["request_id"] == id.as_str() {
                match response["subtype"] == "success" {
                    true => return Ok(()),
                    false => bail!("the client takes no hooks: {}", response["error"]),
                }
            }
        }
    }

    pub(super) async fn request(&mut self, request: Value) -> std::io::Result<String> {
        self.requests += 1;
        let id = format!("pvp-{}", self.requests);
        let line = json!({ "type": "control_request", "request_id": id, "request": request });
        self.write(&line).await?;
        Ok(id)
    }

    pub(super) async fn respond(
        &mut self,
        request_id: &str,
        response: Value,
    ) -> std::io::Result<()> {
        self.write(&json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": request_id, "response": response,
        }}))
        .await
    }

    pub(super) async fn refuse(&mut self, request_id: &str, why: &str) -> std::io::Result<()> {
        self.write(&json!({ "type": "control_response", "response": {
            "subtype": "error", "request_id": request_id, "error": why,
        }}))
        .await
    }

    pub(super) async fn write(&mut self, line: &Value) -> std::io::Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        self.stdin.flush().await
    }
}
