//! The calls that Claude Code has asked about over its control protocol.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use pvp_client::fresh_id;
use pvp_protocol::JsonObject;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::ControlQuestion;
use crate::bound_call::{BoundCall, CallNames};
use crate::hooks::{EndedCall, HookAnswer, HookedCall};
use crate::supervisor::{AllowedCall, CallDecision, CallReport, Supervisor};
use crate::translation::CallPlace;

/// Calls that are remembered as asked about; more than any turn makes at a time.
const MAX_REMEMBERED: usize = 4096;

/// Calls that may wait or run at a time; further ones are denied.
const MAX_OPEN: usize = 64;

/// What became of a call.
pub(super) enum CallUpdate {
    /// The client can be told.
    Decided {
        question: ControlQuestion,
        answer: HookAnswer,
    },
    /// Somebody wants what runs to stop.
    StopRequested,
}

/// A call that was asked about and is not over.
struct OpenQuestion {
    /// The question that waits for an answer.
    question: String,
    /// The input that was allowed, once it is.
    allowed: Option<Value>,
    /// Tells how the call ended.
    report: Option<oneshot::Sender<CallReport>>,
    /// Ends the task that waits for the decision, or for the end.
    task: AbortHandle,
}

pub(super) struct AskedCalls {
    /// Has the calls decided.
    supervisor: Supervisor,
    /// Where it goes what becomes of them.
    updates: mpsc::Sender<CallUpdate>,
    /// Calls that were allowed, with their inputs.
    allowed: mpsc::UnboundedReceiver<(String, Value)>,
    /// The other end of it.
    allowed_sender: mpsc::UnboundedSender<(String, Value)>,
    /// The calls that are not over, by the client's id.
    open: BTreeMap<String, OpenQuestion>,
    /// The newest calls that were asked about.
    asked: VecDeque<String>,
    /// The name of the conversation, for questions that do not have it.
    conversation: String,
}

impl AskedCalls {
    pub(super) fn new(supervisor: Supervisor, updates: mpsc::Sender<CallUpdate>) -> Self {
        let (allowed_sender, allowed) = mpsc::unbounded_channel();
        Self {
            supervisor,
            updates,
            allowed,
            allowed_sender,
            open: BTreeMap::new(),
            asked: VecDeque::new(),
            conversation: fresh_id().to_string(),
        }
    }

    pub(super) fn conversation(&self) -> &str {
        &self.conversation
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.supervisor.place().workspace
    }

    /// Has a call decided; the answer comes as an update.
    pub(super) fn ask(&mut self, question: ControlQuestion, call: HookedCall) {
        let id = call.call_id.clone().unwrap_or_default();
        self.conversation.clone_from(&call.conversation);
        if self.open.len() >= MAX_OPEN || self.open.contains_key(&id) {
            let why = "Not allowed: this call is being decided or runs already, or too many do.";
            return self.answer_later(question, HookAnswer::deny(why));
        }
        let (report, reported) = oneshot::channel();
        let waiting = ControlledCall {
            supervisor: self.supervisor.clone(),
            updates: self.updates.clone(),
            allowed: self.allowed_sender.clone(),
            question: question.clone(),
            call,
        };
        let task = tokio::spawn(waiting.run(reported));
        self.open.insert(
            id.clone(),
            OpenQuestion {
                question: question.id,
                allowed: None,
                report: Some(report),
                task: task.abort_handle(),
            },
        );
        if self.asked.len() == MAX_REMEMBERED {
            self.asked.pop_front();
        }
        self.asked.push_back(id);
    }

    fn answer_later(&self, question: ControlQuestion, answer: HookAnswer) {
        let updates = self.updates.clone();
        tokio::spawn(async move {
            // If nobody reads it, the client has ended.
            let _ = updates.send(CallUpdate::Decided { question, answer }).await;
        });
    }

