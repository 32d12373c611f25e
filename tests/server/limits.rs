//! Limits on size, depth, rate, count and time, and input that is not a message at all.

use crate::support::{RefusalObserver, TestClient, TestServer, TestUser};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

const MIB: usize = 1024 * 1024;

/// Texts that are not valid messages, with a part of the error for each.
fn invalid_messages() -> Vec<(String, &'static str)> {
    let deep = |open: &str, close: &str| open.repeat(10_000) + &close.repeat(10_000);
    let inside = |payload: &str| {
        format!(
            r#"{{"v":1,"id":"bad-1","ts":"2026-01-01T00:00:00.000Z","session":"s","sender":"x","type":"heartbeat.ping","payload":{payload}}}"#
        )
    };
    vec![
        (String::new(), "one JSON object"),
        (" \n\t ".to_owned(), "one JSON object"),
        ("null".to_owned(), "one JSON object"),
        ("true".to_owned(), "one JSON object"),
        ("7".to_owned(), "one JSON object"),
        ("-1e999".to_owned(), "one JSON object"),
        ("\"text\"".to_owned(), "one JSON object"),
        ("[]".to_owned(), "one JSON object"),
        ("[{}]".to_owned(), "one JSON object"),
        ("{".to_owned(), "not a PVP message"),
        ("{}".to_owned(), "not a PVP message"),
        ("{}{}".to_owned(), "not a PVP message"),
        ("{\"v\":1}".to_owned(), "not a PVP message"),
        ("\u{feff}{}".to_owned(), "one JSON object"),
        (deep("[", "]"), "nested deeper than 64 levels"),
        (deep("{\"a\":", "}"), "nested deeper than 64 levels"),
        ("[".repeat(500_000), "nested deeper than 64 levels"),
        (inside(&deep("[", "]")), "nested deeper than 64 levels"),
        (inside("null"), "must be an object"),
        (inside("[]"), "must be an object"),
        (inside("7"), "must be an object"),
        (
            inside("{}").replace("\"v\":1", "\"v\":2"),
            "speaks version 1",
        ),
        (
            inside("{}").replace("\"v\":1", "\"v\":-1"),
            "not a PVP message",
        ),
        (
            inside("{}").replace("\"v\":1", "\"v\":\"1\""),
            "not a PVP message",
        ),
        (
            inside("{}").replace("bad-1", "../bad"),
            "an id has '.' at position 0",
        ),
        (
            inside("{}").replace("bad-1", "a/../../b"),
            "an id has '/' at position 1",
        ),
        (
            inside("{}").replace("bad-1", "a\\u0000b"),
            "an id has '\\0' at position 1",
        ),
        (
            inside("{}").replace("bad-1", "%2e%2e"),
            "an id has '%' at position 0",
        ),
        (inside("{}").replace("bad-1", ""), "an id is empty"),
        (
            inside("{}").replace("bad-1", &"x".repeat(129)),
            "129 characters",
        ),
        (
            inside("{}").replace("\"bad-1\"", "null"),
            "not a PVP message",
        ),
        (
            inside("{}").replace("\"s\"", "\"../s\""),
            "an id has '.' at position 0",
        ),
        (
            inside("{}").replace("\"s\"", "\"s/t\""),
            "an id has '/' at position 1",
        ),
        (
            inside("{}").replace("\"x\"", "\"/etc/passwd\""),
            "an id has '/' at position 0",
        ),
        (inside("{}").replace("\"x\"", "[]"), "not a PVP message"),
    ]
}

