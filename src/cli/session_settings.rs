//! The flags that set up a session: how many approvals, by whom, and every other setting.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Args;
use pvp_protocol::suggestion::unknown_name;
use pvp_protocol::{
    ConfigChanges, JsonObject, ParticipantId, QuorumRule, Role, SessionConfig, ToolCategory,
    UniqueFields, check_config_fields,
};
use serde_json::Value;

/// The flags that `pvp up`, `pvp create` and `pvp session set` share.
#[derive(Args, Clone, Default)]
pub(crate) struct SettingsArguments {
    /// How many approvals a command needs: a number, or one for each kind of command or tool, such
    /// as destructive=2,write=1 or deploy=2 [default: 1]
    #[arg(long, value_name = "N")]
    approvals: Option<Approvals>,
    /// Whose approvals count: anyone, role:ROLE, all, majority, or participants such as
    /// ann-1a2b3c4d,bob-5e6f7a8b [default: anyone who may approve]
    #[arg(long, value_name = "WHO")]
    approvers: Option<ApproverSet>,
    /// Let one person approve their own commands; an agent's commands still need a person
    #[arg(long)]
    solo: bool,
}

impl SettingsArguments {
    /// What the flags change in a session with these settings, on top of other changes to it.
    pub(crate) fn changes(
        &self,
        mut settings: JsonObject,
        current: &SessionConfig,
    ) -> anyhow::Result<ConfigChanges> {
        if let Some(quorums) = self.quorums(current)? {
            for (name, quorum) in quorums {
                settings.insert(name.to_owned(), quorum);
            }
        }
        if self.solo {
            settings.insert("solo".to_owned(), true.into());
        }
        parse_changes(settings)
    }

    /// The configuration of a session that is made with these flags and this file or JSON, if any.
    pub(crate) fn config(&self, file_or_json: Option<&str>) -> anyhow::Result<SessionConfig> {
        let default = SessionConfig::default();
        let settings = read_optional(file_or_json)?;
        let changes = self.changes(settings, &default)?;
        Ok(default.with_changes(&changes))
    }

    /// The settings that `--approvals` and `--approvers` stand for.
    fn quorums(
        &self,
        current: &SessionConfig,
    ) -> anyhow::Result<Option<BTreeMap<&'static str, Value>>> {
        if self.approvals.is_none() && self.approvers.is_none() {
            return Ok(None);
        }
        let approvals = self.approvals.clone().unwrap_or_default();
        let approvers = self.approvers.clone().unwrap_or(ApproverSet::Anyone);
        let mut quorums = BTreeMap::new();
        if approvals.default.is_some() || approvals.by_category.is_empty() {
            let rule = approvers.rule(approvals.default)?;
            quorums.insert("default_gate_quorum", serde_json::to_value(rule)?);
        }
        // A number alone is for every kind of command; one for a kind leaves the others alone.
        let mut by_category = match quorums.is_empty() {
            true => serde_json::from_value(serde_json::to_value(&current.quorum_by_category)?)?,
            false => JsonObject::new(),
        };
        for (category, count) in &approvals.by_category {
            let rule = approvers.rule(Some(*count))?;
            by_category.insert((*category).to_owned(), serde_json::to_value(rule)?);
        }
        quorums.insert("quorum_by_category", by_category.into());
        Ok(Some(quorums))
    }
}

/// Adds `NAME=VALUE` arguments to settings. A value is JSON if it can be, and otherwise text.
pub(crate) fn parse_pairs(pairs: &[String]) -> anyhow::Result<JsonObject> {
    let mut settings = JsonObject::new();
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            bail!("`{pair}` is not a setting; write NAME=VALUE, such as gate_timeout_seconds=600");
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        if settings.insert(name.to_owned(), value).is_some() {
            bail!("`{name}` is set twice");
        }
    }
    Ok(settings)
}

/// Checks the names and values of settings.
pub(crate) fn parse_changes(settings: JsonObject) -> anyhow::Result<ConfigChanges> {
    check_config_fields(&settings).map_err(anyhow::Error::msg)?;
    let mut changes = ConfigChanges::default();
    // One at a time, so that an error names the setting.
    for (name, value) in settings {
        let one = JsonObject::from_iter([(name.clone(), value.clone())]);
        let change: ConfigChanges =
            serde_json::from_value(Value::Object(one)).map_err(|error| {
                let problem = pvp_protocol::suggestion::suggest_in(&error.to_string());
                anyhow::anyhow!("`{name}` is {value}: {problem}")
            })?;
        changes.merge(change);
    }
    Ok(changes)
}

/// Reads settings, if any are given.
pub(crate) fn read_optional(file_or_json: Option<&str>) -> anyhow::Result<JsonObject> {
    file_or_json.map_or(Ok(JsonObject::new()), read_settings)
}

