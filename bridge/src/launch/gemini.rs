//! Gemini CLI: the tools of PVP in place of its own, and hooks for what remains.
//!
//! Its hooks fail open, so they hold nothing alone. A policy on the command line, which stands above
//! everything of the user and the repository, takes its shell and its file edits away and asks about
//! whatever is not known; the tools of PVP run in the agent's own executor. Settings come from a
//! home directory of their own, where everything but the settings leads to the user's files.

mod home;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::flags::variable_removals;
use super::project_settings::{self, SettingsProblem};
use super::{HookProgram, LaunchError, LaunchPlan, ProjectPlace, ProjectTrust};
use crate::hooks::HookClient;

/// The name of the server that offers the tools of PVP.
pub(crate) const SERVER: &str = "pvp";

/// The name of the hooks.
const HOOK_NAME: &str = "pvp";

/// The events that the hook hears.
pub(crate) const EVENTS: [&str; 6] = [
    "BeforeTool",
    "AfterTool",
    "BeforeAgent",
    "AfterAgent",
    "SessionStart",
    "SessionEnd",
];

/// How long a question or a call may wait, in milliseconds: below what fits in 32 bits.
const TIMEOUT_MILLIS: u64 = 2_000_000_000;

/// How long a report may take.
const REPORT_MILLIS: u64 = 120_000;

/// Its tools that change something on this machine; those of PVP are in their place.
const REPLACED_TOOLS: [&str; 2] = ["run_shell_command", "replace"];

/// One more of them, which has the same name as a tool of PVP. If it were taken away, so would be
/// the other; so it stays, and every call of it is denied.
const SAME_NAME: &str = "write_file";

const INSTEAD: &str = "Use the tools of the MCP server pvp instead.";

/// Its tools that read, or have no effect outside its own conversation.
const HARMLESS_TOOLS: [&str; 17] = [
    "read_file",
    "read_many_files",
    "list_directory",
    "glob",
    "grep_search",
    "ask_user",
    "update_topic",
    "write_todos",
    "complete_task",
    "get_internal_docs",
    "enter_plan_mode",
    "exit_plan_mode",
    "invoke_agent",
    "tracker_create_task",
    "tracker_update_task",
    "tracker_get_task",
    "tracker_list_tasks",
];

/// Flags that would replace the policy, work elsewhere, or have no hooks; as this client takes them,
/// without dashes and in any case.
const FLAGS_WITHOUT_POLICY: [&str; 8] = [
    "adminpolicy",
    "acp",
    "experimentalacp",
    "worktree",
    "w",
    "sandbox",
    "s",
    "sandboximage",
];

const VARIABLES_WITHOUT_POLICY: [&str; 1] = ["GEMINI_SANDBOX"];

/// Where the policies of the machine are, which replace those of the command line.
const SYSTEM_SETTINGS: &str = "/etc/gemini-cli/settings.json";

/// Where the client finds what it works with.
#[derive(Debug, Clone)]
pub(super) struct GeminiPlace {
    /// The home directory that it uses otherwise.
    pub(super) home: PathBuf,
    /// The directory with the policies of the machine.
    pub(super) system_policies: PathBuf,
}

impl GeminiPlace {
    pub(super) fn of_this_user() -> Result<Self, LaunchError> {
        let home = std::env::var_os("GEMINI_CLI_HOME").or_else(|| std::env::var_os("HOME"));
        let home = home.filter(|home| !home.is_empty());
        let home = home.ok_or_else(|| LaunchError::Settings("HOME is not set".to_owned()))?;
        Ok(Self::with_home(Path::new(&home)))
    }

