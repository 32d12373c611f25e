//! Gates wherever they wait, for those who may see them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http::{Api, joining};
use crate::kit::{Client, Server};
use crate::room::{ROOM, Room, Someone, approve, reject};

/// Which commands wait where.
fn commands(list: &Value) -> Vec<(String, String)> {
    let gates = list["gates"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    gates
        .map(|gate| {
            (
                text(&gate["session"]),
                text(&gate["action"]["command"]["line"]),
            )
        })
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = expected.iter();
    pairs
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

async fn gates(api: &Api) -> Value {
    api.get("/api/gates").await.ok()
}

#[tokio::test]
async fn gates_of_every_session_are_listed_for_those_whose_token_opens_it() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_in(data.path(), &[]).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agents: BTreeMap<&str, Client> = BTreeMap::new();
    for session in ["one", "two", "three"] {
        server.create(session, json!({})).await;
        agents.insert(session, server.join(session, &bot).await);
    }
    let admin = Api::of(&server, &server.admin()).await;
    assert_eq!(commands(&gates(&admin).await), pairs(&[]));
    let mut proposals = Vec::new();
    for (session, command) in [("two", "touch a"), ("one", "touch b"), ("two", "touch c")] {
        proposals.push(agents.get_mut(session).unwrap().propose(command).await);
    }
    let all = pairs(&[("one", "touch b"), ("two", "touch a"), ("two", "touch c")]);
    let ann = Someone::from(
        &server,
        server.invite("ann", &["approver"], &["--session", "two"]),
    )
    .await;
    let pat = Someone::from(
        &server,
        server.invite("pat", &["approver"], &["--session", "three"]),
    )
    .await;
    assert_eq!(commands(&gates(&admin).await), all);
    assert_eq!(commands(&gates(&ann.api).await), all[1..]);
    assert_eq!(commands(&gates(&pat.api).await), pairs(&[]));
    // Of a session, the same list.
    let two = ann.api.get("/api/sessions/two/gates").await.ok();
    assert_eq!(two, gates(&ann.api).await);
    let may = async |api: &Api| -> Vec<bool> {
        let list = gates(api).await;
        let gates = list["gates"].as_array().unwrap().iter();
        gates
            .map(|gate| gate["may_vote"].as_bool().unwrap())
            .collect()
    };
    // Who has not joined would be joined by voting, with the roles of their token.
    assert_eq!(may(&admin).await, [true, true, true]);
    assert_eq!(may(&ann.api).await, [true, true]);
    let eve = Someone::invited(&server, "eve", &["observer", "driver"]).await;
    let agent = server.invite("spy", &["approver"], &["--kind", "agent"]);
    for who in [eve, Someone::from(&server, agent).await] {
        assert_eq!(may(&who.api).await, [false, false, false]);
    }
    // Who has joined as less is less.
    let pam = Someone::invited(&server, "pam", &["approver", "observer"]).await;
    let mut join = joining(&pam.who);
    join["participant"]["roles"] = json!(["observer"]);
    pam.api.tell("two", "session.join", join).await.ok();
    assert_eq!(may(&pam.api).await, [true, false, false]);
    ann.join("two").await;
    assert_eq!(may(&ann.api).await, [true, true]);
    ann.api.vote("two", &proposals[0], reject("no")).await.ok();
    let left = pairs(&[("one", "touch b"), ("two", "touch c")]);
    assert_eq!(commands(&gates(&admin).await), left);

    // After a restart nothing is in memory, and everything is listed.
    let before = gates(&admin).await;
    let admin_token = server.admin();
    drop(agents);
    assert!(server.stop().await.success());
    let server = Server::start_in(data.path(), &[]).await;
    let admin = Api::of(&server, &admin_token).await;
    let ann = Someone::from(&server, ann.who).await;
    let after = gates(&admin).await;
    assert_eq!(after["gates"], before["gates"]);
    assert_ne!(
        after["version"], before["version"],
        "who waits is told of the restart"
    );
    assert_eq!(commands(&gates(&ann.api).await), left[1..]);
    let passed = ann.api.vote("two", &proposals[2], approve()).await.ok();
    assert_eq!(passed["gate"]["status"], "approved");
    assert_eq!(commands(&gates(&admin).await), left[..1]);
}

#[tokio::test]
async fn a_gate_is_told_whole_by_either_of_its_names() {
    let mut room = Room::open(json!({ "default_gate_quorum": { "type": "all" } })).await;
    let proposal = room.propose("touch a").await;
    let log = room.log();
    let find = |kind: &str| {
        log.iter()
            .rev()
            .find(|entry| entry["type"] == kind)
            .unwrap()
    };
    let (request, propose) = (find("gate.request"), find("tool.propose"));
    let mut voters = [room.ann.id(), room.bob.id()];
    voters.sort_unstable();
    let open = json!({
        "session": ROOM, "gate": request["id"], "request": request["payload"],
        "action": { "command": { "form": "shell", "line": "touch a" }, "mode": "normal" },
        "assessment": propose["payload"]["assessment"], "proposer": room.bot.id(), "description": "a test",
        "approvals": [], "escalated": false, "received": 0, "required": 2, "awaited": voters,
        "may_vote": true,
    });
    assert_eq!(request["payload"]["voters"], json!(voters));
    let whole =
        json!({ "session": ROOM, "tool_proposal": proposal, "status": "open", "open": open });
    for name in [request["id"].as_str().unwrap(), &proposal] {
        assert_eq!(room.gate(name).await, whole);
    }
    let list = room
        .bob
        .api
        .get(&format!("/api/sessions/{ROOM}/gates"))
        .await
        .ok();
    assert_eq!(list["gates"], json!([open]));
    let voted = room
        .ann
        .api
        .vote(ROOM, request["id"].as_str().unwrap(), approve())
        .await
        .ok();
    let vote = room.log().pop().unwrap();
    assert_eq!(
        voted["ack"],
        json!({ "id": vote["id"], "seq": vote["seq"] })
    );
    let mut after = open.clone();
    after["approvals"] = json!([{ "participant": room.ann.id(), "at": vote["ts"] }]);
    after["received"] = json!(1);
    after["awaited"] = json!([room.bob.id()]);
    assert_eq!(voted["gate"]["open"], after);
    room.bob.api.vote(ROOM, &proposal, approve()).await.ok();
    let resolve = room
        .log()
        .into_iter()
        .find(|entry| entry["type"] == "gate.resolve")
        .unwrap();
    let closed = json!({ "session": ROOM, "tool_proposal": proposal, "status": "approved", "resolution": resolve["payload"] });
    for name in [request["id"].as_str().unwrap(), &proposal] {
        assert_eq!(room.gate(name).await, closed);
    }
}

#[tokio::test]
async fn a_gate_says_how_it_was_closed() {
    let mut room = Room::open(json!({ "gate_timeout_seconds": 1 })).await;
    let late = room.propose("touch a").await;
    room.agent.wait_for("gate.resolve").await;
    let change = json!({ "changes": { "gate_timeout_seconds": 300 }, "reason": "r" });
    room.ann
        .api
        .tell(ROOM, "session.config_update", change)
        .await
        .ok();
    let withdrawn = room.propose("touch b").await;
    room.agent
        .say("tool.cancel", json!({ "tool_proposal": withdrawn }))
        .await;
    let refused = room.propose("touch c").await;
    room.bob
        .api
        .vote(ROOM, &refused, reject("not so"))
        .await
        .ok();
    let how = async |proposal: &str| {
        let gate = room.gate(proposal).await;
        let resolution = &gate["resolution"];
        json!([
            gate["status"],
            resolution["outcome"],
            resolution["by"],
            resolution["reason"]
        ])
    };
    assert_eq!(
        how(&late).await,
        json!([
            "timed_out",
            "timed_out",
            null,
            "nobody decided before the deadline"
        ])
    );
    assert_eq!(
        how(&withdrawn).await,
        json!(["cancelled", "cancelled", room.bot.id(), null])
    );
    assert_eq!(
        how(&refused).await,
        json!(["rejected", "rejected", room.bob.id(), "not so"])
    );
}

/// The state that is told over HTTP is one that is written.
#[tokio::test]
async fn what_is_asked_while_much_happens_is_answered_from_the_log() {
    let mut room = Room::open(json!({})).await;
    let (eve, bob) = (room.eve.api.clone(), room.bob.api.clone());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let watching = tokio::spawn(async move {
        let mut looks = 0;
        while !*stopped.borrow() {
            let seen = eve
                .get(&format!("/api/sessions/{ROOM}/history?limit=3"))
                .await
                .ok();
            for command in seen["commands"].as_array().unwrap() {
                let id = command["tool_proposal"].as_str().unwrap();
                let gate = eve
                    .get(&format!("/api/sessions/{ROOM}/gates/{id}"))
                    .await
                    .ok();
                assert_eq!(gate["status"] == "open", gate["open"].is_object());
            }
            looks += 1;
        }
        looks
    });
    for number in 0..60 {
        let proposal = room.propose(&format!("touch {number}")).await;
        let voted = bob.vote(ROOM, &proposal, reject("r")).await.ok();
        assert_eq!(voted["gate"]["status"], "rejected");
    }
    stop.send_replace(true);
    assert!(watching.await.unwrap() > 3);
}
