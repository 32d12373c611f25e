//! `pvp hook install` and `uninstall`: what they change in a client's settings, and what they leave.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::cli::CliEnv;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Each client with a scope, and the file with settings that may have content already.
fn settings_files(cli: &CliEnv) -> Vec<(&'static str, &'static str, PathBuf)> {
    vec![
        ("claude", "--user", cli.home().join(".claude/settings.json")),
        (
            "claude",
            "--project",
            cli.workdir().join(".claude/settings.json"),
        ),
        (
            "claude",
            "--managed",
            cli.home().join("etc/claude-code/managed-settings.json"),
        ),
        ("gemini", "--user", cli.home().join(".gemini/settings.json")),
        (
            "gemini",
            "--project",
            cli.workdir().join(".gemini/settings.json"),
        ),
        (
            "gemini",
            "--managed",
            cli.home().join("etc/gemini-cli/settings.json"),
        ),
        (
            "opencode",
            "--user",
            cli.config_home().join("opencode/opencode.json"),
        ),
        ("opencode", "--project", cli.workdir().join("opencode.json")),
    ]
}

async fn hook(cli: &CliEnv, what: &str, client: &str, scope: &str) -> String {
    let root = cli.home();
    let arguments = [
        "hook",
        what,
        client,
        scope,
        "--root",
        root.to_str().unwrap(),
    ];
    cli.run_ok(&arguments).await
}

const CONTENTS: [&str; 4] = [
    "// mine\n{\n\t\"model\": \"x\", // keep\n\t\"hooks\": {\"PreToolUse\": [{\"hooks\": []}], \"BeforeTool\": []},\n}\n",
    "{\"permission\":{\"bash\":\"ask\"},\"hooks\":{}}",
    "{}",
    "",
];

#[tokio::test]
async fn uninstalling_gives_back_exactly_what_was_there() {
    for content in CONTENTS {
        let cli = CliEnv::new();
        for (client, scope, file) in settings_files(&cli) {
            write(&file, content);
            let said = hook(&cli, "install", client, scope).await;
            assert!(said.starts_with("changed: "), "{said}");
            assert!(said.contains("degree: hooked"), "{said}");
            assert!(said.contains("cannot stop: "), "{said}");
            let installed = read(&file);
            assert_ne!(installed, content);
            for kept in ["// mine\n", "\"model\": \"x\", // keep"] {
                assert!(
                    !content.contains(kept) || installed.contains(kept),
                    "{installed}"
                );
            }
            // A second time changes nothing.
            let again = hook(&cli, "install", client, scope).await;
            assert!(again.starts_with("unchanged: "), "{again}");
            assert_eq!(read(&file), installed);
            hook(&cli, "uninstall", client, scope).await;
            assert_eq!(read(&file), content, "{client} {scope}");
            let again = hook(&cli, "uninstall", client, scope).await;
            assert!(again.starts_with("unchanged: "), "{again}");
        }
    }
}

#[tokio::test]
async fn files_that_were_not_there_are_gone_afterwards() {
    let cli = CliEnv::new();
    let mut files = settings_files(&cli);
    files.push((
        "copilot",
        "--user",
        cli.home().join(".copilot/hooks/pvp.json"),
    ));
    files.push((
        "copilot",
        "--project",
        cli.workdir().join(".github/hooks/pvp.json"),
    ));
    for (client, scope, file) in files {
        hook(&cli, "install", client, scope).await;
        assert!(file.exists(), "{}", file.display());
        hook(&cli, "uninstall", client, scope).await;
        assert!(!file.exists(), "{}", file.display());
    }
    assert!(!cli.config_home().join("opencode/plugin/pvp.js").exists());
}

