//! `pvp up` and `pvp demo`.

use serde_json::{Value, json};

use super::gates::{gate_handle, only_open_gate};
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::session::wait_until;
use crate::support::{TEST_TIMEOUT, reserve_port};

#[tokio::test]
async fn up_prints_working_links_and_reuses_the_session() {
    let cli = CliEnv::new();
    // Reserves the port between the first start and the second.
    let port = reserve_port("127.0.0.1:0");
    let listen = &port.local_addr().unwrap().to_string();
    let up = ["up", "--json", "--listen", listen, "--data", "data"];
    let mut process = cli.spawn(&up);
    let said = process.next_json().await;
    assert_eq!(
        (&said["session"], &said["fresh"]),
        (&json!("main"), &json!(true))
    );
    assert_eq!(said["listen"], listen.as_str());
    let file = cli.link_file(&cli.workdir());
    let remembered = std::fs::read_to_string(&file).unwrap();
    assert_eq!(remembered.trim(), said["link"].as_str().unwrap());
    let roles = async |key: &str| {
        let link = said[key].as_str().unwrap();
        let me = CliEnv::logged_in(link)
            .await
            .run_json(&["whoami", "--json"])
            .await["me"]
            .clone();
        json!([me["name"], me["kind"], me["roles"], me["session"]])
    };
    assert_eq!(
        roles("link").await,
        json!(["dee", "human", ["driver", "approver"], null])
    );
    assert_eq!(
        roles("admin_link").await,
        json!(["admin", "human", ["admin"], null])
    );
    assert_eq!(
        roles("agent_link").await,
        json!(["agent", "agent", ["driver"], "main"])
    );

    // The agent proposes, the approver approves, and the result is visible.
    let agent_cli = CliEnv::logged_in(said["agent_link"].as_str().unwrap()).await;
    let mut agent = agent_cli.spawn(&["connect", "--stay"]);
    let welcome = agent.next_json().await;
    let propose = json!({ "type": "tool.propose", "payload": {
        "tool_name": "shell", "arguments": { "full_command": "make" }, "agent": welcome["payload"]["participant"],
        "risk_level": "low", "description": "", "requires_approval": false, "category": "shell_execute",
    }});
    agent.write_line(&propose.to_string()).await;
    agent.wait_for_line("gate.request").await;
    let invite = ["invite", "--json", "--name", "Ann", "--role", "approver"];
    let invited = cli.run_json(&invite).await;
    let approver = CliEnv::logged_in(invited["link"].as_str().unwrap()).await;
    let gate = only_open_gate(&approver).await;
    approver.run_ok(&["approve", &gate_handle(&gate)]).await;
    agent.wait_for_line("tool.execute").await;
    let history = cli.run_ok(&["history"]).await;
    assert!(
        history.contains("  running    make  approved by ann-"),
        "{history}"
    );
    process.signal("INT");
    assert_eq!(process.ended().await.code, Some(0));
    drop(agent);

    // Again, on the same address: the same session and the same links; nothing else is made.
    let tokens = ["tokens", "list", "--json", "--data", "data"];
    let made = cli.run_json_lines(&tokens).await.len();
    let again = ["up", "--json", "--listen", listen, "--data", "data"];
    let mut process = cli.spawn(&again);
    let second = process.next_json().await;
    assert_eq!(
        (&second["session"], &second["fresh"]),
        (&json!("main"), &json!(false))
    );
    assert_eq!(second["link"], said["link"]);
    assert_eq!(second["agent_link"], said["agent_link"]);
    assert_eq!(cli.run_json_lines(&tokens).await.len(), made);
    assert_eq!(second["admin_link"], Value::Null, "it is shown once");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), remembered);
    assert_eq!(cli.run_ok(&["history"]).await.lines().count(), 1);
    process.signal("TERM");
    assert_eq!(process.ended().await.code, Some(0));
}

