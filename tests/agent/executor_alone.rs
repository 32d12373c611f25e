//! An executor without a proposer or a brain: it runs what people ask of it.

use std::path::PathBuf;
use std::sync::Arc;

use pvp_agent::executor::{Executor, ExecutorSettings};
use pvp_client::{ConnectOptions, Connection, Link};
use pvp_policy::Policy;
use serde_json::json;

use crate::support::session::{collect_output, result_of, start_session};

#[tokio::test]
async fn an_executor_alone_runs_a_persons_own_command() {
    let (server, mut ann) = start_session(json!({ "shell_exec": "direct" })).await;
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().canonicalize().unwrap();
    let mut settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
    settings.accepted.shell_exec = true;
    settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
    let options = ConnectOptions {
        executor: Some(settings.executor_info()),
        ..ConnectOptions::default()
    };
    let (connection, events) = Connection::open(link, options).await.unwrap();
    let executor = Executor::new(connection, settings, Arc::new(Policy::built_in())).unwrap();
    let running = tokio::spawn(executor.run(events));

    let exec = json!({ "command": "touch made && echo done", "executor": bot.participant });
    let id = ann.send("shell.exec", exec).await;
    ann.expect_ack(&id).await;
    let result = result_of(&mut ann, &id).await;
    assert_eq!(result["success"], true, "{result}");
    assert_eq!(collect_output(&ann.received, &id, "stdout"), "done\n");
    assert!(workspace.join("made").exists());

    let end = json!({ "reason": "enough", "final_state": "completed" });
    ann.send("session.end", end).await;
    assert_eq!(running.await.unwrap(), None);
}
