//! Devices: a link's token is exchanged for one that can be revoked alone.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::fixture::{ApiUser, SESSION};
use crate::http_client::HttpTestClient;
use crate::support::{TestServer, TestUser};

/// The public part of a token, by which it is revoked.
fn token_id(user: &TestUser) -> &str {
    user.token.split('_').nth(1).unwrap()
}

/// Adds a device to a person; returns its holder as the tests know them, and the answer.
async fn add_device(server: &TestServer, of: &ApiUser, name: &str) -> (ApiUser, Value) {
    let made = of.api.post("/api/devices", json!({ "name": name })).await;
    let made = made.expect_status(201);
    let user = TestUser {
        token: made["token"].as_str().unwrap().to_owned(),
        ..of.user.clone()
    };
    (ApiUser::with_user(server, user).await, made)
}

async fn device_names(user: &ApiUser) -> Vec<(String, bool)> {
    let listed = user.api.get("/api/devices").await.expect_ok();
    let devices = listed["devices"].as_array().unwrap().iter();
    let name = |device: &Value| device["name"].as_str().unwrap().to_owned();
    devices
        .map(|device| (name(device), device["this_device"].as_bool().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_device_is_the_same_participant_with_the_same_ceiling() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bound = ["--session", SESSION, "--expires", "1h"];
    let ann = server.invite("ann", &["approver", "observer"], &bound);
    let ann = ApiUser::with_user(&server, ann).await;
    let (phone, made) = add_device(&server, &ann, "Chrome on Android").await;
    let me = ann.api.get("/api/me").await.expect_ok();
    assert_eq!(phone.api.get("/api/me").await.expect_ok(), me);
    let expected = json!({
        "token": phone.user.token, "id": token_id(&phone.user), "participant": ann.id(),
        "participant_name": "ann", "name": "Chrome on Android", "roles": me["roles"],
        "session": SESSION, "expires": me["expires"],
    });
    assert_eq!(made, expected);

    // It joins and counts as the same person.
    phone.join(SESSION).await;
    let people = ann.api.get(&format!("/api/sessions/{SESSION}")).await;
    let people = people.expect_ok()["people"].clone();
    let anns = people.as_array().unwrap().iter();
    assert_eq!(anns.filter(|one| one["id"] == ann.id()).count(), 1);

    let names = device_names(&phone).await;
    assert_eq!(names, [("Chrome on Android".to_owned(), true)]);
    let names = device_names(&ann).await;
    assert_eq!(names, [("Chrome on Android".to_owned(), false)]);
    let listed = ann.api.get("/api/devices").await.expect_ok();
    assert!(listed["devices"][0]["last_used"].is_string());
}

#[tokio::test]
async fn removing_a_device_ends_it_and_nothing_else() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let ann = ApiUser::invite(&server, "ann", &["approver"]).await;
    let bob = ApiUser::invite(&server, "bob", &["admin"]).await;
    let (phone, _) = add_device(&server, &ann, "phone").await;
    let (laptop, _) = add_device(&server, &ann, "laptop").await;
    let mut socket = server.join(SESSION, &phone.user).await;
    let mut other_socket = server.join(SESSION, &laptop.user).await;
    let path = format!("/api/devices/{}", token_id(&phone.user));

    // Not of somebody else, not even an admin's here, and not the link's own token.
    let refused = bob.api.request("DELETE", &path, None).await;
    assert!(refused.expect_refusal(404).1.contains("no such device"));
    let link = format!("/api/devices/{}", token_id(&ann.user));
    laptop
        .api
        .request("DELETE", &link, None)
        .await
        .expect_refusal(404);

    assert_eq!(laptop.api.request("DELETE", &path, None).await.status, 204);
    assert_eq!(socket.wait_closed().await, Some(1008));
    let refused = phone.api.get("/api/me").await.expect_refusal(401);
    assert!(refused.1.contains("was revoked"), "{refused:?}");
    let names = device_names(&ann).await;
    assert_eq!(names, [("laptop".to_owned(), false)]);
    laptop.api.get("/api/me").await.expect_ok();
    other_socket.sync().await;
    laptop
        .api
        .request("DELETE", &path, None)
        .await
        .expect_refusal(404);

    // A device logs itself out; an admin ends any by its token.
    let own = format!("/api/devices/{}", token_id(&laptop.user));
    assert_eq!(laptop.api.request("DELETE", &own, None).await.status, 204);
    laptop.api.get("/api/me").await.expect_refusal(401);
    let (tablet, _) = add_device(&server, &ann, "tablet").await;
    let token = format!("/api/tokens/{}", token_id(&tablet.user));
    assert_eq!(bob.api.request("DELETE", &token, None).await.status, 204);
    tablet.api.get("/api/me").await.expect_refusal(401);
    ann.api.get("/api/me").await.expect_ok();
}

#[tokio::test]
async fn revoking_a_leaked_link_ends_the_devices_that_were_made_with_it() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let ann = ApiUser::invite(&server, "ann", &["approver"]).await;
    let (thief, _) = add_device(&server, &ann, "not hers").await;
    let same = ["--participant", ann.id()];
    let other = server.invite("ann", &["approver"], &same);
    let other = ApiUser::with_user(&server, other).await;
    let (phone, _) = add_device(&server, &other, "hers").await;
    let mut socket = server.join(SESSION, &thief.user).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let path = format!("/api/tokens/{}", token_id(&ann.user));
    assert_eq!(admin.request("DELETE", &path, None).await.status, 204);
    assert_eq!(socket.wait_closed().await, Some(1008));
    thief.api.get("/api/me").await.expect_refusal(401);
    phone.api.get("/api/me").await.expect_ok();
    let names = device_names(&other).await;
    assert_eq!(names, [("hers".to_owned(), false)]);
    let listed = admin.get("/api/tokens").await.expect_ok();
    let is_hers = |token: &&Value| token["device"] == "hers";
    let hers = listed["tokens"].as_array().unwrap().iter().find(is_hers);
    assert_eq!(hers.unwrap()["made_with"], token_id(&other.user));
}

