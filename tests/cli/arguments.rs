//! Invalid arguments and settings, and the errors for them.

use std::path::Path;
use std::process::Command;

use crate::support::TestServer;
use serde_json::Value;

/// Runs `pvp` with only these `PVP_*` variables; it must exit with an error. Returns the error.
fn run_refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pvp"))
        .args(arguments)
        .env_remove("PVP_LOG")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{arguments:?} {environment:?}");
    assert!(output.stdout.is_empty(), "{arguments:?} {environment:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn server_args<'a>(data: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let data = data.to_str().unwrap();
    [&["server", "--listen", "127.0.0.1:0", "--data", data], more].concat()
}

#[test]
fn bad_settings_are_refused_with_their_name_and_what_is_allowed() {
    let data = tempfile::tempdir().unwrap();
    for (variable, value, allowed) in [
        (
            "PVP_LISTEN",
            "here",
            "an address, with or without a port, such as 127.0.0.1:3000 or 0.0.0.0",
        ),
        ("PVP_OPEN", "perhaps", "true or false"),
        (
            "PVP_PUBLIC_URL",
            "ftp://x",
            "an address that begins with http:// or https://",
        ),
        ("PVP_MESSAGE_BYTES", "12", "1024 to 8388608"),
        ("PVP_JSON_DEPTH", "1000", "8 to 120"),
        ("PVP_JOIN_SECONDS", "0", "1 to 300"),
        ("PVP_JOIN_SECONDS", "-1", "1 to 300"),
        ("PVP_MESSAGES_PER_SECOND", "", "1 to 1000000"),
        ("PVP_OPEN_GATES", "many", "1 to 10000"),
        ("PVP_SESSIONS", "99999999999999999999", "1 to 10000000"),
        ("PVP_DATA", "", "a directory"),
    ] {
        let output = run_refused(&server_args(data.path(), &[]), &[(variable, value)]);
        let key = variable.trim_start_matches("PVP_").to_lowercase();
        assert_eq!(
            output,
            format!("pvp: {variable}: `{key}` is {value:?}; use {allowed}\n")
        );
    }
    let path = data.path().to_str().unwrap();
    for (flag, key, allowed) in [
        (
            "--listen",
            "listen",
            "an address, with or without a port, such as 127.0.0.1:3000 or 0.0.0.0",
        ),
        (
            "--public-url",
            "public_url",
            "an address that begins with http:// or https://",
        ),
    ] {
        let output = run_refused(&["server", "--data", path, flag, "x"], &[]);
        assert_eq!(
            output,
            format!("pvp: {flag}: `{key}` is \"x\"; use {allowed}\n")
        );
    }
    let file = data.path().join("pvp.toml");
    for (text, output) in [
        (
            "open_gates = 0\n",
            "pvp.toml:1: `open_gates` is 0; use 1 to 10000\n",
        ),
        (
            "\n\nparticipants = \"x\"\n",
            "pvp.toml:3: `participants` is \"x\"; use 1 to 100000\n",
        ),
        (
            "listen = 3000\n",
            "pvp.toml:1: `listen` is 3000; use an address, with or without a port, such as 127.0.0.1:3000 or 0.0.0.0\n",
        ),
        (
            "open_gate = 1\n",
            "pvp.toml:1: there is no setting `open_gate`; did you mean `open_gates`?\n",
        ),
        ("open_gates = \n", "pvp.toml:1: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let complaint = run_refused(
            &server_args(data.path(), &["--config", file.to_str().unwrap()]),
            &[],
        );
        let expected = format!("pvp: {}/{output}", data.path().display());
        assert!(complaint.starts_with(&expected), "{complaint}");
    }
    let missing = data.path().join("missing.toml");
    let output = run_refused(
        &server_args(data.path(), &["--config", missing.to_str().unwrap()]),
        &[],
    );
    assert!(
        output.contains("reading the settings in") && output.contains("missing.toml"),
        "{output}"
    );
}

