//! OpenCode: a plugin, loaded by a configuration that denies every tool. The plugin takes the denial
//! away when it has been loaded, so that without it nothing runs.

use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;

use serde_json::{Map, Value, json};

use super::{HookProgram, LaunchError, LaunchPlan};

const PLUGIN: &str = include_str!("opencode_plugin.js");

/// The variable with configuration that stands above the files of the user and the project.
const CONFIG: &str = "OPENCODE_CONFIG_CONTENT";

/// Words that leave plugins out, or use those of another process.
const WORDS_WITHOUT_PLUGIN: [&str; 3] = ["--pure", "--attach", "attach"];

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    given_config: Option<&str>,
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
    let plugin = write_plugin(hook).map_err(|error| LaunchError::Plugin(error.to_string()))?;
    let mut config = match given_config {
        None | Some("") => Map::new(),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(config)) => config,
            Ok(_) => return Err(LaunchError::Settings(format!("{CONFIG} is not an object"))),
            Err(error) => return Err(LaunchError::Settings(format!("{CONFIG}: {error}"))),
        },
    };
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
    let mut environment = vec![
        (
            CONFIG.to_owned(),
            Some(Value::Object(config).to_string().into()),
        ),
        ("OPENCODE_PURE".to_owned(), None),
    ];
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

/// The plugin that asks by these words. With a backstop it takes away the denial that stands in the
/// configuration for when it is not loaded.
pub(crate) fn plugin_text(words: &[String], backstop: bool) -> String {
    let place = json!({ "words": words, "backstop": backstop });
    format!("const place = {place}\n{PLUGIN}")
}

/// Writes the plugin for one client; returns its address.
fn write_plugin(hook: &HookProgram) -> std::io::Result<String> {
    let program = hook.program.to_string_lossy().into_owned();
    let files = hook.files.to_string_lossy().into_owned();
    let words = ["hook", "run", "opencode", "--files"].map(str::to_owned);
    let words: Vec<_> = [program].into_iter().chain(words).chain([files]).collect();
    let content = plugin_text(&words, true);
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

    #[test]
    fn nothing_runs_without_the_plugin_and_what_leaves_it_out_is_refused() {
        let files = tempfile::tempdir().unwrap();
        let hook = HookProgram {
            program: "/opt/pvp".into(),
            files: files.path().to_owned(),
        };
        let given = r#"{"plugin":["mine"],"permission":{"bash":"allow"},"model":"m"}"#;
        let words = ["run".into(), "do it".into()];
        let planned = plan(&words, &hook, Some(given)).unwrap();
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
        assert!(
            planned
                .environment
                .contains(&("OPENCODE_PURE".to_owned(), None))
        );
        for word in ["--pure", "attach", "--attach=http://h"] {
            assert!(matches!(
                plan(&[word.into()], &hook, None),
                Err(LaunchError::SwitchesOff { .. })
            ));
        }
        assert!(plan(&["run".into(), "attach".into()], &hook, None).is_ok());
        assert!(plan(&[], &hook, Some("[]")).is_err());
    }
}
