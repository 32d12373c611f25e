//! Who is told: those who may vote on a gate and have not, in the sessions, of the events and at the
//! times that they want.

use std::time::Duration;

use serde_json::{Value, json};

use super::{told, trusting_fixture};
use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, reject_vote};
use crate::support::http_receiver::{HttpReceiver, ReceiverAnswer};

/// Quiet hours end with a minute.
const QUIET_TIMEOUT: Duration = Duration::from_secs(120);

/// Two rounds of a gate that opens and closes, both of which the witness hears of. What somebody else
/// would have been told of the first has then arrived.
async fn two_rounds(fixture: &mut ApiFixture, witness: &mut HttpReceiver) {
    for command in ["touch one", "touch two"] {
        let proposal = fixture.propose(command).await;
        assert_eq!(told(&witness.next().await).0, "opened");
        let reject = reject_vote("not now");
        fixture
            .ann
            .api
            .vote(SESSION, &proposal, reject)
            .await
            .expect_ok();
    }
}

#[tokio::test]
async fn those_who_may_vote_are_told_and_nobody_else() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    let body = json!({ "kind": "webhook", "label": "x", "target": bobs.url("/eve") });
    let path = "/api/notifications/channels";
    let (_, message) = fixture
        .eve
        .api
        .post(path, body.clone())
        .await
        .expect_refusal(403);
    assert!(message.contains("does not let you vote"), "{message}");
    let (_, message) = fixture.bot.api.post(path, body).await.expect_refusal(403);
    assert!(message.contains("agents do not vote"), "{message}");
    let proposal = fixture.propose("touch a").await;
    let gate = fixture.gate(&proposal).await["open"]["gate"].clone();
    let opened = ("opened".to_owned(), gate.as_str().unwrap().to_owned());
    assert_eq!(told(&anns.next().await), opened);
    assert_eq!(told(&bobs.next().await), opened);
}

#[tokio::test]
async fn whoever_has_voted_is_not_told_that_a_gate_closes() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let config = json!({
        "default_gate_quorum": { "type": "any", "count": 2 }, "gate_timeout_seconds": 6,
    });
    let mut fixture = trusting_fixture(config, "closing_seconds = 60").await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    let proposal = fixture.propose("touch a").await;
    anns.next().await;
    let (_, first) = told(&bobs.next().await);
    fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    // In the second half of its six seconds.
    assert_eq!(told(&anns.next().await).0, "closing");
    // The next gate that Bob hears of comes after what he would have been told of this one.
    fixture.propose("touch b").await;
    let (event, gate) = told(&bobs.next().await);
    assert_eq!(event, "opened");
    assert_ne!(gate, first);
}

#[tokio::test]
async fn a_gate_that_is_escalated_is_told_to_the_admins() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let config = json!({ "gate_timeout_seconds": 2, "on_gate_timeout": "escalate" });
    let mut fixture = trusting_fixture(config, "").await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    fixture
        .ann
        .prefer(json!({ "events": ["opened", "escalated"] }))
        .await;
    fixture
        .bob
        .prefer(json!({ "events": ["opened", "escalated"] }))
        .await;
    let first = fixture.propose("rm -r build").await;
    assert_eq!(told(&anns.next().await).0, "opened");
    let (event, gate) = told(&bobs.next().await);
    assert_eq!(event, "opened");
    let escalated = anns.next().await;
    assert_eq!(told(&escalated), ("escalated".to_owned(), gate.clone()));
    let title = "A destructive command was escalated and waits for your vote";
    assert_eq!(escalated.json()["title"], title);
    fixture.approve(&first).await;
    // Bob is no admin: the next that he hears of is another gate.
    fixture.propose("touch b").await;
    let (event, other) = told(&bobs.next().await);
    assert_eq!(event, "opened");
    assert_ne!(other, gate);
}

#[tokio::test]
async fn an_edited_command_is_told_again() {
    let mut receiver = HttpReceiver::start().await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut fixture = trusting_fixture(config, "").await;
    fixture.bob.add_webhook(&receiver).await;
    fixture.bob.prefer(json!({ "show_command": true })).await;
    let proposal = fixture.propose("touch a").await;
    let first = receiver.next().await.json();
    let digest = first["digest"].as_str().unwrap();
    let path = format!("/api/sessions/{SESSION}/gates/{proposal}/amend");
    let edit = crate::fixture::amend_body("touch b", digest);
    fixture.ann.api.post(&path, edit).await.expect_ok();
    let second = receiver.next().await.json();
    assert_eq!(second["gate"], first["gate"]);
    assert_ne!(second["digest"], first["digest"]);
    assert_eq!(second["title"], "An edited command waits for your vote");
}

