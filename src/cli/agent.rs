//! `pvp agent`: joins a session as an agent with a brain and an executor.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args, ValueEnum};
use pvp_agent::agent::Agent;
use pvp_agent::brain::provider::{Dialect, Provider, ThinkingMode};
use pvp_agent::brain::{self, Brain, ScriptedBrain};
use pvp_agent::executor::{
    AcceptedOrigins, DEFAULT_READ_MEMORY_BYTES, ExecutorSettings, GitSettings,
};
use pvp_agent::run::OverflowAction;
use pvp_agent::sandbox::{CgroupLimits, ResourceLimits, can_count_denials};
use pvp_agent::turn_loop::{AgentEvent, AgentOptions, ExitWhen, run_turn_loop};
use pvp_client::user_directories::state_directory;
use pvp_client::{ApiClient, ConnectOptions, Link, RecordCheck};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, SandboxProfile, SessionId};

use super::{check, link_argument, links, one_line, print_line, server};

/// How long a stopping agent may take to end its commands and leave the session.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// Answers in a row before the agent waits for a person, unless told otherwise.
const DEFAULT_MOST_ANSWERS: u32 = 100;

const MIB: u64 = 1024 * 1024;

#[derive(Args)]
pub(crate) struct AgentArguments {
    /// The agent's link, or `-` for standard input; else $PVP_AGENT_LINK, $PVP_LINK, or what
    /// `pvp up` or `pvp login` remembered. Others on this machine see an argument
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// A file that holds the link
    #[arg(long, value_name = "FILE", conflicts_with = "link")]
    link_file: Option<PathBuf>,
    /// The session, if the link does not name it
    #[arg(long, value_name = "ID", value_parser = super::parse_session_id)]
    session: Option<SessionId>,
    /// Who to be, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::parse_participant_id)]
    participant: Option<ParticipantId>,

    #[command(flatten)]
    brain: BrainArguments,
    #[command(flatten)]
    executor: ExecutorArguments,

    /// Leave when the script is over, or when the first prompt is answered
    #[arg(long)]
    once: bool,
    /// Say nothing of what it does
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BrainKind {
    /// A file of steps, in TOML or JSON lines
    Scripted,
    /// A model behind Anthropic's Messages API; the key is in ANTHROPIC_API_KEY
    Anthropic,
    /// A model behind Chat Completions, of OpenAI or of a server like it; the key is in
    /// OPENAI_API_KEY
    Openai,
}

#[derive(Args)]
pub(super) struct BrainArguments {
    /// What answers [default: scripted with --script, else anthropic]
    #[arg(long, env = "PVP_AGENT_BRAIN", value_enum)]
    brain: Option<BrainKind>,
    /// The file of steps to follow
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The model to ask
    #[arg(long, env = "PVP_AGENT_MODEL")]
    model: Option<String>,
    /// Where to ask, if not the provider itself: a proxy, or a model of one's own
    #[arg(long, env = "PVP_AGENT_BASE_URL", value_name = "URL")]
    base_url: Option<String>,
    /// Tokens that the model can read and write in all
    #[arg(long, value_name = "TOKENS")]
    context: Option<u64>,
    /// Tokens of one answer, at most
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// Tokens to think with, for models that take a budget; 0 says nothing about thinking
    #[arg(long, value_name = "TOKENS")]
    thinking: Option<u64>,
    /// A file with instructions that the model reads first
    #[arg(long, value_name = "FILE")]
    instructions: Option<PathBuf>,
    /// Answers in a row before it waits for a person
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MOST_ANSWERS)]
    most_answers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOverflow {
    /// End the command, and say so
    Kill,
    /// Let it go on, and keep the beginning and the end
    Truncate,
}