#[tokio::test]
async fn up_prints_how_to_join() {
    let cli = CliEnv::new();
    let mut process = cli.spawn(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "data",
        "--session",
        "owl",
        "--name",
        "The owl",
    ]);
    let first = process.next_line().await;
    assert!(
        first.starts_with("PVP is up on http://127.0.0.1:")
            && first.ends_with(
                " with a new session `owl`; commands that are not reads need one approval"
            ),
        "{first}"
    );
    let mut links = Vec::new();
    for user in ["you", "agent", "admin"] {
        let line = process.wait_for_line(user).await;
        links.push(line.split_whitespace().nth(1).unwrap().to_owned());
    }
    process.wait_for_line("pvp gates, pvp tail --follow").await;
    let invite = process.wait_for_line("Invite others: pvp ").await;
    for link in links {
        CliEnv::logged_in(&link).await.run_ok(&["sessions"]).await;
    }
    // The commands that it suggests work.
    cli.run_ok(&["gates"]).await;
    let invite: Vec<_> = invite.split_whitespace().skip(3).collect();
    assert!(cli.run_ok(&invite).await.contains("session=owl"));
    let sessions = cli.run_ok(&["sessions"]).await;
    assert!(sessions.contains("The owl"), "{sessions}");
    // The data directory is in use, and so is the address.
    let output = cli
        .run_refused(&["up", "--listen", "127.0.0.1:0", "--data", "data"])
        .await;
    assert!(
        output.contains("is in use by another pvp server"),
        "{output}"
    );
    let output = cli.run_refused(&["up", "--session", ".."]).await;
    assert!(output.contains("an id has '.' at position 0"), "{output}");
}

/// A running demo, and the instructions that it prints.
struct DemoProcess {
    cli: CliEnv,
    process: CliProcess,
    session: String,
    workspace: String,
}

impl DemoProcess {
    async fn start() -> Self {
        let cli = CliEnv::new();
        let mut process = cli.spawn(&["demo", "--listen", "127.0.0.1:0", "--data", "data"]);
        let first = process.wait_for_line("PVP runs on ").await;
        let session = first.split('`').nth(1).unwrap().to_owned();
        let second = process.next_line().await;
        let workspace = second.strip_prefix("Its commands run in ").unwrap();
        let workspace = workspace.split([',', ';']).next().unwrap().to_owned();
        Self {
            cli,
            process,
            session,
            workspace,
        }
    }

    /// Runs one printed instruction, with the handle filled in.
    async fn run_instruction(&self, instruction: &str, handle: &str) -> String {
        let line = instruction.replace("HANDLE", handle);
        let output = self
            .cli
            .program("bash")
            .args(["-c", &line])
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn history(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let records = self.cli.run_json_lines(&["history", "--json"]).await;
        records
            .iter()
            .map(|one| (text(&one["command"]), text(&one["status"])))
            .collect()
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(format!("{}/notes.txt", self.workspace)).unwrap()
    }
}

/// The command lines of the processes whose working directory is this one or below.
fn command_lines_in(directory: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let works = |process: &std::fs::DirEntry| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
    };
    let names = processes
        .filter(works)
        .map(|process| process.path().join("cmdline"));
    names
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .collect()
}

/// Waits until the processes that work in a directory are `right`.
async fn wait_for_processes(directory: &str, right: impl Fn(&[String]) -> bool) {
    wait_until("they are as they should be", || {
        right(&command_lines_in(directory))
    })
    .await;
}

/// Waits until the last process is gone: a reaper briefly outlives its executor.
async fn wait_until_empty(directory: &str) {
    wait_for_processes(directory, <[String]>::is_empty).await;
}