/// Reads settings from a TOML file, or from JSON if the text begins like JSON.
fn read_settings(text: &str) -> anyhow::Result<JsonObject> {
    if text.trim_start().starts_with('{') {
        return parse_json(text).context("this is not a JSON object");
    }
    let path = Path::new(text);
    let file = std::fs::read_to_string(path).with_context(|| {
        format!("reading {text}; give a TOML file, or JSON in quotes such as '{{\"solo\": true}}'")
    })?;
    if file.trim_start().starts_with('{') {
        return parse_json(&file).with_context(|| format!("{text} is not JSON"));
    }
    toml::from_str(&file).with_context(|| format!("{text} is not TOML"))
}

/// Parses settings, none of which may be given twice.
fn parse_json(text: &str) -> serde_json::Result<JsonObject> {
    serde_json::from_str(text).map(|UniqueFields(fields)| fields)
}

/// How many approvals are needed, in general and by category.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Approvals {
    default: Option<u32>,
    by_category: BTreeMap<&'static str, u32>,
}

/// The categories of commands that wait for approval, and the kinds of tools.
fn gated_categories() -> Vec<&'static str> {
    let tools = ToolCategory::ALL.iter().map(|tool| tool.as_str());
    ["write", "destructive"].into_iter().chain(tools).collect()
}

impl FromStr for Approvals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut approvals = Self::default();
        for part in text.split(',') {
            let twice = match part.split_once('=') {
                None => approvals.default.replace(parse_count(part)?).is_some(),
                Some((category, count)) => {
                    let category = parse_category(category)?;
                    let count = parse_count(count)?;
                    approvals.by_category.insert(category, count).is_some()
                }
            };
            if twice {
                return Err(format!("`{part}` says it a second time"));
            }
        }
        Ok(approvals)
    }
}

fn parse_count(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(0) => Err("0 approvals would let everything run; use 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!(
            "`{text}` is not a number of approvals; write 2, or destructive=2,write=1"
        )),
    }
}

fn parse_category(text: &str) -> Result<&'static str, String> {
    let text = text.trim();
    let known = gated_categories();
    match known.iter().find(|known| **known == text) {
        Some(category) => Ok(category),
        None if text == "read" => {
            Err("reads run without approval; use write or destructive".to_owned())
        }
        None if text == "blocked" => {
            Err("blocked commands never run; use write or destructive".to_owned())
        }
        None => Err(unknown_name("kind of command", text, &known)),
    }
}

/// Whose approvals count.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ApproverSet {
    Anyone,
    Role(Role),
    All,
    Majority,
    Participants(Vec<ParticipantId>),
}

impl FromStr for ApproverSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(role) = text.strip_prefix("role:") {
            return parse_role(role).map(ApproverSet::Role);
        }
        match text {
            "anyone" | "any" => Ok(ApproverSet::Anyone),
            "all" | "everyone" => Ok(ApproverSet::All),
            "majority" => Ok(ApproverSet::Majority),
            _ if Role::ALL.iter().any(|role| role.as_str() == text) => {
                Err(format!("for everyone with that role, write role:{text}"))
            }
            _ => {
                let ids = text
                    .split(',')
                    .map(|id| super::parse_participant_id(id.trim()));
                ids.collect::<Result<_, _>>().map(ApproverSet::Participants)
            }
        }
    }
}

fn parse_role(text: &str) -> Result<Role, String> {
    let names: Vec<_> = Role::ALL.iter().map(|role| role.as_str()).collect();
    let role = Role::ALL.iter().find(|role| role.as_str() == text);
    role.copied()
        .ok_or_else(|| unknown_name("role", text, &names))
}

