//! Which calls a client runs unasked if the hook that asks about them crashes.

use serde::{Deserialize, Serialize};

use super::HookClient;
use crate::launch::gemini;

/// The first Claude Code that blocks a call when its hook fails and the hook says so.
const CLAUDE_THAT_BLOCKS: [u64; 3] = [2, 1, 295];

/// How a client came to its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HooksFrom {
    /// `pvp run` gave them to it, with all that stands behind them.
    #[default]
    PvpRun,
    /// They are in its own settings.
    OwnSettings,
}

impl HookClient {
    /// Whether this client, at this version, runs a call of this tool if its hook crashes.
    pub fn fails_open(self, version: Option<&str>, from: HooksFrom, tool: &str) -> bool {
        match (self, from) {
            (HookClient::Claude, _) => !claude_blocks(version),
            // Its app-server needs no hooks, so these are in its requirements.
            (HookClient::Codex, _) => true,
            // A policy takes its other tools away, or leaves them to its own prompt.
            (HookClient::Gemini, HooksFrom::PvpRun) => gemini::is_allowed_by_policy(tool),
            (HookClient::Gemini, HooksFrom::OwnSettings) => true,
            (HookClient::OpenCode | HookClient::Copilot, _) => false,
        }
    }

    /// What a person should know before they start this version; `None` if there is nothing.
    pub fn version_warning(self, version: Option<&str>) -> Option<String> {
        if self != HookClient::Claude || claude_blocks(version) {
            return None;
        }
        let name = self.name();
        let least = CLAUDE_THAT_BLOCKS
            .map(|number| number.to_string())
            .join(".");
        let which = match version {
            Some(version) => format!("{name} {version} is older than {least}, so"),
            None => format!("{name} does not say its version; before {least}"),
        };
        Some(format!(
            "{which} a call runs unasked if the hook that asks about it crashes; update it, or switch its own tools off and give it those of `pvp mcp`"
        ))
    }
}

/// Whether this version of Claude Code blocks a call when its hook fails. Who does not say their
/// version may be an old one.
fn claude_blocks(version: Option<&str>) -> bool {
    let Some(version) = version else {
        return false;
    };
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Option<Vec<u64>> = release.split('.').map(|it| it.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() >= CLAUDE_THAT_BLOCKS.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_claude_fails_open_and_one_of_unknown_version_may() {
        let opens = |version| HookClient::Claude.fails_open(version, HooksFrom::PvpRun, "Bash");
        for closed in ["2.1.295", "2.1.325", "2.2.0", "3.0", "2.1.300-beta.1"] {
            assert!(!opens(Some(closed)), "{closed}");
            assert_eq!(HookClient::Claude.version_warning(Some(closed)), None);
        }
        for open in ["2.1.294", "2.1.99", "2.0.999", "1.9.400", "2.1", "two", ""] {
            assert!(opens(Some(open)), "{open}");
            let warning = HookClient::Claude.version_warning(Some(open)).unwrap();
            assert!(warning.contains("2.1.295") && warning.contains("pvp mcp"));
        }
        assert!(opens(None));
        let warning = HookClient::Claude.version_warning(None).unwrap();
        assert!(warning.contains("does not say its version"), "{warning}");
        assert_eq!(HookClient::Codex.version_warning(None), None);
    }

    #[test]
    fn what_is_installed_may_be_weaker_than_pvp_run() {
        let opens = |client: HookClient, from, tool| client.fails_open(Some("9.9.9"), from, tool);
        for (client, from, tool, expected) in [
            (HookClient::Gemini, HooksFrom::PvpRun, "read_file", true),
            (HookClient::Gemini, HooksFrom::PvpRun, "web_fetch", false),
            (HookClient::Gemini, HooksFrom::PvpRun, "write_file", false),
            (
                HookClient::Gemini,
                HooksFrom::OwnSettings,
                "write_file",
                true,
            ),
            (HookClient::Codex, HooksFrom::OwnSettings, "Bash", true),
            (HookClient::OpenCode, HooksFrom::OwnSettings, "bash", false),
            (HookClient::Copilot, HooksFrom::OwnSettings, "bash", false),
            (HookClient::Claude, HooksFrom::OwnSettings, "Bash", false),
        ] {
            assert_eq!(opens(client, from, tool), expected, "{client:?} {tool}");
        }
    }
}
