//! Hooks against a server that answers nonsense, a full disk, files that change while a call is away,
//! and calls that cannot be told apart.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pvp_client::{ApiClient, Link};
use pvp_protocol::SessionId;
use pvp_protocol::api::ProposalRequest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fixture::assert_contains;
use crate::other_clients::{read_json, start};
use crate::support::cli::CliEnv;
use crate::support::disk::TmpfsMount;
use crate::support::hook_client::{HookStandIn, answer_of, decision_of};
use crate::support::session::{proposal_of, result_of};
use crate::{approve, next_gate, reject, start_session};

#[tokio::test]
async fn a_file_that_changed_while_its_call_was_deferred_is_not_written() {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let flags = ["--defer-after", "1s"];
    let cli = CliEnv::new();
    let file = cli.workdir().join("a.txt");
    std::fs::write(&file, "old\n").unwrap();
    let write = json!({ "file_path": file, "content": "new\n" });
    let client = HookStandIn::start_as(cli, &link, user.participant.clone(), &flags).await;
    let hook = client.ask("toolu_1", "Write", write.clone()).await;
    assert_eq!(decision_of(hook).await.0, "defer");
    let (gate, _) = next_gate(&mut ann).await;
    let HookStandIn { run, cli, .. } = client;
    run.ended().await;
    std::fs::remove_file(cli.home().join("bin/claude.args")).unwrap();
    std::fs::write(&file, "what somebody else wrote meanwhile\n").unwrap();
    approve(&mut ann, &gate).await;
    let client = HookStandIn::start_as(cli, &link, user.participant, &flags).await;
    let (decision, why) = decision_of(client.ask("toolu_1", "Write", write).await).await;
    assert_eq!(decision, "deny");
    assert_contains(
        why.as_str().unwrap(),
        &["has changed since it was approved"],
    );
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "not_run");
}

#[tokio::test]
async fn a_deferred_call_gives_no_other_tool_its_approval() {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let flags = ["--defer-after", "1s"];
    let participant = user.participant.clone();
    let client = HookStandIn::start_as(CliEnv::new(), &link, participant, &flags).await;
    let look = json!({ "path": "old", "server": "files" });
    let hook = client
        .ask("toolu_1", "mcp__files__look", look.clone())
        .await;
    assert_eq!(decision_of(hook).await.0, "defer");
    let (gate, _) = next_gate(&mut ann).await;
    let HookStandIn { run, cli, .. } = client;
    run.ended().await;
    std::fs::remove_file(cli.home().join("bin/claude.args")).unwrap();
    approve(&mut ann, &gate).await;
    let client = HookStandIn::start_as(cli, &link, user.participant, &flags).await;
    let hook = client.ask("toolu_1", "mcp__files__delete", look).await;
    let (decision, why) = decision_of(hook).await;
    assert_eq!(decision, "deny");
    assert_contains(why.as_str().unwrap(), &["a call of `mcp__files__look`"]);
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "not_run");
}

