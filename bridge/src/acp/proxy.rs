//! Stands between an editor and its agent: passes everything on, except what would run something or
//! let it run unasked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    NewSessionResponse, PromptResponse, SessionModeState, StopReason,
};
use pvp_agent::agent::Agent;
use pvp_agent::proposer::{PersonRequest, PersonRequestKind};
use pvp_protocol::MessageId;
use pvp_protocol::payload::{FinishReason, InterruptAction};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;

use super::client::client_capabilities;
use super::desk::{Desk, DeskEvent};
use super::modes::{self, ModeChange};
use super::own_tools::OwnTools;
use super::process::{AcpProcess, AgentStreams};
use super::recorder::Recorder;
use super::wire::{
    AcpMessage, INVALID_PARAMS, METHOD_NOT_FOUND, Outgoing, RpcError, read_messages,
};
use crate::client_files::PersonAtClient;
use crate::supervisor::Supervisor;

/// Messages of the editor that may wait to be read.
const MAX_UNREAD: usize = 64;

/// Requests that may be open; further ones are refused.
const MAX_OPEN: usize = 256;

/// Prompts of other people that wait for the end of a turn.
const MAX_PROMPTS: usize = 64;

/// How often an agent is told more within one turn.
const MAX_FOLLOW_UPS: u32 = 10;

/// What an agent may ask of an editor besides: to ask the person something.
const PASSED_ON: [&str; 1] = ["elicitation/create"];

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
    /// The agent's command.
    pub command: Vec<OsString>,
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
        let own_tools = OwnTools::listen(&self.agent);
        let servers = own_tools.servers();
        let outgoing = agent_streams.outgoing.clone();
        let proxy = EditorProxy {
            recorder: Recorder::start(&self.supervisor, self.person),
            desk: Desk::new(self.supervisor, self.agent, outgoing, own_tools),
            to_editor: Outgoing::start(output),
            agent: agent_streams,
            servers,
            prefix: format!("pvp-{}-", super::random_word()),
            last_id: 0,
            turns: BTreeMap::new(),
            opening: BTreeMap::new(),
            changing: BTreeMap::new(),
            asked_editor: BTreeSet::new(),
            open_modes: BTreeSet::new(),
            prompts: VecDeque::new(),
            interrupts: Vec::new(),
        };
        let end = proxy.run(editor, self.requests).await;
        reading.abort();
        process.end().await;
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
    /// How the ids of our own requests begin.
    prefix: String,
    /// The number of the last request of our own.
    last_id: u64,
    /// The prompts that are being answered, by conversation.
    turns: BTreeMap<String, EditorTurn>,
    /// The requests of the editor that open conversations, by id.
    opening: BTreeMap<String, Value>,
    /// Opened conversations that are brought to another mode first, by the id of our request.
    changing: BTreeMap<String, OpenedConversation>,
    /// The requests of the agent that the editor answers.
    asked_editor: BTreeSet<String>,
    /// Modes in which the agent asks nobody, as their names say.
    open_modes: BTreeSet<String>,
    /// What other people want to say.
    prompts: VecDeque<String>,
    /// Interrupts that are acknowledged when no turn is left.
    interrupts: Vec<MessageId>,
}

struct EditorTurn {
    /// The editor's id of its prompt.
    editor_id: Value,
    /// The id of the prompt that the agent answers.
    agent_id: Value,
    follow_ups: u32,
    interrupted: bool,
}

struct OpenedConversation {
    editor_id: Value,
    result: Value,
    mode: String,
}

