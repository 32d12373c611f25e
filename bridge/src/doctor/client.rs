//! How each client is started against a model on loopback, without a person and asking nobody.

use std::ffi::OsString;

use serde_json::json;

use super::model::CanaryDialect;
use super::{Canary, CanaryCall, CanaryKind, CanaryPlace, DoctorError};
use crate::hooks::HookClient;

/// The prompt; the model does the same whatever it is.
const PROMPT: &str = "Make the canary.";

/// What a client is started with, besides its hooks.
pub(super) struct Start {
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, String)>,
}

/// The call by which the client would make the canary.
pub(super) fn canary_call(canary: Canary, place: &CanaryPlace) -> CanaryCall {
    let client = canary.client;
    if canary.kind == CanaryKind::Read {
        return read_call(client, place);
    }
    let (dialect, tool) = match client {
        HookClient::Claude => (CanaryDialect::Messages, "Bash"),
        HookClient::OpenCode => (CanaryDialect::ChatCompletions, "bash"),
        HookClient::Copilot => (CanaryDialect::ChatCompletions, "bash"),
        HookClient::Gemini => (CanaryDialect::Gemini, "run_shell_command"),
        HookClient::Codex => (CanaryDialect::Responses, "exec_command"),
    };
    let arguments = match client {
        HookClient::Codex => vec![("cmd", "touch canary")],
        HookClient::Claude | HookClient::OpenCode | HookClient::Copilot | HookClient::Gemini => {
            vec![
                ("command", "touch canary"),
                ("description", "make the canary"),
            ]
        }
    };
    let arguments = arguments.into_iter();
    CanaryCall {
        dialect,
        tool,
        arguments: arguments
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect(),
    }
}

/// The call by which the client would read a file.
fn read_call(client: HookClient, place: &CanaryPlace) -> CanaryCall {
    let (dialect, tool, argument) = match client {
        HookClient::Claude => (CanaryDialect::Messages, "Read", "file_path"),
        HookClient::OpenCode => (CanaryDialect::ChatCompletions, "read", "filePath"),
        HookClient::Copilot => (CanaryDialect::ChatCompletions, "view", "path"),
        HookClient::Gemini => (CanaryDialect::Gemini, "read_file", "file_path"),
        // It reads by commands.
        HookClient::Codex => (CanaryDialect::Responses, "exec_command", "cmd"),
    };
    let path = place.readable().display().to_string();
    let value = match client {
        HookClient::Codex => format!("cat '{path}'"),
        HookClient::Claude | HookClient::OpenCode | HookClient::Copilot | HookClient::Gemini => {
            path
        }
    };
    CanaryCall {
        dialect,
        tool,
        arguments: [(argument.to_owned(), value.into())].into_iter().collect(),
    }
}

/// What of a hook's arguments and input says that it is asked about a call, as a pattern of a shell.
pub(super) fn question_pattern(client: HookClient) -> &'static str {
    match client {
        HookClient::Claude | HookClient::Codex => "*PreToolUse*",
        HookClient::OpenCode => r#"*'"event":"before"'*"#,
        HookClient::Gemini => "*BeforeTool*",
        HookClient::Copilot => "*'--event preToolUse'*",
    }
}

pub(super) fn start(
    client: HookClient,
    model: &str,
    place: &CanaryPlace,
) -> Result<Start, DoctorError> {
    let (arguments, environment) = match client {
        HookClient::Claude => claude(model),
        HookClient::OpenCode => opencode(model, place)?,
        HookClient::Copilot => copilot(model),
        HookClient::Gemini => gemini(model, place)?,
        // Its app-server is told everything over its pipe.
        HookClient::Codex => (Vec::new(), Vec::new()),
    };
    Ok(Start {
        arguments: arguments.into_iter().map(OsString::from).collect(),
        environment,
    })
}

type Words = (Vec<&'static str>, Vec<(&'static str, String)>);

fn claude(model: &str) -> Words {
    // In this mode it would run everything, if the hook did not deny it.
    let arguments = vec!["--permission-mode", "bypassPermissions", "-p", PROMPT];
    let environment = vec![
        ("ANTHROPIC_BASE_URL", model.to_owned()),
        ("ANTHROPIC_API_KEY", "canary".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        // Without it, it refuses that mode to root.
        ("IS_SANDBOX", "1".to_owned()),
    ];
    (arguments, environment)
}

fn opencode(model: &str, place: &CanaryPlace) -> std::io::Result<Words> {
    let config = json!({
        "model": "canary/canary", "small_model": "canary/canary",
        "autoupdate": false, "share": "disabled",
        "provider": { "canary": {
            "npm": "@ai-sdk/openai-compatible", "name": "Canary",
            "options": { "baseURL": format!("{model}/v1"), "apiKey": "canary" },
            "models": { "canary": { "name": "Canary" } },
        }},
    });
    let path = place.home().join("opencode.json");
    std::fs::write(&path, config.to_string())?;
    let environment = vec![
        ("OPENCODE_CONFIG", path.display().to_string()),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
        // It fetches a package, and waits until that worked or failed.
        ("npm_config_registry", "http://127.0.0.1:9".to_owned()),
        ("npm_config_fetch_retries", "0".to_owned()),
    ];
    Ok((vec!["run", PROMPT], environment))
}

fn copilot(model: &str) -> Words {
    let environment = vec![
        ("COPILOT_OFFLINE", "true".to_owned()),
        ("COPILOT_PROVIDER_BASE_URL", format!("{model}/v1")),
        ("COPILOT_PROVIDER_API_KEY", "canary".to_owned()),
        ("COPILOT_MODEL", "gpt-4.1".to_owned()),
    ];
    (vec!["--no-auto-update", "-p", PROMPT], environment)
}

fn gemini(model: &str, place: &CanaryPlace) -> std::io::Result<Words> {
    let directory = place.home().join(".gemini");
    std::fs::create_dir_all(&directory)?;
    let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } } });
    std::fs::write(directory.join("settings.json"), settings.to_string())?;
    let arguments = vec![
        "--skip-trust",
        "--yolo",
        "-m",
        "gemini-2.5-flash",
        "-p",
        PROMPT,
    ];
    let environment = vec![
        ("GEMINI_API_KEY", "canary".to_owned()),
        ("GOOGLE_GEMINI_BASE_URL", model.to_owned()),
        ("GEMINI_TELEMETRY_ENABLED", "false".to_owned()),
    ];
    Ok((arguments, environment))
}