#[tokio::test]
async fn a_search_in_another_directory_than_that_of_the_session_is_asked_about() {
    let (server, mut ann) = start_session(json!({ "client_reads": "workspace" })).await;
    let cli = CliEnv::new();
    let workdir = cli.workdir().canonicalize().unwrap();
    let elsewhere = cli.home().join("elsewhere");
    let sub = workdir.join("sub");
    for directory in [&elsewhere, &sub, &workdir.join("notes")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::os::unix::fs::symlink(&elsewhere, sub.join("notes")).unwrap();
    let client = HookStandIn::start_with(cli, &server, "owl", &[]).await;
    let ask = async |id: &str, cwd: &Path, tool: &str, input: Value| {
        let fields = json!({
            "tool_name": tool, "tool_input": input, "tool_use_id": id, "cwd": cwd,
        });
        client.start_hook("PreToolUse", fields).await
    };
    let padded = json!({ "pattern": "x", "path": format!(" {}", elsewhere.display()) });
    let anywhere = json!({ "pattern": "x" });
    let notes = json!({ "pattern": "x", "path": "notes" });
    for (id, cwd, input, shown) in [
        ("toolu_1", &workdir, &padded, (" /", "/elsewhere")),
        ("toolu_2", &elsewhere, &anywhere, ("/", "/elsewhere")),
        ("toolu_3", &sub, &notes, ("/", "/sub/notes")),
    ] {
        let _hook = ask(id, cwd, "Grep", input.clone()).await;
        let (gate, _) = next_gate(&mut ann).await;
        let proposal = proposal_of(&ann, &gate);
        let mut received = ann.received.iter();
        let proposed = received.find(|it| it["id"] == *proposal).unwrap();
        let path = proposed["payload"]["arguments"]["path"].as_str().unwrap();
        assert!(
            path.starts_with(shown.0) && path.ends_with(shown.1),
            "{path}"
        );
    }
    let hook = ask("toolu_4", &workdir, "Grep", notes).await;
    assert_eq!(decision_of(hook).await.0, "allow");
}

/// The files of a client whose server is at this address, as `pvp run` writes them.
fn client_files(cli: &CliEnv, address: &str) -> PathBuf {
    let files = cli.home().join("files");
    std::fs::create_dir_all(files.join("calls")).unwrap();
    let settings = json!({
        "client": "claude", "version": null, "workspace": cli.workdir(), "session": "owl",
        "participant": "claude-1", "person": null, "server_lock": null,
        "agent_link": format!("http://{address}/#token=pvp_a_b&session=owl"),
        "defer_after_seconds": null,
    });
    std::fs::write(files.join("client.json"), settings.to_string()).unwrap();
    files
}

/// What the hook says about a command.
async fn ask_hook(cli: &CliEnv, files: &Path) -> (String, Value) {
    let said = json!({
        "session_id": "c1", "cwd": cli.workdir(), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "touch made" }, "tool_use_id": "toolu_1",
    });
    let mut command = cli.command(&["hook", "run", "claude", "--files"]);
    let mut child = command.arg(files).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(said.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    decision_of(child).await
}

/// A server that gives every request this answer and closes.
async fn answering(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            // A client that has read enough closes first.
            let _ = socket.write_all(&answer).await;
        }
    });
    address
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// What a real server says about another call that was approved.
async fn allowed_elsewhere() -> String {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = Link::parse(&server.link(&user, Some("owl"))).unwrap();
    let request: ProposalRequest = serde_json::from_value(json!({
        "id": "another-call", "tool_name": "shell", "category": "shell_execute", "runs": "client",
        "arguments": { "full_command": "touch made" },
    }))
    .unwrap();
    let session = SessionId::parse("owl").unwrap();
    let propose = move |wait| {
        let (link, request, session) = (link.clone(), request.clone(), session.clone());
        tokio::task::spawn_blocking(move || {
            let api = ApiClient::new(link);
            api.propose(&session, &request, wait).unwrap()
        })
    };
    propose(Duration::ZERO).await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    let decided = propose(Duration::from_secs(60)).await.unwrap();
    let decided = serde_json::to_string(&decided).unwrap();
    assert!(decided.contains("\"allowed\""), "{decided}");
    decided
}

#[tokio::test]
async fn no_nonsense_of_a_server_lets_a_call_through() {
    let allowed = allowed_elsewhere().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let half = allowed[..allowed.len() / 2].to_owned();
    let mut cut = response("200 OK", &allowed);
    cut.truncate(cut.len() - 10);
    let chunked = |chunks: &str| {
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}").into_bytes()
    };
    let headers = "x: y\r\n".repeat(100_000);
    let answers = [
        ("another call", response("200 OK", &allowed)),
        ("an error", response("500 Internal Server Error", &allowed)),
        ("half of it", response("200 OK", &half)),
        ("cut off", cut),
        ("nothing", response("200 OK", "")),
        ("null", response("200 OK", "null")),
        ("an object", response("200 OK", "{}")),
        ("a word", response("200 OK", "\"allowed\"")),
        ("depth", response("200 OK", &deep)),
        ("bad chunks", chunked("zz\r\n{}\r\n")),
        ("chunks without end", chunked(&format!("1000\r\n{allowed}"))),
        ("only signs of life", chunked(&"1\r\n \r\n".repeat(1000))),
        ("no HTTP", b"\x00\xff allowed\r\n".to_vec()),
        (
            "many headers",
            format!("HTTP/1.1 200 OK\r\n{headers}").into_bytes(),
        ),
        (
            "elsewhere",
            b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:9/\r\n\r\n".to_vec(),
        ),
        ("silence", Vec::new()),
    ];
    let asked = answers.map(|(name, answer)| async move {
        let cli = CliEnv::new();
        let address = answering(answer).await;
        let files = client_files(&cli, &address);
        let (decision, why) = ask_hook(&cli, &files).await;
        assert_eq!(decision, "deny", "{name}: {why}");
        let calls = std::fs::read_dir(files.join("calls")).unwrap().count();
        assert_eq!(calls, 0, "{name}");
    });
    futures_util::future::join_all(asked).await;
}

