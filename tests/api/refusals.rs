//! What the API refuses: with a status, a code and a message, and without changing anything.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, amend_body, approve_vote, context_payload};
use crate::http_client::HttpTestClient;
use crate::support::TEST_TIMEOUT;

const MIB: usize = 1024 * 1024;

const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const INVALID_STATE: &str = "INVALID_STATE";
const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn refusal(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

/// Every operation of the document, with its path parameters filled in.
fn operations(api: &HttpTestClient, gate: &str) -> Vec<(String, String, &'static Value)> {
    let mut all = Vec::new();
    for (path, methods) in api.openapi()["paths"].as_object().unwrap() {
        let names = [
            ("session", SESSION),
            ("gate", gate),
            ("ref", gate),
            ("proposal", gate),
            ("token", "0123"),
        ];
        let filled = names.iter().fold(path.clone(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        });
        for (method, operation) in methods.as_object().unwrap() {
            all.push((method.to_uppercase(), filled.clone(), operation));
        }
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

/// A body that the route would accept.
fn valid_body(method: &str, path: &str) -> Option<Value> {
    if method != "POST" {
        return None;
    }
    Some(match path.rsplit('/').next().unwrap() {
        "vote" => approve_vote(),
        "amend" => amend_body("touch z", &"0".repeat(64)),
        "invites" => json!({ "name": "x", "roles": ["observer"] }),
        "codes" => json!({ "roles": ["observer"] }),
        "sessions" => json!({ "session": "made" }),
        "proposals" => json!({
            "id": "made", "tool_name": "shell", "arguments": { "full_command": "touch z" },
            "category": "shell_execute",
        }),
        _ => json!({ "type": "context.add", "payload": context_payload("k") }),
    })
}

fn token_id(user: &ApiUser) -> &str {
    user.user.token.split('_').nth(1).unwrap()
}

#[tokio::test]
async fn nothing_is_accessible_without_a_valid_token() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let gate = fixture.propose("touch a").await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    let mut wrong = fixture.ann.user.clone();
    wrong.token.pop();
    let wrong = HttpTestClient::with_token(&fixture.server, &wrong).await;
    let brief = fixture
        .server
        .invite("brief", &["admin"], &["--expires", "1s"]);
    let brief = HttpTestClient::with_token(&fixture.server, &brief).await;
    let gone = ApiUser::invite(&fixture.server, "gone", &["admin"]).await;
    assert_eq!(
        gone.api.get("/api/me").await.expect_ok()["participant"],
        gone.id()
    );
    let admin = HttpTestClient::with_token(&fixture.server, &fixture.server.admin()).await;
    let path = format!("/api/tokens/{}", token_id(&gone));
    let revoked = admin.request("DELETE", &path, None).await;
    assert_eq!((revoked.status, revoked.text.as_str()), (204, ""));
    let begun = std::time::Instant::now();
    while brief.get("/api/me").await.status == 200 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it does not expire");
    }
    let before = fixture.log();
    for (method, path, operation) in operations(&nobody, &gate) {
        if operation["security"] == json!([]) {
            let answer = nobody.request(&method, &path, None).await;
            // A join code is what counts there, and none was sent.
            let expected = match path.starts_with("/api/join") {
                true => 400,
                false => 200,
            };
            assert_eq!(answer.status, expected, "{method} {path}");
            continue;
        }
        // A vote link has a secret of its own, which is no token.
        if path == "/api/vote" {
            let answer = nobody.request(&method, &path, valid_body(&method, &path));
            assert_eq!(answer.await.expect_refusal(401).0, UNAUTHORIZED);
            continue;
        }
        for (api, sentence) in [
            (
                &nobody,
                "there is no token; send one as `Authorization: Bearer` or `?token=`",
            ),
            (&wrong, "this is not a PVP token; ask for an invitation"),
            (&brief, "the token has expired; ask for a new invitation"),
            (&gone.api, "the token was revoked; ask for a new invitation"),
        ] {
            let answer = api
                .request(&method, &path, valid_body(&method, &path))
                .await;
            assert_eq!(
                answer.expect_refusal(401),
                refusal(UNAUTHORIZED, sentence),
                "{method} {path}"
            );
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
    assert_eq!(fixture.log(), before);
}

#[tokio::test]
async fn a_token_for_one_session_opens_no_other() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let gate = fixture.propose("touch a").await;
    fixture.server.create_session("other", json!({})).await;
    let bound = fixture
        .server
        .invite("pat", &["admin", "approver"], &["--session", "other"]);
    let bound = HttpTestClient::with_token(&fixture.server, &bound).await;
    let before = fixture.log();
    for (method, path, _) in operations(&bound, &gate) {
        if path.contains(SESSION) {
            let answer = bound
                .request(&method, &path, valid_body(&method, &path))
                .await;
            let expected = refusal(UNAUTHORIZED, "this token is for another session");
            assert_eq!(answer.expect_refusal(403), expected, "{method} {path}");
        }
    }
    assert_eq!(fixture.log(), before);
}

#[tokio::test]
async fn unknown_names_are_not_found() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let ann = &fixture.ann.api;
    let before = fixture.log();
    for (method, path, _) in operations(ann, "p1") {
        if path.contains(SESSION) {
            let path = path.replace(SESSION, "nowhere");
            let answer = ann
                .request(&method, &path, valid_body(&method, &path))
                .await;
            let expected = refusal("SESSION_NOT_FOUND", "there is no session `nowhere`");
            assert_eq!(answer.expect_refusal(404), expected, "{method} {path}");
        }
    }
    let (gate, output) = (
        "there is no gate and no proposal `p1`",
        "there is no proposal `p1`",
    );
    for (method, path, _) in operations(ann, "p1") {
        if path.contains("p1") {
            let sentence = if path.contains("outputs") || path.ends_with("decision") {
                output
            } else {
                gate
            };
            let answer = ann
                .request(&method, &path, valid_body(&method, &path))
                .await;
            assert_eq!(
                answer.expect_refusal(404),
                refusal(INVALID_STATE, sentence),
                "{method} {path}"
            );
        }
    }
    let answer = ann.request("DELETE", "/api/tokens/nothing", None).await;
    assert_eq!(
        answer.expect_refusal(404),
        refusal(INVALID_MESSAGE, "there is no such token")
    );
    for path in [
        "/api",
        "/api/",
        "/api/sessions/",
        "/api/sessions/room/",
        "/api/me/",
        "/nothing",
    ] {
        let sentence = format!("there is no `{path}` here; /openapi.json lists what there is");
        assert_eq!(
            ann.get(path).await.expect_refusal(404),
            refusal(INVALID_MESSAGE, &sentence)
        );
    }
    assert_eq!(fixture.log(), before);
    // A read, which runs at once, and a blocked command have no gate.
    let read = fixture.propose("ls").await;
    let path = format!("/api/sessions/{SESSION}/gates/{read}");
    let sentence = format!("`{read}` never waited at a gate");
    assert_eq!(
        fixture.ann.api.get(&path).await.expect_refusal(409),
        refusal(INVALID_STATE, &sentence)
    );
}

#[tokio::test]
async fn a_route_accepts_only_its_own_methods_and_parameters() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let gate = fixture.propose("touch a").await;
    let ann = &fixture.ann.api;
    let before = fixture.log();
    for (method, path, operation) in operations(ann, &gate) {
        let all = operations(ann, &gate);
        let is_taken = |other: &str| all.iter().any(|(one, at, _)| one == other && *at == path);
        let others = ["PUT", "PATCH", "OPTIONS"].into_iter();
        for other in others.filter(|other| !is_taken(other)) {
            let answer = ann.request(other, &path, None).await;
            let sentence = format!("`{path}` takes another method than {other}");
            assert_eq!(
                answer.expect_refusal(405),
                refusal(INVALID_MESSAGE, &sentence)
            );
            assert!(answer.headers["allow"].contains(&method), "{answer:?}");
        }
        if operation["security"] == json!([]) || path == "/api/vote" {
            continue;
        }
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let parameters = parameters.filter(|one| one["in"] == "query");
        let names: Vec<_> = parameters
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        let body = || valid_body(&method, &path);
        for key in ["nonsense", "After", "%61fter"] {
            let answer = ann
                .request(&method, &format!("{path}?{key}=1"), body())
                .await;
            let sentence = match names.as_slice() {
                [] => format!("there is no parameter `{key}`; this takes none"),
                names => format!("there is no parameter `{key}`; use {}", names.join(", ")),
            };
            assert_eq!(
                answer.expect_refusal(400),
                refusal(INVALID_MESSAGE, &sentence),
                "{method} {path}"
            );
        }
        for name in names {
            let parameters = operation["parameters"].as_array().unwrap();
            let parameter = parameters.iter().find(|one| one["name"] == name);
            let twice = format!("{path}?{name}=1&{name}=1");
            let twice = ann.request(&method, &twice, None).await;
            assert_eq!(twice.expect_refusal(400).0, INVALID_MESSAGE);
            let bad: &[&str] = match parameter.unwrap()["schema"]["type"].as_str().unwrap() {
                "integer" => &["", "-1", "x", "1.5", "0x1", "99999999999999999999999"],
                "boolean" => &["", "1", "yes"],
                _ => &[],
            };
            for value in bad {
                let query = format!("{path}?{name}={value}");
                let answer = ann.request(&method, &query, None).await;
                let (code, sentence) = answer.expect_refusal(400);
                assert_eq!(code, INVALID_MESSAGE);
                assert!(
                    sentence.contains(&format!("{name}: ")),
                    "{path}?{name}={value}: {sentence}"
                );
            }
        }
    }
    for (path, name) in [
        ("outputs/x?stream=both", "stream"),
        ("outputs/x?format=xml", "format"),
        ("history?status=odd", "status"),
    ] {
        let (code, sentence) = ann
            .get(&format!("/api/sessions/{SESSION}/{path}"))
            .await
            .expect_refusal(400);
        assert_eq!(code, INVALID_MESSAGE);
        assert!(sentence.contains(name), "{sentence}");
    }
    assert_eq!(fixture.log(), before);
}

