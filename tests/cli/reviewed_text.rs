//! Compares what `pvp` prints with a file in this directory that people have reviewed.

use std::path::Path;

/// Compares the text with the file, or writes the file with `PVP_BLESS=1`.
pub(crate) fn assert_reviewed(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli")
        .join(file);
    if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
        return std::fs::write(&path, text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    let mut both = reviewed.lines().zip(text.lines()).enumerate();
    if let Some((at, (was, is))) = both.find(|(_, (was, is))| was != is) {
        let line = at + 1;
        panic!(
            "tests/cli/{file} differs in line {line}; review the words, and accept them with PVP_BLESS=1\n-{was}\n+{is}"
        );
    }
    let lines = (reviewed.lines().count(), text.lines().count());
    assert_eq!(
        lines.0, lines.1,
        "tests/cli/{file} has another number of lines; accept them with PVP_BLESS=1"
    );
}