#[tokio::test]
async fn an_invalid_message_is_answered_with_an_error_and_changes_nothing() {
    let server = TestServer::start(&[]).await;
    server.create_session("texts", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "texts").await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut joined = server.join("texts", &ann).await;
    let mut unjoined = server.connect(&ann).await;
    joined.sync().await;
    observer.client().sync().await;
    let before = server.log("texts").len();
    for (number, (text, part)) in invalid_messages().into_iter().enumerate() {
        // Before it joins, a connection may send only a few messages.
        if number % 30 == 0 {
            unjoined = server.connect(&ann).await;
        }
        for client in [&mut joined, &mut unjoined] {
            client.send_raw(&text).await;
            let error = client.wait_for("error").await;
            let shown: String = text.chars().take(100).collect();
            assert_eq!(error["payload"]["code"], "INVALID_MESSAGE", "{shown}");
            let sentence = error["payload"]["message"].as_str().unwrap();
            assert!(sentence.contains(part), "{shown}: {sentence}");
            assert!(sentence.len() < 300, "{shown}: {sentence}");
        }
    }
    // A complete id is reported even if the rest cannot be parsed.
    joined
        .send_raw(r#"{"v":1,"id":"m7","session":"texts"}"#)
        .await;
    assert_eq!(
        joined.wait_for("error").await["payload"]["related_to"],
        "m7"
    );
    assert_eq!(server.log("texts").len(), before);
    observer.expect_no_trace(&server).await;
    joined.sync().await;
}

#[tokio::test]
async fn binary_frames_are_refused_and_the_connection_stays() {
    let server = TestServer::start(&[]).await;
    server.create_session("binary", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut joined = server.join("binary", &ann).await;
    let mut unjoined = server.connect(&ann).await;
    for client in [&mut joined, &mut unjoined] {
        for bytes in [
            vec![],
            vec![0xff; 10],
            b"{\"v\":1}".to_vec(),
            vec![0; 100_000],
        ] {
            client.send_frame(Message::binary(bytes)).await;
            let error = client.wait_for("error").await;
            assert_eq!(error["payload"]["code"], "INVALID_MESSAGE");
            assert_eq!(
                error["payload"]["message"],
                "send text frames, one message each"
            );
        }
        client.send_frame(Message::Ping(vec![7; 125].into())).await;
        client.send_frame(Message::Pong(vec![].into())).await;
    }
    unjoined.join("binary", &ann, json!({})).await;
    joined.sync().await;
}

#[tokio::test]
async fn text_that_is_not_utf_8_closes_with_1007() {
    let server = TestServer::start(&[]).await;
    server.create_session("utf8", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "utf8").await;
    let ann = server.invite("ann", &["approver"], &[]);
    let invalid: [&[u8]; 5] = [
        b"\xff\xfe",
        b"{\"v\":\"\xc3\x28\"}",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"ok\xc3",
    ];
    for bytes in invalid {
        for mut client in [server.join("utf8", &ann).await, server.connect(&ann).await] {
            let frame = Frame::message(bytes.to_vec(), OpCode::Data(Data::Text), true);
            client.send_frame(Message::Frame(frame)).await;
            assert_eq!(client.wait_closed().await, Some(1007), "{bytes:?}");
        }
    }
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn a_message_that_is_too_big_closes_with_1009_and_costs_no_memory() {
    let server = TestServer::start(&[]).await;
    server.create_session("big", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "big").await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut client = server.join("big", &ann).await;
    // A message of exactly the limit is accepted.
    let mut envelope =
        client.envelope("prompt.draft", json!({ "content": "", "contributors": [] }));
    let room = MIB - envelope.to_string().len();
    envelope["payload"]["content"] = json!("x".repeat(room));
    assert_eq!(envelope.to_string().len(), MIB);
    client.send_raw(&envelope.to_string()).await;
    client.expect_ack(envelope["id"].as_str().unwrap()).await;
    let before = server.peak_memory();
    envelope["payload"]["content"] = json!("x".repeat(room + 1));
    client.send_raw(&envelope.to_string()).await;
    assert_eq!(client.wait_closed().await, Some(1009));
    for joined in [true, false] {
        let mut client = if joined {
            server.join("big", &ann).await
        } else {
            server.connect(&ann).await
        };
        client
            .try_send_frame(Message::text("x".repeat(64 * MIB)))
            .await;
        assert_eq!(client.wait_closed().await, Some(1009));
        // The same in fragments, none of which is too big.
        let mut client = if joined {
            server.join("big", &ann).await
        } else {
            server.connect(&ann).await
        };
        let first = Frame::message(vec![b'x'; MIB / 2], OpCode::Data(Data::Text), false);
        client.try_send_frame(Message::Frame(first)).await;
        for _ in 0..20 {
            let more = Frame::message(vec![b'x'; MIB / 2], OpCode::Data(Data::Continue), false);
            if !client.try_send_frame(Message::Frame(more)).await {
                break;
            }
        }
        assert_eq!(client.wait_closed().await, Some(1009));
    }
    // The kernel counts pages roughly, so that a peak can look lower later.
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 24 * MIB as u64, "{grown} bytes more");
    observer.expect_no_trace(&server).await;
}

/// A small deterministic random generator, so that a failure can be repeated.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % sides
    }
}