    pub(super) fn with_home(home: &Path) -> Self {
        let settings = std::env::var_os("GEMINI_CLI_SYSTEM_SETTINGS_PATH").map(PathBuf::from);
        let settings = settings.unwrap_or_else(|| SYSTEM_SETTINGS.into());
        Self {
            home: home.to_owned(),
            system_policies: settings.with_file_name("policies"),
        }
    }
}

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    project: ProjectPlace<'_>,
    place: &GeminiPlace,
) -> Result<LaunchPlan, LaunchError> {
    let own_words = arguments.iter().take_while(|word| *word != "--");
    for word in own_words.clone() {
        if let Some(flag) = flag_without_policy(&word.to_string_lossy()) {
            return Err(LaunchError::SwitchesOff { flag });
        }
    }
    check_paths(hook)?;
    if has_policies(&place.system_policies) {
        return Err(LaunchError::Settings(format!(
            "the policies of this machine in {} would replace those of PVP; ask its administrator to add PVP's, or use `pvp mcp`",
            place.system_policies.display()
        )));
    }
    if let Some(problem) = switched_off_in(project.workspace) {
        return Err(LaunchError::ProjectSwitchesOff(problem));
    }
    let user_settings = place.home.join(".gemini/settings.json");
    let mut settings = project_settings::read(&user_settings)
        .map_err(|why| LaunchError::Settings(format!("{}: {why}", user_settings.display())))?
        .unwrap_or_default();
    add_settings(&mut settings, hook)?;
    if project.trust == ProjectTrust::Untrusted {
        // What `.env` of a repository sets would reach the hook and the tools.
        settings["advanced"]["ignoreLocalEnv"] = true.into();
    }
    let failed = |error: std::io::Error| LaunchError::Plugin(error.to_string());
    let home = home::make(&hook.files, &place.home, &settings).map_err(failed)?;
    let policy = hook.files.join("gemini-policy.toml");
    super::write_private(&policy, &policy_text()).map_err(failed)?;
    let mut planned: Vec<OsString> = own_words.clone().cloned().collect();
    let limits_servers = own_words
        .map(|word| plain_flag(&word.to_string_lossy()))
        .any(|flag| flag.as_deref() == Some("allowedmcpservernames"));
    if limits_servers {
        planned.extend(["--allowed-mcp-server-names".into(), SERVER.into()]);
    }
    planned.extend(["--admin-policy".into(), policy.into_os_string()]);
    planned.extend(arguments.iter().skip_while(|word| *word != "--").cloned());
    let mut environment = variable_removals(&VARIABLES_WITHOUT_POLICY);
    environment.push(("GEMINI_CLI_HOME".to_owned(), Some(home.into_os_string())));
    Ok(LaunchPlan {
        arguments: planned,
        environment,
        offers_tools: true,
    })
}

/// A flag as this client compares it; `None` if it is another word.
fn plain_flag(word: &str) -> Option<String> {
    let name = word.strip_prefix('-')?;
    let name = super::flags::flag_of(name);
    let plain = name.chars().filter(|c| *c != '-');
    Some(plain.flat_map(char::to_lowercase).collect())
}

fn flag_without_policy(word: &str) -> Option<String> {
    let plain = plain_flag(word)?;
    // Short flags may be joined, as in `-ys`.
    let is_short = !word.starts_with("--");
    let is_word = plain.chars().all(|c| c.is_ascii_alphabetic());
    let joined = is_short && is_word && plain.contains(['s', 'w']);
    let refused = FLAGS_WITHOUT_POLICY.contains(&plain.as_str()) || joined;
    refused.then(|| super::flags::flag_of(word).to_owned())
}

/// Refuses paths that this client would read as something else.
fn check_paths(hook: &HookProgram) -> Result<(), LaunchError> {
    for path in [&hook.program, &hook.files] {
        let text = path.to_str();
        if text.is_none_or(|text| text.contains([',', '$', '%']) || text.starts_with('~')) {
            return Err(LaunchError::Settings(format!(
                "this client cannot be given the path {}, which has a comma, a dollar or a percent sign",
                path.display()
            )));
        }
    }
    Ok(())
}

