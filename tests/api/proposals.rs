//! The call made for hooks: propose, wait, hear the decision.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, reject_vote};
use crate::http_client::HttpResponse;
use crate::support::session::assert_within_a_lease;
use crate::support::{TestServer, decode_chunked, read_to_close};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATH: &str = "/api/sessions/room/proposals";

/// A call that a client would run.
fn call(id: &str, line: &str) -> Value {
    json!({
        "id": id, "tool_name": "shell", "arguments": { "full_command": line },
        "category": "shell_execute", "runs": "client",
        "origin": { "client": "claude", "call": id },
    })
}

/// Asks without waiting.
async fn ask(user: &ApiUser, body: Value) -> HttpResponse {
    user.api.post(PATH, body).await
}

/// Asks, and waits for a decision.
async fn ask_and_wait(user: &ApiUser, body: Value) -> HttpResponse {
    user.api.post(&format!("{PATH}?wait=60"), body).await
}

#[tokio::test]
async fn the_answer_comes_with_the_decision_and_says_who_is_asked_before() {
    let fixture = ApiFixture::new(json!({})).await;
    let waiting = ask(&fixture.bot, call("c1", "touch a")).await.expect_ok();
    assert_eq!(waiting["decision"], "waiting");
    assert_eq!(waiting["repeated"], false);
    let awaits = &waiting["awaits"];
    let mut awaited: Vec<_> = awaits["awaited"].as_array().unwrap().clone();
    awaited.sort_by_key(ToString::to_string);
    assert_eq!(awaited, [fixture.ann.id(), fixture.bob.id()]);
    assert_eq!(
        (&awaits["received"], &awaits["required"]),
        (&json!(0), &json!(1))
    );
    let decided = ask_and_wait(&fixture.bot, call("c1", "touch a"));
    let voted = async {
        let vote = fixture.ann.api.vote(SESSION, "c1", approve_vote()).await;
        vote.expect_ok();
    };
    let (decided, ()) = tokio::join!(decided, voted);
    let decided = decided.expect_ok();
    assert_eq!(decided["decision"], "allowed");
    assert_eq!(decided["repeated"], true);
    assert_eq!(decided["arguments"]["full_command"], "touch a");
    assert_eq!(decided.get("awaits"), None);
    assert_eq!(decided["command"]["degree"], "hooked");
}

#[tokio::test]
async fn a_denial_says_who_and_why_or_which_rule() {
    let fixture = ApiFixture::new(json!({})).await;
    ask(&fixture.bot, call("c1", "rm -r src")).await.expect_ok();
    let vote = reject_vote("keep the sources");
    fixture.ann.api.vote(SESSION, "c1", vote).await.expect_ok();
    let denied = ask(&fixture.bot, call("c1", "rm -r src")).await.expect_ok();
    assert_eq!(denied["decision"], "denied");
    let expected = format!(
        "Rejected by {}: keep the sources. It did not run.",
        fixture.ann.id()
    );
    assert_eq!(denied["reason"], expected);
    let blocked = ask_and_wait(&fixture.bot, call("c2", "rm -rf /"))
        .await
        .expect_ok();
    assert_eq!(blocked["decision"], "denied");
    let reason = blocked["reason"].as_str().unwrap();
    assert!(reason.starts_with("Blocked by rule `"), "{reason}");
    assert_eq!(blocked["category"], "blocked");
}

#[tokio::test]
async fn a_call_that_has_ended_is_never_allowed_again() {
    let mut fixture = ApiFixture::new(json!({})).await;
    ask(&fixture.bot, call("c1", "touch a")).await.expect_ok();
    fixture
        .ann
        .api
        .vote(SESSION, "c1", approve_vote())
        .await
        .expect_ok();
    let path = format!("{PATH}/c1/decision?wait=60");
    let allowed = fixture.bot.api.get(&path).await.expect_ok();
    assert_eq!(allowed["decision"], "allowed");
    fixture.send_result("c1", 0).await;
    let again = ask(&fixture.bot, call("c1", "touch a")).await.expect_ok();
    assert_eq!(
        (&again["decision"], &again["repeated"]),
        (&json!("denied"), &json!(true))
    );
    // The same id never stands for another call.
    let other = ask(&fixture.bot, call("c1", "touch b")).await;
    assert!(other.status >= 400, "{other:?}");
    let before = fixture.log().len();
    ask(&fixture.bot, call("c1", "touch a")).await.expect_ok();
    assert_eq!(fixture.log().len(), before);
}

