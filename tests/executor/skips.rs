//! The rule for tests that skip something: in CI, only what tests/allowed_skips.txt lists.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::skip::{allowed_skips, entries, skip};

#[test]
#[ignore = "another test starts it"]
fn a_listed_skip() {
    skip("it is listed");
}

#[test]
#[ignore = "another test starts it, to see it fail"]
fn an_unlisted_skip() {
    skip("nobody has listed this");
}

/// Listed, but for another reason.
#[test]
#[ignore = "another test starts it, to see it fail"]
fn a_listed_skip_for_another_reason() {
    skip("it is not listed for this");
}

/// Runs one of the tests above in a process of its own.
fn run_test(test: &str, ci: Option<&str>) -> Output {
    let (_program, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", &format!("{module}::{test}")])
        .env_remove("CI")
        .envs(ci.map(|ci| ("CI", ci)));
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test\n"), "{printed}");
    output
}

#[test]
fn in_ci_a_skip_passes_only_if_it_is_listed() {
    for (test, ci, passes) in [
        ("a_listed_skip", Some("true"), true),
        ("a_listed_skip", None, true),
        ("an_unlisted_skip", Some("true"), false),
        ("an_unlisted_skip", Some("1"), false),
        ("an_unlisted_skip", Some("false"), true),
        ("an_unlisted_skip", None, true),
        ("a_listed_skip_for_another_reason", Some("true"), false),
    ] {
        let output = run_test(test, ci);
        assert_eq!(
            output.status.success(),
            passes,
            "{test} with CI={ci:?}: {output:?}"
        );
        let printed = String::from_utf8(output.stderr).unwrap();
        let line = format!("SKIPPED executor::skips::{test}: ");
        assert!(printed.contains(&line), "{printed}");
    }
}

#[test]
fn every_listed_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for directory in ["tests", "policy/tests", "agent/src"] {
        append_sources(&root.join(directory), &mut sources);
    }
    for (test, _) in entries(&allowed_skips()) {
        let name = test.rsplit("::").next().unwrap();
        assert!(sources.contains(&format!("fn {name}(")), "{test}");
    }
}

fn append_sources(directory: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            append_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}
