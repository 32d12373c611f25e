//! Commits that an agent makes with an approved command name who approved it.

use serde_json::json;

use crate::git::git;
use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::session::{approve_next, result_of, start_session};

#[tokio::test]
async fn a_commit_by_an_approved_command_names_its_approver() {
    let (server, mut ann) = start_session(json!({})).await;
    let owner = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::new();
    let here = cli.workdir();
    git(&here, &["init", "-q", "-b", "main"]);
    git(&here, &["config", "user.name", "Dee"]);
    git(&here, &["config", "user.email", "dee@example.org"]);
    git(&here, &["config", "pvp.hookSeconds", "30"]);
    std::fs::write(here.join("list.txt"), "milk\n").unwrap();
    git(&here, &["add", "list.txt"]);
    git(&here, &["commit", "-q", "-m", "first"]);
    cli.run_ok(&["git", "install"]).await;
    cli.log_in(&server.link(&owner, Some("owl"))).await;
    let script = r#"
        step = [
            { shell = "echo eggs >> list.txt" },
            { expect = { outcome = "ran", exit = 0 } },
            { shell = "git commit -q -a -m 'second one'" },
            { expect = { outcome = "ran", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let script = write_script(&cli, script);
    let flags = ["--script", &script, "--git-notes"];
    let agent_process = AgentProcess::start_at(cli, &server, "owl", &flags).await;
    let edit = approve_next(&mut ann).await;
    result_of(&mut ann, &edit).await;
    let commit = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &commit).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_eq!(result["result"]["stderr"], "", "the hooks are silent");

    assert_eq!(
        git(&here, &["log", "-1", "--format=%B"]).trim(),
        format!(
            "second one\n\nPVP-Session: owl\nPVP-Proposal: {commit}\nPVP-Proposal: {edit}\nPVP-Approvers: ann"
        )
    );
    let note = git(&here, &["notes", "--ref=refs/notes/pvp", "show", "HEAD"]);
    // The hook's note, and the executor's below it, which has the digest.
    assert!(
        note.contains("PVP-Command: git commit -q -a -m 'second one'\n"),
        "{note}"
    );
    assert!(note.contains("PVP-Digest: "), "{note}");

    let lines = agent_process
        .cli
        .run(&["git", "blame", "--json", "list.txt"])
        .await;
    let lines: Vec<serde_json::Value> = lines
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["approvers"], &lines[0]["source"]),
        (&json!([]), &json!(null))
    );
    assert_eq!(
        (
            &lines[1]["text"],
            &lines[1]["approvers"],
            &lines[1]["proposals"]
        ),
        (&json!("eggs"), &json!(["ann"]), &json!([commit, edit]))
    );
}

#[tokio::test]
async fn hooks_are_silent_in_a_confined_command() {
    let config = json!({ "profile": "workspace" });
    let (server, mut ann) = start_session(config).await;
    let owner = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::new();
    cli.log_in(&server.link(&owner, Some("owl"))).await;
    let here = cli.workdir();
    git(&here, &["init", "-q", "-b", "main"]);
    git(&here, &["config", "user.name", "Dee"]);
    git(&here, &["config", "user.email", "dee@example.org"]);
    cli.run_ok(&["git", "install"]).await;
    let script = r#"
        step = [
            { shell = "git commit -q --allow-empty -m 'first one'" },
            { expect = { outcome = "ran", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let script = write_script(&cli, script);
    let _agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &script]).await;
    let commit = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &commit).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_eq!(result["result"]["stderr"], "", "{result}");
    // Whether they may read the link is up to the sandbox; the commit is made either way.
    assert_eq!(
        git(&here, &["log", "-1", "--format=%s"]).trim(),
        "first one"
    );
}
