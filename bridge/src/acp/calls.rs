//! The calls that an agent reports: what each is, whether it was asked about, and how it ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agent_client_protocol_schema::v1::{
    Meta, SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate,
};
use pvp_agent::agent::BoundClientCall;
use pvp_protocol::payload::OutputStream;
use serde_json::Value;
use tokio::sync::mpsc;

use super::report::{report, shown_output};
use crate::supervisor::{AllowedCall, CallReport};

/// Calls that have not ended; beyond this the oldest is forgotten.
const MAX_CALLS: usize = 128;

/// Calls that have ended and that the agent may still speak of.
const MAX_ENDED: usize = 1024;

/// Bytes of streamed output that are kept of one call.
const MAX_STREAMED_BYTES: usize = 4 * 1024 * 1024;

/// Pieces of output that may wait to be sent.
const MAX_UNSENT: usize = 64;

/// A call of one conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub(super) session: String,
    pub(super) call: String,
}

/// A call as the agent describes it.
#[derive(Debug, Clone)]
pub(super) struct ReportedCall {
    /// The call as the agent reports it.
    pub(super) call: ToolCall,
    /// What else the agent says about it.
    pub(super) meta: Meta,
    /// Output that came in pieces.
    streamed: String,
    /// How often the agent asked about it.
    asks: u32,
    /// What was allowed, to compare it with what ran.
    allowed: Option<AllowedForm>,
    /// Where it is reported, if it was allowed.
    run: Option<AcpCall>,
}

#[derive(Debug, Clone)]
struct AcpCall {
    updates: mpsc::Sender<RunUpdate>,
    /// What was sent of the output.
    sent: String,
}

enum RunUpdate {
    Output(String),
    Finished(Box<CallReport>),
}

/// What an agent was allowed to do.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedForm {
    /// The command, if it is one.
    pub(super) line: Option<String>,
    /// The change of a file, if it is one.
    pub(super) change: Option<AllowedChange>,
}

/// A change of a file that was allowed.
#[derive(Debug, Clone)]
pub(super) struct AllowedChange {
    pub(super) tool_name: String,
    pub(super) bound: BoundClientCall,
}

/// A call that ran without anybody having been asked.
#[derive(Debug, Clone)]
pub(super) struct UnaskedCall {
    /// The conversation.
    pub(super) session: String,
    pub(super) call: ToolCall,
    pub(super) meta: Meta,
    /// How it ended; `None` if the agent does not say.
    pub(super) report: Option<CallReport>,
}

impl UnaskedCall {
    /// The terminals that the agent shows as part of it.
    pub(super) fn terminals(&self) -> impl Iterator<Item = &str> {
        self.call
            .content
            .iter()
            .filter_map(|content| match content {
                ToolCallContent::Terminal(terminal) => Some(terminal.terminal_id.0.as_ref()),
                _ => None,
            })
    }
}

/// How far the turn is in which an agent says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnStage {
    Running,
    /// The agent was told to end it.
    Cancelled,
}

/// The calls of an agent.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<CallKey, ReportedCall>,
    /// In the order in which they were first mentioned.
    order: VecDeque<CallKey>,
    ended: VecDeque<CallKey>,
    /// Conversations in which a command may have gone to another directory.
    moved: BTreeSet<String>,
}

impl Calls {
    /// Notes what an agent says about a call. Returns the call if it has run without a question.
    pub(super) fn on_update(
        &mut self,
        session: &str,
        update: &SessionUpdate,
        turn: TurnStage,
    ) -> Option<UnaskedCall> {
        let (id, meta) = match update {
            SessionUpdate::ToolCall(call) => (&call.tool_call_id, call.meta.as_ref()),
            SessionUpdate::ToolCallUpdate(update) => (&update.tool_call_id, update.meta.as_ref()),
            _ => return None,
        };
        let key = CallKey {
            session: session.to_owned(),
            call: id.0.to_string(),
        };
        if self.ended.contains(&key) {
            return None;
        }
        let reported = self.entry(&key);
        match update {
            SessionUpdate::ToolCall(call) => reported.call = call.clone(),
            SessionUpdate::ToolCallUpdate(update) => reported.call.update(update.fields.clone()),
            _ => {}
        }
        reported.add_meta(meta);
        let ended = report(&reported.call, &reported.meta, &reported.streamed);
        if ended.is_none() {
            reported.send_output();
        }
        self.note_moves(&key);
        ended.and_then(|mut report| {
            // Some agents call a command that they stopped completed.
            if turn == TurnStage::Cancelled && report.exit_code.is_none() {
                report.success = false;
                let why = "the turn was cancelled while it ran";
                report.error.get_or_insert_with(|| why.to_owned());
            }
            self.end(&key, report)
        })
    }

