//! `pvp connect` for programs that send their own `session.join`, as the published protocol has it
//! over standard input and output, and on servers without login.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::cli::{CliEnv, CliProcess, parse_json_lines};
use crate::support::{TestClient, TestServer, TestUser};

const JOIN_ID: &str = "01JD3M0000000000000000JOIN";
const PROPOSAL_ID: &str = "01JD3M00000000000000000PRO";

fn line(id: &str, session: &str, sender: &str, kind: &str, payload: Value) -> String {
    let envelope = json!({
        "v": 1, "id": id, "ts": "2026-01-01T00:00:00.000Z", "session": session,
        "sender": sender, "type": kind, "payload": payload,
    });
    envelope.to_string()
}

fn join_payload(id: &str, kind: &str, roles: &[&str]) -> Value {
    let participant = json!({ "id": id, "name": "Published", "type": kind, "roles": roles, "transport": "stdio" });
    json!({ "participant": participant, "supported_versions": [1] })
}

fn join_line(session: &str, id: &str, kind: &str, roles: &[&str]) -> String {
    let payload = join_payload(id, kind, roles);
    line(JOIN_ID, session, id, "session.join", payload)
}

fn proposal_line(session: &str, agent: &str) -> String {
    let payload = json!({
        "tool_name": "shell", "agent": agent, "risk_level": "medium", "description": "make a file",
        "arguments": { "command": "touch", "args": ["a"], "full_command": "touch a" },
        "requires_approval": true, "category": "shell_execute",
    });
    line(PROPOSAL_ID, session, agent, "tool.propose", payload)
}

fn human(id: &str) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: vec!["approver".to_owned()],
        agent: false,
    }
}

/// Starts `pvp connect` with a link in its environment.
fn spawn_with_link(cli: &CliEnv, link: &str) -> CliProcess {
    let mut command = cli.command(&["connect"]);
    CliProcess::spawn(command.env("PVP_LINK", link).stdin(Stdio::piped()))
}

/// Reads messages until one of this type comes; adds the sequence numbers of all to `seqs`.
async fn wait_for(process: &mut CliProcess, kind: &str, seqs: &mut Vec<u64>) -> Value {
    loop {
        let message = process.next_json().await;
        seqs.extend(message["seq"].as_u64());
        if message["type"] == kind {
            return message;
        }
    }
}

/// The ids of the announcements in a session's log, with the transport of each.
fn announcements(server: &TestServer, session: &str) -> Vec<(String, String, Value)> {
    let entries = server.entries(session).into_iter();
    let announced = entries.filter(|entry| entry["type"] == "participant.announce");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    announced
        .map(|entry| {
            let payload = &entry["payload"];
            (
                text(&entry["id"]),
                text(&payload["id"]),
                payload["transport"].clone(),
            )
        })
        .collect()
}

fn assert_ascending(seqs: &[u64]) {
    assert!(
        seqs.is_sorted_by(|a, b| a < b),
        "something came twice: {seqs:?}"
    );
}

#[tokio::test]
async fn a_published_agent_creates_joins_proposes_and_resumes() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &["--open"]).await;
    let cli = CliEnv::new();
    let mut agent = cli.spawn(&["connect", "--open-as", "agent", &server.address]);
    let create = json!({ "name": "Owl", "config": {} });
    let create = line(
        "01JD3M00000000000000000CRE",
        "owl",
        "bot",
        "session.create",
        create,
    );
    agent.write_line(&create).await;
    agent
        .write_line(&join_line("owl", "bot", "agent", &["driver"]))
        .await;
    let mut seqs = Vec::new();
    let welcome = wait_for(&mut agent, "session.welcome", &mut seqs).await;
    assert_eq!(
        (&welcome["ref"], &welcome["payload"]["participant"]),
        (&json!(JOIN_ID), &json!("bot"))
    );
    // It is passed on as it is: one announcement, under the program's own id and transport.
    let own = (JOIN_ID.to_owned(), "bot".to_owned(), json!("stdio"));
    assert_eq!(announcements(&server, "owl"), [own]);
    assert_eq!(server.entries("owl")[0]["id"], "01JD3M00000000000000000CRE");

    agent.write_line(&proposal_line("owl", "bot")).await;
    let gate = wait_for(&mut agent, "gate.request", &mut seqs).await;
    assert_eq!(gate["payload"]["action_ref"], PROPOSAL_ID);
    // The server goes away while the agent waits.
    server.kill_9().await;
    let lost = agent.next_stderr_line().await;
    assert!(lost.starts_with("pvp: lost the connection"), "{lost}");
    let server = TestServer::start_on(data.path(), &server.address.clone(), &["--open"]).await;
    let mut ann = TestClient::connect(&server.address, None, "ann").await;
    ann.join("owl", &human("ann"), json!({})).await;
    ann.approve(PROPOSAL_ID).await;
    let execute = wait_for(&mut agent, "tool.execute", &mut seqs).await;
    assert_eq!(execute["payload"]["approved_by"], json!(["ann"]));
    let result = json!({
        "tool_proposal": PROPOSAL_ID, "success": true, "duration_ms": 1,
        "result": { "exitCode": 0, "stdout": "", "stderr": "" },
    });
    agent
        .write_line(&line(
            "01JD3M00000000000000000RES",
            "owl",
            "bot",
            "tool.result",
            result,
        ))
        .await;
    agent.close_stdin();
    // What it sent is in the log before it ends, and nothing came twice.
    while let Some(text) = agent.try_next_line().await {
        seqs.extend(parse_json_lines(&text)[0]["seq"].as_u64());
    }
    assert_eq!(agent.ended().await.code, Some(0));
    assert_ascending(&seqs);
    let log = server.entries("owl");
    let results = log.iter().filter(|entry| entry["type"] == "tool.result");
    assert_eq!(results.count(), 1);
    let created = log.iter().filter(|entry| entry["type"] == "session.create");
    assert_eq!(created.count(), 1);
}

