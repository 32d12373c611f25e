//! `pvp run -- codex`: stands between Codex's own screen and its app-server.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use pvp_agent::proposer::PersonRequest;
use pvp_agent::response_stream::ResponseStream;
use pvp_bridge::codex::headless::{HeadlessCodex, MAX_UNTOLD, ThreadSettings, start_headless};
use pvp_bridge::codex::person::TerminalPerson;
use pvp_bridge::codex::screen::ScreenListener;
use pvp_bridge::codex::{AppServer, AppServerCommand, BridgeEnd, CLIENT, CodexBridge, rules};
use pvp_bridge::headless::{ClientEvent, ClientInstruction, DriveUntil, HeadlessClient, drive};
use pvp_bridge::launch::{AgentProject, CodexPlan, ExecPlan, ProjectTrust, ScreenPlan, plan_codex};
use pvp_bridge::supervisor::{SupervisedClient, Supervisor, connect_options};
use pvp_client::{ConnectOptions, RecordCheck};
use pvp_protocol::payload::{ClientOrigin, Degree, FinishReason};
use pvp_tui::client_terminal::ClientTerminalOptions;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::run::{LEAVE_TIMEOUT, exit_code, pass_on};
use super::run_terminal::{AnswerArguments, StartedClient};
use super::supervision::{self, Supervision, SupervisionArguments};
use super::{one_line, print_line, print_warning, server};

/// The variable in which the screen finds what lets it in.
const SECRET_VARIABLE: &str = "PVP_CODEX_SECRET";

/// Only the bridge may speak for the people and agents of this machine.
const OWN_VARIABLES: [&str; 3] = ["PVP_LINK", "PVP_AGENT_LINK", SECRET_VARIABLE];

/// How long the screen may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a prompt on standard input.
const MAX_PROMPT_BYTES: u64 = 4 * 1024 * 1024;

/// Codex, as somebody wants to run it.
pub(super) struct RunnableCodex<'a> {
    pub(super) supervision: &'a SupervisionArguments,
    pub(super) answers: &'a AnswerArguments,
    pub(super) program: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    pub(super) trust: ProjectTrust,
}

impl RunnableCodex<'_> {
    pub(super) fn run(
        &self,
        version: impl FnOnce() -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<ExitCode> {
        let mut plan = plan_codex(self.arguments)?;
        let program = &absolute_program(self.program)?;
        if let CodexPlan::Exec(plan) = &mut plan {
            enter_directory(plan)?;
        }
        check_rules()?;
        let mut supervision = self.supervision.find(CLIENT, version()?, None)?;
        let answers = match &plan {
            CodexPlan::Screen(_) => self.answers.plan(&mut supervision)?,
            CodexPlan::Exec(_) => None,
        };
        let files = &supervision.files;
        files
            .begin(&supervision.settings)
            .context("keeping what is known about the client")?;
        supervision.lock.keep_with_children()?;
        supervision.print()?;
        if let Ok(log) = supervision::open_log(files.directory()) {
            server::init_tracing_to_file("warn", log);
        }
        let runtime = super::runtime()?;
        let project = AgentProject::new(&[CLIENT.into()], self.trust);
        let supervised = supervise(&supervision, program, project, plan, answers);
        let code = runtime.block_on(supervised);
        runtime.shutdown_background();
        code
    }
}

async fn supervise(
    supervision: &Supervision,
    program: &OsStr,
    project: AgentProject,
    plan: CodexPlan,
    answers: Option<ClientTerminalOptions>,
) -> anyhow::Result<ExitCode> {
    let (supervisor, requests) = connect(supervision).await?;
    let supervised = Supervised {
        supervision,
        supervisor: supervisor.clone(),
        program,
        project,
    };
    let code = match plan {
        CodexPlan::Screen(plan) => supervised.with_screen(plan, requests, answers).await,
        CodexPlan::Exec(plan) => supervised.one_prompt(plan, requests).await,
    };
    let left = supervisor.leave("the client has ended");
    if !matches!(tokio::time::timeout(LEAVE_TIMEOUT, left).await, Ok(Ok(()))) {
        print_warning("the end of the client may be recorded only later");
    }
    code
}