#[tokio::test]
async fn a_body_that_does_not_fit_the_route_is_refused() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let gate = fixture.propose("touch a").await;
    let ann = &fixture.ann.api;
    let before = fixture.log();
    let json_type: &[(&str, &str)] = &[("Content-Type", "application/json")];
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    for (method, path, operation) in operations(ann, &gate) {
        if method != "POST" {
            continue;
        }
        // A vote link is looked at before the body that came with it.
        if operation.get("requestBody").is_none() || path == "/api/vote" {
            continue;
        }
        assert_eq!(operation["requestBody"]["required"], true);
        let message = path.ends_with("/messages");
        let good = valid_body(&method, &path).unwrap();
        let mut unknown = good.clone();
        unknown["surprise"] = json!(1);
        let mut nested = good.clone();
        nested["deep"] = serde_json::from_str(&deep(100)).unwrap();
        let mut bodies = vec![
            (Vec::new(), 400),
            (b"{".to_vec(), 400),
            (b"[]".to_vec(), 400),
            (b" [\"approve\"]".to_vec(), 400),
            (b"null".to_vec(), 400),
            (b"\"text\"".to_vec(), 400),
            (b"{\"a\": \xff}".to_vec(), 400),
            (deep(100_000 / 4).into_bytes(), 400),
            (nested.to_string().into_bytes(), 400),
            (format!("{good} {good}").into_bytes(), 400),
        ];
        if !message {
            bodies.push((unknown.to_string().into_bytes(), 400));
        }
        let most = if message { MIB } else { 64 * 1024 };
        bodies.push((format!("{good}{}", " ".repeat(most)).into_bytes(), 413));
        for (body, status) in bodies {
            let answer = ann.raw_request("POST", &path, json_type, &body).await;
            let (code, sentence) = answer.expect_refusal(status);
            assert_eq!(code, INVALID_MESSAGE, "{path}: {sentence}");
        }
        if !message {
            let sentence = "send JSON, with `Content-Type: application/json`";
            for kind in ["text/plain", "application/x-www-form-urlencoded", "json"] {
                let (headers, good) = ([("Content-Type", kind)], good.to_string());
                let answer = ann.raw_request("POST", &path, &headers, good.as_bytes());
                assert_eq!(
                    answer.await.expect_refusal(400),
                    refusal(INVALID_MESSAGE, sentence)
                );
            }
        }
    }
    assert_eq!(fixture.log(), before);
    assert_eq!(fixture.gate(&gate).await["status"], "open");
}

