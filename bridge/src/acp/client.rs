//! This program as the client of an agent: people prompt it from their screens.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{InitializeResponse, PromptResponse, StopReason};
use anyhow::{Context, bail};
use pvp_agent::agent::Agent;
use pvp_protocol::payload::FinishReason;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::desk::{Desk, DeskEvent};
use super::modes;
use super::own_tools::OwnTools;
use super::process::{AcpCommand, AcpProcess, AgentStreams};
use super::wire::{AUTH_REQUIRED, AcpMessage, METHOD_NOT_FOUND, RpcError};
use crate::headless::{ClientEvent, ClientInstruction, HeadlessClient};
use crate::supervisor::Supervisor;

/// How long an agent may take to begin; some of them fetch things first.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// What an agent says that may wait to be passed on; it is not read further while so much does.
const MAX_UNSAID: usize = 256;

/// How often an agent is told within one turn why calls were denied. After that it is told with the
/// next prompt, so that an agent that never gives up does not go on for ever.
const MAX_FOLLOW_UPS: u32 = 10;

/// An agent that was started and has introduced itself.
pub struct AcpAgent {
    process: AcpProcess,
    streams: AgentStreams,
    introduction: InitializeResponse,
    last_id: u64,
}

impl AcpAgent {
    /// Starts an agent that works in this directory, an absolute path without links.
    pub async fn start(command: &AcpCommand, workspace: &Path) -> anyhow::Result<Self> {
        let (process, streams) = AcpProcess::start(command, workspace)?;
        let mut starting = StartingAgent {
            streams,
            last_id: 0,
        };
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": command.capabilities(),
            "clientInfo": { "name": "pvp", "title": "PVP", "version": env!("CARGO_PKG_VERSION") },
        });
        let introduction: InitializeResponse = starting.call("initialize", params).await?;
        let version = serde_json::to_value(introduction.protocol_version).unwrap_or_default();
        if version != json!(1) {
            bail!("the agent speaks version {version} of ACP, and PVP speaks version 1");
        }
        Ok(Self {
            process,
            streams: starting.streams,
            introduction,
            last_id: starting.last_id,
        })
    }

    /// The version that the agent says it has.
    pub fn version(&self) -> Option<String> {
        let info = self.introduction.agent_info.as_ref()?;
        let version: String = info.version.chars().take(64).collect();
        (!version.is_empty()).then_some(version)
    }

    /// Begins a conversation. The agent's calls are decided in the supervisor's session, and the
    /// executor of `agent`, whose connection the supervisor uses, runs what is left to it.
    pub async fn open(
        self,
        supervisor: &Supervisor,
        agent: Arc<Agent>,
    ) -> anyhow::Result<HeadlessClient> {
        let own_tools = OwnTools::listen(&agent, supervisor.client());
        let mut starting = StartingAgent {
            streams: self.streams,
            last_id: self.last_id,
        };
        let workspace = &supervisor.client().workspace;
        let params = json!({ "cwd": workspace, "mcpServers": own_tools.servers() });
        let opened = starting.call::<Value>("session/new", params);
        let opened = opened
            .await
            .map_err(|error| match error.downcast_ref::<AuthRequired>() {
                Some(_) => error.context(login_advice(&self.introduction)),
                None => error,
            })?;
        let session = opened["sessionId"].as_str();
        let session = session.context("the agent's answer to `session/new` is not that of ACP")?;
        let session = session.to_owned();
        starting.choose_modes(&session, &opened).await?;
        let (instructions, instruction_receiver) = mpsc::channel(16);
        let (event_sender, events) = mpsc::channel(64);
        let outgoing = starting.streams.outgoing.clone();
        let mut desk = Desk::new(supervisor.clone(), agent, outgoing, own_tools);
        desk.open_conversation(&session, None, &opened)?;
        let conversation = AcpConversation {
            desk,
            streams: starting.streams,
            session,
            last_id: starting.last_id,
            turn: None,
            untold: None,
            unsaid: VecDeque::new(),
            changing: BTreeSet::new(),
            is_over: false,
        };
        let process = self.process;
        tokio::spawn(async move {
            conversation.run(instruction_receiver, event_sender).await;
            if let Some(status) = process.end().await {
                tracing::info!(%status, "the agent has ended");
            }
        });
        Ok(HeadlessClient {
            instructions,
            events,
        })
    }
}

/// The agent wants a login first.
#[derive(Debug, thiserror::Error)]
#[error("the agent wants you to log in: {0}")]
struct AuthRequired(String);

