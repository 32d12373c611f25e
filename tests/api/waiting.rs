//! Waiting for what comes next, and being there meanwhile.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::http::{Answer, Api};
use crate::kit::Server;
use crate::room::{ROOM, Room, Someone, approve, context};

const MESSAGES: &str = "/api/sessions/room/messages";

/// Asks and waits for the answer meanwhile.
fn asking(api: &Api, path: String) -> JoinHandle<Answer> {
    let api = api.clone();
    tokio::spawn(async move { api.get(&path).await })
}

/// How many connections the server has, as it says itself.
async fn connections(api: &Api) -> u64 {
    let text = api.get("/metrics").await.text;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("pvp_connections "));
    line.unwrap().parse().unwrap()
}

/// Waits until these many wait for an answer, beside the agent's socket and the one who asks.
async fn waiting(api: &Api, count: u64) {
    let begun = std::time::Instant::now();
    while connections(api).await != count + 2 {
        assert!(
            begun.elapsed() < crate::kit::PATIENCE,
            "it does not come to {count}"
        );
    }
}

async fn head(api: &Api) -> u64 {
    api.get(MESSAGES).await.ok()["head"].as_u64().unwrap()
}

#[tokio::test]
async fn a_poll_ends_with_the_message_it_waited_for() {
    let room = Room::open(json!({})).await;
    let after = head(&room.eve.api).await;
    let nobody = Api::anyone(&room.server).await;
    waiting(&nobody, 0).await;
    let polls: Vec<_> = [&room.eve, &room.bob]
        .map(|who| asking(&who.api, format!("{MESSAGES}?after={after}&wait=60")))
        .into();
    waiting(&nobody, 2).await;
    assert!(
        polls.iter().all(|poll| !poll.is_finished()),
        "there is nothing to tell"
    );
    let sent = room
        .ann
        .api
        .tell(ROOM, "context.add", context("news"))
        .await
        .ok();
    for poll in polls {
        let page = poll.await.unwrap().ok();
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
async fn a_poll_does_not_end_with_what_is_for_others() {
    let room = Room::open(json!({})).await;
    let after = head(&room.eve.api).await;
    let nobody = Api::anyone(&room.server).await;
    waiting(&nobody, 0).await;
    let eve = asking(&room.eve.api, format!("{MESSAGES}?after={after}&wait=60"));
    let bob = asking(&room.bob.api, format!("{MESSAGES}?after={after}&wait=60"));
    waiting(&nobody, 2).await;
    let mut secret = context("plum");
    secret["visible_to"] = json!([room.bob.id()]);
    room.ann.api.tell(ROOM, "context.add", secret).await.ok();
    assert_eq!(
        bob.await.unwrap().ok()["messages"][0]["payload"]["key"],
        "plum"
    );
    room.ann
        .api
        .tell(ROOM, "context.add", context("apple"))
        .await
        .ok();
    let page = eve.await.unwrap().ok();
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
async fn a_poll_ends_empty_when_its_time_is_over() {
    let room = Room::open(json!({})).await;
    let after = head(&room.eve.api).await;
    let empty = json!({ "messages": [], "next": after, "head": after });
    for wait in [0, 1] {
        let page = room
            .eve
            .api
            .get(&format!("{MESSAGES}?after={after}&wait={wait}"))
            .await
            .ok();
        assert_eq!(page, empty);
    }
}

#[tokio::test]
async fn polls_end_when_the_server_is_asked_to_stop() {
    let mut room = Room::open(json!({})).await;
    room.propose("touch a").await;
    // After a restart nobody is there, so that it is told when someone comes.
    room.server.kill_9().await;
    let mut server = Server::start_in(&room.server.data, &[]).await;
    let mut agent = server.join(ROOM, &room.bot.who).await;
    let ann = Api::of(&server, &room.ann.who).await;
    let eve = Api::of(&server, &room.eve.who).await;
    let after = head(&ann).await;
    let version = ann.get("/api/gates").await.ok()["version"].clone();
    waiting(&ann, 0).await;
    let gates = asking(&ann, format!("/api/gates?after={version}&wait=60"));
    let messages = asking(&eve, format!("{MESSAGES}?after={after}&wait=60"));
    agent
        .wait(|message| {
            let came = json!([room.eve.id(), "active"]);
            let payload = &message["payload"];
            message["type"] == "presence.update"
                && json!([payload["participant"], payload["status"]]) == came
        })
        .await;
    waiting(&ann, 2).await;
    assert!(!messages.is_finished() && !gates.is_finished());
    server.ask_to_stop();
    let page = messages.await.unwrap().ok();
    assert_eq!(
        page,
        json!({ "messages": [], "next": after, "head": after })
    );
    // There is an open gate, so a list without it would be false.
    let refused = gates.await.unwrap();
    assert!(
        refused
            .refused(503)
            .1
            .contains("the server is shutting down")
    );
    assert_eq!(refused.json()["recoverable"], true);
    assert!(server.stopped().await.success());
}

/// The version of the gates that someone sees.
async fn version_of(who: &Someone) -> u64 {
    who.api.get("/api/gates").await.ok()["version"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn waiting_for_gates_ends_with_a_proposal_a_vote_an_edit_and_a_resolution() {
    let mut room =
        Room::open(json!({ "default_gate_quorum": { "type": "any", "count": 2 } })).await;
    let nobody = Api::anyone(&room.server).await;
    let mut version = version_of(&room.eve).await;
    let mut proposal = String::new();
    let mut told: Vec<Value> = Vec::new();
    for step in ["propose", "vote", "edit", "reject"] {
        waiting(&nobody, 0).await;
        let wait = asking(&room.eve.api, format!("/api/gates?after={version}&wait=60"));
        waiting(&nobody, 1).await;
        assert!(!wait.is_finished(), "nothing has changed before {step}");
        match step {
            "propose" => proposal = room.propose("touch a").await,
            "vote" => drop(room.ann.api.vote(ROOM, &proposal, approve()).await.ok()),
            "edit" => {
                let digest = &told[1]["gates"][0]["assessment"]["digest"];
                let edit = json!({ "arguments": { "command": "sh", "args": [], "full_command": "touch b" }, "digest": digest });
                let path = format!("/api/sessions/{ROOM}/gates/{proposal}/amend");
                room.ann.api.post(&path, edit).await.ok();
            }
            _ => {
                let digest = &told[2]["gates"][0]["assessment"]["digest"];
                let ballot = json!({ "vote": "reject", "reason": "r", "digest": digest });
                room.bob.api.vote(ROOM, &proposal, ballot).await.ok();
            }
        }
        let list = wait.await.unwrap().ok();
        let next = list["version"].as_u64().unwrap();
        assert!(next > version);
        version = next;
        told.push(list);
    }
    let stands = |list: &Value| {
        let gate = &list["gates"][0];
        json!([
            gate["received"],
            gate["required"],
            gate["action"]["command"]["line"]
        ])
    };
    assert_eq!(stands(&told[0]), json!([0, 2, "touch a"]));
    assert_eq!(stands(&told[1]), json!([1, 2, "touch a"]));
    assert_eq!(
        stands(&told[2]),
        json!([0, 2, "touch b"]),
        "an edit voids votes"
    );
    assert_eq!(told[3]["gates"], json!([]));
    // A version of another time, or none, is answered at once.
    for query in ["?after=0&wait=60", "?wait=60", &format!("?after={version}")] {
        let list = room.eve.api.get(&format!("/api/gates{query}")).await.ok();
        assert_eq!(list, json!({ "gates": [], "version": version }));
    }
}

#[tokio::test]
async fn who_only_polls_is_present_and_keeps_their_vote() {
    let config = json!({ "away_timeout_seconds": 12, "idle_timeout_seconds": 1, "default_gate_quorum": { "type": "all" } });
    let mut room = Room::open(config).await;
    // Bob polls, Ann does not; the agent hears when she is counted out.
    let poll = asking(&room.bob.api, format!("{MESSAGES}?after=1000&wait=60"));
    let away = |who: &str| {
        let who = who.to_owned();
        move |message: &Value| {
            let payload = &message["payload"];
            message["type"] == "presence.update"
                && payload["participant"] == who.as_str()
                && payload["status"] == "away"
        }
    };
    let nobody = Api::anyone(&room.server).await;
    waiting(&nobody, 1).await;
    // However long it took to come in, both are there when it is proposed.
    head(&room.ann.api).await;
    room.agent.settle().await;
    let heard = room.agent.received.len();
    let proposal = room.propose("touch a").await;
    assert_eq!(room.gate(&proposal).await["open"]["required"], 2);
    let idle = room.ann.id().to_owned();
    let bob = room.bob.id().to_owned();
    room.agent.wait(away(&idle)).await;
    room.agent.settle().await;
    // Eve asks, so that nobody is woken by it.
    let state = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}"))
        .await
        .ok();
    let presence = |name: &str| {
        let people = state["people"].as_array().unwrap();
        people.iter().find(|person| person["id"] == name).unwrap()["presence"].clone()
    };
    assert!(!poll.is_finished());
    assert_eq!(presence(&idle), "away");
    assert_eq!(presence(&bob), "idle", "there, and doing nothing");
    let gate = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}/gates/{proposal}"))
        .await
        .ok();
    assert_eq!(
        (&gate["open"]["required"], &gate["open"]["awaited"]),
        (&json!(1), &json!([bob]))
    );
    let passed = room.bob.api.vote(ROOM, &proposal, approve()).await.ok();
    assert_eq!(passed["gate"]["status"], "approved");
    assert!(!room.agent.received[heard..].iter().any(away(&bob)));
    poll.abort();
}

#[tokio::test]
async fn looking_in_over_http_is_being_there() {
    let room = Room::open(json!({})).await;
    let pat = Someone::invited(&room.server, "pat", &["approver"]).await;
    pat.join(ROOM).await;
    let mut agent = room.agent;
    agent.settle().await;
    let state = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}"))
        .await
        .ok();
    let people = state["people"].as_array().unwrap();
    let presence: Vec<_> = people
        .iter()
        .map(|person| person["presence"].as_str().unwrap())
        .collect();
    assert_eq!(presence, ["active"; 5]);
}
