//! `pvp demo --tour`: a newcomer who types exactly what it prints, and others who do not.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::audit::{export_logs, message_type};
use crate::support::cli::{CliEnv, CliProcess};

struct TourProcess {
    cli: CliEnv,
    process: CliProcess,
}

impl TourProcess {
    async fn start() -> Self {
        let cli = CliEnv::new();
        let process = cli.spawn(&[
            "demo",
            "--tour",
            "--listen",
            "127.0.0.1:0",
            "--data",
            "data",
        ]);
        Self { cli, process }
    }

    /// The next command that the tour prints.
    async fn next_command(&mut self) -> String {
        let program = format!("    {} ", env!("CARGO_BIN_EXE_pvp"));
        let line = self.process.wait_for_line(&program).await;
        line.trim().to_owned()
    }

    /// The arguments of the next command that the tour prints, such as `approve HANDLE`.
    async fn next_arguments(&mut self) -> Vec<String> {
        let command = self.next_command().await;
        let words = command.split(' ').skip(1);
        words.map(str::to_owned).collect()
    }

    /// Runs a command line in another shell.
    async fn run(&self, line: &str) -> String {
        let mut bash = self.cli.program("bash");
        let output = bash.args(["-c", line]).output().await.unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the next command that the tour prints; returns it.
    async fn obey(&mut self) -> String {
        let command = self.next_command().await;
        self.run(&command).await;
        command
    }

    async fn pvp(&self, arguments: &[&str]) {
        self.cli.run_ok(arguments).await;
    }

    fn workspace(&self) -> PathBuf {
        self.cli.home().join(".local/share/pvp/demo")
    }
}

fn count(log: &[Value], kind: &str) -> usize {
    log.iter()
        .filter(|entry| message_type(entry) == kind)
        .count()
}

#[tokio::test]
async fn a_newcomer_who_types_what_is_printed_gets_to_the_end() {
    let mut tour = TourProcess::start().await;
    let mut checks = Vec::new();
    loop {
        let command = tour.next_command().await;
        match command.split(' ').nth(1) {
            Some("up") => break,
            // These are for when the tour is over.
            Some("audit") => checks.push(command),
            _ => drop(tour.run(&command).await),
        }
    }
    let TourProcess { cli, process } = tour;
    let ended = process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.err.contains("refused"), "{}", ended.err);
    assert_eq!(checks.len(), 2);
    for check in checks {
        let output = cli.program("bash").args(["-c", &check]).output().await;
        let output = output.unwrap();
        assert!(output.status.success(), "{check}: {output:?}");
    }
    let workspace = cli.home().join(".local/share/pvp/demo");
    let notes = std::fs::read_to_string(workspace.join("notes.txt")).unwrap();
    assert_eq!(notes, "milk\nbread\neggs\nchocolate\n");
    assert!(workspace.join("monday.txt").exists());
    assert!(!workspace.join("old-notes").exists());
    // All of it went through the session, and the last gate had two voters.
    let mut logs = export_logs(&cli.workdir().join("data"));
    let log = logs.pop_first().unwrap().1;
    for kind in [
        "gate.reject",
        "gate.amend",
        "policy.allow",
        "interrupt.raise",
        "shell.exec",
    ] {
        assert_eq!(count(&log, kind), 1, "{kind}");
    }
    let executed = log.iter().rev();
    let mut executed = executed.filter(|entry| message_type(entry) == "tool.execute");
    let last = &executed.next().unwrap()["payload"];
    let action = last["grant"]["action"].to_string();
    assert!(action.contains("rm -rf old-notes"), "{action}");
    let voters = last["approved_by"].as_array().unwrap();
    assert_eq!(voters.len(), 2, "{voters:?}");
    let robin = voters
        .iter()
        .filter(|id| id.as_str().unwrap().starts_with("robin-"));
    assert_eq!(robin.count(), 1, "{voters:?}");
}

