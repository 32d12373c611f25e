//! Attackers who wanted code or values of theirs to ride along with a command that others approved.

use serde_json::{Value, json};

use crate::support::agent_process::AgentProcess;
use crate::support::cli::CliEnv;
use crate::support::session::{
    approve, approve_next, next_gate, result_of, send_prompt, start_session,
};
use crate::support::{TestClient, TestServer, TestUser, http_get};

/// A script whose steps run one line for each prompt.
fn script_of(lines: &[&str]) -> String {
    let steps = lines.iter().map(|line| {
        let line = Value::from(*line);
        format!("[[step]]\nwait = 'prompt'\n[[step]]\nshell = {line}\n")
    });
    let steps: String = steps.collect();
    format!("{steps}[[step]]\nwait = 'prompt'\n")
}

async fn agent_with(server: &TestServer, lines: &[&str]) -> AgentProcess {
    AgentProcess::start_scripted_with(server, "owl", &script_of(lines), &[]).await
}

fn share(key: &str, scope: &str, value: &str) -> Value {
    json!({ "key": key, "scope": [scope], "value_ref": format!("env:{key}"), "value": value })
}

async fn api_gates(server: &TestServer, user: &TestUser) -> Vec<Value> {
    let bearer = format!("Bearer {}", user.token);
    let (status, body) = http_get(
        &server.address,
        "/api/gates",
        &[("Authorization", bearer.as_str())],
    )
    .await;
    assert_eq!(status, 200, "{body}");
    let list: Value = serde_json::from_str(&body).unwrap();
    list["gates"].as_array().unwrap().clone()
}

/// Asserts that the server does not take a message, and says that this name is why.
async fn expect_name_refused(client: &mut TestClient, kind: &str, payload: Value, name: &str) {
    let id = client.send(kind, payload).await;
    let answer = client.answer(&id).await;
    assert_eq!(answer["type"], "error", "{name}: {answer}");
    let message = answer["payload"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("`{name}`")), "{name}: {message}");
}

#[tokio::test]
async fn running_code_with_the_next_approved_command_by_sharing_a_secret() {
    let (server, mut ann) = start_session(json!({})).await;
    let eve = server.invite("eve", &["driver"], &[]);
    let mut eve = server.join("owl", &eve).await;
    let agent_process = agent_with(&server, &["mkdir made"]).await;
    let agent = agent_process.user.participant.clone();
    let hook = agent_process.workspace().join("hook");
    std::fs::write(&hook, "touch owned\n").unwrap();
    let hook = hook.to_str().unwrap();
    for name in ["BASH_ENV", "PATH", "LD_PRELOAD", "https_proxy", "GIT_DIR"] {
        expect_name_refused(&mut eve, "secret.share", share(name, &agent, hook), name).await;
    }
    send_prompt(&mut ann, &agent, "make it").await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], true, "{result}");
    assert!(!agent_process.workspace().join("owned").exists());
    let log = server.entries("owl");
    assert!(!log.iter().any(|entry| entry["type"] == "secret.share"));
}