impl EditorProxy {
    async fn run(
        mut self,
        mut editor: mpsc::Receiver<AcpMessage>,
        mut requests: mpsc::Receiver<PersonRequest>,
    ) -> ProxyEnd {
        loop {
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
                    DeskEvent::StopWanted(conversation) => self.cancel(&conversation),
                },
            }
        }
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
            AcpMessage::Notification { method, params } => {
                self.tell_agent(AcpMessage::Notification { method, params });
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
        match method {
            "initialize" => {
                for (name, value) in client_capabilities().as_object().into_iter().flatten() {
                    if params.is_object() {
                        params["clientCapabilities"][name] = value.clone();
                    }
                }
            }
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

    fn add_servers(&mut self, id: &Value, params: &mut Value) -> Result<(), RpcError> {
        let Some(fields) = params.as_object_mut() else {
            return Err(RpcError::new(
                INVALID_PARAMS,
                "the parameters are no object",
            ));
        };
        if self.opening.len() >= MAX_OPEN {
            return Err(RpcError::new(
                INVALID_PARAMS,
                "too many conversations begin at once",
            ));
        }
        // Some adapters take permissions from here.
        fields.remove("_meta");
        let servers = fields.entry("mcpServers").or_insert_with(|| json!([]));
        if let Some(servers) = servers.as_array_mut() {
            servers.extend(self.servers.clone());
        }
        let conversation = fields.get("sessionId").cloned().unwrap_or_default();
        self.opening.insert(id.to_string(), conversation);
        Ok(())
    }

    fn check_mode(&self, mode: &str) -> Result<(), RpcError> {
        match modes::asks(mode) && !self.open_modes.contains(mode) {
            true => Ok(()),
            false => {
                let why = format!("under PVP the agent has to ask, and in `{mode}` it does not");
                Err(RpcError::new(INVALID_PARAMS, why))
            }
        }
    }

    /// Refuses options that are modes by another name.
    fn check_option(&self, params: &Value) -> Result<(), RpcError> {
        let option = params["configId"].as_str().unwrap_or_default();
        // Which model it is decides nothing.
        let option = option.to_lowercase().replace("model", "");
        let words = ["mode", "permission", "approval", "sandbox", "allow"];
        let decides = words.iter().any(|word| option.contains(word));
        match (decides, &params["value"]) {
            (true, Value::String(value)) => self.check_mode(value),
            (true, Value::Bool(true)) => self.check_mode(&format!("allow all ({option})")),
            (true | false, _) => Ok(()),
        }
    }

    fn begin_turn(&mut self, id: &Value, params: &Value) -> Result<(), RpcError> {
        let conversation = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if self.turns.contains_key(&conversation) || self.turns.len() >= MAX_OPEN {
            let why = "a prompt is being answered already; wait for its end, or cancel it";
            return Err(RpcError::new(INVALID_PARAMS, why));
        }
        self.recorder.prompt(&conversation, &prompt_text(params));
        let turn = EditorTurn {
            editor_id: id.clone(),
            agent_id: id.clone(),
            follow_ups: 0,
            interrupted: false,
        };
        self.turns.insert(conversation, turn);
        Ok(())
    }

    fn on_agent(&mut self, message: AcpMessage) {
        match message {
            AcpMessage::Request { id, method, params } => self.on_agent_request(id, method, params),
            AcpMessage::Notification { method, mut params } => {
                if method == "session/update" {
                    let conversation = params["sessionId"].as_str().unwrap_or_default().to_owned();
                    for event in self.desk.on_update(&params) {
                        self.recorder.event(&conversation, event);
                    }
                    hide_terminals(&mut params);
                }
                self.tell_editor(AcpMessage::Notification { method, params });
            }
            AcpMessage::Response { id, outcome } => self.on_agent_response(id, outcome),
        }
    }

    fn on_agent_request(&mut self, id: Value, method: String, params: Value) {
        if PASSED_ON.contains(&method.as_str()) && self.asked_editor.len() < MAX_OPEN {
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
            return self.on_mode_changed(opened, outcome);
        }
        if let Some(conversation) = self.opening.remove(&request) {
            return self.on_opened(id, conversation, outcome);
        }
        let turn = self.turns.iter().find(|(_, turn)| turn.agent_id == id);
        match turn.map(|(conversation, _)| conversation.clone()) {
            Some(conversation) => self.on_turn_ended(&conversation, outcome),
            None if is_ours(&id, &self.prefix) => {}
            None => self.tell_editor(AcpMessage::Response { id, outcome }),
        }
    }

    fn note_modes(&mut self, modes: &Value) {
        let modes = serde_json::from_value::<SessionModeState>(modes.clone());
        let modes = modes.map(|modes| modes.available_modes).unwrap_or_default();
        let open = modes.iter().filter(|mode| !modes::mode_asks(mode));
        self.open_modes
            .extend(open.take(MAX_OPEN).map(|mode| mode.id.0.to_string()));
    }

    /// Passes on that a conversation is open, once the agent asks in it.
    fn on_opened(&mut self, editor_id: Value, known: Value, outcome: Result<Value, RpcError>) {
        let mode = |result: &Value| {
            let mut result = result.clone();
            if result.get("sessionId").is_none() && result.is_object() {
                result["sessionId"] = known.clone();
            }
            let opened = serde_json::from_value::<NewSessionResponse>(result).ok()?;
            let change = match modes::needed_change(opened.modes.as_ref()?) {
                ModeChange::None => return None,
                ModeChange::To(mode) => Some(mode.to_owned()),
                ModeChange::Impossible(_) => None,
            };
            Some((opened.session_id.0.to_string(), change))
        };
        if let Ok(result) = &outcome {
            self.note_modes(&result["modes"]);
        }
        let change = outcome.as_ref().ok().and_then(mode);
        match (change, outcome) {
            (Some((conversation, Some(mode))), Ok(result)) => {
                let params = json!({ "sessionId": conversation, "modeId": mode });
                let id = self.ask_agent("session/set_mode", params);
                let opened = OpenedConversation {
                    editor_id,
                    result,
                    mode,
                };
                self.changing.insert(id.to_string(), opened);
            }
            (Some((_, None)), _) => {
                let error = RpcError::new(INVALID_PARAMS, no_asking_mode());
                self.to_editor.respond(editor_id, Err(error));
            }
            (None | Some((_, Some(_))), outcome) => {
                self.to_editor.respond(editor_id, outcome);
            }
        }
    }

    fn on_mode_changed(&mut self, opened: OpenedConversation, outcome: Result<Value, RpcError>) {
        let mut result = opened.result;
        let outcome = outcome.map(|_| {
            result["modes"]["currentModeId"] = opened.mode.into();
            result
        });
        let outcome = outcome.map_err(|_| RpcError::new(INVALID_PARAMS, no_asking_mode()));
        self.to_editor.respond(opened.editor_id, outcome);
    }

    fn on_turn_ended(&mut self, conversation: &str, outcome: Result<Value, RpcError>) {
        for event in self.desk.end_turn(conversation) {
            self.recorder.event(conversation, event);
        }
        let Some(turn) = self.turns.remove(conversation) else {
            return;
        };
        let finish = finish_reason(&turn, &outcome);
        let goes_on = finish != FinishReason::Interrupted && turn.follow_ups < MAX_FOLLOW_UPS;
        let more = goes_on.then(|| self.follow_up(conversation)).flatten();
        match more {
            Some(text) => {
                let prompt = json!([{ "type": "text", "text": text }]);
                let params = json!({ "sessionId": conversation, "prompt": prompt });
                let agent_id = self.ask_agent("session/prompt", params);
                self.show(conversation, &text);
                let turn = EditorTurn {
                    agent_id,
                    follow_ups: turn.follow_ups + 1,
                    ..turn
                };
                self.turns.insert(conversation.to_owned(), turn);
            }
            None => {
                self.recorder.end(conversation, finish);
                self.to_editor.respond(turn.editor_id, outcome);
                self.acknowledge();
            }
        }
    }

    /// What the agent is told before its turn is over: why calls were denied, and what other people
    /// said meanwhile.
    fn follow_up(&mut self, conversation: &str) -> Option<String> {
        let reasons = self.desk.take_reasons(conversation);
        let said = self.prompts.drain(..);
        let texts: Vec<_> = reasons.into_iter().chain(said).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Shows the person at the editor what the agent was told.
    fn show(&mut self, conversation: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        let update = json!({ "sessionUpdate": "user_message_chunk", "content": content });
        let params = json!({ "sessionId": conversation, "update": update });
        self.tell_editor(AcpMessage::notification("session/update", params));
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

    /// Acknowledges interrupts once no turn is left.
    fn acknowledge(&mut self) {
        if !self.turns.is_empty() {
            return;
        }
        for interrupt in self.interrupts.drain(..) {
            let supervisor = self.desk.supervisor.clone();
            tokio::spawn(async move {
                supervisor
                    .acknowledge(&interrupt, InterruptAction::Stopped)
                    .await;
            });
        }
    }

    /// Asks the agent to end its turn. What it asked is answered as cancelled.
    fn cancel(&mut self, conversation: &str) {
        if let Some(turn) = self.turns.get_mut(conversation) {
            turn.interrupted = true;
            self.desk.cancel(conversation);
        }
        let params = json!({ "sessionId": conversation });
        self.tell_agent(AcpMessage::notification("session/cancel", params));
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

fn is_ours(id: &Value, prefix: &str) -> bool {
    id.as_str().is_some_and(|id| id.starts_with(prefix))
}

fn no_asking_mode() -> &'static str {
    "under PVP the agent has to ask, and it has no mode in which it does; change its own settings"
}

fn finish_reason(turn: &EditorTurn, outcome: &Result<Value, RpcError>) -> FinishReason {
    let response = outcome.as_ref().ok().cloned();
    let response = response.and_then(|it| serde_json::from_value::<PromptResponse>(it).ok());
    match response.map(|response| response.stop_reason) {
        _ if turn.interrupted => FinishReason::Interrupted,
        Some(StopReason::Cancelled) => FinishReason::Interrupted,
        Some(StopReason::MaxTokens) => FinishReason::MaxTokens,
        Some(_) => FinishReason::Complete,
        None => FinishReason::Error,
    }
}

/// The text of a prompt, with the names of what is attached.
fn prompt_text(params: &Value) -> String {
    let blocks = params["prompt"].as_array().into_iter().flatten();
    let text = |block: &Value| {
        let text = block["text"].as_str().map(str::to_owned);
        let link = || {
            block["uri"]
                .as_str()
                .or_else(|| block["resource"]["uri"].as_str())
        };
        text.or_else(|| link().map(|uri| format!("[{uri}]")))
    };
    blocks.filter_map(text).collect::<Vec<_>>().join("\n")
}

/// An editor knows only the terminals that it opened itself.
fn hide_terminals(params: &mut Value) {
    let content = params["update"]["content"].as_array_mut();
    for part in content.into_iter().flatten() {
        if part["type"] == "terminal" {
            let text = json!({ "type": "text", "text": "(runs in a terminal of PVP)" });
            *part = json!({ "type": "content", "content": text });
        }
    }
}
