//! `pvp connect`: one message a line on standard input and output.

use serde_json::{Value, json};

use crate::support::TestServer;
use crate::support::cli::{CliEnv, parse_json_lines};

fn prompt_message(to: &str, by: &str, content: &str) -> Value {
    json!({ "type": "prompt.submit", "payload": { "content": content, "target_agent": to, "contributors": [by], "context_keys": [] } })
}

#[tokio::test]
async fn lines_become_messages_and_it_exits_when_all_are_answered() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &["--session", "owl"]);
    let (cli, link) = (CliEnv::new(), server.link(&dee, Some("owl")));
    let first = prompt_message(&agent.participant, &dee.participant, "hello");
    let mut second = prompt_message(&agent.participant, &dee.participant, "again");
    second["id"] = "my-own-id".into();
    let input = format!("{first}\n\n  \n{second}");
    // The first line is the link.
    let input = format!("{link}\n{input}");
    let said = cli.run_with_stdin(&["connect", "-"], &input).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let received = parse_json_lines(&said.out);
    assert_eq!(received[0]["type"], "session.welcome");
    let acks: Vec<_> = received
        .iter()
        .filter(|m| m["type"] == "session.ack")
        .collect();
    assert_eq!(acks.len(), 3, "one for the join");
    let acks = &acks[1..];
    assert_eq!(acks[1]["payload"]["id"], "my-own-id");
    // Missing fields were filled in.
    let submitted = agent.wait(|m| m["payload"]["content"] == "hello").await;
    assert_eq!(
        (&submitted["v"], &submitted["session"], &submitted["sender"]),
        (&json!(1), &json!("owl"), &json!(dee.participant))
    );
    assert_eq!(submitted["id"], acks[0]["payload"]["id"]);
    assert_eq!(
        agent.wait(|m| m["payload"]["content"] == "again").await["id"],
        "my-own-id"
    );
    // Every printed line is a log entry or an answer.
    let log = server.entries("owl");
    for message in received.iter().filter(|message| message["seq"].is_u64()) {
        let at = usize::try_from(message["seq"].as_u64().unwrap()).unwrap() - 1;
        assert_eq!(message["id"], log[at]["id"]);
    }
    // It also works with the saved link and with empty input.
    cli.log_in(&link).await;
    let said = cli.run(&["connect"]).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(parse_json_lines(&said.out)[0]["type"], "session.welcome");
}

#[tokio::test]
async fn an_invalid_line_or_a_refused_message_is_reported_and_the_rest_is_sent() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&dee, None)).await;
    let good = prompt_message(&agent.participant, &dee.participant, "hello");
    let input = format!("nonsense\n[1]\n{{\"type\":\"prompt.submit\",\"id\":\"../x\"}}\n{good}\n");
    let said = cli.run_with_stdin(&["connect"], &input).await;
    assert_eq!(said.code, Some(1));
    let complaints: Vec<_> = said.err.lines().collect();
    assert_eq!(complaints.len(), 3, "{}", said.err);
    assert!(
        complaints[0].starts_with("pvp: each line must be a JSON object: "),
        "{}",
        said.err
    );
    assert!(
        complaints[1].starts_with("pvp: each line must be a JSON object: "),
        "{}",
        said.err
    );
    assert!(
        complaints[2].starts_with("pvp: `../x` cannot be an id"),
        "{}",
        said.err
    );
    parse_json_lines(&said.out);
    agent.wait(|m| m["payload"]["content"] == "hello").await;

    // Refused by the server.
    let refused = json!({ "id": "forged", "type": "tool.execute" });
    let forged = json!({ "id": "not-me", "sender": "somebody", "type": "prompt.submit", "payload": good["payload"] });
    let later = prompt_message(&agent.participant, &dee.participant, "later");
    let said = cli
        .run_with_stdin(&["connect"], &format!("{refused}\n{forged}\n{later}\n"))
        .await;
    assert_eq!(said.code, Some(1));
    let complaints: Vec<_> = said.err.lines().collect();
    assert_eq!(complaints.len(), 2, "{}", said.err);
    assert!(
        complaints[0].starts_with("pvp: `forged` was refused: clients cannot send `tool.execute`"),
        "{}",
        said.err
    );
    assert!(
        complaints[1].starts_with("pvp: `not-me` was refused: "),
        "{}",
        said.err
    );
    let errors: Vec<_> = parse_json_lines(&said.out)
        .into_iter()
        .filter(|m| m["type"] == "error")
        .collect();
    assert_eq!(errors.len(), 2);
    agent.wait(|m| m["payload"]["content"] == "later").await;

    // Too big to be sent at all.
    let big = prompt_message(&agent.participant, &dee.participant, &"x".repeat(2_000_000));
    let said = cli.run_with_stdin(&["connect"], &format!("{big}\n")).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("was refused: a message has at most "),
        "{}",
        said.err
    );
    // A line without a type is refused.
    let said = cli.run_with_stdin(&["connect"], "{}\n").await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.starts_with("pvp: "), "{said:?}");
}

