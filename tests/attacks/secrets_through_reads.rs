//! Secrets by way of commands that only read: a repository's history, settings, variables, and what
//! daemons know.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::TestServer;
use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::session::start_session;
use crate::wider_rights::result_of_read;

/// The value that must not appear anywhere.
const PLANTED_PASSWORD: &str = "hunter2-planted-4c1e";

/// Lines that would show a secret to everyone in the session.
const SHOW_SECRETS: &[&str] = &[
    "git show HEAD:.env",
    "git show :.env",
    "git show HEAD:./config/.env.production",
    "git blame .env",
    "git blame -L 1,5 -- .env",
    "git annotate .env",
    "git log -p -- .env",
    "git log -p",
    "git log -L 1,9:.env",
    "git log -p -- .",
    "git log -p -- ':(glob)**/.e*'",
    "git diff HEAD -- .env",
    "git diff -- '.e*'",
    "git diff --text",
    "git diff --binary",
    "git show --all",
    "git show HEAD~9..HEAD",
    "git stash list -p",
    "git grep -h . -- .env",
    "git grep -a TOKEN",
    "git cat-file -p HEAD:.env",
    "git cat-file -p 0123abcd",
    "git config --list",
    "git config -l",
    "git config --get remote.origin.url",
    "git config --get-regexp .",
    "git remote -v",
    "git remote get-url origin",
    "git var -l",
    "cat .git/config",
    "cat .e*",
    "cat .git/modules/sub/config",
    "docker inspect web",
    "docker inspect -f '{{json .Config}}' web",
    "docker history web",
    "docker top web auxe",
    "kubectl get secret",
    "kubectl get secrets/db -o yaml",
    "kubectl get pod web -o yaml",
    "kubectl describe pod web",
    "kubectl describe secret db",
    "helm status web -o json",
    "env",
    "env | sort",
    "printenv",
    "printenv DEPLOY_TOKEN",
    "echo $DEPLOY_TOKEN",
    r#"echo "${DEPLOY_TOKEN}""#,
    r#"cat <<< "$DEPLOY_TOKEN""#,
    "jq -n env",
    "jq -n '$ENV.DEPLOY_TOKEN'",
    r#"awk 'BEGIN { print ENVIRON["DEPLOY_TOKEN"] }'"#,
    "ps e",
    "ps auxe",
    "ps -auxe",
    "ps axeww",
    "systemctl show nginx",
    "systemctl show-environment",
    "npm config list",
    "go env",
    "set",
    "export -p",
    "declare -p",
    "compgen -v",
];

/// Their neighbours, which show none.
const SHOW_NO_SECRETS: &[&str] = &[
    "git show HEAD",
    "git show HEAD:src/main.rs",
    "git show HEAD:.env.example",
    "git blame -L 10,20 src/main.rs",
    "git log -5 --stat",
    "git log -p -- src/main.rs",
    "git log -S foo",
    "git diff",
    "git diff HEAD~1 HEAD -- src",
    "git diff -- '*.rs'",
    "git grep -n foo",
    "git cat-file -t 0123abcd",
    "git cat-file -p HEAD",
    "git config --get user.name",
    "git remote",
    "git branch --list 'c*'",
    "cat src/*.json",
    "docker ps",
    "docker inspect --format '{{.State.Status}}' web",
    "docker top web",
    "printenv PATH",
    "echo $HOME $?",
    "jq .env package.json",
    "go env GOPATH",
];

