//! The tool calls of one answer: which are started, which wait for votes, and how an interrupt ends
//! them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use pvp_protocol::MessageId;
use tokio::sync::Notify;

use super::prompt_queue::Halt;
use super::{AgentEvent, AgentEventCallback, INTERRUPTED_RESULT};
use crate::agent::Agent;
use crate::brain::proposal_result::CallResult;
use crate::brain::{ResultTextLimits, ToolCall};
use crate::tool_calls::{CallEvent, CallRunner, StartedCall};

/// Calls of one answer that are started.
const MAX_CALLS: usize = 64;

pub(super) struct ToolCallBatch<'a> {
    /// Proposes the commands and reads their output.
    agent: &'a Agent,
    /// How much of a command's output goes into a result.
    text_limits: ResultTextLimits,
    /// The tools that the prompt allows; `None` allows all.
    allowed_tools: Option<&'a [String]>,
    /// Receives what happens to proposals.
    on_event: &'a AgentEventCallback,
    /// How many proposals wait for votes.
    waiting_proposals: AtomicUsize,
    /// Notified when one more proposal waits for votes.
    proposal_waiting: Notify,
    /// Set by a pause: no further call is started.
    paused: AtomicBool,
    /// Set by a stop: no further call is started, and a proposal that is being sent is withdrawn.
    stopped: AtomicBool,
}

impl<'a> ToolCallBatch<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        text_limits: ResultTextLimits,
        allowed_tools: Option<&'a [String]>,
        on_event: &'a AgentEventCallback,
    ) -> Self {
        Self {
            agent,
            text_limits,
            allowed_tools,
            on_event,
            waiting_proposals: AtomicUsize::new(0),
            proposal_waiting: Notify::new(),
            paused: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts no further calls; after a stop, also withdraws a proposal that is just being sent.
    pub(super) fn halt(&self, halt: Halt) {
        let which = match halt {
            Halt::Pause => &self.paused,
            Halt::Stop => &self.stopped,
        };
        which.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_halted(&self) -> bool {
        self.is_stopped() || self.paused.load(Ordering::Relaxed)
    }

    /// Whether a proposal waits for votes.
    pub(super) fn has_waiting_proposals(&self) -> bool {
        self.waiting_proposals.load(Ordering::Relaxed) > 0
    }

    /// Waits until one more proposal waits for votes.
    pub(super) async fn proposal_started_waiting(&self) {
        self.proposal_waiting.notified().await;
    }

    /// Proposes in the order of the calls, then waits for all of them concurrently.
    pub(super) async fn run(&self, calls: &[ToolCall]) -> Vec<CallResult> {
        let on_event = |event| self.on_call_event(event);
        let runner = CallRunner {
            agent: self.agent,
            text_limits: self.text_limits,
            origin: None,
            on_event: &on_event,
        };
        let mut started = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            started.push(if self.is_halted() {
                StartedCall::failed(INTERRUPTED_RESULT)
            } else if number >= MAX_CALLS {
                StartedCall::failed(&format!(
                    "Nothing was done: only the first {MAX_CALLS} calls of an answer are begun. Call \
                     again in a later answer."
                ))
            } else {
                self.start(&runner, call).await
            });
        }
        join_all(started.into_iter().map(|call| runner.finish(call))).await
    }

    async fn start(&self, runner: &CallRunner<'_>, call: &ToolCall) -> StartedCall {
        if let Some(allowed) = self.allowed_tools
            && !allowed.contains(&call.name)
        {
            return StartedCall::failed(&format!(
                "The tool `{}` is not allowed for this prompt. Nothing was done.",
                call.name
            ));
        }
        let started = runner.start(call).await;
        if let Some(proposal) = started.proposal().filter(|_| self.is_stopped()) {
            self.withdraw(proposal).await;
        }
        started
    }

    fn on_call_event(&self, event: CallEvent) {
        (self.on_event)(match event {
            CallEvent::Proposed { command, purpose } => AgentEvent::Proposed { command, purpose },
            CallEvent::GateOpened { quorum } => {
                self.waiting_proposals.fetch_add(1, Ordering::Relaxed);
                self.proposal_waiting.notify_one();
                AgentEvent::GateOpened { quorum }
            }
            CallEvent::GateClosed => {
                self.waiting_proposals.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            CallEvent::Ended { command, how } => AgentEvent::CommandEnded { command, how },
        });
    }

    /// Withdraws a proposal that was sent after a stop; the session has withdrawn only those before
    /// it.
    async fn withdraw(&self, proposal: &MessageId) {
        let why = Some("people stopped the agent".to_owned());
        if let Err(error) = self.agent.connection().cancel(proposal, why).await {
            tracing::warn!(%error, "could not withdraw a proposal");
        }
    }
}
