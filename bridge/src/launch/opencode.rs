//! OpenCode: a plugin, loaded by a configuration that denies every tool. The plugin takes the denial
//! away when it has been loaded, so that without it nothing runs. Over ACP it is told to ask.

use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::project_settings;
use super::{
    Environment, HookProgram, LaunchError, LaunchPlan, ProjectPlace, ProjectTrust, WaitingText,
};

const PLUGIN: &str = include_str!("opencode_plugin.js");

/// The variable with configuration that stands above the files of the user and the project.
const CONFIG: &str = "OPENCODE_CONFIG_CONTENT";

/// The variable that leaves the configuration of the project out, and what it says to the model too.
const WITHOUT_PROJECT: &str = "OPENCODE_DISABLE_PROJECT_CONFIG";

/// The variable with rules that stand above those of all configuration but an agent's own.
const RULES: &str = "OPENCODE_PERMISSION";

/// What has rules of its own, which `*` would not take the place of.
const RULED: [&str; 14] = [
    "*",
    "bash",
    "codesearch",
    "doom_loop",
    "edit",
    "external_directory",
    "glob",
    "grep",
    "list",
    "lsp",
    "read",
    "task",
    "webfetch",
    "websearch",
];

/// Files with what a project says to the model: those of the first name that is there.
const INSTRUCTIONS: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];

/// Words that leave plugins out, or use those of another process.
const WORDS_WITHOUT_PLUGIN: [&str; 3] = ["--pure", "--attach", "attach"];

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    place: ProjectPlace<'_>,
    given_config: Option<&str>,
    waiting: &WaitingText,
) -> Result<LaunchPlan, LaunchError> {
    for (index, word) in arguments.iter().enumerate() {
        let text = word.to_string_lossy();
        let flag = text.split_once('=').map_or(&*text, |(flag, _)| flag);
        let is_subcommand = flag == "attach" && index == 0;
        if WORDS_WITHOUT_PLUGIN.contains(&flag) && (flag.starts_with('-') || is_subcommand) {
            let flag = flag.to_owned();
            return Err(LaunchError::SwitchesOff { flag });
        }
    }
    let plugin =
        write_plugin(hook, waiting).map_err(|error| LaunchError::Plugin(error.to_string()))?;
    let mut config = object_of(CONFIG, given_config)?;
    match config.get_mut("plugin").and_then(Value::as_array_mut) {
        Some(plugins) => plugins.push(plugin.into()),
        None => {
            config.insert("plugin".to_owned(), json!([plugin]));
        }
    }
    if !config.get("permission").is_some_and(Value::is_object) {
        config.insert("permission".to_owned(), json!({}));
    }
    config["permission"]["*"] = "deny".into();
    if place.trust == ProjectTrust::Untrusted {
        add_instructions(&mut config, place.workspace);
    }
    let mut environment = vec![
        (CONFIG.to_owned(), Some(json_variable(config))),
        ("OPENCODE_PURE".to_owned(), None),
        // It stands above every configuration, and may take the denial away.
        (RULES.to_owned(), None),
    ];
    if place.trust == ProjectTrust::Untrusted {
        // Plugins, servers and formatters of a repository run unasked, and see calls after ours.
        environment.push((WITHOUT_PROJECT.to_owned(), Some("1".into())));
    }
    if let Ok(here) = std::env::current_dir() {
        // It works there, and not in its working directory.
        environment.push(("PWD".to_owned(), Some(here.into_os_string())));
    }
    Ok(LaunchPlan {
        arguments: arguments.to_vec(),
        environment,
        offers_tools: false,
    })
}

/// What its variables say already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GivenVariables<'a> {
    /// The configuration.
    pub(super) config: Option<&'a str>,
    /// The rules.
    pub(super) rules: Option<&'a str>,
}

/// The environment with which it asks over ACP. By itself it asks about next to nothing.
pub(super) fn plan_acp(
    place: ProjectPlace<'_>,
    given: GivenVariables<'_>,
) -> Result<Environment, LaunchError> {
    // Of the rules that fit, the last one counts, so `*` comes first.
    let mut rules: Map<String, Value> = RULED
        .map(|name| (name.to_owned(), "ask".into()))
        .into_iter()
        .collect();
    for (name, rule) in object_of(RULES, given.rules)? {
        // Of rules by pattern, those of its configuration would stay beside ours.
        let rule = if rule == "deny" { "deny" } else { "ask" };
        rules.insert(name, rule.into());
    }
    let mut environment = vec![(RULES.to_owned(), Some(json_variable(rules)))];
    if place.trust == ProjectTrust::Untrusted {
        let mut config = object_of(CONFIG, given.config)?;
        add_instructions(&mut config, place.workspace);
        environment.push((CONFIG.to_owned(), Some(json_variable(config))));
        environment.push((WITHOUT_PROJECT.to_owned(), Some("1".into())));
    }
    Ok(environment)
}

