//! Has the calls of a client decided by the server, from processes that live as long as one question.

use std::path::Path;
use std::time::{Duration, Instant};

use pvp_agent::proposer::{RunReport, output_messages};
use pvp_client::{ApiClient, ApiError, Link, fresh_id};
use pvp_protocol::api::{AwaitedVotes, DecisionState, ProposalDecision, ProposalRequest};
use pvp_protocol::payload::{
    ClientOrigin, Degree, FinishReason, OutputStream, PromptSubmit, ResponseChunk, ResponseEnd,
    ResponseStart, RunBy, ToolCancel, ToolDefer,
};
use pvp_protocol::{ClientMessage, ExtraFields, JsonObject, MessageId, ParticipantId, WireMessage};
use serde_json::Value;

use super::answer::HookAnswer;
use super::event::{EndedCall, HookedCall};
use super::open_calls::too_many_text;
use super::{HookClient, id_of};
use crate::bound_call::BoundCall;
use crate::client_files::{CallStage, ClientFiles, ClientSettings, OpenCall, is_locked};
use crate::reach::{self, CallReach};
use crate::supervisor::CallReport;
use crate::translation::{CallPlace, translate};

/// How long one request waits for a decision. Between two of them a hook looks around.
const WAIT: Duration = Duration::from_secs(10);

/// How long an answer may take beyond that; the server gives a sign of life more often.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server may be away while a hook waits, before the call is denied.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a server may be away when a call is proposed.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// What the agent reads of other calls when its client leaves one call to wait.
const LEAVES: &str = "Not run: another call waits for people, and the client ends until they have \
     decided about that one. Ask for this again afterwards.";

/// The pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Bytes of each stream that a hook sends.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;

/// How long a call waits for its client to come back: a week, the most that a session allows.
const DEFER_SECONDS: u32 = 7 * 86_400;

/// Characters of what ran in place of what was allowed that the record repeats.
const MAX_SHOWN_CHARS: usize = 500;

/// People that are named in a status line; the others are counted.
const MAX_NAMES: usize = 5;

/// The tool of a call that names none.
const SHELL: &str = "shell";

/// What an agent reads while the server is away.
const SERVER_GONE: &str = "Not allowed, because nobody can be asked: cannot reach the server of \
     this directory, which is not running. Nothing was done. Do not try other ways; tell the person \
     at the terminal.";

/// Answers the questions of one client.
pub(super) struct HookDesk {
    client: HookClient,
    files: ClientFiles,
    settings: ClientSettings,
    api: ApiClient,
}

impl HookDesk {
    pub(super) fn open(client: HookClient, files: ClientFiles) -> Result<Self, String> {
        let settings = files.settings()?;
        if settings.client != client.name() {
            return Err(format!(
                "these are the files of {}, not of {}",
                settings.client,
                client.name()
            ));
        }
        let api = ApiClient::with_timeout(settings.agent_link()?, RESPONSE_TIMEOUT);
        Ok(Self {
            client,
            files,
            settings,
            api,
        })
    }

    /// Decides whether a call may run.
    pub(super) fn before_call(&self, call: &HookedCall) -> HookAnswer {
        if let Some(stop) = self.stop_answer() {
            return stop;
        }
        if self.files.is_leaving() {
            return HookAnswer::deny(LEAVES);
        }
        let id = id_of(self.client, call).unwrap_or_else(fresh_id);
        let resumed = self.files.take_deferred(&id);
        match self
            .files
            .begin_call(&id, &open_call(call, CallStage::Waiting))
        {
            Ok(true) => {}
            Ok(false) => {
                return HookAnswer::deny(
                    "Not allowed: this call is being decided or runs already; each call is decided once.",
                );
            }
            Err(error) => return HookAnswer::deny(&not_noted(&error)),
        }
        let answer = self.decide(&id, call, resumed);
        let stage = match &answer {
            HookAnswer::Allow { .. } => Some(CallStage::Running),
            HookAnswer::Defer => Some(CallStage::Deferred),
            HookAnswer::Nothing
            | HookAnswer::Deny { .. }
            | HookAnswer::Stop { .. }
            | HookAnswer::Continue { .. } => None,
        };
        let Some(stage) = stage else {
            self.files.end_call(&id);
            return answer;
        };
        let mut open = open_call(call, stage);
        if let HookAnswer::Allow {
            edited: Some(edited),
        } = &answer
        {
            open.input = edited.clone();
        }
        match self.files.set_call(&id, &open) {
            Ok(()) => answer,
            Err(error) => {
                // Nobody would renew its lease or report its end.
                let why = not_noted(&error);
                self.report(&id, &CallReport::not_run(&why));
                self.files.end_call(&id);
                HookAnswer::deny(&why)
            }
        }
    }

