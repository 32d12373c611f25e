//! Which modes of an agent ask nobody.

use agent_client_protocol_schema::v1::{SessionMode, SessionModeState};

/// Parts of the names of modes in which agents run things without asking, or change files so.
const UNASKED: [&str; 10] = [
    "bypass",
    "yolo",
    "auto",
    "fullaccess",
    "workspacewrite",
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModeChange<'a> {
    /// It asks already.
    None,
    To(&'a str),
    /// It has no mode in which it asks.
    Impossible(&'a str),
}

pub(super) fn needed_change(modes: &SessionModeState) -> ModeChange<'_> {
    let current = modes.current_mode_id.0.as_ref();
    let asking = modes.available_modes.iter().filter(|mode| mode_asks(mode));
    let asking: Vec<&str> = asking.map(|mode| mode.id.0.as_ref()).collect();
    let is_known = modes
        .available_modes
        .iter()
        .any(|mode| mode.id.0.as_ref() == current);
    if asking.contains(&current) || (!is_known && asks(current)) {
        return ModeChange::None;
    }
    let is = |name: &str, mode: &&&str| plain_name(mode) == name;
    let preferred = PREFERRED
        .iter()
        .find_map(|name| asking.iter().find(|mode| is(name, mode)));
    match preferred.or_else(|| asking.first()) {
        Some(mode) => ModeChange::To(mode),
        None => ModeChange::Impossible(current),
    }
}

/// Whether an agent asks in this mode. Codex calls one `agent` and means `Auto review`.
pub(super) fn mode_asks(mode: &SessionMode) -> bool {
    asks(&mode.id.0) && asks(&mode.name)
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

    fn state(current: &str, available: &[(&str, &str)]) -> SessionModeState {
        let modes = available.iter();
        let modes = modes.map(|(id, name)| SessionMode::new((*id).to_owned(), *name));
        SessionModeState::new(current.to_owned(), modes.collect())
    }

    #[test]
    fn an_agent_is_brought_to_a_mode_in_which_it_asks() {
        let gemini = [("default", "Default"), ("yolo", "YOLO")];
        let asking = state("default", &gemini);
        assert_eq!(needed_change(&asking), ModeChange::None);
        let open = state("yolo", &gemini);
        assert_eq!(needed_change(&open), ModeChange::To("default"));
        let codex = [
            ("read-only", "Read-only"),
            ("workspace-write", "Workspace access"),
            ("agent", "Auto review"),
            ("agent-full-access", "Full access"),
        ];
        for current in ["agent", "workspace-write", "agent-full-access"] {
            let state = state(current, &codex);
            assert_eq!(
                needed_change(&state),
                ModeChange::To("read-only"),
                "{current}"
            );
        }
        let open = state("yolo", &[("yolo", "YOLO")]);
        assert_eq!(needed_change(&open), ModeChange::Impossible("yolo"));
    }
}
