//! What is refused: addresses that the server must not be sent to, and what people may not set.

use serde_json::{Value, json};

use super::trusting_fixture;
use crate::fixture::{ApiFixture, ApiUser, SESSION};
use crate::support::http_receiver::HttpReceiver;
use crate::support::push_browser::PushBrowser;

#[tokio::test]
async fn people_cannot_send_the_server_to_addresses_that_are_not_public() {
    let mut receiver = HttpReceiver::start().await;
    let fixture = ApiFixture::new(json!({})).await;
    let port = receiver.address.rsplit(':').next().unwrap().to_owned();
    let browser = PushBrowser::default();
    for address in [
        format!("http://127.0.0.1:{port}/x"),
        format!("https://127.0.0.1:{port}/x"),
        "https://127.0.0.1/x".to_owned(),
        "https://127.1/x".to_owned(),
        "https://2130706433/x".to_owned(),
        "https://0x7f.0.0.1/x".to_owned(),
        "https://localhost/x".to_owned(),
        "https://localhost:8443/x".to_owned(),
        "https://LOCALHOST./x".to_owned(),
        "https://10.0.0.1/x".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://100.64.0.1/x".to_owned(),
        "https://192.168.1.1/x".to_owned(),
        "https://[::1]/x".to_owned(),
        "https://[::ffff:127.0.0.1]/x".to_owned(),
        "https://[fd00::1]/x".to_owned(),
        "https://[fe80::1]/x".to_owned(),
        "https://example.com:22/x".to_owned(),
        "http://example.com/x".to_owned(),
        "https://user:pw@example.com/x".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:25/x".to_owned(),
    ] {
        for kind in ["webhook", "ntfy", "slack", "discord"] {
            let body = json!({ "kind": kind, "label": "x", "target": address });
            let answer = fixture
                .bob
                .api
                .post("/api/notifications/channels", body)
                .await;
            answer.expect_refusal(400);
        }
        let subscription = browser.subscription(&address);
        let answer = fixture
            .bob
            .api
            .post("/api/push/subscriptions", subscription)
            .await;
        answer.expect_refusal(400);
    }
    assert!(receiver.try_next().is_none(), "nobody came");
    assert_eq!(
        fixture.bob.notification_settings().await["channels"],
        json!([])
    );
}

#[tokio::test]
async fn a_host_that_is_trusted_no_more_is_not_reached_any_more() {
    let mut receiver = HttpReceiver::start().await;
    let data = tempfile::tempdir().unwrap();
    let start = async |settings: &'static str| {
        let environment = [("PVP_NOTIFICATIONS", settings)];
        let data = data.path();
        crate::support::TestServer::start_with(data, "127.0.0.1:0", &[], &environment, None).await
    };
    let server = start(super::TRUSTING).await;
    let admin = server.admin();
    let user = ApiUser::with_user(&server, admin.clone()).await;
    let channel = user.add_webhook(&receiver).await;
    assert!(server.stop().await.success());
    let server = start("").await;
    let user = ApiUser::with_user(&server, admin).await;
    let path = format!(
        "/api/notifications/channels/{}/test",
        channel["id"].as_str().unwrap()
    );
    let answer = user.api.request("POST", &path, None).await.expect_ok();
    assert_eq!(answer["delivered"], false);
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("must begin with https://"), "{error}");
    assert!(receiver.try_next().is_none());
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_and_says_why() {
    let receiver = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "kinds = [\"push\", \"webhook\", \"ntfy\"]").await;
    let api = &fixture.bob.api;
    let url = receiver.url("/x");
    let channel = |changes: Value| {
        let mut body = json!({ "kind": "webhook", "label": "x", "target": url });
        for (key, value) in changes.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    for (body, status, problem) in [
        (
            channel(json!({ "label": "" })),
            400,
            "`label` has 1 to 100 characters",
        ),
        (
            channel(json!({ "label": "a\nb" })),
            400,
            "`label` has 1 to 100 characters",
        ),
        (
            channel(json!({ "label": "x".repeat(101) })),
            400,
            "`label` has 1 to 100",
        ),
        (channel(json!({ "kind": "fax" })), 400, "fax"),
        (
            channel(json!({ "kind": "push" })),
            400,
            "/api/push/subscriptions",
        ),
        (
            channel(json!({ "kind": "slack" })),
            403,
            "use push, webhook, ntfy",
        ),
        (
            channel(json!({ "kind": "ntfy", "target": receiver.url("/a/b") })),
            400,
            "the topic",
        ),
        (channel(json!({ "secret": "short" })), 400, "whsec_"),
        (
            channel(json!({ "secrets": "x" })),
            400,
            "did you mean `secret`",
        ),
    ] {
        let answer = api.post("/api/notifications/channels", body).await;
        let (_, message) = answer.expect_refusal(status);
        assert!(message.contains(problem), "{message}");
    }
    let quiet = |from: &str, zone: &str| json!({ "events": [], "quiet_hours": { "from": from, "to": "07:00", "time_zone": zone } });
    let many: Vec<_> = (0..101).map(|number| format!("s{number}")).collect();
    for (body, status, problem) in [
        (json!({}), 400, "missing field `events`"),
        (json!({ "events": ["opend"] }), 400, "did you mean `opened`"),
        (quiet("25:00", "UTC"), 400, "`25:00` is not a time of day"),
        (
            quiet("22:00", "Mars/Base"),
            400,
            "there is no time zone `Mars/Base`",
        ),
        (
            quiet("07:00", "UTC"),
            400,
            "begin and end at different times",
        ),
        (
            json!({ "events": [], "sessions": many }),
            429,
            "at most 100",
        ),
        (
            json!({ "events": [], "vote_links": true }),
            403,
            "does not allow vote links",
        ),
    ] {
        let answer = api.request("PUT", "/api/notifications", Some(body)).await;
        let (_, message) = answer.expect_refusal(status);
        assert!(message.contains(problem), "{message}");
    }
    let keys = json!({ "endpoint": url, "keys": { "p256dh": "x", "auth": "y" } });
    let (_, message) = api
        .post("/api/push/subscriptions", keys)
        .await
        .expect_refusal(400);
    assert!(
        message.contains("not those of a push subscription"),
        "{message}"
    );
    let settings = fixture.bob.notification_settings().await;
    assert_eq!(settings["channels"], json!([]), "nothing was added");
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_and_an_open_server_notifies_nobody() {
    let fixture = ApiFixture::new(json!({})).await;
    let nobody = crate::http_client::HttpTestClient::anonymous(&fixture.server).await;
    for (method, path) in [
        ("GET", "/api/notifications"),
        ("GET", "/api/push/key"),
        ("DELETE", "/api/notifications/channels/x"),
        ("POST", "/api/notifications/channels/x/test"),
        ("DELETE", "/api/push/subscriptions/x"),
        ("GET", "/api/vote"),
    ] {
        nobody.request(method, path, None).await.expect_refusal(401);
    }
    let open = crate::support::TestServer::start(&["--open"]).await;
    let nobody = crate::http_client::HttpTestClient::anonymous(&open).await;
    nobody.get("/api/notifications").await.expect_refusal(401);
}

#[tokio::test]
async fn a_person_has_only_so_many_channels() {
    let receiver = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "").await;
    for _ in 0..10 {
        fixture.bob.add_webhook(&receiver).await;
    }
    let body = json!({ "kind": "webhook", "label": "x", "target": receiver.url("/x") });
    let answer = fixture
        .bob
        .api
        .post("/api/notifications/channels", body)
        .await;
    let (_, message) = answer.expect_refusal(429);
    assert!(message.contains("at most 10"), "{message}");
    fixture.ann.add_webhook(&receiver).await;
}