#[derive(Args)]
struct ExecutorArguments {
    /// Where commands run [default: this directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Where it is noted what was run [default: one for this agent below the user's state
    /// directory]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A prefix for approved commands, such as 'podman exec -i dev'; people see it
    #[arg(long, value_name = "WORDS")]
    runner: Option<String>,
    /// Rules of your own on top of the built-in ones: what they block does not run here
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Run commands as people edited them at a gate; with =false, only what it proposed itself
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    accept_edits: bool,
    /// Run people's own commands too (`pvp exec`, `!cmd`); only the server says who sent them
    #[arg(long)]
    accept_shell: bool,
    /// Let approved commands write only below the workspace, whatever the session says
    #[arg(long)]
    confine: bool,
    /// Let reads run unconfined if this machine cannot confine them and the session trusts reads
    #[arg(long)]
    trust_reads: bool,
    /// Let reads see nothing beside the workspace, whatever read roots the session has
    #[arg(long)]
    no_read_roots: bool,
    /// Try nothing in the sandbox, whatever the session says: ask for it
    #[arg(long)]
    no_try: bool,
    /// Commands at a time; more wait their turn
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    at_once: usize,
    /// Background jobs at a time
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    jobs: usize,
    /// What becomes of a command that prints more than it may
    #[arg(long, value_enum, default_value = "kill")]
    on_overflow: OnOverflow,
    /// Memory of each command, in MiB: of all its processes where cgroups can hold them, and of
    /// each process
    #[arg(long, value_name = "MIB")]
    max_memory: Option<u64>,
    /// Memory of each process of a command that runs without asking, in MiB
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_READ_MEMORY_BYTES / MIB)]
    read_memory: u64,
    /// Processes of each command, where cgroups can hold them
    #[arg(long, value_name = "COUNT")]
    max_processes: Option<u64>,
    /// Processor time of each process, in seconds
    #[arg(long, value_name = "SECONDS")]
    max_cpu: Option<u64>,
    /// Size of each file that a command writes, in MiB
    #[arg(long, value_name = "MIB")]
    max_file: Option<u64>,
    /// 'Name <address>' to add to commits as a co-author, before they are proposed
    #[arg(long, value_name = "IDENTITY")]
    co_author: Option<String>,
    /// Note on approved commits who approved them, in refs/notes/pvp
    #[arg(long)]
    git_notes: bool,
}

pub(crate) fn run(arguments: &AgentArguments) -> anyhow::Result<ExitCode> {
    let link = arguments.read_link()?;
    server::init_tracing("warn");
    let brain = arguments.brain.build_brain()?;
    let agent_options = AgentOptions {
        instructions: arguments.brain.read_instructions()?,
        max_steps: arguments.brain.most_answers.max(1),
        exit_when: match arguments.once {
            true => ExitWhen::FirstTurnDone,
            false => ExitWhen::SessionEnds,
        },
        on_event: match arguments.quiet {
            true => Arc::new(|_| {}),
            false => Arc::new(print_agent_event),
        },
    };
    super::runtime()?.block_on(async {
        let mut settings = arguments
            .executor
            .executor_settings(&link, arguments.participant.as_ref())
            .await?;
        settings.private_paths.extend(arguments.link_file.clone());
        server::warn_of_data_in(&settings.workspace);
        if settings.trials && !can_count_denials() && !arguments.quiet {
            print_line(
                "nothing is tried in the sandbox here, because this machine cannot count what it denies; `pvp doctor` says more",
            )?;
        }
        let policy = check::load_policy(arguments.executor.policy.as_ref())?;
        let options = ConnectOptions {
            session: arguments.session.clone(),
            participant: arguments.participant.clone(),
            kind: Some(ParticipantKind::Agent),
            roles: link.token().is_none().then(|| vec![Role::Driver]),
            record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
            ..ConnectOptions::default()
        };
        let agent = Agent::connect_with(link, options, settings, policy).await?;
        if !arguments.quiet {
            print_line(format!(
                "{} is in {}, and runs what is granted in {}",
                agent.participant(),
                agent.session(),
                agent.settings().workspace.display()
            ))?;
        }
        run_until_stopped(agent, brain, agent_options).await
    })?;
    Ok(ExitCode::SUCCESS)
}

impl AgentArguments {
    fn read_link(&self) -> anyhow::Result<Link> {
        if let Some(text) = &self.link {
            return link_argument::from_argument(text).context("the agent's link");
        }
        if let Some(path) = &self.link_file {
            return link_argument::from_file(path);
        }
        for variable in ["PVP_AGENT_LINK", "PVP_LINK"] {
            if let Some(link) = links::link_from_variable(variable)? {
                return Ok(link);
            }
        }
        let found = links::find_saved_link(&[ParticipantKind::Agent])?;
        let (link, _) = found.context(
            "no agent's link is known here; run `pvp up` here, remember a link with `pvp login`, give --link-file, or set PVP_LINK",
        )?;
        Ok(link)
    }
}

