//! Helpers for sessions with a real agent: prompting, deciding at gates, reading output and
//! results.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::agent_process::{AgentProcess, write_script};
use super::cli::CliEnv;
use super::proxy::Proxy;
use super::{TEST_TIMEOUT, TestClient, TestServer};

/// Starts a server with a session whose gates have no deadline, and joins it as a user with every
/// role.
pub async fn start_session(config: Value) -> (TestServer, TestClient) {
    create_session_on(TestServer::start(&[]).await, config).await
}

/// As `start_session`, with environment variables for the server.
pub async fn start_session_with_env(
    environment: &[(&str, &str)],
    config: Value,
) -> (TestServer, TestClient) {
    create_session_on(TestServer::start_with_env(&[], environment).await, config).await
}

pub async fn create_session_on(server: TestServer, config: Value) -> (TestServer, TestClient) {
    let mut all = json!({ "gate_timeout_seconds": 0 });
    for (key, value) in config.as_object().unwrap() {
        all[key] = value.clone();
    }
    server.create_session("owl", all).await;
    let ann = server.invite("ann", &["driver", "approver", "admin"], &[]);
    let ann = server.join("owl", &ann).await;
    (server, ann)
}

/// A session whose agent follows a script and is connected through a proxy.
pub async fn agent_behind_proxy(
    settings: &[(&str, &str)],
    script: &str,
) -> (TestServer, Proxy, TestClient, AgentProcess) {
    let listener = Proxy::bind().await;
    let public = format!("http://{}", listener.local_addr().unwrap());
    let settings = [settings, &[("PVP_PUBLIC_URL", public.as_str())]].concat();
    let server = TestServer::start_with_env(&[], &settings).await;
    let (server, ann) = create_session_on(server, json!({})).await;
    let proxy = Proxy::start(listener, &server.address);
    let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = format!("{public}/?token={}&session=owl", user.token);
    let cli = CliEnv::new();
    let script = write_script(&cli, script);
    let agent_process =
        AgentProcess::start_with_link(cli, user, link, &["--script", &script], &[]).await;
    (server, proxy, ann, agent_process)
}

/// Waits for the next gate; returns its id and the command that waits there.
pub async fn next_gate(person: &mut TestClient) -> (String, String) {
    let request = person.wait_for("gate.request").await;
    let proposal = request["payload"]["action_ref"].clone();
    let propose = person
        .received
        .iter()
        .find(|message| message["id"] == proposal)
        .expect("a proposal is told before its gate");
    let payload = &propose["payload"];
    let own = payload["command"].as_str();
    let line = own.or(payload["arguments"]["full_command"].as_str());
    let line = line.unwrap_or_default().to_owned();
    (request["id"].as_str().unwrap().to_owned(), line)
}

pub async fn approve(person: &mut TestClient, gate: &str) {
    let answer = person.approve(gate).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
}

/// Waits for the next gate and approves it; returns the id of the proposal.
pub async fn approve_next(person: &mut TestClient) -> String {
    let (gate, _) = next_gate(person).await;
    approve(person, &gate).await;
    proposal_of(person, &gate)
}

/// The proposal that waits at a gate.
pub fn proposal_of(person: &TestClient, gate: &str) -> String {
    let request = person.received.iter().find(|message| message["id"] == gate);
    let proposal = &request.unwrap()["payload"]["action_ref"];
    proposal.as_str().unwrap().to_owned()
}

pub async fn reject(person: &mut TestClient, gate: &str, reason: &str) {
    let payload = json!({ "gate": gate, "rejector": person.participant, "reason": reason });
    person.send_and_ack("gate.reject", payload).await;
}

/// Waits for the next result of a command.
pub async fn next_result(person: &mut TestClient) -> Value {
    person.wait_for("tool.result").await["payload"].clone()
}

/// Waits for the result of this command.
pub async fn result_of(person: &mut TestClient, proposal: &str) -> Value {
    let result = person
        .wait(|message| {
            message["type"] == "tool.result" && message["payload"]["tool_proposal"] == proposal
        })
        .await;
    result["payload"].clone()
}

/// Sends a prompt to an agent; returns the id of the prompt.
pub async fn send_prompt(person: &mut TestClient, agent: &str, content: &str) -> String {
    let prompt = json!({
        "content": content, "target_agent": agent, "contributors": [], "context_keys": [],
    });
    let id = person.send("prompt.submit", prompt).await;
    person.expect_ack(&id).await;
    id
}

/// Waits until a command has printed this text, in any number of chunks, on any stream.
pub async fn wait_for_output(person: &mut TestClient, text: &str) {
    while !has_output(person, text) {
        person.wait_for("tool.output").await;
    }
}

fn has_output(person: &TestClient, text: &str) -> bool {
    let mut streams: BTreeMap<String, String> = BTreeMap::new();
    let pieces = person.received.iter().map(|message| &message["payload"]);
    for piece in pieces.filter(|payload| payload["stream"].is_string()) {
        let stream = format!("{} {}", piece["tool_proposal"], piece["stream"]);
        let printed = piece["text"].as_str().unwrap_or_default();
        streams.entry(stream).or_default().push_str(printed);
    }
    streams.values().any(|printed| printed.contains(text))
}

/// Waits until an agent's response contains this text.
pub async fn wait_for_response(person: &mut TestClient, text: &str) -> Value {
    person
        .wait(|message| {
            let said = message["payload"]["text"].as_str();
            message["type"] == "response.chunk" && said.is_some_and(|said| said.contains(text))
        })
        .await
}

/// What a command printed on a stream; asserts that the offsets of the chunks have no gap or
/// overlap.
pub fn collect_output<'a>(
    entries: impl IntoIterator<Item = &'a Value>,
    proposal: &str,
    stream: &str,
) -> String {
    let mut whole = String::new();
    for entry in entries {
        let payload = &entry["payload"];
        let ours = entry["type"] == "tool.output"
            && payload["tool_proposal"] == proposal
            && payload["stream"] == stream;
        if ours {
            assert_eq!(payload["offset"], whole.len(), "{entry}");
            whole += payload["text"].as_str().unwrap();
        }
    }
    whole
}

/// Polls until something is true that no event reports, such as the existence of a file.
pub async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}: it does not come");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// A message that the server receives at this moment.
pub async fn message_of_this_moment(person: &mut TestClient) -> Value {
    let note = json!({ "key": "moment", "content_type": "text", "content": "now" });
    person.send_and_ack("context.add", note).await;
    // A session says other things about itself.
    let is_note = |it: &Value| it["type"] == "context.add" && it["payload"]["key"] == "moment";
    person.wait(is_note).await
}

/// Asserts that this message came soon enough after that one, by the server's clock: a client that is
/// gone has calls for half a minute at most.
pub fn assert_within_a_lease(earlier: &Value, later: &Value) {
    let [at_earlier, at_later] = [earlier, later].map(|message| {
        let at = serde_json::from_value::<pvp_protocol::Timestamp>(message["ts"].clone());
        at.unwrap_or_else(|error| panic!("{error}: {message}"))
    });
    let millis = at_later.millis_since(at_earlier);
    let in_time = at_later >= at_earlier && millis <= 30_000;
    assert!(in_time, "{millis} ms after {earlier}: {later}");
}
