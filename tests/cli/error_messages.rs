//! The errors that people see most, in their words, as reviewed.

use pvp_client::user_directories::directory_key;
use serde_json::{Value, json};

use crate::reviewed_text::assert_reviewed;
use crate::support::cli::CliEnv;
use crate::support::{TEST_TIMEOUT, TestServer};

/// Commands that failed and what they printed, with everything that differs from run to run replaced.
struct FailedCommands<'a> {
    cli: &'a CliEnv,
    text: String,
    /// What differs, and what stands for it.
    replaced: Vec<(String, &'static str)>,
}

impl FailedCommands<'_> {
    fn begin(&mut self, title: &str) {
        self.text += &format!("# {title}\n\n");
    }

    async fn add(&mut self, arguments: &[&str]) {
        self.add_with(arguments, &[]).await;
    }

    async fn add_with(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
        let output = self.cli.run_with_env(arguments, environment).await;
        let error = output.expect_refused(arguments);
        let quoted: Vec<_> = arguments
            .iter()
            .map(
                |word| match word.is_empty() || word.contains([' ', '{', '#']) {
                    true => format!("'{word}'"),
                    false => (*word).to_owned(),
                },
            )
            .collect();
        let mut shown = format!("$ pvp {}\n{error}\n", quoted.join(" "));
        for (text, stands_for) in &self.replaced {
            shown = shown.replace(text, stands_for);
        }
        self.text += &without_suggested_port(&shown);
    }
}

/// The port that a server suggests depends on which ones are free.
fn without_suggested_port(text: &str) -> String {
    const SUGGESTION: &str = "use another port: --listen 127.0.0.1:";
    match text.split_once(SUGGESTION) {
        None => text.to_owned(),
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}{SUGGESTION}NEXT{after}")
        }
    }
}

async fn wait_until_refused(cli: &CliEnv, link: &str) {
    let begun = std::time::Instant::now();
    while cli.run_with_link(link, &["whoami"]).await.code == Some(0) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the token expires");
    }
}

#[tokio::test]
async fn the_errors_that_people_see_are_as_reviewed() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    server.create_session("cat", json!({})).await;
    let soon = server.invite("eve", &["observer"], &["--expires", "1s"]);
    let [ann, dee, bob] = [
        server.invite("ann", &["approver"], &[]),
        server.invite("dee", &["driver"], &[]),
        server.invite("bob", &["observer"], &["--session", "owl"]),
    ];
    let gate = agent.propose("make clean").await;
    agent.wait_for("gate.request").await;
    let cli = CliEnv::new();
    let link = server.link(&ann, None);
    let waiting = cli.run_with_link(&link, &["gates", "--json"]).await;
    let waiting: Value = serde_json::from_str(&waiting.out).unwrap();
    let handle = crate::gates::gate_handle(&waiting["gates"][0]);
    let id = handle.split('@').next().unwrap().to_owned();
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = held.local_addr().unwrap().to_string();
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let mut failures = FailedCommands {
        cli: &cli,
        text: String::new(),
        replaced: vec![
            (dead.clone(), "DEAD:PORT"),
            (server.address.clone(), "HOST:PORT"),
            (handle.clone(), "HANDLE"),
            (id.clone(), "ID"),
            (gate.clone(), "ID"),
            (format!("port {port}"), "port PORT"),
            (directory_key(&cli.workdir()), "here-KEY"),
            (cli.workdir().display().to_string(), "HERE"),
            (cli.home().display().to_string(), "HOME"),
            (agent.participant.clone(), "BOT"),
        ],
    };

    failures.begin("No link, or one that does not work");
    failures.add(&["gates"]).await;
    failures.add(&["agent"]).await;
    failures.add(&["logout"]).await;
    failures.add(&["gates", "--link", "nonsense"]).await;
    failures.add(&["gates", "--link-file", "missing"]).await;
    failures.add(&["join", "7QK2M-R8T4X-0B6FJ-ZN3WG"]).await;
    let target = format!("{dead}/7QK2M-R8T4X-0B6FJ-ZN3WG");
    failures.add(&["join", &target]).await;
    let target = format!("{}/7QK2M-R8T4X-0B6FJ-ZN3WG", server.address);
    failures.add(&["join", &target]).await;
    let link = format!("http://{dead}/#token=pvp_ab_cd&session=owl");
    failures.add_with(&["gates"], &[("PVP_LINK", &link)]).await;
    let link = format!("http://{}/#token=pvp_ab_cd", server.address);
    failures.add_with(&["gates"], &[("PVP_LINK", &link)]).await;
    let link = server.link(&soon, None);
    wait_until_refused(&cli, &link).await;
    failures.add_with(&["gates"], &[("PVP_LINK", &link)]).await;

    failures.begin("Sessions");
    let link = server.link(&dee, None);
    let driver = [("PVP_LINK", link.as_str())];
    for arguments in [
        &["tail"][..],
        &["tail", "--session", "dog"],
        &["tail", "--session", "a b"],
        &["send", "hello", "--session", "cat"],
        &["send", "", "--session", "owl"],
        &["send", "hello", "--session", "owl", "--to", "zoe"],
        &["create", "owl"],
        &["create", "fox", "--config", r#"{"quorum": 2}"#],
        &["create", "fox", "--approvals", "many"],
        &["session", "set", "solo=true", "--session", "owl"],
        &["sessions", "delete", "owl"],
    ] {
        failures.add_with(arguments, &driver).await;
    }
    let link = server.link(&bob, None);
    let observer = [("PVP_LINK", link.as_str())];
    failures
        .add_with(&["tail", "--session", "cat"], &observer)
        .await;

    failures.begin("Commands that wait");
    failures.add_with(&["approve", "nothing"], &driver).await;
    failures.add_with(&["approve", "a b"], &driver).await;
    failures.add_with(&["approve", &id], &observer).await;
    failures.add_with(&["reject", &id, ""], &driver).await;
    let link = server.link(&ann, None);
    let approver = [("PVP_LINK", link.as_str())];
    failures
        .add_with(&["approve", &format!("{id}@000000")], &approver)
        .await;
    cli.run_with_env(&["reject", &id, "not now"], &approver)
        .await
        .expect_ok(&["reject"]);
    failures.add_with(&["approve", &id], &approver).await;
    failures.add_with(&["output", "abcdef"], &approver).await;
    failures
        .add_with(&["rules", "--session", "owl", "revoke", "none"], &approver)
        .await;

    failures.begin("Servers and agents");
    let listen = ["--listen", "127.0.0.1:0"];
    failures.add(&["up", "--listen", &server.address]).await;
    failures.add(&["server", "--listen", "here"]).await;
    failures
        .add(&["server", "--open", "--listen", "0.0.0.0:0"])
        .await;
    failures
        .add(&[&["up", "--config", "missing.toml"], &listen[..]].concat())
        .await;
    failures
        .add(&[&["up", "--config", r#"{"open_gate": 50}"#], &listen[..]].concat())
        .await;
    failures
        .add(&["server", "rotate-key", "--data", "missing"])
        .await;
    failures.add(&["tokens", "list", "--data", "missing"]).await;
    failures
        .add_with(&["agent", "--model", "m"], &approver)
        .await;
    failures
        .add_with(&["agent", "--script", "missing"], &approver)
        .await;

    failures.begin("Tools");
    failures
        .add(&["check", "ls", "--policy", "missing.toml"])
        .await;
    failures.add(&["policy", "show", "nothing"]).await;
    failures
        .add(&["audit", "verify", "--export", "missing"])
        .await;
    failures.add(&["aprove"]).await;
    assert_reviewed("error_messages.txt", &failures.text);
}
