//! Answers and entries reach a client in one order: whatever was published before an answer was
//! given comes before it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{TestClient, TestServer, TestUser};

/// No limit on the rate, on output, or on how long a client may not read.
const PATIENT: [(&str, &str); 4] = [
    ("PVP_WRITE_OUTPUT_BYTES", "1073741824"),
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
    ("PVP_STALL_SECONDS", "3600"),
];

const SESSION: &str = "order";

fn is_answer(message: &Value) -> bool {
    matches!(
        message["type"].as_str(),
        Some("session.ack" | "error" | "heartbeat.pong" | "output.page")
    ) && message["seq"].is_null()
}

/// The message that an answer is for.
fn answered_id(answer: &Value) -> &str {
    answer["ref"].as_str().unwrap_or_default()
}

/// Asserts that before the answer with this number among all received messages, every entry up to
/// `seq` that the client may see had come.
fn assert_came_before(client: &TestClient, answer: usize, seq: u64, visible: &BTreeSet<u64>) {
    let came: BTreeSet<_> = client.received[..answer]
        .iter()
        .filter_map(|message| message["seq"].as_u64())
        .collect();
    let missing: Vec<_> = visible
        .iter()
        .filter(|&&one| one <= seq && !came.contains(&one))
        .collect();
    assert!(
        missing.is_empty(),
        "{}: {missing:?} had not come before {}",
        client.participant,
        client.received[answer]
    );
}

/// Asserts for every acknowledgement that a client received that its entry, and every entry before
/// it that the client may see, had come.
async fn assert_acks_in_order(server: &TestServer, user: &TestUser, client: &TestClient) {
    let transcript = server.transcript(SESSION, user).await;
    let visible: BTreeSet<_> = transcript
        .iter()
        .filter_map(|entry| entry["seq"].as_u64())
        .collect();
    let mut acks = 0;
    for (number, message) in client.received.iter().enumerate() {
        if let (true, Some(seq)) = (is_answer(message), message["payload"]["seq"].as_u64()) {
            assert!(
                visible.contains(&seq),
                "{seq} is {}'s own",
                user.participant
            );
            assert_came_before(client, number, seq, &visible);
            acks += 1;
        }
    }
    assert!(
        acks > 10,
        "{} was acknowledged {acks} times",
        user.participant
    );
}

/// Sends messages with some of them unanswered at a time, until `count` are answered.
async fn send_and_read(mut client: TestClient, count: usize, window: usize) -> TestClient {
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && sent - answered < window {
            let key = format!("{}-{sent}", client.participant);
            let mut note = json!({ "key": key, "content_type": "text", "content": "text" });
            match sent % 4 {
                // Not for everyone, so that others have gaps.
                0 => note["visible_to"] = json!([client.participant]),
                // Refused by the session.
                1 => note["key"] = json!("session:mine"),
                _ => {}
            }
            match sent % 7 {
                3 => client.send("heartbeat.ping", json!({})).await,
                5 => client.send("nonsense", json!({})).await,
                _ => client.send("context.add", note).await,
            };
            sent += 1;
        }
        let message = client.next().await.expect("the connection stays");
        answered += usize::from(is_answer(&message));
    }
    client
}

/// Prints much more than fits into memory and socket buffers; returns the last sequence number.
async fn print_output(agent: &mut TestClient, run: &str) -> u64 {
    let text = "x".repeat(16 * 1024);
    let mut last = 0;
    let (mut sent, mut answered) = (0, 0);
    while answered < 500 {
        while sent < 500 && sent - answered < 32 {
            let output = json!({ "tool_proposal": run, "stream": "stdout", "text": text, "complete": false });
            agent.send("tool.output", output).await;
            sent += 1;
        }
        let ack = agent.wait_for("session.ack").await;
        last = ack["payload"]["seq"].as_u64().unwrap();
        answered += 1;
    }
    last
}

