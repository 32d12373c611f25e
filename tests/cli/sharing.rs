//! `pvp up --share`, `pvp invite --code` and `pvp join`: a second person comes in with one line.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::gates::{gate_handle, only_open_gate};
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::{TestServer, http_get, reserve_port};

/// A running `pvp up`, and what it printed.
pub(crate) struct SharedServer {
    pub(crate) cli: CliEnv,
    pub(crate) process: CliProcess,
    pub(crate) said: Value,
}

impl SharedServer {
    pub(crate) async fn start(more: &[&str]) -> Self {
        let cli = CliEnv::new();
        let up = [&["up", "--json", "--listen", "127.0.0.1:0"], more].concat();
        let mut process = cli.spawn(&up);
        let said = process.next_json().await;
        Self { cli, process, said }
    }

    /// What follows `pvp` on the line to send.
    fn join_line(&self) -> Vec<&str> {
        let line = self.said["share"]["command"].as_str().unwrap();
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("pvp"));
        words.collect()
    }

    fn listen(&self) -> &str {
        self.said["listen"].as_str().unwrap()
    }
}

/// The arguments of `pvp join` in what `pvp invite --code` printed.
fn printed_join_line(printed: &str) -> Vec<&str> {
    let line = printed.lines().find(|line| line.contains("pvp join"));
    line.unwrap().split_whitespace().skip(1).collect()
}