/// Runs the turn loop until it ends or a signal asks it to stop, then ends the running commands.
async fn run_until_stopped(
    agent: Agent,
    brain: Brain,
    agent_options: AgentOptions,
) -> anyhow::Result<()> {
    let (over, stop) = (agent.stopped(), super::shutdown_signal()?);
    let result = tokio::select! {
        result = run_turn_loop(agent, brain, agent_options) => result,
        () = stop => Ok(()),
    };
    // The reaper ends any command that is still running after this.
    let end_reason = tokio::time::timeout(SHUTDOWN_TIMEOUT, over).await;
    result?;
    match end_reason {
        Ok(Some(why)) => bail!("{why}"),
        Ok(None) | Err(_) => Ok(()),
    }
}

impl BrainArguments {
    /// Arguments that name a model, and leave everything else at its default.
    pub(super) fn for_model(model: &str, brain: Option<BrainKind>, base_url: Option<&str>) -> Self {
        Self {
            brain,
            script: None,
            model: Some(model.to_owned()),
            base_url: base_url.map(str::to_owned),
            context: None,
            max_tokens: None,
            thinking: None,
            instructions: None,
            most_answers: DEFAULT_MOST_ANSWERS,
        }
    }

    pub(super) fn build_brain(&self) -> anyhow::Result<Brain> {
        let kind = self.brain.unwrap_or(match self.script {
            Some(_) => BrainKind::Scripted,
            None => BrainKind::Anthropic,
        });
        let dialect = match (kind, &self.script) {
            (BrainKind::Scripted, Some(script)) => {
                return Ok(Brain::Scripted(ScriptedBrain::open(script)?));
            }
            (BrainKind::Scripted, None) => bail!("say which --script to follow"),
            (_, Some(_)) => bail!("--script goes with --brain scripted"),
            (BrainKind::Anthropic, None) => Dialect::Anthropic,
            (BrainKind::Openai, None) => Dialect::OpenAi,
        };
        let Some(model) = &self.model else {
            bail!("say which model to ask with --model, or which --script to follow");
        };
        let mut settings = brain::ProviderSettings::new(dialect, model);
        settings.base_url = self.base_url.clone();
        settings.max_tokens = self.max_tokens;
        settings.context_tokens = self.context.unwrap_or(settings.context_tokens);
        settings.thinking = match self.thinking {
            None => settings.thinking,
            Some(0) => ThinkingMode::Unspecified,
            Some(budget) => ThinkingMode::Budget(budget),
        };
        Ok(Brain::Provider(Provider::new(settings)?))
    }

    fn read_instructions(&self) -> anyhow::Result<Option<String>> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path)
                .with_context(|| format!("reading instructions from {}", path.display()))
        };
        self.instructions.as_ref().map(read).transpose()
    }
}

impl ExecutorArguments {
    async fn executor_settings(
        &self,
        link: &Link,
        participant: Option<&ParticipantId>,
    ) -> anyhow::Result<ExecutorSettings> {
        let workspace = match &self.workspace {
            Some(workspace) => workspace.clone(),
            None => super::current_directory()?,
        };
        let workspace = workspace
            .canonicalize()
            .with_context(|| format!("cannot work in {}", workspace.display()))?;
        if !workspace.is_dir() {
            bail!(
                "cannot work in {}: it is not a directory",
                workspace.display()
            );
        }
        let state = match (&self.state, participant) {
            (Some(state), _) => state.clone(),
            (None, Some(participant)) => agent_state_directory(participant)?,
            (None, None) => agent_state_directory(&token_participant(link).await?)?,
        };
        let mut settings = ExecutorSettings::new(workspace, state);
        let runner = self.runner.as_deref().unwrap_or_default();
        settings.runner = runner.split_whitespace().map(str::to_owned).collect();
        settings.accepted = AcceptedOrigins {
            edits: self.accept_edits,
            shell_exec: self.accept_shell,
        };
        if self.confine {
            settings.profile = SandboxProfile::Workspace;
        }
        settings.unconfined_reads = self.trust_reads;
        settings.accept_read_roots = !self.no_read_roots;
        settings.trials = !self.no_try;
        settings.max_commands = self.at_once.max(1);
        settings.max_background_jobs = self.jobs;
        settings.on_overflow = match self.on_overflow {
            OnOverflow::Kill => OverflowAction::Kill,
            OnOverflow::Truncate => OverflowAction::Truncate,
        };
        settings.limits = self.resource_limits();
        settings.read_memory_bytes = self.read_memory.saturating_mul(MIB);
        settings.git = GitSettings {
            co_author: self
                .co_author
                .as_deref()
                .map(parse_git_identity)
                .transpose()?,
            notes: self.git_notes,
        };
        Ok(settings)
    }
}

