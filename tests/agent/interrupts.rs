//! Interrupts: running commands are stopped, waiting ones are withdrawn, and the agent reports it.

use serde_json::json;

use crate::support::agent_process::AgentProcess;
use crate::support::session::{
    approve_next, collect_output, next_gate, result_of, send_prompt, start_session,
    wait_for_output, wait_for_response,
};

#[tokio::test]
async fn an_interrupt_stops_runs_and_withdraws_waiting_proposals() {
    for urgency in ["stop", "emergency"] {
        let (server, mut ann) = start_session(json!({})).await;
        let script = r#"
            step = [
                { wait = "prompt" },
                { shell = """setsid sleep 1000 & exec perl -e '$SIG{TERM} = sub { syswrite STDOUT, "asked to end\\n" }; syswrite STDOUT, "it runs\\n"; sleep 1000 while 1'""", together = true },
                { shell = "touch never" },
                { say = "I go on" },
            ]
        "#;
        let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
        let agent = agent_process.user.participant.clone();
        send_prompt(&mut ann, &agent, "begin").await;
        let runs = approve_next(&mut ann).await;
        let (open, _) = next_gate(&mut ann).await;
        wait_for_output(&mut ann, "it runs").await;
        let raise = json!({ "target": agent, "urgency": urgency, "message": "the wrong one" });
        let interrupt = ann.send("interrupt.raise", raise).await;
        let acknowledged = ann.wait_for("interrupt.acknowledge").await;
        assert_eq!(
            acknowledged["payload"],
            json!({ "interrupt": interrupt, "by": agent, "action_taken": "stopped" })
        );
        let withdrawn = ann
            .wait(|message| {
                message["type"] == "gate.resolve" && message["payload"]["gate"] == open.as_str()
            })
            .await;
        assert_eq!(withdrawn["payload"]["outcome"], "cancelled", "{urgency}");
        let result = result_of(&mut ann, &runs).await;
        assert_eq!(result["error"], "stopped: the wrong one", "{urgency}");
        // An emergency kills without asking the command to stop.
        let screen = collect_output(&ann.received, &runs, "stdout");
        assert_eq!(
            screen.contains("asked to end"),
            urgency == "stop",
            "{screen}"
        );
        assert_eq!(
            agent_process.running_commands(),
            Vec::<String>::new(),
            "{urgency}"
        );
        send_prompt(&mut ann, &agent, "go on").await;
        wait_for_response(&mut ann, "I go on").await;
        assert!(!agent_process.workspace().join("never").exists());
    }
}
