//! Gemini CLI: the tools of `pvp mcp` in place of its own shell and edits, or ACP.

use std::path::Path;

use serde_json::json;

use super::{
    ACP_EDITS, Asker, Client, Edits, FailsOpen, HostileFile, Launch, LaunchPlace, PROMPT,
    ProjectSettings, ReadsElsewhere, Reasons, ServerAway, Several, StartedBy, mark_words,
    subagent_prompt, text,
};
use crate::model::{ScriptedCall, ScriptedTurn};
use crate::scenarios::Scenario;

pub const GEMINI: Client = Client {
    key: "gemini",
    started_by: StartedBy::Run,
    name: "gemini",
    title: "Gemini CLI",
    package: "@google/gemini-cli",
    route: "`pvp mcp`, its own tools removed",
    degree: "executed",
    says_version: true,
    removed_tools: &["run_shell_command", "replace"],
    server_away: ServerAway::Waits,
    asker: Asker::Bridge,
    several: Several::SideBySide,
    edits: Edits::Run,
    reasons: Reasons::AtOnce,
    launch,
    screen,
    first_questions: &[],
    shell: |line| {
        ScriptedCall::new(
            "mcp_pvp_shell",
            json!({ "command": line, "purpose": "why" }),
        )
    },
    read: |path| ScriptedCall::new("read_file", json!({ "file_path": text(path) })),
    reads_elsewhere: ReadsElsewhere::Refused,
    write: |path, content| {
        let arguments = json!({ "path": text(path), "content": content, "purpose": "why" });
        ScriptedCall::new("mcp_pvp_write_file", arguments)
    },
    edit: |path, old, new| {
        let arguments = json!({
            "path": text(path), "old_text": old, "new_text": new, "purpose": "why",
        });
        ScriptedCall::new("mcp_pvp_edit_file", arguments)
    },
    denied_write: Some(|path, content| {
        let arguments = json!({ "file_path": text(path), "content": content });
        ScriptedCall::new("write_file", arguments)
    }),
    mcp_echo: |said| ScriptedCall::new("mcp_echo_echo", json!({ "text": said })),
    subagent: |script| {
        // Its subagents end only with this call.
        let mut script = script.to_vec();
        let done = json!({ "result": { "response": "The subagent is done." } });
        script.pop();
        script.push(ScriptedTurn::call("complete_task", done));
        let arguments = json!({ "agent_name": "generalist", "prompt": subagent_prompt(&script) });
        vec![ScriptedTurn::call("invoke_agent", arguments)]
    },
    names_subagents: false,
    most_requests_after_interrupt: 0,
    hostile_files,
    project_settings: ProjectSettings::Refused,
    unsupervised: |place| {
        let mut launch = launch(place);
        let trusts = ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned());
        launch.environment.push(trusts);
        launch
    },
    fails_open: &[
        reads_run_if_it("crashes"),
        reads_run_if_it("is_killed"),
        reads_run_if_it("prints_garbage"),
    ],
    notes: &[(
        Scenario::ReadUnasked,
        "Elsewhere it asks nobody: it refuses such reads by itself.",
    )],
    cannot: &[(
        Scenario::McpCall,
        "Without a screen it can ask nobody about the tools of other MCP servers, so they are taken away.",
    )],
};

/// People prompt it over ACP.
pub const GEMINI_ACP: Client = Client {
    key: "gemini_acp",
    started_by: StartedBy::AcpAgent,
    route: "`pvp agent --acp gemini --acp`",
    degree: "hooked",
    removed_tools: &[],
    server_away: ServerAway::EndsTurn,
    several: Several::InTurn,
    edits: Edits::AskedAgain,
    launch: |place| Launch {
        arguments: ["--acp", "--skip-trust", "-m", "gemini-2.5-flash"]
            .map(str::to_owned)
            .to_vec(),
        ..launch(place)
    },
    shell: |line| ScriptedCall::new("run_shell_command", json!({ "command": line })),
    write: |path, content| {
        let arguments = json!({ "file_path": text(path), "content": content });
        ScriptedCall::new("write_file", arguments)
    },
    edit: |path, old, new| {
        let arguments = json!({
            "file_path": text(path), "instruction": "as scripted",
            "old_string": old, "new_string": new,
        });
        ScriptedCall::new("replace", arguments)
    },
    denied_write: None,
    // The other file only switches hooks off, of which there are none.
    hostile_files: |marks| hostile_files(marks).into_iter().take(1).collect(),
    reasons: Reasons::AtTheEnd,
    fails_open: &[],
    notes: &[
        ACP_EDITS,
        (
            Scenario::Reject,
            "It goes on after a rejection; its model reads the reason at the end of its turn, and may then go on again.",
        ),
    ],
    cannot: &[
        (
            Scenario::Approve,
            "It runs only what was approved, but says neither what that printed nor its exit code.",
        ),
        (
            Scenario::ReadUnasked,
            "It reads in its directory without asking; the record says afterwards what it read. Elsewhere it refuses by itself.",
        ),
    ],
    ..GEMINI
};

fn launch(place: &LaunchPlace) -> Launch {
    let mut settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
    });
    if let Some(server) = &place.mcp_server {
        settings["mcpServers"]["echo"] = json!({ "command": "node", "args": [server] });
    }
    place.write(".gemini/settings.json", &settings.to_string());
    let words = ["--skip-trust", "-m", "gemini-2.5-flash", "-p", PROMPT];
    Launch {
        arguments: words.map(str::to_owned).to_vec(),
        environment: vec![
            ("GEMINI_API_KEY", "scripted".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", place.model.clone()),
        ],
    }
}

fn screen(place: &LaunchPlace) -> Launch {
    Launch {
        arguments: ["--skip-trust", "-m", "gemini-2.5-flash", "-i", PROMPT]
            .map(str::to_owned)
            .to_vec(),
        ..launch(place)
    }
}

const fn reads_run_if_it(hook: &'static str) -> FailsOpen {
    FailsOpen {
        kind: "read",
        hook,
        note: "Its own reads run. Its own shell and edits are taken away, so that nothing else does.",
    }
}

fn hostile_files(marks: &Path) -> Vec<HostileFile> {
    let [program, words @ ..] = mark_words(marks, "server");
    let servers = json!({ "mcpServers": { "evil": { "command": program, "args": words } } });
    vec![
        HostileFile {
            path: ".gemini/settings.json",
            text: servers.to_string(),
            mark: Some("server"),
        },
        HostileFile {
            path: ".gemini/settings.json",
            text: json!({ "hooksConfig": { "enabled": false } }).to_string(),
            mark: None,
        },
    ]
}
