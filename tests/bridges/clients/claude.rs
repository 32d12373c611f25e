//! Claude Code: hooks in `--settings`.

use serde_json::json;

use super::{
    Asker, Client, Edits, Launch, LaunchPlace, PROMPT, ReadsElsewhere, ServerAway, Several,
    subagent_prompt, text,
};
use crate::model::{ScriptedCall, ScriptedTurn};

pub const CLAUDE: Client = Client {
    name: "claude",
    title: "Claude Code",
    package: "@anthropic-ai/claude-code",
    route: "hooks",
    degree: "hooked",
    removed_tools: &[],
    server_away: ServerAway::Denied,
    asker: Asker::Hook,
    several: Several::InTurn,
    edits: Edits::Run,
    launch,
    screen,
    first_questions: &[],
    shell: |line| ScriptedCall::new("Bash", json!({ "command": line })),
    read: |path| ScriptedCall::new("Read", json!({ "file_path": text(path) })),
    reads_elsewhere: ReadsElsewhere::Asked,
    write: |path, content| {
        let arguments = json!({ "file_path": text(path), "content": content });
        ScriptedCall::new("Write", arguments)
    },
    edit: |path, old, new| {
        let arguments = json!({ "file_path": text(path), "old_string": old, "new_string": new });
        ScriptedCall::new("Edit", arguments)
    },
    denied_write: None,
    mcp_echo: |said| ScriptedCall::new("mcp__echo__echo", json!({ "text": said })),
    subagent: |script| {
        let arguments = json!({
            "description": "do it", "prompt": subagent_prompt(script),
            "subagent_type": "general-purpose", "run_in_background": false,
        });
        vec![ScriptedTurn::call("Agent", arguments)]
    },
    names_subagents: true,
    cannot: &[],
};

fn launch(place: &LaunchPlace) -> Launch {
    let mut arguments = vec!["-p".to_owned(), PROMPT.to_owned()];
    if let Some(server) = &place.mcp_server {
        let servers = json!({ "mcpServers": { "echo": { "command": "node", "args": [server] } } });
        arguments.extend(["--mcp-config".to_owned(), servers.to_string()]);
    }
    Launch {
        arguments,
        environment: vec![
            ("ANTHROPIC_BASE_URL", place.model.clone()),
            ("ANTHROPIC_API_KEY", "scripted".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ],
    }
}

fn screen(place: &LaunchPlace) -> Launch {
    // What it asks at its first start.
    let answered = json!({
        "hasCompletedOnboarding": true, "theme": "dark", "numStartups": 5,
        "customApiKeyResponses": { "approved": ["scripted"], "rejected": [] },
        "projects": { text(&place.workdir): { "hasTrustDialogAccepted": true } },
    });
    place.write(".claude.json", &answered.to_string());
    Launch {
        arguments: vec![PROMPT.to_owned()],
        ..launch(place)
    }
}