    /// Reports how a call ended.
    pub(super) fn after_call(&self, ended: &EndedCall) -> HookAnswer {
        let found = match id_of(self.client, &ended.call) {
            Some(id) => self.files.call(&id).map(|call| (id, call)),
            None => self.find_running(&ended.call),
        };
        if let Some((id, open)) = found.filter(|(_, call)| call.stage == CallStage::Running) {
            let mut report = ended.report.clone();
            if let Some(ran) = self.ran_something_else(&open, &ended.call) {
                report.error = Some(format!("the client says that it ran something else: {ran}"));
                report.success = false;
            }
            self.report(&id, &report);
            self.end(&id, &report);
        }
        match self.files.stop_requested() {
            Some(reason) => HookAnswer::Stop { reason },
            None => HookAnswer::Nothing,
        }
    }

    /// Ends the turn of an agent that people interrupted before it calls one of our tools.
    pub(super) fn own_call(&self) -> HookAnswer {
        match self.files.stop_requested() {
            Some(reason) => HookAnswer::Stop { reason },
            None => HookAnswer::Nothing,
        }
    }

    /// Forgets a call that is over, unless it goes on in the background.
    fn end(&self, id: &MessageId, report: &CallReport) {
        let open = self.files.call(id).filter(|_| report.in_background);
        let Some(mut open) = open else {
            return self.files.end_call(id);
        };
        open.stage = CallStage::Background;
        if let Err(error) = self.files.set_call(id, &open) {
            tracing::warn!(%error, "a command in the background was not noted");
        }
    }

    /// Closes the calls of a step that were not reported: the client refused them by itself, or the
    /// hook that should have reported them ended too soon.
    pub(super) fn batch_ended(&self, calls: &[EndedCall]) -> HookAnswer {
        for ended in calls {
            if let Some(id) = id_of(self.client, &ended.call)
                && let Some(open) = self.files.call(&id)
                && open.stage == CallStage::Running
            {
                self.report(&id, &ended.report);
                self.files.end_call(&id);
            }
        }
        match self.files.stop_requested() {
            Some(reason) => HookAnswer::Stop { reason },
            None => HookAnswer::Nothing,
        }
    }

    /// Tells the session what a person typed into the client, in that person's name.
    pub(super) fn prompted(&self, conversation: &str, text: Option<String>) -> HookAnswer {
        let text = text.filter(|text| !self.files.take_passed_on(text));
        // What the client prompts itself with lifts no interrupt.
        if text.is_some() {
            self.files.clear_stop();
        }
        if let Err(error) = self.files.begin_turn() {
            tracing::warn!(%error, "the beginning of a turn was not noted");
        }
        let (Some(person), Some(content)) = (&self.settings.person, text) else {
            return HookAnswer::Nothing;
        };
        let prompt = PromptSubmit {
            content,
            target_agent: self.settings.participant.clone(),
            contributors: vec![person.participant.clone()],
            context_keys: Vec::new(),
            config: None,
            origin: Some(self.origin(conversation)),
            extra: ExtraFields::new(),
        };
        let sent = Link::parse(&person.link).map_err(|error| error.to_string());
        let sent = sent.and_then(|link| {
            let api = ApiClient::with_timeout(link, RESPONSE_TIMEOUT);
            let sent = api.send_message(&self.settings.session, prompt);
            sent.map_err(|error| error.to_string())
        });
        if let Err(why) = sent {
            tracing::warn!(%why, "a prompt is not in the record");
        }
        HookAnswer::Nothing
    }

