//! Checks docs/operations.md against the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::TestServer;
use pvp_server::config::ServerConfig;

const BEGIN: &str = "<!-- settings: made from the types by `make generate` -->\n";
const END: &str = "<!-- end of settings -->";

fn operations_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")
}

/// Compares the settings on a page with those of the types, or writes them with `PVP_BLESS=1`.
fn check_settings(page: &Path, table: &str) {
    let text = std::fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "run `make generate`");
}

/// The settings of a session, as the schema describes them.
fn session_settings_table() -> String {
    let schema: serde_json::Value = serde_json::from_str(pvp_protocol::SCHEMA).unwrap();
    let properties = &schema["$defs"]["SessionConfig"]["properties"];
    let defaults = serde_json::to_value(pvp_protocol::SessionConfig::default()).unwrap();
    let mut table = "| setting | default | may be | means |\n|---|---|---|---|\n".to_owned();
    for name in pvp_protocol::SessionConfig::FIELDS {
        let meaning = properties[name]["description"].as_str().unwrap();
        let meaning = meaning.replace('\n', " ");
        let default = &defaults[name];
        let values = allowed_values(&schema, &properties[name]);
        table += &format!("| `{name}` | `{default}` | {values} | {meaning} |\n");
    }
    table
}

/// The values that a setting may have.
fn allowed_values(schema: &serde_json::Value, property: &serde_json::Value) -> String {
    if let Some(kind) = property["type"].as_str() {
        return match kind {
            "boolean" => "true or false".to_owned(),
            "integer" => "a number".to_owned(),
            "array" => "a list".to_owned(),
            kind => kind.to_owned(),
        };
    }
    let reference = property["$ref"].as_str().unwrap();
    let definition = &schema["$defs"][reference.rsplit('/').next().unwrap()];
    let several = definition["oneOf"].as_array().into_iter().flatten();
    let described = several.flat_map(|one| match one["enum"].as_array() {
        Some(names) => names.clone(),
        None => vec![one["const"].clone()],
    });
    let plain = definition["enum"].as_array().into_iter().flatten().cloned();
    let names: Vec<_> = described
        .chain(plain)
        .filter_map(|name| Some(format!("`{}`", name.as_str()?)))
        .collect();
    match names.is_empty() {
        true if reference.ends_with("QuorumRule") => "a quorum".to_owned(),
        true => "quorums for `write`, `destructive` and kinds of tools".to_owned(),
        false => names.join(", "),
    }
}

#[test]
fn the_settings_of_a_session_on_the_page_are_those_of_the_types() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/quorum.md");
    check_settings(&page, &session_settings_table());
}

fn settings_table() -> String {
    let mut table = "| setting | default | may be | means |\n|---|---|---|---|\n".to_owned();
    for setting in ServerConfig::reference() {
        let default = match setting.default.as_str() {
            "None" => "none".to_owned(),
            default => format!("`{}`", default.trim_matches('"')),
        };
        table += &format!(
            "| `{}` | {default} | {} | {} |\n",
            setting.key, setting.allowed, setting.meaning
        );
    }
    table
}

#[test]
fn the_settings_on_the_page_are_those_of_the_types() {
    check_settings(&operations_page(), &settings_table());
}

#[tokio::test]
async fn the_metrics_on_the_page_are_those_that_are_served() {
    let server = TestServer::start(&[]).await;
    crate::support::http_get(&server.address, "/healthz", &[]).await;
    let (_, text) = crate::support::http_get(&server.address, "/metrics", &[]).await;
    let served: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let page = std::fs::read_to_string(operations_page()).unwrap();
    let table = page.split("### Metrics").nth(1).unwrap();
    let named: BTreeSet<_> = table
        .split('`')
        .filter(|word| word.starts_with("pvp_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, served);
}

#[tokio::test]
async fn the_files_on_the_page_are_those_in_the_data_directory() {
    let server = TestServer::start(&["--tls-self-signed"]).await;
    let link = server.invite_link("ann", "driver");
    let link = pvp_client::Link::parse(&link).unwrap();
    let request = serde_json::from_value(serde_json::json!({ "session": "owl" })).unwrap();
    let creating = tokio::task::spawn_blocking(move || {
        pvp_client::ApiClient::new(link).create_session(&request)
    });
    creating.await.unwrap().unwrap();
    let names = std::fs::read_dir(&server.data).unwrap();
    let names: BTreeSet<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let page = std::fs::read_to_string(operations_page()).unwrap();
    let table = page.split("| file in the data directory").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let named: BTreeSet<_> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, names);
}

/// The flags that a text mentions.
fn flags_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 3);
    flags.map(str::to_owned).collect()
}

#[test]
fn the_options_on_the_agent_page_are_those_of_the_program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("<!-- options:").unwrap();
    let (options, _) = rest.split_once("<!-- end of options -->").unwrap();
    let (_, options) = options.split_once("-->").unwrap();
    let (good, help, _) = crate::support::run_pvp(&["agent", "--help"]);
    assert!(good);
    let mut really: BTreeSet<_> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(flags_in)
        .collect();
    really.remove("--help");
    assert_eq!(flags_in(options), really);
}

#[test]
fn the_script_on_the_agent_page_is_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent.md");
    let page = std::fs::read_to_string(page).unwrap();
    let script = page.split("```toml\n").nth(1).unwrap();
    let script = script.split("```").next().unwrap();
    let read = pvp_agent::brain::ScriptedBrain::from_toml("agent.md", script);
    assert!(read.is_ok(), "{read:?}");
}