#[tokio::test]
async fn a_wrong_turn_gets_a_hint_and_never_ends_the_tour() {
    let mut tour = TourProcess::start().await;
    // Reject what should be approved, and edit it the second time.
    let approve = tour.next_arguments().await;
    tour.pvp(&["reject", &approve[1], "no"]).await;
    tour.process
        .wait_for_line("It did not run. Rejecting comes next")
        .await;
    let approve = tour.next_arguments().await;
    tour.pvp(&["amend", &approve[1], "echo eggs >> notes.txt; ls"])
        .await;
    tour.process.wait_for_line("It is edited").await;
    tour.obey().await;

    // Approve what should be rejected, then edit it.
    let reject = tour.next_arguments().await;
    assert_eq!(reject[0], "reject");
    tour.pvp(&["approve", &reject[1]]).await;
    tour.process
        .wait_for_line("You approved it, but it needs two")
        .await;
    let reject = tour.next_arguments().await;
    tour.pvp(&["amend", &reject[1], "rm -rf old-notes/monday.txt"])
        .await;
    tour.process
        .wait_for_line("You edited it. Reject it all the same")
        .await;
    tour.obey().await;

    // Approve without an edit, and reject.
    let amend = tour.next_arguments().await;
    assert_eq!(amend[0], "amend");
    tour.pvp(&["approve", &amend[1]]).await;
    tour.process.wait_for_line("It ran as it was").await;
    let amend = tour.next_arguments().await;
    tour.pvp(&["reject", &amend[1], "no"]).await;
    tour.process
        .wait_for_line("It did not run. Try to edit it")
        .await;
    assert!(tour.obey().await.contains(" amend "));
    assert!(tour.obey().await.contains(" approve "));

    // Allow something else.
    let allow = tour.next_arguments().await;
    assert_eq!(allow, ["rules", "allow", "touch"]);
    tour.pvp(&["rules", "allow", "mkdir"]).await;
    tour.process
        .wait_for_line("That allows something else")
        .await;
    tour.obey().await;

    // Stop the command, but not the agent.
    assert_eq!(tour.next_arguments().await[0], "interrupt");
    let history = tour.cli.run_json_lines(&["history", "--json"]).await;
    let running = history
        .iter()
        .find(|one| one["status"] == "running")
        .unwrap();
    let cancel = json!({ "tool_proposal": running["tool_proposal"], "reason": "no" }).to_string();
    tour.pvp(&["send", "--type", "tool.cancel", "--payload", &cancel])
        .await;
    tour.process
        .wait_for_line("It ended without an interrupt")
        .await;
    tour.obey().await;

    // Run something destructive.
    assert_eq!(tour.next_arguments().await[0], "exec");
    let exec = json!({ "command": "rm -rf nothing" }).to_string();
    tour.pvp(&["send", "--type", "shell.exec", "--payload", &exec])
        .await;
    tour.process.wait_for_line("That is destructive").await;
    tour.obey().await;

    // Robin approves nothing but what was proposed.
    let approve = tour.next_arguments().await;
    tour.pvp(&["amend", &approve[1], "rm -rf notes.txt"]).await;
    let hint = tour.process.wait_for_line("It did not run: ").await;
    assert!(
        hint.contains("I agreed to the command as it was proposed"),
        "{hint}"
    );
    tour.obey().await;
    tour.process
        .wait_for_line("Both of you approved it, so it ran.")
        .await;
    tour.process.wait_for_line("That was the tour.").await;
    let workspace = tour.workspace();
    assert!(workspace.join("notes.txt").exists() && !workspace.join("old-notes").exists());
}

#[tokio::test]
async fn commands_may_be_typed_into_the_tour_itself() {
    let mut tour = TourProcess::start().await;
    tour.process.write_line("rm -rf /").await;
    tour.process
        .wait_for_line("Type a `pvp` command as shown above")
        .await;
    let approve = tour.next_arguments().await;
    tour.process
        .write_line(&format!("pvp approve {}", approve[1]))
        .await;
    tour.process
        .wait_for_line("You approved it, and it ran.")
        .await;
    let reject = tour.next_arguments().await;
    tour.process
        .write_line(&format!("pvp reject {} 'not now'", reject[1]))
        .await;
    tour.process.wait_for_line("The agent reads: not now").await;
    tour.process.write_line("!echo own words").await;
    tour.process.wait_for_line("own words").await;
    tour.process.write_line("quit").await;
    let TourProcess { cli, process } = tour;
    let ended = process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut logs = export_logs(&cli.workdir().join("data"));
    assert_eq!(count(&logs.pop_first().unwrap().1, "shell.exec"), 1);
}

#[tokio::test]
async fn a_tour_can_be_left_at_any_time() {
    let mut tour = TourProcess::start().await;
    tour.next_command().await;
    tour.process.signal("INT");
    let ended = tour.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