    /// Notes that an agent asks about a call; returns what is known of it, and the number of the
    /// question.
    pub(super) fn on_question(
        &mut self,
        key: &CallKey,
        update: &ToolCallUpdate,
    ) -> (ReportedCall, u32) {
        self.ended.retain(|ended| ended != key);
        let reported = self.entry(key);
        let before = reported.call.raw_input.take();
        reported.call.update(update.fields.clone());
        reported.call.raw_input = joined_input(before, reported.call.raw_input.take());
        reported.add_meta(update.meta.as_ref());
        reported.asks += 1;
        (reported.clone(), reported.asks)
    }

    /// The call as it is known, if the agent has asked about it.
    pub(super) fn asked(&self, key: &CallKey) -> Option<&ReportedCall> {
        self.open.get(key).filter(|reported| reported.asks > 0)
    }

    /// Whether an agent may have gone to another directory in this conversation. Some keep one shell
    /// for all of their commands.
    pub(super) fn has_moved(&self, session: &str) -> bool {
        self.moved.contains(session)
    }

    /// Notes that a command of an agent may have gone to another directory.
    fn note_moves(&mut self, key: &CallKey) {
        let call = self.open.get(key).map(|reported| &reported.call);
        let input = call.and_then(|call| call.raw_input.as_ref());
        let line = input.and_then(|input| input.get("command")?.as_str());
        let line = line.or_else(|| call.map(|call| call.title.as_str()));
        let moves = line.is_some_and(|line| {
            let mut words = line.split(|char: char| !char.is_alphanumeric() && char != '_');
            words.any(|word| ["cd", "pushd", "popd", "chdir"].contains(&word))
        });
        if moves && self.moved.len() < MAX_ENDED {
            self.moved.insert(key.session.clone());
        }
    }

    /// Notes that something was allowed that belongs to a call.
    pub(super) fn on_allowed(
        &mut self,
        key: &CallKey,
        allowed: AllowedCall,
        form: AllowedForm,
        stop: mpsc::Sender<String>,
    ) {
        let (updates, receiver) = mpsc::channel(MAX_UNSENT);
        tokio::spawn(follow(allowed, receiver, key.session.clone(), stop));
        let reported = self.entry(key);
        // Of several questions about one call, the last is the one whose answer lets it run.
        reported.run = Some(AcpCall {
            updates,
            sent: String::new(),
        });
        reported.allowed = Some(form);
    }

    /// The command of a call, or what the agent calls it.
    pub(super) fn title(&self, key: &CallKey) -> &str {
        let call = self.open.get(key).map(|it| &it.call);
        let input = call.and_then(|call| call.raw_input.as_ref());
        let line = input.and_then(|input| input.get("command")?.as_str());
        line.unwrap_or_else(|| call.map_or("", |call| &call.title))
    }

    /// Forgets the calls of a conversation whose turn is over. Those that were allowed and have not
    /// ended are reported as unknown. Returns those that have begun without a question.
    pub(super) fn end_turn(&mut self, session: &str) -> Vec<UnaskedCall> {
        let of_session: Vec<_> = self
            .order
            .iter()
            .filter(|key| key.session == session)
            .cloned()
            .collect();
        self.order.retain(|key| key.session != session);
        let left = of_session
            .into_iter()
            .filter_map(|key| self.open.remove(&key));
        let begun = left.filter(|it| it.asks == 0 && it.call.status == ToolCallStatus::InProgress);
        begun.map(|it| it.unasked(session, None)).collect()
    }

    /// The changes of files that running calls of this conversation were allowed to make.
    pub(super) fn allowed_changes(&self, session: &str) -> Vec<AllowedChange> {
        let of_session = self.open.iter().filter(|(key, _)| key.session == session);
        let running = of_session.filter(|(_, call)| call.run.is_some());
        let forms = running.filter_map(|(_, call)| call.allowed.as_ref()?.change.clone());
        forms.collect()
    }

