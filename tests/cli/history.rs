//! `pvp history`, `pvp output`

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer, short_id};

/// Proposes a command, approves it and reports its output and result.
pub(crate) async fn run_approved(
    agent: &mut TestClient,
    admin: &mut TestClient,
    command: &str,
    printed: &[(&str, &str)],
    code: i64,
) -> String {
    let run = agent.propose(command).await;
    assert_eq!(admin.approve(&run).await["type"], "session.ack");
    agent
        .wait(|m| m["type"] == "tool.execute" && m["payload"]["tool_proposal"] == run.as_str())
        .await;
    for (stream, text) in printed {
        let output =
            json!({ "tool_proposal": run, "stream": stream, "text": text, "complete": false });
        agent.send_and_ack("tool.output", output).await;
    }
    let result = json!({ "exitCode": code, "stdout": "", "stderr": "" });
    let result =
        json!({ "tool_proposal": run, "success": code == 0, "result": result, "duration_ms": 5 });
    agent.send_and_ack("tool.result", result).await;
    run
}

/// A session with a finished, a rejected, a blocked and a waiting command.
async fn history_fixture() -> (TestServer, CliEnv, String, [String; 4]) {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let user = server.admin();
    let mut admin = server.join("owl", &user).await;
    let printed = [
        ("stdout", "one\ntwo\nthree\n"),
        ("stderr", "careful\n"),
        ("stdout", "four\nfive"),
    ];
    let made = run_approved(&mut agent, &mut admin, "make all", &printed, 0).await;
    let failed = run_approved(&mut agent, &mut admin, "make test", &[], 2).await;
    let rejected = agent.propose("rm -rf build").await;
    let no = json!({ "gate": rejected, "rejector": admin.participant, "reason": "no" });
    admin.send_and_ack("gate.reject", no).await;
    let blocked = agent
        .send(
            "tool.propose",
            agent.proposal("rm -rf / --no-preserve-root"),
        )
        .await;
    agent.expect_refusal(&blocked).await;
    let waiting = agent.propose("make install").await;
    let ann = server.invite("ann", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    drop(agent);
    (
        server,
        cli,
        admin.participant,
        [made, failed, rejected, waiting],
    )
}

#[tokio::test]
async fn commands_of_the_past_are_listed_and_searched() {
    let (server, cli, admin, [made, failed, rejected, unread]) = history_fixture().await;
    let log = server.entries("owl");
    let blocked = log
        .iter()
        .find(|entry| entry.to_string().contains("no-preserve-root"));
    let blocked = blocked.unwrap()["id"].as_str().unwrap();
    let line = |id: &str, category: &str, outcome: &str, command: &str| {
        let short = &id[id.len().saturating_sub(6)..];
        format!("{short}  {category:<11}  {outcome:<9}  {command}\n")
    };
    let ok = format!("  approved by {admin}");
    let no = format!("rm -rf build  rejected by {admin} (no)");
    let lines = [
        line(&made, "write", "exit 0", &format!("make all{ok}")),
        line(&failed, "write", "exit 2", &format!("make test{ok}")),
        line(&rejected, "destructive", "rejected", &no),
        line(blocked, "blocked", "blocked", "rm -rf / --no-preserve-root"),
        line(&unread, "write", "waiting", "make install"),
    ];
    assert_eq!(cli.run_ok(&["history"]).await, lines.concat());
    assert_eq!(
        cli.run_ok(&["history", "-n", "2"]).await,
        lines[3..].concat()
    );
    assert_eq!(cli.run_ok(&["history", "build"]).await, lines[2]);
    let finished = cli.run_ok(&["history", "--status", "finished"]).await;
    assert_eq!(finished, lines[..2].concat());
    assert_eq!(
        cli.run_ok(&["history", "test", "--status", "finished"])
            .await,
        lines[1]
    );
    assert_eq!(
        cli.run_ok(&["history", "--status", "waiting"]).await,
        lines[4]
    );
    assert_eq!(
        cli.run_ok(&["history", "no such thing"]).await,
        "no commands match\n"
    );
    assert_eq!(
        cli.run_ok(&["history", "no such thing", "--json"]).await,
        ""
    );
    let records = cli.run_json_lines(&["history", "--json"]).await;
    let status: Vec<_> = records
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(
        status,
        ["finished", "finished", "rejected", "blocked", "waiting"]
    );
    assert_eq!(records[1]["result"]["exit_code"], 2);
    assert_eq!(records[0]["approvals"][0]["participant"], admin.as_str());
    let output = cli.run_refused(&["history", "--status", "gone"]).await;
    assert!(
        output
            .contains("use waiting, running, blocked, rejected, timed_out, cancelled or finished"),
        "{output}"
    );
}

#[tokio::test]
async fn what_a_command_printed_is_read_by_lines() {
    let (_server, cli, _, [made, failed, _, unread]) = history_fixture().await;
    let all = cli.run_ok(&["output", &made]).await;
    let mut sorted: Vec<_> = all.lines().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, ["careful", "five", "four", "one", "three", "two"]);
    let out = ["output", &made, "--stream", "stdout"];
    let with = |more: &[&'static str]| {
        [&out[..], more]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (more, expected) in [
        (&[][..], "one\ntwo\nthree\nfour\nfive\n"),
        (&["--head", "2"], "one\ntwo\n"),
        (&["--tail", "2"], "four\nfive\n"),
        (&["--offset", "1", "--limit", "2"], "two\nthree\n"),
        (&["--grep", "o"], "one\ntwo\nfour\n"),
        (&["--grep", "zzz"], ""),
    ] {
        let arguments = with(more);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        assert_eq!(cli.run_ok(&arguments).await, expected, "{more:?}");
    }
    assert_eq!(
        cli.run_ok(&["output", &made, "--stream", "stderr"]).await,
        "careful\n"
    );
    // By the end of its id.
    assert_eq!(
        cli.run_ok(&["output", &short_id(&made), "--stream", "stderr"])
            .await,
        "careful\n"
    );
    assert_eq!(cli.run_ok(&["output", &failed]).await, "");
    let page = cli
        .run_json(&[
            "output", &made, "--json", "--tail", "1", "--stream", "stdout",
        ])
        .await;
    assert_eq!(
        (&page["ref"], &page["finished"], &page["lines"][0]["text"]),
        (&json!(made), &json!(true), &json!("five"))
    );

    for (arguments, part) in [
        (&["output", "zzzz"][..], "pvp: there is no command `zzzz`"),
        (&["output", "a b"], "pvp: `a b` is not the id of a command"),
        (&["output", ""], "pvp: `` is not the id of a command"),
        (
            &["output", &made, "--stream", "both"],
            "[possible values: stdout, stderr]",
        ),
        (&["output", &made, "--head", "1", "--tail", "1"], "pvp: "),
        (&["output", &made, "--head", "x"], "--head"),
    ] {
        let output = cli.run_refused(arguments).await;
        assert!(output.contains(part), "{arguments:?}: {output}");
    }
    assert_eq!(cli.run_ok(&["output", &unread]).await, "");
}

#[tokio::test]
async fn an_ambiguous_id_suffix_is_refused() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    for id in ["first-123456", "second-123456"] {
        let mut envelope = agent.envelope("tool.propose", agent.proposal("make"));
        envelope["id"] = id.into();
        agent.send_raw(&envelope.to_string()).await;
        agent.expect_ack(id).await;
    }
    let ann = server.invite("ann", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let output = cli.run_refused(&["output", "123456"]).await;
    assert!(
        output.starts_with("pvp: `123456` could mean several commands; use one of these:\n"),
        "{output}"
    );
    for name in ["t-123456", "d-123456"] {
        assert!(
            output.contains(&format!("\n  {name}  (waiting)\n")),
            "{output}"
        );
        assert_eq!(cli.run_ok(&["output", name]).await, "");
    }
    let output = cli.run_refused(&["output", "23456"]).await;
    assert!(output.contains("there is no command `23456`"), "{output}");
    let page: Value = cli.run_json(&["output", "first-123456", "--json"]).await;
    assert_eq!(page["lines"], json!([]));
}

#[tokio::test]
async fn long_output_says_that_there_is_more() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let user = server.admin();
    let mut admin = server.join("owl", &user).await;
    let line = "x".repeat(1023) + "\n";
    let piece = line.repeat(200);
    let printed = [("stdout", piece.as_str()); 10];
    let run = run_approved(&mut agent, &mut admin, "make", &printed, 0).await;
    let cli = CliEnv::logged_in(&server.link(&user, Some("owl"))).await;
    let mut offset = 0;
    loop {
        let from = offset.to_string();
        let said = cli.run(&["output", &run, "--offset", &from]).await;
        assert_eq!(said.code, Some(0));
        assert!(said.out.lines().all(|one| one == line.trim_end()));
        offset += said.out.lines().count();
        if said.err.is_empty() {
            break;
        }
        assert_eq!(
            said.err,
            "pvp: there is more output; read it with --offset\n"
        );
    }
    assert_eq!(offset, 2000);
}
