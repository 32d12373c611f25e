//! Answers what an agent asks of its client, and follows what it reports.
//!
//! One task owns the desk. Questions are decided in tasks of their own, and only the desk answers
//! them, so that each is answered once.

mod reasons;
mod unasked;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, PermissionOption, RequestPermissionRequest, SessionNotification,
    SessionUpdate, ToolCall, WriteTextFileRequest,
};
use pvp_agent::agent::{Agent, ClientFileCalls};
use pvp_client::user_directories::private_paths;
use pvp_protocol::JsonObject;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::calls::{AllowedChange, CallKey, Calls, ReportedCall, TurnStage};
use super::delegated::{Delegate, Denied, is_delegated};
use super::modes::KnownModes;
use super::own_tools::OwnTools;
use super::permission::{allow_option, translate_call};
use super::question::{PermissionQuestion, QuestionAnswer, cancelled, rejected, selected};
use super::terminals::Terminals;
use super::wire::{INTERNAL_ERROR, Outgoing, RpcError};
use crate::headless::ClientEvent;
use crate::supervisor::{CallReport, Supervisor};
use crate::translation::CallPlace;

/// Requests of an agent that are under way; further ones are refused.
const MAX_REQUESTS: usize = 64;

/// Conversations of which something is remembered.
const MAX_CONVERSATIONS: usize = 256;

pub(super) struct Desk {
    /// Has the calls decided.
    pub(super) supervisor: Supervisor,
    /// Where answers go.
    to_agent: Outgoing,
    /// Carries out what the agent leaves to us.
    delegate: Delegate,
    /// Binds the files that calls change.
    files: Arc<ClientFileCalls>,
    /// The tools that the agent is offered.
    own_tools: OwnTools,
    /// The calls that the agent has reported.
    calls: Calls,
    /// What is being decided or done, by the id of the request.
    pending: BTreeMap<String, OpenRequest>,
    /// The tasks that decide and carry out.
    tasks: JoinSet<Done>,
    /// Why calls of a conversation were denied, until the agent is told.
    reasons: BTreeMap<String, Vec<String>>,
    /// Conversations whose turn is to end; nothing more is granted in it.
    cancelled: BTreeSet<String>,
    /// Where it is told that people want a conversation to stop.
    stop: mpsc::Sender<String>,
    /// The other end of it.
    stops: mpsc::Receiver<String>,
    /// A name of this start, so that ids are never repeated.
    start: Arc<str>,
    /// Where the agent works, by conversation.
    directories: BTreeMap<String, PathBuf>,
    /// In which modes it asks.
    pub(super) modes: KnownModes,
}

struct OpenRequest {
    id: Value,
    session: String,
    task: AbortHandle,
    /// What a question is about; `None` for other requests.
    question: Option<AskedPermission>,
}

struct AskedPermission {
    options: Vec<PermissionOption>,
    key: CallKey,
    /// What people are shown: the tool and its arguments.
    asked: (String, JsonObject),
}

/// A request that is done.
struct Done {
    request: String,
    outcome: Outcome,
}

enum Outcome {
    PermissionQuestion(CallKey, QuestionAnswer),
    Delegated(Result<Value, Denied>),
}

/// A conversation was not opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "{MAX_CONVERSATIONS} conversations are open, and PVP follows no more; start the agent again"
)]
pub(super) struct TooManyConversations;

/// What the owner of a desk has to act on.
pub(super) enum DeskEvent {
    /// Something was answered.
    Answered,
    /// People want what this conversation runs to stop.
    StopWanted(String),
}

impl Desk {
    pub(super) fn new(
        supervisor: Supervisor,
        agent: Arc<Agent>,
        to_agent: Outgoing,
        own_tools: OwnTools,
    ) -> Self {
        let workspace = &supervisor.client().workspace;
        let files = Arc::new(ClientFileCalls::new(workspace, private_paths()));
        let (stop, stops) = mpsc::channel(16);
        let delegate = Delegate {
            agent,
            client: supervisor.client().origin(),
            terminals: Terminals::default(),
        };
        Self {
            supervisor,
            to_agent,
            delegate,
            files,
            own_tools,
            calls: Calls::default(),
            pending: BTreeMap::new(),
            tasks: JoinSet::new(),
            reasons: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            stop,
            stops,
            start: super::random_word().into(),
            directories: BTreeMap::new(),
            modes: KnownModes::default(),
        }
    }

