//! Listing and reading gates of all sessions that a token opens.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, reject_vote};
use crate::http_client::{HttpTestClient, join_payload};
use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer, short_id};

/// The waiting commands with their sessions.
fn waiting_commands(list: &Value) -> Vec<(String, String)> {
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

async fn get_gates(api: &HttpTestClient) -> Value {
    api.get("/api/gates").await.expect_ok()
}

#[tokio::test]
async fn the_gates_of_all_sessions_that_a_token_allows_are_listed() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agents: BTreeMap<&str, TestClient> = BTreeMap::new();
    for session in ["one", "two", "three"] {
        server.create_session(session, json!({})).await;
        agents.insert(session, server.join(session, &bot).await);
    }
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    assert_eq!(waiting_commands(&get_gates(&admin).await), pairs(&[]));
    let mut proposals = Vec::new();
    for (session, command) in [("two", "touch a"), ("one", "touch b"), ("two", "touch c")] {
        proposals.push(agents.get_mut(session).unwrap().propose(command).await);
    }
    let all = pairs(&[("one", "touch b"), ("two", "touch a"), ("two", "touch c")]);
    let ann = ApiUser::with_user(
        &server,
        server.invite("ann", &["approver"], &["--session", "two"]),
    )
    .await;
    let pat = ApiUser::with_user(
        &server,
        server.invite("pat", &["approver"], &["--session", "three"]),
    )
    .await;
    assert_eq!(waiting_commands(&get_gates(&admin).await), all);
    assert_eq!(waiting_commands(&get_gates(&ann.api).await), all[1..]);
    assert_eq!(waiting_commands(&get_gates(&pat.api).await), pairs(&[]));
    // The list of one session has the same gates.
    let two = ann.api.get("/api/sessions/two/gates").await.expect_ok();
    assert_eq!(two, get_gates(&ann.api).await);
    let may = async |api: &HttpTestClient| -> Vec<bool> {
        let list = get_gates(api).await;
        let gates = list["gates"].as_array().unwrap().iter();
        gates
            .map(|gate| gate["may_vote"].as_bool().unwrap())
            .collect()
    };
    // A user who has not joined is joined by voting, with the roles of their token.
    assert_eq!(may(&admin).await, [true, true, true]);
    assert_eq!(may(&ann.api).await, [true, true]);
    let eve = ApiUser::invite(&server, "eve", &["observer", "driver"]).await;
    let agent = server.invite("spy", &["approver"], &["--kind", "agent"]);
    for user in [eve, ApiUser::with_user(&server, agent).await] {
        assert_eq!(may(&user.api).await, [false, false, false]);
    }
    // A user who has joined with fewer roles has only those.
    let pam = ApiUser::invite(&server, "pam", &["approver", "observer"]).await;
    let mut join = join_payload(&pam.user);
    join["participant"]["roles"] = json!(["observer"]);
    pam.api
        .send_message("two", "session.join", join)
        .await
        .expect_ok();
    assert_eq!(may(&pam.api).await, [true, false, false]);
    ann.join("two").await;
    assert_eq!(may(&ann.api).await, [true, true]);
    ann.api
        .vote("two", &proposals[0], reject_vote("no"))
        .await
        .expect_ok();
    let left = pairs(&[("one", "touch b"), ("two", "touch c")]);
    assert_eq!(waiting_commands(&get_gates(&admin).await), left);

    // After a restart no session is in memory, and everything is still listed.
    let before = get_gates(&admin).await;
    let admin_token = server.admin();
    drop(agents);
    assert!(server.stop().await.success());
    let server = TestServer::start_in(data.path(), &[]).await;
    let admin = HttpTestClient::with_token(&server, &admin_token).await;
    let ann = ApiUser::with_user(&server, ann.user).await;
    let after = get_gates(&admin).await;
    assert_eq!(after["gates"], before["gates"]);
    assert_ne!(
        after["version"], before["version"],
        "who waits is told of the restart"
    );
    assert_eq!(waiting_commands(&get_gates(&ann.api).await), left[1..]);
    let passed = ann
        .api
        .vote("two", &proposals[2], approve_vote())
        .await
        .expect_ok();
    assert_eq!(passed["gate"]["status"], "approved");
    assert_eq!(waiting_commands(&get_gates(&admin).await), left[..1]);
}

