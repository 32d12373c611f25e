//! Read roots and secret files, with a real server, agent and sandbox.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::session::{
    approve, create_session_on, next_gate, next_result, proposal_of, reject, result_of,
    send_prompt, start_session,
};
use crate::support::{TestClient, TestServer};

/// In files that no read may show.
const CANARY: &str = "canary-7d21";

/// A directory beside the workspace, with a file that may be read and two that may not.
fn plant_data() -> tempfile::TempDir {
    let data = tempfile::Builder::new().prefix("data").tempdir().unwrap();
    std::fs::write(data.path().join("prices.csv"), "tea,4\n").unwrap();
    std::fs::create_dir(data.path().join("deep")).unwrap();
    for secret in [".env", "deep/prod.env"] {
        std::fs::write(data.path().join(secret), format!("{CANARY}\n")).unwrap();
    }
    data
}

/// A script of shell lines, each group of which begins with a prompt.
fn script(groups: &[&[String]]) -> String {
    let group = |lines: &&[String]| {
        let steps = lines
            .iter()
            .map(|line| format!("[[step]]\nshell = {line:?}\n"));
        format!("[[step]]\nwait = 'prompt'\n{}", steps.collect::<String>())
    };
    let groups: String = groups.iter().map(group).collect();
    groups + "[[step]]\nwait = 'prompt'\n"
}

fn allow_reading(root: &Path) -> Value {
    let expires_at = pvp_clock::now().plus_seconds(3600).to_string();
    json!({ "read_root": root.to_str().unwrap(), "expires_at": expires_at })
}

/// The next thing that is decided about a command: its gate, or its result.
async fn gate_or_result(person: &mut TestClient) -> Value {
    person
        .wait(|message| message["type"] == "tool.result" || message["type"] == "gate.request")
        .await
}

async fn expect_read(person: &mut TestClient, line: &str) -> String {
    let message = gate_or_result(person).await;
    assert_eq!(message["type"], "tool.result", "{line}: {message}");
    message["payload"].to_string()
}

async fn expect_asked(person: &mut TestClient, line: &str) {
    let message = gate_or_result(person).await;
    assert_eq!(message["type"], "gate.request", "{line}: {message}");
    let gate = message["id"].as_str().unwrap().to_owned();
    reject(person, &gate, "only a test").await;
}

#[tokio::test]
async fn a_directory_that_was_allowed_on_a_card_is_read_without_asking() {
    let server_data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(server_data.path(), &[]).await;
    let (mut server, mut ann) = create_session_on(server, json!({})).await;
    let data = plant_data();
    let root = data.path();
    let line = |text: &str| text.replace("DATA", root.to_str().unwrap());
    let cat = line("cat DATA/prices.csv");
    let search = line("grep -r . DATA");
    let groups: [&[String]; 4] = [
        std::slice::from_ref(&cat),
        &[
            cat.clone(),
            search.clone(),
            line("cat DATA/.env"),
            line("touch DATA/new"),
        ],
        std::slice::from_ref(&cat),
        std::slice::from_ref(&cat),
    ];
    let cli = CliEnv::new();
    let path = write_script(&cli, &script(&groups));
    let agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &path]).await;
    let worker = &agent.user.participant;

    send_prompt(&mut ann, worker, "one").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let propose = ann.received.iter().find(|it| it["id"] == proposal).unwrap();
    let assessment = &propose["payload"]["assessment"];
    assert_eq!(
        assessment["needed_read_roots"],
        json!([root.to_str().unwrap()])
    );
    let note = format!("outside the workspace: {}/prices.csv", root.display());
    assert_eq!(assessment["notes"], json!([note]));

    // Somebody who may only watch cannot give the directory away.
    let eve = server.invite("eve", &["observer"], &[]);
    let mut eve = server.join("owl", &eve).await;
    let id = eve.send("policy.allow", allow_reading(root)).await;
    let refusal = eve.expect_refusal(&id).await;
    assert_eq!(refusal["code"], "UNAUTHORIZED", "{refusal}");

    let rule = ann.send("policy.allow", allow_reading(root)).await;
    ann.expect_ack(&rule).await;
    approve(&mut ann, &gate).await;
    assert!(
        result_of(&mut ann, &proposal)
            .await
            .to_string()
            .contains("tea,4")
    );

    send_prompt(&mut ann, worker, "two").await;
    assert!(expect_read(&mut ann, &cat).await.contains("tea,4"));
    let found = expect_read(&mut ann, &search).await;
    assert!(
        found.contains("tea,4") && !found.contains(CANARY),
        "{found}"
    );
    assert!(found.contains("Permission denied"), "{found}");
    expect_asked(&mut ann, "cat DATA/.env").await;
    expect_asked(&mut ann, "touch DATA/new").await;

    // The rule is in the record, so a restart of the server keeps it.
    let address = server.address.clone();
    let user = server.invite("bob", &["driver", "approver"], &[]);
    drop(ann);
    server.kill_9().await;
    let server = TestServer::start_on(server_data.path(), &address, &[]).await;
    let mut bob = server.connect(&user).await;
    bob.join("owl", &user, json!({ "history": 0 })).await;
    send_prompt(&mut bob, worker, "three").await;
    assert!(expect_read(&mut bob, &cat).await.contains("tea,4"));

    bob.send_and_ack("policy.revoke", json!({ "rule": rule }))
        .await;
    send_prompt(&mut bob, worker, "four").await;
    expect_asked(&mut bob, &cat).await;
    let everything = serde_json::to_string(&server.entries("owl")).unwrap();
    assert!(!everything.contains(CANARY));
}

