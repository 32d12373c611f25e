//! The hooks of Codex in the requirements of a machine, which no user and no repository changes.
//!
//! Its other hooks are skipped silently until each user has trusted them, so they are not used.

/// Lines around what is ours.
const BEGIN: &str = "# pvp hook install: begin\n";
const END: &str = "# pvp hook install: end\n";

/// The events that the hook hears.
const EVENTS: [&str; 4] = ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop"];

/// How long a question may wait, and a report may take, in seconds.
const QUESTION_SECONDS: u64 = 2_000_000;
const REPORT_SECONDS: u64 = 120;

/// The requirements with our hooks. The error says why they cannot be added.
pub(super) fn with_hooks(text: &str, command: &str, directory: &str) -> Result<String, String> {
    let before = without_hooks(text);
    let has_hooks = |line: &str| {
        let line = line.trim_start();
        line.starts_with("[hooks") || line.starts_with("[[hooks") || line.starts_with("hooks")
    };
    if before.lines().any(has_hooks) {
        return Err("it has hooks of its own; add those of PVP by hand, or start codex with `pvp run -- codex`".to_owned());
    }
    // The line break belongs to what is added, and is taken out with it.
    let gap = if before.is_empty() { "" } else { "\n" };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut added = format!("{gap}{BEGIN}[hooks]\nmanaged_dir = {}\n", quoted(directory));
    for event in EVENTS {
        let (matcher, seconds) = match event {
            "PreToolUse" => ("matcher = \"*\"\n", QUESTION_SECONDS),
            _ => ("", REPORT_SECONDS),
        };
        added.push_str(&format!(
            "\n[[hooks.{event}]]\n{matcher}\n[[hooks.{event}.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {seconds}\n",
            quoted(command)
        ));
    }
    added.push_str(END);
    Ok(before + &added)
}

/// The requirements as they are without our hooks.
pub(super) fn without_hooks(text: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else {
        return text.to_owned();
    };
    let Some((_, after)) = rest.split_once(END) else {
        return text.to_owned();
    };
    let before = before.strip_suffix('\n').unwrap_or(before);
    format!("{before}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_given_back_to_the_byte() {
        for before in [
            "",
            "# ours\n",
            "allowed_sandbox_modes = [\"read-only\"]",
            "a = 1\n\n",
        ] {
            let after = with_hooks(before, "'/opt/p v/pvp' hook run codex", "/etc/codex").unwrap();
            assert!(after.starts_with(before), "{after}");
            assert_eq!(after.matches("hook run codex").count(), 4, "{after}");
            assert!(after.contains("matcher = \"*\""));
            assert_eq!(without_hooks(&after), before);
            // Installing again changes nothing.
            let again = with_hooks(&after, "'/opt/p v/pvp' hook run codex", "/etc/codex");
            assert_eq!(again.unwrap(), after);
        }
    }

    #[test]
    fn hooks_of_somebody_else_are_left_alone() {
        for text in ["[hooks]\n", "[[hooks.Stop]]\n", "hooks.Stop = []\n"] {
            assert!(with_hooks(text, "x", "/etc/codex").is_err(), "{text}");
            assert_eq!(without_hooks(text), text);
        }
        // Half of it is not ours to cut.
        let half = format!("a = 1\n{BEGIN}");
        assert_eq!(without_hooks(&half), half);
    }
}
