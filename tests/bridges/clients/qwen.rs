//! Qwen Code: ACP. It began as Gemini CLI.

use serde_json::json;

use super::gemini::GEMINI_ACP;
use super::{ACP_EDITS, Client, Launch, LaunchPlace, ReadsElsewhere, Reasons, text};
use crate::model::ScriptedCall;
use crate::scenarios::Scenario;

/// People prompt it over ACP.
pub const QWEN_ACP: Client = Client {
    key: "qwen_acp",
    name: "qwen",
    title: "Qwen Code",
    package: "@qwen-code/qwen-code",
    route: "`pvp agent --acp qwen --acp`",
    reads_elsewhere: ReadsElsewhere::Asked,
    reasons: Reasons::AtOnce,
    notes: &[ACP_EDITS],
    launch,
    shell: |line| {
        let arguments = json!({ "command": line, "is_background": false });
        ScriptedCall::new("run_shell_command", arguments)
    },
    edit: |path, old, new| {
        let arguments = json!({ "file_path": text(path), "old_string": old, "new_string": new });
        ScriptedCall::new("edit", arguments)
    },
    cannot: &[(
        Scenario::HostileRepository,
        "What its settings in a repository start is not looked at.",
    )],
    ..GEMINI_ACP
};

fn launch(place: &LaunchPlace) -> Launch {
    Launch {
        arguments: vec!["--acp".to_owned()],
        environment: vec![
            ("OPENAI_BASE_URL", format!("{}/v1", place.model)),
            ("OPENAI_API_KEY", "scripted".to_owned()),
            ("OPENAI_MODEL", "scripted".to_owned()),
        ],
    }
}
