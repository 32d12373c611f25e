//! Wanted: a token or a key, by means of a read.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::session::{collect_output, result_of, send_prompt, start_session};
use crate::support::{TestClient, TestServer, TestUser};

/// A text with the shape of a token, which no server issued.
fn token_shape() -> String {
    format!("pvp_{}_{}", "0123456789abcdef", "4f".repeat(32))
}

/// Whether a text contains something with the shape of a token.
fn has_token(text: &str) -> bool {
    text.match_indices("pvp_").any(|(at, _)| {
        let hex = |part: Option<&str>, length: usize| {
            part.is_some_and(|part| {
                let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
                digits >= length
            })
        };
        let mut parts = text[at + 4..].splitn(2, '_');
        hex(parts.next(), 16) && hex(parts.next(), 64)
    })
}

/// Files below a directory that hold a token or are a server's key.
fn files_with_credentials(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_credentials(&path));
        } else if path.ends_with("server.key")
            || std::fs::read(&path).is_ok_and(|bytes| has_token(&String::from_utf8_lossy(&bytes)))
        {
            found.push(path);
        }
    }
    found
}

/// What became of a command that was proposed as if it were harmless.
#[derive(Debug, PartialEq, Eq)]
enum AttemptOutcome {
    /// A rule blocks it for good.
    Blocked,
    /// It waits for people.
    Asked,
    /// It ran unasked, and printed this on both streams.
    Ran { printed: String },
}

/// A script that proposes these commands at once, when it is prompted.
fn script_of(lines: &[&str]) -> String {
    let mut script = "[[step]]\nwait = 'prompt'\n".to_owned();
    for line in lines {
        script += &format!("[[step]]\nshell = {}\ntogether = true\n", json!(line));
    }
    script + "[[step]]\nshell = 'true'\n[[step]]\nwait = 'prompt'\n"
}

/// Waits until a command has either run or been asked for.
async fn outcome_of(person: &mut TestClient, line: &str) -> AttemptOutcome {
    let is_line = |message: &Value| {
        message["type"] == "tool.propose" && message["payload"]["arguments"]["full_command"] == line
    };
    let seen = person.received.iter().find(|message| is_line(message));
    let proposal = match seen {
        Some(proposal) => proposal.clone(),
        None => person.wait(is_line).await,
    };
    if proposal["payload"]["assessment"]["category"] == "blocked" {
        return AttemptOutcome::Blocked;
    }
    let proposal = proposal["id"].as_str().unwrap().to_owned();
    let is_end = |message: &Value| {
        let payload = &message["payload"];
        (message["type"] == "gate.request" && payload["action_ref"] == proposal.as_str())
            || (message["type"] == "tool.result" && payload["tool_proposal"] == proposal.as_str())
    };
    let seen = person.received.iter().find(|message| is_end(message));
    let end = match seen {
        Some(end) => end.clone(),
        None => person.wait(is_end).await,
    };
    if end["type"] == "gate.request" {
        return AttemptOutcome::Asked;
    }
    let printed =
        ["stdout", "stderr"].map(|stream| collect_output(&person.received, &proposal, stream));
    AttemptOutcome::Ran {
        printed: printed.concat(),
    }
}

/// Prompts an agent whose script is `script_of(lines)`, and waits for what becomes of each line.
async fn attempt(person: &mut TestClient, agent: &str, lines: &[&str]) -> Vec<AttemptOutcome> {
    send_prompt(person, agent, "now").await;
    let mut outcomes = Vec::new();
    for line in lines {
        outcomes.push(outcome_of(person, line).await);
    }
    outcomes
}

