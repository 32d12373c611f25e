//! The canary of Codex, whose app-server asks whoever started it.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::{CanaryPlace, HookBehaviour, ProcessGroup, REASON, RUN_TIMEOUT, waited_in_vain};
use crate::json_lines::{JsonLine, JsonLines};

/// Ids of our own requests.
const THREAD_START: u64 = 2;
const TURN_START: u64 = 3;

/// Starts the app-server and answers its question so. Returns what it said that was not understood.
pub(super) async fn run(
    program: &Path,
    model: &str,
    behaviour: HookBehaviour,
    place: &CanaryPlace,
) -> std::io::Result<String> {
    write_config(model, place)?;
    let mut command = Command::new(program);
    command
        .args(["app-server", "-c", "features.unified_exec_tty=false"])
        .current_dir(place.workspace())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for name in ["PATH", "LANG", "TERM", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .env("HOME", place.home())
        .env("CODEX_HOME", place.home());
    let mut child = command.spawn()?;
    let group = ProcessGroup::of(&child);
    let said = timeout(RUN_TIMEOUT, converse(&mut child, behaviour, place)).await;
    drop(group);
    said.unwrap_or_else(|_| Ok("it did not end its turn".to_owned()))
}

fn write_config(model: &str, place: &CanaryPlace) -> std::io::Result<()> {
    let config = format!(
        "model = \"canary\"\nmodel_provider = \"canary\"\n\n[model_providers.canary]\nname = \"canary\"\nbase_url = \"{model}/v1\"\nwire_api = \"responses\"\n"
    );
    std::fs::write(place.home().join("config.toml"), config)
}

async fn converse(
    child: &mut Child,
    behaviour: HookBehaviour,
    place: &CanaryPlace,
) -> std::io::Result<String> {
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Ok("it has no standard input and output".to_owned());
    };
    let mut stdin = Some(stdin);
    let mut lines = JsonLines::new(BufReader::new(stdout));
    let info = json!({ "name": "pvp-doctor", "version": env!("CARGO_PKG_VERSION") });
    write(
        &mut stdin,
        json!({ "id": 1, "method": "initialize", "params": { "clientInfo": info } }),
    )
    .await?;
    write(&mut stdin, json!({ "method": "initialized" })).await?;
    let thread = json!({
        "cwd": place.workspace(), "approvalPolicy": "untrusted", "sandbox": "danger-full-access",
    });
    write(
        &mut stdin,
        json!({ "id": THREAD_START, "method": "thread/start", "params": thread }),
    )
    .await?;
    let mut said = String::new();
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = waited_in_vain(behaviour, place) => return Ok(said),
        };
        let line = match line {
            Some(JsonLine::Value(line)) => line,
            Some(JsonLine::Other(text)) => {
                said = text;
                continue;
            }
            None => return Ok(said),
        };
        if line["id"] == THREAD_START && !line["result"].is_null() {
            let thread = &line["result"]["thread"]["id"];
            let input = json!([{ "type": "text", "text": "Make the canary." }]);
            let turn = json!({ "threadId": thread, "input": input, "approvalPolicy": "untrusted" });
            write(
                &mut stdin,
                json!({ "id": TURN_START, "method": "turn/start", "params": turn }),
            )
            .await?;
        } else if !line["error"].is_null() && line["method"].is_null() {
            said = line["error"].to_string();
        } else if line["method"] == "turn/completed" {
            return Ok(said);
        } else if !line["id"].is_null() && line["method"].is_string() {
            std::fs::write(place.asked(), "")?;
            answer(&mut stdin, behaviour, &line).await?;
        }
    }
}

/// Answers the question of the app-server, or breaks.
async fn answer(
    stdin: &mut Option<ChildStdin>,
    behaviour: HookBehaviour,
    question: &Value,
) -> std::io::Result<()> {
    let decide =
        |decision: &str| json!({ "id": question["id"], "result": { "decision": decision } });
    match behaviour {
        HookBehaviour::Allows => write(stdin, decide("accept")).await,
        HookBehaviour::Denies => {
            let steer = json!({
                "threadId": question["params"]["threadId"],
                "expectedTurnId": question["params"]["turnId"],
                "input": [{ "type": "text", "text": REASON }],
            });
            write(
                stdin,
                json!({ "id": 90, "method": "turn/steer", "params": steer }),
            )
            .await?;
            write(stdin, decide("decline")).await
        }
        HookBehaviour::PrintsGarbage => write(stdin, decide("garbage")).await,
        HookBehaviour::IsMissing => {
            let error = json!({ "code": -32601, "message": "nobody answers this" });
            write(stdin, json!({ "id": question["id"], "error": error })).await
        }
        // Whoever started it is gone.
        HookBehaviour::Crashes | HookBehaviour::IsKilled => {
            *stdin = None;
            Ok(())
        }
        HookBehaviour::Hangs => Ok(()),
    }
}

async fn write(stdin: &mut Option<ChildStdin>, line: Value) -> std::io::Result<()> {
    match stdin {
        Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()).await,
        None => Ok(()),
    }
}