    fn end(&mut self, key: &CallKey, mut report: CallReport) -> Option<UnaskedCall> {
        let reported = self.open.remove(key)?;
        self.order.retain(|open| open != key);
        self.ended.push_back(key.clone());
        if self.ended.len() > MAX_ENDED {
            self.ended.pop_front();
        }
        if let Some(ran) = reported.ran_something_else() {
            report.error = Some(format!("the agent says that it ran something else: {ran}"));
            report.success = false;
        }
        if let Some(run) = &reported.run {
            if let Some(rest) = report.stdout.strip_prefix(&run.sent) {
                report.stdout = rest.to_owned();
            }
            // If nobody takes it, the run is closed as unknown.
            let _ = run.updates.try_send(RunUpdate::Finished(Box::new(report)));
            return None;
        }
        (reported.asks == 0).then(|| reported.unasked(&key.session, Some(report)))
    }

    fn entry(&mut self, key: &CallKey) -> &mut ReportedCall {
        if !self.open.contains_key(key) {
            self.order.push_back(key.clone());
            if self.order.len() > MAX_CALLS
                && let Some(oldest) = self.order.pop_front()
            {
                self.open.remove(&oldest);
            }
        }
        self.open
            .entry(key.clone())
            .or_insert_with(|| ReportedCall {
                call: ToolCall::new(key.call.clone(), ""),
                meta: Meta::new(),
                streamed: String::new(),
                asks: 0,
                allowed: None,
                run: None,
            })
    }
}

impl ReportedCall {
    fn add_meta(&mut self, meta: Option<&Meta>) {
        for (name, value) in meta.into_iter().flatten() {
            if name == "terminal_output_delta"
                && let Some(text) = value["data"].as_str()
                && self.streamed.len() + text.len() <= MAX_STREAMED_BYTES
            {
                self.streamed.push_str(text);
            }
            // Later messages have a part of it only.
            match (self.meta.get_mut(name), value) {
                (Some(Value::Object(known)), Value::Object(fields)) => known.extend(fields.clone()),
                _ => drop(self.meta.insert(name.clone(), value.clone())),
            }
        }
    }

    /// Sends what the call has printed since the last time.
    fn send_output(&mut self) {
        let Some(run) = &mut self.run else {
            return;
        };
        let shown = shown_output(&self.call, &self.streamed);
        if let Some(rest) = shown.strip_prefix(&run.sent)
            && !rest.is_empty()
            && self.call.status == ToolCallStatus::InProgress
            // The last place is for the result.
            && run.updates.capacity() > 1
            && run.updates.try_send(RunUpdate::Output(rest.to_owned())).is_ok()
        {
            run.sent = shown;
        }
    }

    /// The command that the agent says it ran, if it is not the one that was allowed.
    fn ran_something_else(&self) -> Option<&str> {
        let allowed = self.allowed.as_ref()?.line.as_deref()?;
        let ran = self.call.raw_input.as_ref()?.get("command")?.as_str()?;
        (ran != allowed).then_some(ran)
    }

    fn unasked(self, session: &str, report: Option<CallReport>) -> UnaskedCall {
        UnaskedCall {
            session: session.to_owned(),
            call: self.call,
            meta: self.meta,
            report,
        }
    }
}

/// What a question says of the input, with what was said before: some agents name the directory of a
/// command only when they announce it.
fn joined_input(before: Option<Value>, asked: Option<Value>) -> Option<Value> {
    match (before, asked) {
        (Some(Value::Object(mut before)), Some(Value::Object(asked))) => {
            before.extend(asked);
            Some(before.into())
        }
        (before, None) => before,
        (_, asked) => asked,
    }
}

/// Reports a call while it runs, and asks for its end if people want that.
async fn follow(
    mut allowed: AllowedCall,
    mut updates: mpsc::Receiver<RunUpdate>,
    session: String,
    stop: mpsc::Sender<String>,
) {
    let mut stopping = false;
    loop {
        tokio::select! {
            update = updates.recv() => match update {
                Some(RunUpdate::Output(text)) => allowed.output(OutputStream::Stdout, &text).await,
                Some(RunUpdate::Finished(report)) => return allowed.finish(*report).await,
                // Dropping it reports that its outcome is unknown.
                None => return,
            },
            _ = allowed.stop_requested(), if !stopping => {
                stopping = true;
                let _ = stop.try_send(session.clone());
            }
        }
    }
}