#[test]
fn unknown_flags_and_arguments_are_named_in_the_error() {
    for (arguments, parts) in [
        (&["server", "--opn"][..], &["--opn", "--open"][..]),
        (&["serve"], &["serve", "server"]),
        (&["invite", "--data", "x", "--name", "n"], &["--role"]),
        (
            &[
                "invite", "--name", "n", "--role", "driver", "--link", "nonsense",
            ],
            &["--link", "a link begins with http:// or https://"],
        ),
        (
            &[
                "invite", "--data", "x", "--link", "y", "--name", "n", "--role", "driver",
            ],
            &["--data", "--link", "cannot be used"],
        ),
        (
            &["invite", "--server", "y", "--name", "n", "--role", "driver"],
            &["--server"],
        ),
        (
            &["invite", "--data", "x", "--name", "n", "--role", "root"],
            &["root", "driver", "admin"],
        ),
        (
            &[
                "invite", "--data", "x", "--name", "n", "--role", "driver", "--kind", "robot",
            ],
            &["`robot` is neither human nor agent"],
        ),
        (
            &[
                "invite",
                "--data",
                "x",
                "--name",
                "n",
                "--role",
                "driver",
                "--expires",
                "soon",
            ],
            &["`soon` is not a time; write it as 90s, 30m, 2h or 7d"],
        ),
        (
            &[
                "invite",
                "--data",
                "x",
                "--name",
                "n",
                "--role",
                "driver",
                "--session",
                "../s",
            ],
            &["an id has '.' at position 0"],
        ),
        (
            &[
                "invite",
                "--data",
                "/nonexistent",
                "--name",
                "n",
                "--role",
                "driver",
            ],
            &["/nonexistent is not a data directory; start `pvp up` or `pvp server` with it first"],
        ),
        (
            &["tokens", "list", "--data", "/nonexistent"],
            &["/nonexistent is not a data directory"],
        ),
        (
            &["audit", "verify", "--data", "x", "--key", "ab"],
            &["a key is 64 hexadecimal digits"],
        ),
        (
            &["audit", "verify", "--data", "x", "--key", "ab@2026"],
            &["a range is FROM..UNTIL, such as 2026-01-31T12:00:00Z..2026-02-28T12:00:00Z"],
        ),
        (
            &["audit", "verify", "--data", "x", "--key", "ab@..soon"],
            &["`soon` is not a time; write it as 2026-01-31T12:00:00.000Z"],
        ),
        (
            &[
                "audit",
                "verify",
                "--data",
                "x",
                "--key",
                "ab@2026-01-02T00:00:00Z..2026-01-01T00:00:00Z",
            ],
            &["the range ends before it begins"],
        ),
        (&["server", "rotate-key"], &["--data <DIR>"]),
        (
            &["server", "rotate-key", "--data", "/nonexistent"],
            &["/nonexistent is not a data directory; start `pvp up` or `pvp server` with it first"],
        ),
        (
            &["server", "--data", "/nonexistent", "rotate-key"],
            &["'rotate-key' cannot be used with '--data <DIR>'"],
        ),
        (
            &["audit", "export", "--data", "/nonexistent"],
            &["/nonexistent"],
        ),
    ] {
        let output = run_refused(arguments, &[]);
        for part in parts {
            assert!(output.contains(part), "{arguments:?}: {output}");
        }
    }
}

#[test]
fn open_mode_on_a_reachable_address_must_be_confirmed() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("never-made");
    let path = data.to_str().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:3000"] {
        let output = run_refused(
            &["server", "--open", "--listen", listen, "--data", path],
            &[],
        );
        assert_eq!(
            output,
            format!(
                "pvp: --open lets anyone who reaches {listen} do anything; listen on 127.0.0.1, or add --i-know-this-is-open\n"
            )
        );
        // However it was opened.
        let output = run_refused(
            &["server", "--listen", listen, "--data", path],
            &[("PVP_OPEN", "1")],
        );
        assert!(output.contains("--i-know-this-is-open"), "{output}");
    }
    assert!(!data.exists(), "nothing was made on the way");
}

#[tokio::test]
async fn open_mode_on_every_address_runs_if_confirmed() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("stderr.log");
    let file = std::fs::File::create(&log).unwrap();
    let flags = ["--open", "--i-know-this-is-open"];
    let store = data.path().join("store");
    let server = TestServer::start_with(&store, "0.0.0.0:0", &flags, &[], Some(file)).await;
    let port = server.address.rsplit(':').next().unwrap();
    assert_eq!(
        crate::support::http_get(&format!("127.0.0.1:{port}"), "/health", &[])
            .await
            .0,
        200
    );
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("OPEN: there is no login"), "{said}");
    assert!(said.contains("reads run without a sandbox"), "{said}");
}