#[tokio::test]
async fn devices_and_agents_make_no_devices() {
    let server = TestServer::start(&[]).await;
    let ann = ApiUser::invite(&server, "ann", &["admin"]).await;
    let (phone, _) = add_device(&server, &ann, "phone").await;
    let body = json!({ "name": "another" });
    let refused = phone.api.post("/api/devices", body.clone()).await;
    let refused = refused.expect_refusal(403);
    assert!(refused.1.contains("makes no others"), "{refused:?}");
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let bot = HttpTestClient::with_token(&server, &bot).await;
    let refused = bot.post("/api/devices", body.clone()).await;
    let refused = refused.expect_refusal(403);
    assert!(refused.1.contains("agents have no devices"), "{refused:?}");
    let nobody = HttpTestClient::anonymous(&server).await;
    nobody.post("/api/devices", body).await.expect_refusal(401);
    for bad in [
        json!({ "name": "" }),
        json!({ "name": "a\u{1b}[2J" }),
        json!({ "name": "x".repeat(129) }),
        json!({ "name": "x", "roles": ["admin"] }),
        json!({}),
    ] {
        ann.api.post("/api/devices", bad).await.expect_refusal(400);
    }
    assert_eq!(device_names(&ann).await.len(), 1);
}

#[tokio::test]
async fn a_link_has_only_so_many_devices_even_if_they_are_added_at_once() {
    let server = TestServer::start(&[]).await;
    let ann = ApiUser::invite(&server, "ann", &["observer"]).await;
    let adding = (0..30).map(|number| {
        let body = json!({ "name": format!("device {number}") });
        ann.api.post("/api/devices", body)
    });
    let answers = join_all(adding).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 20);
    let refused = answers.iter().find(|answer| answer.status != 201).unwrap();
    let refused = refused.expect_refusal(409);
    assert!(
        refused.1.contains("you have 20 devices with this link"),
        "{refused:?}"
    );
    // Whoever has another link of hers is not held up: this one may have been stolen.
    let again = ["--participant", ann.id()];
    let again = server.invite("ann", &["observer"], &again);
    let again = ApiUser::with_user(&server, again).await;
    add_device(&server, &again, "of another link").await;
    let listed = ann.api.get("/api/devices").await.expect_ok();
    let id = listed["devices"][0]["id"].as_str().unwrap();
    let path = format!("/api/devices/{id}");
    assert_eq!(ann.api.request("DELETE", &path, None).await.status, 204);
    add_device(&server, &ann, "one more").await;
}

