//! The tools of a client that are not its shell.

use serde_json::Value;

use crate::clients::{Client, ReadsElsewhere, Reasons};
use crate::model::ScriptedTurn;
use crate::stage::{Setting, Stage};

pub async fn read_unasked(client: &'static Client) {
    let setting = Setting {
        files: &[("notes.txt", "a note to read\n")],
        ..Setting::default()
    };
    let mut stage = Stage::start(client, setting, |workspace| {
        let inside = (client.read)(&workspace.join("notes.txt"));
        let elsewhere = workspace.with_file_name("home").join("secret.txt");
        std::fs::write(&elsewhere, "what nobody else knows\n").unwrap();
        let outside = (client.read)(&elsewhere);
        vec![
            ScriptedTurn::Calls(vec![inside]),
            ScriptedTurn::Calls(vec![outside]),
            ScriptedTurn::text("All done."),
        ]
    })
    .await;
    stage.model_reads("a note to read").await;
    if client.reads_elsewhere == ReadsElsewhere::Asked {
        let call = stage.next_gate().await;
        let shown = call.payload.to_string();
        assert!(shown.contains("secret.txt"), "{shown}");
        stage.reject(&call, "stay in your directory").await;
    }
    stage.client_ends().await;
    let told = stage.model.last_request_text();
    assert!(!told.contains("nobody else knows"), "{told}");
    let proposed = stage.recorded("tool.propose").await;
    assert!(
        proposed[0].to_string().contains("notes.txt"),
        "{}",
        proposed[0]
    );
    let asked = stage.recorded("gate.request").await.len();
    assert_eq!(
        asked,
        usize::from(client.reads_elsewhere == ReadsElsewhere::Asked)
    );
    let results = stage.recorded("tool.result").await;
    assert_eq!(results.len(), 1, "{results:#?}");
    assert_eq!(results[0]["success"], true, "{}", results[0]);
}

pub async fn file_change(client: &'static Client) {
    let setting = Setting {
        files: &[("a.txt", "first\nlast\n")],
        ..Setting::default()
    };
    let mut stage = Stage::start(client, setting, |workspace| {
        let (a, b) = (workspace.join("a.txt"), workspace.join("b.txt"));
        let denied = client.denied_write.map(|write| write(&b, "denied\n"));
        let calls = [
            // Some clients change only what they have read.
            (client.read)(&a),
            (client.edit)(&a, "first", "second"),
            (client.edit)(&a, "last", "never"),
            (client.write)(&b, "whole\n"),
        ];
        let calls = denied.into_iter().chain(calls);
        let turns = calls.map(|call| ScriptedTurn::Calls(vec![call]));
        turns.chain([ScriptedTurn::text("All done.")]).collect()
    })
    .await;
    if client.denied_write.is_some() {
        // An approval does not help it.
        let call = stage.next_gate().await;
        stage.approve(&call).await;
    }
    let call = stage.next_gate().await;
    assert!(!stage.exists("b.txt"));
    let shown = call.payload.to_string();
    for part in ["a.txt", "first", "second"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(stage.content("a.txt"), "first\nlast\n");
    stage.approve(&call).await;
    stage.result(&call).await;
    assert_eq!(stage.content("a.txt"), "second\nlast\n");
    let call = stage.next_gate().await;
    stage.reject(&call, "keep the end").await;
    if client.reasons == Reasons::AtOnce {
        stage.model_reads("keep the end").await;
    }
    let call = stage.next_gate().await;
    assert!(
        call.payload.to_string().contains("whole"),
        "{}",
        call.payload
    );
    assert!(!stage.exists("b.txt"));
    stage.approve(&call).await;
    let result = stage.result(&call).await;
    assert_eq!(result["success"], true, "{result}");
    stage.client_ends().await;
    assert_eq!(stage.content("a.txt"), "second\nlast\n");
    assert_eq!(stage.content("b.txt"), "whole\n");
}

pub async fn mcp_call(client: &'static Client) {
    let setting = Setting {
        mcp: true,
        ..Setting::default()
    };
    let said = ["told you so", "never said"].map(client.mcp_echo);
    let turns = said.into_iter().map(|call| ScriptedTurn::Calls(vec![call]));
    let script = turns.chain([ScriptedTurn::text("All done.")]).collect();
    let mut stage = Stage::start(client, setting, |_| script).await;
    let call = stage.next_gate().await;
    let shown = call.payload.to_string();
    assert!(
        shown.contains("echo") && shown.contains("told you so"),
        "{shown}"
    );
    stage.approve(&call).await;
    let result = stage.result(&call).await;
    assert_eq!(result["success"], true, "{result}");
    stage.model_reads("echo: told you so").await;
    let call = stage.next_gate().await;
    stage.reject(&call, "say nothing").await;
    stage.client_ends().await;
    let told = stage.model.last_request_text();
    assert!(told.contains("say nothing"), "{told}");
    assert!(!told.contains("echo: never said"), "{told}");
}

pub async fn subagent(client: &'static Client) {
    let own = [
        ScriptedTurn::Calls(vec![(client.shell)("touch made")]),
        ScriptedTurn::Calls(vec![(client.shell)("touch never")]),
        ScriptedTurn::text("The subagent is done."),
    ];
    let mut script = (client.subagent)(&own);
    script.push(ScriptedTurn::text("All done."));
    let mut stage = Stage::start(client, Setting::default(), |_| script).await;
    // Starting and ending a subagent may need approval too.
    let mut asked: Vec<Value> = Vec::new();
    while let Some(call) = stage.next_gate_or_end().await {
        match call.line.as_str() {
            "touch never" => stage.reject(&call, "one is enough").await,
            _ => stage.approve(&call).await,
        }
        if call.line.starts_with("touch ") {
            asked.push(call.payload);
        }
    }
    stage.client_ends().await;
    let requests = stage.model.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.text().contains("one is enough"))
    );
    assert_eq!(asked.len(), 2);
    assert!(stage.exists("made"));
    assert!(!stage.exists("never"));
    for payload in asked {
        let subagent = payload["origin"]["subagent"].as_str();
        let is_named = subagent.is_some_and(|name| !name.is_empty());
        assert_eq!(is_named, client.names_subagents, "{payload}");
    }
}
