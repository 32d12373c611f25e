//! The flags of whatever joins a session as an agent with an executor, and its joining and leaving.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, FromArgMatches, Id, ValueEnum};
use pvp_agent::agent::{Agent, InterruptAnswers};
use pvp_agent::executor::{
    AcceptedOrigins, DEFAULT_READ_MEMORY_BYTES, ExecutorSettings, GitSettings,
};
use pvp_agent::run::OverflowAction;
use pvp_agent::sandbox::{CgroupLimits, ResourceLimits, can_count_denials};
use pvp_bridge::client_files::IdentityLock;
use pvp_client::user_directories::state_directory;
use pvp_client::{ApiClient, ConnectOptions, Link, RecordCheck};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, SandboxProfile, SessionId};

use super::{check, link_argument, links, one_line, server, supervision};

/// How long a stopping agent may take to end its commands and leave the session.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

const MIB: u64 = 1024 * 1024;

#[derive(Args)]
pub(super) struct AgentLinkArguments {
    /// The agent's link, or `-` to read it from standard input [default: $PVP_AGENT_LINK, $PVP_LINK,
    /// or the agent's link saved for this directory]. Other users of this machine can see arguments
    #[arg(value_name = "LINK")]
    pub(super) link: Option<String>,
    /// Read the link from this file
    #[arg(long, value_name = "FILE", conflicts_with = "link")]
    pub(super) link_file: Option<PathBuf>,
    /// The session; needed if the link opens several
    #[arg(long, value_name = "ID", value_parser = super::parse_session_id)]
    pub(super) session: Option<SessionId>,
    /// The participant id to join as, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::parse_participant_id)]
    pub(super) participant: Option<ParticipantId>,
}

