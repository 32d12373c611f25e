//! Stands between an editor and its agent: passes everything on, except what would run something or
//! let it run unasked.

mod opening;
mod passed_on;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_agent::proposer::{PersonRequest, PersonRequestKind};
use pvp_protocol::MessageId;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::desk::{Desk, DeskEvent};
use super::own_tools::OwnTools;
use super::process::{AcpCommand, AcpProcess, AgentStreams};
use super::recorder::Recorder;
use super::wire::{AcpMessage, METHOD_NOT_FOUND, Outgoing, RpcError, read_messages};
use crate::client_files::PersonAtClient;
use crate::launch::AgentProject;
use crate::supervisor::Supervisor;
use opening::{OpenedConversation, OpeningConversation};
use passed_on::{EDITOR_REQUESTS, PASSED_ON, add_capabilities, asks_for_approval, hide_terminals};
use turns::EditorTurn;

/// Messages of the editor that may wait to be read.
const MAX_UNREAD: usize = 64;

/// Requests that may be open; further ones are refused.
const MAX_OPEN: usize = 256;

/// Prompts of other people that wait for the end of a turn.
const MAX_PROMPTS: usize = 64;

/// How long an agent may take to end its turns after an interrupt, before it is stopped.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyEnd {
    /// The editor closed its side.
    EditorGone,
    /// The agent has ended.
    AgentGone,
    /// The session is over for the agent.
    SessionOver,
}

/// An agent that an editor starts through this program.
pub struct EditorAgent {
    /// How the agent is started.
    pub command: AcpCommand,
    /// Where its calls are decided.
    pub supervisor: Supervisor,
    /// What people ask of it.
    pub requests: mpsc::Receiver<PersonRequest>,
    /// Whose executor runs what the agent leaves to its client; the supervisor uses its connection.
    pub agent: Arc<Agent>,
    /// The person at the editor, if they have a link here.
    pub person: Option<PersonAtClient>,
}

