//! A small editor: it opens a conversation with its agent, says one thing, and leaves when that is
//! answered.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use crate::clients::PROMPT;

/// The requests that it makes, one after the other.
const INITIALIZE: u64 = 1;
const OPEN: u64 = 2;
const SAY: u64 = 3;

/// Speaks to an agent that was started with pipes. What it hears goes to the file.
pub fn start(agent: &mut Child, workdir: &Path, heard: File) -> JoinHandle<()> {
    let editor = TestEditor {
        input: agent.stdin.take().unwrap(),
        workdir: workdir.to_owned(),
        heard,
    };
    tokio::spawn(editor.edit(agent.stdout.take().unwrap()))
}

struct TestEditor {
    input: ChildStdin,
    workdir: PathBuf,
    heard: File,
}

impl TestEditor {
    async fn edit(mut self, output: ChildStdout) {
        let capabilities = json!({ "fs": { "readTextFile": false, "writeTextFile": false } });
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        self.request(INITIALIZE, "initialize", hello).await;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            writeln!(self.heard, "{line}").unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            match (message["id"].as_u64(), message["method"].as_str()) {
                (_, Some(_)) if message["id"].is_null() => {}
                (_, Some(method)) => panic!("the editor is asked for `{method}`: {line}"),
                (Some(SAY), None) => return,
                (Some(id), None) => self.go_on(id, &message["result"]).await,
                (None, None) => panic!("nobody asked for this: {line}"),
            }
        }
    }

    /// Says what comes after the answer to a request.
    async fn go_on(&mut self, answered: u64, result: &Value) {
        match answered {
            INITIALIZE => {
                let params = json!({ "cwd": self.workdir, "mcpServers": [] });
                self.request(OPEN, "session/new", params).await;
            }
            _ => {
                let prompt = json!([{ "type": "text", "text": PROMPT }]);
                let params = json!({ "sessionId": result["sessionId"], "prompt": prompt });
                self.request(SAY, "session/prompt", params).await;
            }
        }
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        // Where nobody reads it, nothing comes back either.
        let _ = self
            .input
            .write_all(format!("{message}\n").as_bytes())
            .await;
    }
}