/// A program that is named by its path, from wherever it is started.
pub(super) fn absolute_program(program: &OsStr) -> anyhow::Result<OsString> {
    match Path::new(program).components().count() {
        0 | 1 => Ok(program.to_owned()),
        _ => Ok(std::path::absolute(program)
            .context("finding the client")?
            .into()),
    }
}

/// The directory that `codex exec -C` names is the one that is supervised.
fn enter_directory(plan: &mut ExecPlan) -> anyhow::Result<()> {
    if let Some(path) = &mut plan.last_message {
        *path = std::path::absolute(&*path).context("finding where the answer goes")?;
    }
    if let Some(directory) = &plan.directory {
        let shown = directory.display();
        std::env::set_current_dir(directory).with_context(|| format!("cannot work in {shown}"))?;
    }
    Ok(())
}

async fn connect(
    supervision: &Supervision,
) -> anyhow::Result<(Supervisor, mpsc::Receiver<PersonRequest>)> {
    let settings = &supervision.settings;
    let client = SupervisedClient {
        name: settings.client.clone(),
        version: settings.version.clone(),
        workspace: settings.workspace.clone(),
        degree: Degree::Held,
        // It cannot be given one, but its agent can be told.
    };
    let options = ConnectOptions {
        session: Some(settings.session.clone()),
        record_check: super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce),
        ..connect_options(&client)
    };
    let link = supervision.agent_link.clone();
    Ok(Supervisor::connect_with(link, options, client).await?)
}

struct Supervised<'a> {
    supervision: &'a Supervision,
    supervisor: Supervisor,
    program: &'a OsStr,
    project: AgentProject,
}

