//! A session's configuration: the fields of the published protocol and this server's extensions.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::suggestion::{suggest_in, unknown_name};
use crate::{Category, ExtraFields, JsonObject, Limits, QuorumRule, SandboxProfile, ToolCategory};

wire_enums! {
    /// The order in which messages are delivered. The server always gives a total order.
    pub enum OrderingMode {
        Causal,
        Total,
    }

    /// What happens to decisions when a participant is away, silent for `away_timeout_seconds`.
    pub enum ParticipantTimeoutAction {
        /// Gates keep waiting for them.
        Wait,
        /// Gates do not count them until they are back.
        Skip,
        /// Nothing starts and nothing is granted until they are back.
        PauseSession,
    }

    /// What happens when a gate's deadline passes.
    pub enum GateTimeoutAction {
        Reject,
        /// Asks the admins, with the same timeout again, and then rejects.
        Escalate,
        /// Approves without votes; only for commands of the category write.
        AutoApprove,
    }

    /// Whether people may run their own commands.
    pub enum ShellExecMode {
        /// Reads run at once, and writes that the person could approve alone; other commands need a
        /// gate.
        Direct,
        /// Reads run at once, and whatever else the person could approve alone; blocked commands
        /// stay blocked.
        DirectAll,
        /// Every command needs a gate.
        Gated,
        /// People may not run commands.
        Off,
    }

    /// What happens to reads that an agent client runs by itself, where no sandbox holds them.
    pub enum ClientReads {
        /// Each needs a gate.
        Ask,
        /// Those inside the client's workspace run without a vote.
        Workspace,
    }
}

wire_structs! {
    /// The quorum of a category, where it differs from the default.
    #[derive(Default)]
    pub struct QuorumByCategory {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub write: Option<QuorumRule>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub destructive: Option<QuorumRule>,
        /// The quorums of kinds of tools; `all` is for the kinds that have none of their own.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(flatten))]
        pub tools: BTreeMap<ToolCategory, QuorumRule>,
    }
}

