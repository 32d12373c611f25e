//! The same attacks by an ordinary user, where files and processes are what is wanted. As root, file
//! modes protect nothing; as an ordinary user, some ways of looking around are others.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::skip::skip;

const NOBODY: u32 = 65534;

/// The attacks whose outcome depends on the account.
const ATTACKS: &[&str] = &[
    "changed_files::",
    "credentials::",
    "hidden_environment::",
    "lying_server::",
    "secrets_through_reads::",
    "wider_rights::",
];

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program);
    command
}

#[test]
fn what_root_does_not_get_an_ordinary_user_does_not_get_either() {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        // Then the attacks themselves were made by an ordinary user.
        return;
    }
    let tests = std::env::current_exe().unwrap();
    for program in [tests.as_path(), Path::new(env!("CARGO_BIN_EXE_pvp"))] {
        let within_reach = as_nobody(Path::new("test")).arg("-x").arg(program).status();
        if !within_reach.unwrap().success() {
            skip("an ordinary user cannot run what was built");
            return;
        }
    }
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = as_nobody(&tests)
        .args(ATTACKS)
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("RUST_TEST_THREADS", "2")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    for attack in ATTACKS {
        let made = format!("test {attack}");
        assert!(printed.contains(&made), "no attack of {attack}: {printed}");
    }
}
