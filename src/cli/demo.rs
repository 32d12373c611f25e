//! `pvp demo`: starts a server, a session and an agent, and shows what happens to its commands.

mod files;

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
use pvp_protocol::api::{DeviceCodeRequest, InviteRequest};
use pvp_protocol::payload::PromptSubmit;
use pvp_protocol::{
    ExtraFields, ParticipantId, ParticipantKind, QuorumByCategory, QuorumRule, Role,
    SandboxProfile, SessionConfig, SessionId,
};
use pvp_server::Server;

use super::agent::{BrainArguments, BrainKind};
use super::program_name::program_name;
use super::server::ServerArguments;
use super::up::OwnLinks;
use super::{agent, print_line, server, tour, up};

/// What a model is asked to do, in the name of the person who starts the demo.
const TASK: &str = "Eggs are missing from notes.txt: please add them. Then delete the directory \
                    old-notes, which nobody needs any more.";

/// What a model is told about where it is.
const INSTRUCTIONS: &str = "This is a short demonstration of how people supervise you. The project is \
    the current directory: notes.txt is a shopping list with one item a line, and old-notes holds \
    earlier lists. Do what you are asked in a few small commands, one at a time. If people reject \
    one, answer to their reason.";

#[derive(Args)]
pub(crate) struct DemoArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The directory where the agent's commands run: a new one, or that of an earlier demo [default:
    /// pvp/demo in the user's data directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Learn step by step: approve, reject, edit, allow, interrupt, run a command of your own, and
    /// decide together with a second person
    #[arg(long, conflicts_with = "model")]
    tour: bool,
    /// Let this model drive the demo instead of a script
    #[arg(long)]
    model: Option<String>,
    /// With --model: the API of the model [default: anthropic]
    #[arg(long, env = "PVP_AGENT_BRAIN", value_enum)]
    brain: Option<BrainKind>,
    /// With --model: the URL of the API, for a proxy or a model that you host [default: the provider's]
    #[arg(long, env = "PVP_AGENT_BASE_URL", value_name = "URL")]
    base_url: Option<String>,
}

/// Who drives the demo.
enum DemoDriver {
    Script,
    Model(Box<Brain>),
    Tour,
}

pub(crate) fn run(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    let driver = arguments.driver()?;
    let config = server::prepare(&arguments.server, server::QUIET_LOG)?;
    let data = server::data_directory(&config)?;
    let workspace = arguments.create_workspace(&data)?;
    let mut settings = ExecutorSettings::new(workspace, data.join("executor"));
    settings.private_paths.push(data.clone());
    // Server, agent and people of a demo are on one machine, and people try commands of their own.
    settings.accepted.shell_exec = true;
    super::runtime()?.block_on(server::serve(config, async move |server: &Server| {
        let session = new_session_id();
        let demo = Demo {
            own_links: OwnLinks::find_or_invite(server, &session).await?,
            agent_link: invite(server, &session, "demo agent", ParticipantKind::Agent).await?,
            second_person: match driver {
                DemoDriver::Tour => {
                    Some(invite(server, &session, "Robin", ParticipantKind::Human).await?)
                }
                DemoDriver::Script | DemoDriver::Model(_) => None,
            },
            session,
            settings,
            data,
        };
        // In a task of its own, because the server answers only once this closure has returned.
        tokio::spawn(async move {
            if let Err(error) = demo.run(driver).await {
                super::print_error(&error.context("the demo stopped"));
            }
        });
        Ok(())
    }))?;
    Ok(ExitCode::SUCCESS)
}

impl DemoArguments {
    /// Fails before anything is started if the model cannot be asked.
    fn driver(&self) -> anyhow::Result<DemoDriver> {
        let Some(model) = &self.model else {
            return Ok(match self.tour {
                true => DemoDriver::Tour,
                false => DemoDriver::Script,
            });
        };
        if self.brain == Some(BrainKind::Scripted) {
            bail!("--model works only with --brain anthropic or openai");
        }
        let brain = BrainArguments::for_model(model, self.brain, self.base_url.as_deref());
        Ok(DemoDriver::Model(Box::new(brain.build_brain()?)))
    }

