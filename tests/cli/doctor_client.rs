//! `pvp doctor CLIENT` against stand-ins for clients.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::cli::CliEnv;

fn install(cli: &CliEnv, name: &str, script: &str) -> PathBuf {
    let program = cli.home().join(name);
    let text =
        format!("#!/bin/bash\n[ \"$1\" = --version ] && {{ echo 1.2.3; exit; }}\n{script}\n");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Speaks with the model as Claude does, and asks the hook before it does what the model wants.
const HONEST: &str = r#"
host=${ANTHROPIC_BASE_URL#http://}
ask() {
  exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
  printf 'POST /v1/messages HTTP/1.1\r\ncontent-length: %s\r\n\r\n%s' "${#1}" "$1" >&3
  cat <&3
  exec 3>&-
}
ask '{"messages": [], "tools": [{"name": "Bash"}]}' | grep -q 'touch canary' || exit 1
hook=$(printf '%s' "$2" | grep -o "'/[^']*hook'" | head -n 1 | tr -d "'")
said=$(printf '{"hook_event_name": "PreToolUse"}' | "$hook")
decision=broken
case $? in 0) decision=$(printf '%s' "$said" | grep -o '"permissionDecision":"[a-z]*"');; esac
case $decision in *allow*) touch canary;; esac
told=$(printf '%s' "$said" | tr -d '"{}')
ask "{\"messages\": [{\"content\": [{\"type\": \"tool_result\", \"content\": \"$told\"}]}]}"
"#;

async fn doctor(cli: &CliEnv, program: &std::path::Path) -> (Option<i32>, Value) {
    let arguments = ["doctor", program.to_str().unwrap(), "--json"];
    let output = cli.run(&arguments).await;
    let report = serde_json::from_str(&output.out);
    (output.code, report.unwrap_or_else(|_| panic!("{output:?}")))
}

#[tokio::test]
async fn a_client_that_ignores_its_hooks_is_found_out() {
    let cli = CliEnv::new();
    let program = install(&cli, "claude", "touch canary");
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(1));
    assert_eq!(report["version"], "1.2.3");
    let denied = &report["checks"][0];
    assert_eq!(denied["hook"], "denies");
    assert_eq!(
        (&denied["ran"], &denied["health"]),
        (&true.into(), &"bad".into())
    );
    assert!(denied["found"].as_str().unwrap().contains("THE CANARY RAN"));
    assert!(report["advice"].as_str().unwrap().contains("pvp mcp"));
    // Nothing of it happened where the person works.
    assert!(!cli.workdir().join("canary").exists());
}

#[tokio::test]
async fn a_client_that_does_not_make_the_call_has_shown_nothing() {
    let cli = CliEnv::new();
    let program = install(&cli, "claude", "echo 'please log in'; exit 1");
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(1));
    let found = report["checks"][0]["found"].as_str().unwrap();
    assert!(
        found.contains("not tested") && found.contains("please log in"),
        "{found}"
    );
}

#[tokio::test]
async fn a_client_that_obeys_and_fails_closed_is_good() {
    let cli = CliEnv::new();
    let program = install(&cli, "claude", HONEST);
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(0), "{report}");
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["health"], "good", "{check}");
        assert_eq!(check["ran"], check["hook"] == "allows", "{check}");
    }
    assert_eq!(report["advice"], Value::Null);
}

#[tokio::test]
async fn a_client_that_fails_open_is_advised_against() {
    let cli = CliEnv::new();
    let open = HONEST.replace("*allow*)", "*deny*) ;; *)");
    let program = install(&cli, "claude", &open);
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(0), "{report}");
    let checks = report["checks"].as_array().unwrap();
    let crashed = checks.iter().find(|check| check["hook"] == "crashes");
    assert_eq!(crashed.unwrap()["health"], "weak");
    assert!(report["advice"].as_str().unwrap().contains("pvp mcp"));
    let arguments = ["doctor", "vim"];
    cli.run(&arguments).await.expect_refused(&arguments);
}

/// An app-server that asks, and does what the model wants whatever it is answered.
const DEAF_APP_SERVER: &str = r#"
while read -r line; do
  case $line in
    *thread/start*) echo '{"id":2,"result":{"thread":{"id":"t"}}}';;
    *turn/start*) echo '{"id":7,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u"}}';;
    *'"id":7'*) touch canary; echo '{"method":"turn/completed","params":{}}'; exit;;
  esac
done
"#;

#[tokio::test]
async fn a_codex_that_runs_what_was_declined_is_found_out() {
    let cli = CliEnv::new();
    let program = install(&cli, "codex", DEAF_APP_SERVER);
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(1));
    assert_eq!(
        (&report["route"], &report["degree"]),
        (&"its app-server".into(), &"held".into())
    );
    let checks = report["checks"].as_array().unwrap();
    let found = |hook: &str| checks.iter().find(|check| check["hook"] == hook).unwrap();
    assert_eq!(found("denies")["ran"], true);
    // Nobody answered these.
    for hook in ["crashes", "is_killed", "hangs"] {
        assert_eq!(found(hook)["ran"], false, "{hook}");
    }
}

