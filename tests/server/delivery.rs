//! Delivery of a session's entries to fast and slow readers, late joiners, several devices and idle
//! participants.

use std::time::Duration;

use crate::support::audit::{
    assert_checkpointed, assert_intact, export_log, log_entries, message_type,
};
use crate::support::{TestClient, TestServer, TestUser};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Lets a test produce any amount of output at any rate.
const UNLIMITED_OUTPUT: [(&str, &str); 3] = [
    ("PVP_WRITE_OUTPUT_BYTES", "1073741824"),
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

const KIB: usize = 1024;
const MIB: u64 = 1024 * 1024;

/// A session with a command that is running, and the agent that runs it.
struct RunningCommandFixture {
    session: &'static str,
    bot: TestUser,
    agent: TestClient,
    run: String,
}

impl RunningCommandFixture {
    async fn new(server: &TestServer, session: &'static str) -> Self {
        server
            .create_session(session, json!({ "max_participants": 50 }))
            .await;
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let mut agent = server.join(session, &bot).await;
        let mut admin = server.join(session, &server.admin()).await;
        let run = agent.propose("make all").await;
        assert_eq!(admin.approve(&run).await["type"], "session.ack");
        agent.wait_for("tool.execute").await;
        agent.sync().await;
        Self {
            session,
            bot,
            agent,
            run,
        }
    }

    fn output_envelope(&self, text: &str) -> Value {
        let output = json!({ "tool_proposal": self.run, "stream": "stdout", "text": text, "complete": false });
        self.agent.envelope("tool.output", output)
    }

    /// Sends this many chunks of output, a few in flight at a time, and waits until they are
    /// logged.
    async fn print_pieces(&mut self, pieces: usize, bytes: usize) {
        let mut on_the_way = 0;
        for piece in 0..pieces {
            let text = format!("{piece:08}").repeat(bytes / 8);
            let output = self.output_envelope(&text).to_string();
            self.agent.send_raw(&output).await;
            on_the_way += 1;
            while on_the_way >= 32 {
                self.wait_ack().await;
                on_the_way -= 1;
            }
        }
        for _ in 0..on_the_way {
            self.wait_ack().await;
        }
    }

    async fn wait_ack(&mut self) {
        let answer = self
            .agent
            .wait(|message| matches!(message_type(message), "session.ack" | "error"))
            .await;
        assert_eq!(answer["type"], "session.ack", "{answer}");
    }

    async fn send_result(&mut self) -> u64 {
        let result = json!({ "tool_proposal": self.run, "success": true, "duration_ms": 1 });
        self.agent.send_and_ack("tool.result", result).await
    }
}

/// Reads until the command has ended.
async fn read_until_result(client: &mut TestClient) {
    client.wait_for("tool.result").await;
}

fn is_presence(message: &Value, user: &TestUser, status: &str) -> bool {
    message["type"] == "presence.update"
        && message["payload"]["participant"] == user.participant.as_str()
        && message["payload"]["status"] == status
}

fn observer(server: &TestServer, name: &str) -> TestUser {
    server.invite(name, &["observer"], &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_reader_costs_little_is_closed_and_resumes_with_nothing_lost() {
    // Long enough that nobody else stalls this long on a busy machine.
    let environment = [&UNLIMITED_OUTPUT[..], &[("PVP_STALL_SECONDS", "10")]].concat();
    let server = TestServer::start_with_env(&[], &environment).await;
    let mut fixture = RunningCommandFixture::new(&server, "flood").await;
    let (eye, sid) = (observer(&server, "eye"), observer(&server, "sid"));
    let mut stalled = TestClient::connect_with_small_buffer(&server.address, &sid).await;
    stalled.join(fixture.session, &sid, json!({})).await;
    let mut eye = server.join(fixture.session, &eye).await;
    eye.sync().await;
    let before = server.peak_memory();

    let watching = tokio::spawn(async move {
        read_until_result(&mut eye).await;
        eye
    });
    fixture.print_pieces(512, 64 * KIB).await;
    let last = fixture.send_result().await;
    let mut eye = watching.await.unwrap();
    let grown = server.peak_memory() - before;
    assert!(
        grown < 24 * MIB,
        "{grown} bytes more after 32 MiB were told"
    );
    // The server disconnects the stalled client.
    eye.wait(|message| is_presence(message, &sid, "disconnected"))
        .await;

    // What was in flight arrives, and then the connection closes.
    while stalled.next().await.is_some() {}
    let mut received = log_entries(&stalled.received);
    let seen = received.last().unwrap()["seq"].as_u64().unwrap();
    assert!(seen < last, "it was not stalled");
    let mut again = server.connect(&sid).await;
    again
        .join(fixture.session, &sid, json!({ "after": seen }))
        .await;
    read_until_result(&mut again).await;
    received.extend(log_entries(&again.received));
    let stored = export_log(&server.data, fixture.session);
    assert!(stored.starts_with(&received), "{} told", received.len());
    assert!(stored.starts_with(&log_entries(&eye.received)));
    assert_eq!(received.last().unwrap()["seq"], last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_falls_far_behind_catches_up_from_the_store() {
    // No client is disconnected for stalling, however long printing takes.
    let environment = [&UNLIMITED_OUTPUT[..], &[("PVP_STALL_SECONDS", "3600")]].concat();
    let server = TestServer::start_with_env(&[], &environment).await;
    let mut fixture = RunningCommandFixture::new(&server, "slow").await;
    let slow = observer(&server, "slow");
    let mut reader = TestClient::connect_with_small_buffer(&server.address, &slow).await;
    reader.join(fixture.session, &slow, json!({})).await;
    // More than the feed and the network buffer hold; then it reads while more is printed.
    fixture.print_pieces(384, 32 * KIB).await;
    let reading = tokio::spawn(async move {
        read_until_result(&mut reader).await;
        reader
    });
    fixture.print_pieces(64, 4 * KIB).await;
    fixture.send_result().await;
    let reader = reading.await.unwrap();
    let stored = export_log(&server.data, fixture.session);
    let received = log_entries(&reader.received);
    assert!(stored.starts_with(&received));
    assert_eq!(received.last().unwrap()["type"], "tool.result");
}

#[tokio::test]
async fn thousands_of_messages_sent_at_once_are_kept_in_order_and_all_acknowledged() {
    let server = TestServer::start_with_env(&[], &UNLIMITED_OUTPUT).await;
    let mut fixture = RunningCommandFixture::new(&server, "burst").await;
    let eye = observer(&server, "eye");
    let mut eye = server.join(fixture.session, &eye).await;
    let outputs: Vec<_> = (0..2000)
        .map(|number| fixture.output_envelope(&format!("line {number}\n")))
        .collect();
    for output in &outputs {
        fixture.agent.send_raw(&output.to_string()).await;
    }
    let mut seqs = Vec::new();
    for output in &outputs {
        let answer = fixture.agent.wait_for("session.ack").await;
        assert_eq!(
            answer["payload"]["id"], output["id"],
            "answers come in order"
        );
        seqs.push(answer["payload"]["seq"].as_u64().unwrap());
    }
    assert!(seqs.is_sorted());
    fixture.send_result().await;
    read_until_result(&mut eye).await;
    let lines = |entries: &[Value]| -> Vec<(Value, Value)> {
        let outputs = entries
            .iter()
            .filter(|entry| message_type(entry) == "tool.output");
        outputs
            .map(|entry| (entry["id"].clone(), entry["payload"]["text"].clone()))
            .collect()
    };
    let sent: Vec<_> = outputs
        .iter()
        .map(|output| (output["id"].clone(), output["payload"]["text"].clone()))
        .collect();
    assert_eq!(lines(&eye.received), sent);
    assert_eq!(lines(&export_log(&server.data, fixture.session)), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_its_answers_costs_little_memory() {
    let environment = [&UNLIMITED_OUTPUT[..], &[("PVP_STALL_SECONDS", "10")]].concat();
    let server = TestServer::start_with_env(&[], &environment).await;
    let mut fixture = RunningCommandFixture::new(&server, "deaf").await;
    // The same message over and over: each is answered at length, and none is logged.
    let mut output = fixture.output_envelope("again\n");
    output["id"] = json!("x".repeat(128));
    let output = output.to_string();
    fixture.agent.send_raw(&output).await;
    fixture.wait_ack().await;
    let before = server.peak_memory();
    let mut non_reader = TestClient::connect_with_small_buffer(&server.address, &fixture.bot).await;
    non_reader
        .join(fixture.session, &fixture.bot, json!({}))
        .await;
    let mut sent = 0;
    while non_reader
        .try_send_frame(Message::text(output.clone()))
        .await
    {
        sent += 1;
    }
    let grown = server.peak_memory() - before;
    assert!(grown < 8 * MIB, "{grown} bytes more after {sent} messages");
}

#[tokio::test]
async fn a_late_joiner_gets_as_much_history_as_requested() {
    let server = TestServer::start_with_env(&[], &UNLIMITED_OUTPUT).await;
    let mut fixture = RunningCommandFixture::new(&server, "old").await;
    fixture.print_pieces(700, 8).await;
    let received = async |name: &str, more: Value| -> Vec<u64> {
        let user = observer(&server, name);
        let mut client = server.connect(&user).await;
        client.join("old", &user, more).await;
        let own = client
            .wait(|message| message["seq"].is_u64() && message["payload"]["name"] == name)
            .await;
        let seqs = client.received_seqs();
        assert_eq!(seqs.last(), own["seq"].as_u64().as_ref());
        seqs
    };
    // The last entry is the late joiner's own announcement, which is not history.
    let up_to = |count: u64, seqs: &[u64]| -> Vec<u64> {
        let last = *seqs.last().unwrap();
        (last - count..=last).collect()
    };
    for (name, more, count) in [
        ("usual", json!({}), 500),
        ("brief", json!({ "history": 7 }), 7),
        ("fresh", json!({ "history": 0 }), 0),
    ] {
        let seqs = received(name, more).await;
        assert_eq!(seqs, up_to(count, &seqs), "{name}");
    }
    let seqs = received("whole", json!({ "history": 100_000 })).await;
    assert_eq!(seqs, (1..=*seqs.last().unwrap()).collect::<Vec<_>>());

    // A returning participant is not announced again, so all of it is history.
    let user = observer(&server, "brief-again");
    server.join("old", &user).await.sync().await;
    let mut client = server.connect(&user).await;
    let welcome = client.join("old", &user, json!({ "history": 3 })).await;
    let head = welcome["payload"]["head"].as_u64().unwrap();
    client.sync().await;
    assert_eq!(
        client.received_seqs(),
        (head - 2..=head + 1).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn those_present_are_announced_unless_a_joiner_declines() {
    let server = TestServer::start(&[]).await;
    server.create_session("full", json!({})).await;
    for name in ["ann", "bob"] {
        let present = observer(&server, name);
        server.join("full", &present).await.sync().await;
    }
    for (name, more, announced) in [
        ("usual", json!({ "history": 0 }), 2),
        ("asks", json!({ "history": 0, "announce_others": true }), 3),
        (
            "declines",
            json!({ "history": 0, "announce_others": false }),
            0,
        ),
    ] {
        let joiner = observer(&server, name);
        let mut client = server.connect(&joiner).await;
        let welcome = client.join("full", &joiner, more).await;
        client.sync().await;
        let others = client
            .received
            .iter()
            .filter(|message| message["type"] == "participant.announce" && message["seq"].is_null())
            .count();
        assert_eq!(others, announced, "{name}");
        let listed = welcome["payload"]["people"].as_array().unwrap();
        assert!(listed.iter().any(|person| person["name"] == "ann"));
    }
}

#[tokio::test]
async fn resuming_is_exact_at_the_head_and_refused_beyond_it() {
    let server = TestServer::start(&[]).await;
    server.create_session("exact", json!({})).await;
    let eye = observer(&server, "eye");
    server.join("exact", &eye).await.sync().await;
    let head = export_log(&server.data, "exact").len() as u64;
    for after in [head, head - 1, 0] {
        let mut client = server.connect(&eye).await;
        let now = export_log(&server.data, "exact").len() as u64;
        let welcome = client.join("exact", &eye, json!({ "after": after })).await;
        assert_eq!(welcome["payload"]["head"], now);
        client.sync().await;
        assert_eq!(
            client.received_seqs(),
            (after + 1..=now + 1).collect::<Vec<_>>()
        );
    }
    let before = export_log(&server.data, "exact");
    let mut client = server.connect(&eye).await;
    client.session = "exact".to_owned();
    let beyond = before.len() + 1;
    let join = json!({ "participant": eye.announce(), "supported_versions": [1], "after": beyond });
    let id = client.send("session.join", join).await;
    let refusal = client.expect_refusal(&id).await;
    assert_eq!(refusal["code"], "INVALID_STATE", "{refusal}");
    let sentence = refusal["message"].as_str().unwrap();
    assert!(sentence.contains("`after` is beyond the log"), "{sentence}");
    assert_eq!(client.wait_closed().await, Some(1008));
    assert_eq!(export_log(&server.data, "exact"), before);
}

#[tokio::test]
async fn two_devices_are_one_participant_and_both_receive_everything() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    server.create_session("both", config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut phone = server.join("both", &ann).await;
    let mut laptop = server.join("both", &ann).await;
    let mut bob = server.join("both", &bob).await;
    let mut agent = server.join("both", &bot).await;
    let proposal = agent.propose("touch a").await;
    assert_eq!(phone.approve(&proposal).await["type"], "session.ack");
    laptop.approve(&proposal).await;
    agent.sync().await;
    assert!(
        !export_log(&server.data, "both")
            .iter()
            .any(|entry| message_type(entry) == "tool.execute")
    );
    bob.approve(&proposal).await;
    let result = json!({ "tool_proposal": proposal, "success": true, "duration_ms": 1 });
    agent.wait_for("tool.execute").await;
    agent.send_and_ack("tool.result", result).await;
    for device in [&mut phone, &mut laptop] {
        read_until_result(device).await;
    }
    let stored = export_log(&server.data, "both");
    assert_eq!(log_entries(&phone.received), stored);
    assert_eq!(log_entries(&laptop.received), stored);
    assert_eq!(
        phone
            .received
            .iter()
            .filter(|message| message["type"] == "session.welcome")
            .count(),
        1
    );

    // With one device left, the person is still present.
    drop(phone);
    laptop.sync().await;
    drop(laptop);
    bob.wait(|message| is_presence(message, &ann, "disconnected"))
        .await;
    let presence = bob.received.iter().filter(|message| {
        message["type"] == "presence.update"
            && message["payload"]["participant"] == ann.participant.as_str()
    });
    let statuses: Vec<_> = presence
        .map(|message| message["payload"]["status"].clone())
        .collect();
    assert_eq!(statuses, ["disconnected"]);
    server.join("both", &ann).await;
    bob.wait(|message| is_presence(message, &ann, "active"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_says_so_and_keeps_everything_it_acknowledged() {
    let mut server = TestServer::start_with_env(&[], &UNLIMITED_OUTPUT).await;
    let mut senders = JoinSet::new();
    let (acks, mut acknowledged) = watch::channel(0_u64);
    let mut clients = Vec::new();
    for session in ["one", "two"] {
        server.create_session(session, json!({})).await;
        for name in ["ann", "bob"] {
            let user = server.invite(&format!("{name}-{session}"), &["driver"], &[]);
            clients.push(server.join(session, &user).await);
        }
    }
    for client in clients {
        senders.spawn(send_until_closed(client, acks.clone()));
    }
    acknowledged.wait_for(|count| *count >= 200).await.unwrap();
    server.request_stop();
    let sender_results = senders.join_all().await;
    assert_eq!(server.wait_stopped().await.code(), Some(0));
    assert_checkpointed(&server.data);
    for (client, acked) in sender_results {
        assert_eq!(client.close_code, Some(1001), "{}", client.participant);
        let stored = export_log(&server.data, &client.session);
        for (id, seq) in acked {
            assert_eq!(stored[usize::try_from(seq).unwrap() - 1]["id"], id);
        }
        // Nobody is disconnected meanwhile.
        let received = log_entries(&client.received);
        assert_eq!(received, stored[..received.len()]);
        assert_eq!(received.len(), stored.len(), "{}", client.participant);
    }
}

/// Sends messages without pause until the connection closes.
async fn send_until_closed(
    mut client: TestClient,
    acks: watch::Sender<u64>,
) -> (TestClient, Vec<(String, u64)>) {
    let mut acked = Vec::new();
    let mut unanswered = 0;
    let mut said = 0;
    loop {
        while unanswered < 8 {
            let key = format!("{}-{said}", client.participant);
            let note = json!({ "key": key, "content_type": "text", "content": "text" });
            let note = client.envelope("context.add", note).to_string();
            said += 1;
            unanswered += 1;
            // What the server sent before the close can still be read.
            if !client.try_send_frame(Message::text(note)).await {
                break;
            }
        }
        let Some(message) = client.next().await else {
            return (client, acked);
        };
        match message_type(&message) {
            "session.ack" => {
                unanswered -= 1;
                let (id, seq) = (&message["payload"]["id"], &message["payload"]["seq"]);
                if let (Some(id), Some(seq)) = (id.as_str(), seq.as_u64()) {
                    acked.push((id.to_owned(), seq));
                    acks.send_modify(|count| *count += 1);
                }
            }
            "error" => {
                assert_eq!(message["payload"]["code"], "INTERNAL_ERROR", "{message}");
                unanswered -= 1;
            }
            _ => {}
        }
    }
}

/// A second device that only sends heartbeats for its owner.
struct HeartbeatClient(tokio::task::JoinHandle<()>);

impl HeartbeatClient {
    async fn start(server: &TestServer, session: &str, user: &TestUser) -> Self {
        let mut client = server.join(session, user).await;
        Self(tokio::spawn(async move {
            loop {
                let id = client.send("heartbeat.ping", json!({})).await;
                client
                    .wait(|message| {
                        message["type"] == "heartbeat.pong" && message["ref"] == id.as_str()
                    })
                    .await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

impl Drop for HeartbeatClient {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn presence_config(action: &str) -> Value {
    json!({
        "default_gate_quorum": { "type": "all" }, "on_participant_timeout": action,
        // Long enough that heartbeats on a busy machine are never that late.
        "away_timeout_seconds": 10, "heartbeat_interval_seconds": 3600,
    })
}

/// Whether a message is a logged presence entry of this user.
fn is_logged_presence(message: &Value, user: &TestUser, status: &str) -> bool {
    message["seq"].is_u64() && is_presence(message, user, status)
}

#[tokio::test]
async fn a_silent_voter_is_skipped_until_they_are_active_again() {
    let server = TestServer::start(&[]).await;
    server.create_session("skip", presence_config("skip")).await;
    let (ann, bob) = (
        server.invite("ann", &["approver"], &[]),
        server.invite("bob", &["approver"], &[]),
    );
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut quiet = server.join("skip", &bob).await;
    let (mut voter, _ann_heartbeat) = (
        server.join("skip", &ann).await,
        HeartbeatClient::start(&server, "skip", &ann).await,
    );
    let (mut agent, _bot_heartbeat) = (
        server.join("skip", &bot).await,
        HeartbeatClient::start(&server, "skip", &bot).await,
    );
    let proposal = agent.propose("touch a").await;
    voter.approve(&proposal).await;
    let away = voter
        .wait(|message| is_logged_presence(message, &bob, "away"))
        .await;
    let resolve = voter.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "approved");
    assert!(resolve["seq"].as_u64() > away["seq"].as_u64());
    agent.wait_for("tool.execute").await;

    quiet.send("heartbeat.ping", json!({})).await;
    let back = voter
        .wait(|message| is_logged_presence(message, &bob, "active"))
        .await;
    assert!(back["seq"].as_u64() > resolve["seq"].as_u64());
    assert_intact(&server.data);
}

#[tokio::test]
async fn a_session_pauses_for_someone_who_is_away() {
    let server = TestServer::start(&[]).await;
    server
        .create_session("pause", presence_config("pause_session"))
        .await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut quiet = server.join("pause", &bob).await;
    let (mut agent, _bot_heartbeat) = (
        server.join("pause", &bot).await,
        HeartbeatClient::start(&server, "pause", &bot).await,
    );
    agent
        .wait(|message| is_logged_presence(message, &bob, "away"))
        .await;
    let payload = agent.proposal("touch a");
    let id = agent.send("tool.propose", payload.clone()).await;
    let refusal = agent.expect_refusal(&id).await;
    assert_eq!(refusal["code"], "INVALID_STATE", "{refusal}");
    let sentence = format!("the session is paused until {} is back", bob.participant);
    assert_eq!(refusal["message"], sentence);
    quiet.send("heartbeat.ping", json!({})).await;
    agent
        .wait(|message| is_logged_presence(message, &bob, "active"))
        .await;
    let id = agent.send("tool.propose", payload).await;
    agent.expect_ack(&id).await;
}

#[tokio::test]
async fn a_participant_who_was_away_is_still_away_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    server.create_session("gone", presence_config("skip")).await;
    let (ann, bob) = (
        server.invite("ann", &["approver"], &[]),
        server.invite("bob", &["approver"], &[]),
    );
    server.join("gone", &bob).await.sync().await;
    let (mut voter, ann_heartbeat) = (
        server.join("gone", &ann).await,
        HeartbeatClient::start(&server, "gone", &ann).await,
    );
    voter
        .wait(|message| is_logged_presence(message, &bob, "away"))
        .await;
    drop(ann_heartbeat);
    assert!(server.stop().await.success());

    let server = TestServer::start_in(data.path(), &[]).await;
    let mut voter = server.join("gone", &ann).await;
    voter.sync().await;
    let stored = export_log(data.path(), "gone");
    let back = stored
        .iter()
        .find(|entry| is_logged_presence(entry, &bob, "active"));
    assert_eq!(back, None);
    server.join("gone", &bob).await;
    voter
        .wait(|message| is_logged_presence(message, &bob, "active"))
        .await;
}
