//! `pvp run`: starts an agent client under supervision.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_agent::agent::Agent;
use pvp_bridge::hooks::HookClient;
use pvp_bridge::keeper::Keeper;
use pvp_bridge::launch::{self, HookProgram, LaunchPlan, ProjectPlace, ProjectTrust, WaitingText};
use pvp_bridge::mcp::RelayListener;
use pvp_client::{ApiClient, ConnectOptions, RecordCheck};
use pvp_protocol::payload::Announce;
use pvp_protocol::{Capability, capabilities_of};
use pvp_tui::client_terminal::ClientTerminalOptions;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::run_codex::RunnableCodex;
use super::run_terminal::{AnswerArguments, StartedClient};
use super::supervision::{self, Supervision, SupervisionArguments};
use super::{agent_client, agent_flags, check, invite, one_line, print_warning, server};

/// How long a client may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// How long leaving the session may take once the client has ended.
pub(super) const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    supervision: SupervisionArguments,
    /// With `claude -p`: end the client when a call has waited this long, such as 10m; `claude -p
    /// --resume` goes on with the same call
    #[arg(long, value_name = "TIME", value_parser = invite::parse_duration)]
    defer_after: Option<u64>,
    /// Run what this directory's own settings start, without asking anybody
    #[arg(long)]
    trust_project: bool,
    #[command(flatten)]
    answers: AnswerArguments,
    /// The client and its arguments: claude, codex, opencode, gemini or copilot
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CLIENT"
    )]
    client: Vec<OsString>,
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let (program, client_arguments) = arguments.client.split_first().context("name a client")?;
    let client = client_of(program)?;
    let trust = ProjectTrust::of_flag(arguments.trust_project);
    if arguments.defer_after.is_some() {
        check_resumable(client, client_arguments)?;
    }
    let warnings = check_project(client, client_arguments, trust)?;
    for warning in warnings {
        print_warning(&one_line(&warning));
    }
    if client == HookClient::Codex {
        let version = || client_version(program);
        let started = RunnableCodex {
            supervision: &arguments.supervision,
            answers: &arguments.answers,
            program,
            arguments: client_arguments,
            trust,
        };
        return started.run(version);
    }
    let version = client_version(program)?;
    if let Some(warning) = client.version_warning(version.as_deref()) {
        print_warning(&one_line(&warning));
    }
    let supervision = &arguments.supervision;
    let mut supervision = supervision.find(client.name(), version, arguments.defer_after)?;
    let answers = arguments.answers.plan(&mut supervision)?;
    let hook = HookProgram {
        program: std::env::current_exe().context("finding this program")?,
        files: supervision.files.directory().to_owned(),
    };
    let waiting = waiting_text(&supervision);
    supervision
        .files
        .begin(&supervision.settings)
        .context("keeping what is known about the client")?;
    let workspace = &supervision.settings.workspace;
    let place = ProjectPlace { workspace, trust };
    let plan = launch::plan_hooks(client, client_arguments, &hook, place, &waiting)?;
    supervision.lock.keep_with_children()?;
    supervision.print()?;
    if let Ok(log) = supervision::open_log(supervision.files.directory()) {
        server::init_tracing_to_file("warn", log);
    }
    let runtime = super::runtime()?;
    let status = runtime.block_on(supervise(&supervision, program, plan, answers));
    runtime.shutdown_background();
    Ok(exit_code(status?))
}

/// Refuses to end a client that cannot go on with the same call later.
fn check_resumable(client: HookClient, arguments: &[OsString]) -> anyhow::Result<()> {
    let prints = |argument: &OsString| matches!(argument.to_str(), Some("-p" | "--print"));
    if client != HookClient::Claude || !arguments.iter().any(prints) {
        bail!(
            "--defer-after is for `claude -p`, which `claude -p --resume` goes on with; leave it out"
        );
    }
    Ok(())
}

/// Looks at what the directory would make the client run, before anything of the client runs.
fn check_project(
    client: HookClient,
    arguments: &[OsString],
    trust: ProjectTrust,
) -> anyhow::Result<Vec<String>> {
    let workspace = &agent_client::workspace()?;
    let mut warnings = ProjectPlace { workspace, trust }.check(client)?;
    if client == HookClient::Codex
        && let Some(named) = launch::plan_codex(arguments)?.directory()
    {
        let workspace = &named
            .canonicalize()
            .with_context(|| format!("cannot work in {}", named.display()))?;
        warnings.extend(ProjectPlace { workspace, trust }.check(client)?);
    }
    Ok(warnings)
}

pub(super) fn client_of(program: &OsStr) -> anyhow::Result<HookClient> {
    let name = Path::new(program).file_name().unwrap_or_default();
    let client = name.to_str().and_then(HookClient::from_name);
    client.with_context(|| {
        let names = HookClient::ALL.map(HookClient::name).join(", ");
        format!(
            "`{}` is none of {names}; an agent that speaks MCP uses `pvp mcp`, one that speaks ACP `pvp acp`",
            one_line(&program.to_string_lossy())
        )
    })
}