impl ApproverSet {
    /// The rule for a number of approvals, or for the usual number.
    fn rule(&self, count: Option<u32>) -> anyhow::Result<QuorumRule> {
        Ok(match (self, count) {
            (ApproverSet::Anyone, count) => QuorumRule::Any {
                count: count.unwrap_or(1),
            },
            (ApproverSet::Role(role), count) => QuorumRule::Role {
                role: *role,
                count: count.unwrap_or(1),
            },
            (ApproverSet::All, None) => QuorumRule::All,
            (ApproverSet::Majority, None) => QuorumRule::Majority,
            (ApproverSet::Participants(participants), None) => QuorumRule::Specific {
                participants: participants.clone(),
            },
            (ApproverSet::All | ApproverSet::Majority | ApproverSet::Participants(_), Some(_)) => {
                bail!(
                    "--approvers already says how many approvals are needed; leave --approvals out, or use --approvers role:ROLE"
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changes(approvals: Option<&str>, approvers: Option<&str>) -> Value {
        let arguments = SettingsArguments {
            approvals: approvals.map(|text| text.parse().unwrap()),
            approvers: approvers.map(|text| text.parse().unwrap()),
            ..SettingsArguments::default()
        };
        let current = SessionConfig::default();
        serde_json::to_value(arguments.changes(JsonObject::new(), &current).unwrap()).unwrap()
    }

    #[test]
    fn approvals_and_approvers_become_quorum_rules() {
        let any = |count: u32| json!({"type": "any", "count": count});
        assert_eq!(
            changes(Some("2"), None),
            json!({"default_gate_quorum": any(2), "quorum_by_category": {}})
        );
        assert_eq!(
            changes(Some("destructive=2,write=1"), None),
            json!({"quorum_by_category": {"destructive": any(2), "write": any(1)}})
        );
        assert_eq!(
            changes(Some("deploy=2"), None),
            json!({"quorum_by_category": {"deploy": any(2)}})
        );
        assert_eq!(
            changes(Some("1,destructive=3"), Some("role:approver")),
            json!({
                "default_gate_quorum": {"type": "role", "role": "approver", "count": 1},
                "quorum_by_category": {"destructive": {"type": "role", "role": "approver", "count": 3}},
            })
        );
        assert_eq!(
            changes(None, Some("majority")),
            json!({"default_gate_quorum": {"type": "majority"}, "quorum_by_category": {}})
        );
        assert_eq!(
            changes(None, Some("ann, bob")),
            json!({
                "default_gate_quorum": {"type": "specific", "participants": ["ann", "bob"]},
                "quorum_by_category": {},
            })
        );
    }

    #[test]
    fn a_number_for_one_kind_of_command_leaves_the_other_kind_alone() {
        let mut current = SessionConfig::default();
        current.quorum_by_category.write = Some(QuorumRule::Majority);
        let with = |text: &str| SettingsArguments {
            approvals: Some(text.parse().unwrap()),
            ..SettingsArguments::default()
        };
        let changes = with("destructive=2")
            .changes(JsonObject::new(), &current)
            .unwrap();
        let changed = current.clone().with_changes(&changes);
        assert_eq!(changed.quorum_by_category.write, Some(QuorumRule::Majority));
        let two = Some(QuorumRule::Any { count: 2 });
        assert_eq!(changed.quorum_by_category.destructive, two);
        let changes = with("2").changes(JsonObject::new(), &changed).unwrap();
        let changed = changed.with_changes(&changes);
        assert_eq!(changed.quorum_by_category, Default::default());
        assert_eq!(Some(changed.default_gate_quorum), two);
    }

    #[test]
    fn what_is_not_a_number_of_approvals_is_refused() {
        for (text, expected) in [
            ("0", "0 approvals would let everything run; use 1 or more"),
            (
                "read=1",
                "reads run without approval; use write or destructive",
            ),
            (
                "destructiv=2",
                "there is no kind of command `destructiv`; did you mean `destructive`?",
            ),
            (
                "two",
                "`two` is not a number of approvals; write 2, or destructive=2,write=1",
            ),
            ("1,2", "`2` says it a second time"),
            ("write=1,write=2", "`write=2` says it a second time"),
        ] {
            assert_eq!(text.parse::<Approvals>(), Err(expected.to_owned()));
        }
        assert!("".parse::<Approvals>().is_err());
        assert_eq!(
            "role:aprover".parse::<ApproverSet>(),
            Err("there is no role `aprover`; did you mean `approver`?".to_owned())
        );
        assert_eq!(
            "approver".parse::<ApproverSet>(),
            Err("for everyone with that role, write role:approver".to_owned())
        );
        let both = SettingsArguments {
            approvals: Some("2".parse().unwrap()),
            approvers: Some("all".parse().unwrap()),
            ..SettingsArguments::default()
        };
        let default = SessionConfig::default();
        assert!(
            both.changes(JsonObject::new(), &default)
                .unwrap_err()
                .to_string()
                .contains("--approvers already says")
        );
    }

    #[test]
    fn pairs_are_json_or_text_and_unknown_names_are_refused() {
        let parse = |pairs: &[&str]| {
            let pairs: Vec<_> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
            parse_pairs(&pairs).and_then(parse_changes)
        };
        let changes = parse(&["gate_timeout_seconds=600", "shell_exec=off", "solo=true"]).unwrap();
        assert_eq!(
            serde_json::to_value(changes).unwrap(),
            json!({"gate_timeout_seconds": 600, "shell_exec": "off", "solo": true})
        );
        let error = |pairs: &[&str]| parse(pairs).unwrap_err().to_string();
        assert_eq!(
            error(&["gate_timeout=600"]),
            "there is no session setting `gate_timeout`; did you mean `gate_timeout_seconds`?"
        );
        assert!(error(&["solo"]).contains("NAME=VALUE"));
        assert!(error(&["solo=true", "solo=false"]).contains("twice"));
        assert_eq!(
            error(&["shell_exec=of"]),
            "`shell_exec` is \"of\": unknown variant `of`; did you mean `off`?"
        );
    }

    #[test]
    fn settings_are_read_from_json_and_from_toml_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("session.toml");
        let toml = "solo = true\n[default_gate_quorum]\ntype = \"any\"\ncount = 2\n";
        std::fs::write(&file, toml).unwrap();
        let from_file = read_settings(file.to_str().unwrap()).unwrap();
        let json = r#"{"solo": true, "default_gate_quorum": {"type": "any", "count": 2}}"#;
        assert_eq!(from_file, read_settings(json).unwrap());
        assert!(read_settings("{").is_err());
        assert!(format!("{:#}", read_settings("no-such-file").unwrap_err()).contains("TOML file"));
    }
}
