//! `pvp agent`: joins a session as an agent with a brain and an executor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use pvp_agent::agent::Agent;
use pvp_agent::brain::provider::{Dialect, Provider, ThinkingMode};
use pvp_agent::brain::{self, Brain, ScriptedBrain};
use pvp_agent::turn_loop::{AgentEvent, AgentOptions, ExitWhen, run_turn_loop};
use pvp_bridge::headless::DriveUntil;
use pvp_bridge::launch::ProjectTrust;
use pvp_client::Link;

use super::agent_client::{AcpClient, KnownClient};
use super::agent_flags::{
    AgentLinkArguments, ExecutorArguments, GivenFlags, no_trials_notice, until_shutdown,
    wait_until_left,
};
use super::{agent_client, one_line, print_line, server};

/// Answers in a row before the agent waits for a person, unless told otherwise.
const DEFAULT_MOST_ANSWERS: u32 = 100;

#[derive(Args)]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    given: GivenFlags,
    #[command(flatten)]
    link: AgentLinkArguments,
    #[command(flatten)]
    brain: BrainArguments,
    #[command(flatten)]
    executor: ExecutorArguments,

    /// Let people prompt this client, with these arguments, in place of a model: claude or codex,
    /// without a screen of its own. Takes the rest of the line. The client runs its commands itself,
    /// so the flags about a model and about running commands are refused
    #[arg(
        long,
        value_name = "CLIENT",
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with = "acp"
    )]
    client: Vec<OsString>,
    /// In place of a model: start this agent, which speaks the Agent Client Protocol, and let people
    /// prompt it. The rest of the line is its command. The flags about running commands hold only for
    /// what the agent leaves to PVP: its calls of our tools, files and terminals
    #[arg(
        long,
        value_name = "CMD",
        num_args = 1..,
        allow_hyphen_values = true
    )]
    acp: Option<Vec<OsString>>,
    /// With --acp: let the agent run what this directory's own settings start, without asking anybody
    #[arg(long, requires = "acp")]
    trust_project: bool,
    /// Exit when the script ends or the first prompt has been answered
    #[arg(long)]
    once: bool,
    /// Do not print what the agent does
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BrainKind {
    /// A script: a file of steps in TOML or JSON Lines
    Scripted,
    /// A model with Anthropic's Messages API; reads the key from ANTHROPIC_API_KEY
    Anthropic,
    /// A model with OpenAI's Chat Completions API, at OpenAI or any compatible server; reads the
    /// key from OPENAI_API_KEY
    Openai,
}

#[derive(Args)]
pub(super) struct BrainArguments {
    /// What drives the agent [default: scripted with --script, else anthropic]
    #[arg(long, env = "PVP_AGENT_BRAIN", value_enum)]
    brain: Option<BrainKind>,
    /// The script to follow
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The model to use
    #[arg(long, env = "PVP_AGENT_MODEL")]
    model: Option<String>,
    /// The URL of the API, for a proxy or a model that you host [default: the provider's]
    #[arg(long, env = "PVP_AGENT_BASE_URL", value_name = "URL")]
    base_url: Option<String>,
    /// The size of the model's context window, in tokens
    #[arg(long, value_name = "TOKENS")]
    context: Option<u64>,
    /// The maximum length of one answer, in tokens
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// The thinking budget, in tokens, for models that take one; 0 leaves it to the model
    #[arg(long, value_name = "TOKENS")]
    thinking: Option<u64>,
    /// A file with instructions to put before the prompt
    #[arg(long, value_name = "FILE")]
    instructions: Option<PathBuf>,
    /// How many answers the model may give in a row before it waits for a person
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MOST_ANSWERS)]
    most_answers: u32,
}

