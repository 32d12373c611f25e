//! What is told across restarts of the server.

use serde_json::json;

use super::{TRUSTING, told, wait_until};
use crate::fixture::{ApiUser, SESSION, reject_vote};
use crate::support::TestServer;
use crate::support::http_receiver::{HttpReceiver, ReceiverAnswer};

const ENVIRONMENT: [(&str, &str); 1] = [("PVP_NOTIFICATIONS", TRUSTING)];

async fn start(data: &std::path::Path) -> TestServer {
    TestServer::start_with(data, "127.0.0.1:0", &[], &ENVIRONMENT, None).await
}

#[tokio::test]
async fn what_was_not_told_before_a_crash_is_told_once_and_what_was_told_is_not_told_again() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    for _ in 0..100 {
        bobs.answer_next_with(ReceiverAnswer::Silence);
    }
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path()).await;
    server
        .create_session(SESSION, json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let users = [(ann.clone(), &anns), (bob, &bobs)];
    for (user, receiver) in users {
        let user = ApiUser::with_user(&server, user).await;
        user.join(SESSION).await;
        user.add_webhook(receiver).await;
    }
    let mut agent = server.join(SESSION, &bot).await;
    let first = agent.propose("touch a").await;
    let opened = told(&anns.next().await);
    assert_eq!(
        told(&bobs.next().await),
        opened,
        "it was sent, and nobody answered"
    );
    // Ann's is recorded once her settings say so.
    let api = ApiUser::with_user(&server, ann.clone()).await;
    let channel = async || api.notification_settings().await["channels"][0].clone();
    wait_until(async || channel().await["last_delivery"].is_string()).await;
    server.kill_9().await;
    drop((server, agent));

    bobs.forget_answers();
    let server = start(data.path()).await;
    assert_eq!(
        told(&bobs.next().await),
        opened,
        "it is told after the restart"
    );
    let mut agent = server.join(SESSION, &bot).await;
    let ann_api = ApiUser::with_user(&server, ann).await;
    let decided = ann_api
        .api
        .vote(SESSION, &first, reject_vote("later"))
        .await;
    decided.expect_ok();
    agent.propose("touch b").await;
    let (event, gate) = told(&anns.next().await);
    assert_eq!(event, "opened");
    assert_ne!(gate, opened.1, "Ann was not told of the first again");
    assert_ne!(told(&bobs.next().await), opened, "and neither was Bob");
}