#[tokio::test]
async fn a_token_that_allows_less_removes_no_device_that_may_do_more() {
    let server = TestServer::start(&[]).await;
    let ann = ApiUser::invite(&server, "ann", &["approver", "driver"]).await;
    let same = ["--participant", ann.id()];
    let watching = server.invite("ann", &["observer"], &same);
    let watching = ApiUser::with_user(&server, watching).await;
    let (phone, _) = add_device(&server, &ann, "phone").await;
    let path = format!("/api/devices/{}", token_id(&phone.user));
    let refused = watching.api.request("DELETE", &path, None).await;
    let refused = refused.expect_refusal(403);
    assert!(refused.1.contains("may do more"), "{refused:?}");
    phone.api.get("/api/me").await.expect_ok();
}

#[tokio::test]
async fn devices_do_not_multiply_the_sessions_that_a_link_may_make() {
    let environment = [("PVP_SESSIONS_PER_HOUR", "2")];
    let server = TestServer::start_with_env(&[], &environment).await;
    let ann = ApiUser::invite(&server, "ann", &["driver"]).await;
    let (phone, _) = add_device(&server, &ann, "phone").await;
    let (laptop, _) = add_device(&server, &ann, "laptop").await;
    ann.api
        .post("/api/sessions", json!({}))
        .await
        .expect_status(201);
    phone
        .api
        .post("/api/sessions", json!({}))
        .await
        .expect_status(201);
    let refused = laptop.api.post("/api/sessions", json!({})).await;
    assert_eq!(refused.status, 429, "{refused:?}");
}

/// Makes a link that opens the page once; returns its code.
async fn make_device_code(of: &ApiUser, body: Value) -> String {
    let made = of.api.post("/api/device-codes", body).await;
    let made = made.expect_status(201);
    let link = made["link"].as_str().unwrap();
    let parameters = link.split_once("/#device=").expect(link).1;
    parameters.split('&').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_device_code_makes_one_device_of_the_person_who_made_it() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bound = ["--session", SESSION, "--expires", "1h"];
    let ann = server.invite("ann", &["approver"], &bound);
    let ann = ApiUser::with_user(&server, ann).await;
    let me = ann.api.get("/api/me").await.expect_ok();
    let made = ann.api.post("/api/device-codes", json!({})).await;
    let made = made.expect_status(201);
    let link = made["link"].as_str().unwrap();
    assert!(link.ends_with(&format!("&session={SESSION}")), "{link}");
    assert!(!link.contains(&ann.user.token), "{link}");
    let code = link.split_once("#device=").unwrap().1;
    let code = code.split('&').next().unwrap();

    // Of many at once, one browser gets it.
    let stranger = HttpTestClient::anonymous(&server).await;
    let body = json!({ "code": code, "name": "Firefox on Linux" });
    let opening = (0..10).map(|_| stranger.post("/api/join/device", body.clone()));
    let answers = join_all(opening).await;
    let (opened, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 201);
    assert_eq!((opened.len(), refused.len()), (1, 9));
    for refused in refused {
        let refused = refused.expect_refusal(403);
        assert!(refused.1.contains("was opened already"), "{refused:?}");
    }
    let opened = opened[0].expect_status(201);
    let expected = json!({
        "token": opened["token"], "id": opened["id"], "participant": ann.id(),
        "participant_name": "ann", "name": "Firefox on Linux", "roles": ["approver"], "session": SESSION,
        "expires": me["expires"],
    });
    assert_eq!(opened, expected);
    let names = device_names(&ann).await;
    assert_eq!(names, [("Firefox on Linux".to_owned(), false)]);

    // The device ends with the link, and makes no others.
    let phone = TestUser {
        token: opened["token"].as_str().unwrap().to_owned(),
        ..ann.user.clone()
    };
    let phone = ApiUser::with_user(&server, phone).await;
    assert_eq!(phone.api.get("/api/me").await.expect_ok(), me);
    let refused = phone.api.post("/api/device-codes", json!({})).await;
    assert!(refused.expect_refusal(403).1.contains("of a device"));
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let path = format!("/api/tokens/{}", token_id(&ann.user));
    assert_eq!(admin.request("DELETE", &path, None).await.status, 204);
    phone.api.get("/api/me").await.expect_refusal(401);
}

