//! Answers what the app-server asks: has calls decided, and declines what is not known.

use pvp_protocol::JsonObject;
use pvp_protocol::api::VoteChoice;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::super::calls::{self, AskedCall, QuestionKind};
use super::super::decide::{self, CallEvents, CodexCall, CodexCallEvent, WaitingProposal};
use super::super::wire::{self, text};
use super::{CodexBridge, OwnRequest};
use crate::supervisor::{CallReport, CallRequest};
use crate::translation::CallPlace;

/// Questions that may wait at the same time; further ones are declined.
const MAX_QUESTIONS: usize = 256;

/// A question of the app-server that is not answered yet.
pub(super) struct ScreenQuestion {
    /// The id of the request.
    id: Value,
    /// The thread of the call.
    thread: String,
    /// The turn of the call.
    turn: String,
    /// The item that the question is about.
    item: String,
    /// What it asks for.
    kind: QuestionKind,
    /// The request, to show it in the screen.
    method: String,
    /// Its parameters, to show it in the screen.
    params: JsonObject,
    /// The task that has it decided; ending it withdraws the call.
    pub(super) decides: AbortHandle,
    /// What Codex says it will do.
    runs: Option<Value>,
    /// The proposal that waits, once it does.
    waits: Option<WaitingProposal>,
    /// Whether the screen shows it.
    is_shown: bool,
    /// Whether the person at the terminal wants the turn to end too.
    ends_turn: bool,
}

impl CodexBridge {
    pub(super) fn on_question(&mut self, id: Value, method: &str, params: JsonObject) {
        match method {
            "item/commandExecution/requestApproval" => {
                let params = self.with_directory(params);
                let place = self.place_of(&params);
                let asked = calls::command(&params, &place);
                self.have_decided(id, method, params, QuestionKind::Command, asked);
            }
            "item/fileChange/requestApproval" => {
                let asked = self.asked_change(&params);
                self.have_decided(id, method, params, QuestionKind::FileChange, asked);
            }
            "item/permissions/requestApproval" => {
                let asked = calls::permissions(&params, &self.place_of(&params));
                let rights = params.get("permissions").cloned().unwrap_or_default();
                let kind = QuestionKind::Permissions(rights);
                self.have_decided(id, method, params, kind, Ok(asked));
            }
            "mcpServer/elicitation/request" => self.on_elicitation(id, method, params),
            "item/tool/requestUserInput" if !asks_for_approval(&params) => {
                self.pass_on(id, method, params);
            }
            "account/chatgptAuthTokens/refresh" | "attestation/generate" | "currentTime/read" => {
                self.pass_on(id, method, params);
            }
            _ => {
                tracing::warn!(method, "the app-server asked something that is not known");
                self.send(wire::refusal(&id, "PVP declines what it does not know"));
            }
        }
    }

    /// The directory of a command is said with the question, or was said when it was announced.
    fn with_directory(&mut self, mut params: JsonObject) -> JsonObject {
        if text(&params, "cwd").is_empty()
            && let Some(item) = self
                .items
                .get(text(&params, "threadId"), text(&params, "itemId"))
            && let Some(cwd) = item.body.get("cwd")
        {
            params.insert("cwd".to_owned(), cwd.clone());
        }
        params
    }

    /// Where a call is made, without links in the path.
    fn place_of(&self, params: &JsonObject) -> CallPlace {
        let mut place = self.supervisor.place();
        let cwd = text(params, "cwd");
        if !cwd.is_empty() {
            let cwd = place.workspace.join(cwd);
            place.cwd = cwd.canonicalize().unwrap_or(cwd);
        }
        place
    }

    fn asked_change(&mut self, params: &JsonObject) -> Result<AskedCall, String> {
        if params.get("grantRoot").is_some_and(|root| !root.is_null()) {
            return Err("Not allowed: ask about each change, not about a directory.".to_owned());
        }
        let place = self.supervisor.place();
        let item = self
            .items
            .get(text(params, "threadId"), text(params, "itemId"));
        match item {
            Some(item) => calls::file_change(&item.body, &place),
            None => Err("Not allowed: Codex does not say what it would change.".to_owned()),
        }
    }