/// Sends without reading; after `printed` says where the log is, asks for answers of every kind and
/// reads them.
async fn send_then_read(
    server_address: String,
    user: TestUser,
    run: String,
    mut printed: watch::Receiver<u64>,
) -> (TestClient, u64, Vec<String>) {
    let mut client = TestClient::connect_with_small_buffer(&server_address, &user).await;
    client.join(SESSION, &user, json!({})).await;
    for number in 0..40 {
        let key = format!("{}-{number}", user.participant);
        let note = json!({ "key": key, "content_type": "text", "content": "text" });
        client.send("context.add", note).await;
    }
    let seq = *printed.wait_for(|seq| *seq > 0).await.unwrap();
    let late = [
        client.send("heartbeat.ping", json!({})).await,
        client.send("nonsense", json!({})).await,
        client
            .send(
                "gate.approve",
                json!({ "gate": "none", "approver": user.participant }),
            )
            .await,
        client
            .send("output.read", json!({ "ref": run, "limit": 1 }))
            .await,
    ];
    for id in &late {
        client
            .wait(|message| is_answer(message) && answered_id(message) == id)
            .await;
    }
    (client, seq, late.to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_never_overtakes_the_entries_before_it() {
    let server = TestServer::start_with_env(&[], &PATIENT).await;
    server
        .create_session(SESSION, json!({ "max_participants": 50 }))
        .await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let people: Vec<_> = (0..5)
        .map(|number| server.invite(&format!("p{number}"), &["driver", "approver"], &[]))
        .collect();
    let mut agent = server.join(SESSION, &bot).await;
    let run = agent.propose("make all").await;
    let mut admin = server.join(SESSION, &server.admin()).await;
    admin.approve(&run).await;
    agent.wait_for("tool.execute").await;

    let (printed_sender, printed) = watch::channel(0);
    let mut slow = JoinSet::new();
    for user in &people[..2] {
        let (address, user) = (server.address.clone(), user.clone());
        slow.spawn(send_then_read(address, user, run.clone(), printed.clone()));
    }
    let mut fast = JoinSet::new();
    for (user, window) in people[2..].iter().zip([1, 8, 48]) {
        fast.spawn(send_and_read(server.join(SESSION, user).await, 300, window));
    }
    let last = print_output(&mut agent, &run).await;
    printed_sender.send_replace(last);

    let user_of = |client: &TestClient| {
        let mut all = people.iter().chain([&bot]);
        all.find(|user| user.participant == client.participant)
            .unwrap()
    };
    for client in fast.join_all().await.iter().chain([&agent]) {
        assert_acks_in_order(&server, user_of(client), client).await;
    }
    let everything: BTreeSet<_> = (1..=last).collect();
    for (client, seq, late) in slow.join_all().await {
        assert_acks_in_order(&server, user_of(&client), &client).await;
        let transcript = server.transcript(SESSION, user_of(&client)).await;
        let seqs = transcript.iter().filter_map(|entry| entry["seq"].as_u64());
        let visible: BTreeSet<_> = seqs.filter(|seq| everything.contains(seq)).collect();
        for id in late {
            let answer = |message: &Value| is_answer(message) && answered_id(message) == id;
            let number = client.received.iter().position(answer).unwrap();
            assert_came_before(&client, number, seq, &visible);
        }
    }
}

#[tokio::test]
async fn what_a_message_caused_comes_before_its_answer() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(SESSION, &bot).await;
    for (command, consequence) in [("touch a", "gate.request"), ("ls", "tool.execute")] {
        let mut payload = agent.proposal(command);
        payload["risk_level"] = json!("safe");
        let proposal = agent.send("tool.propose", payload).await;
        agent.expect_ack(&proposal).await;
        let position = |fits: &dyn Fn(&Value) -> bool| agent.received.iter().position(fits);
        let ack = position(&|message| answered_id(message) == proposal && is_answer(message));
        let caused = position(&|message| {
            let payload = &message["payload"];
            message["type"] == consequence
                && (payload["action_ref"] == proposal || payload["tool_proposal"] == proposal)
        });
        assert!(caused.unwrap() < ack.unwrap(), "{command}");
    }
}

#[tokio::test]
async fn the_answer_to_a_join_comes_after_the_history() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut first = server.join(SESSION, &ann).await;
    for number in 0..20 {
        let note =
            json!({ "key": format!("k{number}"), "content_type": "text", "content": "text" });
        first.send_and_ack("context.add", note).await;
    }
    // With all of the history, with none of it, and resuming in its middle.
    for (more, first_seq) in [
        (json!({}), Some(1)),
        (json!({ "history": 0 }), None),
        (json!({ "after": 10 }), Some(11)),
    ] {
        let mut client = server.connect(&ann).await;
        let welcome = client.join(SESSION, &ann, more).await;
        let join = welcome["ref"].as_str().unwrap();
        client.expect_ack(join).await;
        let head = welcome["payload"]["head"].as_u64().unwrap();
        let expected: Vec<_> = first_seq.map_or(Vec::new(), |first| (first..=head).collect());
        assert_eq!(client.received_seqs(), expected);
    }
}