/// The user that an invitation's link is for.
async fn user_of(link: &str) -> TestUser {
    let cli = CliEnv::new();
    let me = cli
        .run_with_env(&["whoami", "--json"], &[("PVP_LINK", link)])
        .await;
    let me: Value = serde_json::from_str(&me.expect_ok(&[])).unwrap();
    let roles = me["me"]["roles"].as_array().unwrap();
    TestUser {
        token: link
            .split("token=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap()
            .to_owned(),
        participant: me["me"]["participant"].as_str().unwrap().to_owned(),
        roles: roles
            .iter()
            .map(|role| role.as_str().unwrap().to_owned())
            .collect(),
        agent: me["me"]["kind"] == "agent",
    }
}

/// A running `pvp up`, what it printed, and a person in its session.
struct UpServer {
    process: CliProcess,
    said: Value,
    person: TestClient,
}

impl UpServer {
    async fn start(cli: &CliEnv, more: &[&str]) -> Self {
        let up = [&["up", "--json", "--listen", "127.0.0.1:0"], more].concat();
        let mut process = cli.spawn(&up);
        let said = process.next_json().await;
        let user = user_of(said["link"].as_str().unwrap()).await;
        let address = said["listen"].as_str().unwrap();
        let mut client = TestClient::connect(address, Some(&user.token), &user.participant).await;
        client.join("main", &user, json!({})).await;
        Self {
            process,
            said,
            person: client,
        }
    }

    fn link(&self, key: &str) -> &str {
        self.said[key].as_str().unwrap()
    }

    /// An agent on the same machine, in the same directory, with the same home.
    async fn start_agent(&self, cli: CliEnv, lines: &[&str], more: &[&str]) -> AgentProcess {
        let script = write_script(&cli, &script_of(lines));
        let link = self.link("agent_link").to_owned();
        let user = user_of(&link).await;
        let flags = [&["--script", script.as_str()], more].concat();
        AgentProcess::start_with_link(cli, user, link, &flags, &[]).await
    }
}

#[tokio::test]
async fn the_link_and_the_key_that_pvp_up_leaves_in_the_workspace() {
    let cli = CliEnv::new();
    let mut up = UpServer::start(&cli, &[]).await;
    assert_eq!(
        files_with_credentials(&cli.workdir()),
        Vec::<PathBuf>::new(),
        "nothing to steal lies in the workspace"
    );
    let named = [
        "cat .pvp/link",
        "cat pvp-data/server.key",
        "cat pvp-data/server.keys",
        // The server's data is found from here, so nobody but a person may start this.
        "pvp invite --name eve --role approver",
        "pvp invite --code",
    ];
    let swept = ["grep -rah . .", "grep -ra token= ."];
    let lines = [&named[..], &swept[..]].concat();
    let agent = up.start_agent(cli, &lines, &[]).await;
    let outcomes = attempt(&mut up.person, &agent.user.participant, &lines).await;
    assert_eq!(outcomes[..5], [const { AttemptOutcome::Blocked }; 5]);
    for outcome in &outcomes[5..] {
        let AttemptOutcome::Ran { printed } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(!has_token(printed), "{printed}");
    }
    up.process.signal("INT");
}

#[tokio::test]
async fn the_administrators_rights_from_what_pvp_up_remembers() {
    let cli = CliEnv::new();
    let up = UpServer::start(&cli, &[]).await;
    let me = cli.run_json(&["whoami", "--json"]).await["me"].clone();
    assert_eq!(
        json!([me["kind"], me["roles"], me["session"]]),
        json!(["human", ["driver", "approver"], null])
    );
    // What is remembered cannot invite, whoever finds it; the agent's opens no other session.
    for link in ["link", "agent_link"] {
        for invite in [&["--name", "eve", "--role", "approver"][..], &["--code"]] {
            let invite = [&["invite"], invite].concat();
            let refusal = cli.run_with_link(up.link(link), &invite).await;
            assert!(
                refusal.err.contains("requires an admin's token"),
                "{refusal:?}"
            );
        }
    }
    let refusal = cli.run_with_link(up.link("agent_link"), &["create", "lax"]);
    let refusal = refusal.await;
    assert!(
        refusal.err.contains("not bound to a session"),
        "{refusal:?}"
    );
    // No file of this user holds the administrator's token.
    let admin = user_of(up.link("admin_link")).await;
    assert_eq!(admin.roles, ["admin"]);
    let root = cli.workdir().parent().unwrap().to_owned();
    let holding = std::process::Command::new("grep")
        .args(["-rlaF", &admin.token])
        .arg(&root)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&holding.stdout), "");
}

