//! What Codex's screen may ask of the app-server, and what is changed in it, so that Codex asks
//! about every call.

use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use super::{FEATURES_OFF, FEATURES_ON};

/// What becomes of a request of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenMethod {
    /// It changes nothing about what is asked.
    Pass,
    Initialize,
    /// Starts or continues a conversation.
    Thread,
    /// A person says something, with settings of the conversation.
    Turn,
    /// A person says something.
    Say,
    /// Changes the settings of a conversation.
    ThreadSettings,
    /// Changes the settings of a turn.
    TurnSettings,
    /// Changes one setting of the user.
    WriteSetting,
    /// Changes settings of the user.
    WriteSettings,
    /// A person's own command line.
    ShellCommand,
    /// Runs something unasked, or nobody knows what it does.
    Refuse,
}

/// Whether the provider of the model may search the web, about which nobody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WebSearch {
    #[default]
    Off,
    /// As the person at the terminal said when Codex was started.
    AsAsked,
}

/// What is looked at or changed only in the screen or in the list of conversations.
const PASSED: &[&str] = &[
    "account/bedrock/checkGovCloudRequirements",
    "account/bedrock/discover",
    "account/gatewayOAuth/cancel",
    "account/gatewayOAuth/login",
    "account/gatewayOAuth/read",
    "account/login/cancel",
    "account/login/start",
    "account/logout",
    "account/rateLimits/read",
    "account/read",
    "account/usage/read",
    "account/workspaceMessages/read",
    "accountSession/list",
    "accountSession/switch",
    "app/installed",
    "app/list",
    "app/read",
    "collaborationMode/list",
    "config/read",
    "configRequirements/read",
    "environment/info",
    "environment/status",
    "experimentalFeature/list",
    "fuzzyFileSearch",
    "fuzzyFileSearch/sessionStart",
    "fuzzyFileSearch/sessionStop",
    "fuzzyFileSearch/sessionUpdate",
    "hooks/list",
    "mcpServerStatus/list",
    "memory/status",
    "model/list",
    "modelProvider/capabilities/read",
    "permissionProfile/list",
    "plugin/installed",
    "plugin/list",
    "plugin/read",
    "plugin/search",
    "plugin/skill/read",
    "project/list",
    "project/read",
    "remoteControl/status/read",
    "server/diagnostics",
    "skills/list",
    "thread/archive",
    "thread/attachment/list",
    "thread/attachmentOwner/list",
    "thread/backgroundTerminals/clean",
    "thread/backgroundTerminals/list",
    "thread/backgroundTerminals/terminate",
    "thread/compact/start",
    "thread/goal/clear",
    "thread/goal/get",
    "thread/goal/set",
    "thread/items/list",
    "thread/items/read",
    "thread/list",
    "thread/loaded/list",
    "thread/metadata/update",
    "thread/name/set",
    "thread/queue/delete",
    "thread/queue/list",
    "thread/queue/reorder",
    "thread/read",
    "thread/readState/update",
    "thread/search",
    "thread/searchOccurrences",
    "thread/section/move",
    "thread/timeline/list",
    "thread/turns/list",
    "thread/unarchive",
    "thread/unsubscribe",
    "threadSection/create",
    "threadSection/delete",
    "threadSection/list",
    "threadSection/update",
    "turn/interrupt",
    "windowsSandbox/readiness",
];

/// Settings of the user that change nothing about what is asked.
const WRITABLE: &[&str] = &[
    "model",
    "model_reasoning_effort",
    "notice",
    "personality",
    "plan_mode_reasoning_effort",
    "service_tier",
    "tui",
];

/// What becomes of a request of the screen. What is not known is refused.
pub fn of_screen(method: &str) -> ScreenMethod {
    match method {
        "initialize" => ScreenMethod::Initialize,
        "thread/start" | "thread/resume" | "thread/fork" => ScreenMethod::Thread,
        "turn/start" => ScreenMethod::Turn,
        "turn/steer" | "thread/queue/add" | "thread/queue/start" => ScreenMethod::Say,
        "thread/settings/update" => ScreenMethod::ThreadSettings,
        "turn/settings/update" => ScreenMethod::TurnSettings,
        "config/value/write" => ScreenMethod::WriteSetting,
        "config/batchWrite" => ScreenMethod::WriteSettings,
        "thread/shellCommand" => ScreenMethod::ShellCommand,
        method if PASSED.contains(&method) => ScreenMethod::Pass,
        _ => ScreenMethod::Refuse,
    }
}

