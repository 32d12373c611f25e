//! `pvp gates` and `pvp show`.

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestServer, http_request};

/// The handle that `pvp gates` prints for a gate of its list.
pub(crate) fn gate_handle(gate: &Value) -> String {
    let digest = gate["assessment"]["digest"].as_str().unwrap();
    let digits = match gate["amended_by"].is_null() {
        true => 6,
        false => 16,
    };
    format!("{}@{}", short_id(gate), &digest[..digits])
}

/// The short id of a gate's proposal.
pub(crate) fn short_id(gate: &Value) -> &str {
    let id = gate["request"]["action_ref"].as_str().unwrap();
    &id[id.len().saturating_sub(6)..]
}

/// The only gate that is open.
pub(crate) async fn only_open_gate(cli: &CliEnv) -> Value {
    let list = cli.run_json(&["gates", "--json"]).await;
    assert_eq!(list["gates"].as_array().unwrap().len(), 1, "{list}");
    list["gates"][0].clone()
}

#[tokio::test]
async fn waiting_commands_are_listed_with_their_handles() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    assert_eq!(
        cli.run_ok(&["gates"]).await,
        "no commands are waiting for a decision\n"
    );
    let mut owl = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let mut cat = server
        .create_session_with_agent("cat", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let make = owl.propose("make all").await;
    cat.propose("rm -rf build").await;

    let list = cli.run_json(&["gates", "--json"]).await;
    let gates = list["gates"].as_array().unwrap();
    let gate = |command: &str| {
        let fits = |gate: &&Value| gate["action"]["command"]["line"] == command;
        gates.iter().find(fits).unwrap()
    };
    let (first, second) = (gate("make all"), gate("rm -rf build"));
    assert_eq!(gates.len(), 2, "{list}");
    assert_eq!(first["request"]["action_ref"], make.as_str());
    assert_eq!(
        (&first["may_vote"], &first["session"]),
        (&json!(true), &json!("owl"))
    );
    let lines = [
        format!(
            "{}  owl  write        0/1        -  make all\n",
            gate_handle(first)
        ),
        format!(
            "{}  cat  destructive  0/1        -  rm -rf build\n",
            gate_handle(second)
        ),
    ];
    assert_eq!(cli.run_ok(&["gates"]).await, lines.concat());

    // Only those of one session, if a flag or the environment names it.
    assert_eq!(cli.run_ok(&["gates", "--session", "cat"]).await, lines[1]);
    let env = [("PVP_SESSION", "cat")];
    let output = cli.run_with_env(&["gates"], &env).await;
    assert_eq!(output.expect_ok(&["gates"]), lines[1]);
    // A link that names a session opens the others too.
    let link = server.link(&ann, Some("owl"));
    let output = cli.run_with_link(&link, &["gates"]).await;
    assert_eq!(output.expect_ok(&["gates"]), lines.concat());
    cli.log_in(&link).await;
    assert_eq!(cli.run_ok(&["gates"]).await, lines.concat());
    assert_eq!(first["handle"], gate_handle(first));
    assert_eq!(first["short_id"], short_id(first));
    // A user who is invited to one session sees no other.
    let bob = server.invite("bob", &["observer"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&bob, None)).await;
    assert_eq!(cli.run_ok(&["gates"]).await, lines[0]);
    assert_eq!(only_open_gate(&cli).await["may_vote"], false);
    let output = cli.run_refused(&["gates", "--session", "cat"]).await;
    assert_eq!(output, "pvp: this token is for another session\n");
}