impl Supervised<'_> {
    fn app_server(&self, settings: Vec<OsString>) -> AppServerCommand {
        AppServerCommand {
            program: self.program.to_owned(),
            settings,
            directory: self.supervision.settings.workspace.clone(),
            without_variables: OWN_VARIABLES.map(str::to_owned).to_vec(),
        }
    }

    fn person(&self) -> Option<TerminalPerson> {
        let settings = &self.supervision.settings;
        TerminalPerson::new(settings.person.as_ref()?, settings.session.clone())
    }

    fn cannot_start(&self) -> String {
        format!(
            "cannot start `{}`",
            one_line(&self.program.to_string_lossy())
        )
    }

    async fn with_screen(
        &self,
        plan: ScreenPlan,
        requests: mpsc::Receiver<PersonRequest>,
        answers: Option<ClientTerminalOptions>,
    ) -> anyhow::Result<ExitCode> {
        let settings = &self.supervision.settings;
        let listener = ScreenListener::bind().await;
        let listener = listener.context("listening for Codex's screen")?;
        let app_server = AppServer::start(&self.app_server(plan.settings.clone()));
        let app_server = app_server.with_context(|| self.cannot_start())?;
        let mut command = Command::new(self.program);
        command.args(plan.arguments(&listener.url(), SECRET_VARIABLE, &settings.workspace));
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        command.env(SECRET_VARIABLE, listener.secret());
        let client = StartedClient::start(command, answers).await;
        let client = client.with_context(|| self.cannot_start())?;
        let pid = client.pid();
        let ended = client.wait();
        tokio::pin!(ended);
        let screen = tokio::select! {
            status = &mut ended => return Ok(exit_code(status?)),
            accepted = tokio::time::timeout(CONNECT_TIMEOUT, listener.accept()) => accepted,
        };
        let screen = match screen {
            Ok(screen) => screen.context("waiting for Codex's screen")?,
            Err(_) => {
                pass_on(pid, Signal::TERM);
                ended.await?;
                bail!("Codex's screen did not connect; is this version older than 0.166?");
            }
        };
        let (spoken, said) = mpsc::channel(MAX_UNTOLD);
        let telling = tokio::spawn(tell(self.supervisor.clone(), said));
        let (bridge, events) = CodexBridge::new(
            self.supervisor.clone(),
            settings.version.clone(),
            app_server,
            self.person(),
            spoken,
        );
        let settings = ThreadSettings {
            web_search: plan.web_search,
            project: self.project.clone(),
            ..ThreadSettings::default()
        };
        let mut bridge = tokio::spawn(bridge.run_with_screen(events, settings, screen, requests));
        let mut end = None;
        let status = tokio::select! {
            status = &mut ended => status,
            ended_first = &mut bridge => {
                end = ended_first.ok();
                pass_on(pid, Signal::TERM);
                ended.await
            }
        };
        // Without its screen the bridge ends by itself.
        if end.is_none() {
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, bridge).await;
        }
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, telling).await;
        match end {
            Some(BridgeEnd::SessionOver) => {
                bail!("the session is over for this agent, so Codex was ended")
            }
            Some(BridgeEnd::AppServerGone) => {
                bail!(
                    "Codex's app-server has ended; {} says more",
                    self.log().display()
                )
            }
            Some(BridgeEnd::ScreenGone | BridgeEnd::NobodyAsks) | None => Ok(exit_code(status?)),
        }
    }

    fn log(&self) -> std::path::PathBuf {
        self.supervision.files.directory().join("log")
    }

    /// Has one prompt answered, as `codex exec` does.
    async fn one_prompt(
        &self,
        plan: ExecPlan,
        requests: mpsc::Receiver<PersonRequest>,
    ) -> anyhow::Result<ExitCode> {
        let prompt = match plan.prompt {
            Some(prompt) => prompt,
            None => read_prompt()?,
        };
        let settings = ThreadSettings {
            model: plan.model,
            sandbox: plan.sandbox,
            web_search: plan.web_search,
            project: self.project.clone(),
        };
        let version = self.supervision.settings.version.clone();
        let command = self.app_server(plan.settings);
        let codex = start_headless(self.supervisor.clone(), version, &command, settings);
        let HeadlessCodex {
            client,
            last_message,
        } = codex.with_context(|| self.cannot_start())?;
        self.record_prompt(&prompt).await;
        let asked = client.instructions.send(ClientInstruction::Prompt(prompt));
        asked.await.context("Codex has ended")?;
        let (client, finish) = watch_finish(client);
        drive(
            &self.supervisor,
            requests,
            client,
            DriveUntil::FirstTurnEnds,
        )
        .await;
        let answer = last_message.borrow().clone();
        if let Some(path) = &plan.last_message {
            write_answer(path, &answer)?;
        }
        print_line(&answer)?;
        match finish.await {
            Ok(FinishReason::Complete) => Ok(ExitCode::SUCCESS),
            _ => {
                let log = self.log();
                print_warning(&format!(
                    "Codex did not finish; {} says more",
                    log.display()
                ));
                Ok(ExitCode::FAILURE)
            }
        }
    }

    async fn record_prompt(&self, prompt: &str) {
        let Some(person) = self.person() else {
            return;
        };
        let origin = ClientOrigin {
            client: CLIENT.to_owned(),
            version: self.supervision.settings.version.clone(),
            session: None,
            call: None,
            subagent: None,
            fails_open: false,
        };
        let agent = self.supervisor.participant().clone();
        person.prompt(agent, origin, prompt.to_owned()).await;
    }
}

fn read_prompt() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        bail!("say what Codex should do: `pvp run -- codex exec PROMPT`");
    }
    let mut prompt = String::new();
    let read = stdin
        .lock()
        .take(MAX_PROMPT_BYTES)
        .read_to_string(&mut prompt);
    read.context("reading the prompt from standard input")?;
    Ok(prompt)
}

fn write_answer(path: &Path, answer: &str) -> anyhow::Result<()> {
    let shown = path.display();
    std::fs::write(path, answer).with_context(|| format!("writing the answer to {shown}"))
}

/// Codex without a screen, for `pvp agent --client codex`.
pub(super) struct DrivenCodex {
    program: OsString,
    plan: ExecPlan,
}