impl EditorAgent {
    /// Serves the editor until it, the agent or the session is gone.
    pub async fn serve(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> anyhow::Result<ProxyEnd> {
        let workspace = &self.supervisor.client().workspace;
        let (process, agent_streams) = AcpProcess::start(&self.command, workspace)?;
        let (sender, editor) = mpsc::channel(MAX_UNREAD);
        let reading = tokio::spawn(read_messages(BufReader::new(input), sender));
        let own_tools = OwnTools::listen(&self.agent, self.supervisor.client());
        let servers = own_tools.servers();
        let outgoing = agent_streams.outgoing.clone();
        let supervisor = self.supervisor.clone();
        // When the last one of these is gone, it leaves, and reports nothing more.
        let staying = self.agent.clone();
        let proxy = EditorProxy {
            recorder: Recorder::start(&self.supervisor, self.person),
            desk: Desk::new(self.supervisor, self.agent, outgoing, own_tools),
            to_editor: Outgoing::start(output),
            agent: agent_streams,
            servers,
            project: self.command.project().clone(),
            capabilities: self.command.capabilities(),
            prefix: format!("pvp-{}-", super::random_word()),
            last_id: 0,
            turns: BTreeMap::new(),
            opening: BTreeMap::new(),
            changing: BTreeMap::new(),
            restoring: BTreeSet::new(),
            asked_editor: BTreeSet::new(),
            prompts: VecDeque::new(),
            interrupts: Vec::new(),
            kill_at: None,
            end: None,
        };
        let end = proxy.run(editor, self.requests).await;
        reading.abort();
        process.end().await;
        supervisor.settle().await;
        drop(staying);
        Ok(end)
    }
}

struct EditorProxy {
    /// Has the calls decided.
    desk: Desk,
    /// Tells the session what is said.
    recorder: Recorder,
    /// Where the editor is spoken to.
    to_editor: Outgoing,
    /// The ends of the agent.
    agent: AgentStreams,
    /// The MCP servers to add to those of the editor.
    servers: Vec<Value>,
    /// What the directories of conversations may bring.
    project: AgentProject,
    /// What is done for the agent, whatever the editor can do.
    capabilities: Value,
    /// How the ids of our own requests begin.
    prefix: String,
    /// The number of the last request of our own.
    last_id: u64,
    /// The prompts that are being answered, by conversation.
    turns: BTreeMap<String, EditorTurn>,
    /// The requests of the editor that open conversations, by id.
    opening: BTreeMap<String, OpeningConversation>,
    /// Opened conversations that are brought to another mode first, by the id of our request.
    changing: BTreeMap<String, OpenedConversation>,
    /// Our requests that bring the agent back to asking.
    restoring: BTreeSet<String>,
    /// The requests of the agent that the editor answers.
    asked_editor: BTreeSet<String>,
    /// What other people want to say.
    prompts: VecDeque<String>,
    /// Interrupts that are acknowledged when no turn is left.
    interrupts: Vec<MessageId>,
    /// When the agent is ended, because it did not heed an interrupt.
    kill_at: Option<Instant>,
    /// How it ended, once it has.
    end: Option<ProxyEnd>,
}

impl EditorProxy {
    async fn run(
        mut self,
        mut editor: mpsc::Receiver<AcpMessage>,
        mut requests: mpsc::Receiver<PersonRequest>,
    ) -> ProxyEnd {
        while self.end.is_none() {
            tokio::select! {
                message = editor.recv() => match message {
                    Some(message) => self.on_editor(message),
                    None => return ProxyEnd::EditorGone,
                },
                message = self.agent.incoming.recv() => match message {
                    Some(message) => self.on_agent(message),
                    None => return ProxyEnd::AgentGone,
                },
                request = requests.recv() => match request {
                    Some(request) => self.on_person(request),
                    None => return ProxyEnd::SessionOver,
                },
                event = self.desk.next() => match event {
                    DeskEvent::Answered => {}
                    DeskEvent::StopWanted(conversation) => {
                        self.cancel(&conversation);
                        self.make_ask_again(&conversation);
                    }
                },
                () = sleep_until(self.kill_at) => return ProxyEnd::AgentGone,
            }
        }
        self.end.unwrap_or(ProxyEnd::AgentGone)
    }

    fn on_editor(&mut self, message: AcpMessage) {
        match message {
            AcpMessage::Request { id, method, params } => {
                match self.checked_request(&id, &method, params) {
                    Ok(params) => self.tell_agent(AcpMessage::Request { id, method, params }),
                    Err(error) => drop(self.to_editor.respond(id, Err(error))),
                }
            }
            AcpMessage::Notification { method, params } if method == "session/cancel" => {
                let conversation = params["sessionId"].as_str().unwrap_or_default();
                self.cancel(conversation);
            }
            AcpMessage::Notification { method, params } if method == "$/cancel_request" => {
                self.tell_agent(AcpMessage::Notification { method, params });
            }
            AcpMessage::Notification { method, .. } => {
                tracing::warn!(method, "the editor said something that is not known");
            }
            AcpMessage::Response { id, outcome } => {
                // What nobody asked the editor is not an answer.
                if self.asked_editor.remove(&id.to_string()) {
                    self.tell_agent(AcpMessage::Response { id, outcome });
                }
            }
        }
    }

    /// The parameters that a request of the editor is passed on with; an error if it is not.
    fn checked_request(
        &mut self,
        id: &Value,
        method: &str,
        mut params: Value,
    ) -> Result<Value, RpcError> {
        if !EDITOR_REQUESTS.contains(&method) {
            let why = format!("PVP does not pass `{method}` on, because it does not know it");
            return Err(RpcError::new(METHOD_NOT_FOUND, why));
        }
        match method {
            "initialize" => add_capabilities(&mut params, &self.capabilities),
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                self.add_servers(id, &mut params)?;
            }
            "session/set_mode" => {
                self.check_mode(params["modeId"].as_str().unwrap_or_default())?;
            }
            "session/set_config_option" => self.check_option(&params)?,
            "session/prompt" => self.begin_turn(id, &params)?,
            _ => {}
        }
        Ok(params)
    }