/// The object that a variable has.
fn object_of(variable: &str, given: Option<&str>) -> Result<Map<String, Value>, LaunchError> {
    match given {
        None | Some("") => Ok(Map::new()),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(LaunchError::Settings(format!(
                "{variable} is not an object"
            ))),
            Err(error) => Err(LaunchError::Settings(format!("{variable}: {error}"))),
        },
    }
}

fn json_variable(object: Map<String, Value>) -> OsString {
    Value::Object(object).to_string().into()
}

/// What the project says to the model is only text, so it stays.
fn add_instructions(config: &mut Map<String, Value>, workspace: &Path) {
    let directories = project_settings::directories_of(workspace);
    let files = INSTRUCTIONS.iter().map(|name| {
        let files = directories.iter().map(|directory| directory.join(name));
        let files = files.filter(|file| file.is_file());
        // It would read such characters as something else than a path.
        let paths = files.filter_map(|file| file.to_str().map(str::to_owned));
        let plain = paths.filter(|path| !path.contains(['{', '}', '*', '?', '[', ']', '\\']));
        plain.map(Value::from).collect::<Vec<_>>()
    });
    let Some(found) = files.into_iter().find(|files| !files.is_empty()) else {
        return;
    };
    match config.get_mut("instructions").and_then(Value::as_array_mut) {
        Some(given) => given.extend(found),
        None => {
            config.insert("instructions".to_owned(), found.into());
        }
    }
}

/// The plugin that asks by these words. With a backstop it takes away the denial that stands in the
/// configuration for when it is not loaded.
pub(crate) fn plugin_text(words: &[String], backstop: bool, waiting: &WaitingText) -> String {
    let place = json!({ "words": words, "backstop": backstop, "waiting": waiting.0 });
    format!("{PLUGIN_BEGIN}{place}\n{PLUGIN}")
}

/// How the text of the plugin begins.
pub(crate) const PLUGIN_BEGIN: &str = "const place = ";

