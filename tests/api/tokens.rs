//! Tokens: where they are taken from, and who makes and revokes them.

use serde_json::{Value, json};

use crate::http::Api;
use crate::kit::Server;
use crate::room::{ROOM, Room, Someone};

const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn said(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

#[tokio::test]
async fn a_token_is_taken_in_the_header_before_the_query() {
    let room = Room::open(json!({})).await;
    let nobody = Api::anyone(&room.server).await;
    let in_query = format!("/api/me?token={}", room.ann.who.token);
    assert_eq!(
        nobody.get(&in_query).await.ok()["participant"],
        room.ann.id()
    );
    assert_eq!(
        room.bob.api.get(&in_query).await.ok()["participant"],
        room.bob.id()
    );
    let basic = [("Authorization", "Basic YW5uOmFubg==")];
    assert_eq!(nobody.raw("GET", "/api/me", &basic, b"").await.status, 401);
}

#[tokio::test]
async fn only_an_admin_invites_and_revokes() {
    let server = Server::start(&[]).await;
    server.create(ROOM, json!({})).await;
    let admin = Api::of(&server, &server.admin()).await;
    let made = admin.post(
        "/api/invites",
        json!({ "name": "Pat", "roles": ["approver"], "session": ROOM, "expires_seconds": 60 }),
    );
    let made = made.await.with(201);
    let token = made["token"].as_str().unwrap();
    assert_eq!(
        made["link"],
        format!("http://{}/?token={token}&session={ROOM}", server.address)
    );
    assert_eq!(made["roles"], json!(["approver"]));
    let nobody = Api::anyone(&server).await;
    let me = nobody.get(&format!("/api/me?token={token}")).await.ok();
    let expected = json!({
        "participant": made["participant"], "name": "Pat", "kind": "human", "roles": ["approver"],
        "session": ROOM, "expires": made["expires"],
    });
    assert_eq!(me, expected);
    let driver = Someone::invited(&server, "dan", &["driver", "approver"]).await;
    let bound = server.invite("bea", &["admin"], &["--session", ROOM]);
    let bound = Api::of(&server, &bound).await;
    let invite = |session: Value| json!({ "name": "x", "roles": ["observer"], "session": session });
    let (tokens, needs) = ("/api/tokens/0123", "inviting people takes an admin's token");
    assert_eq!(
        driver
            .api
            .post("/api/invites", invite(json!(ROOM)))
            .await
            .refused(403),
        said(UNAUTHORIZED, needs)
    );
    assert_eq!(
        driver.api.ask("DELETE", tokens, None).await.refused(403),
        said(UNAUTHORIZED, needs)
    );
    let alone = "your token is for `room`, so you may invite to it alone";
    for session in [Value::Null, json!("other")] {
        assert_eq!(
            bound
                .post("/api/invites", invite(session))
                .await
                .refused(403),
            said(UNAUTHORIZED, alone)
        );
    }
    bound
        .post("/api/invites", invite(json!(ROOM)))
        .await
        .with(201);
    let unbound = "revoking takes an admin token that is not bound to a session";
    assert_eq!(
        bound.ask("DELETE", tokens, None).await.refused(403),
        said(UNAUTHORIZED, unbound)
    );
    for (body, sentence) in [
        (
            json!({ "name": " ", "roles": ["driver"] }),
            "`name` has 1 to 128 characters and no control characters",
        ),
        (
            json!({ "name": "x", "roles": [] }),
            "an invitation needs at least one role",
        ),
        (
            json!({ "name": "x", "roles": ["driver"], "expires_seconds": 0 }),
            "a token lives 1 second to 10 years",
        ),
        (
            json!({ "name": "x", "roles": ["driver"], "participant": "system" }),
            "nobody but the server is `system`",
        ),
    ] {
        assert_eq!(
            admin.post("/api/invites", body).await.refused(400),
            said(INVALID_MESSAGE, sentence)
        );
    }
}