/// The flags on the command line itself, without what defaults and the environment give. It reads
/// them all from the same matches, so it has to be the first field.
pub(super) struct GivenFlags(Vec<Id>);

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given =
            |id: &&Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        Ok(Self(matches.ids().filter(is_given).cloned().collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for GivenFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl GivenFlags {
    /// The first flag of a group that was given, but for some.
    pub(super) fn first_of<T: Args>(&self, but: &[&str]) -> Option<String> {
        let group = T::augment_args(clap::Command::new("group"));
        let flags = group.get_arguments();
        flags
            .filter(|flag| self.0.contains(flag.get_id()))
            .filter_map(clap::Arg::get_long)
            .find(|name| !but.contains(name))
            .map(|name| format!("--{name}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOverflow {
    /// Stop the command and report it
    Kill,
    /// Let the command continue, and keep the beginning and the end of its output
    Truncate,
}

#[derive(Args)]
pub(super) struct ExecutorArguments {
    /// The directory where commands run [default: this directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The directory for the record of what ran [default: one for this agent below the user's state
    /// directory]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A prefix for approved commands, such as 'podman exec -i dev'; approvers see it
    #[arg(long, value_name = "WORDS")]
    runner: Option<String>,
    /// A file of rules to add to the built-in ones; what they block does not run here
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Run commands that people have edited; with =false, run only what the agent proposed
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
    /// Run people's own commands too (`pvp exec`, `!cmd`); the agent must trust the server about who sent them
    #[arg(long)]
    accept_shell: bool,
    /// Let approved commands write only to the workspace, whatever the session's settings
    #[arg(long)]
    confine: bool,
    /// Let reads run without a sandbox if this machine has none and the session's settings agree
    #[arg(long)]
    trust_reads: bool,
    /// Let reads see only the workspace, even if the session allows reading other directories
    #[arg(long)]
    no_read_roots: bool,
    /// Do not try unknown commands in the sandbox; ask for approval
    #[arg(long)]
    no_try: bool,
    /// How many commands may run at the same time; others are queued
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    at_once: usize,
    /// How many background jobs may run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    jobs: usize,
    /// What to do with a command that prints too much
    #[arg(long, value_name = "ACTION", value_enum, default_value = "kill")]
    on_overflow: OnOverflow,
    /// The memory that a command may use, in MiB: all its processes together where cgroups are
    /// available, and each process
    #[arg(long, value_name = "MIB")]
    max_memory: Option<u64>,
    /// The memory that each process of a command that runs without approval may use, in MiB
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_READ_MEMORY_BYTES / MIB)]
    read_memory: u64,
    /// How many processes a command may have, where cgroups are available
    #[arg(long, value_name = "COUNT")]
    max_processes: Option<u64>,
    /// The CPU time that each process may use, in seconds
    #[arg(long, value_name = "SECONDS")]
    max_cpu: Option<u64>,
    /// The maximum size of a file that a command writes, in MiB
    #[arg(long, value_name = "MIB")]
    max_file: Option<u64>,
    /// Add this co-author, 'Name <address>', to the commits that the agent proposes
    #[arg(long, value_name = "IDENTITY")]
    co_author: Option<String>,
    /// Add a git note to approved commits that names the approvers, in refs/notes/pvp
    #[arg(long)]
    git_notes: bool,
}

impl AgentLinkArguments {
    /// The link that the flags, the environment or the directory give.
    pub(super) fn read_link(&self) -> anyhow::Result<Link> {
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
            "no agent's link is saved for this directory; run `pvp up` or `pvp login` here, give --link-file, or set PVP_LINK",
        )?;
        Ok(link)
    }
}

/// An agent in a session.
pub(super) struct JoinedAgent {
    pub(super) agent: Agent,
    /// That no other client has the same identity; `None` on a server without login, where nobody
    /// was named.
    pub(super) identity: Option<IdentityLock>,
}

impl ExecutorArguments {
    /// Joins the session of a link with this executor, unless another client has the same identity.
    pub(super) async fn join(
        &self,
        link: Link,
        arguments: &AgentLinkArguments,
    ) -> anyhow::Result<JoinedAgent> {
        self.join_answering(link, arguments, InterruptAnswers::AtOnce)
            .await
    }

    /// Like [`join`](Self::join), and says who acknowledges interrupts.
    pub(super) async fn join_answering(
        &self,
        link: Link,
        arguments: &AgentLinkArguments,
        answers: InterruptAnswers,
    ) -> anyhow::Result<JoinedAgent> {
        let participant = arguments.participant.as_ref();
        let mut settings = self.executor_settings(&link, participant).await?;
        let identity = lock_identity(&link, participant).await?;
        settings.private_paths.extend(arguments.link_file.clone());
        server::warn_of_data_in(&settings.workspace);
        let policy = check::load_policy(self.policy.as_ref())?;
        let options = ConnectOptions {
            session: arguments.session.clone(),
            participant: arguments.participant.clone(),
            kind: Some(ParticipantKind::Agent),
            roles: link.token().is_none().then(|| vec![Role::Driver]),
            record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
            ..ConnectOptions::default()
        };
        let agent = Agent::connect_answering(link, options, settings, policy, answers).await?;
        Ok(JoinedAgent { agent, identity })
    }

    /// The settings of an executor of which no flags speak.
    pub(super) fn settings_for(
        workspace: &Path,
        participant: &ParticipantId,
    ) -> anyhow::Result<ExecutorSettings> {
        let state = agent_state_directory(participant)?;
        Ok(ExecutorSettings::new(workspace.to_owned(), state))
    }

    /// The directory where commands run, as an absolute path without links.
    pub(super) fn workspace(&self) -> anyhow::Result<PathBuf> {
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
        Ok(workspace)
    }

    async fn executor_settings(
        &self,
        link: &Link,
        participant: Option<&ParticipantId>,
    ) -> anyhow::Result<ExecutorSettings> {
        let workspace = self.workspace()?;
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

/// The executor of an agent whose client is offered its tools beside hooks.
pub(super) fn client_executor(
    workspace: &Path,
    participant: &ParticipantId,
) -> anyhow::Result<ExecutorSettings> {
    let state = agent_state_directory(participant)?;
    let mut settings = ExecutorSettings::new(workspace.to_owned(), state);
    settings.accepted = AcceptedOrigins {
        edits: true,
        shell_exec: false,
    };
    settings.trials = true;
    settings.client_runs = true;
    Ok(settings)
}

/// Takes the identity of an agent's link, unless another client has it.
pub(super) async fn lock_identity(
    link: &Link,
    named: Option<&ParticipantId>,
) -> anyhow::Result<Option<IdentityLock>> {
    let (link, named) = (link.clone(), named.cloned());
    let lock = move || supervision::lock_identity(&link, named.as_ref());
    tokio::task::spawn_blocking(lock).await?
}

/// The participant that the link's token belongs to.
async fn token_participant(link: &Link) -> anyhow::Result<ParticipantId> {
    if link.token().is_none() {
        bail!("this link has no token; give the participant id with --as");
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
    let state =
        state_directory().context("finding a place for the record of what ran; give --state")?;
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

/// What to say if the executor should try commands and this machine cannot.
pub(super) fn no_trials_notice(agent: &Agent) -> Option<&'static str> {
    (agent.settings().trials && !can_count_denials()).then_some(
        "unknown commands are not tried in the sandbox, because this machine cannot count what the sandbox denies; run `pvp doctor` for details",
    )
}

/// Runs something until it ends; `None` if a signal asked for the end.
pub(super) async fn until_shutdown<T>(work: impl Future<Output = T>) -> anyhow::Result<Option<T>> {
    let shutdown = super::shutdown_signal()?;
    Ok(tokio::select! {
        result = work => Some(result),
        () = shutdown => None,
    })
}

/// Waits until a dropped agent has ended its commands and left. Returns why the server no longer
/// lets it in, if that is the reason.
pub(super) async fn wait_until_left(
    stopped: impl Future<Output = Option<String>>,
) -> Option<String> {
    // The reaper ends any command that is still running after this.
    let stopped = tokio::time::timeout(SHUTDOWN_TIMEOUT, stopped).await;
    stopped.ok().flatten()
}