#[tokio::test]
async fn a_link_that_allows_less_cannot_silence_or_change_what_another_has_added() {
    let receiver = HttpReceiver::start().await;
    let fixture = trusting_fixture(json!({}), "").await;
    let channel = fixture.bob.add_webhook(&receiver).await;
    let path = format!(
        "/api/notifications/channels/{}",
        channel["id"].as_str().unwrap()
    );
    let same = ["--participant", fixture.bob.id()];
    let watching = fixture.server.invite("bob", &["observer"], &same);
    let bound = fixture.server.invite(
        "bob",
        &["approver"],
        &[&same[..], &["--session", SESSION]].concat(),
    );
    for (user, status) in [(watching, 403), (bound, 200)] {
        let weaker = ApiUser::with_user(&fixture.server, user).await;
        let off = Some(json!({ "enabled": false }));
        weaker
            .api
            .request("PATCH", &path, off)
            .await
            .expect_refusal(403);
        weaker
            .api
            .request("DELETE", &path, None)
            .await
            .expect_refusal(403);
        let test = format!("{path}/test");
        weaker
            .api
            .request("POST", &test, None)
            .await
            .expect_refusal(403);
        // One that may vote in one session sets what counts there for itself.
        let silence = Some(json!({ "events": [], "show_command": true }));
        let set = weaker.api.request("PUT", "/api/notifications", silence);
        assert_eq!(set.await.status, status);
    }
    let settings = fixture.bob.notification_settings().await;
    assert_eq!(settings["channels"][0]["enabled"], true);
    assert_eq!(
        settings["events"],
        json!(["opened", "escalated", "closing"])
    );
    assert_eq!(settings["show_command"], false);
}

#[tokio::test]
async fn what_a_weaker_link_has_set_before_does_not_count_for_a_stronger_one() {
    let mut receiver = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    let same = ["--participant", fixture.bob.id(), "--session", SESSION];
    let weak = fixture.server.invite("bob", &["approver"], &same);
    let weak = ApiUser::with_user(&fixture.server, weak).await;
    let set = json!({ "events": [], "show_command": true });
    weak.prefer(set.clone()).await;
    fixture.bob.add_webhook(&receiver).await;
    fixture.propose("touch a").await;
    let told = receiver.next().await.json();
    assert_eq!(
        (&told["event"], told.get("command")),
        (&json!("opened"), None)
    );
    assert_eq!(weak.notification_settings().await["events"], set["events"]);
    let settings = fixture.bob.notification_settings().await;
    assert_eq!(settings["show_command"], false);
}

#[tokio::test]
async fn a_link_for_one_session_does_not_lock_out_one_for_another() {
    let mut receiver = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    let here = fixture
        .server
        .invite("dora", &["approver"], &["--session", SESSION]);
    let same = ["--participant", &here.participant, "--session", "other"];
    let other = fixture.server.invite("dora", &["approver"], &same);
    let here = ApiUser::with_user(&fixture.server, here).await;
    let other = ApiUser::with_user(&fixture.server, other).await;
    for _ in 0..10 {
        other.add_webhook(&receiver).await;
    }
    let one_more = json!({ "kind": "webhook", "label": "x", "target": receiver.url("/x") });
    let path = "/api/notifications/channels";
    other.api.post(path, one_more).await.expect_refusal(429);
    here.add_webhook(&receiver).await;
    here.prefer(json!({ "show_command": true })).await;
    assert_eq!(other.notification_settings().await["show_command"], false);
    fixture.propose("touch mine").await;
    assert_eq!(receiver.next().await.json()["command"], "touch mine");
}
