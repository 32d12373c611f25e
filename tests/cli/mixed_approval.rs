//! Two people approve one gate, one with `pvp approve` and one over HTTP, while a third runs `pvp
//! tail`: all see the same order and outcome.

use serde_json::{Value, json};

use super::gates::{gate_handle, only_open_gate, short_id};
use crate::support::cli::{CliEnv, parse_json_lines};
use crate::support::{TestServer, http_request};

/// The outcome of a gate from its `gate.resolve` message.
fn gate_outcome(message: &Value) -> Value {
    let payload = &message["payload"];
    json!([
        message["seq"],
        payload["tool_proposal"],
        payload["outcome"],
        payload["approvals"]
    ])
}

#[tokio::test]
async fn two_people_approve_one_gate_from_two_places_while_a_third_tails() {
    let server = TestServer::start(&[]).await;
    let config = json!({
        "default_gate_quorum": { "type": "any", "count": 2 }, "gate_timeout_seconds": 0,
    });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let invite = |name| server.invite(name, &["approver"], &["--session", "owl"]);
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(invite);
    let at = async |user| CliEnv::logged_in(&server.link(user, Some("owl"))).await;
    let (ann_cli, cid_cli) = (at(&ann).await, at(&cid).await);
    let mut tail = cid_cli.spawn(&["tail", "--follow", "--json", "--after", "0"]);
    // The third is an approver as well, so that it is two of three.
    let mut watcher = server.join("owl", &cid).await;
    let proposal = agent.propose("rm -rf build").await;
    watcher.wait_for("gate.request").await;

    let gate = only_open_gate(&ann_cli).await;
    let said = ann_cli.run_ok(&["approve", &gate_handle(&gate)]).await;
    assert_eq!(
        said,
        format!(
            "approved: {}  rm -rf build\nstill waiting: 1 of 2 approvals ({})\n",
            short_id(&gate),
            ann.participant
        )
    );
    let path = format!(
        "/api/sessions/owl/gates/{}/vote",
        gate["gate"].as_str().unwrap()
    );
    let ballot = json!({ "vote": "approve", "digest": gate["assessment"]["digest"] });
    let bearer = format!("Bearer {}", bob.token);
    let headers = [("Authorization", bearer.as_str())];
    let (status, answer) = http_request(
        &server.address,
        "POST",
        &path,
        &headers,
        &ballot.to_string(),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["gate"]["status"], "approved");

    // The tail prints up to the grant; then everybody reads the same from the beginning.
    let mut tailed = Vec::new();
    while tailed
        .last()
        .is_none_or(|last: &Value| last["type"] != "tool.execute")
    {
        tailed.push(tail.next_json().await);
    }
    let last = tailed.last().unwrap()["seq"].as_u64().unwrap();
    let log: Vec<Value> = server.entries("owl");
    let order = |messages: &[Value]| -> Vec<(u64, String, String)> {
        let kept = messages
            .iter()
            .filter(|message| message["seq"].as_u64().is_some_and(|seq| seq <= last));
        kept.map(|message| {
            let text = |key: &str| message[key].as_str().unwrap().to_owned();
            (message["seq"].as_u64().unwrap(), text("id"), text("type"))
        })
        .collect()
    };
    let expected = order(&log);
    assert_eq!(expected.len() as u64, last);
    assert_eq!(order(&tailed), expected);
    let read = |out: String| parse_json_lines(&out);
    let all = ["tail", "--json", "--after", "0"];
    let by_ann = read(ann_cli.run_ok(&all).await);
    assert_eq!(order(&by_ann), expected);
    let (_, by_bob) = crate::support::http_get(
        &server.address,
        "/api/sessions/owl/messages?after=0",
        &headers,
    )
    .await;
    let by_bob: Value = serde_json::from_str(&by_bob).unwrap();
    let by_bob = by_bob["messages"].as_array().unwrap().clone();
    assert_eq!(order(&by_bob), expected);
    watcher.wait_for("tool.execute").await;
    let granted = agent.wait_for("tool.execute").await;

    // One outcome, with both names in the order of their votes, before the grant.
    let resolves = |messages: &[Value]| -> Vec<Value> {
        let received = messages
            .iter()
            .filter(|message| message["type"] == "gate.resolve");
        received.map(gate_outcome).collect()
    };
    let resolved = resolves(&log);
    assert_eq!(resolved.len(), 1);
    let approvals = resolved[0][3].as_array().unwrap().iter();
    let names: Vec<_> = approvals
        .map(|one| one["participant"].as_str().unwrap())
        .collect();
    assert_eq!(
        (&resolved[0][1], &resolved[0][2]),
        (&json!(proposal), &json!("approved"))
    );
    assert_eq!(names, [ann.participant.as_str(), bob.participant.as_str()]);
    for seen in [
        &tailed,
        &by_ann,
        &by_bob,
        &watcher.received,
        &agent.received,
    ] {
        assert_eq!(resolves(seen), resolved);
    }
    assert_eq!(
        granted["payload"]["approved_by"],
        json!([ann.participant, bob.participant])
    );
    assert_eq!(resolved[0][0], json!(last - 1));
    // A vote that comes too late changes nothing.
    let late = cid_cli.run_refused(&["approve", &proposal]).await;
    assert!(
        late.contains("is not waiting for a decision: it is running"),
        "{late}"
    );
}