#[tokio::test]
async fn changing_what_programs_do_by_the_environment_of_a_proposal() {
    let (server, mut ann) = start_session(json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut bot = server.join("owl", &bot).await;
    for name in [
        "PATH",
        "HOME",
        "SHELL",
        "IFS",
        "BASH_ENV",
        "BASH_FUNC_ls%%",
        "LD_PRELOAD",
        "GIT_SSH_COMMAND",
        "http_proxy",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "Ld_Preload",
    ] {
        let mut proposal = bot.proposal("mkdir made");
        proposal["arguments"]["env"] = json!({ name: "/tmp/evil" });
        expect_name_refused(&mut bot, "tool.propose", proposal, name).await;
    }
    // Nor by an edit of a command that waits.
    bot.propose("mkdir made").await;
    let request = ann.wait_for("gate.request").await;
    let amend = json!({
        "gate": request["id"], "digest": request["payload"]["digest"],
        "arguments": { "full_command": "mkdir made", "env": { "LD_PRELOAD": "/tmp/evil.so" } },
    });
    expect_name_refused(&mut ann, "gate.amend", amend, "LD_PRELOAD").await;
    let log = server.entries("owl");
    let of_kind = |kind: &str| log.iter().filter(|entry| entry["type"] == kind).count();
    assert_eq!((of_kind("tool.propose"), of_kind("gate.amend")), (1, 0));
}

#[tokio::test]
async fn sharing_a_secret_so_that_nobody_else_hears_of_it() {
    let (server, mut ann) = start_session(json!({})).await;
    let olga = server.invite("olga", &["observer"], &[]);
    let mut olga = server.join("owl", &olga).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let _bot = server.join("owl", &bot).await;
    ann.send_and_ack(
        "secret.share",
        share("TOKEN", &bot.participant, "hunter2-x"),
    )
    .await;
    let shared = olga.wait_for("secret.share").await;
    assert_eq!(shared["payload"]["key"], "TOKEN");
    assert_eq!(shared["payload"]["scope"], json!([bot.participant]));
    let revoke = json!({ "key": "TOKEN", "reason": "over" });
    ann.send_and_ack("secret.revoke", revoke).await;
    assert_eq!(
        olga.wait_for("secret.revoke").await["payload"]["key"],
        "TOKEN"
    );
    for message in &olga.received {
        assert!(!message.to_string().contains("hunter2-x"), "{message}");
    }
    let log = serde_json::to_string(&server.entries("owl")).unwrap();
    assert!(!log.contains("hunter2-x"));
}

#[tokio::test]
async fn adding_a_variable_that_is_not_on_the_card() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent_process = agent_with(&server, &["touch done; env > seen"]).await;
    let agent = agent_process.user.participant.clone();
    ann.send_and_ack("secret.share", share("FIRST_KEY", &agent, "value-one"))
        .await;
    send_prompt(&mut ann, &agent, "run it").await;
    let (gate, _) = next_gate(&mut ann).await;
    // Whoever looked at the card did not see this one.
    ann.send_and_ack("secret.share", share("LATER_KEY", &agent, "value-two"))
        .await;
    let bob = server.invite("bob", &["approver"], &[]);
    let _bob = server.join("owl", &bob).await;
    let cards = api_gates(&server, &bob).await;
    assert_eq!(cards[0]["action"]["secrets"], json!(["FIRST_KEY"]));
    let cli = CliEnv::logged_in(&server.link(&bob, Some("owl"))).await;
    let card = cli.run_ok(&["show", &gate]).await;
    assert!(
        card.contains("FIRST_KEY") && !card.contains("LATER_KEY"),
        "{card}"
    );
    let list = cli.run_ok(&["gates"]).await;
    assert!(list.contains("FIRST_KEY"), "{list}");
    approve(&mut ann, &gate).await;
    let proposal = crate::support::session::proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], true, "{result}");
    let seen = agent_process.read_file("seen");
    assert!(seen.contains("FIRST_KEY=value-one"), "{seen}");
    assert!(!seen.contains("LATER_KEY"), "{seen}");
    // The record says which names it ran with, and no value.
    let log = server.entries("owl");
    let execute = log.iter().find(|entry| entry["type"] == "tool.execute");
    let execute = execute.unwrap();
    assert_eq!(
        execute["payload"]["grant"]["action"]["secrets"],
        json!(["FIRST_KEY"])
    );
    assert!(!serde_json::to_string(&log).unwrap().contains("value-one"));
}

#[tokio::test]
async fn receiving_a_secret_in_a_command_that_nobody_approves() {
    let (server, mut ann) = start_session(json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let agent = bot.participant.clone();
    let mut bot = server.join("owl", &bot).await;
    bot.sync().await;
    ann.send_and_ack("secret.share", share("DEPLOY_KEY", &agent, "hunter2-x"))
        .await;
    let mut read = bot.proposal("ls");
    read["risk_level"] = json!("safe");
    bot.send_and_ack("tool.propose", read).await;
    let execute = bot.wait_for("tool.execute").await;
    let grant = &execute["payload"]["grant"];
    assert_eq!(grant["cleared_by"], "read");
    assert!(grant["nonce"].is_string(), "it is the executor's own copy");
    assert!(!execute.to_string().contains("hunter2"), "{execute}");
    // A command that names a secret is no read: it waits for a vote.
    let mut proposal = bot.proposal("ls");
    proposal["risk_level"] = json!("safe");
    proposal["arguments"]["secrets"] = json!(["DEPLOY_KEY"]);
    bot.send_and_ack("tool.propose", proposal).await;
    let request = ann.wait_for("gate.request").await;
    assert_eq!(request["payload"]["category"], "write");
}
