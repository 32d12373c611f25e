//! A server that asks nobody who they are.

use serde_json::json;

use crate::http::{Api, joining, kept, stored};
use crate::kit::{Client, Invited, Server};
use crate::room::{ROOM, context};

fn claimed(id: &str, roles: &[&str], agent: bool) -> Invited {
    Invited {
        token: String::new(),
        participant: id.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        agent,
    }
}

fn envelope(who: &str, kind: &str, payload: serde_json::Value) -> serde_json::Value {
    json!({ "sender": who, "type": kind, "payload": payload })
}

#[tokio::test]
async fn anyone_joins_speaks_and_votes_by_saying_who_they_are() {
    let server = Server::start(&["--open"]).await;
    let api = Api::anyone(&server).await;
    let (ann, eve) = (
        claimed("ann", &["driver", "approver"], false),
        claimed("eve", &["observer"], false),
    );
    let bot = claimed("bot", &["driver"], true);
    // Nothing is said in a session that is not there, or before joining it.
    let add = envelope("ann", "context.add", context("early"));
    assert_eq!(
        api.send(ROOM, add.clone()).await.refused(404).1,
        "there is no session `room`"
    );
    let mut agent = Client::connect(&server.address, None, "bot").await;
    agent.join(ROOM, &bot, json!({})).await;
    let before = stored(&server, ROOM);
    let refused = api.send(ROOM, add.clone()).await.refused(403);
    assert_eq!(
        refused,
        (
            "UNAUTHORIZED".to_owned(),
            "join the session first: send `session.join`".to_owned()
        )
    );
    let nameless = api
        .send(
            ROOM,
            json!({ "type": "context.add", "payload": context("k") }),
        )
        .await;
    assert_eq!(
        nameless.refused(400).1,
        "not a PVP message: missing field `sender`"
    );
    let system = api
        .send(
            ROOM,
            envelope(
                "system",
                "session.join",
                joining(&claimed("system", &["admin"], false)),
            ),
        )
        .await;
    assert_eq!(system.refused(403).1, "nobody but the server is `system`");
    let other = api
        .send(ROOM, envelope("ann", "session.join", joining(&eve)))
        .await
        .refused(403);
    assert_eq!(
        other.1,
        "you are `ann` here; `participant.id` may not say `eve`"
    );
    assert_eq!(stored(&server, ROOM), before);

    for who in [&ann, &eve] {
        api.send(
            ROOM,
            envelope(&who.participant, "session.join", joining(who)),
        )
        .await
        .ok();
    }
    api.send(ROOM, add).await.ok();
    let proposal = agent.propose("touch a").await;
    let ballot = envelope(
        "ann",
        "gate.approve",
        json!({ "gate": proposal, "approver": "ann" }),
    );
    api.send(ROOM, ballot).await.ok();
    let gate = api
        .get(&format!("/api/sessions/{ROOM}/gates/{proposal}"))
        .await
        .ok();
    assert_eq!(gate["status"], "approved");
    let execute = agent.wait_for("tool.execute").await;
    assert!(execute["payload"]["grant"]["nonce"].is_string());
    let forged = envelope(
        "eve",
        "gate.approve",
        json!({ "gate": proposal, "approver": "ann" }),
    );
    assert_eq!(api.send(ROOM, forged).await.status, 403);
    agent.settle().await;
    assert_eq!(api.whole(ROOM, 100).await, kept(&agent.received));
}

#[tokio::test]
async fn who_does_not_say_who_they_are_sees_what_everyone_may() {
    let server = Server::start(&["--open"]).await;
    let api = Api::anyone(&server).await;
    let (ann, bot) = (
        claimed("ann", &["driver", "approver"], false),
        claimed("bot", &["driver"], true),
    );
    let mut agent = Client::connect(&server.address, None, "bot").await;
    agent.join(ROOM, &bot, json!({})).await;
    let mut socket = Client::connect(&server.address, None, "ann").await;
    socket.join(ROOM, &ann, json!({})).await;
    let mut secret = context("plum");
    secret["visible_to"] = json!(["ann"]);
    socket.say("context.add", secret).await;
    let start = json!({ "agent": "bot", "prompt_ref": "kiwi", "visible_to": "approvers_only" });
    agent.say("thinking.start", start).await;
    let proposal = agent.propose("touch a").await;
    socket.approve(&proposal).await;
    agent.wait_for("tool.execute").await;
    socket.settle().await;
    let mut public = kept(&socket.received);
    public.retain(|message| {
        let text = message.to_string();
        !text.contains("plum") && !text.contains("kiwi")
    });
    assert_eq!(public.len() + 2, stored(&server, ROOM).len());
    assert_eq!(api.whole(ROOM, 100).await, public);
    let transcript = api.get(&format!("/sessions/{ROOM}/transcript")).await.ok();
    assert_eq!(transcript["messages"], json!(public));
    let gates = api.get("/api/gates").await.ok();
    assert_eq!(gates["gates"], json!([]));
    let sessions = api.get("/api/sessions").await.ok();
    assert_eq!(sessions["sessions"][0]["session"], ROOM);
}

#[tokio::test]
async fn what_takes_a_token_takes_one_on_an_open_server_too() {
    let server = Server::start(&["--open"]).await;
    let api = Api::anyone(&server).await;
    let mut agent = Client::connect(&server.address, None, "bot").await;
    agent
        .join(ROOM, &claimed("bot", &["driver"], true), json!({}))
        .await;
    let proposal = agent.propose("touch a").await;
    let before = stored(&server, ROOM);
    let gate = format!("/api/sessions/{ROOM}/gates/{proposal}");
    let edit = json!({ "arguments": {}, "digest": "0".repeat(64) });
    for (method, path, body) in [
        ("POST", "/api/sessions".to_owned(), Some(json!({}))),
        (
            "POST",
            "/api/invites".to_owned(),
            Some(json!({ "name": "x", "roles": ["admin"] })),
        ),
        ("GET", "/api/me".to_owned(), None),
        ("DELETE", "/api/tokens/0123".to_owned(), None),
        (
            "POST",
            format!("{gate}/vote"),
            Some(json!({ "vote": "approve" })),
        ),
        ("POST", format!("{gate}/amend"), Some(edit)),
    ] {
        let refused = api.ask(method, &path, body).await.refused(401);
        let sentence = "this takes a token; ask for an invitation";
        assert_eq!(
            refused,
            ("UNAUTHORIZED".to_owned(), sentence.to_owned()),
            "{method} {path}"
        );
    }
    assert_eq!(stored(&server, ROOM), before);
    let ann = server.invite("ann", &["approver"], &[]);
    let voted = Api::of(&server, &ann)
        .await
        .vote(ROOM, &proposal, json!({ "vote": "approve" }))
        .await
        .ok();
    assert_eq!(voted["gate"]["status"], "approved");
    let mut wrong = ann.clone();
    wrong.token.pop();
    assert_eq!(
        Api::of(&server, &wrong)
            .await
            .get("/api/gates")
            .await
            .status,
        401
    );
}