    /// Takes a request of the agent. False if it is none that a client answers about calls.
    pub(super) fn on_request(&mut self, id: &Value, method: &str, params: Value) -> bool {
        let is_question = method == "session/request_permission";
        if !is_question && !is_delegated(method) {
            return false;
        }
        let request = id.to_string();
        if self.pending.contains_key(&request) {
            // Answering would answer the first one too.
            tracing::warn!("the agent used the id of an open request again");
            return true;
        }
        let problem = (self.pending.len() >= MAX_REQUESTS)
            .then(|| format!("Not allowed: {MAX_REQUESTS} requests are under way already."));
        match (is_question, problem) {
            (true, problem) => self.on_question(id, request, params, problem),
            (false, None) => self.on_delegated(id, request, method, params),
            (false, Some(why)) => self.respond_error(id, &why),
        }
        true
    }

    fn on_question(&mut self, id: &Value, request: String, params: Value, problem: Option<String>) {
        let parsed = serde_json::from_value::<RequestPermissionRequest>(params);
        let Ok(asked) = parsed else {
            tracing::warn!("the agent asked something that is no question of ACP");
            self.to_agent.respond(id.clone(), Ok(cancelled()));
            return;
        };
        if problem.is_some() {
            self.to_agent
                .respond(id.clone(), Ok(rejected(&asked.options)));
            return;
        }
        let key = CallKey {
            session: asked.session_id.0.to_string(),
            call: asked.tool_call.tool_call_id.0.to_string(),
        };
        let (reported, number) = self.calls.on_question(&key, &asked.tool_call);
        if self.cancelled.contains(&key.session) {
            self.to_agent.respond(id.clone(), Ok(cancelled()));
            return;
        }
        // Our own tools ask by themselves.
        if self.own_tools.is_call(&reported.call)
            && let Some(option) = allow_option(&asked.options)
        {
            self.to_agent.respond(id.clone(), Ok(selected(option)));
            return;
        }
        let question = PermissionQuestion {
            key: key.clone(),
            number,
            place: self.place_of(&key.session),
            must_ask: self.calls.has_moved(&key.session) && !names_directory(&reported.call),
            reported: reported.clone(),
            options: asked.options.clone(),
            start: self.start.clone(),
        };
        let deciding = question.decide(self.supervisor.clone(), self.files.clone());
        let session = key.session.clone();
        let open = AskedPermission {
            options: asked.options,
            key: key.clone(),
            asked: self.shown(&key.session, &reported),
        };
        self.begin(id, request, session, Some(open), async move {
            Outcome::PermissionQuestion(key, deciding.await)
        });
    }

    /// Where an agent works in a conversation.
    fn place_of(&self, session: &str) -> CallPlace {
        let mut place = self.supervisor.place();
        if let Some(directory) = self.directories.get(session) {
            place.cwd.clone_from(directory);
        }
        place
    }

    /// What people are shown of a call.
    fn shown(&self, session: &str, reported: &ReportedCall) -> (String, JsonObject) {
        let place = self.place_of(session);
        let call = translate_call(&reported.call, Some(&reported.meta), &place);
        (call.tool_name, call.arguments)
    }

    /// Notes that a conversation is open, and where the agent works in it. Without that its relative
    /// paths would be judged in another directory, so there cannot be more than are remembered.
    pub(super) fn open_conversation(
        &mut self,
        session: &str,
        directory: Option<&Path>,
        opened: &Value,
    ) -> Result<(), TooManyConversations> {
        if let Some(directory) = directory {
            let is_new = !self.directories.contains_key(session);
            if is_new && self.directories.len() >= MAX_CONVERSATIONS {
                return Err(TooManyConversations);
            }
            let real = directory.canonicalize();
            let real = real.unwrap_or_else(|_| directory.to_owned());
            self.directories.insert(session.to_owned(), real);
        }
        self.modes.note(session, opened);
        Ok(())
    }

    /// Rejects the question about a call that the agent describes otherwise than when it asked.
    fn reject_changed(&mut self, key: &CallKey) {
        let Some(now) = self.calls.asked(key).map(|it| self.shown(&key.session, it)) else {
            return;
        };
        let mut open = self.pending.iter();
        let changed = open.find(|(_, request)| {
            let question = request.question.as_ref();
            question.is_some_and(|question| question.key == *key && question.asked != now)
        });
        let Some(request) = changed.map(|(request, _)| request.clone()) else {
            return;
        };
        if let Some(request) = self.pending.remove(&request) {
            request.task.abort();
            let title = self.title(key);
            let why = "Not run: it was changed while people looked at it. Ask again.";
            self.keep_reason(&key.session, &format!("About `{title}`: {why}"));
            let options = request.question.map(|it| it.options).unwrap_or_default();
            self.to_agent.respond(request.id, Ok(rejected(&options)));
        }
    }

