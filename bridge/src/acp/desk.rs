//! Answers what an agent asks of its client, and follows what it reports.
//!
//! One task owns the desk. Questions are decided in tasks of their own, and only the desk answers
//! them, so that each is answered once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, PermissionOption, RequestPermissionRequest, SessionNotification,
    SessionUpdate, WriteTextFileRequest,
};
use pvp_agent::agent::{Agent, ClientFileCalls};
use pvp_client::user_directories::private_paths;
use pvp_protocol::payload::RunOutcome;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::calls::{AllowedChange, CallKey, Calls, UnaskedCall};
use super::delegated::{Delegate, Denied, is_delegated};
use super::own_tools::OwnTools;
use super::permission::{allow_option, translate_call};
use super::question::{PermissionQuestion, QuestionAnswer, cancelled, rejected, selected};
use super::terminals::Terminals;
use super::wire::{INTERNAL_ERROR, Outgoing, RpcError};
use super::{SERVER_AWAY, modes};
use crate::headless::ClientEvent;
use crate::supervisor::{CallReport, Supervisor};

/// Requests of an agent that are under way; further ones are refused.
const MAX_REQUESTS: usize = 64;

/// Reasons that wait to be told to an agent.
const MAX_REASONS: usize = 32;

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
}

struct OpenRequest {
    id: Value,
    session: String,
    task: AbortHandle,
    /// The options of a question; `None` for other requests.
    options: Option<Vec<PermissionOption>>,
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
        Self {
            supervisor,
            to_agent,
            delegate: Delegate {
                agent,
                terminals: Terminals::default(),
            },
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
            reported,
            options: asked.options.clone(),
            start: self.start.clone(),
        };
        let deciding = question.decide(self.supervisor.clone(), self.files.clone());
        let session = key.session.clone();
        self.begin(id, request, session, Some(asked.options), async move {
            Outcome::PermissionQuestion(key, deciding.await)
        });
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
        options: Option<Vec<PermissionOption>>,
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
            options,
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
                tokio::spawn(call.finish(CallReport {
                    error: Some("the agent took the question back".to_owned()),
                    outcome: Some(RunOutcome::NotRun),
                    ..CallReport::default()
                }));
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
        let options = pending.options.unwrap_or_default();
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

    fn title(&mut self, key: &CallKey) -> String {
        let title: String = self.calls.title(key).chars().take(200).collect();
        match title.is_empty() {
            true => "the call".to_owned(),
            false => title,
        }
    }

    fn keep_reason(&mut self, session: &str, reason: &str) {
        let reasons = self.reasons.entry(session.to_owned()).or_default();
        if reasons.len() < MAX_REASONS {
            reasons.push(reason.to_owned());
        }
    }

    /// Why calls of a conversation were denied, for the agent to read; `None` if none was.
    pub(super) fn take_reasons(&mut self, session: &str) -> Option<String> {
        let reasons = self.reasons.remove(session)?;
        let advice = "Do not try other ways to do the same.";
        let server_away = reasons.iter().all(|reason| reason.ends_with(SERVER_AWAY));
        // Nobody is there who could say more.
        (!server_away).then(|| format!("[PVP] {}\n{advice}", reasons.join("\n")))
    }

    /// Takes back what a conversation asked, because its turn is to end.
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
                let outcome = match pending.options {
                    Some(_) => Ok(cancelled()),
                    None => Err(RpcError::new(INTERNAL_ERROR, "Not done: it was cancelled.")),
                };
                self.to_agent.respond(pending.id, outcome);
            }
        }
        self.delegate.terminals.release_all();
        self.reasons.remove(session);
        if self.cancelled.len() < MAX_REQUESTS {
            self.cancelled.insert(session.to_owned());
        }
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
        let unasked = self.calls.on_update(session, &notification.update);
        let unasked = unasked.and_then(|call| self.unasked_text(&call));
        let said = match &notification.update {
            SessionUpdate::AgentMessageChunk(chunk) => text_of(chunk).map(ClientEvent::Text),
            SessionUpdate::AgentThoughtChunk(chunk) => text_of(chunk).map(ClientEvent::Thinking),
            SessionUpdate::CurrentModeUpdate(update) if !modes::asks(&update.current_mode_id.0) => {
                let mode = &update.current_mode_id.0;
                let text = format!(
                    "\n[PVP: the agent is now in mode `{mode}`, in which it asks nobody]\n"
                );
                Some(ClientEvent::Text(text))
            }
            _ => None,
        };
        said.into_iter().chain(unasked).collect()
    }

    /// A line about a call that nobody was asked about.
    fn unasked_text(&self, unasked: &UnaskedCall) -> Option<ClientEvent> {
        if self.own_tools.is_call(&unasked.call) || self.shows_own_terminal(unasked) {
            return None;
        }
        let place = self.supervisor.place();
        let call = translate_call(&unasked.call, Some(&unasked.meta), &place);
        let what = match call.arguments.get("full_command").and_then(Value::as_str) {
            Some(line) => line.to_owned(),
            None => format!("{} {}", call.tool_name, unasked.call.title),
        };
        let what: String = what.chars().take(1000).collect();
        let how = match &unasked.report {
            None => "it did not say how it ended".to_owned(),
            Some(report) => match (report.exit_code, report.success) {
                (Some(code), _) => format!("exit code {code}"),
                (None, true) => "it says that it worked".to_owned(),
                (None, false) => "it says that it failed".to_owned(),
            },
        };
        let text = format!("\n[PVP: the agent did this without asking: `{what}`; {how}]\n");
        Some(ClientEvent::Text(text))
    }

    fn shows_own_terminal(&self, unasked: &UnaskedCall) -> bool {
        unasked
            .terminals()
            .any(|id| self.delegate.terminals.was_opened(id))
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
        changes.iter().any(|change| {
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

fn text_of(chunk: &ContentChunk) -> Option<String> {
    match &chunk.content {
        ContentBlock::Text(text) => Some(text.text.clone()).filter(|text| !text.is_empty()),
        _ => None,
    }
}
