//! Limits on HTTP requests, and that no request harms the server.

use serde_json::json;
use tokio::task::JoinHandle;

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, context_payload};
use crate::http_client::{HttpResponse, HttpTestClient, raw_exchange};
use crate::support::{TEST_TIMEOUT, TestServer};

const MESSAGES: &str = "/api/sessions/room/messages";

#[tokio::test]
async fn requests_above_the_rate_limit_are_refused() {
    let slow = [("PVP_MESSAGES_PER_SECOND", "1"), ("PVP_MESSAGE_BURST", "5")];
    let mut fixture = ApiFixture::with_env(json!({}), &slow).await;
    let proposal = fixture.propose("touch a").await;
    let mut refused = Vec::new();
    let mut said = 0;
    while refused.len() < 3 {
        let answer = fixture
            .ann
            .api
            .send_message(SESSION, "context.add", context_payload(&format!("k{said}")))
            .await;
        match answer.status {
            200 => said += 1,
            _ => refused.push(answer),
        }
        assert!(said < 100, "nothing holds it back");
    }
    assert!(said >= 5, "{said}");
    for answer in refused {
        let sentence = "too many messages; send at most 1 per second".to_owned();
        assert_eq!(
            answer.expect_refusal(429),
            ("RATE_LIMITED".to_owned(), sentence)
        );
        assert_eq!(answer.json()["recoverable"], true);
    }
    // The allowance belongs to the person, over HTTP and on the socket, and to nobody else.
    let mut socket = fixture.server.join(SESSION, &fixture.ann.user).await;
    let (mut taken, mut refused) = (0, 0);
    while refused < 3 {
        let key = context_payload(&format!("s{taken}-{refused}"));
        let id = socket.send("context.add", key).await;
        match socket.answer(&id).await["type"] == "error" {
            true => refused += 1,
            false => taken += 1,
        }
        assert!(taken < 100, "nothing holds it back");
    }
    assert_eq!(
        fixture
            .bob
            .api
            .vote(SESSION, &proposal, approve_vote())
            .await
            .expect_ok()["gate"]["status"],
        "approved"
    );
    let kept = fixture.log();
    let adds = kept
        .iter()
        .filter(|entry| entry["type"] == "context.add" && entry["sender"] == fixture.ann.id());
    assert!(adds.count() >= said);
    // Output of granted commands is not rate-limited.
    for number in 0..30 {
        let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": format!("{number}\n"), "complete": false });
        fixture
            .bot
            .api
            .send_message(SESSION, "tool.output", output)
            .await
            .expect_ok();
    }
    let page = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}/outputs/{proposal}"))
        .await
        .expect_ok();
    assert_eq!(page["total_lines"], 30);
}

/// As many waiting polls as one token may have.
pub(crate) async fn hold_polls(
    api: &HttpTestClient,
    path: &str,
    count: usize,
) -> Vec<JoinHandle<HttpResponse>> {
    let poll = || {
        let (api, path) = (api.clone(), path.to_owned());
        tokio::spawn(async move { api.get(&path).await })
    };
    let mut polls: Vec<_> = (0..count).map(|_| poll()).collect();
    let begun = std::time::Instant::now();
    // Once all of them wait, another one is refused.
    while api.get(MESSAGES).await.status == 200 {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "there is always room for one more"
        );
        for one in polls.iter_mut().filter(|one| one.is_finished()) {
            // The request above held its slot at that moment.
            *one = poll();
        }
    }
    polls
}

#[tokio::test]
async fn polls_count_towards_the_connections_of_a_token() {
    let fixture = ApiFixture::with_env(json!({}), &[("PVP_CONNECTIONS_PER_TOKEN", "2")]).await;
    let version = fixture.eve.api.get("/api/gates").await.expect_ok()["version"].clone();
    let gates = &format!("/api/gates?after={version}&wait=60");
    let expected = json!({
        "code": "RATE_LIMITED", "message": "too many connections with one token: at most 2", "recoverable": true,
    });
    for path in [&format!("{MESSAGES}?after=1000&wait=60"), gates] {
        let polls = hold_polls(&fixture.eve.api, path, 2).await;
        assert_eq!(
            fixture.eve.api.get(MESSAGES).await.expect_status(429),
            expected,
            "{path}"
        );
        assert_eq!(
            fixture.eve.api.get(path).await.expect_status(429),
            expected,
            "{path}"
        );
        assert!(polls.iter().all(|poll| !poll.is_finished()));
        polls.iter().for_each(JoinHandle::abort);
        // Other users are not affected, and when the polls are gone there is room again.
        fixture.bob.api.get(MESSAGES).await.expect_ok();
        let begun = std::time::Instant::now();
        while fixture.eve.api.get(MESSAGES).await.status != 200 {
            assert!(
                begun.elapsed() < TEST_TIMEOUT,
                "the place is not given back"
            );
        }
    }
}

