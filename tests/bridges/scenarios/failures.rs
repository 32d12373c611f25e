//! What must not run when something goes wrong, and what is left in the record.

use serde_json::{Value, json};

use super::decisions::commands;
use crate::clients::{Asker, Client, ServerAway, StartedBy};
use crate::model::SeenRequest;
use crate::process::RunningProcess;
use crate::stage::{Setting, Stage};
use crate::support::session::assert_within_a_lease;

/// Runs until it is told to go on. It gives up after a while, for when the test is gone.
/// Gemini refuses a `$(`.
const UNTIL_TOLD: &str = "touch started; \
     for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do [ -e go ] || sleep 0.5; done; done; \
     touch finished";

pub async fn interrupt(client: &'static Client) {
    let script = commands(client, &[UNTIL_TOLD, "touch more"]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.approve(&call).await;
    stage.wait_for_file("started").await;
    // The model waits for the result of this call.
    let asked_before = stage.model.main_requests();
    let interrupt = json!({
        "raised_by": stage.ann.participant, "urgency": "stop", "message": "wrong branch",
        "target": call.agent,
    });
    stage.ann.send_and_ack("interrupt.raise", interrupt).await;
    let acknowledged = stage.ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(
        acknowledged["payload"]["action_taken"], "stopped",
        "{acknowledged}"
    );
    let result = stage.result(&call).await;
    assert_eq!(result["success"], false, "{result}");
    stage.process.ended().await;
    // It would run on if only the client had stopped.
    std::fs::write(stage.path("go"), "").unwrap();
    assert!(stage.recorded("gate.request").await.len() == 1);
    assert_nothing_runs(&stage);
    assert!(!stage.exists("finished"));
    assert!(!stage.exists("more"));
    let asked = stage.model.main_requests() - asked_before;
    assert!(asked <= client.most_requests_after_interrupt, "{asked}");
}

/// That no command of the client is left.
fn assert_nothing_runs(stage: &Stage) {
    let left = stage.process.running();
    let ours: Vec<_> = left
        .iter()
        .filter(|it| it.is_shell_with("finished"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

pub async fn server_down_before(client: &'static Client) {
    let script = commands(client, &[UNTIL_TOLD, "touch made"]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.approve(&call).await;
    stage.wait_for_file("started").await;
    stage.server.kill_9().await;
    std::fs::write(stage.path("go"), "").unwrap();
    stage.wait_for_file("finished").await;
    match client.server_away {
        ServerAway::Denied => {
            stage.process.ended().await;
            let told = stage.model.last_request_text();
            assert!(told.contains("nobody can be asked"), "{told}");
        }
        ServerAway::EndsTurn => {
            stage.process.ended().await;
        }
        ServerAway::Waits => {
            stage.restart_server().await;
            let call = stage.gate_of("touch made").await;
            stage.reject(&call, "not after that").await;
            stage.client_ends().await;
        }
    }
    assert!(!stage.exists("made"));
}

pub async fn server_down_during(client: &'static Client) {
    if let StartedBy::Deferred(_) = client.started_by {
        return server_down_while_away(client).await;
    }
    let script = commands(client, &["touch made"]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.server.kill_9().await;
    match client.server_away {
        ServerAway::Denied => {
            stage.model_reads("nobody can be asked").await;
            stage.process.ended().await;
        }
        ServerAway::EndsTurn => {
            stage.process.ended().await;
        }
        ServerAway::Waits => {
            stage.restart_server().await;
            stage.reject(&call, "not after that").await;
            stage.model_reads("not after that").await;
            stage.client_ends().await;
        }
    }
    assert!(!stage.exists("made"));
}

/// The client is away too, and its call outlives the server.
async fn server_down_while_away(client: &'static Client) {
    let script = commands(client, &["touch made"]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.leaves_to_wait().await;
    stage.server.kill_9().await;
    stage.come_back();
    let code = stage.process.ended().await;
    assert_eq!(code, Some(1), "{}", stage.process.output());
    stage.restart_server().await;
    // It waits for the decision again, and leaves again.
    stage.come_back();
    stage.reject(&call, "not after that").await;
    stage.model_reads("not after that").await;
    stage.client_ends().await;
    assert!(!stage.exists("made"));
}

pub async fn client_killed(client: &'static Client) {
    tokio::join!(killed_while_waiting(client), killed_while_running(client));
}

async fn killed_while_waiting(client: &'static Client) {
    let script = commands(client, &["touch made"]);
    let setting = Setting {
        stays: true,
        ..Setting::default()
    };
    let mut stage = Stage::start(client, setting, |_| script).await;
    let call = stage.next_gate().await;
    kill_client(client, &stage);
    // The last renewal of its lease came before this.
    let killed = stage.message_of_this_moment().await;
    let resolved = stage.resolution(&call).await;
    let outcome = &resolved["payload"]["outcome"];
    assert_eq!(outcome, "cancelled", "{resolved}");
    if client.degree != "executed" {
        assert_within_a_lease(&killed, &resolved);
    }
    assert!(!stage.exists("made"));
}

async fn killed_while_running(client: &'static Client) {
    let script = commands(client, &[UNTIL_TOLD]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.approve(&call).await;
    stage.wait_for_file("started").await;
    kill_client(client, &stage);
    let killed = stage.message_of_this_moment().await;
    let ended = stage.result_message(&call).await;
    if client.degree != "executed" {
        assert_within_a_lease(&killed, &ended);
    }
    let result = &ended["payload"];
    assert_eq!(result["success"], false, "{result}");
    let outcome = match client.degree {
        // Our own executor knows that it stopped it.
        "executed" => "known",
        _ => "unknown",
    };
    assert_eq!(result["outcome"], outcome, "{result}");
}

/// Kills the client and who started it in one blow. What the client started lives on: hooks, commands.
/// Where our own executor runs the commands, only the client is killed.
fn kill_client(client: &Client, stage: &Stage) {
    let is_executor =
        |it: &RunningProcess| client.degree == "executed" && it.is_pvp(client.started_by.bridge());
    let is_child = |it: &RunningProcess| it.is_pvp("hook") || it.is_shell_with("finished");
    let killed = stage.process.kill_9(|it| !is_child(it) && !is_executor(it));
    assert!(killed >= 1, "{killed}");
}

pub async fn asker_killed(client: &'static Client) {
    let script = commands(client, &["touch made"]);
    let setting = Setting {
        stays: true,
        ..Setting::default()
    };
    let mut stage = Stage::start(client, setting, |_| script).await;
    let call = stage.next_gate().await;
    let asker = match client.asker {
        Asker::Hook => "hook",
        Asker::Bridge => client.started_by.bridge(),
    };
    assert!(stage.process.kill_9(|it| it.is_pvp(asker)) > 0);
    if client.asker == Asker::Hook {
        let answered = |request: &SeenRequest| !request.tool_results().is_empty();
        let answered = stage.model.wait_for(answered);
        stage.process.while_running(answered).await;
        stage.client_ends().await;
    }
    // An approval comes too late, or finds the call withdrawn.
    stage.ann.approve(&call.gate).await;
    if client.degree == "executed" {
        // Nothing is left that could run it, until the agent is started again.
        let answered = |request: &SeenRequest| !request.tool_results().is_empty();
        stage.model.wait_for(answered).await;
    } else {
        let is_end = |message: &Value| ends(message, &call.gate, &call.proposal);
        stage.ann.wait(is_end).await;
    }
    assert!(!stage.exists("made"));
}

/// Whether this is the end of a call: withdrawn at its gate, or closed as not known to have run.
fn ends(message: &Value, gate: &str, proposal: &str) -> bool {
    let payload = &message["payload"];
    let withdrawn = payload["gate"] == gate && payload["outcome"] == "cancelled";
    let closed = payload["tool_proposal"] == proposal && payload["outcome"] == "unknown";
    (message["type"] == "gate.resolve" && withdrawn) || (message["type"] == "tool.result" && closed)
}