#[tokio::test]
async fn the_arguments_are_those_that_people_edited() {
    let fixture = ApiFixture::new(json!({})).await;
    let waiting = ask(&fixture.bot, call("c1", "rm -r all")).await.expect_ok();
    assert_eq!(waiting["decision"], "waiting");
    let digest = fixture.gate("c1").await["open"]["assessment"]["digest"].clone();
    let amend = json!({ "arguments": { "full_command": "rm -r build" }, "digest": digest });
    let path = format!("/api/sessions/{SESSION}/gates/c1/amend");
    fixture.ann.api.post(&path, amend).await.expect_ok();
    let digest = fixture.gate("c1").await["open"]["assessment"]["digest"].clone();
    let vote = json!({ "vote": "approve", "digest": digest });
    fixture.bob.api.vote(SESSION, "c1", vote).await.expect_ok();
    let allowed = ask(&fixture.bot, call("c1", "rm -r all")).await.expect_ok();
    assert_eq!(allowed["decision"], "allowed");
    assert_eq!(allowed["arguments"]["full_command"], "rm -r build");
}

#[tokio::test]
async fn only_its_proposer_waits_for_a_decision() {
    let fixture = ApiFixture::new(json!({})).await;
    ask(&fixture.bot, call("c1", "touch a")).await.expect_ok();
    let path = format!("{PATH}/c1/decision");
    for person in [&fixture.ann, &fixture.eve] {
        person.api.get(&path).await.expect_refusal(403);
        let stolen = ask(person, call("c1", "touch a")).await;
        assert!(stolen.status >= 400, "{stolen:?}");
    }
    let unknown = fixture.bot.api.get(&format!("{PATH}/c9/decision")).await;
    unknown.expect_refusal(404);
    // A call with a field that is not understood is refused, and so is one without an id.
    let mut typo = call("c2", "touch a");
    typo["degre"] = json!("held");
    ask(&fixture.bot, typo).await.expect_refusal(400);
    let mut nameless = call("c2", "touch a");
    nameless.as_object_mut().unwrap().remove("id");
    ask(&fixture.bot, nameless).await.expect_refusal(400);
}

#[tokio::test]
async fn while_nothing_is_decided_spaces_say_that_the_server_is_there() {
    let fixture = ApiFixture::new(json!({})).await;
    let body = call("c1", "touch a").to_string();
    let mut stream = TcpStream::connect(&fixture.server.address).await.unwrap();
    let head = format!(
        "POST {PATH}?wait=60 HTTP/1.1\r\nConnection: close\r\nHost: {}\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        fixture.server.address,
        fixture.bot.api.bearer().unwrap(),
        body.len(),
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut read = String::new();
    let first = loop {
        let begun = read
            .split_once("\r\n\r\n")
            .map(|(_, body)| decode_chunked(body));
        if let Some(begun) = begun.filter(|begun| !begun.is_empty()) {
            break begun;
        }
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "it ended: {read}");
        read += std::str::from_utf8(&bytes[..count]).unwrap();
    };
    assert_eq!(first, " ");
    let gate = fixture.gate("c1").await;
    assert_eq!(gate["open"]["received"], 0, "{gate}");
    let vote = fixture.ann.api.vote(SESSION, "c1", approve_vote()).await;
    vote.expect_ok();
    read += &String::from_utf8(read_to_close(&mut stream).await).unwrap();
    let (head, rest) = read.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let answer: Value = serde_json::from_str(&decode_chunked(rest)).unwrap();
    assert_eq!(answer["decision"], "allowed");
}

#[tokio::test]
async fn a_request_that_waits_keeps_its_call_and_one_that_is_gone_loses_it() {
    let fixture = ApiFixture::new(json!({})).await;
    let server: &TestServer = &fixture.server;
    let watcher = server.invite("watcher", &["approver"], &[]);
    let mut watcher = server.join(SESSION, &watcher).await;
    ask(&fixture.bot, call("gone", "touch a")).await.expect_ok();
    let asked = watcher.wait_for("tool.propose").await;
    let waits = ask_and_wait(&fixture.bot, call("held", "touch b"));
    let is_end = |message: &Value| {
        message["type"] == "gate.resolve" && message["payload"]["tool_proposal"] == "gone"
    };
    // The lease of what nobody waits for ends; until then the other one is renewed.
    let ended = async {
        let ended = watcher.wait(is_end).await;
        assert_eq!(ended["payload"]["outcome"], "cancelled");
        assert_within_a_lease(&asked, &ended);
        let gate = fixture.gate("held").await;
        assert_eq!(gate["open"]["received"], 0, "{gate}");
        fixture
            .ann
            .api
            .vote(SESSION, "held", approve_vote())
            .await
            .expect_ok();
    };
    let (decided, ()) = tokio::join!(waits, ended);
    assert_eq!(decided.expect_ok()["decision"], "allowed");
    let gone = ask(&fixture.bot, call("gone", "touch a")).await.expect_ok();
    assert_eq!(gone["decision"], "denied");
    let reason = gone["reason"].as_str().unwrap();
    assert!(reason.contains("gone"), "{reason}");
}
