//! `pvp acp`: stands between an editor and its agent.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use pvp_agent::agent::{Agent, InterruptAnswers};
use pvp_bridge::acp::{AcpCommand, EditorAgent, ProxyEnd};
use pvp_bridge::launch::ProjectTrust;
use pvp_bridge::supervisor::{SupervisedClient, Supervisor, connect_options};
use pvp_client::{ConnectOptions, RecordCheck};
use pvp_protocol::ParticipantKind;
use pvp_protocol::payload::Degree;

use super::agent_flags::{ExecutorArguments, until_shutdown, wait_until_left};
use super::supervision::{self, Supervision, SupervisionArguments};
use super::{agent_client, check, doctor_client, print_warning, server};

#[derive(Args)]
pub(crate) struct AcpArguments {
    #[command(flatten)]
    supervision: SupervisionArguments,
    /// Let the agent run what the settings of the directories start that it works in, without asking
    /// anybody
    #[arg(long)]
    trust_project: bool,
    /// The agent that the editor would start, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &AcpArguments) -> anyhow::Result<ExitCode> {
    let program = arguments.command.first().map(Path::new);
    let name = program.and_then(Path::file_name).context("name an agent")?;
    let name = name.to_string_lossy().into_owned();
    // Before a server is started for it, which would go on.
    doctor_client::find_program(&arguments.command[0])?;
    let workspace = agent_client::workspace()?;
    let trust = ProjectTrust::of_flag(arguments.trust_project);
    let command = agent_client::acp_command(&arguments.command, &workspace, trust)?;
    let supervision = arguments.supervision.find(&name, None, None)?;
    // Standard output belongs to the editor.
    supervision.print_to_stderr();
    if let Ok(log) = supervision::open_log(supervision.files.directory()) {
        server::init_tracing_to_file("warn", log);
    }
    let runtime = super::runtime()?;
    let ended = runtime.block_on(serve(supervision, command));
    // A thread may still wait for input, which nobody needs any more.
    runtime.shutdown_background();
    match ended? {
        None | Some(ProxyEnd::EditorGone) => Ok(ExitCode::SUCCESS),
        Some(ProxyEnd::AgentGone) => bail!("the agent has ended"),
        Some(ProxyEnd::SessionOver) => bail!("the session is over for this agent"),
    }
}

async fn serve(supervision: Supervision, command: AcpCommand) -> anyhow::Result<Option<ProxyEnd>> {
    let settings = &supervision.settings;
    let client = SupervisedClient {
        name: settings.client.clone(),
        version: None,
        workspace: settings.workspace.clone(),
        // It asks about what it chooses to ask about.
        degree: Degree::Hooked,
    };
    let options = ConnectOptions {
        session: Some(settings.session.clone()),
        kind: Some(ParticipantKind::Agent),
        record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
        ..connect_options(&client)
    };
    let executor = ExecutorArguments::settings_for(&settings.workspace, &settings.participant)?;
    let mut agent = Agent::connect_answering(
        supervision.agent_link.clone(),
        options,
        executor,
        check::load_policy(None)?,
        InterruptAnswers::ByReader,
    )
    .await?;
    let (supervisor, requests) = Supervisor::over_agent(&mut agent, client);
    let over = supervisor.stopped();
    let editor_agent = EditorAgent {
        command,
        supervisor,
        requests,
        agent: Arc::new(agent),
        person: settings.person.clone(),
    };
    let served = editor_agent.serve(tokio::io::stdin(), tokio::io::stdout());
    let served = until_shutdown(served).await?.transpose();
    wait_until_left(over).await;
    if let Err(error) = &served {
        print_warning(&format!("{error:#}"));
    }
    served
}