#[tokio::test]
async fn a_device_code_is_void_once_its_link_is() {
    let server = TestServer::start(&[]).await;
    let ann = ApiUser::invite(&server, "ann", &["approver"]).await;
    let code = make_device_code(&ann, json!({})).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let path = format!("/api/tokens/{}", token_id(&ann.user));
    assert_eq!(admin.request("DELETE", &path, None).await.status, 204);
    let stranger = HttpTestClient::anonymous(&server).await;
    let body = json!({ "code": code, "name": "phone" });
    let refused = stranger.post("/api/join/device", body).await;
    let refused = refused.expect_refusal(403);
    assert!(refused.1.contains("was revoked"), "{refused:?}");
}

#[tokio::test]
async fn a_device_code_survives_what_makes_no_device_of_it() {
    let server = TestServer::start(&[]).await;
    let ann = ApiUser::invite(&server, "ann", &["approver"]).await;
    for number in 0..20 {
        add_device(&server, &ann, &format!("device {number}")).await;
    }
    let code = make_device_code(&ann, json!({})).await;
    let stranger = HttpTestClient::anonymous(&server).await;
    let open = |name: &str| {
        let body = json!({ "code": code, "name": name });
        stranger.post("/api/join/device", body)
    };
    open("a\u{1b}[2J").await.expect_refusal(400);
    let refused = open("one more").await.expect_refusal(409);
    assert!(refused.1.contains("you have 20 devices"), "{refused:?}");
    let listed = ann.api.get("/api/devices").await.expect_ok();
    let path = format!(
        "/api/devices/{}",
        listed["devices"][0]["id"].as_str().unwrap()
    );
    assert_eq!(ann.api.request("DELETE", &path, None).await.status, 204);
    open("one more").await.expect_status(201);
}

#[tokio::test]
async fn device_codes_are_for_people_and_their_own_sessions_and_guesses_are_slowed_down() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let bot = HttpTestClient::with_token(&server, &bot).await;
    let refused = bot.post("/api/device-codes", json!({})).await;
    assert!(refused.expect_refusal(403).1.contains("agents have no"));
    let bound = server.invite("ann", &["approver"], &["--session", SESSION]);
    let bound = ApiUser::with_user(&server, bound).await;
    let elsewhere = json!({ "session": "elsewhere" });
    let refused = bound.api.post("/api/device-codes", elsewhere).await;
    refused.expect_refusal(403);
    let stranger = HttpTestClient::anonymous(&server).await;
    stranger
        .post("/api/device-codes", json!({}))
        .await
        .expect_refusal(401);
    let guess = json!({ "code": "7QK2M-R8T4X-0B6FJ-ZN3WG", "name": "phone" });
    for _ in 0..30 {
        let refused = stranger.post("/api/join/device", guess.clone()).await;
        refused.expect_refusal(403);
    }
    let refused = stranger.post("/api/join/device", guess).await;
    assert!(refused.expect_refusal(429).1.contains("wrong join codes"));
}