#[tokio::test]
async fn hostile_paths_are_refused_with_a_reason() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let ann = &fixture.ann.api;
    let long = "x".repeat(129);
    let very_long = "y".repeat(30_000);
    let before = fixture.log();
    let names = [
        "%00",
        "room%00",
        "%ff",
        "%2e%2e",
        "..",
        "%2e%2e%2f%2e%2e%2fetc",
        "room%2fmessages",
        "%F0%9F%98%80",
        "r%20oom",
        "%",
        "%zz",
        "-room",
        &long,
        &very_long,
    ];
    for name in names {
        for path in [
            format!("/api/sessions/{name}"),
            format!("/api/sessions/{name}/messages"),
            format!("/api/sessions/{name}/history"),
            format!("/api/sessions/{SESSION}/gates/{name}"),
            format!("/api/sessions/{SESSION}/outputs/{name}"),
            format!("/sessions/{name}/transcript"),
        ] {
            let answer = ann.get(&path).await;
            assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        }
        let vote = ann.vote(SESSION, name, approve_vote()).await;
        assert!([400, 404].contains(&vote.status), "{name}: {vote:?}");
        let revoked = ann
            .request("DELETE", &format!("/api/tokens/{name}"), None)
            .await;
        assert!([400, 404].contains(&revoked.status), "{name}: {revoked:?}");
        let lost = ann.get(&format!("/{name}")).await;
        assert_eq!(lost.status, 404, "{name}");
        assert!(lost.text.len() < 400, "{name}");
    }
    for query in [
        "%",
        "%ff=1",
        "after=%ff",
        "=",
        "&&&",
        "after",
        "after=1;limit=1",
        "%00=1",
        &very_long,
    ] {
        let answer = ann
            .get(&format!("/api/sessions/{SESSION}/messages?{query}"))
            .await;
        assert!([200, 400].contains(&answer.status), "{query}: {answer:?}");
        assert!(
            answer.status == 200 || answer.text.len() < 400,
            "{}",
            answer.text
        );
    }
    for grep in ["%00", "%F0%9F%98%80", ".*(", &"z".repeat(30_000)] {
        ann.get(&format!(
            "/api/sessions/{SESSION}/outputs/{proposal}?grep={grep}"
        ))
        .await
        .expect_ok();
        ann.get(&format!("/api/sessions/{SESSION}/history?grep={grep}"))
            .await
            .expect_ok();
    }
    // Input that is not HTTP ends the connection, not the server.
    let endless = format!("/{}", "z".repeat(200_000));
    let answer = raw_exchange(&fixture.server.address, "GET", &endless, &[], b"").await;
    assert_eq!(answer.status, 414);
    let answer = raw_exchange(&fixture.server.address, "G\u{1}T", "/", &[], b"").await;
    assert_eq!(answer.status, 400);
    assert_eq!(fixture.log(), before);
    assert_eq!(fixture.gate(&proposal).await["status"], "open");
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_request_leaves_no_trace() {
    use tokio::io::AsyncWriteExt;
    let server = TestServer::start_with_env(&[], &[("PVP_CONNECTIONS_PER_TOKEN", "2")]).await;
    server.create_session(SESSION, json!({})).await;
    let eve = ApiUser::invite(&server, "eve", &["observer"]).await;
    for _ in 0..10 {
        let mut stream = tokio::net::TcpStream::connect(&server.address)
            .await
            .unwrap();
        let request = format!(
            "GET /api/sessions/{SESSION}/messages?after=99&wait=60 HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            server.address, eve.user.token
        );
        stream.write_all(request.as_bytes()).await.unwrap();
    }
    let begun = std::time::Instant::now();
    let nobody = HttpTestClient::anonymous(&server).await;
    loop {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "their places are not given back"
        );
        let text = nobody.get("/metrics").await.text;
        let free = text.contains("\npvp_connections 1\n");
        if free && eve.api.get("/api/sessions/room/messages").await.status == 200 {
            break;
        }
    }
}
