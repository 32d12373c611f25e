//! What a scenario plays on: a server, a session, people, a model, and a client that follows it.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::clients::{Client, HostileFile, LaunchPlace, PROMPT, StartedBy};
use crate::model::{ScriptedModel, ScriptedTurn, SeenRequest};
use crate::process::ClientProcess;
use crate::support::cli::CliEnv;
use crate::support::session::{result_of, send_prompt};
use crate::support::{TestClient, TestServer, TestUser};

/// The session that clients are supervised in.
const SESSION: &str = "owl";

pub struct Stage {
    /// The server.
    pub server: TestServer,
    /// The server after it was killed and started again.
    restarted: Option<TestServer>,
    /// A person with every role.
    pub ann: TestClient,
    /// Her login.
    ann_user: TestUser,
    /// The model that the client asks.
    pub model: ScriptedModel,
    /// The client, and what comes of it.
    pub process: ClientProcess,
    /// Which client it is, and by which route.
    client: &'static Client,
    /// Where the client works.
    place: LaunchPlace,
    /// The link of the client's agent.
    link: String,
}

/// What a stage has beside what every stage has.
#[derive(Default)]
pub struct Setting {
    /// Settings of the session.
    pub config: Value,
    /// Files in the workspace, with their content.
    pub files: &'static [(&'static str, &'static str)],
    /// Whether the client has the MCP server `echo`.
    pub mcp: bool,
    /// Whether the workspace has settings that would rule over the client.
    pub hostile: bool,
    /// Whether the client stays while a call waits, on every route.
    pub stays: bool,
}

/// A call that waits for people.
pub struct WaitingCall {
    pub gate: String,
    pub proposal: String,
    /// The command line, if it is one.
    pub line: String,
    /// What the client proposed.
    pub payload: Value,
    /// Who the client is in the session.
    pub agent: String,
}

impl Stage {
    /// Starts a client whose model follows this script, which may name paths in the workspace.
    pub async fn start(
        client: &'static Client,
        setting: Setting,
        script: impl FnOnce(&std::path::Path) -> Vec<ScriptedTurn>,
    ) -> Self {
        let mut config = json!({ "client_reads": "workspace" });
        for (name, value) in setting.config.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        config["gate_timeout_seconds"] = 0.into();
        let server = TestServer::start(&[]).await;
        server.create_session(SESSION, config).await;
        let ann_user = server.invite("ann", &["driver", "approver", "admin"], &[]);
        let ann = server.join(SESSION, &ann_user).await;
        let cli = CliEnv::new();
        for (name, content) in setting.files {
            std::fs::write(cli.workdir().join(name), content).unwrap();
        }
        if setting.hostile {
            write_hostile(&cli, (client.hostile_files)(&marks(&cli)));
        }
        let model = ScriptedModel::start(script(&cli.workdir())).await;
        let user = server.invite(client.name, &["driver"], &["--kind", "agent"]);
        let mut place = LaunchPlace {
            mcp_server: setting.mcp.then(mcp_server),
            ..LaunchPlace::of(&cli, &model)
        };
        if setting.stays {
            place.defer_after = "1h";
        }
        if let StartedBy::Installed = client.started_by {
            cli.log_in(&server.link(&ann_user, Some(SESSION))).await;
            cli.run_ok(&["hook", "install", client.name, "--user"])
                .await;
        }
        let link = server.link(&user, Some(SESSION));
        let process = ClientProcess::start(client, cli, &place, &link);
        let mut stage = Self {
            server,
            restarted: None,
            ann,
            ann_user,
            model,
            process,
            client,
            place,
            link,
        };
        if client.started_by.is_prompted_in_session() {
            stage.prompt(&user.participant).await;
        }
        stage
    }

    /// Has a person say what to do, once the client is there.
    async fn prompt(&mut self, agent: &str) {
        let is_there = |message: &Value| {
            message["type"] == "participant.announce" && message["payload"]["id"] == agent
        };
        let announced = self.ann.wait(is_there);
        self.process.while_running(announced).await;
        send_prompt(&mut self.ann, agent, PROMPT).await;
    }

    /// Waits until a client leaves that does not stay while a call waits.
    pub async fn leaves_to_wait(&mut self) {
        if let StartedBy::Deferred(_) = self.client.started_by {
            self.client_ends().await;
        }
    }

    /// Starts a client again that has left.
    pub fn come_back(&mut self) {
        if let StartedBy::Deferred(resume) = self.client.started_by {
            let launch = resume(&self.place);
            self.process
                .start_again(self.client, &self.place, &self.link, launch);
        }
    }