/// What the client says of its version; also finds out whether there is such a program.
pub(super) fn client_version(program: &OsStr) -> anyhow::Result<Option<String>> {
    let runtime = super::runtime()?;
    // Not in the directory of the project, whose settings it may read even for this.
    let program = match Path::new(program).components().count() {
        0 | 1 => program.to_owned(),
        _ => std::path::absolute(program)
            .context("finding the client")?
            .into_os_string(),
    };
    let mut command = Command::new(&program);
    command
        .arg("--version")
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output =
        runtime.block_on(async { tokio::time::timeout(VERSION_TIMEOUT, command.output()).await });
    let output = match output {
        Ok(output) => output.with_context(|| {
            format!(
                "cannot start `{}`; is it installed?",
                one_line(&program.to_string_lossy())
            )
        })?,
        Err(_) => return Ok(None),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    Ok(words
        .find(is_version)
        .map(|word| word.trim_end_matches('.').chars().take(64).collect()))
}

/// What the client shows while a call waits: who is asked.
fn waiting_text(supervision: &Supervision) -> WaitingText {
    let api = ApiClient::new(supervision.agent_link.clone());
    let people = api
        .session(&supervision.settings.session)
        .map(|details| details.people)
        .unwrap_or_default();
    let who = asked_people(people.iter().map(|person| &person.announce));
    let how = match &supervision.settings.answer_key {
        Some(key) => format!("{key} answers here"),
        None => "pvp gates".to_owned(),
    };
    WaitingText(format!("PVP asks {who} ({how})"))
}

/// People that a status line names; the others are counted.
const MAX_NAMES: usize = 5;

/// Who may approve, by name.
fn asked_people<'a>(people: impl Iterator<Item = &'a Announce>) -> String {
    let names: Vec<_> = people
        .filter(|person| may_approve(person))
        .map(|person| one_line(&person.name))
        .collect();
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        _ if names.is_empty() => "the approvers".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn may_approve(person: &Announce) -> bool {
    let explicit = person.capabilities.iter().flatten();
    capabilities_of(person.kind, &person.roles, explicit).contains(&Capability::Approve)
}

/// Starts the client and stays with it until it ends.
async fn supervise(
    supervision: &Supervision,
    program: &OsString,
    plan: LaunchPlan,
    answers: Option<ClientTerminalOptions>,
) -> anyhow::Result<ExitStatus> {
    let keeper = match plan.offers_tools {
        true => offer_tools(supervision).await?,
        false => supervision.keep().await?,
    };
    let mut command = Command::new(program);
    command.args(&plan.arguments);
    // Only the bridge may speak for the people and agents of this machine.
    for name in ["PVP_LINK", "PVP_AGENT_LINK"] {
        command.env_remove(name);
    }
    for (name, value) in &plan.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let client = StartedClient::start(command, answers)
        .await
        .with_context(|| format!("cannot start `{}`", one_line(&program.to_string_lossy())))?;
    if let Some(pid) = client.pid() {
        keeper.watch_processes(pid.as_raw_pid().unsigned_abs());
    }
    let status = client.wait().await;
    let left = tokio::time::timeout(LEAVE_TIMEOUT, keeper.leave("the client has ended")).await;
    if !matches!(left, Ok(Ok(()))) {
        print_warning("the end of the client may be recorded only later");
    }
    status
}

/// Joins as an agent with an executor, and offers the client its tools.
async fn offer_tools(supervision: &Supervision) -> anyhow::Result<Keeper> {
    let settings = &supervision.settings;
    let options = ConnectOptions {
        session: Some(settings.session.clone()),
        record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
        metadata: Some(supervision.metadata()),
        ..ConnectOptions::default()
    };
    let executor = agent_flags::client_executor(&settings.workspace, &settings.participant)?;
    let directory = supervision.files.directory();
    let listener = RelayListener::bind(directory).context("opening a socket for the client")?;
    let link = supervision.agent_link.clone();
    let policy = check::load_policy(None)?;
    let agent = Agent::connect_with(link, options, executor, policy).await?;
    let files = supervision.files.clone();
    Ok(Keeper::offer_tools(files, settings, agent, listener))
}

/// Waits for the client. Signals of the terminal are for it alone; a request to end is passed on.
pub(super) async fn wait_for(mut child: Child) -> anyhow::Result<ExitStatus> {
    let watch = |kind: SignalKind| signal(kind).context("watching for signals");
    let mut interrupt = watch(SignalKind::interrupt())?;
    let mut quit = watch(SignalKind::quit())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let mut hangup = watch(SignalKind::hangup())?;
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    loop {
        tokio::select! {
            status = child.wait() => return status.context("waiting for the client"),
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
            _ = terminate.recv() => pass_on(pid, Signal::TERM),
            _ = hangup.recv() => pass_on(pid, Signal::HUP),
        }
    }
}

pub(super) fn pass_on(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // The client may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// The client's exit code, as a shell gives it.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_approve_is_named_while_a_call_waits() {
        let person = |name: &str, kind: &str, role: &str, more: &[&str]| -> Announce {
            let announce = serde_json::json!({
                "id": name, "name": name, "type": kind, "roles": [role],
                "capabilities": more, "transport": "websocket",
            });
            serde_json::from_value(announce).unwrap()
        };
        let people = [
            person("ann", "human", "approver", &[]),
            person("ben", "human", "navigator", &[]),
            person("cat", "human", "observer", &[]),
            person("dan", "human", "observer", &["approve"]),
            person("eve", "human", "driver", &[]),
            person("bot", "agent", "approver", &[]),
        ];
        assert_eq!(asked_people(people.iter()), "ann, ben, dan");
        assert_eq!(asked_people(people[4..].iter()), "the approvers");
        let crowd = vec![person("kim", "human", "admin", &[]); 7];
        assert_eq!(
            asked_people(crowd.iter()),
            "kim, kim, kim, kim, kim and 2 more"
        );
    }
}