#[tokio::test]
async fn a_gate_can_be_read_by_its_own_id_or_its_proposals_id() {
    let mut fixture = ApiFixture::new(json!({ "default_gate_quorum": { "type": "all" } })).await;
    let proposal = fixture.propose("touch a").await;
    let log = fixture.log();
    let find = |kind: &str| {
        log.iter()
            .rev()
            .find(|entry| entry["type"] == kind)
            .unwrap()
    };
    let (request, propose) = (find("gate.request"), find("tool.propose"));
    let mut voters = [fixture.ann.id(), fixture.bob.id()];
    voters.sort_unstable();
    let short = short_id(&proposal);
    let digest = propose["payload"]["assessment"]["digest"].as_str().unwrap();
    let open = json!({
        "short_id": short, "handle": format!("{short}@{}", &digest[..6]),
        "session": SESSION, "gate": request["id"], "request": request["payload"],
        "action": { "command": { "form": "shell", "line": "touch a" }, "mode": "normal" },
        "assessment": propose["payload"]["assessment"], "proposer": fixture.bot.id(), "description": "a test",
        "approvals": [], "escalated": false, "received": 0, "required": 2, "awaited": voters,
        "executor": { "profiles": ["read", "read_net", "workspace"], "shell_exec": true },
        "may_vote": true,
    });
    assert_eq!(request["payload"]["voters"], json!(voters));
    let history = format!("/api/sessions/{SESSION}/history");
    let history = fixture.bob.api.get(&history).await.expect_ok();
    let whole = json!({
        "session": SESSION, "tool_proposal": proposal, "short_id": short, "status": "open",
        "open": open, "command": history["commands"][0],
    });
    for name in [request["id"].as_str().unwrap(), &proposal, &short] {
        assert_eq!(fixture.gate(name).await, whole);
    }
    let list = fixture
        .bob
        .api
        .get(&format!("/api/sessions/{SESSION}/gates"))
        .await
        .expect_ok();
    assert_eq!(list["gates"], json!([open]));
    let voted = fixture
        .ann
        .api
        .vote(SESSION, request["id"].as_str().unwrap(), approve_vote())
        .await
        .expect_ok();
    let vote = fixture.log().pop().unwrap();
    assert_eq!(
        voted["ack"],
        json!({ "id": vote["id"], "seq": vote["seq"] })
    );
    let mut after = open.clone();
    after["approvals"] = json!([{ "participant": fixture.ann.id(), "at": vote["ts"] }]);
    after["received"] = json!(1);
    after["awaited"] = json!([fixture.bob.id()]);
    assert_eq!(voted["gate"]["open"], after);
    fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    let resolve = fixture
        .log()
        .into_iter()
        .find(|entry| entry["type"] == "gate.resolve")
        .unwrap();
    let history = format!("/api/sessions/{SESSION}/history");
    let history = fixture.bob.api.get(&history).await.expect_ok();
    let closed = json!({
        "session": SESSION, "tool_proposal": proposal, "short_id": short, "status": "approved",
        "resolution": resolve["payload"], "command": history["commands"][0],
    });
    for name in [request["id"].as_str().unwrap(), &proposal, &short] {
        assert_eq!(fixture.gate(name).await, closed);
    }
}

#[tokio::test]
async fn a_gate_says_how_it_was_closed() {
    let mut fixture = ApiFixture::new(json!({ "gate_timeout_seconds": 1 })).await;
    let late = fixture.propose("touch a").await;
    fixture.agent.wait_for("gate.resolve").await;
    let change = json!({ "changes": { "gate_timeout_seconds": 300 }, "reason": "r" });
    fixture
        .ann
        .api
        .send_message(SESSION, "session.config_update", change)
        .await
        .expect_ok();
    let withdrawn = fixture.propose("touch b").await;
    fixture
        .agent
        .send_and_ack("tool.cancel", json!({ "tool_proposal": withdrawn }))
        .await;
    let refused = fixture.propose("touch c").await;
    fixture
        .bob
        .api
        .vote(SESSION, &refused, reject_vote("not so"))
        .await
        .expect_ok();
    let how = async |proposal: &str| {
        let gate = fixture.gate(proposal).await;
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
        json!(["cancelled", "cancelled", fixture.bot.id(), null])
    );
    assert_eq!(
        how(&refused).await,
        json!(["rejected", "rejected", fixture.bob.id(), "not so"])
    );
}

