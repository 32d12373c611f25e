//! What docs/tui.md says is what the program does.

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- keys: made from the table by `make generate` -->\n";
const END: &str = "<!-- end of keys -->";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tui.md")
}

#[test]
fn the_keys_on_the_page_are_those_of_the_table() {
    let text = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let keys = pvp_tui::keys::manual();
    if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(page(), format!("{before}{BEGIN}{keys}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, keys, "run `make generate`");
}

#[test]
fn the_settings_on_the_page_are_understood() {
    let text = std::fs::read_to_string(page()).unwrap();
    let settings = text.split("```toml\n").nth(1).unwrap();
    let settings = settings.split("```").next().unwrap();
    let config = pvp_tui::config::Config::parse(settings).unwrap();
    assert_ne!(config, pvp_tui::config::Config::default());
}