    fn on_delegated(&mut self, id: &Value, request: String, method: &str, params: Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if self.cancelled.contains(&session) && begins_something(method) {
            return self.respond_error(id, "Not done: the turn was cancelled.");
        }
        let changes = match method {
            "fs/write_text_file" => self.calls.allowed_changes(&session),
            _ => Vec::new(),
        };
        let (delegate, method) = (self.delegate.clone(), method.to_owned());
        let files = self.files.clone();
        self.begin(id, request, session, None, async move {
            if is_carried_out(files, changes, &params).await {
                return Outcome::Delegated(Ok(json!({})));
            }
            Outcome::Delegated(delegate.answer(&method, params).await)
        });
    }

    fn begin(
        &mut self,
        id: &Value,
        request: String,
        session: String,
        question: Option<AskedPermission>,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let done = request.clone();
        let task = self.tasks.spawn(async move {
            Done {
                request: done,
                outcome: work.await,
            }
        });
        let pending = OpenRequest {
            id: id.clone(),
            session,
            task,
            question,
        };
        self.pending.insert(request, pending);
    }

    /// Waits for something to be done, and answers it. Cancel safe.
    pub(super) async fn next(&mut self) -> DeskEvent {
        tokio::select! {
            Some(done) = self.tasks.join_next() => {
                if let Ok(done) = done {
                    self.on_done(done);
                }
                DeskEvent::Answered
            }
            Some(session) = self.stops.recv() => DeskEvent::StopWanted(session),
        }
    }

    fn on_done(&mut self, done: Done) {
        let pending = self.pending.remove(&done.request);
        match (done.outcome, pending) {
            (Outcome::PermissionQuestion(key, answer), Some(pending)) => {
                self.on_answer(key, answer, pending)
            }
            (Outcome::PermissionQuestion(_, QuestionAnswer::Allowed { call, .. }), None) => {
                // The question was taken back just before.
                let why = "the agent took the question back";
                tokio::spawn(call.finish(CallReport::not_run(why)));
            }
            (
                Outcome::PermissionQuestion(_, QuestionAnswer::Denied(_)) | Outcome::Delegated(_),
                None,
            ) => {}
            (Outcome::Delegated(result), Some(pending)) => {
                if let Err(denied) = &result
                    && denied.decided
                {
                    self.keep_reason(&pending.session, &denied.reason);
                }
                let outcome = result.map_err(|denied| denied.to_error());
                self.to_agent.respond(pending.id, outcome);
            }
        }
    }

    fn on_answer(&mut self, key: CallKey, answer: QuestionAnswer, pending: OpenRequest) {
        let options = pending.question.map(|it| it.options).unwrap_or_default();
        match answer {
            QuestionAnswer::Allowed { option, call, form } => {
                self.calls.on_allowed(&key, *call, form, self.stop.clone());
                self.to_agent.respond(pending.id, Ok(selected(&option)));
            }
            QuestionAnswer::Denied(denial) => {
                let told = format!("About `{}`: {}", self.title(&key), denial.reason);
                self.keep_reason(&key.session, &told);
                self.to_agent.respond(pending.id, Ok(rejected(&options)));
            }
        }
    }

