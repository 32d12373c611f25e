//! Following a session: fast and slow readers, late ones, several devices, and those who go quiet.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use std::time::Duration;

use kit::proof::{kept, kind, log, sealed, verified};
use kit::{Client, Invited, Server};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// As much output as a test likes to make, at any speed.
const WIDE: [(&str, &str); 3] = [
    ("PVP_WRITE_OUTPUT_BYTES", "1073741824"),
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

const KIB: usize = 1024;
const MIB: u64 = 1024 * 1024;

/// A session with a command that is running, and the agent that runs it.
struct Stage {
    session: &'static str,
    bot: Invited,
    agent: Client,
    run: String,
}

impl Stage {
    async fn set(server: &Server, session: &'static str) -> Self {
        server
            .create(session, json!({ "max_participants": 50 }))
            .await;
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let mut agent = server.join(session, &bot).await;
        let mut admin = server.join(session, &server.admin()).await;
        let run = agent.propose("make all").await;
        assert_eq!(admin.approve(&run).await["type"], "session.ack");
        agent.wait_for("tool.execute").await;
        agent.settle().await;
        Self {
            session,
            bot,
            agent,
            run,
        }
    }

    fn output(&self, text: &str) -> Value {
        let output = json!({ "tool_proposal": self.run, "stream": "stdout", "text": text, "complete": false });
        self.agent.envelope("tool.output", output)
    }

    /// Prints this many pieces, with a few on the way at a time, and waits until they are kept.
    async fn print(&mut self, pieces: usize, bytes: usize) {
        let mut on_the_way = 0;
        for piece in 0..pieces {
            let text = format!("{piece:08}").repeat(bytes / 8);
            let output = self.output(&text).to_string();
            self.agent.send_raw(&output).await;
            on_the_way += 1;
            while on_the_way >= 32 {
                self.hear_an_answer().await;
                on_the_way -= 1;
            }
        }
        for _ in 0..on_the_way {
            self.hear_an_answer().await;
        }
    }

    async fn hear_an_answer(&mut self) {
        let answer = self
            .agent
            .wait(|message| matches!(kind(message), "session.ack" | "error"))
            .await;
        assert_eq!(answer["type"], "session.ack", "{answer}");
    }

    async fn finish(&mut self) -> u64 {
        let result = json!({ "tool_proposal": self.run, "success": true, "duration_ms": 1 });
        self.agent.say("tool.result", result).await
    }
}

/// Reads until the command has ended.
async fn read_to_the_result(client: &mut Client) {
    client.wait_for("tool.result").await;
}

fn is_presence(message: &Value, who: &Invited, status: &str) -> bool {
    message["type"] == "presence.update"
        && message["payload"]["participant"] == who.participant.as_str()
        && message["payload"]["status"] == status
}

fn observer(server: &Server, name: &str) -> Invited {
    server.invite(name, &["observer"], &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_reader_costs_little_is_closed_and_resumes_with_nothing_lost() {
    // Nobody else may be as slow as that on a busy machine.
    let environment = [&WIDE[..], &[("PVP_STALL_SECONDS", "10")]].concat();
    let server = Server::start_env(&[], &environment).await;
    let mut stage = Stage::set(&server, "flood").await;
    let (eye, sid) = (observer(&server, "eye"), observer(&server, "sid"));
    let mut stalled = Client::connect_narrow(&server.address, &sid).await;
    stalled.join(stage.session, &sid, json!({})).await;
    let mut eye = server.join(stage.session, &eye).await;
    eye.settle().await;
    let before = server.most_memory();

    let watching = tokio::spawn(async move {
        read_to_the_result(&mut eye).await;
        eye
    });
    stage.print(512, 64 * KIB).await;
    let last = stage.finish().await;
    let mut eye = watching.await.unwrap();
    let grown = server.most_memory() - before;
    assert!(
        grown < 24 * MIB,
        "{grown} bytes more after 32 MiB were told"
    );
    // The server gives it up by itself.
    eye.wait(|message| is_presence(message, &sid, "disconnected"))
        .await;

    // What was on its way arrives, and then the end of the connection.
    while stalled.next().await.is_some() {}
    let mut told = kept(&stalled.received);
    let seen = told.last().unwrap()["seq"].as_u64().unwrap();
    assert!(seen < last, "it was not stalled");
    let mut again = server.connect(&sid).await;
    again
        .join(stage.session, &sid, json!({ "after": seen }))
        .await;
    read_to_the_result(&mut again).await;
    told.extend(kept(&again.received));
    let stored = log(&server.data, stage.session);
    assert!(stored.starts_with(&told), "{} told", told.len());
    assert!(stored.starts_with(&kept(&eye.received)));
    assert_eq!(told.last().unwrap()["seq"], last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_falls_far_behind_catches_up_from_the_store() {
    // However long it takes to print.
    let environment = [&WIDE[..], &[("PVP_STALL_SECONDS", "3600")]].concat();
    let server = Server::start_env(&[], &environment).await;
    let mut stage = Stage::set(&server, "slow").await;
    let slow = observer(&server, "slow");
    let mut reader = Client::connect_narrow(&server.address, &slow).await;
    reader.join(stage.session, &slow, json!({})).await;
    // More than the ring and what the network holds; then it reads, while more is printed.
    stage.print(384, 32 * KIB).await;
    let reading = tokio::spawn(async move {
        read_to_the_result(&mut reader).await;
        reader
    });
    stage.print(64, 4 * KIB).await;
    stage.finish().await;
    let reader = reading.await.unwrap();
    let stored = log(&server.data, stage.session);
    let told = kept(&reader.received);
    assert!(stored.starts_with(&told));
    assert_eq!(told.last().unwrap()["type"], "tool.result");
}

#[tokio::test]
async fn thousands_of_messages_sent_at_once_are_kept_in_order_and_all_acknowledged() {
    let server = Server::start_env(&[], &WIDE).await;
    let mut stage = Stage::set(&server, "burst").await;
    let eye = observer(&server, "eye");
    let mut eye = server.join(stage.session, &eye).await;
    let outputs: Vec<_> = (0..2000)
        .map(|number| stage.output(&format!("line {number}\n")))
        .collect();
    for output in &outputs {
        stage.agent.send_raw(&output.to_string()).await;
    }
    let mut seqs = Vec::new();
    for output in &outputs {
        let answer = stage.agent.wait_for("session.ack").await;
        assert_eq!(
            answer["payload"]["id"], output["id"],
            "answers come in order"
        );
        seqs.push(answer["payload"]["seq"].as_u64().unwrap());
    }
    assert!(seqs.is_sorted());
    stage.finish().await;
    read_to_the_result(&mut eye).await;
    let lines = |entries: &[Value]| -> Vec<(Value, Value)> {
        let outputs = entries.iter().filter(|entry| kind(entry) == "tool.output");
        outputs
            .map(|entry| (entry["id"].clone(), entry["payload"]["text"].clone()))
            .collect()
    };
    let sent: Vec<_> = outputs
        .iter()
        .map(|output| (output["id"].clone(), output["payload"]["text"].clone()))
        .collect();
    assert_eq!(lines(&eye.received), sent);
    assert_eq!(lines(&log(&server.data, stage.session)), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_asks_and_never_reads_the_answers_is_not_kept_waiting_for() {
    let environment = [&WIDE[..], &[("PVP_STALL_SECONDS", "10")]].concat();
    let server = Server::start_env(&[], &environment).await;
    let mut stage = Stage::set(&server, "deaf").await;
    // The same message over and over: each is answered, at length, and none is written.
    let mut output = stage.output("again\n");
    output["id"] = json!("x".repeat(128));
    let output = output.to_string();
    stage.agent.send_raw(&output).await;
    stage.hear_an_answer().await;
    let before = server.most_memory();
    let mut deaf = Client::connect_narrow(&server.address, &stage.bot).await;
    deaf.join(stage.session, &stage.bot, json!({})).await;
    let mut sent = 0;
    while deaf.try_send_frame(Message::text(output.clone())).await {
        sent += 1;
    }
    let grown = server.most_memory() - before;
    assert!(grown < 8 * MIB, "{grown} bytes more after {sent} messages");
}

#[tokio::test]
async fn a_latecomer_gets_as_much_history_as_asked_for() {
    let server = Server::start_env(&[], &WIDE).await;
    let mut stage = Stage::set(&server, "old").await;
    stage.print(700, 8).await;
    let told = async |name: &str, more: Value| -> Vec<u64> {
        let who = observer(&server, name);
        let mut client = server.connect(&who).await;
        client.join("old", &who, more).await;
        let own = client
            .wait(|message| message["seq"].is_u64() && message["payload"]["name"] == name)
            .await;
        let seqs = client.seqs();
        assert_eq!(seqs.last(), own["seq"].as_u64().as_ref());
        seqs
    };
    // The last one is the newcomer's own announcement, which is not history.
    let up_to = |count: u64, seqs: &[u64]| -> Vec<u64> {
        let last = *seqs.last().unwrap();
        (last - count..=last).collect()
    };
    for (name, more, count) in [
        ("usual", json!({}), 500),
        ("brief", json!({ "history": 7 }), 7),
        ("fresh", json!({ "history": 0 }), 0),
    ] {
        let seqs = told(name, more).await;
        assert_eq!(seqs, up_to(count, &seqs), "{name}");
    }
    let seqs = told("whole", json!({ "history": 100_000 })).await;
    assert_eq!(seqs, (1..=*seqs.last().unwrap()).collect::<Vec<_>>());

    // Someone who was there before is not announced again: all of it is history.
    let who = observer(&server, "brief-again");
    server.join("old", &who).await.settle().await;
    let mut client = server.connect(&who).await;
    let welcome = client.join("old", &who, json!({ "history": 3 })).await;
    let head = welcome["payload"]["head"].as_u64().unwrap();
    client.settle().await;
    assert_eq!(client.seqs(), (head - 2..=head + 1).collect::<Vec<_>>());
}

#[tokio::test]
async fn resuming_is_exact_at_the_head_and_refused_beyond_it() {
    let server = Server::start(&[]).await;
    server.create("exact", json!({})).await;
    let eye = observer(&server, "eye");
    server.join("exact", &eye).await.settle().await;
    let head = log(&server.data, "exact").len() as u64;
    for after in [head, head - 1, 0] {
        let mut client = server.connect(&eye).await;
        let now = log(&server.data, "exact").len() as u64;
        let welcome = client.join("exact", &eye, json!({ "after": after })).await;
        assert_eq!(welcome["payload"]["head"], now);
        client.settle().await;
        assert_eq!(client.seqs(), (after + 1..=now + 1).collect::<Vec<_>>());
    }
    let before = log(&server.data, "exact");
    let mut client = server.connect(&eye).await;
    client.session = "exact".to_owned();
    let beyond = before.len() + 1;
    let join = json!({ "participant": eye.announce(), "supported_versions": [1], "after": beyond });
    let id = client.send("session.join", join).await;
    let refusal = client.refused(&id).await;
    assert_eq!(refusal["code"], "INVALID_STATE", "{refusal}");
    let sentence = refusal["message"].as_str().unwrap();
    assert!(sentence.contains("`after` is beyond the log"), "{sentence}");
    assert_eq!(client.closed().await, Some(1008));
    assert_eq!(log(&server.data, "exact"), before);
}

#[tokio::test]
async fn two_devices_are_one_person_and_both_are_told_everything() {
    let server = Server::start(&[]).await;
    let config = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    server.create("both", config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut phone = server.join("both", &ann).await;
    let mut desk = server.join("both", &ann).await;
    let mut bob = server.join("both", &bob).await;
    let mut agent = server.join("both", &bot).await;
    let proposal = agent.propose("touch a").await;
    assert_eq!(phone.approve(&proposal).await["type"], "session.ack");
    desk.approve(&proposal).await;
    agent.settle().await;
    assert!(
        !log(&server.data, "both")
            .iter()
            .any(|entry| kind(entry) == "tool.execute")
    );
    bob.approve(&proposal).await;
    let result = json!({ "tool_proposal": proposal, "success": true, "duration_ms": 1 });
    agent.wait_for("tool.execute").await;
    agent.say("tool.result", result).await;
    for device in [&mut phone, &mut desk] {
        read_to_the_result(device).await;
    }
    let stored = log(&server.data, "both");
    assert_eq!(kept(&phone.received), stored);
    assert_eq!(kept(&desk.received), stored);
    assert_eq!(
        phone
            .received
            .iter()
            .filter(|message| message["type"] == "session.welcome")
            .count(),
        1
    );

    // With one device left, the person is still there.
    drop(phone);
    desk.settle().await;
    drop(desk);
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
async fn a_server_that_is_asked_to_stop_says_so_and_keeps_everything_it_acknowledged() {
    let mut server = Server::start_env(&[], &WIDE).await;
    let mut talking = JoinSet::new();
    let (acks, mut acknowledged) = watch::channel(0_u64);
    let mut clients = Vec::new();
    for session in ["one", "two"] {
        server.create(session, json!({})).await;
        for name in ["ann", "bob"] {
            let who = server.invite(&format!("{name}-{session}"), &["driver"], &[]);
            clients.push(server.join(session, &who).await);
        }
    }
    for client in clients {
        talking.spawn(talk(client, acks.clone()));
    }
    acknowledged.wait_for(|count| *count >= 200).await.unwrap();
    server.ask_to_stop();
    let talkers = talking.join_all().await;
    assert_eq!(server.stopped().await.code(), Some(0));
    sealed(&server.data);
    for (client, acked) in talkers {
        assert_eq!(client.close_code, Some(1001), "{}", client.participant);
        let stored = log(&server.data, &client.session);
        for (id, seq) in acked {
            assert_eq!(stored[usize::try_from(seq).unwrap() - 1]["id"], id);
        }
        // Nobody is sent away in the middle.
        let told = kept(&client.received);
        assert_eq!(told, stored[..told.len()]);
        assert_eq!(told.len(), stored.len(), "{}", client.participant);
    }
}

/// Says things without pause until the connection ends.
async fn talk(mut client: Client, acks: watch::Sender<u64>) -> (Client, Vec<(String, u64)>) {
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
            // What was told before the end can still be read.
            if !client.try_send_frame(Message::text(note)).await {
                break;
            }
        }
        let Some(message) = client.next().await else {
            return (client, acked);
        };
        match kind(&message) {
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

/// A second device that only says that its owner is there.
struct Heart(tokio::task::JoinHandle<()>);

impl Heart {
    async fn of(server: &Server, session: &str, who: &Invited) -> Self {
        let mut client = server.join(session, who).await;
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

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn quiet_config(action: &str) -> Value {
    json!({
        "default_gate_quorum": { "type": "all" }, "on_participant_timeout": action,
        // A heart that beats on a busy machine is never as late as that.
        "away_timeout_seconds": 10, "heartbeat_interval_seconds": 3600,
    })
}

/// A kept entry that says where someone is.
fn is_attendance(message: &Value, who: &Invited, status: &str) -> bool {
    message["seq"].is_u64() && is_presence(message, who, status)
}

#[tokio::test]
async fn a_voter_who_says_nothing_is_skipped_until_they_speak() {
    let server = Server::start(&[]).await;
    server.create("skip", quiet_config("skip")).await;
    let (ann, bob) = (
        server.invite("ann", &["approver"], &[]),
        server.invite("bob", &["approver"], &[]),
    );
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut quiet = server.join("skip", &bob).await;
    let (mut voter, _ann_lives) = (
        server.join("skip", &ann).await,
        Heart::of(&server, "skip", &ann).await,
    );
    let (mut agent, _bot_lives) = (
        server.join("skip", &bot).await,
        Heart::of(&server, "skip", &bot).await,
    );
    let proposal = agent.propose("touch a").await;
    voter.approve(&proposal).await;
    let away = voter
        .wait(|message| is_attendance(message, &bob, "away"))
        .await;
    let resolve = voter.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "approved");
    assert!(resolve["seq"].as_u64() > away["seq"].as_u64());
    agent.wait_for("tool.execute").await;

    quiet.send("heartbeat.ping", json!({})).await;
    let back = voter
        .wait(|message| is_attendance(message, &bob, "active"))
        .await;
    assert!(back["seq"].as_u64() > resolve["seq"].as_u64());
    verified(&server.data);
}

#[tokio::test]
async fn a_session_pauses_for_someone_who_is_away() {
    let server = Server::start(&[]).await;
    server.create("pause", quiet_config("pause_session")).await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut quiet = server.join("pause", &bob).await;
    let (mut agent, _bot_lives) = (
        server.join("pause", &bot).await,
        Heart::of(&server, "pause", &bot).await,
    );
    agent
        .wait(|message| is_attendance(message, &bob, "away"))
        .await;
    let payload = agent.proposal("touch a");
    let id = agent.send("tool.propose", payload.clone()).await;
    let refusal = agent.refused(&id).await;
    assert_eq!(refusal["code"], "INVALID_STATE", "{refusal}");
    let sentence = format!("the session is paused until {} is back", bob.participant);
    assert_eq!(refusal["message"], sentence);
    quiet.send("heartbeat.ping", json!({})).await;
    agent
        .wait(|message| is_attendance(message, &bob, "active"))
        .await;
    let id = agent.send("tool.propose", payload).await;
    agent.acked(&id).await;
}

#[tokio::test]
async fn who_was_away_is_not_taken_for_present_when_the_server_starts_again() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_in(data.path(), &[]).await;
    server.create("gone", quiet_config("skip")).await;
    let (ann, bob) = (
        server.invite("ann", &["approver"], &[]),
        server.invite("bob", &["approver"], &[]),
    );
    server.join("gone", &bob).await.settle().await;
    let (mut voter, ann_lives) = (
        server.join("gone", &ann).await,
        Heart::of(&server, "gone", &ann).await,
    );
    voter
        .wait(|message| is_attendance(message, &bob, "away"))
        .await;
    drop(ann_lives);
    assert!(server.stop().await.success());

    let server = Server::start_in(data.path(), &[]).await;
    let mut voter = server.join("gone", &ann).await;
    voter.settle().await;
    let stored = log(data.path(), "gone");
    let back = stored
        .iter()
        .find(|entry| is_attendance(entry, &bob, "active"));
    assert_eq!(back, None);
    server.join("gone", &bob).await;
    voter
        .wait(|message| is_attendance(message, &bob, "active"))
        .await;
}