fn has_policies(directory: &Path) -> bool {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries
            .filter_map(Result::ok)
            .any(|entry| entry.path().extension().is_some_and(|it| it == "toml")),
        // What cannot be looked at may be there.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The file of a repository that switches the hooks off or brings a server of our name.
fn switched_off_in(workspace: &Path) -> Option<SettingsProblem> {
    project_settings::find(workspace, &[".gemini/settings.json"], |settings| {
        let settings = Value::Object(settings.clone());
        let hooks = &settings["hooksConfig"];
        if !hooks["enabled"].is_null() && hooks["enabled"] != true {
            return Some("`hooksConfig.enabled`".to_owned());
        }
        if !hooks["disabled"].is_null() && hooks["disabled"] != json!([]) {
            return Some("`hooksConfig.disabled`".to_owned());
        }
        let servers = settings["mcpServers"].as_object();
        let same = servers.is_some_and(|servers| servers.contains_key(SERVER));
        same.then(|| format!("an MCP server named `{SERVER}`"))
    })
}

/// Adds the tools and the hooks to the settings of the user.
fn add_settings(settings: &mut Map<String, Value>, hook: &HookProgram) -> Result<(), LaunchError> {
    for name in ["mcpServers", "hooks", "hooksConfig", "tools", "advanced"] {
        let entry = settings.entry(name).or_insert_with(|| json!({}));
        if !entry.is_object() {
            let why = format!("`{name}` in your settings is not an object");
            return Err(LaunchError::Settings(why));
        }
    }
    settings["mcpServers"][SERVER] = json!({
        "command": hook.program, "args": ["mcp", "--relay", hook.files],
        "trust": true, "timeout": TIMEOUT_MILLIS,
    });
    settings["hooksConfig"]["enabled"] = true.into();
    settings["hooksConfig"]["disabled"] = json!([]);
    for event in EVENTS {
        let entry = hook_entry(event, &hook.command(HookClient::Gemini, None));
        push(&mut settings["hooks"][event], entry);
    }
    Ok(())
}

/// The hook of an event, as this client reads it from its settings.
pub(crate) fn hook_entry(event: &str, command: &str) -> Value {
    let timeout = match event {
        "BeforeTool" => TIMEOUT_MILLIS,
        _ => REPORT_MILLIS,
    };
    let hook = json!({
        "type": "command", "name": HOOK_NAME, "command": command, "timeout": timeout,
    });
    match event {
        "BeforeTool" | "AfterTool" => json!({ "matcher": "*", "hooks": [hook] }),
        _ => json!({ "hooks": [hook] }),
    }
}

fn push(list: &mut Value, element: Value) {
    match list.as_array_mut() {
        Some(elements) => elements.push(element),
        None => *list = json!([element]),
    }
}

/// Whether the policy lets this tool run without another question than that of the hook.
pub(crate) fn is_allowed_by_policy(tool: &str) -> bool {
    HARMLESS_TOOLS.contains(&tool)
}

/// The policy: what is not known is asked about, and taken away where nobody can be asked.
fn policy_text() -> String {
    let list = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("[{}]", names.join(", "))
    };
    format!(
        "[[rule]]\ntoolName = {}\ndecision = \"deny\"\npriority = 999\n\
         denyMessage = \"{INSTEAD}\"\n\n\
         [[rule]]\ntoolName = \"{SAME_NAME}\"\nargsPattern = \".*\"\ndecision = \"deny\"\n\
         priority = 999\ndenyMessage = \"{INSTEAD}\"\n\n\
         [[rule]]\ntoolName = \"{SAME_NAME}\"\ndecision = \"ask_user\"\npriority = 998\n\n\
         [[rule]]\nmcpName = \"{SERVER}\"\ntoolName = \"*\"\ndecision = \"allow\"\npriority = 998\n\n\
         [[rule]]\ntoolName = {}\ndecision = \"allow\"\npriority = 900\n\n\
         [[rule]]\ntoolName = \"*\"\ninteractive = false\ndecision = \"deny\"\npriority = 101\n\n\
         [[rule]]\ntoolName = \"*\"\ndecision = \"ask_user\"\npriority = 100\n",
        list(&REPLACED_TOOLS),
        list(&HARMLESS_TOOLS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct GeminiFixture {
        _root: tempfile::TempDir,
        hook: HookProgram,
        workspace: PathBuf,
        place: GeminiPlace,
    }

    fn fixture() -> GeminiFixture {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        GeminiFixture {
            hook: HookProgram {
                program: "/opt/pvp".into(),
                files: path("files"),
            },
            workspace: path("work"),
            place: GeminiPlace {
                home: path("home"),
                system_policies: root.path().join("etc/policies"),
            },
            _root: root,
        }
    }

    impl GeminiFixture {
        fn plan(&self, words: &[&str]) -> Result<LaunchPlan, LaunchError> {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            let project = self.project(ProjectTrust::Untrusted);
            plan(&words, &self.hook, project, &self.place)
        }

        fn project(&self, trust: ProjectTrust) -> ProjectPlace<'_> {
            let workspace = &self.workspace;
            ProjectPlace { workspace, trust }
        }

        fn settings(&self, plan: &LaunchPlan) -> Value {
            let home = plan.environment.iter();
            let mut home = home.filter(|(name, _)| name == "GEMINI_CLI_HOME");
            let home = PathBuf::from(home.next().unwrap().1.clone().unwrap());
            let text = std::fs::read_to_string(home.join(".gemini/settings.json")).unwrap();
            serde_json::from_str(&text).unwrap()
        }
    }

    #[test]
    fn its_shell_and_edits_are_replaced_and_the_rest_asks() {
        let it = fixture();
        let planned = it.plan(&["--yolo", "-p", "do it", "--", "more"]).unwrap();
        assert!(planned.offers_tools);
        let policy = it.hook.files.join("gemini-policy.toml");
        let expected: Vec<OsString> = [
            "--yolo",
            "-p",
            "do it",
            "--admin-policy",
            policy.to_str().unwrap(),
            "--",
            "more",
        ]
        .map(OsString::from)
        .to_vec();
        assert_eq!(planned.arguments, expected);
        let rules = std::fs::read_to_string(policy).unwrap();
        for tool in REPLACED_TOOLS {
            assert!(rules.contains(&format!("\"{tool}\"")));
            assert!(!HARMLESS_TOOLS.contains(&tool));
        }
        assert!(!HARMLESS_TOOLS.contains(&SAME_NAME));
        assert!(rules.contains("argsPattern = \".*\"\ndecision = \"deny\"\npriority = 999"));
        assert!(rules.contains("toolName = \"*\"\ndecision = \"ask_user\""));
        let settings = it.settings(&planned);
        let server = &settings["mcpServers"]["pvp"];
        assert_eq!(server["args"], json!(["mcp", "--relay", it.hook.files]));
        assert_eq!(settings["advanced"]["ignoreLocalEnv"], true);
        let question = &settings["hooks"]["BeforeTool"][0];
        assert_eq!(question["matcher"], "*");
        assert_eq!(question["hooks"][0]["timeout"], 2_000_000_000);
    }

    #[test]
    fn variables_of_a_repository_count_only_if_the_person_trusts_it() {
        let it = fixture();
        let project = it.project(ProjectTrust::Trusted);
        let planned = plan(&[], &it.hook, project, &it.place).unwrap();
        let settings = it.settings(&planned);
        assert_eq!(settings["advanced"], json!({}));
    }

    #[test]
    fn the_users_settings_and_files_are_kept() {
        let it = fixture();
        let own = it.place.home.join(".gemini");
        std::fs::create_dir_all(own.join("extensions")).unwrap();
        std::fs::write(own.join("oauth_creds.json"), "{}").unwrap();
        let text = "{ // mine\n \"ui\": {\"theme\": \"x\"}, \"hooksConfig\": {\"enabled\": false},\n \"hooks\": {\"BeforeTool\": [{\"hooks\": []}]}, \"tools\": {\"exclude\": [\"glob\"]}, }";
        std::fs::write(own.join("settings.json"), text).unwrap();
        let planned = it.plan(&[]).unwrap();
        let settings = it.settings(&planned);
        assert_eq!(settings["ui"]["theme"], "x");
        assert_eq!(settings["hooksConfig"]["enabled"], true);
        assert_eq!(settings["hooks"]["BeforeTool"].as_array().unwrap().len(), 2);
        assert_eq!(settings["tools"]["exclude"][0], "glob");
        assert_eq!(
            std::fs::read_to_string(own.join("settings.json")).unwrap(),
            text
        );
        let home = it.hook.files.join("gemini-home/.gemini");
        assert_eq!(
            std::fs::read_link(home.join("extensions")).unwrap(),
            own.join("extensions")
        );
        std::fs::write(home.join("oauth_creds.json"), "new").unwrap();
        assert_eq!(
            std::fs::read_to_string(own.join("oauth_creds.json")).unwrap(),
            "new"
        );
        std::fs::write(own.join("settings.json"), "{ broken").unwrap();
        assert!(matches!(it.plan(&[]), Err(LaunchError::Settings(_))));
    }

    #[test]
    fn what_would_replace_the_policy_is_refused() {
        let it = fixture();
        for flag in [
            "--admin-policy",
            "--adminPolicy=x",
            "--acp",
            "--experimental-acp",
            "-w",
            "--worktree",
            "-s",
            "--sandbox=true",
            "-ys",
        ] {
            let planned = it.plan(&[flag]);
            assert!(
                matches!(planned, Err(LaunchError::SwitchesOff { .. })),
                "{flag}"
            );
        }
        assert!(it.plan(&["-p", "x", "--", "--acp"]).is_ok());
        assert!(it.plan(&["-p", "- fix this"]).is_ok());
        std::fs::create_dir_all(&it.place.system_policies).unwrap();
        assert!(it.plan(&[]).is_ok());
        std::fs::write(it.place.system_policies.join("a.toml"), "").unwrap();
        assert!(matches!(it.plan(&[]), Err(LaunchError::Settings(_))));
    }

    #[test]
    fn a_repository_that_switches_it_off_is_refused() {
        let it = fixture();
        let file = it.workspace.join(".gemini/settings.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for off in [
            r#"{"hooksConfig": {"enabled": false}}"#,
            r#"{"hooksConfig": {"disabled": ["pvp"]}}"#,
            r#"{"mcpServers": {"pvp": {"command": "touch"}}}"#,
            "{ broken",
        ] {
            std::fs::write(&file, off).unwrap();
            let planned = it.plan(&[]);
            assert!(
                matches!(planned, Err(LaunchError::ProjectSwitchesOff(_))),
                "{off}"
            );
        }
        std::fs::write(
            &file,
            r#"{"mcpServers": {"other": {}}, "hooksConfig": {"enabled": true}}"#,
        )
        .unwrap();
        assert!(it.plan(&[]).is_ok());
    }

    #[test]
    fn paths_that_it_reads_as_something_else_are_refused() {
        let mut it = fixture();
        for bad in ["/a,b/pvp", "/a$b/pvp"] {
            it.hook.program = bad.into();
            assert!(
                matches!(it.plan(&[]), Err(LaunchError::Settings(_))),
                "{bad}"
            );
        }
    }
}
