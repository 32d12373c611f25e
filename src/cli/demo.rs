//! `pvp demo`: starts a server, a session and an agent that shows what happens to its commands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use pvp_agent::agent::Agent;
use pvp_agent::brain::{Brain, ScriptedBrain};
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::turn_loop::{AgentOptions, run_turn_loop};
use pvp_client::user_directories::share_directory;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::InviteRequest;
use pvp_protocol::{ParticipantKind, Role, SandboxProfile, SessionConfig, SessionId};
use pvp_server::Server;

use super::server::ServerArguments;
use super::up::OwnLinks;
use super::{agent, print_line, server, up};

#[derive(Args)]
pub(crate) struct DemoArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Where the agent's commands run; made if it is not there [default: pvp/demo below the
    /// directory for the user's files]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

pub(crate) fn run(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    let mut config = server::prepare(&arguments.server)?;
    let data = server::data_directory(&config)?;
    let workspace = match arguments.workspace {
        Some(workspace) => workspace,
        None => share_directory()
            .context("no place for the demo's files; give --workspace")?
            .join("demo"),
    };
    let workspace = create_workspace(&workspace)?;
    check_apart(&data, &workspace)?;
    let mut settings = ExecutorSettings::new(workspace.clone(), data.join("executor"));
    settings.private_paths.push(data);
    // Server, agent and people of a demo are on one machine, and people try commands of their own.
    settings.accepted.shell_exec = true;
    config.working_directory = workspace.to_str().map(str::to_owned);
    super::runtime()?.block_on(server::serve(config, async move |server: &Server| {
        let session = new_session_id();
        let own_links = OwnLinks::find_or_invite(server, &session).await?;
        let agent = invite_agent(server, &session).await?;
        // In a task of its own, because the server answers only once this closure has returned.
        tokio::spawn(async move {
            if let Err(error) = run_demo(own_links, agent, session, settings).await {
                super::print_error(&error.context("the demo stopped"));
            }
        });
        Ok(())
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses data in the workspace: approved commands could read and change it.
fn check_apart(data: &Path, workspace: &Path) -> anyhow::Result<()> {
    let data = std::path::absolute(data).context("finding the data directory")?;
    // It may not exist yet; what exists of it says where it will be.
    let existing = data.ancestors().find_map(|path| path.canonicalize().ok());
    if existing.is_some_and(|path| path.starts_with(workspace)) {
        bail!(
            "the data in {} would lie in the workspace {}; choose another --data or --workspace",
            data.display(),
            workspace.display()
        );
    }
    Ok(())
}

/// Creates a small project for the agent to work on.
fn create_workspace(workspace: &Path) -> anyhow::Result<PathBuf> {
    let old = workspace.join("old-notes");
    std::fs::create_dir_all(&old)
        .and_then(|()| std::fs::write(workspace.join("notes.txt"), "milk\nbread\n"))
        .and_then(|()| std::fs::write(old.join("monday.txt"), "flour\n"))
        .with_context(|| format!("making the workspace {}", workspace.display()))?;
    workspace
        .canonicalize()
        .with_context(|| format!("finding {}", workspace.display()))
}

fn new_session_id() -> SessionId {
    let id = pvp_client::fresh_id();
    let end = &id.as_str()[id.as_str().len() - 4..];
    SessionId::parse(&format!("demo-{end}")).expect("letters, digits and a dash")
}

async fn invite_agent(server: &Server, session: &SessionId) -> anyhow::Result<Link> {
    let invitation = server.invite(InviteRequest {
        name: "demo agent".to_owned(),
        roles: [Role::Driver].into(),
        kind: ParticipantKind::Agent,
        capabilities: Default::default(),
        session: Some(session.clone()),
        expires_seconds: Some(86_400),
        participant: None,
    });
    let invitation = invitation.await?;
    Link::parse(&invitation.link).context("the agent's link")
}

async fn run_demo(
    own_links: OwnLinks,
    agent: Link,
    session: SessionId,
    settings: ExecutorSettings,
) -> anyhow::Result<()> {
    let api = ApiClient::new(own_links.creating);
    let config = SessionConfig {
        gate_timeout_seconds: 0,
        ..SessionConfig::default()
    };
    let name = Some("The demo".to_owned());
    let session_id = session.clone();
    tokio::task::spawn_blocking(move || {
        up::create_session_if_missing(&api, &session_id, name, config)
    })
    .await??;
    print_intro(&own_links.remembered, &session, &settings)?;
    let agent = Agent::connect(agent, settings).await?;
    let agent_options = AgentOptions {
        on_event: Arc::new(agent::print_agent_event),
        ..AgentOptions::default()
    };
    run_turn_loop(agent, Brain::Scripted(ScriptedBrain::demo()), agent_options).await?;
    Ok(())
}

fn print_intro(
    own_link: &Link,
    session: &SessionId,
    settings: &ExecutorSettings,
) -> anyhow::Result<()> {
    let pvp = std::env::current_exe().unwrap_or_else(|_| "pvp".into());
    let here = std::env::current_dir().unwrap_or_default();
    let pvp = match pvp.strip_prefix(&here) {
        Ok(near) => format!("./{}", near.display()),
        Err(_) => pvp.display().to_string(),
    };
    let text = format!(
        "
PVP runs on {base}, with the session `{session}` and an agent in it.
Its commands run in {workspace}{sandbox}.
The record is in {data}.

The agent reads a file (that runs at once), and then it wants to write one.
It waits for you. In another shell, in this directory, on one screen:

    {pvp} tui

or a command at a time:

    {pvp} gates                  what waits, and its handle
    {pvp} show HANDLE            the whole card
    {pvp} approve HANDLE         or: {pvp} reject HANDLE 'why not'
    {pvp} tail --follow          everything, as it happens
    {pvp} exec 'ls -l'           a command of your own, beside the agent's

Then it proposes something destructive, and something that is never run.
Ask it to begin again with: {pvp} send again

Prove the record with: {pvp} audit verify --data {data}

Your link is remembered for this directory. To come in from elsewhere, run
`pvp login` there and paste it:
    {link}

Stop with Ctrl-C.
",
        base = own_link.base_url(),
        workspace = settings.workspace.display(),
        data = settings
            .state_directory
            .parent()
            .unwrap_or(&settings.state_directory)
            .display(),
        sandbox = match pvp_agent::sandbox::enforceable_profiles().contains(&SandboxProfile::Read) {
            true => ", reads in a sandbox that holds them to reading",
            false => "; this machine has no sandbox, so reads are asked for too",
        },
        link = own_link.reveal(),
    );
    print_line(text)
}