#[tokio::test]
async fn a_message_that_may_not_be_sent_changes_nothing() {
    let mut fixture = ApiFixture::new(json!({})).await;
    fixture.propose("touch a").await;
    let (ann, bob) = (&fixture.ann, &fixture.bob);
    let first = json!({ "id": "once", "type": "context.add", "payload": context_payload("first") });
    assert_eq!(
        ann.api
            .send_envelope(SESSION, first.clone())
            .await
            .expect_ok()["duplicate"],
        Value::Null
    );
    let add = |more: Value| {
        let mut envelope =
            json!({ "id": "refused", "type": "context.add", "payload": context_payload("k") });
        envelope
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        envelope
    };
    let other =
        json!({ "id": "once", "type": "context.add", "payload": context_payload("second") });
    let not_you = format!(
        "`sender` is `{}`, but you are `{}`; name yourself",
        bob.id(),
        ann.id()
    );
    let approver = format!(
        "`approver` is `{}`, but you are `{}`; name yourself",
        bob.id(),
        ann.id()
    );
    let before = fixture.log();
    for (envelope, status, code, sentence) in [
        (
            add(json!({ "sender": bob.id() })),
            403,
            UNAUTHORIZED,
            not_you.as_str(),
        ),
        (
            add(json!({ "sender": "system" })),
            403,
            UNAUTHORIZED,
            "`system` is reserved for the server",
        ),
        (
            add(json!({ "session": "other" })),
            400,
            INVALID_MESSAGE,
            "this is session `room`; `session` may not say `other`",
        ),
        (
            add(json!({ "v": 2 })),
            400,
            INVALID_MESSAGE,
            "`v` is 2; this server speaks version 1",
        ),
        (
            add(json!({ "type": "tool.execute" })),
            400,
            INVALID_MESSAGE,
            "clients cannot send `tool.execute`",
        ),
        (
            add(json!({ "type": "session.create", "payload": { "config": {} } })),
            409,
            INVALID_STATE,
            "session `room` exists already; join it, or create one with another id",
        ),
        (
            add(json!({ "type": "output.read", "payload": { "ref": "once" } })),
            400,
            INVALID_MESSAGE,
            "read output with GET /api/sessions/{session}/outputs/{ref}",
        ),
        (
            add(
                json!({ "type": "gate.approve", "payload": { "gate": "x", "approver": bob.id() } }),
            ),
            403,
            UNAUTHORIZED,
            approver.as_str(),
        ),
        (
            add(json!({ "type": "context.remove", "payload": { "key": "none", "reason": "r" } })),
            409,
            INVALID_STATE,
            "there is no context `none`",
        ),
        (
            add(json!({ "fork": "f" })),
            409,
            INVALID_STATE,
            "forks and merges are not available on this server",
        ),
        (
            other,
            400,
            INVALID_MESSAGE,
            "the id `once` was used for another message; give every message its own id",
        ),
    ] {
        let answer = ann.api.send_envelope(SESSION, envelope.clone()).await;
        assert_eq!(
            answer.expect_refusal(status),
            refusal(code, sentence),
            "{envelope}"
        );
        assert_eq!(answer.json()["related_to"], envelope["id"]);
        assert_eq!(fixture.log(), before, "{envelope}");
    }
    for envelope in [
        add(json!({ "id": null })),
        add(json!({ "id": "not an id" })),
        add(json!({ "sender": 7 })),
        add(json!({ "payload": [] })),
        add(json!({ "payload": { "key": 1 } })),
        json!({}),
    ] {
        assert_eq!(
            ann.api
                .send_envelope(SESSION, envelope)
                .await
                .expect_refusal(400)
                .0,
            INVALID_MESSAGE
        );
        assert_eq!(fixture.log(), before);
    }
    // An observer cannot change anything, whatever the message claims.
    let needs = "you need the capability `add_context`; ask an admin for a role that has it";
    let refused = fixture
        .eve
        .api
        .send_message(SESSION, "context.add", context_payload("k"))
        .await;
    assert_eq!(refused.expect_refusal(403), refusal(UNAUTHORIZED, needs));
    assert_eq!(fixture.log(), before);
    // The same message again gets the same acknowledgement.
    let seq = before.iter().find(|entry| entry["id"] == "once").unwrap()["seq"].clone();
    let again = ann.api.send_envelope(SESSION, first).await.expect_ok();
    assert_eq!(
        again,
        json!({ "id": "once", "seq": seq, "duplicate": true })
    );
    assert_eq!(fixture.log(), before);
}
