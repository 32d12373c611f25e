//! The errors of every command when no server answers or the user lacks permission.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestServer, run_pvp};

/// Every command that contacts a server, with its arguments.
const SERVER_COMMANDS: [&[&str]; 15] = [
    &["whoami"],
    &["gates"],
    &["gates", "--watch"],
    &["show", "abcdef"],
    &["approve", "abcdef"],
    &["reject", "abcdef", "why"],
    &["amend", "abcdef", "make"],
    &["send", "hello"],
    &["tail"],
    &["tail", "--follow"],
    &["history"],
    &["output", "abcdef"],
    &["sessions"],
    &["create", "cat"],
    &["invite", "--name", "x", "--role", "driver"],
];

/// Those, and `connect`, which keeps running.
fn server_commands() -> impl Iterator<Item = &'static [&'static str]> {
    SERVER_COMMANDS.into_iter().chain([&["connect"][..]])
}

/// A server that answers everything with the same bytes and is not a PVP server.
fn spawn_foreign_server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            // The client may have closed the connection already.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn without_a_link_every_command_says_how_to_give_one() {
    let cli = CliEnv::new();
    for command in server_commands() {
        let output = cli.run_refused(command).await;
        assert_eq!(
            output,
            "pvp: no server is known here; start one with `pvp up`, join one with `pvp join` or `pvp login`, give --link-file, or set PVP_LINK\n",
            "{command:?}"
        );
        let output = cli
            .run_refused(&[command, &["--link", "nonsense"]].concat())
            .await;
        assert_eq!(
            output,
            "pvp: --link: a link begins with http:// or https://, such as http://127.0.0.1:3000/#token=…\n",
            "{command:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    // Bound, so that nobody else listens there, and not listening.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap();
    let link = format!("http://{address}/?token=pvp_ab_cd&session=owl");
    let cli = CliEnv::new();
    for command in server_commands() {
        let output = cli.run_with_link(&link, command).await;
        let output = output.expect_refused(command);
        assert!(
            output.contains(&format!("cannot reach http://{address}: ")),
            "{command:?}: {output}"
        );
    }
    let output = cli.run_refused(&["login", &link]).await;
    assert!(
        output.contains(&format!("cannot reach http://{address}: ")),
        "{output}"
    );
    assert!(!cli.state().exists());
}

#[tokio::test]
async fn a_server_that_is_not_pvp_is_named() {
    let cli = CliEnv::new();
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\nConnection: close\r\n\r\n\x1b[2Jno\x9bthing",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"\x00\x01\x02 garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"",
    ] {
        let base = spawn_foreign_server(answer);
        let link = format!("{base}/?token=pvp_ab_cd&session=owl");
        for command in server_commands() {
            let output = cli.run_with_link(&link, command).await.expect_refused(command);
            assert!(output.starts_with("pvp: ") && output.contains(&base), "{command:?}: {output}");
            assert!(!output.chars().any(|c| c.is_control() && c != '\n'), "{output:?}");
        }
        let output = cli.run_refused(&["login", &link]).await;
        assert!(output.contains(&base), "{output}");
        assert!(!cli.state().exists());
    }
    let base = spawn_foreign_server(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    );
    let link = format!("{base}/?token=t");
    let output = cli.run_with_link(&link, &["gates"]).await;
    let output = output.expect_refused(&["gates"]);
    assert!(
        output.starts_with(&format!("pvp: {base} does not answer like a PVP server (")),
        "{output}"
    );
}

#[tokio::test]
async fn a_revoked_token_gives_no_access() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let before = server.entries("owl");
    let ann = server.invite("ann", &["admin", "driver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let data = server.data.to_str().unwrap();
    let listed = run_pvp(&["tokens", "list", "--json", "--data", data]).1;
    let id = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|token| token["participant"] == ann.participant.as_str())
        .unwrap()["id"]
        .clone();
    assert!(run_pvp(&["tokens", "revoke", "--data", data, id.as_str().unwrap()]).0);
    // The server may accept the token for some seconds more.
    let begun = std::time::Instant::now();
    while cli.run(&["whoami"]).await.code == Some(0) {
        assert!(
            begun.elapsed() < crate::support::TEST_TIMEOUT,
            "it is taken back"
        );
    }
    for command in server_commands() {
        let output = cli.run_refused(command).await;
        let sentence = "the token was revoked; ask for a new invitation\n";
        assert!(
            output.starts_with("pvp: ") && output.ends_with(sentence),
            "{command:?}: {output}"
        );
    }
    assert_eq!(server.entries("owl"), before);
}

#[tokio::test]
async fn a_missing_or_inaccessible_session_is_named_in_the_error() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    server.create_session("cat", json!({})).await;
    let before = (server.entries("owl"), server.entries("cat"));
    let dee = server.invite("dee", &["driver"], &[]);
    let bob = server.invite("bob", &["driver"], &["--session", "owl"]);
    let cli = CliEnv::new();
    let about: [&[&str]; 8] = [
        &["gates"],
        &["gates", "--watch"],
        &["send", "hello"],
        &["tail"],
        &["tail", "--follow"],
        &["history"],
        &["output", "abcdef"],
        &["connect"],
    ];
    for command in about {
        let run_there = async |link: &str, session: &str| {
            let arguments = [command, &["--session", session]].concat();
            let output = cli.run_with_link(link, &arguments).await;
            output.expect_refused(&arguments)
        };
        let link = server.link(&dee, None);
        let output = run_there(&link, "dog").await;
        assert_eq!(output, "pvp: there is no session `dog`\n", "{command:?}");
        let output = run_there(&link, "../x").await;
        assert!(
            output.contains("--session") && output.contains("an id has '.' at position 0"),
            "{output}"
        );
        let link = server.link(&bob, None);
        let output = run_there(&link, "cat").await;
        assert_eq!(
            output, "pvp: this token is for another session\n",
            "{command:?}"
        );
        // With two sessions, the command must name one.
        if command != ["connect"] && !["gates", "output"].contains(&command[0]) {
            let link = server.link(&dee, None);
            let output = cli.run_with_link(&link, command).await;
            let output = output.expect_refused(command);
            assert_eq!(
                output, "pvp: several sessions are open; choose one with --session: cat, owl\n",
                "{command:?}"
            );
        }
    }
    assert_eq!((server.entries("owl"), server.entries("cat")), before);
}

