//! One short id for a command everywhere, which an agent cannot make mean another command.

use pvp_protocol::Action;
use serde_json::{Value, json};

use super::gates::{gate_handle, only_open_gate, short_id};
use super::votes::{commands_on, vote_fixture};
use crate::support::{TestClient, http_request};

fn no_timeout() -> Value {
    json!({ "gate_timeout_seconds": 0 })
}

/// Proposes a command under an id of the agent's choice.
async fn propose_as(agent: &mut TestClient, id: &str, command: &str) {
    let mut envelope = agent.envelope("tool.propose", agent.proposal(command));
    envelope["id"] = id.into();
    agent.send_raw(&envelope.to_string()).await;
    agent.expect_ack(id).await;
}

#[tokio::test]
async fn a_command_has_the_same_short_id_everywhere() {
    let (server, mut agent, cli, _) = vote_fixture(no_timeout()).await;
    propose_as(&mut agent, "call-0a-4a3f77", "make all").await;
    let gate = only_open_gate(&cli).await;
    assert_eq!(
        (short_id(&gate), &gate["short_id"]),
        ("4a3f77", &json!("4a3f77"))
    );
    let listed = cli.run_ok(&["gates"]).await;
    assert!(
        listed.starts_with(&format!("{}  owl", gate_handle(&gate))),
        "{listed}"
    );
    let tail = cli.run_ok(&["tail"]).await;
    assert!(tail.contains("proposes 4a3f77 [write]: make all"), "{tail}");
    cli.run_ok(&["approve", "4a3f77"]).await;
    let tail = cli.run_ok(&["tail", "-n", "3"]).await;
    assert!(tail.contains("approves 4a3f77: make all"), "{tail}");
    assert!(tail.contains("4a3f77 approved by"), "{tail}");
    let history = cli.run_ok(&["history"]).await;
    assert!(
        history.starts_with("4a3f77  write        running    make all"),
        "{history}"
    );
    let shown = cli.run_ok(&["show", "4a3f77"]).await;
    assert!(shown.contains("\nid        call-0a-4a3f77"), "{shown}");
    assert_eq!(cli.run_ok(&["output", "4a3f77"]).await, "");
    let refused = cli.run_refused(&["approve", "4a3f77"]).await;
    assert_eq!(
        refused,
        "pvp: 4a3f77 is not waiting for a decision: it is running; see `pvp show 4a3f77`\n"
    );
    // The same over HTTP.
    let link = cli.run_json(&["show", "--json", "4a3f77"]).await;
    assert_eq!(link["short_id"], "4a3f77");
    let ann = server.invite("ann2", &["approver"], &[]);
    let authorization = format!("Bearer {}", ann.token);
    let headers = [("Authorization", authorization.as_str())];
    let get = async |path: &str| {
        let (status, body) = http_request(&server.address, "GET", path, &headers, "").await;
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (status, body) = get("/api/sessions/owl/gates/4a3f77").await;
    assert_eq!(
        (status, &body["tool_proposal"]),
        (200, &json!("call-0a-4a3f77"))
    );
    let (status, body) = get("/api/sessions/owl/history").await;
    assert_eq!(
        (status, &body["commands"][0]["short_id"]),
        (200, &json!("4a3f77"))
    );
    assert_eq!(get("/api/sessions/owl/outputs/4a3f77").await.0, 200);
    let (status, body) = get("/api/proposals?id=4a3f77").await;
    assert_eq!(
        (status, &body["proposals"][0]["status"]),
        (200, &json!("running"))
    );
}

/// An agent whose first proposal a person has read makes another that ends in the same characters.
#[tokio::test]
async fn a_second_proposal_with_the_same_end_is_never_taken_for_the_first() {
    let (server, mut agent, cli, _) = vote_fixture(no_timeout()).await;
    propose_as(&mut agent, "call-1-4a3f77", "make all").await;
    let read = gate_handle(&only_open_gate(&cli).await);
    propose_as(&mut agent, "call-2-4a3f77", "make install").await;
    // A whole id that looks like the short one.
    propose_as(&mut agent, "4a3f77", "make uninstall").await;
    let authorization = format!("Bearer {}", server.invite("eve", &["approver"], &[]).token);
    let headers = [
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/json"),
    ];
    let vote = async || {
        let path = "/api/sessions/owl/gates/4a3f77/vote";
        let body = r#"{"vote":"approve"}"#;
        http_request(&server.address, "POST", path, &headers, body).await
    };
    // The attempt makes its sender join, so it is made before the log is compared.
    assert_eq!(vote().await.0, 400);
    let before = server.entries("owl");
    let ambiguous = async |handle: &str| {
        for command in commands_on(handle) {
            let output = cli.run_refused(&command).await;
            assert!(
                output.starts_with("pvp: `4a3f77` could mean several commands; use one of these:"),
                "{output}"
            );
        }
        let (status, body) = vote().await;
        assert_eq!(status, 400, "{body}");
        assert!(body.contains("use the whole id"), "{body}");
    };
    ambiguous("4a3f77").await;
    ambiguous(&read).await;
    assert_eq!(server.entries("owl"), before);
    let output = cli.run_refused(&["approve", "4a3f77"]).await;
    assert!(output.contains("\n  1-4a3f77  (waiting)\n"), "{output}");
    assert!(output.contains("\n  2-4a3f77  (waiting)\n"), "{output}");
    // What is offered works.
    let said = cli.run_ok(&["reject", "1-4a3f77", "no"]).await;
    assert!(said.starts_with("rejected: 4a3f77  make all\n"), "{said}");
    // That the one which was read is closed does not make the others it.
    ambiguous("4a3f77").await;
    ambiguous(&read).await;
    cli.run_ok(&["reject", "call-2-4a3f77", "no"]).await;
    ambiguous(&read).await;
    // Lists show more of such ids.
    let history = cli.run_ok(&["history"]).await;
    assert!(history.contains("call-1-4a3f77  write"), "{history}");
}

#[tokio::test]
async fn a_handle_finds_the_command_in_any_session_of_the_link() {
    let (server, mut owl, cli, _) = vote_fixture(no_timeout()).await;
    let mut cat = server.create_session_with_agent("cat", no_timeout()).await;
    let ann = server.invite("ann3", &["approver"], &[]);
    // The remembered link names one session; the commands wait in another.
    cli.log_in(&server.link(&ann, Some("owl"))).await;
    propose_as(&mut cat, "in-cat-111111", "make all").await;
    propose_as(&mut owl, "in-owl-222222", "make install").await;
    let said = cli.run_ok(&["approve", "111111"]).await;
    assert!(said.starts_with("approved: 111111  make all\n"), "{said}");
    assert_eq!(
        cat.wait_for("tool.execute").await["payload"]["tool_proposal"],
        "in-cat-111111"
    );
    let refused = cli
        .run_refused(&["approve", "222222", "--session", "cat"])
        .await;
    assert!(
        refused.contains("there is no command `222222` in session cat"),
        "{refused}"
    );
    let bound = server.invite("bob", &["approver"], &["--session", "cat"]);
    cli.log_in(&server.link(&bound, None)).await;
    let refused = cli.run_refused(&["approve", "222222"]).await;
    assert!(
        refused.contains("there is no command `222222`"),
        "{refused}"
    );
}

/// Whoever edits a command can try edits until the digest begins as the one that others have seen.
#[tokio::test]
async fn an_edit_with_a_similar_digest_is_not_approved_by_the_old_handle() {
    let (server, mut agent, cli, _) = vote_fixture(no_timeout()).await;
    propose_as(&mut agent, "call-1-4a3f77", "make all").await;
    let gate = only_open_gate(&cli).await;
    let seen = &gate["assessment"]["digest"].as_str().unwrap()[..4];
    let similar = (0..).find_map(|number: u64| {
        let line = format!("make install # {number}");
        let arguments = json!({ "full_command": line, "mode": "normal" });
        let action = Action::from_arguments("shell", arguments.as_object().unwrap()).unwrap();
        action
            .digest()
            .to_string()
            .starts_with(seen)
            .then_some(line)
    });
    let bob = server.invite("bob", &["approver"], &[]);
    let bob = crate::support::cli::CliEnv::logged_in(&server.link(&bob, None)).await;
    bob.run_ok(&["amend", "4a3f77", &similar.unwrap()]).await;
    let edited = only_open_gate(&cli).await;
    let digest = edited["assessment"]["digest"].as_str().unwrap();
    assert!(digest.starts_with(seen), "{digest}");
    let refused = cli
        .run_refused(&["approve", &format!("4a3f77@{seen}")])
        .await;
    assert!(refused.contains("4a3f77 was edited by"), "{refused}");
    assert!(refused.contains(&gate_handle(&edited)), "{refused}");
    cli.run_ok(&["approve", &gate_handle(&edited)]).await;
}

#[tokio::test]
async fn approving_twice_says_so_and_writes_nothing() {
    let config =
        json!({ "gate_timeout_seconds": 0, "default_gate_quorum": { "type": "any", "count": 2 } });
    let (server, mut agent, cli, ann) = vote_fixture(config).await;
    propose_as(&mut agent, "call-1-4a3f77", "make all").await;
    let said = cli.run_ok(&["approve", "4a3f77"]).await;
    let waiting = format!("still waiting: 1 of 2 approvals ({ann})\n");
    assert_eq!(said, format!("approved: 4a3f77  make all\n{waiting}"));
    let before = server.entries("owl");
    let said = cli
        .run_ok(&["approve", "4a3f77", "--comment", "really"])
        .await;
    let already = "you had approved this already: 4a3f77  make all\n";
    assert_eq!(said, format!("{already}{waiting}"));
    let answer = cli.run_json(&["approve", "4a3f77", "--json"]).await;
    assert_eq!(answer["ack"]["duplicate"], true);
    assert_eq!(server.entries("owl"), before);
}

#[tokio::test]
async fn what_was_edited_shows_what_it_was_and_which_votes_are_void() {
    let config =
        json!({ "gate_timeout_seconds": 0, "default_gate_quorum": { "type": "any", "count": 2 } });
    let (server, mut agent, cli, ann) = vote_fixture(config).await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bob_cli = crate::support::cli::CliEnv::logged_in(&server.link(&bob, None)).await;
    propose_as(&mut agent, "call-1-4a3f77", "make all").await;
    cli.run_ok(&["approve", "4a3f77"]).await;
    let edit = [
        "amend",
        "4a3f77",
        "make install",
        "--reason",
        "all is too much",
    ];
    bob_cli.run_ok(&edit).await;
    let bob = &bob.participant;
    let edited =
        format!("by {bob}; was: make all (all is too much); the approval of {ann} is void");
    let shown = cli.run_ok(&["show", "4a3f77"]).await;
    assert!(shown.starts_with("make install\n"), "{shown}");
    assert!(
        shown.contains(&format!("\nedited    {edited}\n")),
        "{shown}"
    );
    assert!(shown.contains("\nvotes     0 of 2 approvals\n"), "{shown}");
    let handle = gate_handle(&only_open_gate(&cli).await);
    cli.run_ok(&["approve", &handle]).await;
    bob_cli.run_ok(&["approve", &handle]).await;
    let history = cli.run_ok(&["history"]).await;
    let lines: Vec<_> = history.lines().collect();
    assert!(
        lines[0].starts_with("4a3f77  write        running    make install  approved by "),
        "{history}"
    );
    assert_eq!(lines[1], format!("        edited {edited}"));
    assert_eq!(cli.run_ok(&["history", "make all"]).await, history);
    let record = cli.run_json(&["history", "--json"]).await;
    assert_eq!(record["earlier"][0]["command"], "make all");
    assert_eq!(
        record["earlier"][0]["void_approvals"][0]["participant"],
        ann.as_str()
    );
    let closed = cli.run_ok(&["show", "4a3f77"]).await;
    assert!(
        closed.contains(&format!("\nedited    {edited}\n")),
        "{closed}"
    );
    let tail = cli.run_ok(&["tail"]).await;
    let told: Vec<_> = tail
        .lines()
        .filter(|line| line.contains("4a3f77"))
        .collect();
    let told = told.join("\n");
    for (first, second) in [
        (
            "proposes 4a3f77 [write]: make all",
            "approves 4a3f77: make all",
        ),
        (
            "approves 4a3f77: make all",
            "edits 4a3f77: make all → make install",
        ),
        (
            "edits 4a3f77: make all → make install",
            "approves 4a3f77: make install",
        ),
    ] {
        assert!(
            told.find(first).unwrap() < told.find(second).unwrap(),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_command_that_a_rule_let_run_names_the_rule() {
    let (server, mut agent, cli, ann) = vote_fixture(no_timeout()).await;
    propose_as(&mut agent, "call-1-4a3f77", "npm test").await;
    let allow = json!({
        "prefix": ["npm", "test"], "expires_at": pvp_client::now().plus_seconds(600),
    });
    let payload = allow.to_string();
    let send = ["send", "--type", "policy.allow", "--payload", &payload];
    cli.run_ok(&send).await;
    // The rule was also the vote on what waited.
    agent.wait_for("tool.execute").await;
    let allowed = format!("allowed by the rule `npm test …` of {ann}");
    let history = cli.run_ok(&["history"]).await;
    assert_eq!(
        history,
        format!("4a3f77  write        running    npm test  {allowed}\n")
    );
    let shown = cli.run_ok(&["show", "4a3f77"]).await;
    assert!(
        shown.contains(&format!("\ndecided   {allowed}\n")),
        "{shown}"
    );
    let tail = cli.run_ok(&["tail"]).await;
    assert!(
        tail.contains(&format!("(the rule `npm test …` of {ann})")),
        "{tail}"
    );
    assert!(
        tail.contains(&format!("4a3f77 approved by an allow rule of {ann}")),
        "{tail}"
    );
    drop(server);
}

/// Whatever ids an agent chooses for its other commands, a person can still name the one that waits.
#[tokio::test]
async fn an_agent_cannot_take_every_name_from_a_command_that_waits() {
    let (_server, mut agent, cli, _) = vote_fixture(no_timeout()).await;
    let id = "0190a5b0-7c1e-7000-8000-0000004a3f77";
    propose_as(&mut agent, id, "make one").await;
    let gate = only_open_gate(&cli).await["gate"]
        .as_str()
        .unwrap()
        .to_owned();
    propose_as(&mut agent, &format!("x{id}"), "make two").await;
    let mut envelope = agent.envelope("tool.propose", agent.proposal("make three"));
    let taking = format!("x{gate}");
    envelope["id"] = taking.as_str().into();
    agent.send_raw(&envelope.to_string()).await;
    let refused = agent.expect_refusal(&taking).await;
    assert!(refused.to_string().contains("id of a gate"), "{refused}");
    let ambiguous = cli.run_refused(&["reject", id, "no"]).await;
    assert!(ambiguous.contains(&gate), "{ambiguous}");
    cli.run_ok(&["reject", &gate, "no"]).await;
    let left = only_open_gate(&cli).await;
    assert_eq!(left["request"]["action_ref"], format!("x{id}"));
}