#[tokio::test]
async fn the_demo_does_what_it_prints() {
    let mut demo = DemoProcess::start().await;
    let mut instruction = async |part: &str| {
        let line = demo.process.wait_for_line(part).await;
        line.trim().to_owned()
    };
    let cut = |line: String, at: &str| line[..line.find(at).unwrap() + at.len()].to_owned();
    let again = instruction("send again").await;
    let page_link = instruction("#device=").await;
    let gates = cut(instruction("gates").await, "gates");
    let show = cut(instruction("show HANDLE").await, "HANDLE");
    let both = instruction("approve HANDLE").await;
    let (approve, reject) = both.split_once("or:").unwrap();
    let tail = cut(instruction("tail --follow").await, "tail");

    // It has read, and proposes a write.
    demo.process.wait_for_line("waiting for one approval").await;
    let write = only_open_gate(&demo.cli).await;
    let listed = demo.run_instruction(&gates, "").await;
    assert!(
        listed.starts_with(&gate_handle(&write)) && listed.ends_with("echo eggs >> notes.txt\n"),
        "{listed}"
    );
    assert!(
        demo.run_instruction(&show, &gate_handle(&write))
            .await
            .starts_with("echo eggs >> notes.txt\n")
    );
    let read = demo.cli.run_json_lines(&["history", "--json"]).await[0].clone();
    assert_eq!(
        (&read["command"], &read["status"]),
        (&json!("cat notes.txt"), &json!("finished"))
    );
    let read = read["tool_proposal"].as_str().unwrap();
    assert_eq!(demo.cli.run_ok(&["output", read]).await, "milk\nbread\n");
    assert_eq!(demo.notes(), "milk\nbread\n");
    demo.run_instruction(approve, &gate_handle(&write)).await;

    // It has written, and proposes a destructive command.
    demo.process.wait_for_line("waiting for one approval").await;
    assert_eq!(demo.notes(), "milk\nbread\neggs\n");
    let destroy = only_open_gate(&demo.cli).await;
    assert_eq!(destroy["assessment"]["category"], "destructive");
    let said = demo.run_instruction(reject, &gate_handle(&destroy)).await;
    assert!(said.ends_with(": why not\n"), "{said}");
    let answer = demo.process.wait_for_line("I will keep them").await;
    assert!(answer.ends_with(" said: why not"), "{answer}");
    demo.process.wait_for_line("That was the demo").await;
    assert_eq!(
        demo.run_instruction(&gates, "").await,
        "no commands are waiting for a decision\n"
    );
    let status = |text: &str| text.to_owned();
    let round = [
        ("cat notes.txt", "finished"),
        ("echo eggs >> notes.txt", "finished"),
        ("rm -rf old-notes", "rejected"),
        ("rm -rf / --no-preserve-root", "blocked"),
    ]
    .map(|(command, end)| (status(command), status(end)));
    assert_eq!(demo.history().await, round);
    let account = demo.run_instruction(&tail, "").await;
    assert!(account.contains("rm -rf / --no-preserve-root"), "{account}");

    // When prompted, it begins again; and a user from elsewhere sees the same.
    demo.run_instruction(&again, "").await;
    demo.process.wait_for_line("waiting for one approval").await;
    assert_eq!(demo.history().await.len(), 6);
    assert_eq!(demo.notes(), "milk\nbread\n", "the files are as at first");
    let elsewhere = CliEnv::new();
    elsewhere
        .run_with_stdin(&["join", "-"], &format!("{page_link}\n"))
        .await
        .expect_ok(&[]);
    let other = CliEnv::new();
    let again = other
        .run_with_stdin(&["join", "-"], &format!("{page_link}\n"))
        .await;
    assert!(again.err.contains("works once"), "{again:?}");
    assert_eq!(
        only_open_gate(&elsewhere).await,
        only_open_gate(&demo.cli).await
    );
    assert_eq!(
        elsewhere.run_json(&["sessions", "--json"]).await["sessions"][0]["session"],
        demo.session.as_str()
    );
    // The second person belongs to the tour; nobody else gets a vote.
    let tokens = demo.cli.run_ok(&["tokens", "list"]).await;
    assert!(
        tokens.contains("demo agent") && !tokens.contains("Robin"),
        "{tokens}"
    );

    demo.process.signal("INT");
    let ended = demo.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    wait_until_empty(&demo.workspace).await;
}