fn login_advice(introduction: &InitializeResponse) -> String {
    let methods = serde_json::to_value(&introduction.auth_methods).unwrap_or_default();
    let methods = methods.as_array().cloned().unwrap_or_default();
    let names = methods.iter().filter_map(|method| method["name"].as_str());
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let ways = match names.is_empty() {
        true => String::new(),
        false => format!(" (it knows {})", names.join(", ")),
    };
    format!("log in with the agent's own program first{ways}, or set its API key, and start again")
}

/// An agent that is spoken to in turns, before people prompt it.
struct StartingAgent {
    streams: AgentStreams,
    last_id: u64,
}

impl StartingAgent {
    /// Calls a method and waits for its result. Nothing that the agent asks meanwhile is granted.
    async fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: Value,
    ) -> anyhow::Result<T> {
        self.last_id += 1;
        let id = Value::from(self.last_id);
        self.streams
            .outgoing
            .send(&AcpMessage::request(id.clone(), method, params));
        let answer = tokio::time::timeout(START_TIMEOUT, self.answer(&id));
        let answer = answer.await.with_context(|| {
            let seconds = START_TIMEOUT.as_secs();
            format!("the agent did not answer `{method}` within {seconds} s; does it speak ACP?")
        })?;
        match answer
            .with_context(|| format!("the agent ended at `{method}`; does it speak ACP?"))?
        {
            Ok(result) => serde_json::from_value(result)
                .with_context(|| format!("the agent's answer to `{method}` is not that of ACP")),
            Err(error) if error.code == AUTH_REQUIRED => Err(AuthRequired(error.message).into()),
            Err(error) => bail!("the agent refused `{method}`: {}", error.message),
        }
    }

    async fn answer(&mut self, expected: &Value) -> Option<Result<Value, RpcError>> {
        loop {
            match self.streams.incoming.recv().await? {
                AcpMessage::Response { id, outcome } if id == *expected => return Some(outcome),
                AcpMessage::Response { .. } | AcpMessage::Notification { .. } => {}
                AcpMessage::Request { id, method, .. } => {
                    let error = RpcError::new(METHOD_NOT_FOUND, format!("not now: {method}"));
                    self.streams.outgoing.respond(id, Err(error));
                }
            }
        }
    }

    /// Brings the agent to a mode in which it asks.
    async fn choose_modes(&mut self, session: &str, opened: &Value) -> anyhow::Result<()> {
        let changes = match modes::needed_changes(opened) {
            Ok(changes) => changes,
            Err(mode) => bail!(
                "the agent is in mode `{mode}`, in which it asks nobody, and has no other; change its own settings"
            ),
        };
        for change in changes {
            let (method, params) = change.request(session);
            let changed = self.call::<Value>(method, params).await;
            changed.context("changing to a mode in which the agent asks")?;
        }
        Ok(())
    }
}

/// A conversation with an agent.
struct AcpConversation {
    /// Has the calls decided.
    desk: Desk,
    /// The ends of the agent.
    streams: AgentStreams,
    /// The agent's id of the conversation.
    session: String,
    /// The id of the last request.
    last_id: u64,
    /// The turn that is under way.
    turn: Option<AcpTurn>,
    /// Why calls were denied, if the agent could not be told within the turn.
    untold: Option<String>,
    /// What was not passed on yet.
    unsaid: VecDeque<ClientEvent>,
    /// The requests that bring the agent back to asking.
    changing: BTreeSet<u64>,
    /// Whether the agent is not spoken to any more.
    is_over: bool,
}

struct AcpTurn {
    /// The id of the prompt that the agent answers.
    request: Value,
    follow_ups: u32,
    interrupted: bool,
}

