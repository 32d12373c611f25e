//! Has people decide about one question of an agent.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::PermissionOption;
use pvp_agent::agent::{BoundClientCall, ClientFileCalls};
use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use super::calls::{AllowedChange, AllowedForm, CallKey, ReportedCall};
use super::permission::{allow_option, reject_option, translate_call};
use crate::patched_files::PatchedFiles;
use crate::supervisor::{
    AllowedCall, CallDecision, CallReport, CallRequest, Denial, DenialKind, PendingCall, Supervisor,
};
use crate::translation::{CallPlace, TranslatedCall};

/// How long the server may take to record a proposal.
const PROPOSE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the server may be away while a call waits, before it is denied.
const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes of an id as it is recorded.
const MAX_ID_BYTES: usize = 200;

/// A question of an agent.
pub(super) struct PermissionQuestion {
    /// The call that it is about.
    pub(super) key: CallKey,
    /// Tells questions about the same call apart.
    pub(super) number: u32,
    /// What the agent says about the call.
    pub(super) reported: ReportedCall,
    /// The answers that the agent offers.
    pub(super) options: Vec<PermissionOption>,
    /// Where the agent works.
    pub(super) place: CallPlace,
    /// Whether people must be asked, even if it only reads.
    pub(super) must_ask: bool,
    /// Tells the conversations of one start of the agent from those of another, whose ids may be
    /// the same.
    pub(super) start: Arc<str>,
}

/// The answer to a question.
pub(super) enum QuestionAnswer {
    Allowed {
        /// The option to choose.
        option: String,
        call: Box<AllowedCall>,
        form: AllowedForm,
    },
    Denied(Denial),
}