#[tokio::test]
async fn on_an_open_server_it_joins_as_the_flags_say_unless_the_program_joins() {
    let server = TestServer::start(&["--open"]).await;
    let cli = CliEnv::new();
    let address = server.address.as_str();
    let flags = [
        "connect",
        "--open-as",
        "human",
        address,
        "--session",
        "owl",
        "--role",
        "driver",
        "--role",
        "approver",
        "--name",
        "Zoe Zebra",
        "--id",
        "zoe",
    ];
    let note = json!({ "type": "context.add", "payload": { "key": "k", "content_type": "text", "content": "v" } });
    let said = cli.run_with_stdin(&flags, &note.to_string()).await;
    let received = parse_json_lines(&said.expect_ok(&flags));
    assert_eq!(
        received[0]["payload"]["roles"],
        json!(["driver", "approver"])
    );
    let entries = server.entries("owl");
    let announce = entries
        .iter()
        .find(|it| it["type"] == "participant.announce");
    let announce = &announce.unwrap()["payload"];
    let expected = json!({ "id": "zoe", "name": "Zoe Zebra", "type": "human", "roles": ["driver", "approver"], "transport": "websocket" });
    assert_eq!(*announce, expected);
    // Without an id it takes a fresh one; without a line it joins and leaves.
    let flags = ["connect", "--open-as", "agent", address, "--session", "fox"];
    cli.run_ok(&flags).await;
    let announced = announcements(&server, "fox");
    assert_eq!(announced.len(), 1);
    assert_eq!(announced[0].1.len(), 36, "{announced:?}");
    // What --open-as does not know is said.
    let refused = cli
        .run_refused(&["connect", "--open-as", "agent", address])
        .await;
    assert_eq!(
        refused,
        "pvp: the link names no session; choose one with --session\n"
    );
    // A program that names neither can also join by itself without --open-as.
    let link = format!("http://{address}");
    let own = join_line("hen", "hal", "human", &["observer"]);
    let said = cli.run_with_stdin(&["connect", &link], &own).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let own = (JOIN_ID.to_owned(), "hal".to_owned(), json!("stdio"));
    assert_eq!(announcements(&server, "hen"), [own]);
    let said = cli
        .run_with_stdin(&["connect", &link], &note.to_string())
        .await;
    assert!(
        said.err.starts_with("pvp: the link has no token; "),
        "{said:?}"
    );
}