#[tokio::test]
async fn the_admin_link_is_made_once() {
    let data = tempfile::tempdir().unwrap();
    let first = TestServer::start_in(data.path(), &[]).await;
    assert!(first.admin_token.is_some());
    assert!(first.stop().await.success());
    let second = TestServer::start_in(data.path(), &[]).await;
    assert_eq!(second.admin_token, None);
    assert!(second.stop().await.success());
    // An open server makes one too, for the day when it is no longer open.
    let data = tempfile::tempdir().unwrap();
    let open = TestServer::start_in(data.path(), &["--open"]).await;
    assert!(open.admin_token.is_some());
}

#[tokio::test]
async fn two_servers_do_not_share_a_data_directory_or_an_address() {
    let data = tempfile::tempdir().unwrap();
    let first = TestServer::start_in(data.path(), &[]).await;
    let output = run_refused(&server_args(data.path(), &[]), &[]);
    assert!(output.contains(data.path().to_str().unwrap()), "{output}");
    assert!(
        output.contains("is in use by another pvp server"),
        "{output}"
    );
    let other = tempfile::tempdir().unwrap();
    let path = other.path().to_str().unwrap();
    let output = run_refused(&["server", "--listen", &first.address, "--data", path], &[]);
    assert!(
        output.starts_with(&format!("pvp: cannot listen on {}", first.address)),
        "{output}"
    );
    assert_eq!(
        crate::support::http_get(&first.address, "/health", &[])
            .await
            .0,
        200
    );
    // After the server has stopped, the directory is free.
    assert!(first.stop().await.success());
    assert!(
        TestServer::start_in(data.path(), &[])
            .await
            .stop()
            .await
            .success()
    );
}

#[tokio::test]
async fn the_first_line_says_where_it_listens_as_json() {
    let data = tempfile::tempdir().unwrap();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_pvp"))
        .args(server_args(
            data.path(),
            &["--json", "--public-url", "https://pvp.example.org/"],
        ))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(crate::support::TEST_TIMEOUT, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let mut names: Vec<_> = said.as_object().unwrap().keys().cloned().collect();
    names.sort();
    assert_eq!(names, ["admin_link", "data", "listen"]);
    assert!(said["listen"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(
        said["admin_link"]
            .as_str()
            .unwrap()
            .starts_with("https://pvp.example.org/#token=pvp_")
    );
    assert_eq!(said["data"], data.path().to_str().unwrap());
}

#[test]
fn a_flag_that_would_do_nothing_for_a_client_is_refused() {
    // Nothing listens there: the flags are looked at first.
    let link = "http://127.0.0.1:9/owl";
    let executor_flags = [
        "--state=s",
        "--runner=podman exec dev",
        "--policy=p.toml",
        "--accept-edits=true",
        "--accept-shell",
        "--confine",
        "--trust-reads",
        "--no-read-roots",
        "--no-try",
        "--at-once=8",
        "--jobs=2",
        "--on-overflow=kill",
        "--max-memory=512",
        "--read-memory=512",
        "--max-processes=9",
        "--max-cpu=9",
        "--max-file=9",
        "--co-author=Bot <bot@example.com>",
        "--git-notes",
    ];
    for flag in executor_flags {
        let refused = run_refused(&["agent", link, flag, "--client", "claude"], &[]);
        let name = flag.split('=').next().unwrap();
        let expected = format!("pvp: {name} does nothing with --client, ");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    // What an ACP agent leaves to PVP runs with it.
    let refused = run_refused(&["agent", link, "--max-memory=512", "--acp", "cline"], &[]);
    assert!(!refused.contains("does nothing"), "{refused}");
    let model_flags = [
        "--brain=openai",
        "--script=s.toml",
        "--model=m",
        "--base-url=http://127.0.0.1:9",
        "--context=9",
        "--max-tokens=9",
        "--thinking=9",
        "--instructions=i.md",
        "--most-answers=9",
    ];
    for flag in model_flags {
        for instead in ["--client", "--acp"] {
            let refused = run_refused(&["agent", link, flag, instead, "claude"], &[]);
            let name = flag.split('=').next().unwrap();
            let expected = format!("pvp: {name} does nothing with {instead}, ");
            assert!(refused.starts_with(&expected), "{refused}");
        }
    }
    // What the environment says is for agents with a model, here or elsewhere.
    let model = [("PVP_AGENT_MODEL", "m")];
    let refused = run_refused(
        &["agent", link, "--workspace=.", "--client", "claude"],
        &model,
    );
    assert!(!refused.contains("does nothing"), "{refused}");
}