    /// Whether exactly this input of a call was allowed and the call is not over.
    pub(super) fn is_allowed(&mut self, id: &str, input: &Value) -> bool {
        while let Ok((id, input)) = self.allowed.try_recv() {
            if let Some(open) = self.open.get_mut(&id) {
                open.allowed = Some(input);
            }
        }
        let open = self.open.get(id);
        open.is_some_and(|open| open.allowed.as_ref() == Some(input))
    }

    pub(super) fn was_asked(&self, id: &str) -> bool {
        self.asked.iter().any(|asked| asked == id)
    }

    /// Takes a question back that the client no longer wants answered.
    pub(super) fn withdraw(&mut self, question: &str) {
        let withdrawn = self
            .open
            .extract_if(.., |_, open| open.question == question);
        for (_, open) in withdrawn {
            open.task.abort();
        }
    }

    /// Reports how a call ended.
    pub(super) async fn end(&mut self, ended: EndedCall) {
        let id = ended.call.call_id.unwrap_or_default();
        if let Some(mut open) = self.open.remove(&id)
            && let Some(report) = open.report.take()
        {
            // A task that has ended had nothing to report.
            let _ = report.send(ended.report);
        }
    }

    /// Closes what the client has said nothing about.
    pub(super) fn end_turn(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            open.task.abort();
        }
    }
}

/// One call, from the question to its end. Dropping it withdraws it, or reports it as unknown.
struct ControlledCall {
    /// Has it decided.
    supervisor: Supervisor,
    /// Where the answer goes.
    updates: mpsc::Sender<CallUpdate>,
    /// Where it is noted what was allowed.
    allowed: mpsc::UnboundedSender<(String, Value)>,
    /// The question of the client.
    question: ControlQuestion,
    /// The call.
    call: HookedCall,
}

impl ControlledCall {
    async fn run(self, reported: oneshot::Receiver<CallReport>) {
        let place = CallPlace {
            workspace: self.supervisor.place().workspace,
            cwd: real_path(&self.call.cwd),
        };
        let bound = BoundCall::new(&self.call.tool, &self.call.input, place);
        let request = bound.request(CallNames {
            conversation: self.call.conversation.clone(),
            call_id: self.call.call_id.clone().unwrap_or_default(),
            subagent: self.call.subagent.clone(),
        });
        let allowed = match self.supervisor.propose(request).await {
            Ok(pending) => match pending.decision().await {
                CallDecision::Allowed(allowed) => *allowed,
                CallDecision::Denied(denial) => return self.deny(&denial.reason).await,
            },
            Err(denial) => return self.deny(&denial.reason).await,
        };
        let granted = match &allowed.edited {
            Some(edited) => bound.granted_input(edited),
            None => bound.granted_input(&bound.proposed().arguments),
        };
        match granted {
            Ok(edited) => self.follow(allowed, edited, reported).await,
            Err(why) => {
                let why = format!("Not run: {why}.");
                allowed.finish(CallReport::not_run(&why)).await;
                self.deny(&why).await;
            }
        }
    }

    /// Lets the client run it, and waits for its end.
    async fn follow(
        self,
        mut allowed: AllowedCall,
        edited: Option<JsonObject>,
        mut reported: oneshot::Receiver<CallReport>,
    ) {
        let input = edited.clone().unwrap_or_else(|| self.call.input.clone());
        let id = self.call.call_id.clone().unwrap_or_default();
        // The receiver lives as long as this task is needed.
        let _ = self.allowed.send((id, Value::Object(input)));
        self.answer(HookAnswer::Allow { edited }).await;
        loop {
            tokio::select! {
                report = &mut reported => {
                    if let Ok(report) = report {
                        allowed.finish(report).await;
                    }
                    return;
                }
                _ = allowed.stop_requested() => {
                    let _ = self.updates.send(CallUpdate::StopRequested).await;
                }
            }
        }
    }

    async fn deny(&self, reason: &str) {
        self.answer(HookAnswer::deny(reason)).await;
    }

    async fn answer(&self, answer: HookAnswer) {
        let question = self.question.clone();
        // If nobody reads it, the client has ended.
        let _ = self
            .updates
            .send(CallUpdate::Decided { question, answer })
            .await;
    }
}

fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