    /// Tells the session what the agent said last, and the agent what people said meanwhile.
    pub(super) fn stopped(&self, message: Option<&str>) -> HookAnswer {
        if let Some(message) = message.filter(|message| !message.trim().is_empty()) {
            self.respond(message);
        }
        let interrupted = self.files.stop_requested().is_some();
        self.files.clear_stop();
        let prompts = match interrupted {
            true => Vec::new(),
            false => self.files.take_prompts(),
        };
        if prompts.is_empty() {
            self.files.end_turn();
            return HookAnswer::Nothing;
        }
        let said = |prompt: &crate::client_files::WaitingPrompt| {
            format!("{} says: {}", prompt.by, prompt.text)
        };
        let texts: Vec<_> = prompts.iter().map(said).collect();
        let text = texts.join("\n\n");
        if let Err(error) = self.files.note_passed_on(&text) {
            tracing::warn!(%error, "what people said may be recorded as typed here, too");
        }
        HookAnswer::Continue { text }
    }

    /// Closes what the client left open: it ran, but nobody knows how it ended.
    pub(super) fn conversation_ended(&self) -> HookAnswer {
        self.files.end_turn();
        self.files.clear_stop();
        for (id, call) in self.files.open_calls() {
            if call.stage == CallStage::Running {
                self.report(
                    &id,
                    &CallReport::unknown("the client ended without saying how it ended"),
                );
                self.files.end_call(&id);
            }
        }
        HookAnswer::Nothing
    }

    /// Takes a call back that nobody waits for any more.
    pub(super) fn withdraw(&self, id: &MessageId) {
        let waits = self.files.call(id);
        if waits.is_none_or(|call| call.stage != CallStage::Waiting) {
            return;
        }
        let cancel = ToolCancel {
            tool_proposal: id.clone(),
            reason: Some("the client no longer waits for it".to_owned()),
            extra: ExtraFields::new(),
        };
        if let Err(error) = self.api.send_message(&self.settings.session, cancel) {
            tracing::warn!(%error, "a call was not withdrawn; its lease ends soon");
        }
        self.files.end_call(id);
    }

    /// Proposes a call and waits for the decision.
    fn decide(&self, id: &MessageId, call: &HookedCall, resumed: bool) -> HookAnswer {
        let bound = BoundCall::new(&call.tool, &call.input, self.place(call));
        let reach = reach::check(&bound.proposed(), &self.settings.workspace);
        if let CallReach::Refused(why) = reach {
            return HookAnswer::deny(&why);
        }
        let mut request = self.request(id, call, &bound);
        request.requires_approval = reach == CallReach::Ask;
        if resumed {
            self.send_defer(id, 0);
        }
        let decision = match self.wait(&request, call, resumed) {
            Ok(Waited::Decided(decision)) => decision,
            Ok(Waited::Deferred) => return HookAnswer::Defer,
            Err(why) => {
                return HookAnswer::Deny {
                    stop: self.files.stop_requested().is_some(),
                    reason: why,
                };
            }
        };
        if decision.decision != DecisionState::Allowed {
            let reason = decision.reason.clone();
            let reason = reason.unwrap_or_else(|| "Not allowed.".to_owned());
            return HookAnswer::Deny {
                stop: self.files.stop_requested().is_some(),
                reason,
            };
        }
        let decided = decision.command.tool.as_deref().unwrap_or(SHELL);
        let granted = match decided == bound.proposed().tool_name {
            true => bound.granted_input(&decision.arguments),
            // What a client goes on with is in a file of its own, which somebody may have changed.
            false => Err(format!("people decided about a call of `{decided}`")),
        };
        match granted {
            Ok(edited) => HookAnswer::Allow { edited },
            Err(why) => {
                let why = format!("Not run: {why}.");
                self.report(id, &CallReport::not_run(&why));
                HookAnswer::deny(&why)
            }
        }
    }