#[tokio::test]
async fn a_full_disk_lets_no_call_through() {
    let Some(disk) = TmpfsMount::mount() else {
        return;
    };
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let cli = CliEnv::new();
    // Only what is kept about the client is on the full disk.
    std::fs::create_dir_all(cli.state().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(disk.path(), cli.state()).unwrap();
    let link = server.link(&user, Some("owl"));
    let client = HookStandIn::start_as(cli, &link, user.participant, &[]).await;
    // It fills while a call waits.
    let waiting = client.ask_bash("toolu_1", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    disk.fill();
    approve(&mut ann, &gate).await;
    let (decision, why) = decision_of(waiting).await;
    assert_eq!(decision, "deny");
    assert_contains(why.as_str().unwrap(), &["could not be noted"]);
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "not_run");
    // And is full before one is asked about; what ended made room.
    disk.fill();
    let (decision, _) = decision_of(client.ask_bash("toolu_2", "touch b").await).await;
    assert_eq!(decision, "deny");
    // The same call can be asked about once there is room again.
    disk.empty();
    let hook = client.ask_bash("toolu_2", "touch b").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch b");
    approve(&mut ann, &gate).await;
    assert_eq!(decision_of(hook).await.0, "allow");
}

#[tokio::test]
async fn of_two_equal_calls_without_ids_each_is_decided_and_ends_once() {
    let (server, mut ann) = start_session(json!({})).await;
    let client = start(&server, "copilot", &["-p", "go"]).await;
    let hooks = read_json(&client.after("--plugin-dir").join("hooks.json"));
    let command = |event: &str| {
        let command = &hooks["hooks"][event][0]["bash"];
        command.as_str().unwrap().to_owned()
    };
    let call = json!({
        "sessionId": "s", "timestamp": 1, "cwd": client.cli.workdir(), "toolName": "bash",
        "toolArgs": { "command": "touch made", "description": "why" },
    });
    let before = command("preToolUse");
    let hooks = [
        client.hook(&before, call.clone()).await,
        client.hook(&before, call.clone()).await,
        client.hook(&before, call.clone()).await,
    ];
    let mut gates = Vec::new();
    for _ in &hooks {
        gates.push(next_gate(&mut ann).await.0);
    }
    reject(&mut ann, &gates[0], "once is enough").await;
    approve(&mut ann, &gates[1]).await;
    approve(&mut ann, &gates[2]).await;
    let mut decisions = Vec::new();
    for hook in hooks {
        let answer = answer_of(hook).await;
        decisions.push(answer["permissionDecision"].as_str().unwrap().to_owned());
    }
    decisions.sort();
    assert_eq!(decisions, ["allow", "allow", "deny"]);
    for text in ["first", "second", "third"] {
        let mut ended = call.clone();
        ended["error"] = text.into();
        answer_of(client.hook(&command("postToolUseFailure"), ended).await).await;
    }
    let mut results = Vec::new();
    for gate in &gates[1..] {
        let proposal = proposal_of(&ann, gate);
        let result = result_of(&mut ann, &proposal).await;
        results.push(result["error"].as_str().unwrap().to_owned());
    }
    results.sort();
    // The third is nobody's.
    assert_eq!(results, ["first", "second"]);
}

#[tokio::test]
async fn no_variable_leads_a_token_to_a_proxy() {
    let (server, _ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["approver"], &[]);
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    // This name leads here, and does not look as if it did.
    let port = server.address.rsplit(':').next().unwrap();
    let link = format!("http://localhost.:{port}/#token={}&session=owl", dee.token);
    let cli = CliEnv::new();
    let variables = [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "all_proxy",
        "ALL_PROXY",
    ];
    let variables = variables.map(|name| (name, address.as_str()));
    let arguments = ["gates", "--link", &link];
    let asked = cli.run_with_env(&arguments, &variables);
    tokio::select! {
        output = asked => assert_ne!(output.code, Some(0), "{}", output.out),
        _ = proxy.accept() => panic!("the proxy was asked"),
    }
}
