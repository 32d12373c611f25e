//! Files whose names are taken for flags, and files that hold secrets.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it makes files"
)]

use std::process::Command;

use crate::scratch::{ScratchProject, is_root};

/// Begins every secret.
pub(super) const CANARY: &str = "CANARY-";

const NAMES: &[&str] = &[
    "-o",
    "-ox",
    "--output=x",
    "--output",
    "-delete",
    "-i",
    "-e",
    "-rf",
    "--help",
    "a b",
    "*",
    "[x]",
    "é.txt",
    "new\nline",
    "it's",
    "--compress-program=id",
    "-exec",
    "x=1.txt",
    "$(id)",
];

const SECRETS: &[&str] = &[
    ".env",
    "prod.env",
    "secrets.yml",
    "terraform.tfstate",
    "id_rsa",
    ".npmrc",
    "server.key",
    "src/.env",
];

/// Adds them to a scratch project.
pub(super) fn add_files(scratch: &ScratchProject) {
    let tree = scratch.directory.path().join("tree");
    for directory in ["", "src", "a/b", "only"] {
        let directory = tree.join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        for name in NAMES {
            std::fs::write(directory.join(name), "1 foo\n2 bar\n").unwrap();
        }
    }
    // A pattern that matches two names is one word for a rule, and for some programs the second name
    // is that of their output.
    std::fs::create_dir_all(tree.join("pair")).unwrap();
    for name in ["pair/1", "pair/2"] {
        std::fs::write(tree.join(name), "2 foo\n2 foo\n").unwrap();
    }
    for (number, name) in SECRETS.iter().enumerate() {
        std::fs::write(tree.join(name), format!("TOKEN={CANARY}{number}\n")).unwrap();
    }
    let url = format!("https://someone:{CANARY}git@localhost/x");
    let origin = ["config", "--file=.git/config", "remote.origin.url", &url];
    let git = Command::new("git").args(origin).current_dir(&tree).status();
    assert!(git.unwrap().success());
    if is_root() {
        let owned = Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(scratch.directory.path())
            .status();
        assert!(owned.unwrap().success());
    }
    // The owners changed, and `git diff` writes what it learns about them into the index.
    assert!(scratch.run("git update-index -q --refresh"));
}
