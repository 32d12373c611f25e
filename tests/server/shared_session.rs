//! People and an agent share a session over real sockets and a real store.

use crate::support::{TestServer, http_get};
use serde_json::{Value, json};

#[tokio::test]
async fn three_people_and_an_agent_pass_a_two_of_three_gate() {
    let server = TestServer::start(&[]).await;
    server
        .create_session(
            "blue-owl",
            json!({ "default_gate_quorum": { "type": "any", "count": 2 } }),
        )
        .await;
    let people = ["ann", "bob", "cid"].map(|name| server.invite(name, &["approver"], &[]));
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("blue-owl", &people[0]).await;
    let mut bob = server.join("blue-owl", &people[1]).await;
    let mut cid = server.join("blue-owl", &people[2]).await;
    let mut agent = server.join("blue-owl", &bot).await;

    let proposal = agent.propose("touch a").await;
    let request = ann.wait_for("gate.request").await;
    assert_eq!(request["payload"]["action_ref"], proposal.as_str());
    assert_eq!(request["payload"]["voters"].as_array().unwrap().len(), 3);
    let gate = request["id"].as_str().unwrap();
    ann.approve(gate).await;

    // One participant leaves and one reconnects; the gate stays open.
    cid.send_and_ack("session.leave", json!({})).await;
    bob.sync().await;
    let seen = *bob.received_seqs().last().unwrap();
    drop(bob);
    let mut bob = server.connect(&people[1]).await;
    let welcome = bob
        .join("blue-owl", &people[1], json!({ "after": seen }))
        .await;
    assert_eq!(welcome["payload"]["gates"][0]["gate"], gate);
    assert_eq!(
        welcome["payload"]["gates"][0]["approvals"][0]["participant"],
        people[0].participant.as_str()
    );
    bob.approve(&proposal).await;

    let resolve = ann.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "approved");
    let public = ann.wait_for("tool.execute").await;
    assert_eq!(public["payload"]["grant"]["nonce"], Value::Null);
    let own = agent.wait_for("tool.execute").await;
    assert!(
        own["payload"]["grant"]["nonce"].is_string(),
        "the executor's own copy"
    );
    assert_eq!(own["seq"], public["seq"]);
    let mut approved_by: Vec<_> = public["payload"]["approved_by"].as_array().unwrap().clone();
    approved_by.sort_by_key(Value::to_string);
    let mut expected = [json!(people[0].participant), json!(people[1].participant)];
    expected.sort_by_key(Value::to_string);
    assert_eq!(approved_by, expected);

    agent.send_and_ack("tool.output", json!({ "tool_proposal": proposal, "stream": "stdout", "text": "done\n", "complete": true })).await;
    agent.send_and_ack("tool.result", json!({ "tool_proposal": proposal, "success": true, "result": { "exitCode": 0, "stdout": "done\n", "stderr": "" }, "duration_ms": 3 })).await;
    for client in [&mut ann, &mut bob] {
        let output = client.wait_for("tool.output").await;
        assert_eq!(output["payload"]["text"], "done\n");
        let result = client.wait_for("tool.result").await;
        assert_eq!(result["payload"]["result"]["exitCode"], 0);
    }

    // Everyone received the same entries in the same order, without gap or repeat.
    let whole = |client: &crate::support::TestClient| -> Vec<(u64, String)> {
        let kept = client
            .received
            .iter()
            .filter(|message| message["seq"].is_u64());
        kept.map(|m| (m["seq"].as_u64().unwrap(), m["id"].to_string()))
            .collect()
    };
    agent.sync().await;
    ann.sync().await;
    bob.sync().await;
    let log = whole(&bob);
    let last = log.last().unwrap().0;
    assert_eq!(
        log.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (seen + 1..=last).collect::<Vec<_>>()
    );
    let anns = whole(&ann);
    assert_eq!(
        anns.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (1..last).collect::<Vec<_>>()
    );
    assert!(anns.ends_with(&log[..log.len() - 1]));
    assert!(anns.starts_with(&whole(&agent)));
}

#[tokio::test]
async fn a_read_runs_at_once_and_everybody_watches() {
    let server = TestServer::start(&[]).await;
    server.create_session("reads", json!({})).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("reads", &ann).await;
    let mut agent = server.join("reads", &bot).await;
    let mut payload = agent.proposal("ls -la");
    payload["risk_level"] = json!("medium");
    let proposal = agent.send("tool.propose", payload).await;
    let propose = ann.wait_for("tool.propose").await;
    // The agent claimed a risk that a read has not, which opens a gate.
    assert_eq!(propose["payload"]["assessment"]["category"], "write");
    ann.wait_for("gate.request").await;
    let mut payload = agent.proposal("ls -la");
    payload["risk_level"] = json!("safe");
    let id = agent.send("tool.propose", payload).await;
    let execute = ann.wait_for("tool.execute").await;
    assert_eq!(execute["payload"]["tool_proposal"], id.as_str());
    assert_eq!(execute["payload"]["grant"]["profile"], "read");
    assert_eq!(execute["payload"]["grant"]["cleared_by"], "read");
    assert_ne!(id, proposal);
}

#[tokio::test]
async fn health_and_the_published_transcript_answer() {
    let server = TestServer::start(&[]).await;
    server.create_session("told", json!({})).await;
    let (status, body) = http_get(&server.address, "/health", &[]).await;
    assert_eq!((status, body.as_str()), (200, r#"{"status":"ok"}"#));
    let bearer = format!("Bearer {}", server.admin().token);
    let path = "/sessions/told/transcript?messages=session.create";
    let (status, body) = http_get(&server.address, path, &[("Authorization", &bearer)]).await;
    assert_eq!(status, 200);
    let transcript: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(transcript["sessionId"], "told");
    assert_eq!(transcript["count"], 1);
    assert_eq!(transcript["messages"][0]["type"], "session.create");
    assert_eq!(http_get(&server.address, path, &[]).await.0, 401);
}
