//! Attackers who changed a file after people had approved the command that runs it.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::session::{approve, next_gate, proposal_of, result_of, start_session};
use crate::support::{TestClient, TestServer};

const GOOD: &str = "#!/bin/bash\necho good > ran\n";
const EVIL: &str = "#!/bin/bash\necho evil > ran\n";

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What `sha256sum` says about this text, so that people can compare by themselves.
fn sha256(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let output = std::process::Command::new("sha256sum")
        .arg(file.path())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.split_whitespace().next().unwrap().to_owned()
}

/// An agent that has proposed one line in a workspace with this content; its gate is open.
struct WaitingCommand {
    server: TestServer,
    ann: TestClient,
    agent_process: AgentProcess,
    gate: String,
}

impl WaitingCommand {
    async fn propose(line: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::propose_step(&format!("shell = {}", Value::from(line)), prepare).await
    }

    async fn propose_step(step: &str, prepare: impl FnOnce(&Path)) -> Self {
        let (server, mut ann) = start_session(json!({})).await;
        let cli = CliEnv::new();
        prepare(&cli.workdir());
        let script = format!("[[step]]\n{step}\n[[step]]\nwait = 'prompt'\n");
        let script = write_script(&cli, &script);
        let flags = ["--script", script.as_str()];
        let agent_process = AgentProcess::start_at(cli, &server, "owl", &flags).await;
        let (gate, _) = next_gate(&mut ann).await;
        Self {
            server,
            ann,
            agent_process,
            gate,
        }
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.agent_process.workspace()
    }

    /// The files that the proposal names, as everyone sees them.
    fn bound_files(&self) -> Value {
        let proposal = proposal_of(&self.ann, &self.gate);
        let received = self.ann.received.iter();
        let mut proposes = received.filter(|message| message["id"] == proposal.as_str());
        proposes.next().unwrap()["payload"]["arguments"]["files"].clone()
    }

    async fn approved_result(&mut self) -> Value {
        approve(&mut self.ann, &self.gate).await;
        let proposal = proposal_of(&self.ann, &self.gate);
        result_of(&mut self.ann, &proposal).await
    }

    /// Approves and asserts that nothing ran, and that everyone and the log hear why.
    async fn expect_refused(&mut self, what: &str) {
        let result = self.approved_result().await;
        assert_eq!(result["success"], false, "{result}");
        let error = result["error"].as_str().unwrap();
        assert!(
            error.contains("changed since it was approved") && error.contains(what),
            "{error}"
        );
        assert_eq!(self.agent_process.read_file("ran"), "");
        let log = self.server.entries("owl");
        let logged = log.iter().find(|entry| entry["type"] == "tool.result");
        assert_eq!(logged.unwrap()["payload"]["error"], *error);
    }
}

#[tokio::test]
async fn running_another_script_than_the_one_that_was_approved() {
    for line in [
        "./deploy.sh",
        "bash deploy.sh",
        "bash -x ./deploy.sh now",
        "cd sub && ../deploy.sh",
        "sudo -n bash deploy.sh || env A=1 bash deploy.sh",
        "timeout 20 ./deploy.sh",
        "source deploy.sh",
    ] {
        let mut waiting = WaitingCommand::propose(line, |workspace| {
            std::fs::create_dir(workspace.join("sub")).unwrap();
            write_program(&workspace.join("deploy.sh"), GOOD);
        })
        .await;
        let bound = waiting.bound_files();
        let of_script = bound.as_array().unwrap().iter();
        let is_script = |file: &&Value| file["path"].as_str().unwrap().ends_with("deploy.sh");
        let hashes: Vec<_> = of_script
            .filter(is_script)
            .map(|it| &it["sha256"])
            .collect();
        assert_eq!(json!(hashes), json!([sha256(GOOD)]), "{line}: {bound}");
        write_program(&waiting.workspace().join("deploy.sh"), EVIL);
        waiting.expect_refused("deploy.sh").await;
    }
}

#[tokio::test]
async fn running_other_recipes_than_those_that_were_approved() {
    let good = "all:\n\techo good > ran\n";
    let evil = "all:\n\techo evil > ran\n";
    let prepare = |workspace: &Path| std::fs::write(workspace.join("Makefile"), good).unwrap();
    let mut changed = WaitingCommand::propose("make", prepare).await;
    std::fs::write(changed.workspace().join("Makefile"), evil).unwrap();
    changed.expect_refused("Makefile").await;
    // A file that make prefers, and that did not exist.
    let mut preferred = WaitingCommand::propose("make", prepare).await;
    std::fs::write(preferred.workspace().join("GNUmakefile"), evil).unwrap();
    preferred.expect_refused("GNUmakefile").await;
    let package = r#"{"scripts":{"build":"echo good > ran"}}"#;
    let mut scripts = WaitingCommand::propose("npm run build", |workspace| {
        std::fs::write(workspace.join("package.json"), package).unwrap();
    })
    .await;
    let package = package.replace("good", "evil");
    std::fs::write(scripts.workspace().join("package.json"), package).unwrap();
    scripts.expect_refused("package.json").await;
}