#[tokio::test]
async fn a_data_directory_and_a_home_that_lie_inside_of_the_workspace() {
    let cli = CliEnv::new();
    // The workspace of this agent holds the home, the links, the state and the data.
    let root = cli.workdir().parent().unwrap().to_owned();
    let link_file = root.join("agent-link");
    let key_file = root.join("signing");
    let key = ["--key-file", key_file.to_str().unwrap()];
    let mut up = UpServer::start(&cli, &[&["--data", "chosen"][..], &key].concat()).await;
    let key = std::fs::read_to_string(&key_file).unwrap();
    std::fs::write(&link_file, up.link("agent_link")).unwrap();
    symlink(root.join("here/chosen"), root.join("innocent")).unwrap();
    std::fs::write(root.join("here/notes"), "plain notes\n").unwrap();
    let lines = [
        "cat here/notes",
        "ls here",
        "cat here/chosen/*",
        "cat innocent/*",
        "grep -rah . .",
        "grep -rah . home",
        "grep -rah . agent-state",
        "cat agent-link",
        "cat signing",
    ];
    let workspace = root.to_str().unwrap();
    let state = root.join("agent-state");
    let flags = ["--workspace", workspace, "--state", state.to_str().unwrap()];
    let script = write_script(&cli, &script_of(&lines));
    let user = user_of(up.link("agent_link")).await;
    let mut command = cli.command(&["agent", "--link-file"]);
    command
        .arg(&link_file)
        .args(["--script", &script])
        .args(flags);
    let mut agent = CliProcess::spawn(command.stdin(Stdio::null()));
    agent.wait_for_line(" joined ").await;
    let journal = std::fs::read_dir(&state).unwrap().count();
    assert!(journal > 0, "there is a journal to steal");
    let outcomes = attempt(&mut up.person, &user.participant, &lines).await;
    let printed = |at: usize| match &outcomes[at] {
        AttemptOutcome::Ran { printed } => printed.as_str(),
        outcome @ (AttemptOutcome::Asked | AttemptOutcome::Blocked) => {
            panic!("{}: {outcome:?}", lines[at])
        }
    };
    assert_eq!(printed(0), "plain notes\n");
    assert!(printed(1).contains("notes"), "{:?}", outcomes[1]);
    assert!(printed(4).contains("plain notes"), "{:?}", outcomes[4]);
    for (at, line) in lines.iter().enumerate() {
        let printed = printed(at);
        assert!(!has_token(printed), "{line}: {printed}");
        assert!(
            !printed.contains("[secret]"),
            "{line} read a token: {printed}"
        );
        assert!(!printed.contains(key.trim()), "{line}: {printed}");
        assert!(!printed.contains("SQLite format"), "{line}: {printed}");
        assert!(!printed.contains("\"grant\""), "{line}: {printed}");
    }
}

#[tokio::test]
async fn the_data_directory_around_the_directory_of_a_session() {
    let cli = CliEnv::new();
    let data = cli.workdir().parent().unwrap().join("data");
    let mut up = UpServer::start(&cli, &["--data", data.to_str().unwrap()]).await;
    let sessions = data.join("workspaces");
    let own = std::fs::read_dir(&sessions).unwrap().next().unwrap();
    let own = own.unwrap().path();
    let other = sessions.join("0".repeat(32));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(own.join("notes"), "plain notes\n").unwrap();
    std::fs::write(other.join("notes"), "notes of others\n").unwrap();
    symlink(&data, own.join("link")).unwrap();
    let key = std::fs::read_to_string(data.join("server.key")).unwrap();
    let lines = [
        "cat notes",
        "grep -rah . .",
        "cat link/server.key",
        "grep -Rah . .",
        "cat ../../server.key",
        "cat ../*/notes",
        "ls ../..",
    ];
    // Everything but the directory of one session is refused as a workspace.
    for workspace in [&data, &sessions, &data.join("elsewhere")] {
        std::fs::create_dir_all(workspace).unwrap();
        let flags = ["agent", "--brain", "scripted", "--workspace"];
        let flags = [&flags[..], &[workspace.to_str().unwrap()]].concat();
        let script = write_script(&cli, &script_of(&lines));
        let mut command = cli.command(&[&flags[..], &["--script", &script]].concat());
        command.env("PVP_LINK", up.link("agent_link"));
        let refused = CliProcess::spawn(command.stdin(Stdio::null()));
        let refused = refused.ended().await;
        let expected = (Some(1), true);
        let said = (refused.code, refused.err.contains("cannot work in "));
        assert_eq!(said, expected, "{refused:?}");
    }
    let flags = ["--workspace", own.to_str().unwrap()];
    let agent = up.start_agent(cli, &lines, &flags).await;
    let outcomes = attempt(&mut up.person, &agent.user.participant, &lines).await;
    let ran = |printed: &str| AttemptOutcome::Ran {
        printed: printed.to_owned(),
    };
    assert_eq!(outcomes[0], ran("plain notes\n"));
    for (line, outcome) in lines.iter().zip(&outcomes) {
        if let AttemptOutcome::Ran { printed } = outcome {
            assert!(!printed.contains(key.trim()), "{line}: {printed}");
            assert!(!printed.contains("notes of others"), "{line}: {printed}");
            assert!(!printed.contains("SQLite format"), "{line}: {printed}");
        }
    }
    up.process.signal("INT");
}

