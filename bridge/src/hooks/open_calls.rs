//! What an agent reads if a client has so many open calls that no other is taken.

use pvp_protocol::MessageId;

use crate::client_files::{CallStage, OpenCall};

/// Open calls that are named; the others are counted.
const MAX_NAMED: usize = 8;

/// Characters of what a call runs.
const MAX_SHOWN_CHARS: usize = 60;

/// Why a call is refused if its client has too many others, which calls run as far as the client has
/// said, and what helps. `message` is the server's.
pub(super) fn too_many_text(message: &str, calls: &[(MessageId, OpenCall)]) -> String {
    let running: Vec<_> = calls
        .iter()
        .filter(|(_, call)| call.stage == CallStage::Running)
        .map(|(_, call)| call_text(call))
        .collect();
    if running.is_empty() {
        return format!("Not allowed: {message}.");
    }
    let mut named = running[..running.len().min(MAX_NAMED)].join(", ");
    if running.len() > MAX_NAMED {
        named.push_str(&format!(" and {} more", running.len() - MAX_NAMED));
    }
    format!(
        "Not allowed: {message}. The client has not said of these calls that they have ended: \
         {named}. If they have, tell the person at the terminal to end the client and start it \
         again: half a minute later they are closed. Nothing was done."
    )
}

fn call_text(call: &OpenCall) -> String {
    let names = ["command", "file_path", "filePath", "path", "pattern", "url"];
    let shown = names
        .iter()
        .find_map(|name| call.input.get(*name)?.as_str());
    let shown: String = shown
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_SHOWN_CHARS)
        .collect();
    match shown.is_empty() {
        true => call.tool.clone(),
        false => format!("{} `{shown}`", call.tool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_client::now;
    use serde_json::json;

    fn call(stage: CallStage, command: &str) -> (MessageId, OpenCall) {
        let call = OpenCall {
            stage,
            conversation: "c".to_owned(),
            tool: "Bash".to_owned(),
            input: json!({ "command": command }).as_object().unwrap().clone(),
            waits_for: None,
            since: now(),
        };
        (MessageId::parse("m1").unwrap(), call)
    }

    #[test]
    fn the_calls_that_run_and_the_remedy_are_named() {
        let waiting = call(CallStage::Waiting, "rm x");
        assert_eq!(
            too_many_text("too many", std::slice::from_ref(&waiting)),
            "Not allowed: too many."
        );
        let mut calls = vec![waiting];
        calls.extend((0..10).map(|number| call(CallStage::Running, &format!("make {number}"))));
        let text = too_many_text("too many", &calls);
        assert!(text.contains("Bash `make 0`, Bash `make 1`"), "{text}");
        assert!(text.contains("Bash `make 7` and 2 more. If"), "{text}");
        assert!(text.contains("start it again") && !text.contains("rm x"));
    }
}
