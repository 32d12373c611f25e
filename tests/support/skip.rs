//! Tests that this machine cannot run: each says so, and in CI only the listed ones may.
//!
//! Other crates of the workspace include this file by its path.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "it reads a file and the environment for tests, some of which include only a part"
)]

use std::io::Write;
use std::path::Path;

/// Where the skips that CI accepts are listed, below the root of the workspace.
const ALLOWED_SKIPS: &str = "tests/allowed_skips.txt";

/// Reports that the calling test does not check something, and why. Fails the test in CI if `tests/allowed_skips.txt` does not list this test with exactly this reason.
///
/// The test is known by the name of its thread, so this must be called on the thread that libtest
/// started, which is also where `#[tokio::test]` polls the body of a test.
pub fn skip(reason: &str) {
    let test = current_test();
    // Not `eprintln!`, which libtest hides unless the test fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if is_ci(std::env::var("CI").ok().as_deref()) && !is_allowed(&allowed_skips(), &test, reason) {
        panic!("{test} skips something in CI, and {ALLOWED_SKIPS} does not list it: {reason}");
    }
}

/// Whether the variable `CI` says that this is CI.
pub fn is_ci(variable: Option<&str>) -> bool {
    !matches!(variable, None | Some("" | "0" | "false"))
}

/// The calling test as the list names it: the crate, and the path that libtest prints.
fn current_test() -> String {
    let (this_crate, _) = module_path!().split_once("::").unwrap_or_default();
    let thread = std::thread::current();
    format!("{this_crate}::{}", thread.name().unwrap_or_default())
}

/// The text of the list, found from the crate that is tested.
pub fn allowed_skips() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut lists = own.ancestors().map(|path| path.join(ALLOWED_SKIPS));
    let list = lists.find_map(|path| std::fs::read_to_string(path).ok());
    list.unwrap_or_else(|| panic!("{ALLOWED_SKIPS} is above {}", own.display()))
}

/// The tests of the list with their reasons.
pub fn entries(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            line.split_once('\t')
                .unwrap_or_else(|| panic!("{ALLOWED_SKIPS}: no tab in {line:?}"))
        })
}

fn is_allowed(list: &str, test: &str, reason: &str) -> bool {
    entries(list).any(|entry| entry == (test, reason))
}
