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
        format!("http://{}/#token={token}&session={SESSION}", server.address)
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
    let (tokens, needs) = (
        "/api/tokens/0123",
        "inviting people requires an admin's token",
    );
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
        refusal(UNAUTHORIZED, "revoking a token requires an admin's token")
    );
    let alone = "your token is for session `room`, so you may invite only to it";
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
    let unbound = "revoking requires an admin's token that is not bound to a session";
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

#[tokio::test]
async fn a_join_code_gives_one_new_participant_a_token() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let nobody = HttpTestClient::anonymous(&server).await;
    let request = json!({ "roles": ["approver"], "session": SESSION, "expires_seconds": 3600 });
    let made = admin.post("/api/codes", request).await.expect_status(201);
    let code = made["code"].as_str().unwrap();
    assert_eq!(
        made["link"],
        format!("http://{}/#join={code}", server.address)
    );
    let join = json!({ "code": code.to_lowercase().replace('-', ""), "name": "Pat" });
    let joined = nobody.post("/api/join", join.clone()).await;
    let joined = joined.expect_status(201);
    let token = joined["token"].as_str().unwrap();
    let me = nobody.get(&format!("/api/me?token={token}")).await;
    assert_eq!(
        me.expect_ok(),
        json!({
            "participant": joined["participant"], "name": "Pat", "kind": "human",
            "roles": ["approver"], "session": SESSION, "expires": joined["expires"],
        })
    );
    let refused = nobody.post("/api/join", join).await.expect_refusal(403);
    assert!(refused.1.contains("was used already"), "{refused:?}");
    // The record of whom the newcomer owes their place to is that of an invitation.
    let list = admin.get("/api/tokens").await.expect_ok();
    let newcomer = list["tokens"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(newcomer["invited_by"], "admin");
    assert_eq!(newcomer["state"], "valid");
    assert_eq!(list["codes"], json!([]));
}

#[tokio::test]
async fn codes_and_lists_of_tokens_take_the_rights_of_invitations() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let driver = ApiUser::invite(&server, "dan", &["driver", "approver"]).await;
    let bea = server.invite("bea", &["admin"], &["--session", SESSION]);
    let bound = HttpTestClient::with_token(&server, &bea).await;
    let code = |roles: Value, session: Value| json!({ "roles": roles, "session": session });
    let good = code(json!(["approver"]), json!(SESSION));
    assert_eq!(
        driver
            .api
            .post("/api/codes", good.clone())
            .await
            .expect_refusal(403),
        refusal(UNAUTHORIZED, "inviting people requires an admin's token")
    );
    assert_eq!(
        driver.api.get("/api/tokens").await.expect_refusal(403),
        refusal(UNAUTHORIZED, "listing tokens requires an admin's token")
    );
    let nobody = HttpTestClient::anonymous(&server).await;
    for (method, path) in [("GET", "/api/tokens"), ("POST", "/api/codes")] {
        let body = (method == "POST").then(|| good.clone());
        nobody.request(method, path, body).await.expect_refusal(401);
    }
    // An admin of one session makes codes for it, and sees what is of it.
    bound
        .post("/api/codes", good.clone())
        .await
        .expect_status(201);
    let everywhere = code(json!(["approver"]), Value::Null);
    bound
        .post("/api/codes", everywhere.clone())
        .await
        .expect_refusal(403);
    admin
        .post("/api/codes", everywhere)
        .await
        .expect_status(201);
    let seen = bound.get("/api/tokens").await.expect_ok();
    let names = |list: &Value| -> Vec<String> {
        let tokens = list["tokens"].as_array().unwrap().iter();
        tokens
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&seen), ["bea"]);
    assert_eq!(seen["codes"].as_array().unwrap().len(), 1);
    let all = admin.get("/api/tokens").await.expect_ok();
    assert_eq!(names(&all), ["admin", "dan", "bea"]);
    assert_eq!(all["codes"].as_array().unwrap().len(), 2);
    for (body, sentence) in [
        (
            code(json!([]), Value::Null),
            "a join code needs at least one role",
        ),
        (
            code(json!(["admin"]), Value::Null),
            "a join code never makes an admin; send an admin a link",
        ),
        (
            json!({ "roles": ["driver"], "code_seconds": 86_401 }),
            "a join code is valid for 1 second to 1 day",
        ),
    ] {
        assert_eq!(
            admin.post("/api/codes", body).await.expect_refusal(400),
            refusal(INVALID_MESSAGE, sentence)
        );
    }
}

#[tokio::test]
async fn a_code_ends_with_the_token_that_made_it() {
    let server = TestServer::start(&[]).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let mallory = server.invite("mallory", &["admin"], &[]);
    let stolen = HttpTestClient::with_token(&server, &mallory).await;
    let made = stolen.post("/api/codes", json!({ "roles": ["approver"] }));
    let code = made.await.expect_status(201)["code"].clone();
    let list = admin.get("/api/tokens").await.expect_ok();
    let tokens = list["tokens"].as_array().unwrap();
    let id = tokens.last().unwrap()["id"].as_str().unwrap();
    let path = format!("/api/tokens/{id}");
    assert_eq!(admin.request("DELETE", &path, None).await.status, 204);
    let nobody = HttpTestClient::anonymous(&server).await;
    let refused = nobody.post("/api/join", json!({ "code": code, "name": "puppet" }));
    let refused = refused.await.expect_refusal(403);
    assert!(refused.1.contains("may no longer invite"), "{refused:?}");
}

#[tokio::test]
async fn an_address_that_guesses_codes_is_slowed_down() {
    let server = TestServer::start(&[]).await;
    let nobody = HttpTestClient::anonymous(&server).await;
    let guess = json!({ "code": "00000-00000-00000-00000", "name": "eve" });
    for _ in 0..30 {
        let answer = nobody.post("/api/join", guess.clone()).await;
        answer.expect_refusal(403);
    }
    let answer = nobody.post("/api/join", guess).await;
    let refused = answer.expect_refusal(429);
    assert!(refused.1.contains("wait a minute"), "{refused:?}");
}
