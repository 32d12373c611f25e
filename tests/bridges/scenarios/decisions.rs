//! What people decide about a command, and what comes of it.

use serde_json::{Value, json};

use crate::clients::{Client, Edits, Reasons, Several};
use crate::model::ScriptedTurn;
use crate::stage::{Setting, Stage, WaitingCall};
use crate::support::TestClient;
use crate::support::session::collect_output;

/// A script of single commands.
pub fn commands(client: &Client, lines: &[&str]) -> Vec<ScriptedTurn> {
    let calls = lines
        .iter()
        .map(|line| ScriptedTurn::Calls(vec![(client.shell)(line)]));
    calls.chain([ScriptedTurn::text("All done.")]).collect()
}

pub async fn approve(client: &'static Client) {
    let lines = [
        "printf 'said-%s%s\\n' 4 2; touch made",
        "echo failing; exit 3",
    ];
    let script = commands(client, &lines);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    assert_eq!(call.line, lines[0]);
    assert_is_by(client, &mut stage, &call).await;
    assert!(!stage.exists("made"));
    stage.approve(&call).await;
    let result = stage.result(&call).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_output(&stage, &call, "said-42");
    assert!(stage.exists("made"));
    let call = stage.next_gate().await;
    assert_eq!(call.line, lines[1]);
    stage.approve(&call).await;
    let result = stage.result(&call).await;
    assert_eq!(result["result"]["exitCode"], 3, "{result}");
    assert_eq!(result["success"], false);
    assert_output(&stage, &call, "failing");
    stage.client_ends().await;
    let told = stage.model.last_request_text();
    assert!(
        told.contains("said-42") && told.contains("failing"),
        "{told}"
    );
}

/// The card says which client, which version, and how sure it is.
async fn assert_is_by(client: &Client, stage: &mut Stage, call: &WaitingCall) {
    let payload = &call.payload;
    if client.degree == "executed" {
        let announced = stage.recorded("participant.announce").await;
        let agent = announced.iter().find(|it| it["id"] == *call.agent);
        let metadata = &agent.unwrap()["metadata"];
        assert_eq!(metadata["client"], client.name, "{metadata}");
        assert_eq!(metadata["client_version"], client.version());
        // What our executor runs is `executed` without saying so.
        assert_eq!(
            (&payload["runs"], &payload["degree"]),
            (&Value::Null, &Value::Null)
        );
    } else {
        assert_eq!(payload["runs"], "client");
        assert_eq!(payload["degree"], client.degree);
    }
    assert_eq!(payload["origin"]["client"], client.name, "{payload}");
    let version = client.says_version.then(|| client.version());
    assert_eq!(payload["origin"]["version"], json!(version));
    let offered = stage.model.tools_offered();
    let mut removed = client.removed_tools.iter();
    assert_eq!(
        removed.find(|tool| offered.iter().any(|it| it == *tool)),
        None
    );
}

/// What a call printed is in the record.
fn assert_output(stage: &Stage, call: &WaitingCall, text: &str) {
    let printed = collect_output(&stage.ann.received, &call.proposal, "stdout");
    assert!(printed.contains(text), "{printed}");
}

pub async fn reject(client: &'static Client) {
    let script = commands(client, &["touch made", "touch other"]);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let call = stage.next_gate().await;
    stage.reject(&call, "use the other file").await;
    if client.reasons == Reasons::AtOnce {
        stage.model_reads("use the other file").await;
    }
    // The agent goes on, and may try something else.
    let call = stage.next_gate().await;
    assert_eq!(call.line, "touch other");
    stage.approve(&call).await;
    stage.result(&call).await;
    stage.client_ends().await;
    let told = stage.model.last_request_text();
    assert!(told.contains("use the other file"), "{told}");
    assert!(!stage.exists("made"));
    assert!(stage.exists("other"));
}

