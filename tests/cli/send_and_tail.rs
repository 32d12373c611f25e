//! `pvp send`, `pvp tail`

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer};

/// A session with an agent, and the CLI environment of a driver.
async fn prompt_fixture() -> (TestServer, TestClient, CliEnv, String) {
    let server = TestServer::start(&[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    (server, agent, cli, dee.participant)
}

#[tokio::test]
async fn a_prompt_goes_to_the_only_agent_or_to_the_one_that_is_named() {
    let (server, mut agent, cli, dee) = prompt_fixture().await;
    let output = cli.run_ok(&["send", "what is in here?"]).await;
    let prompt = agent.wait_for("prompt.submit").await;
    assert_eq!(
        output,
        format!("sent to session owl as message {}\n", prompt["seq"])
    );
    assert_eq!(
        (&prompt["sender"], &prompt["payload"]),
        (
            &json!(dee),
            &json!({
                "content": "what is in here?", "target_agent": agent.participant, "contributors": [dee], "context_keys": [],
            })
        )
    );
    let text = "two\nlines with 'quotes' and \u{1f980}\n";
    cli.run_with_stdin(&["send", "-"], text)
        .await
        .expect_ok(&[]);
    assert_eq!(
        agent.wait_for("prompt.submit").await["payload"]["content"],
        text
    );

    let other = server.invite("other", &["driver"], &["--kind", "agent"]);
    let mut second = server.join("owl", &other).await;
    let before = server.entries("owl");
    let mut names = [agent.participant.as_str(), other.participant.as_str()];
    names.sort_unstable();
    let output = cli.run_refused(&["send", "hello"]).await;
    assert_eq!(
        output,
        format!(
            "pvp: there are several agents; choose one with --to: {}\n",
            names.join(", ")
        )
    );
    assert_eq!(server.entries("owl"), before);
    cli.run_ok(&["send", "hello", "--to", &other.participant])
        .await;
    let prompt = second.wait(|m| m["payload"]["content"] == "hello").await;
    assert_eq!(
        prompt["payload"]["target_agent"],
        other.participant.as_str()
    );
    // When one of them has left, the other is the only one.
    second.send_and_ack("session.leave", json!({})).await;
    cli.run_ok(&["send", "you again"]).await;
    let prompt = agent.wait(|m| m["payload"]["content"] == "you again").await;
    assert_eq!(
        prompt["payload"]["target_agent"],
        agent.participant.as_str()
    );
}

#[tokio::test]
async fn any_message_can_be_sent_and_the_same_id_counts_once() {
    let (server, mut agent, cli, dee) = prompt_fixture().await;
    let payload = r#"{"urgency":"pause","message":"wait"}"#;
    let send = [
        "send",
        "--type",
        "interrupt.raise",
        "--payload",
        payload,
        "--id",
        "my-interrupt",
    ];
    let said = cli.run_ok(&send).await;
    let received = agent.wait_for("interrupt.raise").await;
    assert_eq!(
        (&received["id"], &received["sender"]),
        (&json!("my-interrupt"), &json!(dee))
    );
    assert_eq!(
        said,
        format!("sent to session owl as message {}\n", received["seq"])
    );
    let before = server.entries("owl");
    assert_eq!(
        cli.run_ok(&send).await,
        "already sent to session owl; nothing changed\n"
    );
    let again = cli.run_json(&[&send[..], &["--json"]].concat()).await;
    assert_eq!(
        again,
        json!({ "id": "my-interrupt", "seq": received["seq"], "duplicate": true })
    );
    // Another message with the same id is refused.
    let other = r#"{"urgency":"stop","message":"wait"}"#;
    let other = [
        "send",
        "--type",
        "interrupt.raise",
        "--payload",
        other,
        "--id",
        "my-interrupt",
    ];
    let said = cli.run_refused(&other).await;
    assert!(said.contains("my-interrupt"), "{said}");
    assert_eq!(server.entries("owl"), before);

    let context = r#"{"key":"notes","content_type":"text","content":"milk"}"#;
    let send = ["send", "--type", "context.add", "--payload", "-", "--json"];
    let said = cli.run_with_stdin(&send, context).await.expect_ok(&send);
    let received = agent.wait(|m| m["payload"]["key"] == "notes").await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        said,
        json!({ "id": received["id"], "seq": received["seq"] })
    );
    let draft = json!({ "content": "hm", "contributors": [dee] }).to_string();
    let draft = ["send", "--type", "prompt.draft", "--payload", &draft];
    assert_eq!(cli.run_ok(&draft).await, "sent to session owl\n");
}

#[tokio::test]
async fn an_invalid_message_is_refused_and_nothing_is_logged() {
    let (server, _agent, cli, _) = prompt_fixture().await;
    let before = server.entries("owl");
    let empty = "pvp: the prompt is empty; say what the agent should do\n";
    assert_eq!(cli.run_refused(&["send", ""]).await, empty);
    assert_eq!(cli.run_refused(&["send", " \n"]).await, empty);
    assert_eq!(
        cli.run_with_stdin(&["send", "-"], "\n")
            .await
            .expect_refused(&[]),
        empty
    );
    let kind = |kind, payload| ["send", "--type", kind, "--payload", payload];
    for (arguments, parts) in [
        (&["send"][..], &["<TEXT>"][..]),
        (&["send", "--type", "interrupt.raise"], &["--payload"]),
        (&["send", "--payload", "{}"], &["--type"]),
        (
            &["send", "hello", "--type", "x", "--payload", "{}"],
            &["cannot be used with"],
        ),
        (
            &["send", "hello", "--to", "../x"],
            &["--to", "an id has '.' at position 0"],
        ),
        (&["send", "hello", "--to", "nobody"], &["pvp: ", "nobody"]),
        (
            &["send", "hello", "--id", "a b"],
            &["--id", "an id has ' ' at position 1"],
        ),
        (
            &kind("interrupt.raise", "{"),
            &["pvp: --payload is not a JSON object: EOF"],
        ),
        (
            &kind("interrupt.raise", "[]"),
            &["pvp: --payload is not a JSON object: invalid type: sequence"],
        ),
        (&kind("interrupt.raise", "{}"), &["pvp: ", "urgency"]),
        (
            &kind("tool.execute", "{}"),
            &["pvp: clients cannot send `tool.execute`"],
        ),
        (
            &kind("no.such", "{}"),
            &["pvp: clients cannot send `no.such`"],
        ),
        (
            &["send", "hello", "--session", "cat"],
            &["pvp: there is no session `cat`"],
        ),
    ] {
        let said = cli.run_refused(arguments).await;
        for part in parts {
            assert!(said.contains(part), "{arguments:?}: {said}");
        }
    }
    // An observer prompts nobody.
    let eve = server.invite("eve", &["observer"], &[]);
    let eve = CliEnv::logged_in(&server.link(&eve, Some("owl"))).await;
    let said = eve.run_refused(&["send", "hello"]).await;
    assert!(said.starts_with("pvp: "), "{said}");
    let said: Vec<_> = server
        .entries("owl")
        .into_iter()
        .skip(before.len())
        .collect();
    let kinds: Vec<_> = said.iter().map(|line| &line["type"]).collect();
    assert!(
        kinds.iter().all(|kind| **kind == "participant.announce"),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn the_tail_is_the_end_of_the_log_or_what_came_after_a_seq() {
    let (server, mut agent, cli, dee) = prompt_fixture().await;
    for number in 0..5 {
        cli.run_ok(&["send", &format!("prompt {number}")]).await;
    }
    agent.sync().await;
    let log: Vec<Value> = server.entries("owl");
    let head = log.len();
    let seqs = |messages: &[Value]| -> Vec<u64> {
        messages
            .iter()
            .map(|message| message["seq"].as_u64().unwrap())
            .collect()
    };
    let all = cli.run_json_lines(&["tail", "--json"]).await;
    assert_eq!(seqs(&all), (1..=head as u64).collect::<Vec<_>>());
    let three = cli.run_json_lines(&["tail", "--json", "-n", "3"]).await;
    assert_eq!(three, all[head - 3..]);
    let after = cli
        .run_json_lines(&["tail", "--json", "--after", "2"])
        .await;
    assert_eq!(after, all[2..]);
    assert_eq!(cli.run_ok(&["tail", "-n", "0"]).await, "");
    assert_eq!(cli.run_ok(&["tail", "--after", "100000"]).await, "");
    let text = cli.run_ok(&["tail"]).await;
    let line = text.lines().nth(head - 2).unwrap();
    let prompt = &all[head - 2];
    let expected = format!(
        "{:>6}  {}  {dee}: asks {}: prompt 4",
        prompt["seq"].as_u64().unwrap(),
        prompt["ts"].as_str().unwrap(),
        agent.participant
    );
    assert_eq!(line, expected);
    assert_eq!(text.lines().count(), head);
    let both = cli.run_refused(&["tail", "-n", "3", "--after", "2"]).await;
    assert!(both.contains("cannot be used with"), "{both}");
    for count in ["-1", "x", "99999999999999999999"] {
        let output = cli
            .run_refused(&["tail", &format!("--lines={count}")])
            .await;
        assert!(
            output.contains(count) && output.contains("--lines"),
            "{output}"
        );
    }
}

#[tokio::test]
async fn a_long_tail_is_complete_and_in_order() {
    let server = TestServer::start_with_env(&[], &[("PVP_MESSAGE_BURST", "100000")]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let mut driver = server.join("owl", &dee).await;
    let mut last = String::new();
    for number in 0..1200 {
        let prompt = json!({ "content": format!("{number}"), "target_agent": agent.participant, "contributors": [dee.participant], "context_keys": [] });
        last = driver.send("prompt.submit", prompt).await;
    }
    driver.expect_ack(&last).await;
    agent.sync().await;
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let all = cli
        .run_json_lines(&["tail", "--json", "--after", "0"])
        .await;
    let seqs: Vec<_> = all
        .iter()
        .map(|message| message["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(
        seqs,
        (1..=server.entries("owl").len() as u64).collect::<Vec<_>>()
    );
    assert!(seqs.len() > 1200);
}

#[tokio::test]
async fn following_prints_messages_as_they_arrive_and_continues_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let mut tail = cli.spawn(&["tail", "--follow", "--json", "-n", "1"]);
    let mut text = cli.spawn(&["tail", "-f", "-n", "1"]);
    let to = ["--to", &agent.participant];
    // They are following once they have printed the last existing entry.
    let mut received: Vec<Value> = vec![tail.next_json().await];
    text.next_line().await;
    let mut number = 0;
    cli.run_ok(&[&["send", "one"], &to[..]].concat()).await;
    while number < 3 {
        received.push(tail.next_json().await);
        if received.last().unwrap()["type"] == "prompt.submit" {
            number += 1;
            cli.run_ok(&[&["send", "more"], &to[..]].concat()).await;
        }
    }
    text.wait_for_line("asks").await;
    server.kill_9().await;
    let gone = tail.next_stderr_line().await;
    assert!(gone.starts_with("pvp: cannot reach "), "{gone}");
    text.next_stderr_line().await;
    let server = TestServer::start_on(data.path(), &server.address.clone(), &[]).await;
    cli.run_ok(&[&["send", "after the restart"], &to[..]].concat())
        .await;
    loop {
        let message = tail.next_json().await;
        let last = message["payload"]["content"] == "after the restart";
        received.push(message);
        if last {
            break;
        }
    }
    text.wait_for_line("after the restart").await;
    let seqs: Vec<_> = received
        .iter()
        .map(|message| message["seq"].as_u64().unwrap())
        .collect();
    let (first, last) = (seqs[0], *seqs.last().unwrap());
    assert_eq!(seqs, (first..=last).collect::<Vec<_>>());
    let log = server.entries("owl");
    for message in &received {
        let at = usize::try_from(message["seq"].as_u64().unwrap()).unwrap() - 1;
        assert_eq!(message["id"], log[at]["id"]);
    }
}