#[tokio::test]
async fn the_flags_bound_what_a_program_joins_as() {
    let server = TestServer::start(&["--open"]).await;
    let cli = CliEnv::new();
    let address = server.address.as_str();
    let own = join_line("owl", "hal", "human", &["observer", "admin"]);
    for (flags, problem) in [
        (
            ["--role", "observer"],
            "the program joins as admin, which --role does not allow",
        ),
        (
            ["--session", "fox"],
            "the program joins the session `owl`, and this was started for `fox`",
        ),
        (
            ["--id", "zoe"],
            "the program joins as `hal`, and --as says `zoe`",
        ),
        (
            ["--open-as", "agent"],
            "the program joins as another kind of participant than --open-as says",
        ),
    ] {
        let kind: &[&str] = if flags[0] == "--open-as" {
            &[]
        } else {
            &["--open-as", "human"]
        };
        let arguments = [&["connect", address], kind, &flags].concat();
        let said = cli.run_with_stdin(&arguments, &own).await;
        assert_eq!(said.expect_refused(&arguments), format!("pvp: {problem}\n"));
    }
    for (line, problem) in [
        (r#"{"type":"session.join"}"#, "pvp: `session.join`: "),
        (
            r#"{"type":"session.join","id":"../x"}"#,
            "pvp: `../x` cannot be an id",
        ),
    ] {
        let arguments = ["connect", "--open-as", "human", address];
        let said = cli.run_with_stdin(&arguments, line).await;
        let said = said.expect_refused(&arguments);
        assert!(said.starts_with(problem), "{said}");
    }
    // A create that is refused is told, and the join after it is not lost.
    cli.run_ok(&["connect", "--open-as", "human", address, "--session", "owl"])
        .await;
    let create = line(
        "again",
        "owl",
        "hal",
        "session.create",
        json!({ "config": {} }),
    );
    let arguments = ["connect", "--open-as", "human", address];
    let said = cli
        .run_with_stdin(&arguments, &format!("{create}\n{own}\n"))
        .await;
    assert_eq!(said.code, Some(1));
    assert_eq!(
        said.err,
        "pvp: `again` was refused: session `owl` exists already; join it, or create one with another id\n"
    );
    let received = parse_json_lines(&said.out);
    assert_eq!(received[0]["type"], "error");
    assert_eq!(received[1]["type"], "session.welcome");
}

#[tokio::test]
async fn with_a_token_a_program_joins_by_itself_within_the_token() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver", "approver"], &["--session", "owl"]);
    let cli = CliEnv::new();
    let link = server.link(&dee, Some("owl"));
    let me = dee.participant.as_str();
    // The token's holder was joined before the program said anything; its own join is accepted, with
    // fewer roles, and nothing comes twice.
    let mut program = spawn_with_link(&cli, &link);
    let mut seqs = Vec::new();
    let first = wait_for(&mut program, "session.welcome", &mut seqs).await;
    assert_eq!(first["payload"]["roles"], json!(["driver", "approver"]));
    wait_for(&mut program, "session.ack", &mut seqs).await;
    program
        .write_line(&join_line("owl", me, "human", &["approver"]))
        .await;
    let second = wait_for(&mut program, "session.welcome", &mut seqs).await;
    assert_eq!(
        (&second["ref"], &second["payload"]["roles"]),
        (&json!(JOIN_ID), &json!(["approver"]))
    );
    // The token bounds this connection to what the program joined as.
    let prompt =
        json!({ "content": "x", "target_agent": "bot", "contributors": [me], "context_keys": [] });
    program
        .write_line(&line("p", "owl", me, "prompt.submit", prompt))
        .await;
    let error = wait_for(&mut program, "error", &mut seqs).await;
    assert_eq!(
        (&error["payload"]["related_to"], &error["payload"]["code"]),
        (&json!("p"), &json!("UNAUTHORIZED"))
    );
    program.close_stdin();
    while let Some(text) = program.try_next_line().await {
        seqs.extend(parse_json_lines(&text)[0]["seq"].as_u64());
    }
    assert_eq!(program.ended().await.code, Some(1), "a message was refused");
    assert_ascending(&seqs);

    // Beyond the token, or as somebody else.
    for (id, roles, problem) in [
        (me, "admin", "your token does not allow admin"),
        ("eve", "approver", "`sender` is `eve`, but you are"),
    ] {
        let own = join_line("owl", id, "human", &[roles]);
        let mut program = spawn_with_link(&cli, &link);
        program.write_line(&own).await;
        let refused = program.next_stderr_line().await;
        assert!(refused.contains(problem), "{refused}");
        assert_eq!(program.ended().await.code, Some(1));
    }
    // A token for every session: the program creates one and joins it, and nobody joined before.
    let max = server.invite("max", &["driver"], &[]);
    let link = server.link(&max, None);
    let me = max.participant.as_str();
    let create = json!({ "type": "session.create", "id": "made", "session": "new", "payload": { "config": {} } });
    let input = format!("{create}\n{}\n", join_line("new", me, "human", &["driver"]));
    let mut program = spawn_with_link(&cli, &link);
    program.write_line(input.trim_end()).await;
    program.close_stdin();
    assert_eq!(program.ended().await.code, Some(0));
    let own = (JOIN_ID.to_owned(), me.to_owned(), json!("stdio"));
    assert_eq!(announcements(&server, "new"), [own]);
}

#[tokio::test]
async fn a_server_with_login_does_not_let_in_who_has_no_token() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let cli = CliEnv::new();
    let own = join_line("owl", "hal", "human", &["admin"]);
    let arguments = ["connect", "--open-as", "human", &server.address];
    for input in [own.as_str(), "{}"] {
        let flags = [&arguments[..], &["--session", "owl"]].concat();
        let said = cli.run_with_stdin(&flags, input).await;
        let said = said.expect_refused(&flags);
        assert!(said.contains("there is no token"), "{said}");
    }
    // A token in the program's own join counts as in any join.
    let dee = server.invite("dee", &["driver"], &[]);
    let mut payload = join_payload(&dee.participant, "human", &["driver"]);
    payload["token"] = json!(dee.token);
    let own = line(JOIN_ID, "owl", &dee.participant, "session.join", payload);
    let said = cli.run_with_stdin(&arguments, &own).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(!said.out.contains(&dee.token));
    // A link with a token says who it is.
    let link = server.link(&dee, Some("owl"));
    let said = cli
        .run_with_link(&link, &["connect", "--open-as", "human"])
        .await;
    assert_eq!(
        said.err,
        "pvp: the link has a token, which says who you are; leave out --open-as and --name\n"
    );
}