pub(crate) fn run(arguments: &AgentArguments) -> anyhow::Result<ExitCode> {
    arguments.refuse_flags_without_effect()?;
    let link = arguments.link.read_link()?;
    server::init_tracing("warn");
    if let Some((program, words)) = arguments.client.split_first() {
        let until = match arguments.once {
            true => DriveUntil::FirstTurnEnds,
            false => DriveUntil::SessionEnds,
        };
        let client = KnownClient {
            program,
            words,
            link_arguments: &arguments.link,
            executor: &arguments.executor,
            quiet: arguments.quiet,
        };
        agent_client::run(link, &client, until)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(command) = &arguments.acp {
        return run_acp(arguments, link, command);
    }
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
        let joined = arguments.executor.join(link, &arguments.link).await?;
        let agent = joined.agent;
        if !arguments.quiet {
            if let Some(notice) = no_trials_notice(&agent) {
                print_line(notice)?;
            }
            print_line(format!(
                "{} joined {} and runs commands in {}",
                agent.participant(),
                agent.session(),
                agent.settings().workspace.display()
            ))?;
        }
        let ended = run_until_stopped(agent, brain, agent_options).await;
        drop(joined.identity);
        ended
    })?;
    Ok(ExitCode::SUCCESS)
}

impl AgentArguments {
    /// Refuses flags that would do nothing, such as one that promises a limit.
    fn refuse_flags_without_effect(&self) -> anyhow::Result<()> {
        let instead = match (self.client.is_empty(), &self.acp) {
            (true, None) => return Ok(()),
            (true, Some(_)) => "--acp",
            (false, _) => "--client",
        };
        if let Some(flag) = self.given.first_of::<BrainArguments>(&[]) {
            bail!(
                "{flag} does nothing with {instead}, which starts a program with a model of its own; leave it out, or give the program its own flags, behind its name"
            );
        }
        // The client works in the workspace.
        let flag = self.given.first_of::<ExecutorArguments>(&["workspace"]);
        if let Some(flag) = flag.filter(|_| instead == "--client") {
            bail!(
                "{flag} does nothing with --client, which runs its commands itself and not with PVP's executor; leave it out, or let the client use the tools of `pvp mcp {flag}`"
            );
        }
        Ok(())
    }
}

/// Lets people prompt an agent that speaks ACP.
fn run_acp(
    arguments: &AgentArguments,
    link: Link,
    command: &[OsString],
) -> anyhow::Result<ExitCode> {
    let until = match arguments.once {
        true => DriveUntil::FirstTurnEnds,
        false => DriveUntil::SessionEnds,
    };
    let client = AcpClient {
        command,
        trust: ProjectTrust::of_flag(arguments.trust_project),
        link_arguments: &arguments.link,
        executor: &arguments.executor,
        quiet: arguments.quiet,
    };
    let runtime = super::runtime()?;
    let ended = runtime.block_on(client.run(link, until));
    // What the agent left behind is not waited for.
    runtime.shutdown_background();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the turn loop until it ends or a signal asks it to stop, then ends the running commands.
async fn run_until_stopped(
    agent: Agent,
    brain: Brain,
    agent_options: AgentOptions,
) -> anyhow::Result<()> {
    let over = agent.stopped();
    let result = until_shutdown(run_turn_loop(agent, brain, agent_options)).await?;
    let end_reason = wait_until_left(over).await;
    result.transpose()?;
    match end_reason {
        Some(why) => bail!("{why}"),
        None => Ok(()),
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
            (BrainKind::Scripted, None) => bail!("--brain scripted needs --script FILE"),
            (_, Some(_)) => bail!("--script works only with --brain scripted"),
            (BrainKind::Anthropic, None) => Dialect::Anthropic,
            (BrainKind::Openai, None) => Dialect::OpenAi,
        };
        let Some(model) = &self.model else {
            bail!("choose a model with --model, or a script with --script");
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
        AgentEvent::CommandEnded { how, .. } => {
            // What follows is advice for the model.
            one_line(how.split(" Nothing was done.").next().unwrap_or(&how))
        }
        AgentEvent::Interrupted { by, message } => {
            format!("{} interrupts: {}", one_line(&by), one_line(&message))
        }
        AgentEvent::Failed(why) => format!("agent cannot continue: {}", one_line(&why)),
    };
    // Printing may fail when nobody reads the output any more; the agent keeps running.
    let _ = print_line(line);
}
