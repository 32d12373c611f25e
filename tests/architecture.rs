//! Which crate may depend on what: the walls of the house.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

use std::collections::BTreeSet;
use std::path::Path;

/// The crates that only think, and everything they may use.
const PURE_CRATES: &[(&str, &[&str])] = &[
    (
        "protocol",
        &[
            "data-encoding",
            "jiff",
            "schemars",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "sha2",
            "strum",
            "thiserror",
            "ts-rs",
            "uuid",
        ],
    ),
    (
        "policy",
        &[
            "pvp-protocol",
            "regex",
            "serde",
            "sha2",
            "thiserror",
            "toml",
            "tree-sitter",
            "tree-sitter-bash",
        ],
    ),
    (
        "session",
        &[
            "pvp-policy",
            "pvp-protocol",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
];

/// The crates that do, and which of ours they may use.
const IO_CRATES: &[(&str, &[&str])] = &[
    ("clock", &["pvp-protocol"]),
    (
        "server",
        &["pvp-clock", "pvp-policy", "pvp-protocol", "pvp-session"],
    ),
    ("client", &["pvp-clock", "pvp-protocol"]),
    (
        "agent",
        &["pvp-client", "pvp-clock", "pvp-policy", "pvp-protocol"],
    ),
    ("tui-client", &["pvp-client", "pvp-protocol"]),
    (
        ".",
        &[
            "pvp-agent",
            "pvp-client",
            "pvp-clock",
            "pvp-policy",
            "pvp-protocol",
            "pvp-server",
            "pvp-session",
            "pvp-tui",
        ],
    ),
];

fn manifest(directory: &str) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(directory)
        .join("Cargo.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

fn dependencies(directory: &str) -> BTreeSet<String> {
    let manifest = manifest(directory);
    for section in ["build-dependencies", "target"] {
        assert!(!manifest.contains_key(section), "{directory} has {section}");
    }
    manifest["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

#[test]
fn pure_crates_depend_on_no_io_crate() {
    for (directory, allowed) in PURE_CRATES {
        for dependency in dependencies(directory) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{directory} may not use {dependency}"
            );
        }
    }
}

#[test]
fn our_crates_depend_on_each_other_in_one_direction() {
    for (directory, allowed) in IO_CRATES {
        for dependency in dependencies(directory) {
            let ours = dependency.starts_with("pvp-");
            let permitted = allowed.contains(&dependency.as_str());
            assert!(!ours || permitted, "{directory} may not use {dependency}");
        }
    }
}

#[test]
fn every_crate_is_in_one_of_the_lists_and_keeps_the_lints() {
    let workspace = manifest(".");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let listed: Vec<_> = PURE_CRATES
        .iter()
        .chain(IO_CRATES)
        .map(|(directory, _)| *directory)
        .collect();
    for member in members {
        let member = member.as_str().unwrap();
        assert!(listed.contains(&member), "say what {member} may depend on");
        assert_eq!(
            manifest(member)["lints"]["workspace"].as_bool(),
            Some(true),
            "{member}"
        );
    }
}

#[test]
fn pure_crates_forbid_clocks_files_and_randomness() {
    for (directory, _) in PURE_CRATES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(directory)
            .join("clippy.toml");
        let fences: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let fenced: BTreeSet<_> = fences["disallowed-methods"]
            .as_array()
            .unwrap()
            .iter()
            .map(|method| method["path"].as_str().unwrap().to_owned())
            .collect();
        for method in [
            "std::time::SystemTime::now",
            "std::time::Instant::now",
            "uuid::Uuid::new_v4",
            "std::env::var",
            "std::fs::read",
            "std::collections::HashMap::iter",
        ] {
            assert!(
                fenced.contains(method),
                "{directory} does not forbid {method}"
            );
        }
    }
}
