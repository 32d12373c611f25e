//! `pvp up`, `pvp demo`: a server with something in it.

use serde_json::{Value, json};

use super::gates::{handle, only};
use crate::kit::desk::{Desk, Going};
use crate::kit::room::until;
use crate::kit::{PATIENCE, hold};

#[tokio::test]
async fn up_gives_links_that_work_and_goes_on_with_the_same_session() {
    let desk = Desk::new();
    // Nobody else is to listen there between the first time and the second.
    let port = hold("127.0.0.1:0");
    let listen = &port.local_addr().unwrap().to_string();
    let up = ["up", "--json", "--listen", listen, "--data", "data"];
    let mut going = desk.start(&up);
    let said = going.json().await;
    assert_eq!(
        (&said["session"], &said["fresh"]),
        (&json!("main"), &json!(true))
    );
    assert_eq!(said["listen"], listen.as_str());
    let remembered = std::fs::read_to_string(desk.here().join(".pvp/link")).unwrap();
    assert_eq!(remembered.trim(), said["link"].as_str().unwrap());
    let roles = async |key: &str| {
        let link = said[key].as_str().unwrap();
        let me = Desk::with(link).await.json(&["whoami", "--json"]).await["me"].clone();
        json!([me["name"], me["kind"], me["roles"], me["session"]])
    };
    assert_eq!(
        roles("link").await,
        json!(["dee", "human", ["driver", "admin"], null])
    );
    assert_eq!(
        roles("approver_link").await,
        json!(["approver", "human", ["approver"], "main"])
    );
    assert_eq!(
        roles("agent_link").await,
        json!(["agent", "agent", ["driver"], "main"])
    );

    // The agent proposes, the approver approves, I see it.
    let mut agent = Desk::new().start(&["connect", "--stay", said["agent_link"].as_str().unwrap()]);
    let welcome = agent.json().await;
    let propose = json!({ "type": "tool.propose", "payload": {
        "tool_name": "shell", "arguments": { "full_command": "make" }, "agent": welcome["payload"]["participant"],
        "risk_level": "low", "description": "", "requires_approval": false, "category": "shell_execute",
    }});
    agent.type_line(&propose.to_string()).await;
    agent.line_with("gate.request").await;
    let approver = Desk::with(said["approver_link"].as_str().unwrap()).await;
    let gate = only(&approver).await;
    approver.good(&["approve", &handle(&gate)]).await;
    agent.line_with("tool.execute").await;
    let history = desk.good(&["history"]).await;
    assert!(
        history.contains("  running    make  ok by approver-"),
        "{history}"
    );
    going.signal("INT");
    assert_eq!(going.ended().await.code, Some(0));
    drop(agent);

    // Again, on the same address: the same session and the same link of mine.
    let again = ["up", "--json", "--listen", listen, "--data", "data"];
    let mut going = desk.start(&again);
    let second = going.json().await;
    assert_eq!(
        (&second["session"], &second["fresh"]),
        (&json!("main"), &json!(false))
    );
    assert_eq!(second["link"], said["link"]);
    assert_eq!(
        std::fs::read_to_string(desk.here().join(".pvp/link")).unwrap(),
        remembered
    );
    assert_eq!(desk.good(&["history"]).await.lines().count(), 1);
    going.signal("TERM");
    assert_eq!(going.ended().await.code, Some(0));
}