#[tokio::test]
async fn a_revoked_token_and_a_lost_role_end_it() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    let kim = ApiUser::invite(&fixture.server, "kim", &["approver"]).await;
    kim.join(SESSION).await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    kim.add_webhook(&bobs).await;
    let token = fixture.bob.user.token.split('_').nth(1).unwrap().to_owned();
    let admin = ApiUser::with_user(&fixture.server, fixture.server.admin()).await;
    let revoked = admin
        .api
        .request("DELETE", &format!("/api/tokens/{token}"), None)
        .await;
    assert_eq!(revoked.status, 204);
    let change = json!({
        "participant": kim.id(), "old_roles": ["approver"], "new_roles": ["observer"],
        "changed_by": admin.id(),
    });
    let message = admin
        .api
        .send_message(SESSION, "participant.role_change", change);
    message.await.expect_ok();
    two_rounds(&mut fixture, &mut anns).await;
    assert!(bobs.try_next().is_none());
    // Bob's channel went with his token.
    let left = stored_channels(&fixture.server.data.join("pvp.sqlite3"));
    assert_eq!(left, [fixture.ann.id(), kim.id()]);
}

/// The participants of the channels in the store.
fn stored_channels(database: &std::path::Path) -> Vec<String> {
    let database = rusqlite::Connection::open(database).unwrap();
    let mut statement = database
        .prepare("SELECT participant FROM channels ORDER BY rowid")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_channel_ends_with_the_device_that_added_it_and_no_other_does() {
    let (mut links, mut devices) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    let device = fixture
        .bob
        .api
        .post("/api/devices", json!({ "name": "phone" }))
        .await;
    let device = device.expect_status(201);
    let mut user = fixture.bob.user.clone();
    user.token = device["token"].as_str().unwrap().to_owned();
    let phone = ApiUser::with_user(&fixture.server, user).await;
    phone.add_webhook(&devices).await;
    fixture.bob.add_webhook(&links).await;
    let path = format!("/api/devices/{}", device["id"].as_str().unwrap());
    let removed = fixture.bob.api.request("DELETE", &path, None).await;
    assert_eq!(removed.status, 204);
    let listed = fixture.bob.notification_settings().await;
    assert_eq!(listed["channels"].as_array().unwrap().len(), 1, "{listed}");
    two_rounds(&mut fixture, &mut links).await;
    assert!(devices.try_next().is_none());
}

#[tokio::test]
async fn everybody_chooses_events_and_sessions() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    for preferences in [
        json!({ "events": ["escalated", "closing"] }),
        json!({ "events": ["opened"], "sessions": ["another"] }),
        json!({ "events": ["opened"], "sessions": [] }),
    ] {
        fixture.bob.prefer(preferences).await;
        two_rounds(&mut fixture, &mut anns).await;
        assert!(bobs.try_next().is_none());
    }
    fixture.bob.prefer(json!({ "sessions": [SESSION] })).await;
    two_rounds(&mut fixture, &mut anns).await;
    assert_eq!(told(&bobs.next().await).0, "opened");
}

/// Quiet hours in UTC that it is now. They end with this minute, or the next if this one has hardly
/// begun to last.
fn quiet_until_soon() -> Value {
    let minutes = (pvp_clock::now().as_millis() + 10_000) / 60_000 + 1;
    let time = |minutes: u64| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
    json!({ "from": time(minutes - 120), "to": time(minutes), "time_zone": "UTC" })
}

