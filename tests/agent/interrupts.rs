//! People who interrupt: what runs is ended, what waits is withdrawn, and the agent says so.

use serde_json::json;

use crate::kit::room::{approve_next, ask, gate, output, printed, result_of, room, said};
use crate::kit::worker::Worker;

#[tokio::test]
async fn an_interrupt_ends_what_runs_and_withdraws_what_waits() {
    for urgency in ["stop", "emergency"] {
        let (server, mut ann) = room(json!({})).await;
        let script = r#"
            step = [
                { wait = "prompt" },
                { shell = """setsid sleep 1000 & exec perl -e '$SIG{TERM} = sub { syswrite STDOUT, "asked to end\\n" }; syswrite STDOUT, "it runs\\n"; sleep 1000 while 1'""", together = true },
                { shell = "touch never" },
                { say = "I go on" },
            ]
        "#;
        let worker = Worker::scripted_with(&server, "owl", script, &[]).await;
        let agent = worker.who.participant.clone();
        ask(&mut ann, &agent, "begin").await;
        let runs = approve_next(&mut ann).await;
        let (open, _) = gate(&mut ann).await;
        printed(&mut ann, "it runs").await;
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
        // An emergency does not ask.
        let screen = output(&ann.received, &runs, "stdout");
        assert_eq!(
            screen.contains("asked to end"),
            urgency == "stop",
            "{screen}"
        );
        assert_eq!(worker.at_work(), Vec::<String>::new(), "{urgency}");
        ask(&mut ann, &agent, "go on").await;
        said(&mut ann, "I go on").await;
        assert!(!worker.workspace().join("never").exists());
    }
}