    fn on_elicitation(&mut self, id: Value, method: &str, mut params: JsonObject) {
        let meta = params.get("_meta").and_then(Value::as_object).cloned();
        let meta = meta.unwrap_or_default();
        match meta.get("codex_approval_kind").and_then(Value::as_str) {
            Some("mcp_tool_call") => {
                let thread = text(&params, "threadId").to_owned();
                let server = text(&params, "serverName").to_owned();
                let arguments = meta.get("tool_params").cloned().unwrap_or_default();
                let place = self.supervisor.place();
                let message = text(&params, "message").to_owned();
                let item = self
                    .items
                    .find_unasked_tool(&thread, &server, &arguments, &message);
                let asked = match item.as_ref().and_then(|id| self.items.get(&thread, id)) {
                    Some(item) => calls::mcp_tool(&item.body, &place),
                    None => {
                        Err("Not allowed: Codex does not say which tool it would call.".to_owned())
                    }
                };
                params.insert("itemId".to_owned(), item.unwrap_or_default().into());
                self.have_decided(id, method, params, QuestionKind::McpTool, asked);
            }
            None if !meta.contains_key("codex_approval_kind") => self.pass_on(id, method, params),
            _ => self.send(wire::result(&id, QuestionKind::McpTool.declined())),
        }
    }

    /// Lets the person at the screen answer what is not about a call.
    fn pass_on(&mut self, id: Value, method: &str, params: JsonObject) {
        if self.screen.is_none() || self.passed_on.len() >= MAX_QUESTIONS {
            return self.send(wire::refusal(
                &id,
                "there is nobody at the terminal to answer",
            ));
        }
        self.passed_on.insert(id.to_string());
        self.show(json!({ "id": id, "method": method, "params": params }));
    }

    fn have_decided(
        &mut self,
        id: Value,
        method: &str,
        params: JsonObject,
        kind: QuestionKind,
        asked: Result<AskedCall, String>,
    ) {
        let [thread, turn, item] =
            ["threadId", "turnId", "itemId"].map(|name| text(&params, name).to_owned());
        if self.questions.values().any(|question| question.id == id) {
            // One answer would be taken for both.
            self.withdraw_question(&id);
            return self.send(wire::result(&id, kind.declined()));
        }
        let asked = match asked {
            _ if self.questions.len() >= MAX_QUESTIONS => {
                Err("Not allowed: too many calls wait for people. Wait for them.".to_owned())
            }
            Ok(_) if item.is_empty() || thread.is_empty() => {
                Err("Not allowed: Codex does not say which call it asks about.".to_owned())
            }
            asked => asked,
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(why) => {
                self.steer(&thread, &turn, &why);
                return self.send(wire::result(&id, kind.declined()));
            }
        };
        let number = self.number();
        let Some(call_id) = self.begin_question(&thread, &item, number, &params) else {
            return self.send(wire::result(&id, kind.declined()));
        };
        let request = CallRequest {
            conversation: thread.clone(),
            call_id,
            subagent: self.threads.subagent(&thread),
            call: asked.call,
            file_contents: Vec::new(),
            must_ask: false,
        };
        let events = CallEvents {
            question: number,
            sender: self.call_events.clone(),
        };
        let decides = tokio::spawn(decide::decide(self.supervisor.clone(), request, events));
        let question = ScreenQuestion {
            id,
            thread,
            turn,
            item,
            kind,
            method: method.to_owned(),
            params,
            decides: decides.abort_handle(),
            runs: asked.runs,
            waits: None,
            is_shown: false,
            ends_turn: false,
        };
        self.questions.insert(number, question);
    }

