//! The hooks of Codex in the requirements of a machine, which no user and no repository changes.
//!
//! Its other hooks are skipped silently until each user has trusted them, so they are not used.

use crate::hooks::LONGEST_WAIT_SECONDS;

/// Lines around what is ours.
const BEGIN: &str = "# pvp hook install: begin\n";
const END: &str = "# pvp hook install: end\n";

/// The events that the hook hears.
const EVENTS: [&str; 4] = ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop"];

/// Features that no user may set otherwise: without the first there are no hooks, and no hook is
/// asked when something is typed into a command that runs.
const FEATURES: [(&str, bool); 3] = [
    ("hooks", true),
    ("unified_exec_tty", false),
    ("write_stdin_approval", true),
];

/// How long a report may take, in seconds.
const REPORT_SECONDS: u64 = 120;

/// The requirements with our hooks. The error says why they cannot be added.
pub(super) fn with_hooks(text: &str, command: &str, directory: &str) -> Result<String, String> {
    let before = without_hooks(text);
    let settings: toml::Table = before
        .parse()
        .map_err(|error: toml::de::Error| format!("it cannot be read: {}", error.message()))?;
    if settings.contains_key("hooks") {
        return Err("it has hooks of its own; add those of PVP by hand, or start codex with `pvp run -- codex`".to_owned());
    }
    let features = feature_lines(settings.get("features"))?;
    // The line break belongs to what is added, and is taken out with it.
    let gap = if before.is_empty() { "" } else { "\n" };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let directory = quoted(directory);
    let mut added = format!("{gap}{BEGIN}{features}[hooks]\nmanaged_dir = {directory}\n");
    for event in EVENTS {
        let (matcher, seconds) = match event {
            "PreToolUse" => ("matcher = \"*\"\n", LONGEST_WAIT_SECONDS),
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

/// The lines that hold every user to the features that the hooks need. The error says what the
/// features that are there already lack.
fn feature_lines(present: Option<&toml::Value>) -> Result<String, String> {
    let line = |(name, on): (&str, bool)| format!("{name} = {on}\n");
    let Some(present) = present else {
        let lines: String = FEATURES.into_iter().map(line).collect();
        return Ok(format!("[features]\n{lines}\n"));
    };
    let is_so = |(name, on): &(&str, bool)| present.get(name) == Some(&toml::Value::Boolean(*on));
    let missing: String = FEATURES
        .into_iter()
        .filter(|it| !is_so(it))
        .map(line)
        .collect();
    match missing.is_empty() {
        true => Ok(String::new()),
        false => Err(format!(
            "it has `[features]` of its own, which must say this too:\n{missing}add it and try again"
        )),
    }
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
            let read: toml::Table = after.parse().unwrap();
            assert_eq!(read["features"]["hooks"], toml::Value::Boolean(true));
            let typing = &read["features"]["unified_exec_tty"];
            assert_eq!(*typing, toml::Value::Boolean(false));
            assert_eq!(without_hooks(&after), before);
            // Installing again changes nothing.
            let again = with_hooks(&after, "'/opt/p v/pvp' hook run codex", "/etc/codex");
            assert_eq!(again.unwrap(), after);
        }
    }

    #[test]
    fn features_that_are_there_must_hold_the_hooks() {
        let with = |features: &str| with_hooks(features, "x", "/etc/codex");
        let refused = with("[features]\nhooks = true\napps = false\n").unwrap_err();
        assert!(
            refused.contains("\nunified_exec_tty = false\n"),
            "{refused}"
        );
        assert!(!refused.contains("hooks = true"), "{refused}");
        let all =
            "[features]\nhooks = true\nunified_exec_tty = false\nwrite_stdin_approval = true\n";
        let after = with(all).unwrap();
        assert_eq!(after.matches("[features]").count(), 1, "{after}");
        assert_eq!(without_hooks(&after), all);
    }

    #[test]
    fn hooks_of_somebody_else_are_left_alone() {
        for text in [
            "[hooks]\n",
            "[[hooks.Stop]]\n",
            "hooks.Stop = []\n",
            "[ hooks ]\n",
            "[\"hooks\".x]\n",
            "'hooks' = {}\n",
            "not toml",
            "[features]\nhooks = false\n",
        ] {
            assert!(with_hooks(text, "x", "/etc/codex").is_err(), "{text}");
            assert_eq!(without_hooks(text), text);
        }
        // Half of it is not ours to cut.
        let half = format!("a = 1\n{BEGIN}");
        assert_eq!(without_hooks(&half), half);
    }
}