#[tokio::test]
async fn in_quiet_hours_nobody_is_told_and_what_still_waits_is_told_afterwards() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({ "gate_timeout_seconds": 0 }), "").await;
    fixture.ann.add_webhook(&anns).await;
    fixture.bob.add_webhook(&bobs).await;
    // The first attempt fails before the quiet hours begin.
    bobs.answer_next_with(ReceiverAnswer::Head(
        "HTTP/1.1 503 Later\r\nRetry-After: 2".to_owned(),
    ));
    let retried = fixture.propose("touch retried").await;
    anns.next().await;
    let (_, retried_gate) = told(&bobs.next().await);
    let quiet = quiet_until_soon();
    let settings = fixture.bob.prefer(json!({ "quiet_hours": quiet })).await;
    assert_eq!(settings["quiet_hours"], quiet);
    fixture.propose("touch waiting").await;
    let (_, waiting_gate) = told(&anns.next().await);
    assert!(bobs.try_next().is_none());
    // Nobody does anything; the hours end.
    let both = [
        told(&bobs.next_within(QUIET_TIMEOUT).await),
        told(&bobs.next().await),
    ];
    for gate in [retried_gate, waiting_gate] {
        assert!(both.contains(&("opened".to_owned(), gate)), "{both:?}");
    }
    fixture.approve(&retried).await;
}

#[tokio::test]
async fn a_channel_that_is_turned_off_is_quiet() {
    let (mut anns, mut bobs) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    fixture.ann.add_webhook(&anns).await;
    let channel = fixture.bob.add_webhook(&bobs).await;
    let path = format!(
        "/api/notifications/channels/{}",
        channel["id"].as_str().unwrap()
    );
    let change = json!({ "enabled": false, "label": "resting" });
    let changed = fixture
        .bob
        .api
        .request("PATCH", &path, Some(change))
        .await
        .expect_ok();
    assert_eq!(
        (&changed["enabled"], &changed["label"]),
        (&json!(false), &json!("resting"))
    );
    two_rounds(&mut fixture, &mut anns).await;
    assert!(bobs.try_next().is_none());
    let removed = fixture.bob.api.request("DELETE", &path, None).await;
    assert_eq!(removed.status, 204);
    let again = fixture.bob.api.request("DELETE", &path, None).await;
    again.expect_refusal(404);
}

impl ApiUser {
    /// Changes the role of somebody in the session.
    async fn change_role(&self, whose: &Self, old: &str, new: &str) {
        let change = json!({
            "participant": whose.id(), "old_roles": [old], "new_roles": [new],
            "changed_by": self.id(),
        });
        let kind = "participant.role_change";
        let message = self.api.send_message(SESSION, kind, change);
        message.await.expect_ok();
    }

    async fn leave(&self) {
        let leave = json!({ "reason": "done" });
        let message = self.api.send_message(SESSION, "session.leave", leave);
        message.await.expect_ok();
    }

    /// Whether the list of gates says that each of them may be voted on.
    async fn may_vote(&self, path: &str) -> Vec<bool> {
        let gates = self.api.get(path).await.expect_ok();
        let gates = gates["gates"].as_array().unwrap().iter();
        gates
            .map(|gate| gate["may_vote"].as_bool().unwrap())
            .collect()
    }
}

#[tokio::test]
async fn whoever_an_admin_has_demoted_or_who_has_left_hears_no_more_of_it() {
    let (mut anns, mut kims) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut fixture = trusting_fixture(json!({}), "").await;
    let kim = ApiUser::invite(&fixture.server, "kim", &["approver"]).await;
    kim.join(SESSION).await;
    fixture.ann.add_webhook(&anns).await;
    kim.add_webhook(&kims).await;
    fixture.bob.add_webhook(&kims).await;
    fixture.ann.change_role(&kim, "approver", "observer").await;
    kim.leave().await;
    fixture.bob.leave().await;
    two_rounds(&mut fixture, &mut anns).await;
    assert!(kims.try_next().is_none());
    fixture.propose("touch more").await;
    assert_eq!(kim.may_vote("/api/gates").await, [false]);
    // Bob may come back at any time, and vote.
    assert_eq!(fixture.bob.may_vote("/api/gates").await, [true]);
}

#[tokio::test]
async fn whoever_has_only_closed_their_client_is_told() {
    let mut dans = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({}), "").await;
    let dan = ApiUser::invite(&fixture.server, "dan", &["approver"]).await;
    dan.add_webhook(&dans).await;
    drop(fixture.server.join(SESSION, &dan.user).await);
    fixture.propose("touch a").await;
    assert_eq!(told(&dans.next().await).0, "opened");
}

