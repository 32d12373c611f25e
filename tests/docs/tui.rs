//! Checks docs/tui.md against the program.

use std::path::{Path, PathBuf};

fn tui_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tui.md")
}

/// Checks a generated section of the page, or rewrites it with `PVP_BLESS=1`.
fn check_generated_section(what: &str, table: &str) {
    let begin = format!("<!-- {what}: made from the table by `make generate` -->\n");
    let end = format!("<!-- end of {what} -->");
    let text = std::fs::read_to_string(tui_page()).unwrap();
    let (before, rest) = text.split_once(&begin).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(tui_page(), format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "run `make generate`");
}

#[test]
fn the_tables_on_the_page_are_those_of_the_program() {
    check_generated_section("commands", &pvp_tui::slash_manual());
    check_generated_section("keys", &pvp_tui::keys::manual_table());
}

#[test]
fn the_settings_on_the_page_are_understood() {
    let text = std::fs::read_to_string(tui_page()).unwrap();
    let settings = text.split("```toml\n").nth(1).unwrap();
    let settings = settings.split("```").next().unwrap();
    let config = pvp_tui::config::TuiConfig::parse(settings).unwrap();
    assert_ne!(config, pvp_tui::config::TuiConfig::default());
}