    /// Sends a proposal until it is decided. The error says why nobody could decide it.
    fn wait(
        &self,
        request: &ProposalRequest,
        call: &HookedCall,
        resumed: bool,
    ) -> Result<Waited, String> {
        let started = Instant::now();
        let mut heard: Option<Instant> = None;
        let mut attempts = 0;
        loop {
            // The first answer comes at once, so that the client can say who is asked.
            let wait = heard.map_or(Duration::ZERO, |_| self.time_left(started).min(WAIT));
            if !self.server_runs() {
                let patience = heard.map_or(FIRST_PATIENCE, |_| PATIENCE);
                if heard.unwrap_or(started).elapsed() >= patience {
                    return Err(SERVER_GONE.to_owned());
                }
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
            attempts += 1;
            let session = &self.settings.session;
            let sent = Instant::now();
            let asked = match resumed {
                // What was decided is the call as it was; the file may be another by now.
                true => self.api.decision(session, &request.id, wait),
                false => self.api.propose(session, request, wait),
            };
            match asked {
                Ok(decision) if decision.tool_proposal != request.id => {
                    return Err("Not allowed: the server answered about another call.".to_owned());
                }
                Ok(decision) => {
                    // A later attempt finds what an earlier one proposed.
                    if decision.repeated && attempts == 1 && !resumed {
                        return Err(
                            "Not allowed: this call was decided before; each call is decided once."
                                .to_owned(),
                        );
                    }
                    heard = Some(Instant::now());
                    if decision.decision != DecisionState::Waiting {
                        return Ok(Waited::Decided(Box::new(decision)));
                    }
                    self.show_waiting(&request.id, call, decision.awaits.as_ref());
                    if sent.elapsed() < wait {
                        // It should have waited for a decision, and asking at once loads it.
                        std::thread::sleep(RETRY_PAUSE);
                    }
                }
                Err(error) if error.is_transient() => {
                    let patience = heard.map_or(FIRST_PATIENCE, |_| PATIENCE);
                    if heard.unwrap_or(started).elapsed() >= patience {
                        return Err(self.undecided_text(&error));
                    }
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(ApiError::Refused(report)) => {
                    return Err(format!("Not allowed: {}.", report.message));
                }
                Err(error) => return Err(unreachable_text(&error)),
            }
            if self.time_left(started).is_zero() {
                match self.leave(&request.id) {
                    Leave::ToThisCall => return Ok(Waited::Deferred),
                    Leave::ToAnother => {
                        self.withdraw(&request.id);
                        return Err(LEAVES.to_owned());
                    }
                    Leave::Impossible => {}
                }
            }
        }
    }

    /// What the agent reads if nobody could decide for so long.
    fn undecided_text(&self, error: &ApiError) -> String {
        match error {
            ApiError::Refused(report) => too_many_text(&report.message, &self.files.open_calls()),
            ApiError::NotSent { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Untrusted { .. }
            | ApiError::InvalidResponse { .. } => unreachable_text(error),
        }
    }

    /// Whether it is the server of this user that would answer, as far as that can be known.
    fn server_runs(&self) -> bool {
        let lock = self.settings.server_lock.as_deref();
        lock.is_none_or(is_locked)
    }

    /// How long a call may still wait before its client leaves.
    fn time_left(&self, since: Instant) -> Duration {
        let limit = self.settings.defer_after_seconds.map(Duration::from_secs);
        // Only this client asks again about a call that it was told to leave.
        let limit = limit.filter(|_| self.client == HookClient::Claude);
        limit.map_or(Duration::MAX, |limit| limit.saturating_sub(since.elapsed()))
    }

    /// Has the client leave and this call wait for its return.
    fn leave(&self, id: &MessageId) -> Leave {
        match self.files.leave() {
            Ok(true) if self.send_defer(id, DEFER_SECONDS) => Leave::ToThisCall,
            Ok(true) => {
                self.files.stay();
                Leave::Impossible
            }
            Ok(false) => Leave::ToAnother,
            Err(error) => {
                tracing::warn!(%error, "a client cannot leave");
                Leave::Impossible
            }
        }
    }

    /// Lets a call wait without a hook, or with 0 seconds no longer.
    fn send_defer(&self, id: &MessageId, seconds: u32) -> bool {
        let defer = ToolDefer {
            tool_proposal: id.clone(),
            seconds,
            extra: ExtraFields::new(),
        };
        let sent = self.api.send_message(&self.settings.session, defer);
        if let Err(error) = &sent {
            tracing::warn!(%error, "a call was not deferred");
        }
        sent.is_ok()
    }

    /// Notes what a call waits for, for the client's status line.
    fn show_waiting(&self, id: &MessageId, call: &HookedCall, awaits: Option<&AwaitedVotes>) {
        let Some(mut open) = self.files.call(id) else {
            return;
        };
        open.waits_for = awaits.map(|awaits| waiting_text(&call.tool, awaits));
        if let Err(error) = self.files.set_call(id, &open) {
            tracing::debug!(%error, "the status line is not up to date");
        }
    }

    fn request(&self, id: &MessageId, call: &HookedCall, bound: &BoundCall) -> ProposalRequest {
        let proposed = bound.proposed();
        ProposalRequest {
            id: id.clone(),
            tool_name: proposed.tool_name,
            arguments: proposed.arguments,
            category: proposed.category,
            description: proposed.purpose,
            risk_level: None,
            requires_approval: false,
            file_contents: bound.file_contents(),
            runs: RunBy::Client,
            degree: Some(Degree::Hooked),
            origin: Some(ClientOrigin {
                call: call.call_id.clone(),
                subagent: call.subagent.clone(),
                fails_open: self.client.fails_open(
                    self.settings.version.as_deref(),
                    self.settings.hooks_from,
                    &call.tool,
                ),
                ..self.origin(&call.conversation)
            }),
        }
    }

    fn origin(&self, conversation: &str) -> ClientOrigin {
        ClientOrigin {
            client: self.client.name().to_owned(),
            version: self.settings.version.clone(),
            session: Some(conversation.to_owned()),
            ..ClientOrigin::default()
        }
    }

    /// Where a call is made, without links in the path.
    fn place(&self, call: &HookedCall) -> CallPlace {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        CallPlace {
            workspace: self.settings.workspace.clone(),
            cwd: real(&call.cwd),
        }
    }

    fn stop_answer(&self) -> Option<HookAnswer> {
        let reason = self.files.stop_requested()?;
        Some(HookAnswer::Deny { reason, stop: true })
    }

    /// The oldest call that runs and is the same as this one, for clients without ids.
    fn find_running(&self, call: &HookedCall) -> Option<(MessageId, OpenCall)> {
        self.files.open_calls().into_iter().find(|(_, open)| {
            open.stage == CallStage::Running
                && open.conversation == call.conversation
                && open.tool == call.tool
                && open.input == call.input
        })
    }

    /// What ran, if it is not what was allowed: another command, another file or another content.
    fn ran_something_else(&self, open: &OpenCall, ended: &HookedCall) -> Option<String> {
        let place = self.place(ended);
        let [allowed, ran] = [&open.input, &ended.input]
            .map(|input| translate(&ended.tool, input, &place).arguments);
        let names = ["full_command", "path", "content", "old_text", "new_text"];
        let mut differing = names
            .iter()
            .filter(|name| allowed.get(**name) != ran.get(**name));
        let name = differing.next()?;
        let text = ran.get(*name).map(Value::to_string).unwrap_or_default();
        Some(text.chars().take(MAX_SHOWN_CHARS).collect())
    }

    /// Sends the output and the result of a call.
    fn report(&self, id: &MessageId, report: &CallReport) {
        if let Err(error) = self.send_report(id, report) {
            tracing::warn!(%error, "a result is not in the record");
        }
    }

    fn send_report(&self, id: &MessageId, report: &CallReport) -> Result<(), ApiError> {
        let session = &self.settings.session;
        let mut truncated = false;
        for (stream, text) in [
            (OutputStream::Stdout, &report.stdout),
            (OutputStream::Stderr, &report.stderr),
        ] {
            let sent = &text[..text.floor_char_boundary(MAX_OUTPUT_BYTES)];
            truncated |= sent.len() < text.len();
            if !sent.is_empty() {
                for output in output_messages(id, stream, sent, 0) {
                    self.api.send_message(session, output)?;
                }
            }
        }
        let duration = self
            .files
            .call(id)
            .map_or(0, |open| pvp_clock::now().millis_since(open.since));
        let report = RunReport {
            success: report.success,
            exit_code: report.exit_code,
            stdout: report.stdout.clone(),
            stderr: report.stderr.clone(),
            error: report.error.clone(),
            duration_ms: duration,
            outcome: report.outcome,
            streamed: [0, 0],
        };
        self.api
            .send_message(session, report.to_result(id.clone(), truncated))?;
        Ok(())
    }

    /// Tells the session what the agent said.
    fn respond(&self, text: &str) {
        let session = &self.settings.session;
        let start_id = fresh_id();
        let agent: ParticipantId = self.settings.participant.clone();
        let start = ResponseStart {
            agent,
            prompt_ref: fresh_id(),
            extra: ExtraFields::new(),
        };
        let chunk = ResponseChunk {
            text: text.to_owned(),
            extra: ExtraFields::new(),
        };
        let end = ResponseEnd {
            finish_reason: FinishReason::Complete,
            usage: None,
            extra: ExtraFields::new(),
        };
        let envelopes = [
            envelope(&start_id, None, start.into()),
            envelope(&fresh_id(), Some(&start_id), chunk.into()),
            envelope(&fresh_id(), Some(&start_id), end.into()),
        ];
        for envelope in envelopes {
            if let Err(error) = self.api.send(session, &envelope) {
                tracing::warn!(%error, "what the agent said is not in the record");
                return;
            }
        }
    }
}

/// To which call a client that leaves comes back.
enum Leave {
    ToThisCall,
    ToAnother,
    /// It has to stay.
    Impossible,
}

/// How waiting for a decision ended.
enum Waited {
    Decided(Box<ProposalDecision>),
    Deferred,
}

fn open_call(call: &HookedCall, stage: CallStage) -> OpenCall {
    OpenCall {
        stage,
        conversation: call.conversation.clone(),
        tool: call.tool.clone(),
        input: call.input.clone(),
        waits_for: None,
        since: pvp_clock::now(),
    }
}

fn envelope(id: &MessageId, refers_to: Option<&MessageId>, message: ClientMessage) -> JsonObject {
    let payload = serde_json::to_value(&message).unwrap_or_default();
    let mut envelope = JsonObject::from_iter([
        ("id".to_owned(), id.as_str().into()),
        ("type".to_owned(), message.kind().into()),
        ("payload".to_owned(), payload),
    ]);
    if let Some(refers_to) = refers_to {
        envelope.insert("ref".to_owned(), refers_to.as_str().into());
    }
    envelope
}

fn not_noted(error: &std::io::Error) -> String {
    format!("Not allowed: that it runs could not be noted on this machine: {error}.")
}

fn unreachable_text(error: &ApiError) -> String {
    format!(
        "Not allowed, because nobody can be asked: {error}. Nothing was done. Do not try other \
         ways; tell the person at the terminal."
    )
}

/// What a call waits for, in one line.
fn waiting_text(tool: &str, awaits: &AwaitedVotes) -> String {
    let names: Vec<_> = awaits.awaited.iter().map(ParticipantId::as_str).collect();
    let mut asked = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        asked.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    if asked.is_empty() {
        asked.push_str("nobody else may approve now");
    }
    format!(
        "{tool} waits for {} of {} ({asked}): pvp approve {}",
        awaits.received, awaits.required, awaits.handle
    )
}