#[tokio::test]
async fn an_admin_who_has_not_joined_is_told_of_an_escalation_and_an_approver_is_not() {
    let (mut bosses, mut zoes) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let config = json!({ "gate_timeout_seconds": 1, "on_gate_timeout": "escalate" });
    let mut fixture = trusting_fixture(config, "closing_seconds = 5").await;
    let boss = ApiUser::invite(&fixture.server, "boss", &["admin"]).await;
    let zoe = ApiUser::invite(&fixture.server, "zoe", &["approver"]).await;
    let only = json!({ "events": ["escalated"] });
    boss.add_webhook(&bosses).await;
    zoe.add_webhook(&zoes).await;
    boss.prefer(only.clone()).await;
    zoe.prefer(only).await;
    fixture.propose("rm -r build").await;
    assert_eq!(told(&bosses.next().await).0, "escalated");
    assert!(zoes.try_next().is_none());
}

#[tokio::test]
async fn the_list_of_gates_says_who_may_vote_on_an_escalated_one() {
    let config = json!({ "gate_timeout_seconds": 10, "on_gate_timeout": "escalate" });
    let mut fixture = trusting_fixture(config, "").await;
    let boss = ApiUser::invite(&fixture.server, "boss", &["admin"]).await;
    let zoe = ApiUser::invite(&fixture.server, "zoe", &["approver"]).await;
    let proposal = fixture.propose("rm -r build").await;
    assert_eq!(zoe.may_vote("/api/gates").await, [true]);
    super::wait_until(async || fixture.gate(&proposal).await["open"]["escalated"] == true).await;
    assert_eq!(zoe.may_vote("/api/gates").await, [false]);
    assert_eq!(boss.may_vote("/api/gates").await, [true]);
    let vote = boss.api.vote(SESSION, &proposal, approve_vote()).await;
    assert_eq!(vote.expect_ok()["gate"]["status"], "approved");
}

#[tokio::test]
async fn whoever_becomes_an_approver_while_a_gate_waits_is_told_of_it() {
    let mut kims = HttpReceiver::start().await;
    let mut fixture = trusting_fixture(json!({ "gate_timeout_seconds": 0 }), "").await;
    let kim = ApiUser::invite(&fixture.server, "kim", &["approver"]).await;
    kim.join(SESSION).await;
    kim.add_webhook(&kims).await;
    fixture.ann.change_role(&kim, "approver", "observer").await;
    fixture.propose("touch a").await;
    assert_eq!(kim.may_vote("/api/gates").await, [false]);
    let version = &kim.api.get("/api/gates").await.expect_ok()["version"];
    let waiting = format!("/api/gates?after={version}&wait=60");
    let (may_vote, ()) = tokio::join!(
        kim.may_vote(&waiting),
        fixture.ann.change_role(&kim, "observer", "approver"),
    );
    assert_eq!(may_vote, [true]);
    assert_eq!(told(&kims.next().await).0, "opened");
}

#[tokio::test]
async fn an_agent_in_one_session_does_not_keep_a_person_from_hearing_of_another() {
    let mut bobs = HttpReceiver::start().await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut fixture = trusting_fixture(config.clone(), "").await;
    // Its name comes before that of the other.
    let spam = "a-spam";
    fixture.server.create_session(spam, config).await;
    fixture.bob.add_webhook(&bobs).await;
    fixture.bob.prefer(json!({ "events": [] })).await;
    let spammer = ["--kind", "agent", "--session", spam];
    let spammer = fixture.server.invite("spammer", &["driver"], &spammer);
    let mut spammer = fixture.server.join(spam, &spammer).await;
    for number in 0..29 {
        spammer.propose(&format!("touch {number}")).await;
    }
    spammer.propose("rm -r build").await;
    fixture.bob.prefer(json!({ "events": ["opened"] })).await;
    let mut told = Vec::new();
    while told.len() < 21 {
        told.push(bobs.next().await.json());
    }
    // The most urgent came first, although it opened last, and at the end the rest was summed up.
    assert_eq!(told[0]["category"], "destructive");
    let more: Vec<_> = told
        .iter()
        .filter(|it| it["event"] == "more_wait")
        .collect();
    assert_eq!(more.len(), 1);
    assert_eq!(more[0]["title"], "10 more commands wait for your vote");
    fixture.propose("touch real").await;
    let mut others = 0;
    while bobs.next().await.json()["session"] != SESSION {
        others += 1;
    }
    // All thirty would have been told before it.
    assert!(others < 9, "{others}");
}