    /// Notes that a call is asked about, and says under which id it is decided. Codex may ask again
    /// about the same call, for example to run it with more rights.
    fn begin_question(
        &mut self,
        thread: &str,
        item: &str,
        number: u64,
        params: &JsonObject,
    ) -> Option<String> {
        let entry = self.items.entry(thread, item)?;
        if entry.question.is_some() && text(params, "approvalId").is_empty() {
            return None;
        }
        entry.question = Some(number);
        entry.questions += 1;
        let questions = entry.questions;
        if let Some(running) = entry.running.take() {
            let reason = text(params, "reason");
            let reported = running.finish(CallReport::unknown(&format!(
                "Codex asks again about the same call: {reason}"
            )));
            self.unreported.push(reported);
        }
        Some(match questions {
            1 => item.to_owned(),
            number => format!("{item}/{number}"),
        })
    }

    pub(super) fn on_call_event(&mut self, number: u64, event: CodexCallEvent) {
        match event {
            CodexCallEvent::Waits { proposal, text } => self.on_waits(number, proposal, &text),
            CodexCallEvent::Allowed(running) => self.allow(number, running),
            CodexCallEvent::Denied(denial) => self.decline(number, &denial.reason),
            CodexCallEvent::StopWanted => self.interrupt_turns(),
            CodexCallEvent::Voted(voted) => self.on_voted(number, voted),
        }
    }