#[tokio::test]
async fn ten_thousand_garbage_messages_harm_nobody() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let server = TestServer::start_with_env(&[], &fast).await;
    server.create_session("garbage", json!({})).await;
    let ann = server.invite("ann", &["approver", "driver", "admin"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let watcher = server.invite("eve", &["observer"], &[]);
    let mut watcher = server.join("garbage", &watcher).await;
    let mut agent = server.join("garbage", &bot).await;
    let proposal = agent.propose("touch a").await;
    let mut client = server.join("garbage", &ann).await;
    let me = client.participant.clone();
    let models: Vec<Vec<u8>> = [
        ("gate.approve", json!({ "gate": "none", "approver": me, "comment": "c" })),
        ("context.add", json!({ "key": "k", "content_type": "text", "content": "c", "visible_to": [me] })),
        ("participant.announce", ann.announce()),
        ("tool.output", json!({ "tool_proposal": proposal, "stream": "stdout", "text": "x", "complete": true, "offset": 1 })),
        ("policy.allow", json!({ "prefix": ["ls"], "expires_at": "2026-01-01T00:00:00.000Z" })),
        ("shell.exec", json!({ "command": "ls", "cwd": "/", "timeout_seconds": 1 })),
        ("secret.share", json!({ "key": "K", "scope": [me], "value_ref": "r", "expires_at": "2036-01-01T00:00:00.000Z" })),
        ("output.read", json!({ "ref": proposal, "offset": 1, "limit": 2 })),
        ("session.config_update", json!({ "changes": { "gate_timeout_seconds": 7 }, "reason": "r" })),
        ("prompt.draft", json!({ "content": "é", "contributors": [me] })),
    ]
    .into_iter()
    .map(|(kind, payload)| client.envelope(kind, payload).to_string().into_bytes())
    .collect();
    let mut rng = XorShift(0x9e37_79b9_7f4a_7c15);
    for round in 0..10_000 {
        let mut bytes: Vec<u8> = if round % 4 == 0 {
            (0..rng.below(200))
                .map(|_| u8::try_from(rng.below(256)).unwrap())
                .collect()
        } else {
            models[rng.below(models.len())].clone()
        };
        for _ in 0..rng.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = rng.below(bytes.len());
            match rng.below(5) {
                0 => bytes[at] = u8::try_from(rng.below(128)).unwrap(),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"{}[]\",:\\0-e"[rng.below(11)]),
                3 => bytes.truncate(at),
                _ => {
                    let to = (at + rng.below(20)).min(bytes.len());
                    let part = bytes[at..to].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        // Invalid UTF-8 would close the connection; another test covers that.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Leaving or ending the session by accident would be accepted, and would end the test.
        if text.contains("session.leave") || text.contains("session.end") {
            continue;
        }
        client.send_raw(&text).await;
        if round % 500 == 0 {
            client.send_frame(Message::binary(bytes)).await;
            // Reads the answers so far, so that they need not be buffered.
            let ping = client.send("heartbeat.ping", json!({})).await;
            client
                .wait(|message| {
                    message["type"] == "heartbeat.pong" && message["ref"] == ping.as_str()
                })
                .await;
        }
    }
    // The server still works, for the sender and for everybody else.
    let ping = client.send("heartbeat.ping", json!({})).await;
    client
        .wait(|message| message["type"] == "heartbeat.pong" && message["ref"] == ping.as_str())
        .await;
    agent.sync().await;
    watcher.sync().await;
    assert_eq!(
        crate::support::http_get(&server.address, "/health", &[])
            .await
            .0,
        200
    );
    let data = server.data.to_str().unwrap().to_owned();
    assert!(crate::support::run_pvp(&["audit", "verify", "--data", &data]).0);
    let status = server.stop().await;
    assert!(status.success(), "no panic on the way: {status}");
}

#[tokio::test]
async fn a_connection_that_does_not_join_in_time_is_closed() {
    // Long enough for a busy machine to connect.
    let server = TestServer::start_with_env(&[], &[("PVP_JOIN_SECONDS", "5")]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut silent = server.connect(&ann).await;
    let mut talking = server.connect(&ann).await;
    let mut nobody = TestClient::connect(&server.address, None, "nobody").await;
    // Bytes that are not a request, half a request, and nothing at all.
    let mut raw = Vec::new();
    for text in ["", "GET / HTTP/1.1\r\nHost: x", "\x16\x03\x01"] {
        let mut stream = tokio::net::TcpStream::connect(&server.address)
            .await
            .unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        raw.push(stream);
    }
    talking.session = "s".to_owned();
    talking.send("heartbeat.ping", json!({})).await;
    talking.wait_for("heartbeat.pong").await;
    for client in [&mut silent, &mut talking, &mut nobody] {
        assert_eq!(client.wait_closed().await, Some(1008));
    }
    for mut stream in raw {
        let mut rest = Vec::new();
        let ended =
            tokio::time::timeout(crate::support::TEST_TIMEOUT, stream.read_to_end(&mut rest)).await;
        // Closed either way: with an answer or by a reset.
        drop(ended.expect("it is closed"));
    }
    // A client that has joined may be silent for longer.
    server.create_session("s", json!({})).await;
    let mut joined = server.join("s", &ann).await;
    let mut unjoined = server.connect(&ann).await;
    assert_eq!(unjoined.wait_closed().await, Some(1008));
    joined.sync().await;
}

#[tokio::test]
async fn a_connection_that_has_not_joined_may_send_few_messages() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut client = server.connect(&ann).await;
    for _ in 0..40 {
        client.try_send_frame(Message::text("[]")).await;
    }
    assert_eq!(client.wait_closed().await, Some(1008));
    let errors = client
        .received
        .iter()
        .filter(|message| message["type"] == "error");
    assert_eq!(errors.count(), 32);
}

#[tokio::test]
async fn a_full_session_admits_nobody_until_someone_leaves() {
    let server = TestServer::start(&[]).await;
    server
        .create_session("full", json!({ "max_participants": 2 }))
        .await;
    let mut observer = RefusalObserver::join(&server, "full").await;
    let [ann, bob] = ["ann", "bob"].map(|name| server.invite(name, &["approver"], &[]));
    let mut inside = server.join("full", &ann).await;
    let join = json!({ "participant": bob.announce(), "supported_versions": [1] });
    let mut outside = server.connect(&bob).await;
    outside.session = "full".to_owned();
    let full = "session `full` is full (2 participants)";
    observer
        .expect_refused(
            &mut outside,
            "session.join",
            join.clone(),
            "INVALID_STATE",
            full,
        )
        .await;
    observer.expect_no_trace(&server).await;
    // Another device of a participant is not another participant.
    server.join("full", &ann).await.sync().await;
    inside.send_and_ack("session.leave", json!({})).await;
    outside.join("full", &bob, json!({})).await;
    let mut late = server.connect(&ann).await;
    late.session = "full".to_owned();
    let join = json!({ "participant": ann.announce(), "supported_versions": [1] });
    observer
        .expect_refused(&mut late, "session.join", join, "INVALID_STATE", full)
        .await;
}

#[tokio::test]
async fn connections_per_token_and_sessions_per_server_are_limited() {
    let few = [("PVP_CONNECTIONS_PER_TOKEN", "2"), ("PVP_SESSIONS", "1")];
    let server = TestServer::start_with_env(&[], &few).await;
    server.create_session("few", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "few").await;
    let ann = server.invite("ann", &["approver"], &[]);
    let other = server.invite("bob", &["approver"], &[]);
    let first = server.join("few", &ann).await;
    let _second = server.join("few", &ann).await;
    let mut third = server.connect(&ann).await;
    third.session = "few".to_owned();
    let join = json!({ "participant": ann.announce(), "supported_versions": [1] });
    let sentence = "too many connections with one token: at most 2";
    for _ in 0..3 {
        observer
            .expect_refused(
                &mut third,
                "session.join",
                join.clone(),
                "RATE_LIMITED",
                sentence,
            )
            .await;
    }
    observer.expect_no_trace(&server).await;
    server.join("few", &other).await.sync().await;
    // A closed connection frees its slot; a refused attempt took none.
    drop(first);
    loop {
        let id = third.send("session.join", join.clone()).await;
        if third.answer(&id).await["type"] == "session.ack" {
            break;
        }
        third = server.connect(&ann).await;
        third.session = "few".to_owned();
    }

    let mut admin = server.connect(&server.admin()).await;
    admin.session = "more".to_owned();
    let sentence = "too many sessions on this server: at most 1";
    for config in [
        json!({}),
        json!({ "heartbeat_interval_seconds": 0 }),
        json!({}),
    ] {
        let id = admin
            .send("session.create", json!({ "config": config }))
            .await;
        let error = admin.expect_refusal(&id).await;
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!("RATE_LIMITED"), &json!(sentence))
        );
        assert_eq!(error["recoverable"], true);
    }
}