#[tokio::test]
async fn the_whole_card_says_everything_about_a_command() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let config =
        json!({ "gate_timeout_seconds": 0, "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let arguments =
        json!({ "full_command": "make all && rm -rf out", "cwd": "/srv", "env": { "A": "b" } });
    let propose = json!({
        "tool_name": "shell", "arguments": arguments, "agent": agent.participant, "risk_level": "low",
        "description": "build it", "requires_approval": false, "category": "shell_execute",
    });
    agent.send_and_ack("tool.propose", propose).await;
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let other = CliEnv::logged_in(&server.link(&bob, None)).await;
    let gate = only_open_gate(&cli).await;
    let handle = gate_handle(&gate);
    other.run_ok(&["approve", &handle]).await;
    let gate = only_open_gate(&cli).await;
    let text = cli.run_ok(&["show", &handle]).await;
    let rows: Vec<_> = text.lines().collect();
    let row = |name: &str| -> Vec<&str> {
        let named = rows
            .iter()
            .filter(|row| row.starts_with(&format!("{name} ")));
        named.map(|row| row[10..].trim_start()).collect()
    };
    assert_eq!(rows[..2], ["make all && rm -rf out", ""]);
    let id = gate["gate"].as_str().unwrap();
    let proposal = gate["request"]["action_ref"].as_str().unwrap();
    assert_eq!(row("handle"), [handle.as_str()]);
    assert_eq!((row("id"), row("gate")), (vec![proposal], vec![id]));
    let verdict = &gate["assessment"];
    let verdict = format!(
        "destructive, high risk: {} [{}]",
        verdict["reason"].as_str().unwrap(),
        verdict["rule"].as_str().unwrap()
    );
    assert_eq!(row("verdict"), [verdict]);
    let parts: Vec<_> = row("part")
        .iter()
        .map(|part| part[..20].to_owned())
        .collect();
    assert_eq!(parts, ["write       make all", "destructive rm -rf o"]);
    assert_eq!(row("session"), ["owl"]);
    assert_eq!(row("agent"), [agent.participant.as_str()]);
    assert_eq!(row("purpose"), ["build it"]);
    assert_eq!(row("cwd"), ["/srv"]);
    assert_eq!(row("env"), ["A=b"]);
    assert_eq!(row("needs"), ["2 approvals"]);
    assert_eq!(
        row("votes"),
        [format!("1 of 2 approvals ({})", bob.participant)]
    );
    assert_eq!(row("deadline"), ["none"]);
    assert_eq!(row("you"), ["you may vote"]);

    // The same as JSON, and by every name of the gate.
    let shown = cli.run_json(&["show", "--json", &handle]).await;
    assert_eq!((&shown["status"], &shown["open"]), (&json!("open"), &gate));
    for name in [id, proposal, short_id(&gate)] {
        assert_eq!(cli.run_ok(&["show", name]).await, text, "{name}");
    }
    // After it is closed, it shows how.
    cli.run_ok(&["reject", &handle, "not today"]).await;
    let closed = cli.run_ok(&["show", &handle]).await;
    assert!(
        closed.starts_with("make all && rm -rf out\n\nstatus    rejected\n"),
        "{closed}"
    );
    let decided = format!("decided   rejected by {} (not today)\n", ann.participant);
    assert!(closed.contains(&decided), "{closed}");
    for name in [id, proposal, short_id(&gate)] {
        assert_eq!(cli.run_ok(&["show", name]).await, closed, "{name}");
    }
    let state = cli.run_json(&["show", "--json", proposal]).await;
    assert_eq!(
        (&state["status"], &state["open"]),
        (&json!("rejected"), &Value::Null)
    );
}

#[tokio::test]
async fn watching_prints_gates_that_open_change_and_close_across_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let config =
        json!({ "gate_timeout_seconds": 0, "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut agent = server.create_session_with_agent("owl", config).await;
    agent.propose("make all").await;
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let gate = only_open_gate(&cli).await;
    let id = gate["gate"].clone();

    let mut json = cli.spawn(&["gates", "--watch", "--json"]);
    let mut text = cli.spawn(&["gates", "--watch"]);
    let line = |mark, gate: &Value, votes| {
        format!(
            "{mark} {}  owl  write        {votes}/2        -  {}",
            gate_handle(gate),
            gate["action"]["command"]["line"].as_str().unwrap()
        )
    };
    assert_eq!(
        json.next_json().await,
        json!({ "event": "open", "gate": gate })
    );
    assert_eq!(text.next_line().await, line('+', &gate, 0));
    // A vote.
    cli.run_ok(&["approve", &gate_handle(&gate)]).await;
    let voted = json.next_json().await;
    assert_eq!(
        (&voted["event"], &voted["gate"]["received"]),
        (&json!("changed"), &json!(1))
    );
    assert_eq!(text.next_line().await, line('~', &gate, 1));
    // An edit makes it another command without votes.
    cli.run_ok(&["amend", &gate_handle(&gate), "make install"])
        .await;
    let edited = json.next_json().await;
    assert_eq!(edited["event"], "changed");
    let edited = &edited["gate"];
    assert_eq!((&edited["gate"], &edited["received"]), (&id, &json!(0)));
    assert_eq!(text.next_line().await, line('~', edited, 0));
    assert_ne!(gate_handle(edited), gate_handle(&gate));

    // The server is killed and restarted; the client shows what happened, and nothing twice.
    server.kill_9().await;
    let gone = json.next_stderr_line().await;
    let unreachable = format!("pvp: cannot reach http://{}: ", server.address);
    assert!(gone.starts_with(&unreachable), "{gone}");
    text.next_stderr_line().await;
    let address = server.address.clone();
    let server = TestServer::start_on(data.path(), &address, &[]).await;
    let path = format!("/api/sessions/owl/gates/{}/vote", id.as_str().unwrap());
    let ballot =
        json!({ "vote": "reject", "reason": "no", "digest": edited["assessment"]["digest"] });
    let bearer = format!("Bearer {}", bob.token);
    let headers = [("Authorization", bearer.as_str())];
    let (status, answer) =
        http_request(&address, "POST", &path, &headers, &ballot.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let closed = loop {
        let received = json.next_json().await;
        if received["event"] == "closed" {
            break received;
        }
        // Presence may change with the restart, but no gate opens again.
        assert_eq!(
            (&received["event"], &received["gate"]["gate"]),
            (&json!("changed"), &id)
        );
    };
    assert_eq!(closed["gate"], answer["gate"]);
    let last = format!(
        "- {}  rejected by {}: no",
        short_id(edited),
        bob.participant
    );
    assert_eq!(text.wait_for_line("- ").await, last);

    // The next gate is shown too, even while the server shuts down in an orderly way.
    let bot = server.invite("bot2", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join("owl", &bot).await;
    agent.propose("make clean").await;
    assert_eq!(json.next_json().await["event"], "open");
    assert!(server.stop().await.success());
    json.next_stderr_line().await;
    let server = TestServer::start_on(data.path(), &address, &[]).await;
    let gate = only_open_gate(&cli).await;
    let reject = ["reject", &gate_handle(&gate), "enough"];
    cli.run_ok(&reject).await;
    loop {
        let received = json.next_json().await;
        if received["event"] == "closed" {
            assert_eq!(received["gate"]["resolution"]["reason"], "enough");
            break;
        }
    }
    drop(server);
}