#[tokio::test]
async fn what_people_changed_meanwhile_is_kept() {
    let cli = CliEnv::new();
    let file = cli.home().join(".claude/settings.json");
    write(&file, "{\"hooks\": {\"Stop\": [{\"hooks\": []}]}}");
    hook(&cli, "install", "claude", "--user").await;
    let mine = json!({ "hooks": [{ "type": "command", "command": "mine hook run claude-like" }] });
    let mut settings: Value = serde_json::from_str(&read(&file)).unwrap();
    settings["model"] = "new".into();
    settings["hooks"]["Stop"]
        .as_array_mut()
        .unwrap()
        .push(mine.clone());
    // The client itself adds a hook of theirs to the entry that has the same matcher.
    let theirs = json!({ "type": "command", "command": "notify" });
    let beside = settings["hooks"]["PreToolUse"][0]["hooks"].as_array_mut();
    beside.unwrap().push(theirs.clone());
    write(&file, &settings.to_string());
    // Installing again takes nothing of theirs away.
    hook(&cli, "install", "claude", "--user").await;
    hook(&cli, "uninstall", "claude", "--user").await;
    let left: Value = serde_json::from_str(&read(&file)).unwrap();
    let beside = json!([{ "matcher": "*", "hooks": [theirs] }]);
    let hooks = json!({ "Stop": [{ "hooks": [] }, mine], "PreToolUse": beside });
    assert_eq!(left, json!({ "hooks": hooks, "model": "new" }));
    // A denial of their own in OpenCode's configuration is not ours to take away.
    let config = cli.config_home().join("opencode/opencode.json");
    write(&config, "{\"permission\": {\"*\": \"deny\"}}");
    hook(&cli, "install", "opencode", "--user").await;
    let plugin = read(&cli.config_home().join("opencode/plugin/pvp.js"));
    assert!(plugin.contains("\"backstop\":false"), "{plugin}");
    hook(&cli, "uninstall", "opencode", "--user").await;
    assert_eq!(read(&config), "{\"permission\": {\"*\": \"deny\"}}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_left_alone() {
    let cli = CliEnv::new();
    for (client, scope, file) in settings_files(&cli) {
        for broken in ["{ \"hooks\": ", "{\"hooks\": [], \"permission\": }", "[]"] {
            write(&file, broken);
            let root = cli.home();
            let arguments = [
                "hook",
                "install",
                client,
                scope,
                "--root",
                root.to_str().unwrap(),
            ];
            let refused = cli.run(&arguments).await.expect_refused(&arguments);
            assert!(refused.contains("cannot be read"), "{refused}");
            assert_eq!(read(&file), broken);
        }
        // Hooks that are not where they belong are not overwritten either.
        if client != "opencode" {
            write(&file, "{\"hooks\": []}");
            let arguments = [
                "hook",
                "install",
                client,
                scope,
                "--root",
                cli.home().to_str().unwrap(),
            ]
            .map(str::to_owned);
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            cli.run(&arguments).await.expect_refused(&arguments);
            assert_eq!(read(&file), "{\"hooks\": []}");
        }
    }
    assert!(!cli.config_home().join("opencode/plugin/pvp.js").exists());
}

#[tokio::test]
async fn what_a_client_does_not_have_is_refused_with_a_way_out() {
    let cli = CliEnv::new();
    for (client, scope) in [
        ("copilot", "--managed"),
        ("opencode", "--managed"),
        ("codex", "--user"),
        ("codex", "--project"),
    ] {
        let arguments = ["hook", "install", client, scope];
        let refused = cli.run(&arguments).await.expect_refused(&arguments);
        assert!(
            refused.contains(&format!("pvp run -- {client}")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn the_installed_hook_does_not_look_at_the_clients_environment() {
    let cli = CliEnv::new();
    hook(&cli, "install", "claude", "--user").await;
    let settings: Value =
        serde_json::from_str(&read(&cli.home().join(".claude/settings.json"))).unwrap();
    let entry = &settings["hooks"]["PreToolUse"][0];
    assert_eq!(entry["matcher"], "*");
    assert_eq!(entry["hooks"][0]["onFailure"], "block");
    let command = entry["hooks"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("/usr/bin/env -i "), "{command}");
    assert!(
        command.contains(&format!("HOME={}", cli.home().display())),
        "{command}"
    );
    hook(&cli, "install", "claude", "--managed").await;
    let managed = read(&cli.home().join("etc/claude-code/managed-settings.json"));
    assert!(!managed.contains("HOME="), "{managed}");
}

#[tokio::test]
async fn the_requirements_of_codex_get_our_hooks_and_are_given_back() {
    let cli = CliEnv::new();
    let path = cli.home().join("etc/codex/requirements.toml");
    for before in [
        None,
        Some("# ours\nallowed_sandbox_modes = [\"read-only\"]"),
    ] {
        if let Some(before) = before {
            write(&path, before);
        }
        hook(&cli, "install", "codex", "--managed").await;
        let installed = read(&path);
        assert!(
            installed.starts_with(before.unwrap_or_default()),
            "{installed}"
        );
        assert!(
            installed.contains("[[hooks.PreToolUse]]\nmatcher = \"*\""),
            "{installed}"
        );
        let said = hook(&cli, "install", "codex", "--managed").await;
        assert!(said.contains("unchanged"), "{said}");
        assert_eq!(read(&path), installed);
        hook(&cli, "uninstall", "codex", "--managed").await;
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
    }
    // Hooks of somebody else's are not mixed with ours.
    write(&path, "[hooks]\nmanaged_dir = \"/etc/x\"\n");
    let root = cli.home();
    let arguments = [
        "hook",
        "install",
        "codex",
        "--managed",
        "--root",
        root.to_str().unwrap(),
    ];
    let refused = cli.run(&arguments).await.expect_refused(&arguments);
    assert!(refused.contains("hooks of its own"), "{refused}");
}
