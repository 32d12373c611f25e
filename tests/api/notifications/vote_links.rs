//! Vote links: one command as it was shown, one person, and nothing else.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::trusting_fixture;
use crate::fixture::{ApiFixture, ApiUser, SESSION, amend_body, approve_vote};
use crate::http_client::{HttpResponse, HttpTestClient};
use crate::support::http_receiver::HttpReceiver;
use crate::support::{TestClient, TestServer, TestUser};

/// A session whose people have vote links, and what Bob is sent.
struct VoteLinkFixture {
    fixture: ApiFixture,
    receiver: HttpReceiver,
}

impl VoteLinkFixture {
    async fn new(config: Value) -> Self {
        Self::with_people(trusting_fixture(config, "vote_links = true").await).await
    }

    /// The same in a session that there is already.
    async fn with_people(fixture: ApiFixture) -> Self {
        let receiver = HttpReceiver::start().await;
        fixture.bob.add_webhook(&receiver).await;
        fixture.bob.prefer(json!({ "vote_links": true })).await;
        Self { fixture, receiver }
    }

    /// Proposes a command; returns the proposal and a client with the secret of Bob's link.
    async fn propose(&mut self, command: &str) -> (String, HttpTestClient) {
        let proposal = self.fixture.propose(command).await;
        (proposal, self.next_link().await)
    }

    async fn next_link(&mut self) -> HttpTestClient {
        let told = self.receiver.next().await.json();
        let (page, secret) = told["url"].as_str().unwrap().split_once("/#vote=").unwrap();
        assert_eq!(page, format!("http://{}", self.fixture.server.address));
        self.client(secret).await
    }

    async fn client(&self, secret: &str) -> HttpTestClient {
        let user = TestUser {
            token: secret.to_owned(),
            ..self.fixture.bob.user.clone()
        };
        HttpTestClient::with_token(&self.fixture.server, &user).await
    }
}

async fn card(link: &HttpTestClient) -> Value {
    link.get("/api/vote").await.expect_ok()
}

async fn vote(link: &HttpTestClient, vote: Value) -> HttpResponse {
    link.post("/api/vote", vote).await
}

fn approve(card: &Value) -> Value {
    json!({ "vote": "approve", "digest": card["gate"]["open"]["assessment"]["digest"] })
}

async fn expect_dead(link: &HttpTestClient, digest: &Value) {
    let (code, message) = link.get("/api/vote").await.expect_refusal(401);
    assert_eq!(code, "UNAUTHORIZED");
    assert!(
        message.starts_with("this vote link is not valid"),
        "{message}"
    );
    let body = json!({ "vote": "approve", "digest": digest });
    vote(link, body).await.expect_refusal(401);
}

#[tokio::test]
async fn a_link_shows_the_card_and_votes_only_when_told_to() {
    let mut fixture = VoteLinkFixture::new(json!({})).await;
    let (proposal, link) = fixture.propose("touch a").await;
    for _ in 0..3 {
        let card = card(&link).await;
        assert_eq!(card["participant"], fixture.fixture.bob.id());
        assert_eq!(card["name"], "bob");
        assert_eq!(card["gate"]["status"], "open");
        assert_eq!(card["gate"]["open"]["may_vote"], true);
        assert_eq!(card["gate"]["open"]["action"]["command"]["line"], "touch a");
        assert_eq!(
            card["gate"]["open"]["approvals"],
            json!([]),
            "looking votes on nothing"
        );
    }
    let card = card(&link).await;
    let answer = vote(&link, approve(&card)).await.expect_ok();
    assert_eq!(answer["gate"]["status"], "approved");
    let log = fixture.fixture.log();
    let entry = log
        .iter()
        .find(|entry| entry["envelope"]["type"] == "gate.approve");
    let entry = entry.or_else(|| log.iter().find(|entry| entry["type"] == "gate.approve"));
    let text = entry.unwrap().to_string();
    assert!(
        text.contains("vote_link") && text.contains(fixture.fixture.bob.id()),
        "{text}"
    );
    expect_dead(&link, &card["gate"]["open"]["assessment"]["digest"]).await;
    assert_eq!(fixture.fixture.gate(&proposal).await["status"], "approved");
}

#[tokio::test]
async fn a_link_rejects_with_a_reason() {
    let mut fixture = VoteLinkFixture::new(json!({})).await;
    let (proposal, link) = fixture.propose("touch a").await;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    let without = json!({ "vote": "reject", "digest": digest });
    vote(&link, without).await.expect_refusal(400);
    let with = json!({ "vote": "reject", "digest": digest, "reason": "not today" });
    let answer = vote(&link, with).await.expect_ok();
    assert_eq!(answer["gate"]["resolution"]["reason"], "not today");
    assert_eq!(fixture.fixture.gate(&proposal).await["status"], "rejected");
}

