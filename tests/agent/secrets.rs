//! Shared secrets: commands receive them, and their values are masked in output.

use std::path::Path;

use serde_json::json;

use crate::support::agent_process::AgentProcess;
use crate::support::session::{
    approve_next, collect_output, result_of, send_prompt, start_session,
};

const SECRET_VALUE: &str = "hunter2-and-some-more";

/// Files below a directory that contain the value.
fn files_containing_secret(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_containing_secret(&path));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes
                .windows(SECRET_VALUE.len())
                .any(|window| window == SECRET_VALUE.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn commands_receive_secrets_and_their_output_is_masked() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { shell = "touch a; echo ${#DEPLOY_KEY} ${DEPLOY_KEY:0:3}; echo \"<$DEPLOY_KEY>\"; printf %s ${DEPLOY_KEY:0:5}; sleep 0.1; echo ${DEPLOY_KEY:5}; echo $DEPLOY_KEY >&2", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let agent = agent_process.user.participant.clone();
    let share = json!({
        "key": "DEPLOY_KEY", "scope": [agent], "value_ref": "env:DEPLOY_KEY", "value": SECRET_VALUE,
    });
    ann.send_and_ack("secret.share", share).await;
    send_prompt(&mut ann, &agent, "use it").await;
    let job = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &job).await;
    assert_eq!(result["success"], true, "{result}");
    assert_eq!(
        collect_output(&ann.received, &job, "stdout"),
        format!("{} hun\n<[secret]>\n[secret]\n", SECRET_VALUE.len())
    );
    assert_eq!(collect_output(&ann.received, &job, "stderr"), "[secret]\n");
    for message in &ann.received {
        assert!(!message.to_string().contains(SECRET_VALUE), "{message}");
    }
    // It is not in the journal, the job's output file or the session log.
    assert_eq!(
        files_containing_secret(&agent_process.cli.home()),
        Vec::<String>::new()
    );
    assert_eq!(files_containing_secret(&server.data), Vec::<String>::new());
}