#[tokio::test]
async fn the_line_to_send_names_the_key_of_a_server_with_a_certificate_of_its_own() {
    let shared = SharedServer::start(&["--share", "--tls-self-signed"]).await;
    let line = shared.join_line();
    let base = format!("https://{}", shared.listen());
    assert!(line[1].starts_with(&format!("'{base}/#join=")), "{line:?}");
    let fingerprint = shared.said["certificate_fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.split(':').count(), 32, "{fingerprint}");
    let bob = CliEnv::new();
    let joined = bob.run_ok(&[&line[..], &["--name", "Bob"]].concat()).await;
    assert!(joined.starts_with(&format!("You joined {base} session main as bob-")));
    let saved = std::fs::read_to_string(bob.link_file(&bob.workdir())).unwrap();
    let key = line[1].split("&fp=").nth(1).unwrap().trim_end_matches('\'');
    assert!(saved.contains(&format!("&fp={key}")), "{saved}");
    bob.run_ok(&["gates"]).await;
    // The operator finds the server, and invites with the same key.
    let invited = shared
        .cli
        .run_ok(&["invite", "--name", "Eve", "--role", "observer"]);
    assert!(invited.await.contains(&format!("&fp={key}\n")));
    shared.cli.run_ok(&["gates"]).await;
}

#[tokio::test]
async fn one_line_lets_a_second_person_in_who_then_approves() {
    let shared = SharedServer::start(&["--share"]).await;
    let line = shared.join_line();
    let bob = CliEnv::new();
    let joined = bob.run_ok(&[&line[..], &["--name", "Bob"]].concat()).await;
    let lines: Vec<_> = joined.lines().collect();
    let base = format!("http://{}", shared.listen());
    assert!(
        lines[0].starts_with(&format!("You joined {base} session main as bob-"))
            && lines[0].ends_with(" (Bob; approver)."),
        "{joined}"
    );
    assert_eq!(
        lines[1..],
        [
            "The link is saved for this directory.",
            "No command waits for a decision.",
            "Next, here: pvp tui, pvp gates, pvp tail --follow",
        ]
    );
    let file = bob.link_file(&bob.workdir());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // The agent proposes, and the second person approves.
    let agent = CliEnv::logged_in(shared.said["agent_link"].as_str().unwrap()).await;
    let mut agent = agent.spawn(&["connect", "--stay"]);
    let welcome = agent.next_json().await;
    let propose = json!({ "type": "tool.propose", "payload": {
        "tool_name": "shell", "arguments": { "full_command": "make" }, "agent": welcome["payload"]["participant"],
        "risk_level": "low", "description": "", "requires_approval": false, "category": "shell_execute",
    }});
    agent.write_line(&propose.to_string()).await;
    agent.wait_for_line("gate.request").await;
    let gate = only_open_gate(&bob).await;
    bob.run_ok(&["approve", &gate_handle(&gate)]).await;
    agent.wait_for_line("tool.execute").await;

    // The line works once, and whoever comes second learns that somebody else was first.
    let eve = CliEnv::new();
    let refused = eve.run_refused(&line).await;
    assert!(
        refused.contains("was used already") && refused.contains("pvp tokens revoke ID"),
        "{refused}"
    );
    assert!(!eve.link_file(&eve.workdir()).exists());
    // The code itself is nowhere: only its hash is stored.
    let code = line[1].rsplit('/').next().unwrap();
    let found = std::process::Command::new("grep")
        .args(["-rlaiF", code])
        .arg(shared.cli.home())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[tokio::test]
async fn a_code_that_cannot_be_used_says_what_to_do() {
    let shared = SharedServer::start(&["--share"]).await;
    let listen = shared.listen();
    let cli = CliEnv::new();
    for (target, part) in [
        (
            format!("{listen}/00000-00000-00000-00000"),
            "does not know this join code; check that it was copied whole",
        ),
        (format!("{listen}/00000"), "copy the whole line"),
        ("00000-00000-00000-00000".to_owned(), "HOST:PORT/CODE"),
    ] {
        let refused = cli.run_refused(&["join", &target]).await;
        assert!(refused.contains(part), "{refused}");
    }
    // Nobody listens there, and the code is not lost.
    let held = reserve_port("127.0.0.1:0");
    let nowhere = format!("{}/00000-00000-00000-00000", held.local_addr().unwrap());
    let refused = cli.run_refused(&["join", &nowhere]).await;
    assert!(refused.contains("the code was not used"), "{refused}");

    // One that was revoked, by its id.
    let printed = shared.cli.run_ok(&["invite", "--code"]).await;
    let listed = shared
        .cli
        .run_json_lines(&["tokens", "list", "--json"])
        .await;
    let id = listed.last().unwrap()["join_code"].as_str().unwrap();
    shared.cli.run_ok(&["tokens", "revoke", id]).await;
    let refused = cli.run_refused(&printed_join_line(&printed)).await;
    assert!(refused.contains("was revoked; ask"), "{refused}");
    assert!(!cli.link_file(&cli.workdir()).exists());
}

#[tokio::test]
async fn a_code_comes_in_by_standard_input_and_as_a_link_of_a_browser() {
    let shared = SharedServer::start(&["--share", "--share-role", "observer"]).await;
    let bob = CliEnv::new();
    let link = shared.said["share"]["link"].as_str().unwrap();
    assert!(link.contains("/#join="), "{link}");
    let joined = bob
        .run_with_stdin(&["join", "-"], &format!("{link}\n"))
        .await;
    assert!(joined.expect_ok(&[]).contains(" (dee; observer)."));
    // The whole line, as it was sent, where it is asked for.
    let printed = shared.cli.run_ok(&["invite", "--code", "--qr"]).await;
    assert!(printed.contains("██ ▄▄▄▄▄ █"), "{printed}");
    let line = printed_join_line(&printed).join(" ");
    let cy = CliEnv::new();
    let joined = cy.run_with_stdin(&["join"], &format!("pvp {line}\n")).await;
    assert!(joined.expect_ok(&[]).contains(" (dee; approver)."));
}

#[tokio::test]
async fn a_link_that_works_is_not_replaced_by_accident() {
    let shared = SharedServer::start(&["--share"]).await;
    let line = shared.join_line();
    // Whoever started the server tries the line in the same directory.
    let before = std::fs::read(shared.cli.link_file(&shared.cli.workdir())).unwrap();
    let refused = shared.cli.run_refused(&line).await;
    assert!(
        refused.contains("you are already dee-") && refused.contains("--replace"),
        "{refused}"
    );
    let after = std::fs::read(shared.cli.link_file(&shared.cli.workdir())).unwrap();
    assert_eq!(before, after);
    // The code was not used up.
    let replaced = shared
        .cli
        .run_ok(&[&line[..], &["--replace"]].concat())
        .await;
    assert!(replaced.contains("(dee; approver)"), "{replaced}");
}

#[tokio::test]
async fn a_link_is_joined_with_as_well() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let ann = server.invite("ann", &["approver"], &["--session", "owl"]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent", "--session", "owl"]);
    let cli = CliEnv::new();
    let join = async |user| {
        let link = format!("{}\n", server.link(user, None));
        cli.run_with_stdin(&["join"], &link).await.expect_ok(&[])
    };
    let joined = join(&ann).await;
    assert!(joined.contains(" session owl as ann-"), "{joined}");
    // An agent's link goes where `pvp agent` looks for it, and leaves the person's alone.
    let other = CliEnv::new();
    let link = format!("{}\n", server.link(&bot, None));
    let joined = other.run_with_stdin(&["join"], &link).await.expect_ok(&[]);
    assert!(
        joined.ends_with("Next, here: pvp agent --model MODEL\n"),
        "{joined}"
    );
    let person = other.link_file(&other.workdir());
    assert!(!person.exists() && person.with_file_name("agent-link").exists());
}

#[tokio::test]
async fn a_lying_server_cannot_send_the_token_elsewhere() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let lying = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        let body = json!({
            "token": "pvp_ab_cd", "link": "http://evil.example/#token=pvp_ab_cd",
            "participant": "x", "roles": ["approver"], "expires": null,
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let cli = CliEnv::new();
    let target = format!("{address}/7QK2M-R8T4X-0B6FJ-ZN3WG");
    let output = cli.run(&["join", &target]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let saved = std::fs::read_to_string(cli.link_file(&cli.workdir())).unwrap();
    assert_eq!(saved, format!("http://{address}/#token=pvp_ab_cd\n"));
    let request = lying.await.unwrap();
    let first = request.lines().next().unwrap();
    assert_eq!(
        first, "POST /api/join HTTP/1.1",
        "the code is in no address"
    );
}

/// Answers requests one after another, each on a connection of its own.
async fn answer_in_turn(listener: tokio::net::TcpListener, bodies: Vec<Value>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for body in bodies {
        let (mut stream, _) = listener.accept().await.unwrap();
        let read = stream.read(&mut vec![0; 4096]).await.unwrap();
        assert!(read > 0, "it asks");
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
    }
}

/// Whoever starts `pvp agent` next would run what the lying server grants.
#[tokio::test]
async fn a_lying_server_cannot_become_the_agents_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = vec![
        json!({ "token": "pvp_ab_cd", "link": "", "participant": "x", "roles": ["approver"], "expires": null }),
        json!({ "participant": "x", "name": "x", "kind": "agent", "roles": ["driver"], "session": null, "expires": null }),
    ];
    let lying = tokio::spawn(answer_in_turn(listener, answers));
    let cli = CliEnv::new();
    let person = cli.link_file(&cli.workdir());
    let agent = person.with_file_name("agent-link");
    std::fs::create_dir_all(agent.parent().unwrap()).unwrap();
    std::fs::write(&agent, "http://127.0.0.1:9/#token=pvp_own\n").unwrap();
    let target = format!("{address}/7QK2M-R8T4X-0B6FJ-ZN3WG");
    let refused = cli.run_refused(&["join", &target]).await;
    assert!(refused.contains("agent's link"), "{refused}");
    lying.await.unwrap();
    let kept = std::fs::read_to_string(&agent).unwrap();
    assert_eq!(kept, "http://127.0.0.1:9/#token=pvp_own\n");
    assert!(!person.exists());
}

#[tokio::test]
async fn the_link_to_a_server_that_is_stopped_is_not_replaced_by_accident() {
    let shared = SharedServer::start(&["--share"]).await;
    let cli = CliEnv::new();
    let file = cli.link_file(&cli.workdir());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let stopped = reserve_port("127.0.0.1:0");
    let own = format!("http://{}/#token=pvp_own\n", stopped.local_addr().unwrap());
    std::fs::write(&file, &own).unwrap();
    let line = shared.join_line();
    let refused = cli.run_refused(&line).await;
    assert!(
        refused.contains("does not answer") && refused.contains("--replace"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), own);
    cli.run_ok(&[&line[..], &["--replace"]].concat()).await;
}

#[tokio::test]
async fn an_own_link_opens_sessions_made_later_unless_it_is_bound() {
    let shared = SharedServer::start(&[]).await;
    shared.cli.run_ok(&["create", "later"]).await;
    let later = shared.cli.run_json(&["sessions", "--json"]).await;
    assert_eq!(later["sessions"].as_array().unwrap().len(), 2);
    shared.cli.run_ok(&["history", "--session", "later"]).await;
    // The agent's link stays with its session.
    let agent = shared.said["agent_link"].as_str().unwrap();
    let refused = shared
        .cli
        .run_with_link(agent, &["history", "--session", "later"])
        .await;
    assert_eq!(refused.err, "pvp: this token is for another session\n");

    let bound = SharedServer::start(&["--this-session-only"]).await;
    let me = bound.cli.run_json(&["whoami", "--json"]).await["me"].clone();
    assert_eq!(me["session"], "main");
    let refused = bound.cli.run_refused(&["create", "later"]).await;
    assert!(refused.contains("not bound to a session"), "{refused}");
    // It stays bound, and nothing is made at the next start.
    let SharedServer {
        cli,
        mut process,
        said,
    } = bound;
    process.signal("TERM");
    assert_eq!(process.ended().await.code, Some(0));
    let again = [
        "up",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--this-session-only",
    ];
    process = cli.spawn(&again);
    let second = process.next_json().await;
    let token = |said: &Value| {
        said["link"]
            .as_str()
            .unwrap()
            .split_once('#')
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(token(&second), token(&said));
    assert_eq!(second["fresh"], false);
    let tokens = cli.run_json_lines(&["tokens", "list", "--json"]).await;
    // The admin's, one's own, the one that made the session, and the agent's.
    assert_eq!(tokens.len(), 4);
    process.signal("TERM");
}

#[tokio::test]
async fn a_server_on_every_interface_prints_an_address_that_others_open() {
    let port = reserve_port("127.0.0.1:0").local_addr().unwrap().port();
    let cli = CliEnv::new();
    let listen = format!("0.0.0.0:{port}");
    let mut up = cli.spawn(&["up", "--json", "--share", "--listen", &listen]);
    let said = up.next_json().await;
    let url = said["url"].as_str().unwrap();
    let host = url.strip_prefix("http://").unwrap();
    assert!(!host.starts_with("0.0.0.0"), "{url}");
    // The server takes requests that name what it printed.
    let (status, _) = http_get(&format!("127.0.0.1:{port}"), "/healthz", &[("Host", host)]).await;
    assert_eq!(status, 200);
    let warning = up.next_stderr_line().await;
    assert!(
        warning.contains("without TLS") && warning.contains("--public-url"),
        "{warning}"
    );
    // The links of this machine stay valid when the network changes.
    let own = said["link"].as_str().unwrap();
    assert!(
        own.starts_with(&format!("http://127.0.0.1:{port}/#token=")),
        "{own}"
    );
    let invite = ["invite", "--json", "--name", "Ann", "--role", "approver"];
    let invited = cli.run_json(&invite).await;
    let link = invited["link"].as_str().unwrap();
    assert!(link.starts_with(&format!("{url}/#token=")), "{link}");
    assert!(link.ends_with("&session=main"), "{link}");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_one_that_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let cli = CliEnv::new();
    for command in ["up", "server"] {
        let refused = cli
            .run_refused(&[command, "--listen", &taken.to_string()])
            .await;
        let advice = refused.split_once(": --listen 127.0.0.1:");
        let free: u16 = advice.unwrap().1.trim().parse().unwrap();
        assert!(
            refused.contains(&format!("uses port {}", taken.port())),
            "{refused}"
        );
        assert!(free > taken.port(), "{refused}");
    }
}

#[tokio::test]
async fn git_takes_in_nothing_that_pvp_keeps() {
    let cli = CliEnv::new();
    let git = async |directory: &std::path::Path, arguments: &[&str]| {
        let mut command = cli.program("git");
        let command = command.current_dir(directory).args(arguments);
        let output = command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::create_dir_all(cli.workdir()).unwrap();
    std::fs::write(cli.workdir().join("notes"), "mine\n").unwrap();
    for directory in [cli.workdir(), cli.home(), cli.config_home()] {
        git(&directory, &["init", "-q"]).await;
    }
    let up = [
        "up",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "pvp-data",
    ];
    let mut process = cli.spawn(&up);
    let said = process.next_json().await;
    let link = said["link"].as_str().unwrap();
    let everywhere = ["login", "--everywhere"];
    let saved = cli.run_with_stdin(&everywhere, &format!("{link}\n")).await;
    assert_eq!(saved.code, Some(0), "{saved:?}");
    std::fs::write(cli.config_home().join("pvp/tui.toml"), "").unwrap();
    assert!(cli.workdir().join("pvp-data/server.key").exists());
    for (directory, expected) in [
        (cli.workdir(), "A  notes\n"),
        (cli.home(), ""),
        // Settings may be kept in a repository.
        (cli.config_home(), "A  pvp/tui.toml\n"),
    ] {
        git(&directory, &["add", "-A"]).await;
        assert_eq!(git(&directory, &["status", "--porcelain"]).await, expected);
    }
}