#[tokio::test]
async fn up_says_in_words_how_to_come_in() {
    let desk = Desk::new();
    let mut going = desk.start(&[
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
    let first = going.line().await;
    assert!(
        first.starts_with("PVP is up on http://127.0.0.1:")
            && first.ends_with(" with a new session `owl`"),
        "{first}"
    );
    let mut links = Vec::new();
    for who in ["you", "approver", "agent"] {
        let line = going.line_with(who).await;
        links.push(line.split_whitespace().nth(1).unwrap().to_owned());
    }
    going.line_with("pvp gates, pvp tail --follow").await;
    for link in links {
        Desk::with(&link).await.good(&["sessions"]).await;
    }
    // What it tells to try works.
    desk.good(&["gates"]).await;
    desk.good(&["invite", "--name", "Ann", "--role", "approver"])
        .await;
    let sessions = desk.good(&["sessions"]).await;
    assert!(sessions.contains("The owl"), "{sessions}");
    // The data directory is in use, and so is the address.
    let said = desk
        .refused(&["up", "--listen", "127.0.0.1:0", "--data", "data"])
        .await;
    assert!(said.contains("is in use by another pvp server"), "{said}");
    let said = desk.refused(&["up", "--session", ".."]).await;
    assert!(said.contains("an id has '.' at position 0"), "{said}");
}

/// Follows what the demo prints as its instructions.
struct Demo {
    desk: Desk,
    going: Going,
    session: String,
    workspace: String,
}

impl Demo {
    async fn start() -> Self {
        let desk = Desk::new();
        let mut going = desk.start(&["demo", "--listen", "127.0.0.1:0", "--data", "data"]);
        let first = going.line_with("PVP runs on ").await;
        let session = first.split('`').nth(1).unwrap().to_owned();
        let second = going.line().await;
        let workspace = second.strip_prefix("Its commands run in ").unwrap();
        let workspace = workspace.split([',', ';']).next().unwrap().to_owned();
        Self {
            desk,
            going,
            session,
            workspace,
        }
    }

    /// Runs a line of the instructions as it is printed, with the handle filled in.
    async fn follow(&self, instruction: &str, handle: &str) -> String {
        let line = instruction.replace("HANDLE", handle);
        let output = self
            .desk
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
        let records = self.desk.jsons(&["history", "--json"]).await;
        records
            .iter()
            .map(|one| (text(&one["command"]), text(&one["status"])))
            .collect()
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(format!("{}/notes.txt", self.workspace)).unwrap()
    }
}

/// The processes whose working directory is this one or below.
fn at_work_in(directory: &str) -> Vec<String> {
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

/// Waits until the processes that work in a directory are as they should be.
async fn workers_are(directory: &str, right: impl Fn(&[String]) -> bool) {
    until("they are as they should be", || {
        right(&at_work_in(directory))
    })
    .await;
}

/// Waits until the last process has gone: a reaper outlives its executor for a moment.
async fn nobody_works_in(directory: &str) {
    workers_are(directory, <[String]>::is_empty).await;
}

#[tokio::test]
async fn the_demo_does_what_it_prints() {
    let mut demo = Demo::start().await;
    let mut instruction = async |part: &str| {
        let line = demo.going.line_with(part).await;
        line.trim().to_owned()
    };
    let cut = |line: String, at: &str| line[..line.find(at).unwrap() + at.len()].to_owned();
    let gates = cut(instruction("gates").await, "gates");
    let show = cut(instruction("show HANDLE").await, "HANDLE");
    let both = instruction("approve HANDLE").await;
    let (approve, reject) = both.split_once("or:").unwrap();
    let tail = cut(instruction("tail --follow").await, "tail");
    let again = instruction("send again").await;
    let again = again.split_once("with:").unwrap().1.to_owned();
    let link = instruction("http://").await;

    // It has read, and wants to write.
    demo.going.line_with("it waits").await;
    let write = only(&demo.desk).await;
    let listed = demo.follow(&gates, "").await;
    assert!(
        listed.starts_with(&handle(&write)) && listed.ends_with("echo eggs >> notes.txt\n"),
        "{listed}"
    );
    assert!(
        demo.follow(&show, &handle(&write))
            .await
            .starts_with("echo eggs >> notes.txt\n")
    );
    let read = demo.desk.jsons(&["history", "--json"]).await[0].clone();
    assert_eq!(
        (&read["command"], &read["status"]),
        (&json!("cat notes.txt"), &json!("finished"))
    );
    let read = read["tool_proposal"].as_str().unwrap();
    assert_eq!(demo.desk.good(&["output", read]).await, "milk\nbread\n");
    assert_eq!(demo.notes(), "milk\nbread\n");
    demo.follow(approve, &handle(&write)).await;

    // It has written, and wants to destroy.
    demo.going.line_with("it waits").await;
    assert_eq!(demo.notes(), "milk\nbread\neggs\n");
    let destroy = only(&demo.desk).await;
    assert_eq!(destroy["assessment"]["category"], "destructive");
    let said = demo.follow(reject, &handle(&destroy)).await;
    assert!(said.ends_with(": why not\n"), "{said}");
    let answer = demo.going.line_with("I leave them alone").await;
    assert!(answer.ends_with(" said: why not"), "{answer}");
    demo.going.line_with("That is all I know").await;
    assert_eq!(demo.follow(&gates, "").await, "nothing waits\n");
    let status = |text: &str| text.to_owned();
    let round = [
        ("cat notes.txt", "finished"),
        ("echo eggs >> notes.txt", "finished"),
        ("rm -rf old-notes", "rejected"),
        ("rm -rf / --no-preserve-root", "blocked"),
    ]
    .map(|(command, end)| (status(command), status(end)));
    assert_eq!(demo.history().await, round);
    let account = demo.follow(&tail, "").await;
    assert!(account.contains("rm -rf / --no-preserve-root"), "{account}");

    // Asked, it begins again; and who comes from elsewhere sees the same.
    demo.follow(&again, "").await;
    demo.going.line_with("it waits").await;
    assert_eq!(demo.history().await.len(), 6);
    let elsewhere = Desk::with(&link).await;
    assert_eq!(only(&elsewhere).await, only(&demo.desk).await);
    assert_eq!(
        elsewhere.json(&["sessions", "--json"]).await["sessions"][0]["session"],
        demo.session.as_str()
    );

    demo.going.signal("INT");
    let ended = demo.going.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    nobody_works_in(&demo.workspace).await;
}

#[tokio::test]
async fn a_command_of_ones_own_runs_in_the_demo_and_none_outlives_it() {
    let mut demo = Demo::start().await;
    demo.going.line_with("it waits").await;
    let exec = |command: &str| json!({ "command": command }).to_string();
    let own = exec("pwd; echo oops >&2");
    let sent = demo
        .desk
        .json(&["send", "--json", "--type", "shell.exec", "--payload", &own])
        .await;
    let id = sent["id"].as_str().unwrap();
    let mut tail = demo
        .desk
        .start(&["tail", "--follow", "--json", "--after", "0"]);
    loop {
        let message = tail.json().await;
        if message["type"] == "tool.result" && message["payload"]["tool_proposal"] == id {
            break;
        }
    }
    let out = demo.desk.good(&["output", id, "--stream", "stdout"]).await;
    assert_eq!(out, format!("{}\n", demo.workspace));
    assert_eq!(
        demo.desk.good(&["output", id, "--stream", "stderr"]).await,
        "oops\n"
    );
    // Something that goes on, in a process below the shell that it runs in.
    let long = exec("echo begun; sleep 1000; echo never");
    demo.desk
        .good(&["send", "--type", "shell.exec", "--payload", &long])
        .await;
    while !tail.line().await.contains("begun\\n") {}
    workers_are(&demo.workspace, |names| {
        names.iter().any(|name| name.starts_with("sleep"))
    })
    .await;
    demo.going.signal("INT");
    let ended = demo.going.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    nobody_works_in(&demo.workspace).await;
}

#[tokio::test]
async fn a_demo_ends_with_the_terminal_that_it_was_started_at() {
    use std::io::{BufRead, BufReader};
    let desk = Desk::new();
    let pair = portable_pty::native_pty_system()
        .openpty(portable_pty::PtySize::default())
        .unwrap();
    let mut command = portable_pty::CommandBuilder::new(env!("CARGO_BIN_EXE_pvp"));
    command.args(["demo", "--listen", "127.0.0.1:0", "--data", "data"]);
    command.env("HOME", desk.home());
    command.cwd(desk.here());
    let mut child = pair.slave.spawn_command(command).unwrap();
    let (pid, reader) = (child.process_id().unwrap(), pair.master.try_clone_reader());
    let lines = BufReader::new(reader.unwrap()).lines();
    let story = tokio::task::spawn_blocking(move || {
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.any(|line| line.contains("it waits")));
        let hung_up = std::process::Command::new("kill")
            .args(["-s", "HUP", &pid.to_string()])
            .status();
        assert!(hung_up.unwrap().success());
        child.wait().unwrap()
    });
    let status = tokio::time::timeout(PATIENCE, story).await;
    // One that went on would be waited for, and would outlive the test.
    let _ = std::process::Command::new("kill")
        .args(["-s", "KILL", &pid.to_string()])
        .output();
    assert!(status.expect("it ends").unwrap().success());
}
