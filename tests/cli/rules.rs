//! `pvp rules` and `pvp approve --allow-read`.

use serde_json::json;

use super::gates::{gate_handle, only_open_gate};
use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer};

/// An agent that works in /work/app and lets reads see read roots.
async fn join_agent(server: &TestServer) -> TestClient {
    server
        .create_session("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut announce = bot.announce();
    announce["executor"]["working_directory"] = json!("/work/app");
    announce["executor"]["read_roots"] = json!(true);
    let mut agent = server.connect(&bot).await;
    agent
        .join("owl", &bot, json!({ "participant": announce }))
        .await;
    agent
}

/// Proposes a command that the agent itself believes to be harmless.
async fn propose(agent: &mut TestClient, line: &str) {
    let mut proposal = agent.proposal(line);
    proposal["risk_level"] = json!("safe");
    agent.send_and_ack("tool.propose", proposal).await;
}

#[tokio::test]
async fn reading_is_allowed_listed_and_taken_back() {
    let server = TestServer::start(&[]).await;
    let mut agent = join_agent(&server).await;
    let ann = server.invite("ann", &["approver"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let none = "no allow rules are in force\n";
    assert_eq!(cli.run_ok(&["rules"]).await, none);

    propose(&mut agent, "cat /data/sets/x.csv").await;
    let gate = only_open_gate(&cli).await;
    let needed = &gate["assessment"]["needed_read_roots"];
    assert_eq!(*needed, json!(["/data/sets"]));
    let handle = gate_handle(&gate);
    // Nothing is approved if the directory is refused.
    let refusal = cli
        .run_refused(&["approve", &handle, "--allow-read", "/"])
        .await;
    assert!(refusal.contains("`/` is too wide"), "{refusal}");
    only_open_gate(&cli).await;
    cli.run_ok(&["approve", &handle, "--allow-read", "/data/sets"])
        .await;
    assert_eq!(
        agent.wait_for("tool.execute").await["payload"]["grant"]["cleared_by"],
        "quorum"
    );

    let listed = cli.run_ok(&["rules"]).await;
    assert!(
        listed.contains("reading below /data/sets, expires in"),
        "{listed}"
    );
    let rules = cli.run_json(&["rules", "--json"]).await;
    assert_eq!(rules[0]["read_root"], "/data/sets");
    let rule = rules[0]["rule"].as_str().unwrap();
    propose(&mut agent, "cat /data/sets/y.csv").await;
    assert_eq!(
        agent.wait_for("tool.execute").await["payload"]["grant"]["cleared_by"],
        "read"
    );

    assert_eq!(cli.run_ok(&["rules", "revoke", rule]).await, "revoked\n");
    assert_eq!(cli.run_ok(&["rules"]).await, none);
    propose(&mut agent, "cat /data/sets/z.csv").await;
    only_open_gate(&cli).await;
    cli.run_ok(&["rules", "allow-read", "/data/sets", "--for", "30m"])
        .await;
    let listed = cli.run_ok(&["rules"]).await;
    assert!(listed.contains("by ann"), "{listed}");
    let eve = server.invite("eve", &["observer"], &["--session", "owl"]);
    let cli = CliEnv::logged_in(&server.link(&eve, Some("owl"))).await;
    let refusal = cli.run_refused(&["rules", "allow-read", "/data"]).await;
    assert!(refusal.contains("capability `approve`"), "{refusal}");
}
