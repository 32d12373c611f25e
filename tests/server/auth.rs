//! Authentication: tokens, invitations, expiry and revocation.

use crate::support::{RefusalObserver, TestClient, TestServer, TestUser};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn join_payload(user: &TestUser) -> Value {
    json!({ "participant": user.announce(), "supported_versions": [1] })
}

/// The errors for a token that the server rejects: in the header, in the query and in a message.
async fn rejections(server: &TestServer, user: &TestUser) -> [String; 3] {
    let bearer = format!("Bearer {}", user.token);
    let query = format!("/?token={}", user.token);
    let headers = [("Authorization", bearer.as_str())];
    let by_header = TestClient::try_connect(&server.address, "/ws", &headers, "x").await;
    let by_query = TestClient::try_connect(&server.address, &query, &[], "x").await;
    let sentence = |refused: Result<TestClient, Error>| {
        let Err(Error::Http(answer)) = refused else {
            panic!("it was let in");
        };
        assert_eq!(answer.status(), 401);
        let body: Value = serde_json::from_slice(answer.body().as_ref().unwrap()).unwrap();
        assert_eq!(body["code"], UNAUTHORIZED);
        body["message"].as_str().unwrap().to_owned()
    };
    let mut client = TestClient::connect(&server.address, None, &user.participant).await;
    client.session = "login".to_owned();
    let mut join = join_payload(user);
    join["token"] = json!(user.token);
    let id = client.send("session.join", join).await;
    let error = client.expect_refusal(&id).await;
    assert_eq!(error["code"], UNAUTHORIZED);
    let in_message = error["message"].as_str().unwrap().to_owned();
    [sentence(by_header), sentence(by_query), in_message]
}

