//! `pvp approve`, `pvp reject` and `pvp amend`, which decide exactly what was shown.

use serde_json::{Value, json};

use super::gates::{gate_handle, only_open_gate, short_id};
use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer};

/// A session with an agent, and the CLI environment of an approver.
pub(crate) async fn vote_fixture(config: Value) -> (TestServer, TestClient, CliEnv, String) {
    let server = TestServer::start(&[]).await;
    let agent = server.create_session_with_agent("owl", config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    (server, agent, cli, ann.participant)
}

/// The commands that need the handle of something that waits; all but the last decide it.
pub(crate) fn commands_on(handle: &str) -> [Vec<&str>; 4] {
    [
        vec!["approve", handle],
        vec!["reject", handle, "why"],
        vec!["amend", handle, "make"],
        vec!["show", handle],
    ]
}

fn no_timeout() -> Value {
    json!({ "gate_timeout_seconds": 0 })
}

/// The entries of a type, without the fields that the server adds.
fn entries_of_type(server: &TestServer, kind: &str) -> Vec<Value> {
    let log = server.entries("owl").into_iter();
    log.filter(|entry| entry["type"] == kind).collect()
}

#[tokio::test]
async fn approving_and_rejecting_by_handle_end_id_and_proposal() {
    let (server, mut agent, cli, ann) = vote_fixture(no_timeout()).await;
    for name in 0..4 {
        let shell_proposal = agent.propose("make all").await;
        let gate = only_open_gate(&cli).await;
        let id = gate["gate"].as_str().unwrap();
        let names = [&gate_handle(&gate), short_id(&gate), id, &shell_proposal];
        let output = cli
            .run_ok(&["approve", names[name], "--comment", "fine"])
            .await;
        assert_eq!(
            output,
            format!(
                "approved: {}  make all\napproved by {ann}\n",
                short_id(&gate)
            )
        );
        let granted = agent.wait_for("tool.execute").await;
        let granted = &granted["payload"];
        assert_eq!(
            (&granted["tool_proposal"], &granted["approved_by"]),
            (&json!(shell_proposal), &json!([ann]))
        );
        let vote = entries_of_type(&server, "gate.approve").pop().unwrap();
        assert_eq!(vote["sender"], ann.as_str());
        assert_eq!(vote["payload"]["comment"], "fine");
        assert_eq!(vote["payload"]["digest"], gate["assessment"]["digest"]);
    }
    let proposal = agent.propose("rm -rf build").await;
    let gate = only_open_gate(&cli).await;
    let answer = cli
        .run_json(&["reject", "--json", &gate_handle(&gate), "keep it"])
        .await;
    assert_eq!(answer["gate"]["status"], "rejected");
    assert_eq!(answer["gate"]["resolution"]["reason"], "keep it");
    assert_eq!(
        answer["ack"]["seq"],
        entries_of_type(&server, "gate.reject")[0]["seq"]
    );
    let resolved = agent
        .wait(|m| m["type"] == "gate.resolve" && m["payload"]["tool_proposal"] == proposal.as_str())
        .await;
    assert_eq!(
        (
            &resolved["payload"]["outcome"],
            &resolved["payload"]["reason"]
        ),
        (&json!("rejected"), &json!("keep it"))
    );
    assert_eq!(
        cli.run_ok(&["gates"]).await,
        "no commands are waiting for a decision\n"
    );
}

#[tokio::test]
async fn an_unknown_ambiguous_or_short_handle_votes_on_nothing() {
    let (server, mut owl, cli, _) = vote_fixture(no_timeout()).await;
    let mut cat = server.create_session_with_agent("cat", no_timeout()).await;
    for agent in [&mut owl, &mut cat] {
        let mut envelope = agent.envelope("tool.propose", agent.proposal("make all"));
        envelope["id"] = "same-proposal".into();
        agent.send_raw(&envelope.to_string()).await;
        agent.expect_ack("same-proposal").await;
    }
    let list = cli.run_json(&["gates", "--json"]).await;
    let one = list["gates"][0]["gate"].as_str().unwrap().to_owned();
    let before = (server.entries("owl"), server.entries("cat"));
    let no_id = |text: &str| {
        format!("`{text}` is not the id of a command; `pvp gates` and `pvp history` print ids")
    };
    let unknown = |text: &str, hint: &str| {
        format!(
            "there is no command `{text}` in any session that your link opens{hint}; `pvp gates` \
             lists what is waiting, `pvp history` all commands"
        )
    };
    let no_digest = "after `@` comes the beginning of the digest, as `pvp gates` prints it";
    for (gate, said) in [
        ("abc", unknown("abc", " (an id has at least 6 characters)")),
        ("", no_id("")),
        ("@abcdef", no_id("@abcdef")),
        ("a b", no_id("a b")),
        ("zzzzzz", unknown("zzzzzz", "")),
        (&format!("{one}@zzzz"), no_digest.to_owned()),
        (&format!("{one}@abc"), no_digest.to_owned()),
        (&format!("{one}@"), no_digest.to_owned()),
    ] {
        for command in commands_on(gate) {
            let output = cli.run_refused(&command).await;
            assert_eq!(output, format!("pvp: {said}\n"), "{command:?}");
        }
    }
    for gate in ["same-proposal", "oposal", "oposal@abcdef"] {
        for command in commands_on(gate) {
            let output = cli.run_refused(&command).await;
            assert!(output.contains("could mean several commands"), "{output}");
            assert!(output.contains("--session owl  (waiting)"), "{output}");
            assert!(output.contains("--session cat  (waiting)"), "{output}");
        }
    }
    assert_eq!((server.entries("owl"), server.entries("cat")), before);
    // With the session named, it is unique.
    let said = cli
        .run_ok(&["approve", "same-proposal", "--session", "cat"])
        .await;
    assert!(said.starts_with("approved: oposal  make all\n"), "{said}");
    owl.sync().await;
    assert_eq!(
        server
            .entries("owl")
            .iter()
            .filter(|line| line["type"] == "gate.approve")
            .count(),
        0
    );
}

#[tokio::test]
async fn the_handle_of_an_old_version_does_not_decide_an_edited_command() {
    let (server, mut agent, cli, ann) = vote_fixture(no_timeout()).await;
    agent.propose("make all").await;
    let gate = only_open_gate(&cli).await;
    let (old, short) = (gate_handle(&gate), short_id(&gate));
    assert_eq!(
        cli.run_ok(&["amend", &old, "make install", "--reason", "better"])
            .await,
        format!("edited: {short}  make install\nstill waiting: 0 of 1 approval\n")
    );
    let new = gate_handle(&only_open_gate(&cli).await);
    let edited = &entries_of_type(&server, "gate.amend")[0]["payload"];
    assert_eq!(
        (&edited["arguments"], &edited["reason"]),
        (
            &json!({ "full_command": "make install", "mode": "normal" }),
            &json!("better")
        )
    );
    let before = server.entries("owl");
    // Nor does the id alone, whatever the caller may have seen.
    for gate in [old.as_str(), short] {
        for command in &commands_on(gate)[..3] {
            let output = cli.run_refused(command).await;
            assert_eq!(
                output,
                format!(
                    "pvp: {short} was edited by {ann}; look at it again with `pvp show {short}`, \
                     then use its new handle, {new}\n"
                )
            );
        }
    }
    assert_eq!(server.entries("owl"), before);
    let output = cli.run_ok(&["approve", &new]).await;
    assert_eq!(
        output,
        format!("approved: {short}  make install\napproved by {ann}\n")
    );
    let granted = agent.wait_for("tool.execute").await;
    assert_eq!(
        granted["payload"]["grant"]["action"]["command"]["line"],
        "make install"
    );
}

#[tokio::test]
async fn an_edit_keeps_directory_environment_mode_and_time() {
    let (server, mut agent, cli, ann) = vote_fixture(no_timeout()).await;
    let around =
        json!({ "cwd": "/srv/app", "env": { "A": "b", "C": "d" }, "mode": "slow", "timeout": 777 });
    let mut arguments = around.clone();
    arguments["full_command"] = "make all".into();
    let propose = json!({
        "tool_name": "shell", "arguments": arguments, "agent": agent.participant, "risk_level": "low",
        "description": "a test", "requires_approval": false, "category": "shell_execute",
    });
    agent.send_and_ack("tool.propose", propose).await;
    let old = only_open_gate(&cli).await;
    let answer = cli
        .run_json(&["amend", "--json", &gate_handle(&old), "make -j2 all"])
        .await;
    let mut expected = around;
    expected["full_command"] = "make -j2 all".into();
    assert_eq!(
        entries_of_type(&server, "gate.amend")[0]["payload"]["arguments"],
        expected
    );
    let new = &answer["gate"]["open"];
    assert_eq!(new, &only_open_gate(&cli).await);
    let mut action = old["action"].clone();
    action["command"]["line"] = "make -j2 all".into();
    assert_eq!(new["action"], action);
    cli.run_ok(&["approve", &gate_handle(new)]).await;
    let granted = agent.wait_for("tool.execute").await;
    assert_eq!(granted["payload"]["grant"]["action"], action);
    assert_eq!(granted["payload"]["approved_by"], json!([ann]));
    // A tool call that is not a shell command cannot be edited as a line.
    let propose = json!({
        "tool_name": "deploy", "arguments": { "to": "moon" }, "agent": agent.participant, "risk_level": "high",
        "description": "a test", "requires_approval": true, "category": "deploy",
    });
    agent.send_and_ack("tool.propose", propose).await;
    let before = server.entries("owl");
    let output = cli
        .run_refused(&["amend", &gate_handle(&only_open_gate(&cli).await), "make"])
        .await;
    assert_eq!(
        output,
        "pvp: `deploy` is not a shell command; edit it with `pvp send --type gate.amend`\n"
    );
    assert_eq!(server.entries("owl"), before);
}

#[tokio::test]
async fn voting_needs_permission_and_a_rejection_needs_a_reason() {
    let (server, mut agent, cli, _) = vote_fixture(no_timeout()).await;
    agent.propose("make all").await;
    let handle = gate_handle(&only_open_gate(&cli).await);
    // An attempt joins the session, so make one before the log is compared.
    let output = cli.run_refused(&["amend", &handle, ""]).await;
    assert!(output.starts_with("pvp: "), "{output}");
    let before = server.entries("owl");
    let output = cli.run_refused(&["reject", &handle, ""]).await;
    assert!(output.contains("reason"), "{output}");
    let output = cli.run_refused(&["reject", &handle]).await;
    assert!(output.contains("<REASON>"), "{output}");
    let output = cli.run_refused(&["amend", &handle, ""]).await;
    assert!(output.starts_with("pvp: "), "{output}");
    assert_eq!(server.entries("owl"), before);
    // An observer's attempt joins them, but decides nothing.
    let eve = server.invite("eve", &["observer"], &[]);
    let eve = CliEnv::logged_in(&server.link(&eve, None)).await;
    for command in [
        &["approve", &handle][..],
        &["reject", &handle, "why"],
        &["amend", &handle, "make"],
    ] {
        let output = eve.run_refused(command).await;
        assert!(output.starts_with("pvp: "), "{output}");
    }
    for kind in ["gate.approve", "gate.reject", "gate.amend", "gate.resolve"] {
        assert_eq!(entries_of_type(&server, kind), [] as [Value; 0]);
    }
}
