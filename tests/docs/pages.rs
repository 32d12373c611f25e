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
    let text = std::fs::read_to_string(operations_page()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
        let blessed = format!("{before}{BEGIN}{}{END}{after}", settings_table());
        std::fs::write(operations_page(), blessed).unwrap();
        return;
    }
    assert_eq!(found, settings_table(), "run `make generate`");
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
    let server = TestServer::start(&[]).await;
    server.create_session("owl", serde_json::json!({})).await;
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
