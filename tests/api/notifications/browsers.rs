//! Web Push: a browser is told of gates, encrypted for it alone.

use serde_json::{Value, json};

use super::{trusting_fixture, wait_until};
use crate::fixture::{ApiFixture, ApiUser, SESSION};
use crate::support::http_receiver::HttpReceiver;
use crate::support::push_browser::{PushBrowser, check_vapid};

async fn subscribe(user: &ApiUser, browser: &PushBrowser, endpoint: &str) -> String {
    let subscription = browser.subscription(endpoint);
    let answer = user.api.post("/api/push/subscriptions", subscription).await;
    let created = answer.expect_status(201);
    created["id"].as_str().unwrap().to_owned()
}

async fn push_key(user: &ApiUser) -> String {
    let answer = user.api.get("/api/push/key").await.expect_ok();
    answer["key"].as_str().unwrap().to_owned()
}

fn channels(settings: &Value) -> Vec<&Value> {
    settings["channels"].as_array().unwrap().iter().collect()
}

async fn gate_of(fixture: &ApiFixture, proposal: &str) -> Value {
    fixture.gate(proposal).await["open"].clone()
}

#[tokio::test]
async fn a_browser_is_told_of_a_gate_encrypted_for_it_alone_and_told_again_when_it_closes() {
    let mut service = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "contact = \"mailto:ops@example.com\"").await;
    let (browser, stranger) = (PushBrowser::default(), PushBrowser::default());
    let id = subscribe(&fixture.bob, &browser, &service.url("/push/1")).await;
    let proposal = fixture.propose("rm -rf secret-project").await;
    let request = service.next().await;
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/push/1")
    );
    let origin = format!("http://{}", service.address);
    let key = push_key(&fixture.bob).await;
    let claims = check_vapid(&request, &key, &origin);
    assert_eq!(claims["sub"], "mailto:ops@example.com");
    assert_eq!(request.headers["urgency"], "high");
    let ttl: u64 = request.headers["ttl"].parse().unwrap();
    assert!((200..=300).contains(&ttl), "until the deadline: {ttl}");
    let payload = browser.decrypt(&request);
    let gate = gate_of(&fixture, &proposal).await;
    let gate_id = gate["gate"].as_str().unwrap();
    assert_eq!(payload["event"], "opened");
    assert_eq!(payload["session"], SESSION);
    assert_eq!(payload["gate"], gate_id);
    assert_eq!(payload["category"], "destructive");
    assert_eq!(payload.get("digest"), None, "it would tell the command");
    assert_eq!(
        payload["title"],
        "A destructive command waits for your vote"
    );
    assert_eq!(
        payload["url"],
        format!("/#session={SESSION}&gate={gate_id}")
    );
    assert_eq!(request.headers["topic"], payload["tag"].as_str().unwrap());
    assert!(!payload.to_string().contains("secret-project"), "{payload}");
    assert!(!payload.to_string().contains("rm "), "{payload}");
    let as_text = String::from_utf8_lossy(&request.body).into_owned();
    assert!(!as_text.contains("opened"), "it is encrypted");
    let other = std::panic::catch_unwind(|| stranger.decrypt(&request));
    assert!(other.is_err(), "nobody else can decrypt it");
    let delivered = fixture.bob.notification_settings().await;
    let channel = channels(&delivered)[0].clone();
    assert_eq!(
        (&channel["id"], &channel["kind"]),
        (&json!(id), &json!("push"))
    );
    assert_eq!(channel["target"], format!("http://{}/…", service.address));

    fixture.approve(&proposal).await;
    let request = service.next().await;
    let closed = browser.decrypt(&request);
    assert_eq!(closed["event"], "closed");
    assert_eq!(closed["tag"], payload["tag"]);
    assert_eq!(request.headers["urgency"], "low");

    fixture.bob.prefer(json!({ "show_command": true })).await;
    fixture.propose("rm -rf secret-project").await;
    let shown = browser.decrypt(&service.next().await);
    assert_eq!(shown["command"], "rm -rf secret-project");
}

#[tokio::test]
async fn a_browser_that_is_gone_is_removed() {
    for status in [404, 410] {
        let mut service = HttpReceiver::start().await;
        service.answer_next(status);
        let mut other = HttpReceiver::start().await;
        let mut fixture = trusting_fixture(json!({}), "").await;
        let (gone, kept) = (PushBrowser::default(), PushBrowser::default());
        subscribe(&fixture.bob, &gone, &service.url("/gone")).await;
        subscribe(&fixture.bob, &kept, &other.url("/kept")).await;
        assert_eq!(
            channels(&fixture.bob.notification_settings().await).len(),
            2
        );
        fixture.propose("touch a").await;
        service.next().await;
        other.next().await;
        // It is removed when the answer was read, which the second message can overtake.
        let bob = &fixture.bob;
        wait_until(async || channels(&bob.notification_settings().await).len() == 1).await;
        let settings = fixture.bob.notification_settings().await;
        let left = channels(&settings)[0];
        assert_eq!(left["target"], format!("http://{}/…", other.address));
        assert_eq!(fixture.notification_count("push", "failed").await, 1);
    }
}

#[tokio::test]
async fn a_browser_that_subscribes_again_replaces_itself_and_can_be_removed() {
    let service = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "").await;
    let browser = PushBrowser::default();
    let endpoint = service.url("/push/1");
    let first = subscribe(&fixture.bob, &browser, &endpoint).await;
    let second = subscribe(&fixture.bob, &browser, &endpoint).await;
    assert_ne!(first, second);
    assert_eq!(
        channels(&fixture.bob.notification_settings().await).len(),
        1
    );
    let path = |id: &str| format!("/api/push/subscriptions/{id}");
    let remove =
        async |user: &ApiUser, id: &str| user.api.request("DELETE", &path(id), None).await.status;
    assert_eq!(remove(&fixture.bob, &first).await, 404);
    assert_eq!(remove(&fixture.ann, &second).await, 404, "somebody else's");
    assert_eq!(remove(&fixture.bob, &second).await, 204);
    assert!(channels(&fixture.bob.notification_settings().await).is_empty());
}

#[tokio::test]
async fn a_person_has_only_so_many_browsers() {
    let service = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "").await;
    let browser = PushBrowser::default();
    for number in 0..20 {
        subscribe(
            &fixture.bob,
            &browser,
            &service.url(&format!("/push/{number}")),
        )
        .await;
    }
    let one_more = browser.subscription(&service.url("/push/20"));
    let answer = fixture
        .bob
        .api
        .post("/api/push/subscriptions", one_more)
        .await;
    let (code, message) = answer.expect_refusal(429);
    assert_eq!(code, "RATE_LIMITED");
    assert!(message.contains("at most 20"), "{message}");
}

#[tokio::test]
async fn the_key_stays_the_same_when_the_server_is_started_again_and_nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let data = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    let mut admin = None;
    for _ in 0..2 {
        let server = crate::support::TestServer::start_in(data.path(), &[]).await;
        let user = admin.get_or_insert_with(|| server.admin()).clone();
        keys.push(push_key(&ApiUser::with_user(&server, user).await).await);
        assert!(server.stop().await.success());
    }
    assert_eq!(keys[0], keys[1]);
    let mode = std::fs::metadata(data.path().join("push.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