#[tokio::test]
async fn an_own_command_runs_in_the_demo_and_none_outlives_it() {
    let mut demo = DemoProcess::start().await;
    demo.process.wait_for_line("waiting for one approval").await;
    let exec = |command: &str| json!({ "command": command }).to_string();
    let own = exec("pwd; echo oops >&2");
    let sent = demo
        .cli
        .run_json(&["send", "--json", "--type", "shell.exec", "--payload", &own])
        .await;
    let id = sent["id"].as_str().unwrap();
    let mut tail = demo
        .cli
        .spawn(&["tail", "--follow", "--json", "--after", "0"]);
    loop {
        let message = tail.next_json().await;
        if message["type"] == "tool.result" && message["payload"]["tool_proposal"] == id {
            break;
        }
    }
    let out = demo.cli.run_ok(&["output", id, "--stream", "stdout"]).await;
    assert_eq!(out, format!("{}\n", demo.workspace));
    assert_eq!(
        demo.cli.run_ok(&["output", id, "--stream", "stderr"]).await,
        "oops\n"
    );
    // A long command in a child process of its shell.
    let long = exec("echo begun; sleep 1000; echo never");
    demo.cli
        .run_ok(&["send", "--type", "shell.exec", "--payload", &long])
        .await;
    while !tail.next_line().await.contains("begun\\n") {}
    wait_for_processes(&demo.workspace, |names| {
        names.iter().any(|name| name.starts_with("sleep"))
    })
    .await;
    demo.process.signal("INT");
    let ended = demo.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    wait_until_empty(&demo.workspace).await;
}

#[tokio::test]
async fn a_demo_ends_when_its_terminal_is_closed() {
    use std::io::{BufRead, BufReader};
    let cli = CliEnv::new();
    let pair = portable_pty::native_pty_system()
        .openpty(portable_pty::PtySize::default())
        .unwrap();
    let mut command = portable_pty::CommandBuilder::new(env!("CARGO_BIN_EXE_pvp"));
    command.args(["demo", "--listen", "127.0.0.1:0", "--data", "data"]);
    command.env("HOME", cli.home());
    command.cwd(cli.workdir());
    let mut child = pair.slave.spawn_command(command).unwrap();
    let (pid, reader) = (child.process_id().unwrap(), pair.master.try_clone_reader());
    let lines = BufReader::new(reader.unwrap()).lines();
    let story = tokio::task::spawn_blocking(move || {
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.any(|line| line.contains("waiting for one approval")));
        let hung_up = std::process::Command::new("kill")
            .args(["-s", "HUP", &pid.to_string()])
            .status();
        assert!(hung_up.unwrap().success());
        child.wait().unwrap()
    });
    let status = tokio::time::timeout(TEST_TIMEOUT, story).await;
    // A process that went on would be waited for, and would outlive the test.
    let _ = std::process::Command::new("kill")
        .args(["-s", "KILL", &pid.to_string()])
        .output();
    assert!(status.expect("it ends").unwrap().success());
}

#[tokio::test]
async fn up_takes_the_number_of_approvals_and_never_another_one() {
    let cli = CliEnv::new();
    let up = ["up", "--json", "--listen", "127.0.0.1:0", "--data", "data"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { [&up[..], more].concat() };
    let mut process = cli.spawn(&with(&["--approvals", "2,destructive=3"]));
    process.next_json().await;
    let shown = cli.run_json(&["session", "show", "--json"]).await;
    assert_eq!(
        shown["default_gate_quorum"],
        json!({ "type": "any", "count": 2 })
    );
    assert_eq!(
        shown["quorum_by_category"]["destructive"],
        json!({ "type": "any", "count": 3 })
    );
    process.signal("TERM");
    process.ended().await;

    let refused = cli.run_refused(&with(&["--approvals", "1"])).await;
    assert!(
        refused.contains("session `main` exists already, and has other settings"),
        "{refused}"
    );
    assert!(
        refused.contains("2 approvals, 3 approvals for destructive commands"),
        "{refused}"
    );
    let solo = with(&["--session-config", r#"{"solo": true}"#]);
    let refused = cli.run_refused(&solo).await;
    assert!(refused.contains("has other settings"), "{refused}");
    for (more, said) in [
        (
            ["--session-config", r#"{"quorum": 2}"#],
            "there is no session setting `quorum`",
        ),
        (
            ["--session-config", r#"{"max_participants": 0}"#],
            "`max_participants` is 0",
        ),
    ] {
        let new = [&with(&["--session", "other"])[..], &more].concat();
        let refused = cli.run_refused(&new).await;
        assert!(refused.contains(said), "{refused}");
    }

    // The same settings, or none, start it again.
    for more in [&["--approvals", "2,destructive=3"][..], &[]] {
        let mut process = cli.spawn(&with(more));
        assert_eq!(process.next_json().await["fresh"], false);
        process.signal("TERM");
        process.ended().await;
    }
}