pub async fn edit(client: &'static Client) {
    let lines: &[&str] = match client.edits {
        Edits::Run => &["touch original"],
        Edits::AskedAgain => &["touch original", "touch edited"],
    };
    let script = commands(client, lines);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let mut bob = stage.join_bob().await;
    let call = stage.next_gate().await;
    let mut arguments = call.payload["arguments"].clone();
    arguments["full_command"] = "touch edited".into();
    stage.leaves_to_wait().await;
    let amend = json!({
        "gate": call.gate, "arguments": arguments, "digest": digest(&stage.ann, &call),
        "reason": "a better name",
    });
    stage.ann.send_and_ack("gate.amend", amend).await;
    approve_edit(&mut bob, &call.gate).await;
    stage.come_back();
    let result = stage.result(&call).await;
    match client.edits {
        Edits::Run => assert_eq!(result["result"]["exitCode"], 0, "{result}"),
        Edits::AskedAgain => {
            assert_eq!(result["outcome"], "not_run", "{result}");
            if client.reasons == Reasons::AtOnce {
                stage.model_reads("touch edited").await;
            }
            let call = stage.next_gate().await;
            assert_eq!(call.line, "touch edited");
            assert!(!stage.exists("edited"));
            stage.approve(&call).await;
            stage.result(&call).await;
        }
    }
    stage.client_ends().await;
    assert!(!stage.exists("original"));
    assert!(stage.exists("edited"));
}

/// The digest of what waits, as the person has seen it.
fn digest(person: &TestClient, call: &WaitingCall) -> Value {
    let mut received = person.received.iter();
    let request = received.find(|message| message["id"] == *call.gate);
    request.unwrap()["payload"]["digest"].clone()
}

async fn approve_edit(bob: &mut TestClient, gate: &str) {
    let amended = bob.wait_for("gate.amend").await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
}

pub async fn blocked(client: &'static Client) {
    let lines = ["touch made; pvp approve 123456", "touch other"];
    let script = commands(client, &lines);
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    if client.reasons == Reasons::AtOnce {
        stage.model_reads("pvp.self-approval").await;
    }
    let call = stage.next_gate().await;
    assert_eq!(call.line, lines[1], "nobody was asked about the first");
    stage.reject(&call, "enough").await;
    stage.client_ends().await;
    assert!(!stage.exists("made"));
    let told = stage.model.last_request_text();
    assert!(told.contains("pvp.self-approval"), "{told}");
    // The attempt is in the record.
    let proposed = stage.recorded("tool.propose").await;
    assert_eq!(crate::stage::line_of(&proposed[0]), lines[0]);
}

pub async fn quorum(client: &'static Client) {
    let setting = Setting {
        config: json!({ "default_gate_quorum": { "type": "any", "count": 2 } }),
        ..Setting::default()
    };
    let script = commands(client, &["touch made"]);
    let mut stage = Stage::start(client, setting, |_| script).await;
    let mut bob = stage.join_bob().await;
    let call = stage.next_gate().await;
    stage.approve(&call).await;
    assert!(stage.recorded("gate.resolve").await.is_empty());
    assert!(!stage.exists("made"));
    let answer = bob.approve(&call.gate).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
    let result = stage.result(&call).await;
    assert_eq!(result["success"], true, "{result}");
    assert!(stage.exists("made"));
    stage.client_ends().await;
}

pub async fn parallel(client: &'static Client) {
    let both = ["touch one", "touch two"].map(client.shell);
    let mut script = vec![ScriptedTurn::Calls(both.to_vec())];
    if client.several == Several::AskedAgain {
        script.push(ScriptedTurn::Calls(both[1..].to_vec()));
    }
    script.push(ScriptedTurn::text("All done."));
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let call = stage.next_gate().await;
        if client.several != Several::SideBySide {
            decide_one_of_two(&mut stage, &call).await;
        }
        calls.push(call);
    }
    if client.several == Several::SideBySide {
        // Both wait, and are decided in the other order.
        for call in calls.iter().rev() {
            decide_one_of_two(&mut stage, call).await;
        }
    }
    let one = calls.iter().find(|call| call.line == "touch one");
    let result = stage.result(one.expect("both were asked about")).await;
    assert_eq!(result["success"], true, "{result}");
    stage.client_ends().await;
    assert!(stage.exists("one"));
    assert!(!stage.exists("two"));
    let told = stage.model.last_request_text();
    assert!(told.contains("one is enough"), "{told}");
}

/// Approves the first of two calls, and rejects the second.
async fn decide_one_of_two(stage: &mut Stage, call: &WaitingCall) {
    match call.line.as_str() {
        "touch one" => stage.approve(call).await,
        "touch two" => stage.reject(call, "one is enough").await,
        line => panic!("nobody scripted `{line}`"),
    }
}