impl ExecutorArguments {
    fn resource_limits(&self) -> ResourceLimits {
        let bytes = |mib: Option<u64>| mib.map(|mib| mib.saturating_mul(MIB));
        ResourceLimits {
            cpu_seconds: self.max_cpu,
            memory_bytes: bytes(self.max_memory),
            // This limit would count all processes of the user; the cgroup counts only the
            // command's.
            processes: None,
            file_bytes: bytes(self.max_file),
            cgroup: CgroupLimits {
                memory_bytes: bytes(self.max_memory),
                processes: self.max_processes,
                cpu_percent: None,
            },
        }
    }
}

/// The participant that the link's token belongs to.
async fn token_participant(link: &Link) -> anyhow::Result<ParticipantId> {
    if link.token().is_none() {
        bail!("this link has no token; say who to be with --as");
    }
    let api = ApiClient::new(link.clone());
    let me = tokio::task::spawn_blocking(move || api.whoami()).await??;
    if me.kind != ParticipantKind::Agent {
        bail!(
            "this link is for {}, a person; make one for an agent with `pvp invite --name NAME --role driver --kind agent`",
            one_line(&me.name)
        );
    }
    Ok(me.participant)
}

/// This agent's own state directory, the same on every start.
fn agent_state_directory(participant: &ParticipantId) -> anyhow::Result<PathBuf> {
    let state = state_directory().context("no place to note what was run; give --state")?;
    // This is safe as a path: an id has no slash and does not begin with a dot.
    Ok(state.join("agents").join(participant.as_str()))
}

/// Checks that the text has the form `Name <address>` on one line.
fn parse_git_identity(text: &str) -> anyhow::Result<String> {
    let is_valid = text
        .strip_suffix('>')
        .and_then(|text| text.split_once(" <"))
        .is_some_and(|(name, address)| {
            let is_valid_part =
                |part: &str| !part.trim().is_empty() && !part.contains(['<', '>', '\n', '\r']);
            is_valid_part(name) && is_valid_part(address)
        });
    if !is_valid {
        bail!("--co-author `{text}` is not of the form 'Name <address>'");
    }
    Ok(text.to_owned())
}

/// Prints what an agent does, line by line.
pub(super) fn print_agent_event(event: AgentEvent) {
    let line = match event {
        AgentEvent::Prompted { by, text } => format!("{} asks: {}", one_line(&by), one_line(&text)),
        AgentEvent::Responded(text) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let lines: Vec<_> = lines
                .map(|line| format!("agent: {}", one_line(line)))
                .collect();
            lines.join("\n")
        }
        AgentEvent::Proposed { command, purpose } if purpose.is_empty() => {
            format!("agent proposes: {}", one_line(&command))
        }
        AgentEvent::Proposed { command, purpose } => {
            format!(
                "agent proposes: {} ({})",
                one_line(&command),
                one_line(&purpose)
            )
        }
        AgentEvent::GateOpened { quorum } => format!("waiting for {quorum}"),
        AgentEvent::CommandEnded { how, .. } => one_line(&how),
        AgentEvent::Interrupted { by, message } => {
            format!("{} interrupts: {}", one_line(&by), one_line(&message))
        }
        AgentEvent::Failed(why) => format!("agent cannot continue: {}", one_line(&why)),
    };
    // Printing may fail when nobody reads the output any more; the agent keeps running.
    let _ = print_line(line);
}