    fn create_workspace(&self, data: &Path) -> anyhow::Result<PathBuf> {
        let workspace = match &self.workspace {
            Some(workspace) => files::create(workspace)?,
            None => {
                let share = share_directory();
                let share =
                    share.context("finding a place for the demo's files; give --workspace")?;
                files::create_in_own_place(&share.join("demo"))?
            }
        };
        check_apart(data, &workspace)?;
        Ok(workspace)
    }
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

fn new_session_id() -> SessionId {
    let id = pvp_client::fresh_id();
    let end = &id.as_str()[id.as_str().len() - 4..];
    SessionId::parse(&format!("demo-{end}")).expect("letters, digits and a dash")
}

/// Invites the agent as a driver, or a person as an approver, for a day.
async fn invite(
    server: &Server,
    session: &SessionId,
    name: &str,
    kind: ParticipantKind,
) -> anyhow::Result<Link> {
    let role = match kind {
        ParticipantKind::Agent => Role::Driver,
        ParticipantKind::Human => Role::Approver,
    };
    let invitation = server.invite(InviteRequest {
        name: name.to_owned(),
        roles: [role].into(),
        kind,
        capabilities: Default::default(),
        session: Some(session.clone()),
        expires_seconds: Some(86_400),
        participant: None,
    });
    let invitation = invitation.await?;
    Link::parse(&invitation.link).context("the server's own link")
}

/// A demo on a server that listens.
struct Demo {
    /// The links of the person.
    own_links: OwnLinks,
    /// The link of the agent.
    agent_link: Link,
    /// The second person, who joins only in the tour.
    second_person: Option<Link>,
    /// The session that the demo is in.
    session: SessionId,
    /// How the agent runs commands.
    settings: ExecutorSettings,
    /// The data directory of the server.
    data: PathBuf,
}

impl Demo {
    async fn run(self, driver: DemoDriver) -> anyhow::Result<()> {
        self.create_session(&driver).await?;
        let own_link = self.own_links.remembered.clone();
        if !matches!(driver, DemoDriver::Tour) {
            let page = self.page_link().await?;
            self.print_intro(&driver, &page)?;
        }
        let workspace = self.settings.workspace.clone();
        let agent = Agent::connect(self.agent_link, self.settings).await?;
        let mut options = AgentOptions {
            on_event: Arc::new(agent::print_agent_event),
            ..AgentOptions::default()
        };
        let brain = match driver {
            DemoDriver::Tour => {
                let second_person = self.second_person.context("a tour has a second person")?;
                let tour = tour::Tour::new(agent, own_link, second_person, self.data);
                return tour.run().await;
            }
            DemoDriver::Script => Brain::Scripted(ScriptedBrain::demo().on_begin(move || {
                if let Err(error) = files::restore(&workspace) {
                    super::print_error(&error);
                }
            })),
            DemoDriver::Model(brain) => {
                options.instructions = Some(INSTRUCTIONS.to_owned());
                prompt(own_link, self.session, agent.participant().clone()).await?;
                *brain
            }
        };
        Ok(run_turn_loop(agent, brain, options).await?)
    }

    async fn create_session(&self, driver: &DemoDriver) -> anyhow::Result<()> {
        let quorums = match driver {
            DemoDriver::Script | DemoDriver::Model(_) => QuorumByCategory::default(),
            DemoDriver::Tour => QuorumByCategory {
                destructive: Some(QuorumRule::Any { count: 2 }),
                ..QuorumByCategory::default()
            },
        };
        let api = ApiClient::new(self.own_links.creating.clone());
        let config = SessionConfig {
            gate_timeout_seconds: 0,
            quorum_by_category: quorums,
            ..SessionConfig::default()
        };
        let (session, name) = (self.session.clone(), Some("The demo".to_owned()));
        tokio::task::spawn_blocking(move || {
            up::create_session_if_missing(&api, &session, name, config)
        })
        .await??;
        Ok(())
    }

    /// A link that opens the page in a browser, once.
    async fn page_link(&self) -> anyhow::Result<String> {
        let api = ApiClient::new(self.own_links.remembered.clone());
        let session = Some(self.session.clone());
        let request = DeviceCodeRequest { session };
        let made = tokio::task::spawn_blocking(move || api.create_device_code(&request));
        Ok(made.await??.link)
    }

    fn print_intro(&self, driver: &DemoDriver, page: &str) -> anyhow::Result<()> {
        let pvp = program_name();
        let story = match driver {
            DemoDriver::Model(_) => format!(
                "The model was asked, in your name:\n\n    {TASK}\n\n\
                 Reads run at once; everything else waits for you. Ask it more with:\n\n    \
                 {pvp} send 'What is on the list?'"
            ),
            DemoDriver::Script | DemoDriver::Tour => format!(
                "The agent reads a file, which runs at once. Then it proposes a write, which waits\n\
                 for you; then a destructive command; then one that is blocked. Start over with:\n\n    \
                 {pvp} send again"
            ),
        };
        let base = self.own_links.remembered.base_url();
        let workspace = self.settings.workspace.display();
        let sandbox =
            match pvp_agent::sandbox::enforceable_profiles().contains(&SandboxProfile::Read) {
                true => ", and reads in a read-only sandbox",
                false => "; this machine has no sandbox, so reads need approval too",
            };
        let (session, data) = (&self.session, self.data.display());
        print_line(format!(
            "
PVP runs on {base}, with the session `{session}` and an agent in it.
Its commands run in {workspace}{sandbox}.
The log is in {data}.

{story}

Decide in a browser; this link works once, within an hour, and `{pvp} open` makes another:

    {page}

in another shell, in this directory, on one screen:

    {pvp} tui

or one command at a time:

    {pvp} gates                  what is waiting, with a handle for each
    {pvp} show HANDLE            the whole card
    {pvp} approve HANDLE         or: {pvp} reject HANDLE 'why not'
    {pvp} tail --follow          everything, as it happens
    {pvp} exec 'ls -l'           run a command of your own

Check the log with: {pvp} audit verify --data {data}
Be shown all of this step by step with: {pvp} demo --tour

Your link is saved for this directory.

Stop with Ctrl-C.
"
        ))
    }
}

/// Asks the agent to do the demo's task, as the person whose link this is.
async fn prompt(own_link: Link, session: SessionId, agent: ParticipantId) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || {
        let api = ApiClient::new(own_link);
        let prompt = PromptSubmit {
            content: TASK.to_owned(),
            target_agent: agent,
            contributors: vec![api.whoami()?.participant],
            context_keys: Vec::new(),
            config: None,
            origin: None,
            extra: ExtraFields::new(),
        };
        api.send_message(&session, prompt)?;
        Ok(())
    })
    .await?
}
