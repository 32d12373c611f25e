//! `pvp demo --model`: a model does the demo's task.

use super::gates::{gate_handle, only_open_gate};
use crate::support::cli::CliEnv;
use crate::support::fake_model::FakeModelServer;

#[tokio::test]
async fn a_model_does_the_task_of_the_demo_and_people_decide() {
    let cli = CliEnv::new();
    let model = FakeModelServer::listen().await;
    let flags = model.agent_flags();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let demo = ["demo", "--listen", "127.0.0.1:0", "--data", "data"];
    let mut process = cli.spawn(&[&demo[..], &flags[..]].concat());
    let line = process.wait_for_line("Its commands run in ").await;
    let workspace = line.strip_prefix("Its commands run in ").unwrap();
    let workspace = workspace.split([',', ';']).next().unwrap().to_owned();
    let notes = || std::fs::read_to_string(format!("{workspace}/notes.txt")).unwrap();

    let request = model.next_request().await;
    let prompt = request.last_message("user");
    assert!(prompt.starts_with("dee: Eggs are missing"), "{prompt}");
    let system = request.last_message("system");
    assert!(system.contains("notes.txt is a shopping list"), "{system}");
    request.finish_with_commands(&["cat notes.txt"]).await;
    let request = model.next_request().await;
    assert_eq!(
        request.last_message("tool"),
        "Exit code: 0 | stdout: 2 lines | stderr: 0 lines\n\nstdout:\nmilk\nbread"
    );
    request
        .finish_with_commands(&["echo eggs >> notes.txt"])
        .await;
    process.wait_for_line("waiting for one approval").await;
    assert_eq!(notes(), "milk\nbread\n");
    let gate = only_open_gate(&cli).await;
    cli.run_ok(&["approve", &gate_handle(&gate)]).await;
    let request = model.next_request().await;
    assert_eq!(notes(), "milk\nbread\neggs\n");
    request.finish_with_text("Eggs are on the list.").await;
    process.wait_for_line("agent: Eggs are on the list.").await;

    // The person goes on with the conversation.
    cli.run_ok(&["send", "thanks"]).await;
    let request = model.next_request().await;
    assert_eq!(request.last_message("user"), "dee: thanks");
    request.finish_with_text("You are welcome.").await;
    process.signal("INT");
    assert_eq!(process.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_model_without_a_key_is_refused_before_anything_starts() {
    let cli = CliEnv::new();
    for (brain, variable) in [
        (&[][..], "ANTHROPIC_API_KEY"),
        (&["--brain", "openai"], "OPENAI_API_KEY"),
    ] {
        let mut command = cli.command(&[&["demo", "--model", "m-1"], brain].concat());
        command.env_remove(variable);
        let output = command.output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && error.contains(variable),
            "{error}"
        );
    }
    assert!(!cli.state().exists());
    for flags in [
        &["--model", "m", "--brain", "scripted"][..],
        &["--model", "m", "--tour"],
    ] {
        cli.run_refused(&[&["demo"], flags].concat()).await;
    }
}

#[tokio::test]
async fn a_demo_does_not_overwrite_the_files_of_a_directory() {
    let cli = CliEnv::new();
    std::fs::write(cli.workdir().join("notes.txt"), "mine").unwrap();
    let demo = ["demo", "--listen", "127.0.0.1:0", "--workspace", "."];
    let error = cli.run_refused(&demo).await;
    assert!(error.contains("holds other files"), "{error}");
    let notes = std::fs::read_to_string(cli.workdir().join("notes.txt"));
    assert_eq!(notes.unwrap(), "mine");
}