/// HTTP answers only with state that is durable.
#[tokio::test]
async fn requests_under_load_are_answered_with_durable_state() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let (eve, bob) = (fixture.eve.api.clone(), fixture.bob.api.clone());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let watching = tokio::spawn(async move {
        let mut requests = 0;
        while !*stopped.borrow() {
            let seen = eve
                .get(&format!("/api/sessions/{SESSION}/history?limit=3"))
                .await
                .expect_ok();
            for command in seen["commands"].as_array().unwrap() {
                let id = command["tool_proposal"].as_str().unwrap();
                let gate = eve
                    .get(&format!("/api/sessions/{SESSION}/gates/{id}"))
                    .await
                    .expect_ok();
                assert_eq!(gate["status"] == "open", gate["open"].is_object());
            }
            requests += 1;
        }
        requests
    });
    for number in 0..60 {
        let proposal = fixture.propose(&format!("touch {number}")).await;
        let voted = bob
            .vote(SESSION, &proposal, reject_vote("r"))
            .await
            .expect_ok();
        assert_eq!(voted["gate"]["status"], "rejected");
    }
    stop.send_replace(true);
    assert!(watching.await.unwrap() > 3);
}

/// A list is asked for after every change, by everyone who watches it.
#[tokio::test]
async fn a_list_leaves_out_most_of_a_large_command_and_says_so() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let line = format!("touch {}", "é".repeat(200_000));
    let small = fixture.propose("touch a").await;
    let large = fixture.propose(&line).await;
    let mut call = fixture.agent.proposal("x");
    call["tool_name"] = json!("write_page");
    call["description"] = json!("d".repeat(100_000));
    call["arguments"] =
        json!({ "path": "a.html", "html": "x".repeat(400_000), "more": [["y".repeat(90_000)]] });
    let tool = fixture.agent.send("tool.propose", call.clone()).await;
    fixture.agent.expect_ack(&tool).await;

    let api = &fixture.ann.api;
    let list = get_gates(api).await;
    assert!(list.to_string().len() < 32 * 1024);
    let of_session = format!("/api/sessions/{SESSION}/gates");
    assert_eq!(api.get(&of_session).await.expect_ok(), list);
    let details = api.get(&format!("/api/sessions/{SESSION}")).await;
    assert_eq!(details.expect_ok()["gates"], list["gates"]);

    let listed = |proposal: &str| {
        let mut gates = list["gates"].as_array().unwrap().iter();
        let gate = gates.find(|gate| gate["request"]["action_ref"] == proposal);
        gate.unwrap().clone()
    };
    let whole = async |proposal: &str| fixture.gate(proposal).await["open"].clone();
    assert_eq!(listed(&small), whole(&small).await);
    for proposal in [&large, &tool] {
        let (cut, whole) = (listed(proposal), whole(proposal).await);
        let missing = cut["cut_bytes"].as_u64().unwrap() as usize;
        assert_eq!(cut["assessment"]["digest"], whole["assessment"]["digest"]);
        assert_eq!(cut["handle"], whole["handle"]);
        assert_eq!(whole.get("cut_bytes"), None);
        // Beside what was cut, only the field that says so is longer.
        let more = format!(",\"cut_bytes\":{missing}").len();
        assert_eq!(
            whole.to_string().len(),
            cut.to_string().len() - more + missing
        );
    }
    assert_eq!(
        whole(&large).await["action"]["command"]["line"],
        json!(line)
    );
    let shown = listed(&large)["action"]["command"]["line"].clone();
    let begun = shown.as_str().unwrap().strip_suffix('…').unwrap();
    assert!(line.starts_with(begun) && begun.len() > 2000);
    let arguments = listed(&tool)["action"]["command"]["arguments"].clone();
    assert_eq!(arguments["path"], "a.html");
    assert_eq!(arguments.get("more"), None);
    assert_eq!(
        whole(&tool).await["action"]["command"]["arguments"],
        call["arguments"]
    );

    let cli = CliEnv::logged_in(&fixture.server.link(&fixture.ann.user, None)).await;
    let printed = cli.run_ok(&["gates"]).await;
    let said = printed
        .lines()
        .filter(|line| line.contains(" bytes cut; see `pvp show "));
    assert_eq!((said.count(), printed.lines().count()), (2, 3));
    // What is shown and voted on is the whole command.
    let handle = listed(&large)["handle"].clone();
    let handle = handle.as_str().unwrap();
    let card = cli.run_json(&["show", handle, "--json"]).await;
    assert_eq!(card["open"]["action"]["command"]["line"], json!(line));
    cli.run_ok(&["approve", handle]).await;
    assert_eq!(
        fixture.gate(&large).await["resolution"]["outcome"],
        "approved"
    );
}