/// Makes a turn or a conversation ask about every call, and ask people.
pub fn ask_about_everything(params: &mut JsonObject) {
    params.insert("approvalPolicy".to_owned(), "untrusted".into());
    ask_people(params);
}

/// Makes the questions of a turn go to people and not to a model.
pub fn ask_people(params: &mut JsonObject) {
    params.insert("approvalsReviewer".to_owned(), "user".into());
}

/// Makes a conversation ask about every call. `effective` are the settings that hold where it works.
pub fn supervise_thread(
    params: &mut JsonObject,
    effective: &JsonObject,
    web_search: WebSearch,
) -> Result<(), String> {
    ask_about_everything(params);
    let given = match params.remove("config") {
        Some(Value::Object(given)) => given,
        _ => JsonObject::new(),
    };
    let mut config = supervised_config(given, effective)?;
    if web_search == WebSearch::Off {
        config.retain(|key, _| top_of(key) != "web_search");
        config.insert("web_search".to_owned(), "disabled".into());
    }
    params.insert("config".to_owned(), Value::Object(config));
    // Tools of the screen would run without asking.
    params.remove("dynamicTools");
    stay_here(params);
    Ok(())
}

/// Keeps Codex from working on other machines, where nobody knows what a call reaches.
pub fn stay_here(params: &mut JsonObject) {
    let keeps_none =
        matches!(params.get("environments"), Some(Value::Array(list)) if list.is_empty());
    if !keeps_none {
        params.remove("environments");
    }
}

/// Keeps the screen from not being told what the bridge has to know.
pub fn hear_everything(params: &mut JsonObject) {
    if let Some(Value::Object(capabilities)) = params.get_mut("capabilities") {
        capabilities.remove("optOutNotificationMethods");
    }
}

/// The settings of a conversation, with those on top that make Codex ask.
fn supervised_config(given: JsonObject, effective: &JsonObject) -> Result<JsonObject, String> {
    let mut config = JsonObject::new();
    for (key, value) in given {
        match top_of(&key) {
            "approval_policy" | "approvals_reviewer" | "hooks" | "apps" | "plugins"
            | "profiles" => {}
            "features" => keep_features(&mut config, &key, value),
            _ => {
                config.insert(key, value);
            }
        }
    }
    for feature in FEATURES_OFF {
        check_off(effective, feature)?;
        config.insert(format!("features.{feature}"), false.into());
    }
    for feature in FEATURES_ON {
        config.insert(format!("features.{feature}"), true.into());
    }
    add_server_prompts(&mut config, effective);
    Ok(config)
}

fn top_of(key: &str) -> &str {
    key.split('.').next().unwrap_or_default()
}

