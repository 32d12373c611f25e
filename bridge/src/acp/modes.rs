//! Which modes of an agent ask nobody.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol_schema::v1::{SessionMode, SessionModeState};
use serde_json::{Value, json};

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
fn asks(mode: &str) -> bool {
    let plain = plain_name(mode);
    !UNASKED.iter().any(|word| plain.contains(word))
}

fn plain_name(mode: &str) -> String {
    // Some are addresses whose last part is the name.
    let name = mode.rsplit(['#', '/']).next().unwrap_or(mode);
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().to_ascii_lowercase()
}

/// What has to be changed so that an agent asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingChange {
    Mode(String),
    /// An option that is a mode by another name.
    Option {
        id: String,
        value: Value,
    },
}

impl SettingChange {
    /// The request that makes the change in a conversation.
    pub(super) fn request(&self, session: &str) -> (&'static str, Value) {
        match self {
            Self::Mode(mode) => (
                "session/set_mode",
                json!({ "sessionId": session, "modeId": mode }),
            ),
            Self::Option { id, value } => (
                "session/set_config_option",
                json!({ "sessionId": session, "configId": id, "value": value }),
            ),
        }
    }

    /// The mode, or the option.
    fn name(&self) -> &str {
        match self {
            Self::Mode(name) | Self::Option { id: name, .. } => name,
        }
    }

    /// Notes the change in the answer that says how a conversation was opened.
    pub(super) fn note_in(&self, opened: &mut Value) {
        match self {
            Self::Mode(mode) => opened["modes"]["currentModeId"] = mode.as_str().into(),
            Self::Option { id, value } => {
                let options = opened["configOptions"].as_array_mut();
                let mut options = options.into_iter().flatten();
                if let Some(option) = options.find(|option| option["id"] == **id) {
                    option["currentValue"] = value.clone();
                }
            }
        }
    }
}

/// What has to be changed in a conversation that was just opened. The error is the mode in which the
/// agent asks nobody and which it has no other for.
pub(super) fn needed_changes(opened: &Value) -> Result<Vec<SettingChange>, String> {
    let modes = serde_json::from_value::<SessionModeState>(opened["modes"].clone());
    let mode = match modes.as_ref().map(needed_change) {
        Ok(ModeChange::To(mode)) => Some(SettingChange::Mode(mode.to_owned())),
        Ok(ModeChange::Impossible(mode)) => return Err(mode.to_owned()),
        Ok(ModeChange::None) | Err(_) => None,
    };
    let options = opened["configOptions"].as_array().into_iter().flatten();
    let options = options.filter_map(|option| option_change(option).transpose());
    mode.map(Ok).into_iter().chain(options).collect()
}

/// Whether an option may be a mode by another name.
pub(super) fn decides(option: &str, category: &str) -> bool {
    // Which model it is decides nothing.
    let option = option.to_lowercase().replace("model", "");
    let words = ["mode", "permission", "approval", "sandbox", "allow"];
    category == "mode" || words.iter().any(|word| option.contains(word))
}

/// How an option has to be set so that the agent asks; `None` if it is set so.
fn option_change(option: &Value) -> Result<Option<SettingChange>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (id, category) = (text(&option["id"]), text(&option["category"]));
    if !decides(&id, &category) {
        return Ok(None);
    }
    let current = match &option["currentValue"] {
        Value::Bool(true) if !asks(&format!("allowall{id}")) => {
            let value = false.into();
            return Ok(Some(SettingChange::Option { id, value }));
        }
        Value::String(current) => current,
        _ => return Ok(None),
    };
    // They may be in groups.
    let choices = option["options"].as_array().into_iter().flatten();
    let choices = choices.flat_map(|choice| match choice["options"].as_array() {
        Some(group) => group.iter().collect(),
        None => vec![choice],
    });
    let modes =
        choices.map(|choice| SessionMode::new(text(&choice["value"]), text(&choice["name"])));
    let state = SessionModeState::new(current.clone(), modes.collect());
    match needed_change(&state) {
        ModeChange::None => Ok(None),
        ModeChange::To(value) => {
            let value = value.into();
            Ok(Some(SettingChange::Option { id, value }))
        }
        ModeChange::Impossible(mode) => Err(mode.to_owned()),
    }
}

/// Modes that are remembered.
const MAX_KNOWN: usize = 256;

/// What is known about the modes of an agent.
#[derive(Debug, Default)]
pub(super) struct KnownModes {
    /// Modes in which it asks nobody, as their names say.
    open: BTreeSet<String>,
    /// The last mode in which it asked, by conversation.
    asking: BTreeMap<String, String>,
    /// What has to be changed so that it asks again, by conversation.
    back: BTreeMap<String, Vec<SettingChange>>,
}

impl KnownModes {
    /// Notes which modes a conversation has that was opened.
    pub(super) fn note(&mut self, session: &str, opened: &Value) {
        let modes = serde_json::from_value::<SessionModeState>(opened["modes"].clone());
        let Ok(modes) = modes else {
            return;
        };
        let open = modes.available_modes.iter().filter(|mode| !mode_asks(mode));
        let room = MAX_KNOWN.saturating_sub(self.open.len());
        self.open
            .extend(open.take(room).map(|mode| mode.id.0.to_string()));
        let asking = match needed_change(&modes) {
            ModeChange::None => modes.current_mode_id.0.as_ref(),
            ModeChange::To(mode) => mode,
            ModeChange::Impossible(_) => return,
        };
        self.remember(session, asking);
    }

    fn remember(&mut self, session: &str, mode: &str) {
        if self.asking.len() < MAX_KNOWN || self.asking.contains_key(session) {
            self.asking.insert(session.to_owned(), mode.to_owned());
        }
    }

    /// Whether an agent asks in this mode, as far as it is known.
    pub(super) fn asks(&self, mode: &str) -> bool {
        asks(mode) && !self.open.contains(mode)
    }

    /// Notes that an agent says in which mode it is; returns one in which it asks nobody.
    pub(super) fn on_update(&mut self, session: &str, update: &Value) -> Option<String> {
        let (left, back) = match update["sessionUpdate"].as_str()? {
            "current_mode_update" => {
                let mode = update["currentModeId"].as_str()?;
                if self.asks(mode) {
                    self.remember(session, mode);
                    return None;
                }
                let known = self.asking.get(session).cloned();
                let known = known.unwrap_or_else(|| PREFERRED[0].to_owned());
                (mode.to_owned(), vec![SettingChange::Mode(known)])
            }
            "config_option_update" => match needed_changes(update) {
                Ok(changes) if changes.is_empty() => return None,
                Ok(changes) => (changes[0].name().to_owned(), changes),
                Err(mode) => (mode, Vec::new()),
            },
            _ => return None,
        };
        if self.back.len() < MAX_KNOWN {
            self.back.insert(session.to_owned(), back);
        }
        Some(left)
    }

    /// What has to be changed so that an agent asks again in this conversation.
    pub(super) fn take_back(&mut self, session: &str) -> Vec<SettingChange> {
        self.back.remove(session).unwrap_or_default()
    }
}

/// The mode to change to before anything is asked of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeChange<'a> {
    /// It asks already.
    None,
    To(&'a str),
    /// It has no mode in which it asks.
    Impossible(&'a str),
}

fn needed_change(modes: &SessionModeState) -> ModeChange<'_> {
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
fn mode_asks(mode: &SessionMode) -> bool {
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
