//! Long polling, and the presence of those who poll.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, context_payload};
use crate::http_client::{HttpResponse, HttpTestClient};
use crate::support::TestServer;

const MESSAGES: &str = "/api/sessions/room/messages";

/// Sends a GET in the background.
fn spawn_get(api: &HttpTestClient, path: String) -> JoinHandle<HttpResponse> {
    let api = api.clone();
    tokio::spawn(async move { api.get(&path).await })
}

/// The number of open connections according to the server's metrics.
async fn connection_count(api: &HttpTestClient) -> u64 {
    let text = api.get("/metrics").await.text;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("pvp_connections "));
    line.unwrap().parse().unwrap()
}

/// Waits until this many polls are waiting, besides the agent's socket and this request.
async fn wait_for_polls(api: &HttpTestClient, count: u64) {
    let begun = std::time::Instant::now();
    while connection_count(api).await != count + 2 {
        assert!(
            begun.elapsed() < crate::support::TEST_TIMEOUT,
            "it does not come to {count}"
        );
    }
}

async fn log_head(api: &HttpTestClient) -> u64 {
    api.get(MESSAGES).await.expect_ok()["head"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn a_poll_ends_with_the_message_it_waited_for() {
    let fixture = ApiFixture::new(json!({})).await;
    let after = log_head(&fixture.eve.api).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    wait_for_polls(&nobody, 0).await;
    let polls: Vec<_> = [&fixture.eve, &fixture.bob]
        .map(|user| spawn_get(&user.api, format!("{MESSAGES}?after={after}&wait=60")))
        .into();
    wait_for_polls(&nobody, 2).await;
    assert!(
        polls.iter().all(|poll| !poll.is_finished()),
        "there is nothing to tell"
    );
    let sent = fixture
        .ann
        .api
        .send_message(SESSION, "context.add", context_payload("news"))
        .await
        .expect_ok();
    for poll in polls {
        let page = poll.await.unwrap().expect_ok();
        let messages = page["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(
            (&messages[0]["id"], &messages[0]["payload"]["key"]),
            (&sent["id"], &json!("news"))
        );
        assert_eq!(
            (&page["next"], &page["head"]),
            (&json!(after + 1), &json!(after + 1))
        );
    }
}

#[tokio::test]
async fn a_poll_does_not_return_entries_for_others() {
    let fixture = ApiFixture::new(json!({})).await;
    let after = log_head(&fixture.eve.api).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    wait_for_polls(&nobody, 0).await;
    let eve = spawn_get(
        &fixture.eve.api,
        format!("{MESSAGES}?after={after}&wait=60"),
    );
    let bob = spawn_get(
        &fixture.bob.api,
        format!("{MESSAGES}?after={after}&wait=60"),
    );
    wait_for_polls(&nobody, 2).await;
    let mut secret = context_payload("plum");
    secret["visible_to"] = json!([fixture.bob.id()]);
    fixture
        .ann
        .api
        .send_message(SESSION, "context.add", secret)
        .await
        .expect_ok();
    assert_eq!(
        bob.await.unwrap().expect_ok()["messages"][0]["payload"]["key"],
        "plum"
    );
    fixture
        .ann
        .api
        .send_message(SESSION, "context.add", context_payload("apple"))
        .await
        .expect_ok();
    let page = eve.await.unwrap().expect_ok();
    let keys: Vec<_> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["payload"]["key"])
        .collect();
    assert_eq!(
        (keys, &page["next"]),
        (vec![&json!("apple")], &json!(after + 2))
    );
}

#[tokio::test]
async fn a_poll_that_times_out_returns_an_empty_page() {
    let fixture = ApiFixture::new(json!({})).await;
    let after = log_head(&fixture.eve.api).await;
    let empty = json!({ "messages": [], "next": after, "head": after });
    for wait in [0, 1] {
        let page = fixture
            .eve
            .api
            .get(&format!("{MESSAGES}?after={after}&wait={wait}"))
            .await
            .expect_ok();
        assert_eq!(page, empty);
    }
}

#[tokio::test]
async fn polls_end_when_the_server_shuts_down() {
    let mut fixture = ApiFixture::new(json!({})).await;
    fixture.propose("touch a").await;
    // After a restart nobody is present, so the next arrival is an event.
    fixture.server.kill_9().await;
    let mut server = TestServer::start_in(&fixture.server.data, &[]).await;
    let mut agent = server.join(SESSION, &fixture.bot.user).await;
    let ann = HttpTestClient::with_token(&server, &fixture.ann.user).await;
    let eve = HttpTestClient::with_token(&server, &fixture.eve.user).await;
    let after = log_head(&ann).await;
    let version = ann.get("/api/gates").await.expect_ok()["version"].clone();
    wait_for_polls(&ann, 0).await;
    let gates = spawn_get(&ann, format!("/api/gates?after={version}&wait=60"));
    let messages = spawn_get(&eve, format!("{MESSAGES}?after={after}&wait=60"));
    agent
        .wait(|message| {
            let came = json!([fixture.eve.id(), "active"]);
            let payload = &message["payload"];
            message["type"] == "presence.update"
                && json!([payload["participant"], payload["status"]]) == came
        })
        .await;
    wait_for_polls(&ann, 2).await;
    assert!(!messages.is_finished() && !gates.is_finished());
    server.request_stop();
    let page = messages.await.unwrap().expect_ok();
    assert_eq!(
        page,
        json!({ "messages": [], "next": after, "head": after })
    );
    // There is an open gate, so a list without it would be wrong.
    let refused = gates.await.unwrap();
    assert!(
        refused
            .expect_refusal(503)
            .1
            .contains("the server is shutting down")
    );
    assert_eq!(refused.json()["recoverable"], true);
    assert!(server.wait_stopped().await.success());
}

/// The current version of a user's list of gates.
async fn gates_version(user: &ApiUser) -> u64 {
    user.api.get("/api/gates").await.expect_ok()["version"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn waiting_for_gates_ends_with_a_proposal_a_vote_an_edit_and_a_resolution() {
    let mut fixture =
        ApiFixture::new(json!({ "default_gate_quorum": { "type": "any", "count": 2 } })).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    let mut version = gates_version(&fixture.eve).await;
    let mut proposal = String::new();
    let mut received: Vec<Value> = Vec::new();
    for step in ["propose", "vote", "edit", "reject"] {
        wait_for_polls(&nobody, 0).await;
        let wait = spawn_get(
            &fixture.eve.api,
            format!("/api/gates?after={version}&wait=60"),
        );
        wait_for_polls(&nobody, 1).await;
        assert!(!wait.is_finished(), "nothing has changed before {step}");
        match step {
            "propose" => proposal = fixture.propose("touch a").await,
            "vote" => drop(
                fixture
                    .ann
                    .api
                    .vote(SESSION, &proposal, approve_vote())
                    .await
                    .expect_ok(),
            ),
            "edit" => {
                let digest = &received[1]["gates"][0]["assessment"]["digest"];
                let edit = json!({ "arguments": { "command": "sh", "args": [], "full_command": "touch b" }, "digest": digest });
                let path = format!("/api/sessions/{SESSION}/gates/{proposal}/amend");
                fixture.ann.api.post(&path, edit).await.expect_ok();
            }
            _ => {
                let digest = &received[2]["gates"][0]["assessment"]["digest"];
                let ballot = json!({ "vote": "reject", "reason": "r", "digest": digest });
                fixture
                    .bob
                    .api
                    .vote(SESSION, &proposal, ballot)
                    .await
                    .expect_ok();
            }
        }
        let list = wait.await.unwrap().expect_ok();
        let next = list["version"].as_u64().unwrap();
        assert!(next > version);
        version = next;
        received.push(list);
    }
    let stands = |list: &Value| {
        let gate = &list["gates"][0];
        json!([
            gate["received"],
            gate["required"],
            gate["action"]["command"]["line"]
        ])
    };
    assert_eq!(stands(&received[0]), json!([0, 2, "touch a"]));
    assert_eq!(stands(&received[1]), json!([1, 2, "touch a"]));
    assert_eq!(
        stands(&received[2]),
        json!([0, 2, "touch b"]),
        "an edit voids votes"
    );
    assert_eq!(received[3]["gates"], json!([]));
    // An outdated version, or none, is answered at once.
    for query in ["?after=0&wait=60", "?wait=60", &format!("?after={version}")] {
        let list = fixture
            .eve
            .api
            .get(&format!("/api/gates{query}"))
            .await
            .expect_ok();
        assert_eq!(list, json!({ "gates": [], "version": version }));
    }
}

#[tokio::test]
async fn a_participant_who_only_polls_is_present_and_keeps_their_vote() {
    let config = json!({ "away_timeout_seconds": 12, "idle_timeout_seconds": 1, "default_gate_quorum": { "type": "all" } });
    let mut fixture = ApiFixture::new(config).await;
    // Bob polls, Ann does not; the agent receives the entry that counts her as away.
    let poll = spawn_get(&fixture.bob.api, format!("{MESSAGES}?after=1000&wait=60"));
    let away = |user: &str| {
        let user = user.to_owned();
        move |message: &Value| {
            let payload = &message["payload"];
            message["type"] == "presence.update"
                && payload["participant"] == user.as_str()
                && payload["status"] == "away"
        }
    };
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    wait_for_polls(&nobody, 1).await;
    // However long joining took, both are present when the command is proposed.
    log_head(&fixture.ann.api).await;
    fixture.agent.sync().await;
    let received = fixture.agent.received.len();
    let proposal = fixture.propose("touch a").await;
    assert_eq!(fixture.gate(&proposal).await["open"]["required"], 2);
    let idle = fixture.ann.id().to_owned();
    let bob = fixture.bob.id().to_owned();
    fixture.agent.wait(away(&idle)).await;
    fixture.agent.sync().await;
    // Eve sends the request, so that it changes nobody's presence.
    let state = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}"))
        .await
        .expect_ok();
    let presence = |name: &str| {
        let people = state["people"].as_array().unwrap();
        people.iter().find(|person| person["id"] == name).unwrap()["presence"].clone()
    };
    assert!(!poll.is_finished());
    assert_eq!(presence(&idle), "away");
    assert_eq!(presence(&bob), "idle", "there, and doing nothing");
    let gate = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}/gates/{proposal}"))
        .await
        .expect_ok();
    assert_eq!(
        (&gate["open"]["required"], &gate["open"]["awaited"]),
        (&json!(1), &json!([bob]))
    );
    let passed = fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    assert_eq!(passed["gate"]["status"], "approved");
    assert!(!fixture.agent.received[received..].iter().any(away(&bob)));
    poll.abort();
}

#[tokio::test]
async fn an_http_request_counts_as_presence() {
    let fixture = ApiFixture::new(json!({})).await;
    let pat = ApiUser::invite(&fixture.server, "pat", &["approver"]).await;
    pat.join(SESSION).await;
    let mut agent = fixture.agent;
    agent.sync().await;
    let state = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}"))
        .await
        .expect_ok();
    let people = state["people"].as_array().unwrap();
    let presence: Vec<_> = people
        .iter()
        .map(|person| person["presence"].as_str().unwrap())
        .collect();
    assert_eq!(presence, ["active"; 5]);
}