#[tokio::test]
async fn putting_a_script_where_there_was_none() {
    let mut waiting = WaitingCommand::propose("bash later.sh", |_| {}).await;
    write_program(&waiting.workspace().join("later.sh"), EVIL);
    waiting.expect_refused("later.sh").await;
}

#[tokio::test]
async fn running_the_command_in_another_directory() {
    let step = "shell = 'echo evil > ran'\ncwd = 'here'";
    let mut waiting = WaitingCommand::propose_step(step, |workspace| {
        std::fs::create_dir(workspace.join("one")).unwrap();
        std::fs::create_dir(workspace.join("two")).unwrap();
        symlink("one", workspace.join("here")).unwrap();
    })
    .await;
    let workspace = waiting.workspace();
    std::fs::remove_file(workspace.join("here")).unwrap();
    symlink("two", workspace.join("here")).unwrap();
    // People saw the directory behind the link, and there it runs.
    let result = waiting.approved_result().await;
    assert_eq!(result["success"], true, "{result}");
    assert!(workspace.join("one/ran").exists() && !workspace.join("two/ran").exists());
}

#[tokio::test]
async fn replacing_the_directory_that_was_approved_by_a_link() {
    let step = "shell = 'echo evil > ran'\ncwd = 'one'";
    let mut waiting = WaitingCommand::propose_step(step, |workspace| {
        std::fs::create_dir(workspace.join("one")).unwrap();
        std::fs::create_dir(workspace.join("two")).unwrap();
    })
    .await;
    let workspace = waiting.workspace();
    std::fs::remove_dir(workspace.join("one")).unwrap();
    symlink("two", workspace.join("one")).unwrap();
    waiting.expect_refused("one").await;
    assert!(!workspace.join("two/ran").exists());
}

#[tokio::test]
async fn hiding_from_the_card_what_a_script_does() {
    let mut waiting = WaitingCommand::propose("./deploy.sh", |workspace| {
        write_program(&workspace.join("deploy.sh"), GOOD);
    })
    .await;
    let bob = waiting.server.invite("bob", &["approver"], &[]);
    let _bob = waiting.server.join("owl", &bob).await;
    let cli = CliEnv::logged_in(&waiting.server.link(&bob, Some("owl"))).await;
    let card = cli.run_ok(&["show", &waiting.gate]).await;
    assert!(card.contains("deploy.sh"), "{card}");
    assert!(card.contains(&sha256(GOOD)), "{card}");
    let content = cli.run_ok(&["show", &waiting.gate, "--files"]).await;
    assert!(content.contains("echo good > ran"), "{content}");
    // An edit to another script: the card says that its content is not bound.
    write_program(&waiting.workspace().join("other.sh"), EVIL);
    cli.run_ok(&["amend", &waiting.gate, "./other.sh"]).await;
    let card = cli.run_ok(&["show", &waiting.gate]).await;
    assert!(
        card.contains("`other.sh` can still be changed after the vote"),
        "{card}"
    );
    let amend = waiting.ann.wait_for("gate.amend").await;
    let notes = amend["payload"]["assessment"]["notes"].to_string();
    assert!(notes.contains("other.sh"), "{notes}");
}

#[tokio::test]
async fn showing_another_content_than_the_one_that_runs() {
    let (server, mut ann) = start_session(json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut bot = server.join("owl", &bot).await;
    let mut proposal = bot.proposal("./deploy.sh");
    proposal["arguments"]["files"] =
        json!([{ "path": "deploy.sh", "sha256": sha256(EVIL), "bytes": EVIL.len() }]);
    proposal["file_contents"] = json!([{ "path": "deploy.sh", "text": GOOD }]);
    let id = bot.send("tool.propose", proposal).await;
    let refusal = bot.expect_refusal(&id).await;
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("`deploy.sh`"), "{message}");
    ann.sync().await;
    assert!(!ann.received.iter().any(|it| it["type"] == "tool.propose"));
}

#[tokio::test]
async fn a_script_that_did_not_change_runs() {
    let mut waiting = WaitingCommand::propose("./deploy.sh", |workspace| {
        write_program(&workspace.join("deploy.sh"), GOOD);
    })
    .await;
    let result = waiting.approved_result().await;
    assert_eq!(result["success"], true, "{result}");
    assert_eq!(waiting.agent_process.read_file("ran"), "good\n");
}
