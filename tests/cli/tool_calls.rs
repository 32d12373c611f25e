//! What the commands print of tool calls: headlines in lists, the whole call in `pvp show`.

use serde_json::{Value, json};

use crate::gates::{gate_handle, only_open_gate};
use crate::support::TestServer;
use crate::support::cli::CliEnv;

/// The SHA-256 of a text, as a proposal binds it.
fn sha256(text: &str) -> String {
    pvp_protocol::Digest::of_content(text.as_bytes()).to_string()
}

const OLD: &str = "milk\nbread\n";

fn write_arguments() -> Value {
    json!({
        "path": "notes.txt", "content": "milk\neggs \u{202e}\n", "diff": "-bread\n+butter",
        "files": [{ "path": "notes.txt", "sha256": sha256(OLD), "bytes": OLD.len() }],
    })
}

fn proposal(agent: &str, tool: &str, arguments: Value) -> Value {
    json!({
        "tool_name": tool, "arguments": arguments, "agent": agent, "risk_level": "low",
        "description": "shopping", "requires_approval": true, "category": "file_write",
    })
}

#[tokio::test]
async fn a_file_write_is_shown_as_what_it_changes() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let mut propose = proposal(agent.participant.as_str(), "file_write", write_arguments());
    propose["file_contents"] = json!([{ "path": "notes.txt", "text": OLD }]);
    agent.send_and_ack("tool.propose", propose).await;
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let gate = only_open_gate(&cli).await;
    let handle = gate_handle(&gate);

    let list = cli.run_ok(&["gates"]).await;
    assert!(
        list.trim_end().ends_with("file_write notes.txt (2 lines)"),
        "{list}"
    );
    let shown = cli.run_ok(&["show", &handle]).await;
    let call: Vec<_> = shown.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(
        call,
        [
            "file_write notes.txt (+1 −1)",
            "> compared with the present content; the call does not start if that has changed",
            "> @@ -1,2 +1,2 @@",
            ">  milk",
            "> -bread",
            r"> +eggs \u{202e}",
            "> diff, as the agent states it, not checked:",
            "> │ -bread",
            "> │ +butter",
        ]
    );
    assert!(shown.contains("\ntool      file_write\n"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "colours are for terminals");
    let json = cli.run_json(&["show", "--json", &handle]).await;
    assert_eq!(json["call"]["headline"], "file_write notes.txt (+1 −1)");
    assert_eq!(json["call"]["change"]["basis"], "present_content");
    assert_eq!(json["open"], gate);

    // Everywhere else it is a headline, and never JSON.
    let tail = cli.run_ok(&["tail"]).await;
    let answer = cli.run_ok(&["reject", &handle, "no"]).await;
    assert!(
        answer.contains("file_write notes.txt (2 lines)"),
        "{answer}"
    );
    let (history, later) = (cli.run_ok(&["history"]).await, cli.run_ok(&["tail"]).await);
    assert!(
        history.contains("file_write notes.txt (2 lines)"),
        "{history}"
    );
    for line in tail.lines().chain(later.lines()) {
        let is_about_it = line.contains("file_write");
        assert!(!is_about_it || line.contains("notes.txt (+1 −1)"), "{line}");
        assert!(!line.contains('{') || line.contains("settings"), "{line}");
    }
    assert!(later.matches("notes.txt (+1 −1)").count() >= 3, "{later}");
    // The whole call stays readable after the decision.
    let closed = cli.run_ok(&["show", &handle]).await;
    assert!(
        closed.starts_with("file_write notes.txt (2 lines)\n"),
        "{closed}"
    );
    assert!(
        closed.contains("> +milk\n") && closed.contains("status    rejected"),
        "{closed}"
    );
}

#[tokio::test]
async fn a_shell_command_that_looks_like_a_tool_call_is_shown_as_it_is() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let line = r#"file_write {"path":"a","content":"x"}"#;
    agent.propose(line).await;
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let handle = gate_handle(&only_open_gate(&cli).await);
    cli.run_ok(&["reject", &handle, "no"]).await;
    let history = cli.run_ok(&["history"]).await;
    assert!(history.contains(line), "{history}");
    let closed = cli.run_ok(&["show", &handle]).await;
    assert!(closed.starts_with(&format!("{line}\n\n")), "{closed}");
}

#[tokio::test]
async fn a_call_that_a_client_runs_says_how_sure_it_is_and_whether_it_fails_open() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    for (degree, origin, said) in [
        (
            "held",
            json!({ "client": "codex", "version": "0.166.0", "subagent": "tester" }),
            "\nruns      held (codex 0.166.0, subagent tester): the client runs it; it could not start unasked\n",
        ),
        (
            "hooked",
            json!({ "client": "claude", "version": "2.1.200", "fails_open": true }),
            "\nruns      hooked (claude 2.1.200): the client asked; what it runs is the client's own word\n\
             fails     open: if what asks PVP crashes, this client runs the call unasked\n",
        ),
    ] {
        let arguments = json!({ "full_command": "make" });
        let mut propose = proposal(agent.participant.as_str(), "shell", arguments);
        propose["runs"] = "client".into();
        propose["degree"] = degree.into();
        propose["origin"] = origin;
        agent.send_and_ack("tool.propose", propose).await;
        let handle = gate_handle(&only_open_gate(&cli).await);
        let shown = cli.run_ok(&["show", &handle]).await;
        assert!(shown.contains(said), "{shown}");
        assert_eq!(shown.contains("\nfails "), degree == "hooked", "{shown}");
        cli.run_ok(&["reject", &handle, "no"]).await;
        // The record keeps it.
        let closed = cli.run_ok(&["show", &handle]).await;
        assert!(closed.contains(said), "{closed}");
    }
}