/// Writes the plugin for one client; returns its address.
fn write_plugin(hook: &HookProgram, waiting: &WaitingText) -> std::io::Result<String> {
    let program = hook.program.to_string_lossy().into_owned();
    let files = hook.files.to_string_lossy().into_owned();
    let words = ["hook", "run", "opencode", "--files"].map(str::to_owned);
    let words: Vec<_> = [program].into_iter().chain(words).chain([files]).collect();
    let content = plugin_text(&words, true, waiting);
    let path = hook.files.join("pvp.js");
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(&path)?;
    std::io::Write::write_all(&mut file, content.as_bytes())?;
    Ok(format!("file://{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> WaitingText {
        WaitingText("PVP asks ann".to_owned())
    }

    #[test]
    fn nothing_runs_without_the_plugin_and_what_leaves_it_out_is_refused() {
        let files = tempfile::tempdir().unwrap();
        let hook = HookProgram {
            program: "/opt/pvp".into(),
            files: files.path().to_owned(),
        };
        let place = ProjectPlace {
            workspace: files.path(),
            trust: ProjectTrust::Untrusted,
        };
        let given = r#"{"plugin":["mine"],"permission":{"bash":"allow"},"model":"m"}"#;
        let words = ["run".into(), "do it".into()];
        let planned = plan(&words, &hook, place, Some(given), &waiting()).unwrap();
        assert_eq!(planned.arguments, words);
        let (name, config) = &planned.environment[0];
        assert_eq!(name, CONFIG);
        let config: Value =
            serde_json::from_str(config.as_ref().unwrap().to_str().unwrap()).unwrap();
        assert_eq!(
            config["permission"],
            json!({ "bash": "allow", "*": "deny" })
        );
        assert_eq!(config["plugin"][0], "mine");
        assert_eq!(config["model"], "m");
        let address = config["plugin"][1].as_str().unwrap();
        let plugin = std::fs::read_to_string(address.strip_prefix("file://").unwrap()).unwrap();
        assert!(plugin.starts_with(r#"const place = {"#), "{plugin}");
        assert!(plugin.contains("\"/opt/pvp\""));
        assert!(plugin.contains("\"waiting\":\"PVP asks ann\""));
        assert!(
            planned
                .environment
                .contains(&("OPENCODE_PURE".to_owned(), None))
        );
        let above = (RULES.to_owned(), None);
        assert!(planned.environment.contains(&above));
        for word in ["--pure", "attach", "--attach=http://h"] {
            assert!(matches!(
                plan(&[word.into()], &hook, place, None, &waiting()),
                Err(LaunchError::SwitchesOff { .. })
            ));
        }
        assert!(
            plan(
                &["run".into(), "attach".into()],
                &hook,
                place,
                None,
                &waiting()
            )
            .is_ok()
        );
        assert!(plan(&[], &hook, place, Some("[]"), &waiting()).is_err());
    }

    #[test]
    fn over_acp_it_asks_about_everything_that_is_not_denied() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("AGENTS.md"), "be kind").unwrap();
        let plan_with = |trust, rules| {
            let workspace = root.path();
            let given = GivenVariables {
                config: Some(r#"{"model":"m"}"#),
                rules,
            };
            let planned = plan_acp(ProjectPlace { workspace, trust }, given);
            let environment = planned.unwrap();
            let of = |name: &str| {
                let mut found = environment.iter().filter(|(it, _)| it == name);
                let value = found.next()?.1.clone().unwrap();
                serde_json::from_str::<Value>(value.to_str().unwrap()).ok()
            };
            (of(RULES).unwrap(), of(CONFIG), of(WITHOUT_PROJECT))
        };
        let (rules, config, without) = plan_with(ProjectTrust::Untrusted, None);
        assert!(RULED.iter().all(|name| rules[name] == "ask"), "{rules}");
        let config = config.unwrap();
        assert_eq!(config["model"], "m");
        assert_eq!(
            config["instructions"],
            json!([root.path().join("AGENTS.md")])
        );
        assert_eq!(without, Some(json!(1)));
        let given = r#"{"*":"allow","bash":{"*":"allow","rm *":"deny"},"edit":"deny","x":true}"#;
        let (rules, config, without) = plan_with(ProjectTrust::Trusted, Some(given));
        assert_eq!(
            [
                &rules["*"],
                &rules["bash"],
                &rules["edit"],
                &rules["x"],
                &rules["read"]
            ],
            [
                &json!("ask"),
                &json!("ask"),
                &json!("deny"),
                &json!("ask"),
                &json!("ask"),
            ]
        );
        assert_eq!((config, without), (None, None));
        let rules = Some("[]");
        let given = GivenVariables {
            config: None,
            rules,
        };
        let place = ProjectPlace {
            workspace: root.path(),
            trust: ProjectTrust::Trusted,
        };
        assert!(plan_acp(place, given).is_err());
    }

    #[test]
    fn settings_of_the_project_count_only_if_the_person_trusts_it() {
        let root = tempfile::tempdir().unwrap();
        let hook = HookProgram {
            program: "/opt/pvp".into(),
            files: root.path().to_owned(),
        };
        let workspace = root.path().join("work");
        std::fs::create_dir(&workspace).unwrap();
        let text = workspace.join("AGENTS.md");
        std::fs::write(&text, "be kind").unwrap();
        std::fs::write(workspace.join("CLAUDE.md"), "be kind").unwrap();
        let plan_with = |trust| {
            let workspace = &workspace;
            let place = ProjectPlace { workspace, trust };
            let given = r#"{"instructions":["mine.md"]}"#;
            let planned = plan(&[], &hook, place, Some(given), &waiting()).unwrap();
            let config = planned.environment[0].1.clone().unwrap();
            let config: Value = serde_json::from_str(config.to_str().unwrap()).unwrap();
            let left_out = (WITHOUT_PROJECT.to_owned(), Some("1".into()));
            let left_out = planned.environment.contains(&left_out);
            (left_out, config["instructions"].clone())
        };
        let expected = json!(["mine.md", text]);
        assert_eq!(plan_with(ProjectTrust::Untrusted), (true, expected));
        let expected = json!(["mine.md"]);
        assert_eq!(plan_with(ProjectTrust::Trusted), (false, expected));
    }
}