    /// Takes back what a conversation asked, because its turn is to end. Until
    /// [`end_turn`](Self::end_turn) nothing more is granted in it.
    pub(super) fn cancel(&mut self, session: &str) {
        let of_session = |pending: &OpenRequest| pending.session == session;
        let requests: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, it)| of_session(it))
            .collect();
        let requests: Vec<_> = requests
            .into_iter()
            .map(|(request, _)| request.clone())
            .collect();
        for request in requests {
            if let Some(pending) = self.pending.remove(&request) {
                pending.task.abort();
                let outcome = match pending.question {
                    Some(_) => Ok(cancelled()),
                    None => Err(RpcError::new(INTERNAL_ERROR, "Not done: it was cancelled.")),
                };
                self.to_agent.respond(pending.id, outcome);
            }
        }
        self.delegate.terminals.release_all(session);
        self.reasons.remove(session);
        // Each has a turn, and the owner of the desk limits those: none may be forgotten.
        self.cancelled.insert(session.to_owned());
    }

    /// Notes that a turn is over. Returns what is to be said about it.
    pub(super) fn end_turn(&mut self, session: &str) -> Vec<ClientEvent> {
        self.cancelled.remove(session);
        let begun = self.calls.end_turn(session);
        begun
            .iter()
            .filter_map(|call| self.unasked_text(call))
            .collect()
    }

    /// Notes what the agent reports. Returns what people are to read of it.
    pub(super) fn on_update(&mut self, params: &Value) -> Vec<ClientEvent> {
        let Ok(notification) = serde_json::from_value::<SessionNotification>(params.clone()) else {
            tracing::debug!("the agent reported something that is not known");
            return Vec::new();
        };
        let session = notification.session_id.0.as_ref();
        let turn = match self.cancelled.contains(session) {
            true => TurnStage::Cancelled,
            false => TurnStage::Running,
        };
        let unasked = self.calls.on_update(session, &notification.update, turn);
        if let Some(call) = call_of(&notification.update) {
            let (session, call) = (session.to_owned(), call.to_owned());
            self.reject_changed(&CallKey { session, call });
        }
        let unasked = unasked.and_then(|call| self.unasked_text(&call));
        let said = match &notification.update {
            SessionUpdate::AgentMessageChunk(chunk) => text_of(chunk).map(ClientEvent::Text),
            SessionUpdate::AgentThoughtChunk(chunk) => text_of(chunk).map(ClientEvent::Thinking),
            _ => None,
        };
        let mode = self.on_mode(session, &params["update"]);
        said.into_iter().chain(unasked).chain(mode).collect()
    }

    /// Ends the turn of an agent that has gone to a mode in which it asks nobody.
    fn on_mode(&mut self, session: &str, update: &Value) -> Option<ClientEvent> {
        let left = self.modes.on_update(session, update)?;
        let stopped = self.stop.try_send(session.to_owned());
        if stopped.is_err() {
            tracing::error!("an agent that asks nobody was not stopped");
        }
        let text = format!(
            "\n[PVP: the agent went to mode `{left}`, in which it asks nobody; its turn is ended]\n"
        );
        Some(ClientEvent::Text(text))
    }

    fn respond_error(&self, id: &Value, why: &str) {
        let error = RpcError::new(INTERNAL_ERROR, why);
        self.to_agent.respond(id.clone(), Err(error));
    }
}

/// Whether a request has something done, and does not only look at what was done.
fn begins_something(method: &str) -> bool {
    ["fs/read_text_file", "fs/write_text_file", "terminal/create"].contains(&method)
}

/// Writes a file if that is what an allowed call of the agent does.
async fn is_carried_out(
    files: Arc<ClientFileCalls>,
    changes: Vec<AllowedChange>,
    params: &Value,
) -> bool {
    if changes.is_empty() {
        return false;
    }
    let Ok(request) = serde_json::from_value::<WriteTextFileRequest>(params.clone()) else {
        return false;
    };
    let written = tokio::task::spawn_blocking(move || {
        // The agent may write it by itself in the same moment; then it is there at the second look.
        let mut twice = changes.iter().chain(&changes);
        twice.any(|change| {
            files
                .carry_out(
                    &change.tool_name,
                    &change.bound,
                    &request.path,
                    &request.content,
                )
                .is_ok()
        })
    });
    written.await.unwrap_or(false)
}

/// The call that an update is about.
fn call_of(update: &SessionUpdate) -> Option<&str> {
    match update {
        SessionUpdate::ToolCall(call) => Some(&call.tool_call_id.0),
        SessionUpdate::ToolCallUpdate(update) => Some(&update.tool_call_id.0),
        _ => None,
    }
}

/// Whether an agent says where its command runs.
fn names_directory(call: &ToolCall) -> bool {
    let names = ["cwd", "workdir", "directory", "dir_path"];
    let input = call.raw_input.as_ref();
    input.is_some_and(|input| names.iter().any(|name| input[*name].is_string()))
}

fn text_of(chunk: &ContentChunk) -> Option<String> {
    match &chunk.content {
        ContentBlock::Text(text) => Some(text.text.clone()).filter(|text| !text.is_empty()),
        _ => None,
    }
}