/// The result of `session/request_permission` that chooses an option.
pub(super) fn selected(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

pub(super) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// The result that rejects something.
pub(super) fn rejected(options: &[PermissionOption]) -> Value {
    reject_option(options).map_or_else(cancelled, selected)
}

impl PermissionQuestion {
    /// Waits until people have decided. Whatever goes wrong is a denial.
    pub(super) async fn decide(
        self,
        supervisor: Supervisor,
        files: Arc<ClientFileCalls>,
    ) -> QuestionAnswer {
        let place = self.place.clone();
        let reported = self.reported.clone();
        let binding_files = files.clone();
        // This looks at files.
        let prepared = tokio::task::spawn_blocking(move || {
            let call = translate_call(&reported.call, Some(&reported.meta), &place);
            let bound = binding_files.bind(&call.tool_name, &call.arguments);
            let patched = PatchedFiles::find(&call.arguments, &place.workspace);
            (call, bound, patched)
        });
        let Ok((call, bound, patched)) = prepared.await else {
            return QuestionAnswer::Denied(failed("Not allowed: the call could not be read."));
        };
        let pending = match self
            .propose(&supervisor, call.clone(), bound.as_ref())
            .await
        {
            Ok(pending) => pending,
            Err(denial) => return QuestionAnswer::Denied(denial),
        };
        match wait(pending, &supervisor).await {
            CallDecision::Denied(denial) => QuestionAnswer::Denied(denial),
            CallDecision::Allowed(allowed) => {
                let unchanged = patched.check_unchanged();
                let unchanged = unchanged.map_err(|why| format!("Not run: {why}."));
                let unchanged =
                    unchanged.and_then(|()| check_unchanged(&files, &call, bound.as_ref()));
                self.allow(allowed, call, bound, unchanged).await
            }
        }
    }

    async fn propose(
        &self,
        supervisor: &Supervisor,
        mut call: TranslatedCall,
        bound: Option<&BoundClientCall>,
    ) -> Result<PendingCall, Denial> {
        let mut file_contents = Vec::new();
        if let Some(bound) = bound {
            call.arguments = bound.arguments.clone();
            file_contents = bound.contents.clone();
        }
        let request = CallRequest {
            conversation: format!("{}@{}", short_id(&self.key.session), self.start),
            call_id: match self.number {
                1 => short_id(&self.key.call),
                number => format!("{}#{number}", short_id(&self.key.call)),
            },
            subagent: None,
            call,
            file_contents,
            must_ask: self.must_ask,
        };
        let supervisor = supervisor.clone();
        // If the server is away for too long, what is proposed then is withdrawn when it is dropped.
        let proposing = tokio::spawn(async move { supervisor.propose(request).await });
        match tokio::time::timeout(PROPOSE_PATIENCE, proposing).await {
            Ok(Ok(proposed)) => proposed,
            Ok(Err(_)) => Err(failed("Not allowed: it was not proposed.")),
            Err(_) => Err(failed(super::SERVER_AWAY)),
        }
    }

    async fn allow(
        &self,
        allowed: Box<AllowedCall>,
        call: TranslatedCall,
        bound: Option<BoundClientCall>,
        unchanged: Result<(), String>,
    ) -> QuestionAnswer {
        let problem = match &allowed.edited {
            Some(edited) => Some(edit_denial(&call, edited)),
            None if allow_option(&self.options).is_none() => {
                let why = "Not run: the agent offers no permission for this call alone.";
                Some(why.to_owned())
            }
            None => unchanged.err(),
        };
        let option = allow_option(&self.options).filter(|_| problem.is_none());
        let Some(option) = option else {
            let reason = problem.unwrap_or_default();
            allowed.finish(CallReport::not_run(&reason)).await;
            let kind = DenialKind::Rejected;
            return QuestionAnswer::Denied(Denial { kind, reason });
        };
        let line = call.arguments.get("full_command").and_then(Value::as_str);
        let form = AllowedForm {
            line: line.map(str::to_owned),
            change: bound.map(|bound| AllowedChange {
                tool_name: call.tool_name.clone(),
                bound,
            }),
        };
        QuestionAnswer::Allowed {
            option: option.to_owned(),
            call: allowed,
            form,
        }
    }
}

/// Waits for the decision, as long as the server is there.
async fn wait(mut pending: PendingCall, supervisor: &Supervisor) -> CallDecision {
    let id = pending.id().clone();
    let server_gone = async {
        loop {
            tokio::time::sleep(PATIENCE / 3).await;
            let renewed = tokio::time::timeout(PATIENCE, supervisor.renew(&id)).await;
            if renewed.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        // What it waits for is shown where people decide.
        () = async { while pending.progress().await.is_some() {} } => {}
        () = server_gone => return CallDecision::Denied(failed(super::SERVER_AWAY)),
    }
    pending.decision().await
}

fn failed(reason: &str) -> Denial {
    Denial {
        kind: DenialKind::Failed,
        reason: reason.to_owned(),
    }
}

/// ACP has no words for "run this in its place".
fn edit_denial(call: &TranslatedCall, edited: &JsonObject) -> String {
    let line = |arguments: &JsonObject| arguments.get("full_command").cloned();
    let other = |arguments: &JsonObject| {
        let mut arguments = arguments.clone();
        arguments.remove("full_command");
        arguments.remove("files");
        arguments
    };
    let form = match line(edited).as_ref().and_then(Value::as_str) {
        Some(line) if other(edited) == other(&call.arguments) => format!("`{line}`"),
        Some(_) | None => {
            let mut edited = edited.clone();
            edited.remove("files");
            Value::Object(edited).to_string()
        }
    };
    format!(
        "Not run as you asked: people changed it and approved this form: {form}. \
         If you still want it, ask for exactly that."
    )
}

/// Checks that the file that a call changes is still as it was when people looked.
fn check_unchanged(
    files: &ClientFileCalls,
    call: &TranslatedCall,
    bound: Option<&BoundClientCall>,
) -> Result<(), String> {
    let Some(bound) = bound else {
        return Ok(());
    };
    let now = files.bind(&call.tool_name, &call.arguments);
    let digests = |call: &BoundClientCall| call.arguments.get("files").cloned();
    match now.as_ref().map(digests) == Some(digests(bound)) {
        true => Ok(()),
        false => {
            Err("Not run: the file has changed since it was approved; read it again.".to_owned())
        }
    }
}

fn short_id(id: &str) -> String {
    match id.len() <= MAX_ID_BYTES {
        true => id.to_owned(),
        false => pvp_protocol::Digest::of(&[id.as_bytes()]).to_string(),
    }
}