#[tokio::test]
async fn a_token_is_accepted_in_three_places_and_logged_in_none() {
    let server = TestServer::start(&[]).await;
    server.create_session("login", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let me = &ann.participant;
    let bearer = format!("Bearer {}", ann.token);
    let mut header =
        TestClient::try_connect(&server.address, "/", &[("Authorization", &bearer)], me)
            .await
            .unwrap();
    let path = format!("/ws?x=1&token={}", ann.token);
    let mut query = TestClient::try_connect(&server.address, &path, &[], me)
        .await
        .unwrap();
    let mut message = TestClient::connect(&server.address, None, me).await;
    for (client, more) in [
        (&mut header, json!({})),
        (&mut query, json!({})),
        (&mut message, json!({ "token": ann.token })),
    ] {
        let welcome = client.join("login", &ann, more).await;
        assert_eq!(welcome["payload"]["participant"], me.as_str());
        assert_eq!(welcome["payload"]["roles"], json!(["approver"]));
        client.sync().await;
    }
    let secret = ann.token.rsplit('_').next().unwrap();
    for client in [&header, &query, &message] {
        assert!(
            !client
                .received
                .iter()
                .any(|message| message.to_string().contains(secret))
        );
    }
    assert!(
        !server
            .log("login")
            .iter()
            .any(|line| line.to_string().contains(secret))
    );
    // Over HTTP a token works in the header and in the query.
    let path = "/sessions/login/transcript";
    assert_eq!(
        crate::support::http_get(&server.address, path, &[("Authorization", &bearer)])
            .await
            .0,
        200
    );
    let query = format!("{path}?token={}", ann.token);
    assert_eq!(
        crate::support::http_get(&server.address, &query, &[])
            .await
            .0,
        200
    );
    assert_eq!(
        crate::support::http_get(&server.address, path, &[]).await.0,
        401
    );
}

#[tokio::test]
async fn without_a_token_or_with_a_wrong_one_nobody_gets_in() {
    let server = TestServer::start(&[]).await;
    server.create_session("login", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "login").await;
    let ann = server.invite("ann", &["approver", "driver"], &[]);
    let mut unjoined = TestClient::connect(&server.address, None, &ann.participant).await;
    unjoined.session = "login".to_owned();
    let log_in = "there is no token; send one as `Authorization: Bearer` or `?token=`";
    observer
        .expect_refused(
            &mut unjoined,
            "session.join",
            join_payload(&ann),
            UNAUTHORIZED,
            log_in,
        )
        .await;
    unjoined.session = "new".to_owned();
    observer
        .expect_refused(
            &mut unjoined,
            "session.create",
            json!({ "config": {} }),
            UNAUTHORIZED,
            log_in,
        )
        .await;
    let flipped = if ann.token.ends_with('0') { "1" } else { "0" };
    let half = ann.token.rsplit_once('_').unwrap().0;
    for token in [
        format!("{}{flipped}", &ann.token[..ann.token.len() - 1]),
        ann.token[..ann.token.len() - 1].to_owned(),
        format!("{half}_{}", "0".repeat(64)),
        half.to_owned(),
        "admin".to_owned(),
        "pvp__".to_owned(),
    ] {
        let wrong = TestUser {
            token,
            ..ann.clone()
        };
        let expected = "this is not a PVP token; ask for an invitation";
        assert_eq!(rejections(&server, &wrong).await, [expected; 3]);
    }
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn a_token_for_one_session_opens_no_other_and_creates_none() {
    let server = TestServer::start(&[]).await;
    server.create_session("mine", json!({})).await;
    server.create_session("other", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "other").await;
    let bound = server.invite("ann", &["driver", "admin"], &["--session", "mine"]);
    server.join("mine", &bound).await.sync().await;
    let mut client = server.connect(&bound).await;
    client.session = "other".to_owned();
    let elsewhere = "this token is for another session";
    observer
        .expect_refused(
            &mut client,
            "session.join",
            join_payload(&bound),
            UNAUTHORIZED,
            elsewhere,
        )
        .await;
    let bearer = format!("Bearer {}", bound.token);
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(
        crate::support::http_get(&server.address, "/sessions/other/transcript", &headers)
            .await
            .0,
        403
    );
    assert_eq!(
        crate::support::http_get(&server.address, "/sessions/mine/transcript", &headers)
            .await
            .0,
        200
    );

    // Creating a session takes a token with driver or admin that is not bound to a session.
    let may_not = "creating a session requires a token with the role driver or admin that is not bound to a session";
    let others = ["navigator", "adversary", "observer", "approver"]
        .map(|role| server.invite(role, &[role], &[]));
    for user in others.iter().chain([&bound]) {
        let mut client = server.connect(user).await;
        client.session = "made".to_owned();
        observer
            .expect_refused(
                &mut client,
                "session.create",
                json!({ "config": {} }),
                UNAUTHORIZED,
                may_not,
            )
            .await;
    }
    for (role, session) in [("driver", "made-by-driver"), ("admin", "made-by-admin")] {
        let user = server.invite(role, &[role], &[]);
        let mut client = server.connect(&user).await;
        client.session = session.to_owned();
        let id = client.send("session.create", json!({ "config": {} })).await;
        client.expect_ack(&id).await;
    }
    observer.expect_no_trace(&server).await;
    // An admin of one session can invite to that session only, and cannot revoke tokens.
    for (body, expected) in [
        (json!({ "name": "x", "roles": ["observer"] }), 403),
        (
            json!({ "name": "x", "roles": ["observer"], "session": "other" }),
            403,
        ),
        (
            json!({ "name": "x", "roles": ["observer"], "session": "mine" }),
            201,
        ),
    ] {
        let (status, answer) = crate::support::http_request(
            &server.address,
            "POST",
            "/api/invites",
            &headers,
            &body.to_string(),
        )
        .await;
        assert_eq!(status, expected, "{answer}");
    }
    assert_eq!(
        crate::support::http_request(&server.address, "DELETE", "/api/tokens/x", &headers, "")
            .await
            .0,
        403
    );
}

/// The id of a user's token, as `pvp tokens list` prints it.
fn token_id(server: &TestServer, user: &TestUser) -> String {
    let data = server.data.to_str().unwrap();
    let (good, list, problem) =
        crate::support::run_pvp(&["tokens", "list", "--json", "--data", data]);
    assert!(good, "{problem}");
    let mut rows = list
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let row = rows
        .find(|row| row["participant"] == user.participant.as_str())
        .unwrap();
    row["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn expired_and_revoked_tokens_open_nothing_and_their_connections_end() {
    let server = TestServer::start(&[]).await;
    server.create_session("login", json!({})).await;
    let short = server.invite("ann", &["approver"], &["--expires", "1s"]);
    let revoked = server.invite("bob", &["approver"], &[]);
    let by_http = server.invite("cid", &["approver"], &[]);
    let stays = server.invite("dan", &["approver"], &["--expires", "1h"]);
    // On a busy machine the invitation may have expired before it was used.
    let bearer = format!("Bearer {}", short.token);
    let live = TestClient::try_connect(
        &server.address,
        "/ws",
        &[("Authorization", &bearer)],
        &short.participant,
    )
    .await
    .ok();
    let mut bob = server.join("login", &revoked).await;
    let mut cid = server.join("login", &by_http).await;
    let mut dan = server.join("login", &stays).await;

    let data = server.data.to_str().unwrap();
    let id = token_id(&server, &revoked);
    let (good, output, _) = crate::support::run_pvp(&["tokens", "revoke", "--data", data, &id]);
    assert!(good && output.contains(&id));
    let admin = format!("Bearer {}", server.admin().token);
    let path = format!("/api/tokens/{}", token_id(&server, &by_http));
    let own = format!("Bearer {}", stays.token);
    assert_eq!(
        crate::support::http_request(
            &server.address,
            "DELETE",
            &path,
            &[("Authorization", &own)],
            ""
        )
        .await
        .0,
        403
    );
    assert_eq!(
        crate::support::http_request(
            &server.address,
            "DELETE",
            &path,
            &[("Authorization", &admin)],
            ""
        )
        .await
        .0,
        204
    );
    assert_eq!(
        crate::support::http_request(
            &server.address,
            "DELETE",
            &path,
            &[("Authorization", &admin)],
            ""
        )
        .await
        .0,
        404
    );
    let (good, _, problem) = crate::support::run_pvp(&["tokens", "revoke", "--data", data, &id]);
    assert!(
        !good && problem.contains(&format!("there is no token `{id}`")),
        "{problem}"
    );
    for user in [&revoked, &by_http] {
        assert_eq!(
            rejections(&server, user).await,
            ["the token was revoked; ask for a new invitation"; 3]
        );
    }
    // Live connections are closed at the server's next check for expired tokens.
    assert_eq!(bob.wait_closed().await, Some(1008));
    assert_eq!(cid.wait_closed().await, Some(1008));
    drop(live);
    loop {
        let headers = [("Authorization", bearer.as_str())];
        if TestClient::try_connect(&server.address, "/ws", &headers, "x")
            .await
            .is_err()
        {
            break;
        }
    }
    assert_eq!(
        rejections(&server, &short).await,
        ["the token has expired; ask for a new invitation"; 3]
    );
    dan.sync().await;
}

#[tokio::test]
async fn a_live_connection_ends_when_its_token_expires() {
    let server = TestServer::start(&[]).await;
    server.create_session("login", json!({})).await;
    // Long enough to join on a busy machine; the server closes the connection at its next check.
    let short = server.invite("ann", &["approver"], &["--expires", "10s"]);
    let mut ann = server.join("login", &short).await;
    assert_eq!(ann.wait_closed().await, Some(1008));
}

#[tokio::test]
async fn invitations_come_from_the_data_directory_or_from_an_admin() {
    let server = TestServer::start(&[]).await;
    let data = server.data.to_str().unwrap();
    let url = format!("http://{}", server.address);
    let link = format!("{url}/?token={}", server.admin().token);
    let fields = |out: &str| -> Value {
        let said: Value = serde_json::from_str(out).unwrap();
        let mut names: Vec<_> = said.as_object().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["expires", "link", "participant", "roles", "token"]);
        said
    };
    let user = ["--name", "Ann B.", "--role", "driver", "--role", "approver"];
    let (good, out, problem) = crate::support::run_pvp(
        &[
            &[
                "invite",
                "--json",
                "--data",
                data,
                "--url",
                &url,
                "--expires",
                "2h",
                "--session",
                "s1",
            ],
            &user[..],
        ]
        .concat(),
    );
    assert!(good, "{problem}");
    let by_data = fields(&out);
    assert_eq!(by_data["roles"], json!(["driver", "approver"]));
    assert!(
        by_data["participant"]
            .as_str()
            .unwrap()
            .starts_with("ann-b-")
    );
    assert!(by_data["expires"].as_str().unwrap().ends_with('Z'));
    let token = by_data["token"].as_str().unwrap();
    assert_eq!(by_data["link"], format!("{url}/#token={token}&session=s1"));

    // With the admin's link.
    let links = tempfile::tempdir().unwrap();
    let file = |link: &str| {
        let path = links.path().join("link");
        std::fs::write(&path, link).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, out, problem) = crate::support::run_pvp(
        &[
            &["invite", "--json", "--link-file", &file(&link)],
            &user[..],
        ]
        .concat(),
    );
    assert!(good, "{problem}");
    let by_link = fields(&out);
    assert_eq!(by_link["expires"], Value::Null);
    assert_eq!(
        by_link["link"],
        format!("{url}/#token={}", by_link["token"].as_str().unwrap())
    );

    // The invitation works, and only for what it grants.
    server.create_session("s2", json!({})).await;
    let invited = TestUser {
        token: by_link["token"].as_str().unwrap().to_owned(),
        participant: by_link["participant"].as_str().unwrap().to_owned(),
        roles: vec!["driver".to_owned()],
        agent: false,
    };
    server.join("s2", &invited).await.sync().await;

    // Nobody else can invite: without a token, with a wrong one, or without the admin role.
    let plain = server.invite("bob", &["driver", "approver"], &[]);
    for (link, part) in [
        (
            format!("{url}/?token={}", plain.token),
            "inviting people requires an admin's token",
        ),
        (
            format!("{url}/?token=nonsense"),
            "this is not a PVP token; ask for an invitation",
        ),
        (
            url.clone(),
            "there is no token; send one as `Authorization: Bearer` or `?token=`",
        ),
    ] {
        let (good, out, problem) = crate::support::run_pvp(
            &[&["invite", "--link-file", &file(&link)], &user[..]].concat(),
        );
        assert!(!good && out.is_empty());
        assert_eq!(problem, format!("pvp: {part}\n"));
    }
    for (body, expected) in [
        (r#"{"name":"","roles":["observer"]}"#, 400),
        (r#"{"name":"x","roles":[]}"#, 400),
        (r#"{"name":"x","roles":["root"]}"#, 400),
        (
            r#"{"name":"x","roles":["observer"],"participant":"system"}"#,
            400,
        ),
        (
            r#"{"name":"x","roles":["observer"],"participant":"../x"}"#,
            400,
        ),
        (
            r#"{"name":"x","roles":["observer"],"expires_seconds":0}"#,
            400,
        ),
        (r#"{"name":"x","roles":["observer"],"surprise":1}"#, 400),
        ("null", 400),
        ("[", 400),
    ] {
        let admin = format!("Bearer {}", server.admin().token);
        let (status, answer) = crate::support::http_request(
            &server.address,
            "POST",
            "/api/invites",
            &[("Authorization", &admin)],
            body,
        )
        .await;
        assert_eq!(status, expected, "{body}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["code"], "INVALID_MESSAGE");
    }
}
