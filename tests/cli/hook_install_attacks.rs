//! `pvp hook install` and `uninstall` in a repository under attack, and with settings that are odd.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::cli::CliEnv;
use crate::support::skip::skip;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

async fn refused(cli: &CliEnv, arguments: &[&str]) -> String {
    cli.run(arguments).await.expect_refused(arguments)
}

#[tokio::test]
async fn a_link_in_a_repository_leads_to_no_file_of_the_person() {
    for (client, name, target) in [
        ("copilot", ".github/hooks/pvp.json", "export A=1\n"),
        ("opencode", ".opencode/plugin/pvp.js", "export A=1\n"),
        ("claude", ".claude/settings.json", "{\"a\": 1}"),
        ("gemini", ".gemini/settings.json", "{\"a\": 1}"),
        ("opencode", "opencode.json", "{\"a\": 1}"),
    ] {
        for of_directory in [false, true] {
            let cli = CliEnv::new();
            let link = cli.workdir().join(name);
            let precious = match of_directory {
                true => cli.home().join("precious").join(link.file_name().unwrap()),
                false => cli.home().join(".bashrc"),
            };
            write(&precious, target);
            match of_directory {
                // The directory is a link, and what lies behind it is of the person.
                true if link.parent() != Some(&cli.workdir()) => {
                    let directory = link.parent().unwrap();
                    std::fs::create_dir_all(directory.parent().unwrap()).unwrap();
                    symlink(precious.parent().unwrap(), directory).unwrap();
                }
                true => continue,
                false => {
                    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
                    symlink(&precious, &link).unwrap();
                }
            }
            for what in ["install", "uninstall"] {
                let arguments = ["hook", what, client, "--project"];
                let said = refused(&cli, &arguments).await;
                assert!(said.contains("is left alone"), "{client} {what}: {said}");
                assert_eq!(read(&precious), target, "{client} {what}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_of_somebody_else_is_neither_replaced_nor_removed() {
    let cli = CliEnv::new();
    for (client, file) in [
        ("copilot", cli.home().join(".copilot/hooks/pvp.json")),
        ("opencode", cli.config_home().join("opencode/plugin/pvp.js")),
    ] {
        write(&file, "{\"mine\": true}");
        for what in ["install", "uninstall"] {
            let said = refused(&cli, &["hook", what, client]).await;
            assert!(said.contains("is not PVP's"), "{said}");
            assert_eq!(read(&file), "{\"mine\": true}");
        }
    }
    // Nothing was denied either, as long as nobody can allow it again.
    assert!(!cli.config_home().join("opencode/opencode.json").exists());
}

#[tokio::test]
async fn hooks_are_not_added_where_nobody_heeds_them() {
    let cli = CliEnv::new();
    for (client, file, off) in [
        (
            "claude",
            ".claude/settings.json",
            "{\"disableAllHooks\": true}",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"hooksConfig\": {\"enabled\": false}}",
        ),
    ] {
        let file = cli.home().join(file);
        write(&file, off);
        let said = refused(&cli, &["hook", "install", client]).await;
        assert!(said.contains("nobody would be asked"), "{said}");
        assert_eq!(read(&file), off);
    }
}

#[tokio::test]
async fn what_is_read_only_or_no_file_is_left_alone() {
    let cli = CliEnv::new();
    let file = cli.home().join(".claude/settings.json");
    write(&file, "{}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    let said = refused(&cli, &["hook", "install", "claude"]).await;
    assert!(said.contains("read-only"), "{said}");
    assert_eq!(read(&file), "{}");
    std::fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let said = refused(&cli, &["hook", "install", "claude"]).await;
    assert!(said.contains("not a file"), "{said}");
    std::fs::remove_file(&file).unwrap();
    write(
        &file,
        &format!("{{\"a\": \"{}\"}}", "x".repeat(5 * 1024 * 1024)),
    );
    let said = refused(&cli, &["hook", "install", "claude"]).await;
    assert!(said.contains("too long"), "{said}");
}

#[tokio::test]
async fn settings_of_another_user_are_left_alone() {
    let cli = CliEnv::new();
    let file = cli.home().join(".claude/settings.json");
    write(&file, "{}");
    let own = std::fs::metadata(&file).unwrap().uid();
    // Only root can give a file away.
    if own != 0 {
        return skip("only root can give a file to another user");
    }
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    let said = refused(&cli, &["hook", "install", "claude"]).await;
    assert!(said.contains("another user"), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().uid(), 65534);
    assert_eq!(read(&file), "{}");
}

#[tokio::test]
async fn everybody_can_read_what_is_installed_for_everybody() {
    let cli = CliEnv::new();
    let root = cli.home();
    let words = format!(
        "umask 077; exec '{}' hook install claude --managed --root '{}'",
        env!("CARGO_BIN_EXE_pvp"),
        root.display()
    );
    let mut shell = cli.program("/bin/sh");
    let status = shell.args(["-c", &words]).status().await.unwrap();
    assert!(status.success());
    let mode = |path: &str| {
        let metadata = std::fs::metadata(root.join(path)).unwrap();
        metadata.mode() & 0o777
    };
    assert_eq!(mode("etc/claude-code"), 0o755);
    assert_eq!(mode("etc/claude-code/managed-settings.json"), 0o644);
}

#[tokio::test]
async fn a_name_that_occurs_twice_keeps_what_is_not_ours() {
    let cli = CliEnv::new();
    let file = cli.home().join(".claude/settings.json");
    let twice = "{\"hooks\": {\"Stop\": [{\"hooks\": [1]}], \"Stop\": []}}";
    write(&file, twice);
    cli.run_ok(&["hook", "install", "claude"]).await;
    // Somebody changes the file, so that it cannot be given back as it was.
    write(&file, &format!("{}\n", read(&file)));
    cli.run_ok(&["hook", "uninstall", "claude"]).await;
    let left = read(&file);
    assert!(left.contains("{\"hooks\": [1]}"), "{left}");
    assert!(!left.contains("hook run claude"), "{left}");
}
