//! Receivers that fail, hang or ask for time.

use serde_json::json;

use super::kinds::check_signature;
use super::{TRUSTING, told, trusting_fixture, wait_until};
use crate::fixture::{ApiFixture, SESSION, approve_vote};
use crate::support::http_receiver::{HttpReceiver, ReceiverAnswer};
use crate::support::tls::TestAuthority;

#[tokio::test]
async fn a_delivery_that_failed_is_made_again_and_counted() {
    let mut receiver = HttpReceiver::start().await;
    receiver.answer_next(503);
    let mut fixture = trusting_fixture(json!({}), "").await;
    let channel = fixture.bob.add_webhook(&receiver).await;
    fixture.propose("touch a").await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
    assert_eq!(told(&first), told(&second));
    check_signature(&second, channel["secret"].as_str().unwrap());
    let bob = &fixture.bob;
    let channel = async || bob.notification_settings().await["channels"][0].clone();
    wait_until(async || channel().await["last_delivery"].is_string()).await;
    assert!(channel().await["last_error"].is_null());
    assert_eq!(fixture.notification_count("webhook", "retried").await, 1);
    assert_eq!(fixture.notification_count("webhook", "sent").await, 1);
}

#[tokio::test]
async fn a_receiver_that_says_no_is_not_asked_again() {
    let mut receiver = HttpReceiver::start().await;
    receiver.answer_next(403);
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.bob.add_webhook(&receiver).await;
    fixture.propose("touch a").await;
    let refused = told(&receiver.next().await);
    fixture.propose("touch b").await;
    assert_ne!(told(&receiver.next().await), refused);
    assert_eq!(fixture.notification_count("webhook", "failed").await, 1);
    assert_eq!(fixture.notification_count("webhook", "retried").await, 0);
}

#[tokio::test]
async fn what_was_decided_meanwhile_is_not_delivered_late() {
    let mut receiver = HttpReceiver::start().await;
    receiver.answer_next(503);
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.bob.add_webhook(&receiver).await;
    let proposal = fixture.propose("touch a").await;
    let first = told(&receiver.next().await);
    fixture.approve(&proposal).await;
    fixture.propose("touch b").await;
    let next = told(&receiver.next().await);
    assert_eq!(next.0, "opened");
    assert_ne!(next, first, "the second attempt at the first was not made");
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_neither_votes_nor_others() {
    let (mut hanging, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    for _ in 0..100 {
        hanging.answer_next_with(ReceiverAnswer::Silence);
    }
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.ann.add_webhook(&hanging).await;
    fixture.bob.add_webhook(&bobs).await;
    let first = fixture.propose("touch a").await;
    hanging.next().await;
    bobs.next().await;
    // While the first request hangs, eighteen more gates open, are told and are decided.
    let voted = fixture
        .bob
        .api
        .vote(SESSION, &first, approve_vote())
        .await
        .expect_ok();
    assert_eq!(voted["gate"]["status"], "approved");
    for number in 0..18 {
        let proposal = fixture.propose(&format!("touch {number}")).await;
        assert_eq!(told(&bobs.next().await).0, "opened");
        let voted = fixture
            .bob
            .api
            .vote(SESSION, &proposal, approve_vote())
            .await;
        assert_eq!(voted.expect_ok()["gate"]["status"], "approved");
    }
    assert!(hanging.try_next().is_none(), "one request at a time");
}

#[tokio::test]
async fn a_receiver_that_asks_for_time_gets_it() {
    let mut receiver = HttpReceiver::start().await;
    let head = "HTTP/1.1 429 Slow down\r\nRetry-After: 3".to_owned();
    receiver.answer_next_with(ReceiverAnswer::Head(head));
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.bob.add_webhook(&receiver).await;
    fixture.propose("touch a").await;
    let timestamp = |request: &crate::support::http_receiver::ReceiverRequest| {
        request.headers["webhook-timestamp"].parse::<u64>().unwrap()
    };
    let first = timestamp(&receiver.next().await);
    let second = timestamp(&receiver.next().await);
    // Without the header it would be tried again within a second.
    assert!(second >= first + 2, "{first} {second}");
}

#[tokio::test]
async fn only_a_receiver_that_proves_its_name_is_told() {
    let (authority, stranger) = (TestAuthority::new(), TestAuthority::new());
    let directory = tempfile::tempdir().unwrap();
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, authority.pem()).unwrap();
    let environment = [
        ("PVP_NOTIFICATIONS", TRUSTING),
        ("SSL_CERT_FILE", roots.to_str().unwrap()),
    ];
    let fixture = ApiFixture::with_env(json!({}), &environment).await;
    for (acceptor, is_told) in [
        (authority.acceptor(&["127.0.0.1"]), true),
        (authority.acceptor(&["other.example"]), false),
        (stranger.acceptor(&["127.0.0.1"]), false),
    ] {
        let mut receiver = HttpReceiver::start_tls(acceptor).await;
        let target = format!("https://{}/hook", receiver.address);
        let channel = fixture.bob.add_channel("webhook", &target).await;
        let id = channel["id"].as_str().unwrap();
        let path = format!("/api/notifications/channels/{id}/test");
        let answer = fixture.bob.api.request("POST", &path, None).await;
        let answer = answer.expect_ok();
        assert_eq!(answer["delivered"], is_told, "{answer}");
        assert_eq!(receiver.try_next().is_some(), is_told);
        let error = answer["error"].as_str().unwrap_or_default();
        assert_eq!(error.starts_with("TLS failed"), !is_told, "{answer}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (mut receiver, mut other) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let head = format!("HTTP/1.1 307 Moved\r\nLocation: {}", other.url("/"));
    receiver.answer_next_with(ReceiverAnswer::Head(head));
    let fixture = trusting_fixture(json!({}), "").await;
    let channel = fixture.bob.add_webhook(&receiver).await;
    let path = format!(
        "/api/notifications/channels/{}/test",
        channel["id"].as_str().unwrap()
    );
    let answer = fixture
        .bob
        .api
        .request("POST", &path, None)
        .await
        .expect_ok();
    assert_eq!(answer["delivered"], false);
    assert!(
        answer["error"].as_str().unwrap().contains("redirect"),
        "{answer}"
    );
    receiver.next().await;
    assert!(other.try_next().is_none());
}