    fn on_agent(&mut self, message: AcpMessage) {
        match message {
            AcpMessage::Request { id, method, params } => self.on_agent_request(id, method, params),
            AcpMessage::Notification { method, mut params } => {
                if method == "session/update" && !self.is_replayed(&params) {
                    let conversation = params["sessionId"].as_str().unwrap_or_default().to_owned();
                    for event in self.desk.on_update(&params) {
                        self.recorder.event(&conversation, event);
                    }
                }
                hide_terminals(&mut params);
                self.tell_editor(AcpMessage::Notification { method, params });
            }
            AcpMessage::Response { id, outcome } => self.on_agent_response(id, outcome),
        }
    }

    fn on_agent_request(&mut self, id: Value, method: String, params: Value) {
        let may_ask = PASSED_ON.contains(&method.as_str()) && !asks_for_approval(&params);
        if may_ask && self.asked_editor.len() < MAX_OPEN {
            self.asked_editor.insert(id.to_string());
            self.tell_editor(AcpMessage::Request { id, method, params });
        } else if !self.desk.on_request(&id, &method, params) {
            let why = format!("PVP does not pass `{method}` on, because it may run something");
            let error = RpcError::new(METHOD_NOT_FOUND, why);
            self.agent.outgoing.respond(id, Err(error));
        }
    }

    fn on_agent_response(&mut self, id: Value, outcome: Result<Value, RpcError>) {
        let request = id.to_string();
        if let Some(opened) = self.changing.remove(&request) {
            return self.on_changed(opened, outcome);
        }
        if let Some(opening) = self.opening.remove(&request) {
            return self.on_opened(id, &opening, outcome);
        }
        if self.restoring.remove(&request) && outcome.is_err() {
            tracing::error!("the agent does not go back to a mode in which it asks");
            self.end = Some(ProxyEnd::AgentGone);
        }
        let turn = self.turns.iter().find(|(_, turn)| turn.agent_id == id);
        match turn.map(|(conversation, _)| conversation.clone()) {
            Some(conversation) => self.on_turn_ended(&conversation, outcome),
            None if is_ours(&id, &self.prefix) => {}
            None => self.tell_editor(AcpMessage::Response { id, outcome }),
        }
    }

    /// Brings an agent that went to a mode in which it asks nobody back to one in which it asks.
    fn make_ask_again(&mut self, conversation: &str) {
        for change in self.desk.modes.take_back(conversation) {
            let (method, params) = change.request(conversation);
            let id = self.ask_agent(method, params);
            self.restoring.insert(id.to_string());
        }
    }

    fn on_person(&mut self, request: PersonRequest) {
        let text = match request.kind {
            PersonRequestKind::Prompt(prompt) => prompt.content,
            PersonRequestKind::Amend(amend) => amend.amendment,
            PersonRequestKind::Interrupt(_) => {
                self.interrupts.push(request.id);
                let conversations: Vec<_> = self.turns.keys().cloned().collect();
                for conversation in conversations {
                    self.cancel(&conversation);
                    self.kill_at.get_or_insert(Instant::now() + INTERRUPT_GRACE);
                }
                return self.acknowledge();
            }
        };
        if self.prompts.len() < MAX_PROMPTS {
            self.prompts
                .push_back(format!("{} says: {text}", request.name));
        } else {
            tracing::warn!("a prompt was dropped, because too many wait");
        }
    }

    fn ask_agent(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = Value::from(format!("{}{}", self.prefix, self.last_id));
        self.tell_agent(AcpMessage::request(id.clone(), method, params));
        id
    }

    fn tell_agent(&self, message: AcpMessage) {
        self.agent.outgoing.send(&message);
    }

    fn tell_editor(&self, message: AcpMessage) {
        self.to_editor.send(&message);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn is_ours(id: &Value, prefix: &str) -> bool {
    id.as_str().is_some_and(|id| id.starts_with(prefix))
}
