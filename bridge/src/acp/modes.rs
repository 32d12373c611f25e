//! Which modes of an agent ask nobody.

use agent_client_protocol_schema::v1::SessionModeState;

/// Parts of the names of modes in which agents run things without asking, or change files so.
const UNASKED: [&str; 9] = [
    "bypass",
    "yolo",
    "auto",
    "fullaccess",
    "acceptedits",
    "allowall",
    "unrestricted",
    "trust",
    "dangerous",
];

/// Names of modes in which agents ask, the best first.
const PREFERRED: [&str; 6] = ["default", "manual", "ask", "readonly", "agent", "build"];

/// Whether an agent asks before it acts in this mode, as far as the name says.
pub(super) fn asks(mode: &str) -> bool {
    let plain = plain_name(mode);
    !UNASKED.iter().any(|word| plain.contains(word))
}

fn plain_name(mode: &str) -> String {
    // Some are addresses whose last part is the name.
    let name = mode.rsplit(['#', '/']).next().unwrap_or(mode);
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().to_ascii_lowercase()
}

/// The mode to change to before anything is asked of an agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ModeChange<'a> {
    /// It asks already.
    None,
    To(&'a str),
    /// It has no mode in which it asks.
    Impossible(&'a str),
}

pub(super) fn needed_change(modes: &SessionModeState) -> ModeChange<'_> {
    let current = modes.current_mode_id.0.as_ref();
    let available = modes.available_modes.iter().map(|mode| mode.id.0.as_ref());
    let available: Vec<&str> = available.collect();
    choose(current, &available)
}

/// The mode to choose of these.
pub(super) fn choose<'a>(current: &'a str, available: &[&'a str]) -> ModeChange<'a> {
    if asks(current) {
        return ModeChange::None;
    }
    let is = |name: &&str, mode: &&&str| plain_name(mode) == **name;
    let preferred = PREFERRED
        .iter()
        .find_map(|name| available.iter().find(|mode| is(&name, mode)));
    let other = || available.iter().find(|mode| asks(mode));
    match preferred.or_else(other) {
        Some(mode) => ModeChange::To(mode),
        None => ModeChange::Impossible(current),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_ask_nobody_are_known_by_their_names() {
        for mode in [
            "bypassPermissions",
            "yolo",
            "auto",
            "auto_edit",
            "auto-edit",
            "acceptEdits",
            "full-access",
            "https://agentclientprotocol.com/protocol/session-modes#autopilot",
        ] {
            assert!(!asks(mode), "{mode}");
        }
        for mode in [
            "default",
            "plan",
            "read-only",
            "dontAsk",
            "build",
            "https://auto.example/session-modes#agent",
        ] {
            assert!(asks(mode), "{mode}");
        }
    }

    #[test]
    fn an_agent_is_brought_to_a_mode_in_which_it_asks() {
        assert_eq!(choose("default", &["default", "yolo"]), ModeChange::None);
        let claude = ["auto", "plan", "default", "bypassPermissions"];
        assert_eq!(
            choose("bypassPermissions", &claude),
            ModeChange::To("default")
        );
        let codex = ["auto", "full-access", "read-only"];
        assert_eq!(choose("auto", &codex), ModeChange::To("read-only"));
        assert_eq!(choose("yolo", &["yolo"]), ModeChange::Impossible("yolo"));
    }
}