/// Defines the configuration and the set of changes to it from one list of fields.
macro_rules! session_config {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr;)*) => {
        wire_structs! {
            /// How a session behaves.
            #[serde(default)]
            pub struct SessionConfig {
                $($(#[$doc])* pub $field: $type,)*
                #[serde(flatten)]
                #[cfg_attr(feature = "generate", ts(skip))]
                pub extra: ExtraFields,
            }

            /// Changes to a configuration; fields that are not given keep their value.
            #[derive(Default)]
            pub struct ConfigChanges {
                $(
                    $(#[$doc])*
                    #[serde(skip_serializing_if = "Option::is_none")]
                    pub $field: Option<$type>,
                )*
                #[serde(flatten)]
                #[cfg_attr(feature = "generate", ts(skip))]
                pub extra: ExtraFields,
            }
        }

        impl Default for SessionConfig {
            fn default() -> Self {
                Self { $($field: $default,)* extra: ExtraFields::new() }
            }
        }

        impl ConfigChanges {
            /// Adds other changes, which override these.
            pub fn merge(&mut self, other: ConfigChanges) {
                $(if other.$field.is_some() {
                    self.$field = other.$field;
                })*
                self.extra.extend(other.extra);
            }
        }

        impl SessionConfig {
            /// The names of all fields.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

            /// This configuration with the changes applied.
            pub fn with_changes(mut self, changes: &ConfigChanges) -> Self {
                $(if let Some(value) = &changes.$field {
                    self.$field = value.clone();
                })*
                self.extra.extend(changes.extra.clone());
                self
            }
        }
    };
}

session_config! {
    /// Tool categories that always need a gate, whatever the assessment.
    require_approval_for: Vec<ToolCategory> = Vec::new();
    /// The quorum of a gate unless its category or rule sets another.
    default_gate_quorum: QuorumRule = QuorumRule::Any { count: 1 };
    /// Whether forks are allowed; has no effect yet, because the server refuses all forks.
    allow_forks: bool = true;
    /// How many participants may be in the session at once.
    max_participants: u32 = 10;
    /// The requested order of delivery; has no effect, because the order is always total.
    ordering_mode: OrderingMode = OrderingMode::Causal;
    /// What happens to decisions while a participant is away.
    on_participant_timeout: ParticipantTimeoutAction = ParticipantTimeoutAction::Skip;
    /// Seconds between heartbeat pings.
    heartbeat_interval_seconds: u32 = 30;
    /// Seconds without activity after which a participant is idle.
    idle_timeout_seconds: u32 = 120;
    /// Seconds of silence after which a participant is away.
    away_timeout_seconds: u32 = 300;
    /// Quorums that differ from the default, by the category of the command.
    quorum_by_category: QuorumByCategory = QuorumByCategory::default();
    /// Seconds until a gate's deadline; 0 means that gates have none.
    gate_timeout_seconds: u32 = 300;
    /// What happens when a gate's deadline passes.
    on_gate_timeout: GateTimeoutAction = GateTimeoutAction::Reject;
    /// Whether people may run their own commands.
    shell_exec: ShellExecMode = ShellExecMode::Direct;
    /// Whoever amends a command may not vote on it.
    four_eyes: bool = false;
    /// People may approve their own commands, for a session with one person in it. An agent's
    /// commands still need somebody else, because agents do not vote.
    solo: bool = false;
    /// Where more than one approval is needed, do not count that of a participant whom another
    /// counted approver or the owner of the proposal invited during the session.
    quorum_independent: bool = true;
    /// Reads run without a vote even if the executor cannot sandbox them.
    trust_reads: bool = false;
    /// What happens to reads that an agent client runs by itself, where no sandbox holds them.
    client_reads: ClientReads = ClientReads::Ask;
    /// Commands that nothing is known about are tried in the read sandbox, and need a vote only if
    /// it denies them something.
    try_unknown: bool = false;
    /// The sandbox of approved commands: `none` or `workspace`.
    profile: SandboxProfile = SandboxProfile::None;
    /// Directories beside the executor's own that may be read without a vote, as absolute paths.
    read_roots: Vec<String> = Vec::new();
}

/// The longest timeout, one year. It keeps arithmetic on deadlines far from overflow.
const MAX_TIMEOUT_SECONDS: u32 = 31_536_000;

impl QuorumByCategory {
    /// The quorum for what this category of command does, and for the kind of tool that does it;
    /// `default` where none is set. A kind that is known takes the place of `write`; one that the
    /// agent only states can ask for more, never for less.
    pub fn find(&self, category: Category, kind: ToolKind, default: &QuorumRule) -> QuorumRule {
        let by_severity = match category {
            Category::Destructive => self.destructive.as_ref(),
            Category::Write => self.write.as_ref(),
            Category::Read | Category::Blocked => None,
        };
        let of_all = self.tools.get(&ToolCategory::All);
        let (known, stated) = match kind {
            ToolKind::Known(tool) => (self.tools.get(&tool), None),
            ToolKind::Stated(tool) => (None, self.tools.get(&tool)),
        };
        let base = match category {
            Category::Destructive => by_severity.or(known),
            Category::Read | Category::Write | Category::Blocked => known.or(by_severity),
        };
        let base = base.or(of_all).unwrap_or(default);
        match stated {
            Some(stated) => base.stricter(stated).clone(),
            None => base.clone(),
        }
    }
}

/// The kind of a tool, and how it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ToolKind {
    /// Its name says it.
    Known(ToolCategory),
    /// Only its agent says it.
    Stated(ToolCategory),
}

impl ToolKind {
    /// The kind of commands that a shell runs.
    pub const SHELL: Self = ToolKind::Known(ToolCategory::ShellExecute);
}

impl SessionConfig {
    /// Checks every field; the error names the field and its allowed values.
    pub fn validate(&self, limits: &Limits) -> Result<(), String> {
        let check_range = |name: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("`{name}` is {value}; use {least} to {most}"))
            }
        };
        let check_quorum = |name: &str, rule: &QuorumRule| {
            rule.validate()
                .map_err(|problem| format!("`{name}`: {problem}"))
        };
        check_range(
            "max_participants",
            self.max_participants,
            1,
            limits.participants,
        )?;
        check_range(
            "heartbeat_interval_seconds",
            self.heartbeat_interval_seconds,
            1,
            3600,
        )?;
        check_range(
            "idle_timeout_seconds",
            self.idle_timeout_seconds,
            1,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_range(
            "away_timeout_seconds",
            self.away_timeout_seconds,
            1,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_range(
            "gate_timeout_seconds",
            self.gate_timeout_seconds,
            0,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_quorum("default_gate_quorum", &self.default_gate_quorum)?;
        for (name, quorum) in [
            ("quorum_by_category.write", &self.quorum_by_category.write),
            (
                "quorum_by_category.destructive",
                &self.quorum_by_category.destructive,
            ),
        ] {
            quorum
                .as_ref()
                .map_or(Ok(()), |quorum| check_quorum(name, quorum))?;
        }
        for (tool, quorum) in &self.quorum_by_category.tools {
            check_quorum(&format!("quorum_by_category.{tool}"), quorum)?;
        }
        if self.solo && self.four_eyes {
            return Err(
                "`solo` lets people approve their own commands, and `four_eyes` forbids it; set \
                 one of them"
                    .to_owned(),
            );
        }
        match self.profile {
            SandboxProfile::None | SandboxProfile::Workspace => Ok(()),
            SandboxProfile::Read | SandboxProfile::ReadNet => {
                Err("`profile` for approved commands is `none` or `workspace`".to_owned())
            }
        }
    }
}

/// Refuses fields that no configuration has, in a configuration or in changes to one. A typing error
/// in the name of a quorum would otherwise mean that there is none.
///
/// Logs and servers are read without this check, because they may come from a later version.
pub fn check_config_fields(config: &JsonObject) -> Result<(), String> {
    for (name, value) in config {
        if !SessionConfig::FIELDS.contains(&name.as_str()) {
            return Err(unknown_name("session setting", name, SessionConfig::FIELDS));
        }
        match name.as_str() {
            "default_gate_quorum" => check_quorum_fields(name, value)?,
            "quorum_by_category" => check_quorums(name, value)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_quorums(name: &str, quorums: &Value) -> Result<(), String> {
    let tools = ToolCategory::ALL.iter().map(|tool| tool.as_str());
    let categories: Vec<_> = ["write", "destructive"].into_iter().chain(tools).collect();
    for (category, quorum) in quorums.as_object().into_iter().flatten() {
        if !categories.contains(&category.as_str()) {
            let problem = unknown_name("category with a quorum", category, &categories);
            return Err(format!("`{name}`: {problem}"));
        }
        check_quorum_fields(&format!("{name}.{category}"), quorum)?;
    }
    Ok(())
}

/// Checks the names in a quorum rule; its values are checked when it is parsed.
fn check_quorum_fields(name: &str, quorum: &Value) -> Result<(), String> {
    // Where a quorum may be left out, it may be null.
    if quorum.is_null() {
        return Ok(());
    }
    let Some(fields) = quorum.as_object() else {
        return Err(format!(
            "`{name}` is {quorum}; write a quorum as {}",
            QuorumRule::EXAMPLE
        ));
    };
    let kind = fields.get("type").and_then(Value::as_str);
    let known: &[&str] = match kind {
        Some("any") => &["type", "count"],
        Some("role") => &["type", "role", "count"],
        Some("specific") => &["type", "participants"],
        Some("all" | "majority") => &["type"],
        Some(other) => {
            let kinds = ["any", "all", "role", "specific", "majority"];
            let problem = unknown_name("type of quorum", other, &kinds);
            return Err(format!("`{name}`: {problem}"));
        }
        None => {
            return Err(format!(
                "`{name}`: missing field `type`; write a quorum as {}",
                QuorumRule::EXAMPLE
            ));
        }
    };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => {
            let problem = unknown_name("field in this type of quorum", unknown, known);
            Err(format!("`{name}`: {problem}"))
        }
        None => Ok(()),
    }
}

/// Parses a configuration from a client, which must not have unknown fields.
pub(crate) fn parse_strictly<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<SessionConfig, D::Error> {
    use serde::de::{Deserialize, Error};
    let crate::UniqueFields(fields) = crate::UniqueFields::deserialize(deserializer)?;
    check_config_fields(&fields).map_err(D::Error::custom)?;
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let problem = suggest_in(&error.inner().to_string());
        D::Error::custom(format!("`{}`: {problem}", error.path()))
    })
}

impl GateTimeoutAction {
    /// What the deadline of one gate really does: a clock approves nothing destructive, and a gate
    /// goes to the admins once.
    pub fn for_gate(self, category: Category, escalated: bool) -> Self {
        let impossible = match self {
            GateTimeoutAction::AutoApprove => category > Category::Write,
            GateTimeoutAction::Escalate => escalated,
            GateTimeoutAction::Reject => false,
        };
        if impossible { Self::Reject } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deadline_approves_nothing_destructive_and_escalates_once() {
        use GateTimeoutAction::{AutoApprove, Escalate, Reject};
        for (action, category, escalated, really) in [
            (AutoApprove, Category::Write, false, AutoApprove),
            (AutoApprove, Category::Destructive, false, Reject),
            (Escalate, Category::Destructive, false, Escalate),
            (Escalate, Category::Write, true, Reject),
            (Reject, Category::Read, false, Reject),
        ] {
            assert_eq!(action.for_gate(category, escalated), really);
        }
    }

    #[test]
    fn a_published_configuration_is_parsed_and_missing_fields_get_defaults() {
        let config: SessionConfig = serde_json::from_value(json!({
            "require_approval_for": ["deploy"], "default_gate_quorum": {"type": "role", "role": "navigator", "count": 2},
            "allow_forks": false, "max_participants": 3, "ordering_mode": "total",
            "on_participant_timeout": "wait", "heartbeat_interval_seconds": 10,
            "idle_timeout_seconds": 20, "away_timeout_seconds": 30, "from_the_future": true
        }))
        .unwrap();
        assert_eq!(config.max_participants, 3);
        assert_eq!(config.gate_timeout_seconds, 300);
        assert_eq!(config.extra["from_the_future"], json!(true));
        assert_eq!(config.validate(&Limits::default()), Ok(()));
    }

    #[test]
    fn a_setting_that_is_given_twice_is_refused() {
        let parse = |text: &str| parse_strictly(&mut serde_json::Deserializer::from_str(text));
        for twice in [
            r#"{"solo": false, "solo": true}"#,
            r#"{"default_gate_quorum": {"type": "any", "count": 3, "count": 1}}"#,
        ] {
            let error = parse(twice).unwrap_err().to_string();
            assert!(error.contains("is given twice"), "{error}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_one() {
        let problem = |config: Value| {
            let fields = config.as_object().expect("an object").clone();
            check_config_fields(&fields).expect_err("it has an unknown field")
        };
        let any = json!({"type": "any", "count": 2});
        for (config, expected) in [
            (
                json!({"default_gate_quorm": any}),
                "there is no session setting `default_gate_quorm`; did you mean `default_gate_quorum`?",
            ),
            (
                json!({"quorum": 2}),
                "there is no session setting `quorum`; did you mean `default_gate_quorum`?",
            ),
            (
                json!({"default_gate_quorum": 2}),
                "`default_gate_quorum` is 2; write a quorum as {\"type\": \"any\", \"count\": 2}",
            ),
            (
                json!({"default_gate_quorum": {"count": 2}}),
                "`default_gate_quorum`: missing field `type`; write a quorum as {\"type\": \"any\", \"count\": 2}",
            ),
            (
                json!({"default_gate_quorum": {"type": "anny", "count": 2}}),
                "`default_gate_quorum`: there is no type of quorum `anny`; did you mean `any`?",
            ),
            (
                json!({"default_gate_quorum": {"type": "any", "counts": 2}}),
                "`default_gate_quorum`: there is no field in this type of quorum `counts`; did you mean `count`?",
            ),
            (
                json!({"quorum_by_category": {"destructiv": any}}),
                "`quorum_by_category`: there is no category with a quorum `destructiv`; did you mean `destructive`?",
            ),
            (
                json!({"quorum_by_category": {"write": {"type": "role", "rolle": "admin", "count": 1}}}),
                "`quorum_by_category.write`: there is no field in this type of quorum `rolle`; did you mean `role`?",
            ),
        ] {
            assert_eq!(problem(config), expected);
        }
    }

    #[test]
    fn every_field_of_a_configuration_is_known() {
        let mut config = SessionConfig::default();
        config.quorum_by_category.write = Some(QuorumRule::Majority);
        let Ok(Value::Object(fields)) = serde_json::to_value(&config) else {
            panic!("a configuration is an object");
        };
        assert_eq!(check_config_fields(&fields), Ok(()));
        assert_eq!(fields.len(), SessionConfig::FIELDS.len());
        for quorum in [
            QuorumRule::Any { count: 1 },
            QuorumRule::All,
            QuorumRule::Role {
                role: crate::Role::Admin,
                count: 1,
            },
            QuorumRule::Specific {
                participants: Vec::new(),
            },
            QuorumRule::Majority,
        ] {
            let quorum = serde_json::to_value(quorum).expect("plain data");
            assert_eq!(check_quorum_fields("q", &quorum), Ok(()));
        }
    }

    #[test]
    fn an_error_names_the_invalid_field_and_its_range() {
        let bad = |changes: serde_json::Value| {
            let changes: ConfigChanges = serde_json::from_value(changes).unwrap();
            SessionConfig::default()
                .with_changes(&changes)
                .validate(&Limits::default())
                .unwrap_err()
        };
        assert_eq!(
            bad(json!({"heartbeat_interval_seconds": 0})),
            "`heartbeat_interval_seconds` is 0; use 1 to 3600"
        );
        assert_eq!(
            bad(json!({"max_participants": 201})),
            "`max_participants` is 201; use 1 to 200"
        );
        assert!(bad(json!({"default_gate_quorum": {"type": "any", "count": 0}})).contains("count"));
        assert!(
            bad(json!({"quorum_by_category": {"write": {"type": "specific", "participants": []}}}))
                .contains("write")
        );
        assert!(bad(json!({"profile": "read"})).contains("profile"));
        assert!(bad(json!({"solo": true, "four_eyes": true})).contains("four_eyes"));
    }
}
