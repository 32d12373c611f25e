//! What each kind of channel is sent, and that hostile text in a command stays text.

use data_encoding::BASE64;
use ring::hmac;
use serde_json::{Value, json};

use super::trusting_fixture;
use crate::fixture::SESSION;
use crate::support::http_receiver::{HttpReceiver, ReceiverRequest};
use crate::support::smtp_receiver::SmtpReceiver;

/// A command that would call everybody, forge a link and end a header, if it were not text.
const HOSTILE: &str =
    "rm -rf `<!channel>` @everyone [card](https://evil.example) <https://evil.example|card>";

/// Checks a signature as a receiver does, with the standard's `id.timestamp.body`.
pub(super) fn check_signature(request: &ReceiverRequest, secret: &str) {
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap().as_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key.unwrap());
    let (id, at) = (
        &request.headers["webhook-id"],
        &request.headers["webhook-timestamp"],
    );
    let signed = [format!("{id}.{at}.").as_bytes(), &request.body].concat();
    let signature = request.headers["webhook-signature"]
        .strip_prefix("v1,")
        .unwrap();
    let signature = BASE64.decode(signature.as_bytes()).unwrap();
    hmac::verify(&key, &signed, &signature).unwrap();
    let now = pvp_clock::now().as_millis() / 1000;
    let at: u64 = at.parse().unwrap();
    assert!(now.abs_diff(at) < 60, "it was signed just now");
}

#[tokio::test]
async fn a_webhook_is_signed_with_a_secret_that_is_shown_once() {
    let mut receiver = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    let channel = fixture.bob.add_webhook(&receiver).await;
    let secret = channel["secret"].as_str().unwrap();
    let proposal = fixture.propose(HOSTILE).await;
    let request = receiver.next().await;
    check_signature(&request, secret);
    assert_eq!(request.headers["content-type"], "application/json");
    let body = request.json();
    let gate = fixture.gate(&proposal).await["open"].clone();
    assert_eq!(
        body,
        json!({
            "event": "opened", "session": SESSION, "gate": gate["gate"],
            "category": "destructive", "risk": gate["assessment"]["risk"],
            "title": "A destructive command waits for your vote",
            "body": body["body"], "deadline": gate["request"]["deadline"], "tag": body["tag"],
            "url": format!("http://{}/#session={SESSION}&gate={}", fixture.server.address, gate["gate"].as_str().unwrap()),
        })
    );
    let text = body["body"].as_str().unwrap();
    assert!(
        text.starts_with(&format!(
            "Session {SESSION}\ndestructive, high risk, proposed by "
        )),
        "{text}"
    );
    assert!(text.ends_with(", it is rejected"), "{text}");
    let settings = fixture.bob.notification_settings().await;
    assert!(!settings.to_string().contains("whsec"), "{settings}");
    assert!(!settings.to_string().contains("/hook"), "{settings}");
}

#[tokio::test]
async fn a_webhook_may_have_a_secret_that_its_owner_chose() {
    let mut receiver = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    let secret = format!("whsec_{}", BASE64.encode(&[7; 32]));
    let body = json!({
        "kind": "webhook", "label": "x", "target": receiver.url("/hook"), "secret": secret,
    });
    let path = "/api/notifications/channels";
    let channel = fixture.bob.api.post(path, body).await.expect_status(201);
    assert_eq!(channel["secret"], secret);
    fixture.propose("touch a").await;
    check_signature(&receiver.next().await, &secret);
}

/// What each kind of web channel is sent about a command that is shown.
async fn body_for(kind: &str) -> (ReceiverRequest, String) {
    let mut receiver = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.bob.add_channel(kind, &receiver.url("/topic")).await;
    fixture.bob.prefer(json!({ "show_command": true })).await;
    let proposal = fixture.propose(HOSTILE).await;
    let gate = fixture.gate(&proposal).await["open"]["gate"].clone();
    let gate = gate.as_str().unwrap();
    let url = format!(
        "http://{}/#session={SESSION}&gate={gate}",
        fixture.server.address
    );
    (receiver.next().await, url)
}

#[tokio::test]
async fn slack_gets_the_command_as_code_without_markup() {
    let (request, url) = body_for("slack").await;
    let text = request.json()["text"].as_str().unwrap().to_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "*A destructive command waits for your vote*");
    let command = "`rm -rf \u{2cb}&lt;!channel&gt;\u{2cb} @everyone [card](https://evil.example) &lt;https://evil.example|card&gt;`";
    assert_eq!(lines[4], command);
    assert_eq!(
        lines[5],
        format!("<{}|Open the card>", url.replace('&', "&amp;"))
    );
    assert_eq!(
        text.matches('<').count(),
        1,
        "only our own link is one: {text}"
    );
}