#[tokio::test]
async fn a_link_is_bound_to_the_command_that_it_was_sent_for() {
    let mut fixture = VoteLinkFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let (first, link) = fixture.propose("touch a").await;
    let (_, other) = fixture.propose("touch b").await;
    let (shown, elsewhere) = (card(&link).await, card(&other).await);
    let digest = shown["gate"]["open"]["assessment"]["digest"].clone();
    assert_ne!(
        shown["gate"]["tool_proposal"],
        elsewhere["gate"]["tool_proposal"]
    );
    let without_digest = json!({ "vote": "approve" });
    vote(&link, without_digest).await.expect_refusal(400);
    let (_, message) = vote(&link, approve(&elsewhere)).await.expect_refusal(409);
    assert!(message.contains("was edited"), "{message}");
    let path = format!("/api/sessions/{SESSION}/gates/{first}/amend");
    let edit = amend_body("touch c", digest.as_str().unwrap());
    fixture.fixture.ann.api.post(&path, edit).await.expect_ok();
    expect_dead(&link, &digest).await;
    // The edit is told with a link of its own.
    let edited = fixture.next_link().await;
    let card = card(&edited).await;
    assert_eq!(card["gate"]["open"]["action"]["command"]["line"], "touch c");
    expect_dead(&link, &card["gate"]["open"]["assessment"]["digest"]).await;
}

#[tokio::test]
async fn a_link_dies_with_its_gate_its_persons_right_and_its_token() {
    let mut fixture = VoteLinkFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let (proposal, link) = fixture.propose("touch a").await;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    let approved = fixture
        .fixture
        .ann
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await;
    approved.expect_ok();
    expect_dead(&link, &digest).await;

    let (_, link) = fixture.propose("touch b").await;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    let admin = fixture.fixture.server.admin();
    let admin = ApiUser::with_user(&fixture.fixture.server, admin).await;
    let change = |old: &str, new: &str| {
        json!({
            "participant": fixture.fixture.bob.id(), "old_roles": [old], "new_roles": [new],
            "changed_by": admin.id(),
        })
    };
    let kind = "participant.role_change";
    let lost = change("approver", "observer");
    admin
        .api
        .send_message(SESSION, kind, lost)
        .await
        .expect_ok();
    expect_dead(&link, &digest).await;
    let back = change("observer", "approver");
    admin
        .api
        .send_message(SESSION, kind, back)
        .await
        .expect_ok();
    card(&link).await;

    let token = fixture
        .fixture
        .bob
        .user
        .token
        .split('_')
        .nth(1)
        .unwrap()
        .to_owned();
    let revoked = admin
        .api
        .request("DELETE", &format!("/api/tokens/{token}"), None)
        .await;
    assert_eq!(revoked.status, 204);
    expect_dead(&link, &digest).await;
}

#[tokio::test]
async fn a_link_opens_nothing_else_and_nothing_else_opens_it() {
    let mut fixture = VoteLinkFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let (proposal, link) = fixture.propose("touch a").await;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    let session = format!("/api/sessions/{SESSION}");
    for path in [
        "/api/me",
        "/api/gates",
        "/api/sessions",
        "/api/notifications",
        "/api/devices",
        "/api/push/key",
        "/api/tokens",
        &session,
        &format!("{session}/messages"),
        &format!("{session}/gates"),
        &format!("{session}/gates/{proposal}"),
        &format!("{session}/history"),
        &format!("/sessions/{SESSION}/transcript"),
    ] {
        link.get(path).await.expect_refusal(401);
    }
    let ballot = json!({ "vote": "approve", "digest": digest });
    link.vote(SESSION, &proposal, ballot.clone())
        .await
        .expect_refusal(401);
    let message = link.send_message(SESSION, "prompt.submit", json!({ "content": "x" }));
    message.await.expect_refusal(401);
    link.post("/api/devices", json!({ "name": "x" }))
        .await
        .expect_refusal(401);
    let subscribing = json!({ "kind": "webhook", "label": "x", "target": "https://example.com/" });
    link.post("/api/notifications/channels", subscribing)
        .await
        .expect_refusal(401);
    let secret = link
        .bearer()
        .unwrap()
        .strip_prefix("Bearer ")
        .unwrap()
        .to_owned();
    let address = fixture.fixture.server.address.clone();
    let headers = [("Authorization", link.bearer().unwrap())];
    let socket = TestClient::try_connect(&address, "/ws", &headers, "bob");
    assert!(socket.await.is_err(), "no socket takes it");
    // A token is no vote link, and the secret does not work from an address.
    fixture
        .fixture
        .bob
        .api
        .get("/api/vote")
        .await
        .expect_refusal(401);
    let nobody = HttpTestClient::anonymous(&fixture.fixture.server).await;
    nobody
        .get(&format!("/api/vote?token={secret}"))
        .await
        .expect_refusal(401);
    let mut altered = secret.clone();
    let last = if altered.ends_with('0') { "1" } else { "0" };
    altered.replace_range(altered.len() - 1.., last);
    expect_dead(&fixture.client(&altered).await, &digest).await;
    card(&link).await;
}

