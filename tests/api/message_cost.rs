//! What messages cost on a WebSocket and over HTTP, and that a revoked token sends none.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::fixture::{SESSION, context_payload};
use crate::http_client::join_payload;
use crate::refusal_case::{
    INVALID_MESSAGE, RATE_LIMITED, UNAUTHORIZED, envelope, post, revoke, with,
};
use crate::support::{TestClient, TestServer, TestUser, fresh_id};

/// A caller's way to send: a connection, or one request after another.
enum TestTransport<'a> {
    Socket(Box<TestClient>),
    Http(&'a TestServer, TestUser),
}

impl TestTransport<'_> {
    /// Sends a message; the error code if it was refused.
    async fn send(&mut self, text: &str) -> Option<String> {
        let answer = match self {
            TestTransport::Http(server, user) => {
                let path = format!("/api/sessions/{SESSION}/messages");
                post(server, user, &path, text).await.json()
            }
            TestTransport::Socket(client) => {
                client.send_raw(text).await;
                let answer = client.wait(is_answer).await;
                answer["payload"].clone()
            }
        };
        if answer["code"] == RATE_LIMITED {
            assert_eq!(
                answer["message"],
                "too many messages; send at most 1 per second"
            );
            assert_eq!(answer["recoverable"], true);
        }
        answer["code"].as_str().map(str::to_owned)
    }
}

fn is_answer(message: &Value) -> bool {
    // The acknowledgement of the join is not asked for here.
    let is_join = |id: &str| id.starts_with("session-join");
    match message["type"].as_str() {
        Some("error") => message["seq"].is_null(),
        Some("session.ack") => !message["ref"].as_str().is_some_and(is_join),
        _ => false,
    }
}

const SLOW: [(&str, &str); 2] = [
    ("PVP_MESSAGES_PER_SECOND", "1"),
    ("PVP_MESSAGE_BURST", "20"),
];

/// How many messages may have passed since then, beyond the burst.
fn refilled(begun: Instant) -> usize {
    usize::try_from(begun.elapsed().as_secs()).unwrap() + 1
}

#[tokio::test]
async fn whatever_is_refused_is_charged_alike_on_socket_and_http() {
    let server = TestServer::start_with_env(&[], &SLOW).await;
    let roomy = json!({ "max_participants": 50 });
    server.create_session(SESSION, roomy).await;
    let output =
        json!({ "tool_proposal": "none", "stream": "stdout", "text": "x", "complete": false });
    for (bad, code) in [
        ("half", INVALID_MESSAGE),
        ("sender", UNAUTHORIZED),
        ("session", INVALID_MESSAGE),
        ("output", "INVALID_STATE"),
        ("output of somebody else", UNAUTHORIZED),
        ("join", UNAUTHORIZED),
    ] {
        for over_http in [false, true] {
            let user = server.invite("bot", &["driver"], &["--kind", "agent"]);
            let me = user.participant.as_str();
            let begun = Instant::now();
            let client = server.join(SESSION, &user).await;
            let mut transport = match over_http {
                true => TestTransport::Http(&server, user.clone()),
                false => TestTransport::Socket(Box::new(client)),
            };
            let note = || envelope(me, "context.add", context_payload(&fresh_id("key")));
            let message = || match bad {
                "half" => "{".to_owned(),
                "sender" => with(note(), json!({ "sender": "eve" })).to_string(),
                "session" => with(note(), json!({ "session": "none" })).to_string(),
                "output" => envelope(me, "tool.output", output.clone()).to_string(),
                "join" => with(
                    envelope(me, "session.join", join_payload(&user)),
                    json!({ "sender": "eve" }),
                )
                .to_string(),
                _ => envelope("eve", "tool.output", output.clone()).to_string(),
            };
            for _ in 0..20 {
                assert_eq!(
                    transport.send(&message()).await.as_deref(),
                    Some(code),
                    "{bad}"
                );
            }
            let mut passed = 0;
            while transport.send(&note().to_string()).await.as_deref() != Some(RATE_LIMITED) {
                passed += 1;
                assert!(passed <= refilled(begun), "{bad}, over HTTP: {over_http}");
            }
        }
    }
}

#[tokio::test]
async fn two_transports_at_once_have_one_rate() {
    let server = TestServer::start_with_env(&[], &SLOW).await;
    server.create_session(SESSION, json!({})).await;
    let user = server.invite("ann", &["driver"], &[]);
    let begun = Instant::now();
    let spend = async |mut transport: TestTransport<'_>| {
        let mut accepted = 0;
        for number in 0..40 {
            let key = fresh_id(&format!("k{number}"));
            let note = envelope(&user.participant, "context.add", context_payload(&key));
            match transport.send(&note.to_string()).await.as_deref() {
                None => accepted += 1,
                Some(code) => assert_eq!(code, RATE_LIMITED),
            }
        }
        accepted
    };
    let socket = TestTransport::Socket(Box::new(server.join(SESSION, &user).await));
    let phone = TestTransport::Socket(Box::new(server.join(SESSION, &user).await));
    let http = TestTransport::Http(&server, user.clone());
    let (one, two, three) = tokio::join!(spend(socket), spend(phone), spend(http));
    let accepted = one + two + three;
    assert!(
        (20..=20 + refilled(begun)).contains(&accepted),
        "{accepted}"
    );
}

#[tokio::test]
async fn a_revoked_token_sends_nothing_more_on_any_transport() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let server = TestServer::start_with_env(&[], &fast).await;
    server.create_session(SESSION, json!({})).await;
    let user = server.invite("ann", &["driver"], &[]);
    let mut client = server.join(SESSION, &user).await;
    // Not logged, so that any number of them may be sent; `None` if the connection is closed.
    let send = async |client: &mut TestClient| {
        let draft = json!({ "content": "text", "contributors": [] });
        let id = client.try_send("prompt.draft", draft).await?;
        loop {
            let message = client.next().await?;
            assert_ne!(message["type"], "error", "{message}");
            if message["type"] == "session.ack" && message["ref"] == id.as_str() {
                return Some(());
            }
        }
    };
    send(&mut client).await.unwrap();
    revoke(&server, &user).await;
    let revoked_at = SystemTime::now();
    let note = envelope(&user.participant, "context.add", context_payload("late"));
    let refused = post(
        &server,
        &user,
        &format!("/api/sessions/{SESSION}/messages"),
        &note.to_string(),
    )
    .await;
    assert_eq!(
        refused.expect_refusal(401).1,
        "the token was revoked; ask for a new invitation"
    );
    let mut last = revoked_at;
    while send(&mut client).await.is_some() {
        last = SystemTime::now();
    }
    // The server looks a token up again after a second; the rest is for a busy machine.
    let late = last.duration_since(revoked_at).unwrap();
    assert!(late < Duration::from_secs(3), "{late:?}");
    assert_eq!(client.close_code, Some(1008));
    assert_eq!(
        client.close_reason,
        "the token was revoked; ask for a new invitation"
    );
}