impl AcpConversation {
    async fn run(
        mut self,
        mut instructions: mpsc::Receiver<ClientInstruction>,
        events: mpsc::Sender<ClientEvent>,
    ) {
        while !self.is_over {
            let is_full = self.unsaid.len() >= MAX_UNSAID;
            tokio::select! {
                message = self.streams.incoming.recv(), if !is_full => match message {
                    Some(message) => self.on_message(message),
                    None => break,
                },
                instruction = instructions.recv() => match instruction {
                    Some(ClientInstruction::Prompt(text)) => self.prompt(&text),
                    Some(ClientInstruction::Interrupt) => self.interrupt(),
                    Some(ClientInstruction::Kill) | None => break,
                },
                event = self.desk.next() => match event {
                    DeskEvent::Answered => {}
                    DeskEvent::StopWanted(_) => {
                        self.interrupt();
                        self.make_ask_again();
                    }
                },
                permit = events.reserve(), if !self.unsaid.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.unsaid.pop_front() {
                            permit.send(event);
                        }
                    }
                    Err(_) => break,
                },
            }
        }
        for event in self.unsaid {
            // Nobody may be there to read it.
            let _ = events.send(event).await;
        }
    }

    fn on_message(&mut self, message: AcpMessage) {
        match message {
            AcpMessage::Request { id, method, params } => {
                if !self.desk.on_request(&id, &method, params) {
                    let error = RpcError::new(METHOD_NOT_FOUND, format!("no method {method}"));
                    self.streams.outgoing.respond(id, Err(error));
                }
            }
            AcpMessage::Notification { method, params } if method == "session/update" => {
                self.unsaid.extend(self.desk.on_update(&params));
            }
            AcpMessage::Notification { .. } => {}
            AcpMessage::Response { id, outcome } => self.on_response(&id, outcome),
        }
    }

    fn on_response(&mut self, id: &Value, outcome: Result<Value, RpcError>) {
        if id.as_u64().is_some_and(|id| self.changing.remove(&id)) {
            return self.on_changed(outcome);
        }
        let Some(turn) = self.turn.take_if(|turn| turn.request == *id) else {
            return;
        };
        let finish = self.finish_reason(&turn, outcome);
        self.unsaid.extend(self.desk.end_turn(&self.session));
        let reasons = self.desk.take_reasons(&self.session);
        match reasons {
            Some(text)
                if finish != FinishReason::Interrupted && turn.follow_ups < MAX_FOLLOW_UPS =>
            {
                self.send_prompt(&text, turn.follow_ups + 1);
            }
            reasons => {
                self.untold = reasons.filter(|_| finish != FinishReason::Interrupted);
                self.unsaid.push_back(ClientEvent::TurnEnded(finish));
            }
        }
    }

    fn finish_reason(&mut self, turn: &AcpTurn, outcome: Result<Value, RpcError>) -> FinishReason {
        let parsed = outcome.map(|result| serde_json::from_value::<PromptResponse>(result).ok());
        match parsed {
            _ if turn.interrupted => FinishReason::Interrupted,
            Ok(Some(response)) => match response.stop_reason {
                StopReason::Cancelled => FinishReason::Interrupted,
                StopReason::MaxTokens => FinishReason::MaxTokens,
                _ => FinishReason::Complete,
            },
            Ok(None) => FinishReason::Error,
            Err(error) => {
                let text = match error.code {
                    AUTH_REQUIRED => "log in with the agent's own program, and start again",
                    _ => "try again, or look at what the agent printed",
                };
                let text = format!("\n[PVP: the agent failed: {}; {text}]\n", error.message);
                self.unsaid.push_back(ClientEvent::Text(text));
                FinishReason::Error
            }
        }
    }

    fn prompt(&mut self, text: &str) {
        let text = match self.untold.take() {
            Some(reasons) => format!("{reasons}\n\n{text}"),
            None => text.to_owned(),
        };
        self.send_prompt(&text, 0);
    }

    fn send_prompt(&mut self, text: &str, follow_ups: u32) {
        self.last_id += 1;
        let request = Value::from(self.last_id);
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        let message = AcpMessage::request(request.clone(), "session/prompt", params);
        if !self.streams.outgoing.send(&message) {
            self.unsaid
                .push_back(ClientEvent::TurnEnded(FinishReason::Error));
            return;
        }
        self.turn = Some(AcpTurn {
            request,
            follow_ups,
            interrupted: false,
        });
    }

    /// Brings an agent that went to a mode in which it asks nobody back to one in which it asks.
    fn make_ask_again(&mut self) {
        for change in self.desk.modes.take_back(&self.session) {
            self.last_id += 1;
            let (method, params) = change.request(&self.session);
            let request = AcpMessage::request(self.last_id, method, params);
            self.is_over |= !self.streams.outgoing.send(&request);
            self.changing.insert(self.last_id);
        }
    }

    fn on_changed(&mut self, outcome: Result<Value, RpcError>) {
        if outcome.is_err() {
            let text =
                "\n[PVP: the agent does not go back to a mode in which it asks; it is ended]\n";
            self.unsaid.push_back(ClientEvent::Text(text.to_owned()));
            self.is_over = true;
        }
    }

    /// Asks the agent to end its turn. What it asked is answered as cancelled.
    fn interrupt(&mut self) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        turn.interrupted = true;
        let params = json!({ "sessionId": self.session });
        let cancel = AcpMessage::notification("session/cancel", params);
        self.streams.outgoing.send(&cancel);
        self.desk.cancel(&self.session);
    }
}