    /// Shows in the screen that people are asked, and lets the person there answer too.
    fn on_waits(&mut self, number: u64, proposal: WaitingProposal, waits_for: &str) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        question.waits = Some(proposal);
        if std::mem::replace(&mut question.is_shown, true) {
            return;
        }
        let thread = question.thread.clone();
        if self.person.is_none() {
            return self.warn(&thread, &format!("a call is {waits_for}"));
        }
        let mut params = question.params.clone();
        params.remove("proposedExecpolicyAmendment");
        params.remove("proposedNetworkPolicyAmendments");
        if let Some(Value::Object(meta)) = params.get_mut("_meta") {
            meta.remove("persist");
            params.remove("itemId");
        }
        if question.kind == QuestionKind::Command {
            params.insert("availableDecisions".to_owned(), json!(["accept", "cancel"]));
        }
        // How long it has waited is out of date at once.
        let waits_for = waits_for
            .rsplit_once(", ")
            .map_or(waits_for, |(what, _)| what);
        let said = text(&params, "reason");
        let reason = format!(
            "{said}{}PVP: {waits_for}; your answer is your vote",
            match said.is_empty() {
                true => "",
                false => "; ",
            }
        );
        if question.kind != QuestionKind::McpTool {
            params.insert("reason".to_owned(), reason.into());
        }
        let shown = json!({ "id": question.id, "method": question.method, "params": params });
        self.show(shown);
    }

    fn allow(&mut self, number: u64, running: CodexCall) {
        let Some(question) = self.questions.remove(&number) else {
            // Nobody waits for the answer any more.
            let report = CallReport::not_run("the client no longer waited for it");
            return self.unreported.push(running.finish(report));
        };
        let Some(item) = self.items.get(&question.thread, &question.item) else {
            let report = CallReport::not_run("the client no longer waited for it");
            self.unreported.push(running.finish(report));
            return self.send(wire::result(&question.id, question.kind.declined()));
        };
        item.question = None;
        item.allowed = question.runs.clone();
        // There is nothing that would say how a right was used.
        let is_right = match &question.kind {
            QuestionKind::Permissions(_) => true,
            QuestionKind::Command => question.runs.is_none(),
            QuestionKind::FileChange | QuestionKind::McpTool => false,
        };
        match is_right {
            true => self.unreported.push(running.finish(CallReport {
                success: true,
                ..CallReport::default()
            })),
            false => item.running = Some(running),
        }
        self.send(wire::result(&question.id, question.kind.accepted()));
    }

    /// Declines a call. The reason goes first, so that the agent reads both at the same time.
    pub(super) fn decline(&mut self, number: u64, reason: &str) {
        let Some(question) = self.forget_question(number) else {
            return;
        };
        self.steer(&question.thread, &question.turn, reason);
        self.send(wire::result(&question.id, question.kind.declined()));
    }

    /// Forgets a question, which withdraws the call if it is not decided.
    pub(super) fn forget_question(&mut self, number: u64) -> Option<ScreenQuestion> {
        let question = self.questions.remove(&number)?;
        question.decides.abort();
        if let Some(item) = self.items.get(&question.thread, &question.item) {
            item.question = None;
        }
        Some(question)
    }

    /// Withdraws what a conversation asked in a turn that is over.
    pub(super) fn withdraw_questions_of(&mut self, thread: &str) {
        let open = self.questions.iter();
        let of_thread = open.filter(|(_, question)| question.thread == thread);
        let numbers: Vec<u64> = of_thread.map(|(number, _)| *number).collect();
        for number in numbers {
            self.forget_question(number);
        }
    }

    /// Withdraws what the app-server no longer asks.
    pub(super) fn withdraw_question(&mut self, id: &Value) {
        let mut open = self.questions.iter();
        let number = open.find(|(_, question)| question.id == *id);
        if let Some(number) = number.map(|(number, _)| *number) {
            self.forget_question(number);
        }
    }

    /// Tells the agent something during its turn.
    fn steer(&mut self, thread: &str, turn: &str, said: &str) {
        if thread.is_empty() || turn.is_empty() {
            return;
        }
        let params = json!({
            "threadId": thread, "expectedTurnId": turn, "input": [{ "type": "text", "text": said }],
        });
        self.ask("turn/steer", params, OwnRequest::Other);
    }

    /// The person at the screen has answered a question.
    pub(super) fn on_screen_answer(&mut self, id: &Value, body: JsonObject) {
        if self.passed_on.remove(&id.to_string()) {
            return self.send(Value::Object(body));
        }
        let mut open = self.questions.iter_mut();
        let shown = open.find(|(_, question)| question.is_shown && question.id == *id);
        let Some((number, question)) = shown else {
            return;
        };
        let number = *number;
        let vote = match choice_of(&body) {
            Some(ScreenChoice::Accept) => VoteChoice::Approve,
            Some(ScreenChoice::Decline) => VoteChoice::Reject,
            Some(ScreenChoice::Cancel) | None => {
                question.ends_turn = true;
                VoteChoice::Reject
            }
        };
        let waits = question.waits.clone();
        let (Some(person), Some(waits)) = (self.person.clone(), waits) else {
            return;
        };
        let Some(digest) = waits.digest else {
            return self.on_voted(number, Err("what was shown has no digest".to_owned()));
        };
        let events = self.call_events.clone();
        tokio::spawn(async move {
            let voted = person.vote(waits.id, digest, vote).await;
            let _ = events.send((number, CodexCallEvent::Voted(voted))).await;
        });
    }

    fn on_voted(&mut self, number: u64, voted: Result<(), String>) {
        let question = self.questions.get(&number);
        let open = question.map(|question| (question.thread.clone(), question.ends_turn));
        if let (Err(why), Some((thread, _))) = (&voted, &open) {
            let why = format!("your answer was not taken: {why}. The call still waits");
            self.warn(thread, &why);
        }
        // Whoever sits there may always stop the agent.
        if open.is_some_and(|(_, ends_turn)| ends_turn) {
            self.interrupt_turns();
        }
    }
}

/// Whether a question to the person is in truth about a call.
fn asks_for_approval(params: &JsonObject) -> bool {
    let questions = params.get("questions").and_then(Value::as_array);
    let mut ids = questions
        .into_iter()
        .flatten()
        .map(|question| question.get("id").and_then(Value::as_str));
    ids.any(|id| id.is_none_or(|id| id.contains("approval")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScreenChoice {
    Accept,
    Decline,
    Cancel,
}

/// What the person chose; `None` if it is not one of the answers that were offered.
fn choice_of(body: &JsonObject) -> Option<ScreenChoice> {
    let result = body.get("result")?;
    let chosen = result.get("decision").or_else(|| result.get("action"))?;
    match chosen.as_str()? {
        "accept" => Some(ScreenChoice::Accept),
        "decline" => Some(ScreenChoice::Decline),
        "cancel" => Some(ScreenChoice::Cancel),
        _ => None,
    }
}