/// Obeys the hooks that it is started with, and those of its own settings only if they answer.
fn weaker_if_installed() -> String {
    let installed =
        r#"hook=$(grep -o '"/[^" ]*hook ' "$HOME/.claude/settings.json" | head -n 1 | tr -d '" ')"#;
    let given = r#"hook=$(printf '%s' "$2" | grep -o "'/[^']*hook'" | head -n 1 | tr -d "'")"#;
    let open = r#"case $1 in --settings) ;; *) case $decision in "") touch canary;; esac;; esac"#;
    HONEST
        .replace(given, &format!("{given}\n[ -n \"$hook\" ] || {installed}"))
        .replace("told=", &format!("{open}\ntold="))
}

#[tokio::test]
async fn installed_hooks_are_tried_apart_from_those_of_pvp_run() {
    let cli = CliEnv::new();
    let program = install(&cli, "claude", &weaker_if_installed());
    let (_, report) = doctor(&cli, &program).await;
    assert_eq!(report["tried"], "as `pvp run` starts it");
    assert_eq!(health_of(&report, "command", "crashes"), "good", "{report}");
    let arguments = ["doctor", program.to_str().unwrap(), "--installed", "--json"];
    let output = cli.run(&arguments).await;
    let report: Value = serde_json::from_str(&output.out).unwrap();
    let tried = report["tried"].as_str().unwrap();
    assert!(tried.contains("`pvp hook install --user`"), "{tried}");
    assert_eq!(report["degree"], "hooked");
    assert_eq!(health_of(&report, "command", "denies"), "good", "{report}");
    assert_eq!(health_of(&report, "command", "crashes"), "weak", "{report}");
    assert_eq!(
        health_of(&report, "command", "is_missing"),
        "weak",
        "{report}"
    );
    // Nothing was put into the settings of the person.
    assert!(!cli.home().join(".claude").exists());
    let codex = install(&cli, "codex", DEAF_APP_SERVER);
    let arguments = ["doctor", codex.to_str().unwrap(), "--installed"];
    let refused = cli.run_refused(&arguments).await;
    assert!(
        refused.contains("/etc/codex/requirements.toml"),
        "{refused}"
    );
}

fn health_of<'a>(report: &'a Value, kind: &str, hook: &str) -> &'a Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["kind"] == kind && check["hook"] == hook);
    &check.unwrap_or_else(|| panic!("{kind} {hook}: {report}"))["health"]
}

/// Speaks with the model as Gemini does. It has no shell, and reads a file unless its hook denies it.
const OPEN_READS: &str = r#"
host=${GOOGLE_GEMINI_BASE_URL#http://}
ask() {
  exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
  printf 'POST /v1beta/models/m:generateContent HTTP/1.1\r\ncontent-length: %s\r\n\r\n%s' "${#1}" "$1" >&3
  cat <&3
  exec 3>&-
}
call=$(ask '{"contents": [], "tools": [{}]}')
told='no such tool'
case $call in *read_file*)
  path=$(printf '%s' "$call" | grep -o '/[^"]*readable.txt')
  settings=$(cat "$GEMINI_CLI_HOME/.gemini/settings.json")
  hook=$(printf '%s' "$settings" | grep -o "'/[^']*hook'" | head -n 1 | tr -d "'")
  [ -n "$hook" ] || exit 1
  said=$(printf '{"hook_event_name": "BeforeTool"}' | "$hook")
  told=$(cat "$path")
  case $said in *'"decision":"deny"'*) told=$(printf '%s' "$said" | tr -d '"{}');; esac;;
esac
ask "{\"contents\": [{\"parts\": [{\"functionResponse\": {\"response\": {\"output\": \"$told\"}}}]}]}"
"#;

#[tokio::test]
async fn a_read_of_gemini_is_tried_because_it_may_fail_open_where_a_command_does_not() {
    let cli = CliEnv::new();
    let program = install(&cli, "gemini", OPEN_READS);
    let (code, report) = doctor(&cli, &program).await;
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(health_of(&report, "command", "crashes"), "good", "{report}");
    for (hook, health) in [
        ("denies", "good"),
        ("allows", "good"),
        ("crashes", "weak"),
        ("is_killed", "weak"),
        ("hangs", "good"),
    ] {
        assert_eq!(health_of(&report, "read", hook), health, "{hook}: {report}");
    }
    let text = cli.run(&["doctor", program.to_str().unwrap()]).await.out;
    assert!(
        text.contains("FAILS OPEN: if the hook crashes, the read runs"),
        "{text}"
    );
    assert!(
        text.contains("waits: while the hook hangs, the read does not run"),
        "{text}"
    );
}