#[tokio::test]
async fn a_flood_is_refused_then_closed_and_nobody_else_is_slowed() {
    let slow = [
        ("PVP_MESSAGES_PER_SECOND", "5"),
        ("PVP_MESSAGE_BURST", "10"),
    ];
    let server = TestServer::start_with_env(&[], &slow).await;
    server.create_session("flood", json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut observer = RefusalObserver::join(&server, "flood").await;
    for kind in ["context.add", "heartbeat.ping", "nonsense"] {
        let mut flooder = server.join("flood", &ann).await;
        let mut refused = Vec::new();
        for number in 0..400 {
            let add = json!({ "key": format!("{kind}-{number}"), "content_type": "text", "content": "c" });
            let Some(id) = flooder.try_send(kind, add).await else {
                break;
            };
            refused.push(id);
        }
        assert_eq!(flooder.wait_closed().await, Some(1008));
        let limited: Vec<_> = flooder
            .received
            .iter()
            .filter(|message| message["payload"]["code"] == "RATE_LIMITED")
            .collect();
        // Apart from those let through as the allowance refilled, every few seconds.
        assert!((50..100).contains(&limited.len()), "{}", limited.len());
        let payload = &limited[0]["payload"];
        assert_eq!(
            payload["message"],
            "too many messages; send at most 5 per second"
        );
        assert_eq!(payload["recoverable"], true);
        let related = payload["related_to"].as_str().map(str::to_owned);
        assert_eq!(kind == "nonsense", related.is_none());
        assert!(related.is_none_or(|id| refused.contains(&id)));
    }
    let log = server.log("flood");
    let added = log
        .iter()
        .filter(|line| line["entry"]["type"] == "context.add");
    let added = added
        .filter(|line| line["entry"]["sender"] == ann.participant.as_str())
        .count();
    assert!((10..200).contains(&added), "{added} of 400");
    observer.client().sync().await;
}

#[tokio::test]
async fn output_of_a_granted_command_is_not_rate_limited_but_false_output_is() {
    let slow = [
        ("PVP_MESSAGES_PER_SECOND", "5"),
        ("PVP_MESSAGE_BURST", "10"),
    ];
    let server = TestServer::start_with_env(&[], &slow).await;
    server.create_session("output", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("output", &ann).await;
    let mut agent = server.join("output", &bot).await;
    let proposal = agent.propose("touch a").await;
    ann.approve(&proposal).await;
    let output = |proposal: &str| json!({ "tool_proposal": proposal, "stream": "stdout", "text": "line\n", "complete": false });
    let mut sent = Vec::new();
    for _ in 0..300 {
        sent.push(agent.send("tool.output", output(&proposal)).await);
    }
    for id in &sent {
        agent.expect_ack(id).await;
    }
    let mut received = 0;
    while received < 300 {
        received += usize::from(ann.wait_for("tool.output").await["payload"]["text"] == "line\n");
    }
    // Empty output and output under somebody else's name count against the limit like everything
    // else.
    for forged in [false, true] {
        let mut liar = server.join("output", &bot).await;
        for _ in 0..400 {
            let mut envelope = liar.envelope("tool.output", output("no-such-proposal"));
            if forged {
                envelope["sender"] = json!(ann.participant);
            }
            if !liar
                .try_send_frame(Message::text(envelope.to_string()))
                .await
            {
                break;
            }
        }
        assert_eq!(liar.wait_closed().await, Some(1008));
    }
    ann.sync().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_do_not_fill_the_memory() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    // However long the others take meanwhile.
    let patient = [&fast[..], &[("PVP_STALL_SECONDS", "3600")]].concat();
    let server = TestServer::start_with_env(&[], &patient).await;
    server.create_session("unread", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("unread", &ann).await;
    let mut agent = server.join("unread", &bot).await;
    let proposal = agent.propose("touch a").await;
    ann.approve(&proposal).await;
    // Pages of 256 KiB that are cheap to produce.
    let line = "y".repeat(64 * 1024 - 1) + "\n";
    for _ in 0..2 {
        let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": line.repeat(2), "complete": false });
        agent.send_and_ack("tool.output", output).await;
    }
    let read = json!({ "ref": proposal, "limit": 10_000 });
    let watcher = server.invite("eve", &["observer"], &[]);
    let mut watcher = server.join("unread", &watcher).await;
    let ask_and_read = async |watcher: &mut TestClient| {
        for _ in 0..50 {
            let id = watcher.send("output.read", read.clone()).await;
            watcher
                .wait(|message| message["type"] == "output.page" && message["ref"] == id.as_str())
                .await;
            watcher.received.clear();
        }
    };
    ask_and_read(&mut watcher).await;
    let before = server.peak_memory();
    let mut requests = Vec::new();
    for _ in 0..100 {
        requests.push(ann.send("output.read", read.clone()).await);
    }
    // The other client is still served meanwhile.
    ask_and_read(&mut watcher).await;
    let grown = server.peak_memory() - before;
    assert!(grown < 8 * MIB as u64, "{grown} bytes more");
    for id in requests {
        ann.wait(|message| message["type"] == "output.page" && message["ref"] == id.as_str())
            .await;
        ann.received.clear();
    }
}

async fn limited_session(
    environment: &[(&str, &str)],
    session: &str,
) -> (TestServer, RefusalObserver, TestClient, TestClient) {
    let server = TestServer::start_with_env(&[], environment).await;
    server.create_session(session, json!({})).await;
    let observer = RefusalObserver::join(&server, session).await;
    let ann = server.invite("ann", &["driver", "approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let ann = server.join(session, &ann).await;
    let bot = server.join(session, &bot).await;
    (server, observer, ann, bot)
}

#[tokio::test]
async fn the_size_of_context_is_limited() {
    let (server, mut observer, mut ann, _bot) =
        limited_session(&[("PVP_CONTEXT_BYTES", "4096")], "context").await;
    let working_directory = {
        let log = server.log("context");
        let add = log
            .iter()
            .find(|line| line["entry"]["type"] == "context.add")
            .unwrap();
        let payload = &add["entry"]["payload"];
        payload["key"].as_str().unwrap().len() + payload["content"].as_str().unwrap().len()
    };
    let add = |key: &str, bytes: usize| json!({ "key": key, "content_type": "text", "content": "c".repeat(bytes) });
    let sentence = |bytes: usize| {
        format!(
            "context would be {} bytes; this session holds at most 4096",
            working_directory + bytes
        )
    };
    observer
        .expect_refused(
            &mut ann,
            "context.add",
            add("k", 5000),
            "CONTEXT_TOO_LARGE",
            &sentence(5001),
        )
        .await;
    ann.send_and_ack("context.add", add("a", 2000)).await;
    observer
        .expect_refused(
            &mut ann,
            "context.add",
            add("b", 3000),
            "CONTEXT_TOO_LARGE",
            &sentence(5002),
        )
        .await;
    let grow = json!({ "key": "a", "new_content": "c".repeat(4500), "reason": "r" });
    observer
        .expect_refused(
            &mut ann,
            "context.update",
            grow,
            "CONTEXT_TOO_LARGE",
            &sentence(4501),
        )
        .await;
    let diff = json!({ "key": "a", "diff": "d".repeat(3000), "reason": "r" });
    observer
        .expect_refused(
            &mut ann,
            "context.update",
            diff,
            "CONTEXT_TOO_LARGE",
            &sentence(5001),
        )
        .await;
    ann.send_and_ack("context.remove", json!({ "key": "a", "reason": "r" }))
        .await;
    ann.send_and_ack("context.add", add("b", 3000)).await;
    let key = json!({ "key": "k".repeat(257), "content_type": "text", "content": "c" });
    let problem = "a context key has 1 to 256 bytes and no control characters";
    observer
        .expect_refused(&mut ann, "context.add", key, "INVALID_MESSAGE", problem)
        .await;
    let own = json!({ "key": "session:working_directory", "content_type": "text", "content": "/" });
    let problem = "keys that begin with `session:` are reserved for the server";
    observer
        .expect_refused(&mut ann, "context.add", own, "UNAUTHORIZED", problem)
        .await;
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn open_proposals_and_gates_are_limited() {
    let few = [("PVP_OPEN_PROPOSALS", "2"), ("PVP_OPEN_GATES", "3")];
    let (server, mut observer, mut ann, mut bot) = limited_session(&few, "gates").await;
    let other = server.invite("other", &["driver"], &["--kind", "agent"]);
    let mut other = server.join("gates", &other).await;
    let first = bot.propose("touch a").await;
    bot.propose("touch b").await;
    let sentence = "too many open proposals; wait for some to be decided: at most 2";
    let proposal = bot.proposal("touch c");
    observer
        .expect_refused(&mut bot, "tool.propose", proposal, "RATE_LIMITED", sentence)
        .await;
    other.propose("touch d").await;
    let sentence = "too many open gates; wait for some to be decided: at most 3";
    let proposal = other.proposal("touch e");
    observer
        .expect_refused(
            &mut other,
            "tool.propose",
            proposal,
            "RATE_LIMITED",
            sentence,
        )
        .await;
    let reject = json!({ "tool_proposal": first, "rejector": ann.participant, "reason": "r" });
    ann.send_and_ack("tool.reject", reject).await;
    bot.propose("touch c").await;
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn resuming_beyond_the_log_is_refused() {
    let server = TestServer::start(&[]).await;
    server.create_session("beyond", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    server.join("beyond", &ann).await.sync().await;
    let mut client = server.connect(&ann).await;
    client.session = "beyond".to_owned();
    let join = json!({ "participant": ann.announce(), "supported_versions": [1], "after": 1000 });
    let id = client.send("session.join", join).await;
    let error = client.expect_refusal(&id).await;
    assert_eq!(error["code"], "INVALID_STATE");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .starts_with("`after` is beyond the log")
    );
    assert_eq!(client.wait_closed().await, Some(1008));
    let mut client = server.connect(&ann).await;
    client.session = "beyond".to_owned();
    let old: Value = json!({ "participant": ann.announce(), "supported_versions": [2] });
    let id = client.send("session.join", old).await;
    assert_eq!(
        client.expect_refusal(&id).await["message"],
        "`supported_versions` must include 1"
    );
}

#[tokio::test]
async fn requests_from_foreign_pages_and_hosts_are_refused() {
    let server = TestServer::start(&["--public-url", "https://pvp.example.org"]).await;
    server.create_session("names", json!({})).await;
    let ann: TestUser = server.invite("ann", &["approver"], &[]);
    let bearer = format!("Bearer {}", ann.token);
    let port = server.address.rsplit(':').next().unwrap();
    let (home, named) = (
        format!("http://{}", server.address),
        format!("http://localhost:{port}"),
    );
    for origin in [home.as_str(), named.as_str(), "https://pvp.example.org"] {
        let headers = [("Authorization", bearer.as_str()), ("Origin", origin)];
        let mut client =
            TestClient::try_connect(&server.address, "/ws", &headers, &ann.participant)
                .await
                .unwrap();
        client.join("names", &ann, json!({})).await;
    }
    let rebound = format!("evil.example:{port}");
    let elsewhere = format!("http://127.0.0.1:{}", if port == "1" { 2 } else { 1 });
    let path = "/sessions/names/transcript";
    let foreign = [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "https://pvp.example.org.evil.example"),
        ("Origin", elsewhere.as_str()),
        ("Origin", "file://"),
        ("Host", "evil.example"),
        ("Host", rebound.as_str()),
        ("Host", "127.0.0.1"),
    ];
    for (header, value) in foreign {
        for path in ["/", "/ws"] {
            let headers = [("Authorization", bearer.as_str()), (header, value)];
            let refused =
                TestClient::try_connect(&server.address, path, &headers, &ann.participant).await;
            let Err(tokio_tungstenite::tungstenite::Error::Http(answer)) = refused else {
                panic!("{header}: {value} was let in");
            };
            assert_eq!(answer.status(), 403, "{header}: {value}");
        }
        for path in [path, "/health", "/readyz", "/nothing"] {
            let headers = [("Authorization", bearer.as_str()), (header, value)];
            let (status, body) = crate::support::http_get(&server.address, path, &headers).await;
            assert_eq!(status, 403, "{header}: {value}");
            assert!(body.contains("set --public-url"), "{body}");
        }
        let headers = [("Authorization", bearer.as_str()), (header, value)];
        let invite = r#"{"name":"x","roles":["admin"]}"#;
        assert_eq!(
            crate::support::http_request(&server.address, "POST", "/api/invites", &headers, invite)
                .await
                .0,
            403
        );
    }
    let (status, body) = crate::support::http_get(
        &server.address,
        path,
        &[("Authorization", &bearer), ("Host", "PVP.example.org")],
    )
    .await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn no_url_reaches_the_file_system() {
    let server = TestServer::start(&[]).await;
    server.create_session("paths", json!({})).await;
    let bearer = format!("Bearer {}", server.admin().token);
    let headers = [("Authorization", bearer.as_str())];
    for (path, expected) in [
        ("/sessions/../transcript", 400),
        ("/sessions/%2e%2e/transcript", 400),
        ("/sessions/%2e%2e%2fpaths/transcript", 400),
        ("/sessions/paths%2f..%2f..%2fetc/transcript", 400),
        ("/sessions/paths%00/transcript", 400),
        ("/sessions/%2Fetc%2Fpasswd/transcript", 400),
        ("/sessions/paths/../paths/transcript", 404),
        ("/../../../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/sessions//transcript", 400),
        ("/sessions/nothing/transcript", 404),
        ("/sessions/paths/transcript?after=-1", 400),
        ("/sessions/paths/transcript?after=x", 400),
        ("/sessions/paths/transcript?after=18446744073709551615", 200),
        ("/sessions/paths/transcript?messages=../../etc/passwd", 200),
    ] {
        let (status, body) = crate::support::http_get(&server.address, path, &headers).await;
        assert_eq!(status, expected, "{path}: {body}");
        assert!(!body.contains("root:"), "{path}");
    }
    let status = crate::support::http_request(
        &server.address,
        "DELETE",
        "/api/tokens/..%2f..%2fpvp.sqlite3",
        &headers,
        "",
    )
    .await
    .0;
    assert_eq!(status, 404);
    let mut names: Vec<_> = std::fs::read_dir(&server.data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        names
            .iter()
            .all(|name| !name.contains("paths") && !name.contains("etc")),
        "{names:?}"
    );
    let mut admin = server.join("paths", &server.admin()).await;
    admin.sync().await;
}