#[tokio::test]
async fn a_secret_from_a_command_that_nobody_is_asked_about() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    for line in SHOW_SECRETS.iter().chain(SHOW_NO_SECRETS) {
        let mut proposal = agent.proposal(line);
        proposal["risk_level"] = json!("safe");
        let proposal = agent.send("tool.propose", proposal).await;
        agent.expect_ack(&proposal).await;
        let decided = agent
            .wait(|message| {
                let payload = &message["payload"];
                payload["action_ref"] == *proposal
                    || message["type"] == "tool.execute" && payload["tool_proposal"] == *proposal
            })
            .await;
        let asked = SHOW_SECRETS.contains(line);
        assert_eq!(
            decided["type"] == "gate.request",
            asked,
            "{line}: {decided}"
        );
        // Only so many proposals may be open.
        if asked {
            let cancel = json!({ "tool_proposal": proposal, "reason": "only a test" });
            agent.send_and_ack("tool.cancel", cancel).await;
        } else {
            let result = json!({ "tool_proposal": proposal, "success": true, "duration_ms": 0 });
            agent.send_and_ack("tool.result", result).await;
        }
    }
    let entries = server.entries("owl");
    let count = |kind: &str| entries.iter().filter(|it| it["type"] == kind).count();
    assert_eq!(count("tool.execute"), SHOW_NO_SECRETS.len());
    assert_eq!(count("gate.request"), SHOW_SECRETS.len());
}

/// What git prints for somebody at their own terminal.
fn git_output(directory: &Path, words: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=Dee", "-c", "user.email=dee@example.org"])
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(directory)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_password_that_was_committed_once() {
    let (server, mut ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let here = cli.workdir();
    git_output(&here, &["init", "-q", "-b", "main"]);
    std::fs::write(
        here.join("notes"),
        "one
",
    )
    .unwrap();
    std::fs::write(
        here.join(".env"),
        "PASSWORD=changed
",
    )
    .unwrap();
    git_output(&here, &["add", "."]);
    git_output(&here, &["commit", "-q", "-m", "first"]);
    let password = format!(
        "PASSWORD={PLANTED_PASSWORD}
"
    );
    std::fs::write(here.join(".env"), &password).unwrap();
    std::fs::write(
        here.join("notes"),
        "two
",
    )
    .unwrap();
    git_output(&here, &["commit", "-qam", "second"]);
    let blob = git_output(&here, &["rev-parse", "HEAD:.env"]);
    let old_blob = git_output(&here, &["rev-parse", "HEAD~1:.env"]);
    let (blob, old_blob) = (blob.trim(), old_blob.trim());
    git_output(&here, &["tag", "innocent", blob]);
    std::fs::write(
        here.join(".env"),
        "PASSWORD=again
",
    )
    .unwrap();
    let lines = [
        "git show HEAD".to_owned(),
        "git diff HEAD~1 HEAD".to_owned(),
        "git diff".to_owned(),
        "git diff-tree -p HEAD".to_owned(),
        "git grep -h PASSWORD HEAD".to_owned(),
        format!("git show {blob}"),
        format!("git show {}", &blob[..8]),
        "git show innocent".to_owned(),
        format!("git diff {old_blob} {blob}"),
        format!("git grep -h PASSWORD {blob}"),
    ];
    for line in &lines {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let printed = git_output(&here, &words);
        assert!(printed.contains(PLANTED_PASSWORD), "{line} is no bait");
    }
    let steps: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "[[step]]
shell = {line:?}
"
            )
        })
        .collect();
    let script = write_script(
        &cli,
        &(steps.concat()
            + "[[step]]
wait = 'prompt'
"),
    );
    let _agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &script]).await;
    for line in &lines {
        let result = result_of_read(&mut ann, line).await;
        assert!(!result.to_string().contains(PLANTED_PASSWORD), "{line}");
        let printed = result["result"].to_string();
        let told = [
            "Binary file",
            "is the content of a file without its name",
            "not shown: .env has changes",
        ];
        assert!(
            told.iter().any(|it| printed.contains(it)),
            "{line}: {result}"
        );
    }
    let everything = |messages: &[Value]| serde_json::to_string(messages).unwrap();
    assert!(!everything(&ann.received).contains(PLANTED_PASSWORD));
    assert!(!everything(&server.entries("owl")).contains(PLANTED_PASSWORD));
}