#[tokio::test]
async fn with_stay_it_keeps_running_and_reconnects_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&dee, None)).await;
    let mut process = cli.spawn(&["connect", "--stay"]);
    assert_eq!(process.next_json().await["type"], "session.welcome");
    process.close_stdin();
    cli.run_ok(&["send", "still there?", "--to", &agent.participant])
        .await;
    process.wait_for_line("still there?").await;
    server.kill_9().await;
    let gone = process.next_stderr_line().await;
    assert!(
        gone.starts_with("pvp: lost the connection, trying again: "),
        "{gone}"
    );
    let _server = TestServer::start_on(data.path(), &server.address.clone(), &[]).await;
    cli.run_ok(&["send", "and now?", "--to", &agent.participant])
        .await;
    process.wait_for_line("and now?").await;
    process.signal("TERM");
    assert_eq!(process.ended().await.code, None);
}

#[tokio::test]
async fn it_joins_with_fewer_roles_and_resumes_after_a_seq() {
    let server = TestServer::start(&[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver", "approver"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&dee, None)).await;
    let wait_for_response = cli.run_ok(&["connect", "--role", "approver"]).await;
    let welcome = &parse_json_lines(&wait_for_response)[0]["payload"];
    assert_eq!(welcome["roles"], json!(["approver"]), "{welcome}");
    let line = prompt_message(&agent.participant, &dee.participant, "hi").to_string();
    let output = cli
        .run_with_stdin(&["connect", "--role", "approver"], &line)
        .await;
    assert_eq!(output.code, Some(1));
    let output = cli.run_refused(&["connect", "--role", "admin"]).await;
    assert!(output.starts_with("pvp: "), "{output}");
    let seqs = |out: &str| -> Vec<u64> {
        parse_json_lines(out)
            .iter()
            .filter_map(|message| message["seq"].as_u64())
            .collect()
    };
    let head = server.entries("owl").len() as u64;
    let here = json!({ "type": "presence.update", "payload": { "participant": dee.participant, "status": "active", "last_active": "2026-01-01T00:00:00.000Z" } });
    let resume = ["connect", "--after", "2"];
    let output = cli.run_with_stdin(&resume, &here.to_string()).await;
    let resumed = seqs(&output.expect_ok(&resume));
    assert_eq!(resumed[0], 3);
    assert!(*resumed.last().unwrap() >= head, "{resumed:?}");
    let beyond = cli.run(&["connect", "--after", "100000"]).await;
    assert_eq!(beyond.code, Some(1), "{beyond:?}");
    assert!(
        beyond.err.contains("`after` is beyond the log"),
        "{beyond:?}"
    );
}

#[tokio::test]
async fn without_login_the_participant_must_be_named() {
    let server = TestServer::start(&["--open"]).await;
    let cli = CliEnv::new();
    let link = format!("http://{}/?session=owl", server.address);
    let wait_for_response = cli
        .run_ok(&["connect", &link, "--as", "zoe", "--role", "driver"])
        .await;
    assert_eq!(
        parse_json_lines(&wait_for_response)[0]["type"],
        "session.welcome"
    );
    let announce = server
        .entries("owl")
        .into_iter()
        .find(|entry| entry["type"] == "participant.announce");
    assert_eq!(announce.unwrap()["payload"]["id"], "zoe");
    let output = cli.run_refused(&["connect", &link]).await;
    assert_eq!(
        output,
        "pvp: the link has no token; get one with `pvp join` or `pvp login`, or, on a server without login, say who you are with --as\n"
    );
}

#[tokio::test]
async fn a_session_that_cannot_be_joined_is_refused_with_a_reason() {
    let mut server = TestServer::start(&[]).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::new();
    let free = server.link(&dee, None);
    let connect = async |link: &str, more: &[&str]| {
        let arguments = [&["connect"], more].concat();
        let output = cli.run_with_link(link, &arguments).await;
        output.expect_refused(&arguments)
    };
    let output = connect(&free, &[]).await;
    assert_eq!(
        output,
        "pvp: the link names no session; choose one with --session\n"
    );
    let output = connect(&free, &["--session", "owl"]).await;
    assert_eq!(output, "pvp: there is no session `owl`\n");
    // Without a token it is not known whether the server has a login.
    let output = connect(&format!("http://{}", server.address), &["--session", "owl"]).await;
    assert_eq!(
        output,
        "pvp: the link has no token; get one with `pvp join` or `pvp login`, or, on a server without login, say who you are with --as\n"
    );
    let output = cli.run_refused(&["connect", "x"]).await;
    assert!(
        output.starts_with("pvp: a link begins with http://"),
        "{output}"
    );
    let bad = format!("http://{}/?token=pvp_no&session=owl", server.address);
    let output = connect(&bad, &[]).await;
    assert!(output.contains("token"), "{output}");
    server.kill_9().await;
    let output = connect(&free, &["--session", "owl"]).await;
    assert!(
        output.starts_with(&format!("pvp: cannot reach http://{}: ", server.address)),
        "{output}"
    );
}

#[tokio::test]
async fn any_number_of_lines_can_be_sent() {
    let burst = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let server = TestServer::start_with_env(&[], &burst).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&dee, None)).await;
    let line =
        |number: usize| prompt_message(&agent.participant, &dee.participant, &number.to_string());
    let input: String = (0..6000)
        .map(|number| format!("{}\n", line(number)))
        .collect();
    let said = cli.run_with_stdin(&["connect"], &input).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let log = server.entries("owl");
    let prompts = log.iter().filter(|entry| entry["type"] == "prompt.submit");
    let contents: Vec<_> = prompts
        .map(|entry| entry["payload"]["content"].as_str().unwrap())
        .collect();
    let expected: Vec<_> = (0..6000).map(|number| number.to_string()).collect();
    assert_eq!(contents, expected);
}
