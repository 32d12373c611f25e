//! A server that lies to an executor: what it wanted to run, and what it got.

use pvp_protocol::payload::{ClearedBy, GrantTerms, ShellExec};
use pvp_protocol::{Action, SandboxProfile};
use serde_json::json;

use crate::support::lying_server::{DeceivedAgent, grant, shell};

/// A grant for something that runs without a vote.
fn unasked(action: Action, cleared_by: ClearedBy) -> GrantTerms {
    GrantTerms {
        cleared_by,
        approvals: Vec::new(),
        ..grant(action)
    }
}

#[tokio::test]
async fn running_a_command_that_it_says_a_person_sent() {
    let mut deceived = DeceivedAgent::new().await;
    let exec = json!({ "command": "touch marker", "executor": "bot" });
    let shell_exec: ShellExec = serde_json::from_value(exec.clone()).unwrap();
    let server = &mut deceived.server;
    server.log("exec-1", "ann", "shell.exec", exec).await;
    let direct = unasked(Action::from_shell_exec(&shell_exec), ClearedBy::Direct);
    deceived
        .expect_refused("exec-1", &direct, "--accept-shell")
        .await;
}

#[tokio::test]
async fn a_read_that_is_not_held_to_reading() {
    let mut deceived = DeceivedAgent::new().await;
    let outside = tempfile::tempdir_in(std::env::home_dir().unwrap()).unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "outside of the workspace\n").unwrap();
    std::os::unix::fs::symlink(&secret, deceived.workspace().join("link")).unwrap();
    let (proposal, _handle) = deceived.propose("cat link").await;
    let unconfined = GrantTerms {
        profile: Some(SandboxProfile::None),
        ..unasked(shell("cat link"), ClearedBy::Read)
    };
    deceived.server.grant(&proposal, &unconfined).await;
    let result = deceived.result(&proposal).await;
    assert_eq!(result["success"], false, "{result}");
    let printed = result["result"]["stdout"].as_str().unwrap_or_default();
    assert_eq!(printed, "");
}

#[tokio::test]
async fn adding_variables_that_the_proposal_does_not_name() {
    let mut deceived = DeceivedAgent::new().await;
    let hook = deceived.workspace().join("hook");
    std::fs::write(&hook, "touch marker\n").unwrap();
    let hook = hook.to_str().unwrap().to_owned();
    for name in ["BASH_ENV", "DEPLOY_KEY"] {
        let (proposal, _handle) = deceived.propose("mkdir made").await;
        let with_secret = GrantTerms {
            secret_env: Some([(name.to_owned(), hook.clone())].into()),
            ..grant(shell("mkdir made"))
        };
        deceived
            .expect_refused(&proposal, &with_secret, &format!("`{name}`"))
            .await;
        assert!(!deceived.workspace().join("made").exists());
    }
}

#[tokio::test]
async fn denying_afterwards_what_was_proposed() {
    let mut deceived = DeceivedAgent::new().await;
    let (proposal, _handle) = deceived.propose("touch made").await;
    // It was on disk before the server heard of it.
    let journal = deceived.workspace().join(".state/grants.journal");
    let journal = std::fs::read_to_string(journal).unwrap();
    let digest = shell("touch made").digest().to_string();
    let line = journal.lines().find(|line| line.contains(&proposal));
    assert!(line.is_some_and(|line| line.contains(&digest)), "{journal}");
}

#[tokio::test]
async fn running_another_command_by_saying_that_a_person_edited_it() {
    let mut deceived = DeceivedAgent::with_settings(|settings| {
        settings.accepted.edits = false;
    })
    .await;
    let proposal = deceived.propose_edited("touch marker").await;
    deceived
        .expect_refused(
            &proposal,
            &grant(shell("touch marker")),
            "somebody edited it",
        )
        .await;
    // Nor the command as it was: people decided about the edited one.
    let proposal = deceived.propose_edited("touch marker").await;
    deceived
        .expect_refused(&proposal, &grant(shell("ls")), "somebody edited it")
        .await;
}

#[tokio::test]
async fn letting_a_command_out_of_the_workspace() {
    let mut deceived = DeceivedAgent::with_settings(|settings| {
        settings.profile = SandboxProfile::Workspace;
    })
    .await;
    let outside = tempfile::tempdir_in(std::env::home_dir().unwrap()).unwrap();
    let target = outside.path().join("escaped");
    let line = format!("touch {}", target.display());
    let (proposal, _handle) = deceived.propose(&line).await;
    deceived.server.grant(&proposal, &grant(shell(&line))).await;
    let result = deceived.result(&proposal).await;
    assert_eq!(result["success"], false, "{result}");
    assert!(!target.exists());
    deceived.expect_runs("touch inside").await;
}

#[tokio::test]
async fn leaving_the_files_out_of_what_was_approved() {
    let mut deceived = DeceivedAgent::new().await;
    let script = deceived.workspace().join("run.sh");
    std::fs::write(&script, "touch marker\n").unwrap();
    let (proposal, _handle) = deceived.propose("bash run.sh").await;
    // The same words, without the hash that was proposed with them.
    deceived
        .expect_refused(
            &proposal,
            &grant(shell("bash run.sh")),
            "not the one that was shown",
        )
        .await;
}