#[tokio::test]
async fn an_executor_may_accept_no_read_roots() {
    let data = plant_data();
    let root = data.path().to_str().unwrap();
    let (server, mut ann) = start_session(json!({ "read_roots": [root] })).await;
    let cat = format!("cat {root}/prices.csv");
    let cli = CliEnv::new();
    let path = write_script(&cli, &script(&[std::slice::from_ref(&cat)]));
    let flags = ["--script", path.as_str(), "--no-read-roots"];
    let agent = AgentProcess::start_at(cli, &server, "owl", &flags).await;
    let worker = &agent.user.participant;
    send_prompt(&mut ann, worker, "go").await;
    expect_asked(&mut ann, &cat).await;
}

/// The session does not know where this executor keeps its journal.
#[tokio::test]
async fn an_executor_shows_no_root_that_holds_its_journal() {
    let (server, mut ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let state = tempfile::Builder::new().prefix("state").tempdir().unwrap();
    std::fs::write(state.path().join("notes.csv"), format!("{CANARY}\n")).unwrap();
    let cat = format!("cat {}/notes.csv", state.path().display());
    let path = write_script(&cli, &script(&[&[cat]]));
    let journal = state.path().join("agent");
    let flags = [
        "--script",
        path.as_str(),
        "--state",
        journal.to_str().unwrap(),
    ];
    let agent = AgentProcess::start_at(cli, &server, "owl", &flags).await;
    let worker = &agent.user.participant;
    ann.send_and_ack("policy.allow", allow_reading(state.path()))
        .await;
    send_prompt(&mut ann, worker, "go").await;
    let result = next_result(&mut ann).await;
    assert_eq!(result["success"], false, "{result}");
    assert!(!result.to_string().contains(CANARY), "{result}");
    assert!(
        result.to_string().contains("outside the workspace"),
        "{result}"
    );
}

/// These are reads for the sorter: nothing in them names a secret file.
#[tokio::test]
async fn a_read_of_everything_shows_no_secret_file() {
    let (server, mut ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let here = cli.workdir();
    std::fs::write(here.join("README.md"), "read me\n").unwrap();
    std::fs::create_dir(here.join("config")).unwrap();
    for secret in [".env", "prod.env", "config/secrets.yml"] {
        std::fs::write(here.join(secret), format!("{CANARY}\n")).unwrap();
    }
    let lines = [
        "grep -r . .",
        "cat *",
        "head -n 3 config/*",
        "cat README.md",
    ];
    let lines = lines.map(str::to_owned);
    let later = ["grep -rn . config".to_owned()];
    let path = write_script(&cli, &script(&[&lines, &later]));
    let agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &path]).await;
    let worker = &agent.user.participant;
    send_prompt(&mut ann, worker, "go").await;
    for line in &lines {
        let result = expect_read(&mut ann, line).await;
        assert!(!result.contains(CANARY), "{line}: {result}");
        assert!(
            line.contains("config") || result.contains("read me"),
            "{line}: {result}"
        );
    }
    std::fs::create_dir(here.join("config/new")).unwrap();
    std::fs::write(here.join("config/new/.env.local"), CANARY).unwrap();
    send_prompt(&mut ann, worker, "again").await;
    let result = expect_read(&mut ann, &later[0]).await;
    assert!(!result.contains(CANARY), "{result}");
    let everything = serde_json::to_string(&server.entries("owl")).unwrap();
    assert!(!everything.contains(CANARY));
}