/// Features that are switched off; none is switched on beyond the user's own settings.
fn keep_features(config: &mut JsonObject, key: &str, value: Value) {
    match value {
        Value::Bool(false) => {
            config.insert(key.to_owned(), false.into());
        }
        Value::Object(features) if key == "features" => {
            for (name, value) in features {
                keep_features(config, &format!("features.{name}"), value);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {}
    }
}

/// Refuses to go on if something stronger than this bridge switches a feature on.
fn check_off(effective: &JsonObject, feature: &str) -> Result<(), String> {
    let features = effective.get("features").and_then(Value::as_object);
    match features.and_then(|features| features.get(feature)) {
        Some(Value::Bool(true)) => Err(format!(
            "managed settings of this machine switch `features.{feature}` on, with which Codex does things without asking anybody; it cannot be supervised so"
        )),
        _ => Ok(()),
    }
}

/// Makes every tool of every known MCP server ask.
fn add_server_prompts(config: &mut JsonObject, effective: &JsonObject) {
    let mut names: Vec<String> = server_names(effective.get("mcp_servers"));
    names.extend(server_names(config.get("mcp_servers")));
    let dotted = config
        .keys()
        .filter_map(|key| key.strip_prefix("mcp_servers."));
    names.extend(
        dotted
            .map(|rest| top_of(rest).to_owned())
            .collect::<Vec<_>>(),
    );
    let approvals: Vec<_> = config
        .keys()
        .filter(|key| key.starts_with("mcp_servers.") && key.contains("approval_mode"))
        .cloned()
        .collect();
    for key in approvals {
        config.remove(&key);
    }
    for name in names {
        let known = effective.get("mcp_servers").and_then(|all| all.get(&name));
        add_prompts_of(config, &name, known);
    }
}

/// Makes every tool of an MCP server ask. Settings of a server that Codex knows are only added to,
/// by their keys: a whole table would replace what was given with `-c`.
fn add_prompts_of(config: &mut JsonObject, name: &str, known: Option<&Value>) {
    let tools = server_names(known.and_then(|known| known.get("tools")));
    let given = config
        .get_mut("mcp_servers")
        .and_then(|all| all.get_mut(name));
    let are_plain = is_plain(name) && tools.iter().all(|tool| is_plain(tool));
    if given.is_none() && are_plain {
        let key = format!("mcp_servers.{name}");
        config.insert(
            format!("{key}.default_tools_approval_mode"),
            "prompt".into(),
        );
        for tool in tools {
            config.insert(format!("{key}.tools.{tool}.approval_mode"), "prompt".into());
        }
        return;
    }
    let servers = config.entry("mcp_servers").or_insert_with(|| json!({}));
    let Some(servers) = servers.as_object_mut() else {
        return;
    };
    let server = servers.entry(name).or_insert_with(|| json!({}));
    let Some(server) = server.as_object_mut() else {
        return;
    };
    server.insert("default_tools_approval_mode".to_owned(), "prompt".into());
    let mut modes = match server.remove("tools") {
        Some(Value::Object(tools)) => tools,
        _ => JsonObject::new(),
    };
    let own: Vec<_> = modes.keys().cloned().collect();
    for tool in tools.into_iter().chain(own) {
        modes.insert(tool, json!({ "approval_mode": "prompt" }));
    }
    server.insert("tools".to_owned(), Value::Object(modes));
}

/// Whether a name stands for itself in a key with dots.
fn is_plain(name: &str) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    !name.is_empty() && name.chars().all(plain)
}

fn server_names(object: Option<&Value>) -> Vec<String> {
    let object = object.and_then(Value::as_object);
    object.map_or(Vec::new(), |it| it.keys().cloned().collect())
}

/// Whether the screen may write this setting of the user.
pub fn may_write_setting(edit: &JsonObject) -> bool {
    let Some(Value::String(key)) = edit.get("keyPath") else {
        return false;
    };
    let elsewhere = edit.get("filePath").is_some_and(|path| !path.is_null());
    let is_trust = || match edit.get("value") {
        Some(Value::String(_)) => key.ends_with(".trust_level"),
        Some(Value::Object(project)) => project.keys().all(|name| name == "trust_level"),
        _ => false,
    };
    let top = top_of(key);
    !elsewhere && (WRITABLE.contains(&top) || top == "projects" && key != "projects" && is_trust())
}

/// Whether the screen may write these settings of the user.
pub fn may_write_settings(params: &JsonObject) -> bool {
    let elsewhere = params.get("filePath").is_some_and(|path| !path.is_null());
    let edits = params.get("edits").and_then(Value::as_array);
    let may = |edit: &Value| edit.as_object().is_some_and(may_write_setting);
    !elsewhere && edits.is_some_and(|edits| edits.iter().all(may))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_runs_things_or_is_not_known_is_refused() {
        for method in [
            "command/exec",
            "process/spawn",
            "process/writeStdin",
            "review/start",
            "fs/writeFile",
            "mcpServer/tool/call",
            "remoteControl/enable",
            "experimentalFeature/enablement/set",
            "thread/approveGuardianDeniedAction",
            "thread/inject_items",
            "environment/add",
            "plugin/install",
            "of/tomorrow",
            "",
        ] {
            assert_eq!(of_screen(method), ScreenMethod::Refuse, "{method}");
        }
        assert_eq!(of_screen("thread/list"), ScreenMethod::Pass);
    }

    #[test]
    fn a_conversation_asks_about_everything_whatever_it_was_started_with() {
        let mut params = object(json!({
            "approvalPolicy": "never", "approvalsReviewer": "auto_review",
            "dynamicTools": [{}], "environments": [{}],
            "config": {
                "approval_policy": "never", "features": { "hooks": true, "goals": false },
                "features.unified_exec_tty": true, "features.js": true, "model": "m",
                "web_search": "live",
                "mcp_servers.a.tools.x.approval_mode": "approve",
                "mcp_servers": { "b": { "command": "c", "tools": { "y": { "approval_mode": "approve" } } } },
            },
        }));
        let effective = object(json!({
            "mcp_servers": {
                "e": { "command": "c", "tools": { "t": { "approval_mode": "approve" } } },
                "f": { "command": "c", "tools": { "t.u": { "approval_mode": "approve" } } },
            },
        }));
        supervise_thread(&mut params, &effective, WebSearch::Off).unwrap();
        let prompt = json!({ "approval_mode": "prompt" });
        let b = json!({
            "command": "c", "default_tools_approval_mode": "prompt", "tools": { "y": prompt },
        });
        let f = json!({ "default_tools_approval_mode": "prompt", "tools": { "t.u": prompt } });
        let expected = json!({
            "approvalPolicy": "untrusted", "approvalsReviewer": "user",
            "config": {
                "model": "m", "features.goals": false, "features.hooks": false,
                "features.unified_exec_tty": false, "features.apps": false,
                "features.plugins": false, "features.view_image": false,
                "features.memories": false, "features.codex_hooks": false,
                "features.connectors": false, "features.memory_tool": false,
                "features.tool_call_mcp_elicitation": true, "features.write_stdin_approval": true,
                "web_search": "disabled",
                "mcp_servers.a.default_tools_approval_mode": "prompt",
                "mcp_servers.e.default_tools_approval_mode": "prompt",
                "mcp_servers.e.tools.t.approval_mode": "prompt",
                "mcp_servers": { "b": b, "f": f },
            },
        });
        assert_eq!(Value::Object(params), expected);
        let mut params = object(json!({ "config": { "web_search": "live" } }));
        supervise_thread(&mut params, &JsonObject::new(), WebSearch::AsAsked).unwrap();
        assert_eq!(params["config"]["web_search"], "live");
        let mut turn = object(json!({ "environments": [{ "environmentId": "cloud" }] }));
        stay_here(&mut turn);
        assert_eq!(turn, JsonObject::new());
    }

    #[test]
    fn a_feature_that_is_forced_on_is_no_ground_for_supervision() {
        let effective = object(json!({ "features": { "hooks": true } }));
        let supervise = |effective: &JsonObject| {
            supervise_thread(&mut JsonObject::new(), effective, WebSearch::Off)
        };
        let refused = supervise(&effective).unwrap_err();
        assert!(refused.contains("features.hooks"), "{refused}");
        // An older name counts after the other one in the alphabet.
        let effective = object(json!({ "features": { "apps": false, "connectors": true } }));
        let refused = supervise(&effective).unwrap_err();
        assert!(refused.contains("features.connectors"), "{refused}");
    }

    #[test]
    fn only_harmless_settings_of_the_user_may_be_written() {
        let may = |key: &str, value: Value| {
            may_write_setting(&object(json!({ "keyPath": key, "value": value })))
        };
        assert!(may("tui.theme", json!("x")));
        assert!(may("model", json!("x")));
        assert!(may("projects.\"/w\".trust_level", json!("trusted")));
        assert!(!may("approval_policy", json!("never")));
        assert!(!may("hooks.state", json!({})));
        assert!(!may("features.hooks", json!(true)));
        assert!(!may("projects", json!({ "trust_level": {} })));
        assert!(!may("mcp_servers.x.command", json!("sh")));
        let elsewhere = json!({ "keyPath": "model", "value": "x", "filePath": "/etc/x" });
        assert!(!may_write_setting(&object(elsewhere)));
        let batch = json!({ "edits": [{ "keyPath": "model", "value": "x" }, { "keyPath": "hooks", "value": 1 }] });
        assert!(!may_write_settings(&object(batch)));
    }
}