#[tokio::test]
async fn discord_gets_the_command_as_code_and_calls_nobody() {
    let (request, url) = body_for("discord").await;
    let body = request.json();
    let content = body["content"].as_str().unwrap();
    let command = HOSTILE.replace('`', "\u{2cb}");
    assert!(content.contains(&format!("\n`{command}`\n")), "{content}");
    assert!(
        content.ends_with(&format!("\n[Open the card](<{url}>)")),
        "{content}"
    );
    assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
}

#[tokio::test]
async fn ntfy_gets_title_priority_link_and_action() {
    let (request, url) = body_for("ntfy").await;
    assert_eq!(request.path, "/");
    let body: Value = request.json();
    assert_eq!(body["topic"], "topic");
    assert_eq!(body["title"], "A destructive command waits for your vote");
    assert_eq!(body["priority"], 4);
    assert_eq!(body["click"], url);
    let action = json!({ "action": "view", "label": "Open the card", "url": url, "clear": true });
    assert_eq!(body["actions"], json!([action]));
    assert!(body["message"].as_str().unwrap().ends_with(HOSTILE));
}

#[tokio::test]
async fn mail_goes_through_the_relay_of_the_operator() {
    let mut relay = SmtpReceiver::start().await;
    let settings = format!(
        "smtp = {{ host = \"127.0.0.1\", port = {}, security = \"plain\", from = \"PVP <pvp@example.com>\", domains = [\"example.com\"] }}",
        relay.port
    );
    let mut fixture = trusting_fixture(json!({}), &settings).await;
    let settings = fixture.bob.notification_settings().await;
    assert!(
        settings["kinds"]
            .as_array()
            .unwrap()
            .contains(&json!("email"))
    );
    let channel = fixture.bob.add_channel("email", "bob@example.com").await;
    assert_eq!(channel["target"], "b…@example.com");
    let path = "/api/notifications/channels";
    for (address, problem) in [
        ("bob@elsewhere.org", "does not allow e-mail to this domain"),
        (
            "bob@example.com\r\nBcc: all@example.com",
            "not an e-mail address",
        ),
    ] {
        let body = json!({ "kind": "email", "label": "x", "target": address });
        let (_, message) = fixture.bob.api.post(path, body).await.expect_refusal(400);
        assert!(message.contains(problem), "{message}");
    }
    // A relay that is busy is asked again.
    relay.refuse_next("451 later");
    let proposal = fixture.propose("touch a").await;
    let mail = relay.next().await;
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("pvp@example.com", &["bob@example.com".to_owned()][..])
    );
    assert_eq!(mail.header("Subject"), "A command waits for your vote");
    assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
    let gate = fixture.gate(&proposal).await["open"]["gate"].clone();
    let link = format!("#session={SESSION}&gate={}", gate.as_str().unwrap());
    assert!(mail.text().contains(&link), "{}", mail.text());
    assert!(!mail.text().contains("touch"), "{}", mail.text());
    assert_eq!(fixture.notification_count("email", "retried").await, 1);
}

#[tokio::test]
async fn without_a_relay_there_is_no_mail() {
    let fixture = trusting_fixture(json!({}), "").await;
    let settings = fixture.bob.notification_settings().await;
    let kinds = json!(["push", "webhook", "ntfy", "slack", "discord"]);
    assert_eq!(settings["kinds"], kinds);
    let body = json!({ "kind": "email", "label": "x", "target": "bob@example.com" });
    let answer = fixture
        .bob
        .api
        .post("/api/notifications/channels", body)
        .await;
    let (_, message) = answer.expect_refusal(403);
    assert!(
        message.contains("does not allow channels of kind email"),
        "{message}"
    );
}

#[tokio::test]
async fn a_test_says_whether_it_arrived() {
    let mut receiver = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "").await;
    let channel = fixture.bob.add_webhook(&receiver).await;
    let id = channel["id"].as_str().unwrap();
    let path = format!("/api/notifications/channels/{id}/test");
    let test = async || fixture.bob.api.request("POST", &path, None).await;
    assert_eq!(test().await.expect_ok(), json!({ "delivered": true }));
    assert_eq!(receiver.next().await.json()["event"], "test");
    receiver.answer_next(500);
    let failed = json!({ "delivered": false, "error": "it answered 500" });
    assert_eq!(test().await.expect_ok(), failed);
    let settings = fixture.bob.notification_settings().await;
    let channel = &settings["channels"][0];
    assert_eq!(channel["last_error"], "it answered 500");
    assert!(channel["last_delivery"].is_string());
    for _ in 0..3 {
        test().await.expect_ok();
    }
    let (code, _) = test().await.expect_refusal(429);
    assert_eq!(code, "RATE_LIMITED");
    let stranger = fixture.ann.api.request("POST", &path, None).await;
    stranger.expect_refusal(404);
}