impl DrivenCodex {
    /// Takes the flags of `codex exec`.
    pub(super) fn plan(program: &OsStr, words: &[OsString]) -> anyhow::Result<Self> {
        let mut all = vec![OsString::from("exec")];
        all.extend(words.iter().cloned());
        let plan = match plan_codex(&all)? {
            CodexPlan::Exec(plan) => plan,
            CodexPlan::Screen(_) => bail!("give only the flags of `codex exec`"),
        };
        if plan.prompt.is_some() || plan.directory.is_some() || plan.last_message.is_some() {
            bail!("people prompt Codex in the session; leave out the prompt, `-C` and `-o`");
        }
        check_rules()?;
        let program = program.to_owned();
        Ok(Self { program, plan })
    }

    pub(super) fn start(self, supervisor: &Supervisor) -> anyhow::Result<HeadlessClient> {
        let client = supervisor.client();
        let command = AppServerCommand {
            program: self.program.clone(),
            settings: self.plan.settings,
            directory: client.workspace.clone(),
            without_variables: OWN_VARIABLES.map(str::to_owned).to_vec(),
        };
        let settings = ThreadSettings {
            model: self.plan.model,
            sandbox: self.plan.sandbox,
            web_search: self.plan.web_search,
            // Its only conversation is in the workspace, which was looked at.
            project: AgentProject::default(),
        };
        let version = client.version.clone();
        let started = start_headless(supervisor.clone(), version, &command, settings);
        let shown = one_line(&self.program.to_string_lossy());
        Ok(started
            .with_context(|| format!("cannot start `{shown}`"))?
            .client)
    }
}

/// Refuses to start Codex where rules let it run commands unasked.
fn check_rules() -> anyhow::Result<()> {
    let here = super::current_directory()?;
    match rules::find_rules(rules::codex_home().as_deref(), &here) {
        Some(file) => bail!("{}", rules::refusal(&file)),
        None => Ok(()),
    }
}

/// The client in the middle of its first turn, and how that turn ends.
fn watch_finish(
    client: HeadlessClient,
) -> (HeadlessClient, tokio::sync::oneshot::Receiver<FinishReason>) {
    let (sender, finish) = tokio::sync::oneshot::channel();
    let (passed, events) = mpsc::channel(MAX_UNTOLD);
    let mut watched = client.events;
    tokio::spawn(async move {
        let mut sender = Some(sender);
        // A turn is going on although nothing was said yet, so that an interrupt ends it.
        let begun = ClientEvent::Thinking(String::new());
        if passed.send(begun).await.is_err() {
            return;
        }
        while let Some(event) = watched.recv().await {
            if let ClientEvent::TurnEnded(finish) = &event
                && let Some(sender) = sender.take()
            {
                let _ = sender.send(*finish);
            }
            if passed.send(event).await.is_err() {
                return;
            }
        }
    });
    let instructions = client.instructions;
    let client = HeadlessClient {
        instructions,
        events,
    };
    (client, finish)
}

/// Tells the session what the agent says.
async fn tell(supervisor: Supervisor, mut said: mpsc::Receiver<ClientEvent>) {
    let new_stream = || ResponseStream::new(supervisor.connection().clone(), None);
    let mut response: Option<ResponseStream> = None;
    loop {
        let event = tokio::select! {
            event = said.recv() => event,
            () = flush_due(response.as_ref()) => {
                if let Some(response) = &mut response {
                    response.flush().await;
                }
                continue;
            }
        };
        match event {
            Some(ClientEvent::Thinking(text)) => {
                let response = response.get_or_insert_with(new_stream);
                response.push_thinking(&text).await;
            }
            Some(ClientEvent::Text(text)) => {
                let response = response.get_or_insert_with(new_stream);
                response.push_text(&text).await;
            }
            Some(ClientEvent::TurnEnded(finish)) => {
                if let Some(response) = response.take() {
                    response.finish(finish, None).await;
                }
            }
            None => {
                if let Some(response) = response.take() {
                    response.finish(FinishReason::Interrupted, None).await;
                }
                return;
            }
        }
    }
}

async fn flush_due(response: Option<&ResponseStream>) {
    match response {
        Some(response) => response.wait_flush_due().await,
        None => std::future::pending().await,
    }
}
