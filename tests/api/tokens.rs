//! Tokens: where requests carry them, and who creates and revokes them.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION};
use crate::http_client::HttpTestClient;
use crate::support::TestServer;

const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn refusal(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

#[tokio::test]
async fn a_token_in_the_header_takes_precedence_over_the_query() {
    let fixture = ApiFixture::new(json!({})).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    let in_query = format!("/api/me?token={}", fixture.ann.user.token);
    assert_eq!(
        nobody.get(&in_query).await.expect_ok()["participant"],
        fixture.ann.id()
    );
    assert_eq!(
        fixture.bob.api.get(&in_query).await.expect_ok()["participant"],
        fixture.bob.id()
    );
    let basic = [("Authorization", "Basic YW5uOmFubg==")];
    assert_eq!(
        nobody
            .raw_request("GET", "/api/me", &basic, b"")
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn only_an_admin_invites_and_revokes() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let made = admin.post(
        "/api/invites",
        json!({ "name": "Pat", "roles": ["approver"], "session": SESSION, "expires_seconds": 60 }),
    );
    let made = made.await.expect_status(201);
    let token = made["token"].as_str().unwrap();
    assert_eq!(
        made["link"],
        format!("http://{}/?token={token}&session={SESSION}", server.address)
    );
    assert_eq!(made["roles"], json!(["approver"]));
    let nobody = HttpTestClient::anonymous(&server).await;
    let me = nobody
        .get(&format!("/api/me?token={token}"))
        .await
        .expect_ok();
    let expected = json!({
        "participant": made["participant"], "name": "Pat", "kind": "human", "roles": ["approver"],
        "session": SESSION, "expires": made["expires"],
    });
    assert_eq!(me, expected);
    let driver = ApiUser::invite(&server, "dan", &["driver", "approver"]).await;
    let bound = server.invite("bea", &["admin"], &["--session", SESSION]);
    let bound = HttpTestClient::with_token(&server, &bound).await;
    let invite = |session: Value| json!({ "name": "x", "roles": ["observer"], "session": session });
    let (tokens, needs) = ("/api/tokens/0123", "inviting people takes an admin's token");
    assert_eq!(
        driver
            .api
            .post("/api/invites", invite(json!(SESSION)))
            .await
            .expect_refusal(403),
        refusal(UNAUTHORIZED, needs)
    );
    assert_eq!(
        driver
            .api
            .request("DELETE", tokens, None)
            .await
            .expect_refusal(403),
        refusal(UNAUTHORIZED, "revoking a token takes an admin's token")
    );
    let alone = "your token is for `room`, so you may invite to it alone";
    for session in [Value::Null, json!("other")] {
        assert_eq!(
            bound
                .post("/api/invites", invite(session))
                .await
                .expect_refusal(403),
            refusal(UNAUTHORIZED, alone)
        );
    }
    bound
        .post("/api/invites", invite(json!(SESSION)))
        .await
        .expect_status(201);
    let unbound = "revoking takes an admin token that is not bound to a session";
    assert_eq!(
        bound
            .request("DELETE", tokens, None)
            .await
            .expect_refusal(403),
        refusal(UNAUTHORIZED, unbound)
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
            "`system` is reserved for the server",
        ),
    ] {
        assert_eq!(
            admin.post("/api/invites", body).await.expect_refusal(400),
            refusal(INVALID_MESSAGE, sentence)
        );
    }
}
