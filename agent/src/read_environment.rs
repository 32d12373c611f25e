//! Variables of reads: programs see characters as the assessment did, and cargo and Python run
//! nothing that a repository names.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Variables that win over what a repository's `.cargo/config.toml` says.
const CARGO_VARIABLES: &[(&str, &str)] = &[
    ("RUSTC", "rustc"),
    ("RUSTDOC", "rustdoc"),
    // Empty means none.
    ("RUSTC_WRAPPER", ""),
    ("RUSTC_WORKSPACE_WRAPPER", ""),
];

/// Variables that keep Python from taking modules of the directory for its own, and from writing.
const PYTHON_VARIABLES: &[(&str, &str)] = &[
    ("PYTHONSAFEPATH", "1"),
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

/// Files in which a repository says which Rust toolchain it wants.
const TOOLCHAIN_FILES: &[&str] = &["rust-toolchain.toml", "rust-toolchain"];

/// The most bytes of such a file that are looked at.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The toolchain that is used where the account has chosen none.
const FALLBACK_TOOLCHAIN: &str = "stable";

/// Changes the environment of a read that runs in `directory`.
pub(crate) fn adjust(directory: &Path, environment: &mut BTreeMap<String, String>) {
    let is_locale = |name: &str| name == "LANG" || name.starts_with("LC_");
    let mut locales = environment.iter().filter(|(name, _)| is_locale(name));
    if locales.any(|(_, value)| !pvp_policy::is_known_locale(value)) {
        environment.insert("LC_ALL".to_owned(), "C.UTF-8".to_owned());
    }
    for (name, value) in CARGO_VARIABLES.iter().chain(PYTHON_VARIABLES) {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    if names_toolchain_by_path(directory) {
        let toolchain = default_toolchain(environment);
        environment.insert("RUSTUP_TOOLCHAIN".to_owned(), toolchain);
    }
}

/// Whether rustup would run programs of a directory that the repository names.
fn names_toolchain_by_path(directory: &Path) -> bool {
    let files = directory
        .ancestors()
        .flat_map(|directory| TOOLCHAIN_FILES.iter().map(|name| directory.join(name)));
    let says_path = |text: String| {
        let mut lines = text.lines();
        lines.any(|line| line.contains("path"))
    };
    files.filter_map(|file| read_start(&file)).any(says_path)
}

/// The toolchain that the account of this executor uses by default.
fn default_toolchain(environment: &BTreeMap<String, String>) -> String {
    let home = environment
        .get("HOME")
        .map(|home| Path::new(home).join(".rustup"));
    let own = environment
        .get("RUSTUP_HOME")
        .map(|own| Path::new(own).to_owned());
    let settings = own
        .or(home)
        .and_then(|rustup| read_start(&rustup.join("settings.toml")));
    let chosen = settings.unwrap_or_default();
    let chosen = chosen.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (name.trim() == "default_toolchain" && !value.is_empty()).then(|| value.to_owned())
    });
    chosen.unwrap_or_else(|| FALLBACK_TOOLCHAIN.to_owned())
}

fn read_start(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(directory: &Path, variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut environment = variables.iter().map(own).collect();
        adjust(directory, &mut environment);
        environment
    }

    #[test]
    fn characters_are_those_that_the_assessment_saw() {
        let root = Path::new("/");
        for (name, value, expected) in [
            ("LANG", "zh_CN.GBK", Some("C.UTF-8")),
            ("LC_ALL", "ja_JP.SJIS", Some("C.UTF-8")),
            ("LC_CTYPE", "zh_CN", Some("C.UTF-8")),
            ("LANG", "de_DE.UTF-8", None),
            ("LANG", "C", None),
        ] {
            let environment = adjusted(root, &[(name, value)]);
            let all = environment.get("LC_ALL").map(String::as_str);
            assert_eq!(all, expected, "{name}={value}");
        }
    }

    #[test]
    fn cargo_runs_no_program_that_a_repository_names() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("crate");
        std::fs::create_dir(&inner).unwrap();
        let rustup = directory.path().join("rustup");
        std::fs::create_dir(&rustup).unwrap();
        let settings = "version = \"12\"\ndefault_toolchain = \"1.95-x\"\n";
        std::fs::write(rustup.join("settings.toml"), settings).unwrap();
        let rustup = rustup.to_str().unwrap();
        let environment = adjusted(&inner, &[("RUSTUP_HOME", rustup), ("RUSTC_WRAPPER", "x")]);
        assert_eq!(environment["RUSTC_WRAPPER"], "");
        assert_eq!(environment.get("RUSTUP_TOOLCHAIN"), None);
        let file = directory.path().join("rust-toolchain.toml");
        std::fs::write(file, "[toolchain]\npath = \"./evil\"\n").unwrap();
        let environment = adjusted(&inner, &[("RUSTUP_HOME", rustup)]);
        assert_eq!(environment["RUSTUP_TOOLCHAIN"], "1.95-x");
    }
}