#[tokio::test]
async fn the_arguments_and_the_environment_of_other_processes() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut victim = std::process::Command::new("/bin/sh")
        .args(["-c", "echo ready; read line", "victim", "argument-4f1d"])
        .env("VICTIM", "environment-4f1d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = victim.id();
    let mut ready = [0; 6];
    std::io::Read::read_exact(victim.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let ran = [
        format!("cat /proc/{pid}/cmdline"),
        format!("cat /proc/{pid}/task/{pid}/cmdline; true"),
        format!("head -c 9999 /proc/{pid}/comm /proc/{pid}/stat /proc/{pid}/status"),
        "cat /proc/*/cmdline".to_owned(),
        "grep -a argument- /proc/[0-9]*/cmdline | cat".to_owned(),
        "find /proc -maxdepth 2 -name cmdline -exec cat {} +".to_owned(),
        "grep -ras argument- /proc/self/task /proc/thread-self".to_owned(),
    ];
    let asked = [
        "ps aux",
        "ps",
        "pgrep -a sh",
        "pidof sh",
        "top -b -n 1",
        "pstree -a",
        "lsof -i :80",
        "w",
    ];
    let environ = format!("cat /proc/{pid}/environ");
    let lines: Vec<&str> = ran
        .iter()
        .map(String::as_str)
        .chain(asked)
        .chain([environ.as_str()])
        .collect();
    let agent = AgentProcess::start_scripted_with(&server, "owl", &script_of(&lines), &[]).await;
    let outcomes = attempt(&mut ann, &agent.user.participant, &lines).await;
    for (line, outcome) in lines.iter().zip(&outcomes) {
        if let AttemptOutcome::Ran { printed } = outcome {
            assert!(!printed.contains("argument-4f1d"), "{line}: {printed}");
            assert!(!printed.contains("environment-4f1d"), "{line}: {printed}");
        }
    }
    assert!(matches!(outcomes[0], AttemptOutcome::Ran { .. }));
    // What cannot work inside is asked for, and does not fail without a word.
    for (line, outcome) in lines.iter().zip(&outcomes).skip(ran.len()) {
        assert_eq!(*outcome, AttemptOutcome::Asked, "{line}");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// The files of /proc in which a process shows a text to others.
fn shown_in_proc(pid: u32, text: &str) -> Vec<&'static str> {
    let shows = |file: &&str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    ["cmdline", "environ"].into_iter().filter(shows).collect()
}

#[tokio::test]
async fn the_agents_token_from_its_command_line() {
    let (server, _ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let script = write_script(&cli, "[[step]]\nwait = 'prompt'\n");
    let invite = || server.invite("worker", &["driver"], &["--kind", "agent"]);
    // Given as an argument: it works, is warned about, and is gone from the list of processes.
    let user = invite();
    let link = server.link(&user, Some("owl"));
    for arguments in [
        vec!["agent", &link, "--script", &script],
        vec!["agent", "--script", &script, &link],
    ] {
        let mut agent = cli.spawn(&arguments);
        let warning = agent.next_stderr_line().await;
        assert!(
            warning.starts_with("pvp: a link on the command line") && !has_token(&warning),
            "{warning}"
        );
        agent.wait_for_line(" joined owl").await;
        assert_eq!(shown_in_proc(agent.pid(), &user.token), Vec::<&str>::new());
    }
    // Given in a file or on standard input, it never was there.
    let file = cli.home().join("link");
    std::fs::write(&file, format!("{link}\n")).unwrap();
    let mut agent = cli.spawn(&[
        "agent",
        "--link-file",
        file.to_str().unwrap(),
        "--script",
        &script,
    ]);
    agent.wait_for_line(" joined owl").await;
    assert_eq!(shown_in_proc(agent.pid(), &user.token), Vec::<&str>::new());
    drop(agent);
    let mut agent = cli.spawn(&["agent", "-", "--script", &script]);
    agent.write_line(&link).await;
    agent.wait_for_line(" joined owl").await;
    assert_eq!(shown_in_proc(agent.pid(), &user.token), Vec::<&str>::new());
    drop(agent);
    // Or in the environment, which reads cannot see.
    let mut command = cli.command(&["agent", "--script", &script]);
    let mut agent = CliProcess::spawn(command.env("PVP_LINK", &link));
    agent.wait_for_line(" joined owl").await;
    assert_eq!(shown_in_proc(agent.pid(), &user.token), ["environ"]);
}

#[tokio::test]
async fn a_persons_token_from_the_command_line_of_a_client() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let link = server.link(&ann, Some("owl"));
    let cli = CliEnv::new();
    for arguments in [
        vec!["connect", "--stay", &link],
        vec!["connect", "--stay", "--link", &link],
        vec!["connect", "--stay", &format!("--link={link}")],
        vec!["tui", "--plain", &link],
        vec!["tail", "--follow", "--link", &link],
    ] {
        let mut client = cli.spawn(&arguments);
        let warning = client.next_stderr_line().await;
        assert!(
            warning.starts_with("pvp: a link on the command line"),
            "{warning}"
        );
        client.next_line().await;
        assert_eq!(
            shown_in_proc(client.pid(), &ann.token),
            Vec::<&str>::new(),
            "{arguments:?}"
        );
    }
}

#[tokio::test]
async fn a_token_that_an_approved_command_prints() {
    let (server, mut ann) = start_session(json!({})).await;
    let token = token_shape();
    let (begin, end) = token.split_at(40);
    let line = format!(
        "touch a; printf 'x{begin}'; sleep 0.1; printf '{end}y\\n'; echo {upper} >&2; echo pvp_not_a_token",
        upper = token.replace('f', "F"),
    );
    let script = format!(
        "[[step]]\nwait = 'prompt'\n[[step]]\nshell = {}\n[[step]]\nwait = 'prompt'\n",
        json!(line)
    );
    let agent = AgentProcess::start_scripted_with(&server, "owl", &script, &[]).await;
    send_prompt(&mut ann, &agent.user.participant, "now").await;
    let proposal = crate::support::session::approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(
        collect_output(&ann.received, &proposal, "stdout"),
        "xpvp_[secret]y\npvp_not_a_token\n"
    );
    assert_eq!(
        collect_output(&ann.received, &proposal, "stderr"),
        "pvp_[secret]\n"
    );
    assert!(!has_token(&result.to_string()), "{result}");
}

#[tokio::test]
async fn a_token_that_an_executor_of_another_make_passes_on() {
    let (server, mut ann) = start_session(json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut bot = server.join("owl", &bot).await;
    let eve = server.invite("eve", &["observer"], &[]);
    let mut eve = server.join("owl", &eve).await;
    let (token, stars) = (token_shape(), format!("pvp_{}", "*".repeat(81)));
    let proposal = bot.propose("touch a").await;
    ann.approve(&proposal).await;
    bot.wait_for("tool.execute").await;
    let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": format!("é {token} b {token}\n"), "complete": true });
    bot.send_and_ack("tool.output", output).await;
    let received = eve.wait_for("tool.output").await;
    assert_eq!(
        received["payload"]["text"],
        format!("é {stars} b {stars}\n")
    );
    let result = json!({ "tool_proposal": proposal, "success": false, "error": format!("no {token}"), "duration_ms": 1,
        "result": { "exitCode": 1, "stdout": format!("<{token}>"), "stderr": token } });
    bot.send_and_ack("tool.result", result).await;
    let received = eve.wait_for("tool.result").await["payload"].clone();
    assert_eq!(
        json!([
            received["error"],
            received["result"]["stdout"],
            received["result"]["stderr"]
        ]),
        json!([format!("no {stars}"), format!("<{stars}>"), stars])
    );
    for entry in server.log("owl") {
        assert!(!has_token(&entry.to_string()), "{entry}");
    }
}

#[tokio::test]
async fn a_link_that_a_repository_brings_along() {
    let server = TestServer::start(&[]).await;
    let mallory = server.invite("mallory", &["observer"], &[]);
    let cli = CliEnv::new();
    let planted = cli.workdir().join(".pvp/link");
    std::fs::create_dir(planted.parent().unwrap()).unwrap();
    std::fs::write(&planted, server.link(&mallory, None)).unwrap();
    let refusal = cli.run_refused(&["whoami"]).await;
    assert!(
        refusal.contains(&planted.display().to_string())
            && refusal.contains("pvp login --link-file"),
        "{refusal}"
    );
    // What the refusal says helps, and takes it out of the workspace.
    let file = planted.to_str().unwrap();
    let login = cli.run(&["login", "--link-file", file]).await;
    assert_eq!(login.code, Some(0), "{login:?}");
    assert!(!planted.exists());
    let out = cli.run_ok(&["whoami"]).await;
    assert!(out.starts_with(&mallory.participant), "{out}");
    assert_eq!(
        files_with_credentials(&cli.workdir()),
        Vec::<PathBuf>::new()
    );
}