#[tokio::test]
async fn nobody_gets_a_link_who_does_not_want_it_and_no_room_gets_one() {
    let mut receiver = HttpReceiver::start().await;
    let mut room = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "vote_links = true").await;
    fixture.ann.add_webhook(&receiver).await;
    fixture.bob.add_channel("slack", &room.url("/room")).await;
    fixture.bob.add_channel("ntfy", &room.url("/topic")).await;
    fixture.bob.prefer(json!({ "vote_links": true })).await;
    fixture.propose("touch a").await;
    assert!(
        !receiver.next().await.text().contains("vote="),
        "Ann did not ask for it"
    );
    for _ in 0..2 {
        let text = room.next().await.text();
        assert!(!text.contains("vote=") && text.contains("gate="), "{text}");
    }
}

#[tokio::test]
async fn the_secret_is_stored_as_a_hash_and_never_logged() {
    let receiver = HttpReceiver::start().await;
    let data = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let settings = format!("{}\nvote_links = true", super::TRUSTING);
    let environment = [
        ("PVP_NOTIFICATIONS", settings.as_str()),
        ("PVP_LOG", "trace"),
    ];
    let file = log.reopen().unwrap();
    let server = crate::support::TestServer::start_with(
        data.path(),
        "127.0.0.1:0",
        &[],
        &environment,
        Some(file),
    )
    .await;
    server
        .create_session(SESSION, json!({ "gate_timeout_seconds": 0 }))
        .await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bob = ApiUser::with_user(&server, bob).await;
    bob.join(SESSION).await;
    let channel = bob.add_webhook(&receiver).await;
    bob.prefer(json!({ "vote_links": true })).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(SESSION, &bot).await;
    agent.propose("touch a").await;
    let mut receiver = receiver;
    let told = receiver.next().await.json();
    let secret = told["url"]
        .as_str()
        .unwrap()
        .split_once("vote=")
        .unwrap()
        .1
        .to_owned();
    let user = TestUser {
        token: secret.clone(),
        ..bob.user.clone()
    };
    let link = HttpTestClient::with_token(&server, &user).await;
    card(&link).await;
    assert!(server.stop().await.success());
    let secret = secret.rsplit('_').next().unwrap();
    let signing = channel["secret"].as_str().unwrap();
    let logged = std::fs::read_to_string(log.path()).unwrap();
    assert!(logged.contains("pvp_server"), "something was logged");
    for hidden in [secret, signing, "/hook"] {
        assert!(!logged.contains(hidden), "{hidden} was logged");
    }
    for entry in std::fs::read_dir(data.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn who_holds_a_link_holds_up_nobody_who_has_a_token() {
    let settings = format!("{}\nvote_links = true", super::TRUSTING);
    let environment = [
        ("PVP_NOTIFICATIONS", settings.as_str()),
        ("PVP_REQUESTS_PER_TOKEN", "3"),
    ];
    let fixture = ApiFixture::with_env(json!({ "gate_timeout_seconds": 0 }), &environment).await;
    let mut fixture = VoteLinkFixture::with_people(fixture).await;
    let (_, link) = fixture.propose("touch a").await;
    // The server asks for the body once it has counted the request.
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let address = &fixture.fixture.server.address;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /api/vote HTTP/1.1\r\nHost: {address}\r\nAuthorization: {}\r\nContent-Type: application/json\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n",
            link.bearer().unwrap()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        waiting.push(stream);
    }
    let (code, message) = link.get("/api/vote").await.expect_refusal(429);
    assert_eq!(code, "RATE_LIMITED");
    assert!(message.contains("at most 2"), "{message}");
    let bob = &fixture.fixture.bob.api;
    let asking = (0..3).map(|_| bob.get("/api/me"));
    for answer in join_all(asking).await {
        answer.expect_ok();
    }
    drop(waiting);
    while link.get("/api/vote").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nobody_can_say_of_their_own_vote_that_a_link_gave_it() {
    let mut fixture = ApiFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let mut socket = fixture.server.join(SESSION, &fixture.bob.user).await;
    for kind in ["gate.approve", "gate.reject", "tool.approve", "tool.reject"] {
        for is_over_http in [true, false] {
            let gate = fixture
                .propose(&format!("touch {kind}-{is_over_http}"))
                .await;
            let by = fixture.bob.id().to_owned();
            let vote = json!({
                "gate": gate, "tool_proposal": gate, "approver": by, "rejector": by,
                "reason": "r", "via": "vote_link", "seen_on": "a phone",
            });
            match is_over_http {
                true => {
                    let sent = fixture.bob.api.send_message(SESSION, kind, vote).await;
                    sent.expect_ok();
                }
                false => {
                    socket.send_and_ack(kind, vote).await;
                }
            }
            let log = fixture.log();
            let entry = log
                .iter()
                .rfind(|entry| entry["type"] == kind && entry["sender"] == by);
            let entry = entry.unwrap();
            let payload = &entry["payload"];
            let names_gate = payload["gate"] == gate.as_str();
            assert!(
                names_gate || payload["tool_proposal"] == gate.as_str(),
                "{entry}"
            );
            assert_eq!(payload["via"], Value::Null, "{entry}");
            assert_eq!(payload["seen_on"], "a phone", "{entry}");
        }
    }
}

#[tokio::test]
async fn a_link_dies_with_its_channel_and_with_the_wish_for_links() {
    let mut fixture = VoteLinkFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let (_, link) = fixture.propose("touch a").await;
    let bob = &fixture.fixture.bob;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    bob.prefer(json!({ "vote_links": false })).await;
    expect_dead(&link, &digest).await;
    bob.prefer(json!({ "vote_links": true })).await;
    card(&link).await;
    let channel = bob.notification_settings().await["channels"][0].clone();
    let channel = channel["id"].as_str().unwrap();
    let path = format!("/api/notifications/channels/{channel}");
    for (enabled, is_alive) in [(false, false), (true, true)] {
        let change = Some(json!({ "enabled": enabled }));
        bob.api.request("PATCH", &path, change).await.expect_ok();
        match is_alive {
            true => drop(card(&link).await),
            false => expect_dead(&link, &digest).await,
        }
    }
    let removed = bob.api.request("DELETE", &path, None).await;
    assert_eq!(removed.status, 204);
    expect_dead(&link, &digest).await;
}

#[tokio::test]
async fn links_that_were_sent_are_dead_once_the_operator_allows_none() {
    let mut receiver = HttpReceiver::start().await;
    let data = tempfile::tempdir().unwrap();
    let start = async |more: &str| {
        let settings = format!("{}\n{more}", super::TRUSTING);
        let environment = [("PVP_NOTIFICATIONS", settings.as_str())];
        let data = data.path();
        TestServer::start_with(data, "127.0.0.1:0", &[], &environment, None).await
    };
    let server = start("vote_links = true").await;
    let config = json!({ "gate_timeout_seconds": 0 });
    server.create_session(SESSION, config).await;
    let bob = ApiUser::invite(&server, "bob", &["approver"]).await;
    bob.join(SESSION).await;
    bob.add_webhook(&receiver).await;
    bob.prefer(json!({ "vote_links": true })).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    server.join(SESSION, &bot).await.propose("touch a").await;
    let told = receiver.next().await.json();
    let (_, secret) = told["url"].as_str().unwrap().split_once("vote=").unwrap();
    let user = TestUser {
        token: secret.to_owned(),
        ..bob.user.clone()
    };
    let link = HttpTestClient::with_token(&server, &user).await;
    let digest = card(&link).await["gate"]["open"]["assessment"]["digest"].clone();
    assert!(server.stop().await.success());
    let server = start("").await;
    expect_dead(&HttpTestClient::with_token(&server, &user).await, &digest).await;
    assert!(server.stop().await.success());
    let server = start("vote_links = true").await;
    card(&HttpTestClient::with_token(&server, &user).await).await;
}

#[tokio::test]
async fn what_leads_to_the_card_is_sent_if_a_link_cannot_be_stored() {
    let mut fixture = VoteLinkFixture::new(json!({ "gate_timeout_seconds": 0 })).await;
    let database = fixture.fixture.server.data.join("pvp.sqlite3");
    let database = rusqlite::Connection::open(database).unwrap();
    database
        .execute_batch("ALTER TABLE vote_links RENAME TO unusable")
        .unwrap();
    fixture.fixture.propose("touch a").await;
    let told = fixture.receiver.next().await.json();
    assert_eq!(told["event"], "opened");
    let url = told["url"].as_str().unwrap();
    assert!(
        url.contains("/#session=") && !url.contains("vote="),
        "{url}"
    );
}