    /// A file in the client's workspace.
    pub fn path(&self, name: &str) -> PathBuf {
        self.process.cli.workdir().join(name)
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until there is such a file.
    pub async fn wait_for_file(&mut self, name: &str) {
        let path = self.path(name);
        let found = crate::support::session::wait_until(name, || path.exists());
        self.process.while_running(found).await;
    }

    /// Joins another person with a vote.
    pub async fn join_bob(&self) -> TestClient {
        let bob = self.server.invite("bob", &["approver"], &[]);
        self.server.join(SESSION, &bob).await
    }

    /// Starts the server again where it was, and has ann come back.
    pub async fn restart_server(&mut self) {
        let (data, address) = (self.server.data.clone(), self.server.address.clone());
        self.restarted = Some(TestServer::start_on(&data, &address, &[]).await);
        self.ann = self.server.join(SESSION, &self.ann_user).await;
    }

    /// Waits for the next call that needs a decision; `None` if the client ends.
    pub async fn next_gate_or_end(&mut self) -> Option<WaitingCall> {
        tokio::select! {
            request = self.ann.wait_for("gate.request") => Some(self.waiting_call(&request)),
            _ = self.process.ended() => None,
        }
    }

    /// Waits for the next call that needs a decision.
    pub async fn next_gate(&mut self) -> WaitingCall {
        let waiting = self.ann.wait_for("gate.request");
        let request = self.process.while_running(waiting).await;
        self.waiting_call(&request)
    }

    /// Waits until this command needs a decision. Whoever comes back is told of earlier gates too.
    pub async fn gate_of(&mut self, line: &str) -> WaitingCall {
        loop {
            let call = self.next_gate().await;
            if call.line == line {
                return call;
            }
        }
    }

    fn waiting_call(&self, request: &Value) -> WaitingCall {
        let proposal = request["payload"]["action_ref"].as_str().unwrap();
        let mut received = self.ann.received.iter();
        let proposed = received.find(|message| message["id"] == proposal).unwrap();
        let payload = proposed["payload"].clone();
        WaitingCall {
            gate: request["id"].as_str().unwrap().to_owned(),
            proposal: proposal.to_owned(),
            line: line_of(&payload),
            payload,
            agent: proposed["sender"].as_str().unwrap().to_owned(),
        }
    }

    pub async fn approve(&mut self, call: &WaitingCall) {
        self.leaves_to_wait().await;
        crate::support::session::approve(&mut self.ann, &call.gate).await;
        self.come_back();
    }

    pub async fn reject(&mut self, call: &WaitingCall, reason: &str) {
        self.leaves_to_wait().await;
        crate::support::session::reject(&mut self.ann, &call.gate, reason).await;
        self.come_back();
    }

    /// Waits for the result of a call.
    pub async fn result(&mut self, call: &WaitingCall) -> Value {
        result_of(&mut self.ann, &call.proposal).await
    }

    /// Waits for the message that says how a gate ended.
    pub async fn resolution(&mut self, call: &WaitingCall) -> Value {
        let of_call = |message: &Value| {
            message["type"] == "gate.resolve" && message["payload"]["gate"] == *call.gate
        };
        self.ann.wait(of_call).await
    }

    /// Waits for the message with the result of a call.
    pub async fn result_message(&mut self, call: &WaitingCall) -> Value {
        let of_call = |message: &Value| {
            message["type"] == "tool.result"
                && message["payload"]["tool_proposal"] == *call.proposal
        };
        self.ann.wait(of_call).await
    }

    /// A message that the server receives at this moment.
    pub async fn message_of_this_moment(&mut self) -> Value {
        crate::support::session::message_of_this_moment(&mut self.ann).await
    }

    /// Everything of a kind that is in the record.
    pub async fn recorded(&mut self, kind: &str) -> Vec<Value> {
        self.ann.sync().await;
        let received = self.ann.received.iter();
        let found = received.filter(|message| message["type"] == kind);
        found.map(|message| message["payload"].clone()).collect()
    }

    /// Waits until the model is told this, in the result of a call or by the user.
    pub async fn model_reads(&mut self, text: &str) {
        let told = self.model.wait_for(|request| request.text().contains(text));
        self.process.while_running(told).await;
    }

    /// Waits until the client has followed its script to the end.
    pub async fn client_ends(&mut self) {
        let code = self.process.ended().await;
        assert_eq!(code, Some(0), "{}", self.process.output());
    }
}

impl Drop for Stage {
    /// Says what has happened if it was not what was expected.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let printed = self.process.output();
            let requests = self.model.requests();
            let told: Vec<_> = requests.iter().map(request_summary).collect();
            let told = told.join("\n");
            let recorded: Vec<_> = self.ann.received.iter().map(summary).collect();
            let recorded = recorded.join("\n");
            let said = format!(
                "--- the client printed\n{printed}\n--- the model read\n{told}\n--- the record\n{recorded}"
            );
            let _ = writeln!(std::io::stderr(), "{said}\n---");
        }
    }
}

fn request_summary(request: &SeenRequest) -> String {
    let (conversation, answer) = (&request.conversation, &request.answer);
    let last = request.history.last();
    format!(
        "{conversation:?} {}: {last:?} -> {answer:?}",
        request.target
    )
}

fn summary(message: &Value) -> String {
    format!(
        "{} {}",
        message["type"].as_str().unwrap_or_default(),
        message["payload"]
    )
}

/// The command line of a proposal; empty if it is none.
pub fn line_of(payload: &Value) -> String {
    let line = &payload["arguments"]["full_command"];
    line.as_str().unwrap_or_default().to_owned()
}

/// The directory in which hostile files have marks written.
pub fn marks(cli: &CliEnv) -> PathBuf {
    let marks = cli.home().join("marks");
    std::fs::create_dir_all(&marks).unwrap();
    marks
}

/// Makes the workspace a repository with these files.
pub fn write_hostile(cli: &CliEnv, files: impl IntoIterator<Item = HostileFile>) {
    // Outside of a repository, Copilot runs no hooks of its directory.
    let mut git = std::process::Command::new("git");
    git.args(["init", "-q"]).current_dir(cli.workdir());
    assert!(git.env("HOME", cli.home()).status().unwrap().success());
    for file in files {
        let path = cli.workdir().join(file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file.text).unwrap();
    }
}

fn mcp_server() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/bridges/mcp_echo.mjs")
}
