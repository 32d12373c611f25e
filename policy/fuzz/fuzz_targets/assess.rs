//! Checks that any bytes are assessed within bounds and always alike, and that a command with an
//! added redirect is never a read.
//!
//! `cargo +nightly fuzz run assess -- -max_len=65536` in `policy/`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pvp_policy::{Workspace, Policy};
use pvp_protocol::{Action, Category, Command};

fuzz_target!(|bytes: &[u8]| {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    let explain_line = |line: &str| {
        let line = line.to_owned();
        policy.explain(&Action::new(Command::Shell { line }), &workspace)
    };
    let line = String::from_utf8_lossy(bytes);
    let explanation = explain_line(&line);
    assert_eq!(explanation, explain_line(&line));
    assert!(explanation.steps <= 300_000);
    if explanation.assessment.category == Category::Read && !line.contains('#') {
        let redirected = explain_line(&format!("{line} >out"));
        assert!(redirected.assessment.category > Category::Read);
        let followed = explain_line(&format!("{line}\nrm -rf build"));
        assert!(followed.assessment.category >= Category::Destructive);
    }
});