#[tokio::test]
async fn the_session_can_come_from_a_variable_and_an_ended_one_is_named() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    server.create_session("cat", json!({})).await;
    let cli = CliEnv::logged_in(&server.link(&server.admin(), None)).await;
    let tail = ["tail", "--json", "-n", "1"];
    let output = cli.run_with_env(&tail, &[("PVP_SESSION", "owl")]).await;
    let last: Value = serde_json::from_str(&output.expect_ok(&tail)).unwrap();
    assert_eq!(last["session"], "owl");
    let end = r#"{"reason":"done","final_state":"completed"}"#;
    for session in ["owl", "cat"] {
        let end = [
            "send",
            "--type",
            "session.end",
            "--payload",
            end,
            "--session",
            session,
        ];
        cli.run_ok(&end).await;
    }
    let output = cli.run_refused(&["tail"]).await;
    assert_eq!(
        output,
        "pvp: no session is open; create one with `pvp create`, or choose one of `pvp sessions --all` with --session\n"
    );
    // An ended session can still be read, and accepts no messages.
    let before = server.entries("owl");
    cli.run_ok(&["tail", "--session", "owl"]).await;
    let output = cli
        .run_refused(&["send", "hello", "--to", "bot", "--session", "owl"])
        .await;
    assert!(output.contains("ended"), "{output}");
    assert_eq!(server.entries("owl"), before);
}

#[tokio::test]
async fn following_ends_with_an_error_when_the_token_is_revoked() {
    let server = TestServer::start(&[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let mut following = [
        cli.spawn(&["gates", "--watch", "--json"]),
        cli.spawn(&["tail", "--follow", "--json"]),
        cli.spawn(&["connect", "--stay"]),
    ];
    following[1].next_line().await;
    following[2].next_line().await;
    let data = server.data.to_str().unwrap();
    let listed = run_pvp(&["tokens", "list", "--json", "--data", data]).1;
    let id = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|token| token["participant"] == ann.participant.as_str())
        .unwrap()["id"]
        .clone();
    assert!(run_pvp(&["tokens", "revoke", "--data", data, id.as_str().unwrap()]).0);
    let mut agent = agent;
    for mut one in following {
        // An event makes the client send another request.
        agent.propose("make").await;
        let revoked = "the token was revoked; ask for a new invitation";
        let mut complaint = one.next_stderr_line().await;
        if complaint.starts_with("pvp: lost the connection") {
            complaint = one.next_stderr_line().await;
        }
        assert_eq!(complaint, format!("pvp: {revoked}"));
        assert_eq!(one.ended().await.code, Some(1));
    }
}

/// Causes an event that everyone receives, no faster than the rate limit allows.
async fn cause_event(agent: &mut crate::support::TestClient) {
    agent.sync().await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_closed_pipe_ends_a_command_quietly() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let pvp = env!("CARGO_BIN_EXE_pvp");
    for command in ["tail --follow --json", "connect --stay"] {
        let line = format!("set -o pipefail; {pvp} {command} | head -n 1");
        let mut command = cli.program("bash");
        let mut output = std::pin::pin!(command.args(["-c", &line]).output());
        // It notices the closed pipe when it writes again.
        let output = loop {
            tokio::select! {
                output = &mut output => break output.unwrap(),
                _ = cause_event(&mut agent) => {}
            }
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(
            crate::support::cli::parse_json_lines(&String::from_utf8_lossy(&output.stdout)).len(),
            1
        );
    }
}

#[tokio::test]
async fn a_workspace_or_data_directory_that_cannot_be_made_is_named() {
    let cli = CliEnv::new();
    std::fs::write(cli.workdir().join("file"), "").unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    for (command, part) in [
        (
            &["demo", "--data", "data", "--workspace", "file"][..],
            "creating the workspace file: ",
        ),
        (&["demo", "--data", "file/below"], "file/below"),
        (&["up", "--data", "file/below"], "file/below"),
        (
            &["up", "--data", "data", "--session", "a b"],
            "an id has ' ' at position 1",
        ),
    ] {
        let output = cli.run_refused(&[command, &listen[..]].concat()).await;
        assert!(output.contains(part), "{command:?}: {output}");
    }
    assert!(!cli.state().exists());
}
