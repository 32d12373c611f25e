//! `pvp cancel`

use serde_json::json;

use crate::support::cli::CliEnv;
use crate::support::session::{create_session_on, next_gate};
use crate::support::{TestServer, short_id};

#[tokio::test]
async fn a_waiting_command_is_withdrawn_by_its_short_id_and_only_once() {
    let server = TestServer::start(&[]).await;
    let (server, mut ann) = create_session_on(server, json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut bot = server.join("owl", &bot).await;
    let proposal = bot.propose("make").await;
    next_gate(&mut ann).await;
    let dan = server.invite("dan", &["driver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dan, None)).await;
    let short = &short_id(&proposal);

    let observer = server.invite("obi", &["observer"], &[]);
    let observer = CliEnv::logged_in(&server.link(&observer, None)).await;
    let refused = observer.run_refused(&["cancel", short]).await;
    assert!(refused.contains("capability `interrupt`"), "{refused}");

    let cancel = ["cancel", short, "--reason", "not today"];
    let printed = cli.run_ok(&cancel).await;
    assert_eq!(printed, format!("{short} withdrawn; it will not run\n"));
    let entries = server.entries("owl");
    let resolution = entries.iter().find(|entry| entry["type"] == "gate.resolve");
    let resolution = &resolution.unwrap()["payload"];
    assert_eq!(
        (&resolution["outcome"], &resolution["reason"]),
        (&json!("cancelled"), &json!("not today"))
    );
    let refused = cli.run_refused(&cancel).await;
    assert_eq!(
        refused,
        format!("pvp: {short} has ended already: it is cancelled\n")
    );
    let refused = cli.run_refused(&["cancel", "zzzzzz"]).await;
    assert!(
        refused.contains("there is no command `zzzzzz`"),
        "{refused}"
    );
}
