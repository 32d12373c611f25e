//! A call between its proposal and its decision.

use std::time::Duration;

use pvp_agent::proposer::{GateProgress, ProposalEvent, ProposalHandle};
use pvp_protocol::{Action, Command, JsonObject, MessageId, ParticipantId, RunMode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Supervisor;
use super::allowed_call::{AllowedCall, CallGuard, CallState};
use super::denial::Denial;
use crate::translation::TranslatedCall;

/// How often somebody who waits is told how long they have waited.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// What was decided about a call.
pub enum CallDecision {
    Allowed(Box<AllowedCall>),
    Denied(Denial),
}

/// A call that was proposed and may not be decided yet. Dropping it withdraws it.
pub struct PendingCall {
    /// Withdraws it if it is dropped.
    guard: CallGuard,
    /// What becomes of it.
    handle: ProposalHandle,
    /// The call as it was proposed.
    call: TranslatedCall,
    /// The votes that it waits for; `None` before its gate is open.
    waits_for: Option<String>,
    /// When it was proposed.
    since: Instant,
    /// When somebody who waits is told again.
    next_progress: Instant,
    /// What was decided, until it is taken.
    decided: Option<CallVerdict>,
}

/// A decision as the session says it.
enum CallVerdict {
    Granted(Box<Action>, Vec<ParticipantId>),
    Denied(Denial),
}

impl PendingCall {
    pub(super) fn new(
        supervisor: &Supervisor,
        handle: ProposalHandle,
        call: TranslatedCall,
    ) -> Self {
        let now = Instant::now();
        Self {
            guard: CallGuard::new(supervisor, handle.id.clone()),
            handle,
            call,
            waits_for: None,
            since: now,
            next_progress: now + PROGRESS_INTERVAL,
            decided: None,
        }
    }

    /// The id of the proposal.
    pub fn id(&self) -> &MessageId {
        &self.handle.id
    }

    /// What its gate waits for, as it changes; `None` while no gate is open.
    pub fn gate_progress(&self) -> watch::Receiver<Option<GateProgress>> {
        self.handle.gate_progress()
    }

    /// What it waits for and since when, every few seconds and when that changes; `None` once it is
    /// decided. Cancel safe: dropping the future loses nothing.
    pub async fn progress(&mut self) -> Option<String> {
        while self.decided.is_none() {
            tokio::select! {
                event = self.handle.next() => {
                    if self.on_event(event) {
                        return Some(self.progress_text());
                    }
                }
                () = tokio::time::sleep_until(self.next_progress) => {
                    self.next_progress = Instant::now() + PROGRESS_INTERVAL;
                    return Some(self.progress_text());
                }
            }
        }
        None
    }

    /// Waits for the decision.
    pub async fn decision(mut self) -> CallDecision {
        while self.progress().await.is_some() {}
        match self.decided.take() {
            Some(CallVerdict::Granted(action, approved_by)) => self.allow(&action, approved_by),
            Some(CallVerdict::Denied(denial)) => {
                self.guard.state = CallState::Over;
                CallDecision::Denied(denial)
            }
            None => CallDecision::Denied(Denial::failed("Not allowed: it was not decided.")),
        }
    }

    /// Whether there is something new to tell.
    fn on_event(&mut self, event: Option<ProposalEvent>) -> bool {
        let verdict = match event {
            Some(ProposalEvent::GateOpened { quorum }) => {
                self.waits_for = Some(quorum);
                return true;
            }
            Some(
                ProposalEvent::Assessed(_)
                | ProposalEvent::Edited { .. }
                | ProposalEvent::Started { .. }
                | ProposalEvent::Output { .. }
                | ProposalEvent::CancelRequested { .. },
            ) => return false,
            Some(ProposalEvent::Granted {
                approved_by,
                action,
                ..
            }) => CallVerdict::Granted(action, approved_by),
            Some(ProposalEvent::NotRun(resolve)) => {
                CallVerdict::Denied(Denial::from_resolution(&resolve))
            }
            Some(ProposalEvent::Finished(result)) => {
                let why = result.error.as_deref().unwrap_or("it has ended already");
                CallVerdict::Denied(Denial::failed(&format!("Not allowed: {why}.")))
            }
            Some(ProposalEvent::Lost) | None => {
                let why = "Not allowed: the session is over for this agent.";
                CallVerdict::Denied(Denial::failed(why))
            }
        };
        self.decided = Some(verdict);
        false
    }

    fn progress_text(&self) -> String {
        let waits_for = self.waits_for.as_deref().unwrap_or("the server");
        let seconds = self.since.elapsed().as_secs();
        format!("waiting for {waits_for}, {seconds} s")
    }

    fn allow(self, action: &Action, approved_by: Vec<ParticipantId>) -> CallDecision {
        let proposed = Action::from_arguments(&self.call.tool_name, &self.call.arguments);
        let edited = (proposed.as_ref() != Ok(action)).then(|| arguments_of(action));
        let allowed = AllowedCall::new(self.guard, self.handle, approved_by, edited);
        CallDecision::Allowed(Box::new(allowed))
    }
}

/// The arguments of `tool.propose` that describe an action.
fn arguments_of(action: &Action) -> JsonObject {
    let mut arguments = JsonObject::new();
    let mut insert = |name: &str, value: serde_json::Value| {
        arguments.insert(name.to_owned(), value);
    };
    match &action.command {
        Command::Tool { arguments, .. } => return arguments.clone(),
        Command::Shell { line } | Command::LoginShell { line } => {
            insert("full_command", line.as_str().into());
        }
        Command::Argv { command, args } => {
            insert("command", command.as_str().into());
            insert("args", args.clone().into());
        }
    }
    if let Some(cwd) = &action.cwd {
        insert("cwd", cwd.as_str().into());
    }
    if action.mode != RunMode::Normal {
        insert("mode", action.mode.as_str().into());
    }
    if !action.env.is_empty() {
        insert("env", serde_json::to_value(&action.env).unwrap_or_default());
    }
    if !action.files.is_empty() {
        let files = serde_json::to_value(&action.files).unwrap_or_default();
        insert("files", files);
    }
    arguments
}
