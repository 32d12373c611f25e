//! Decides what the agent says and proposes: a script, or a model behind a provider's API.

pub mod conversation;
pub mod proposal_result;
pub mod provider;
pub mod recall;
pub mod result_text;
pub mod scripted;
pub mod tools;

use std::time::Duration;

use pvp_protocol::payload::{FinishReason, PromptConfig, UsageStats};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub use conversation::{AnswerPart, Conversation, ConversationTurn, ModelAnswer, ToolCall};
pub use proposal_result::{CallOutcome, CallResult, ProposalResult};
pub use provider::{Provider, ProviderSettings};
pub use result_text::ResultTextLimits;
pub use scripted::ScriptedBrain;
pub use tools::{ParsedToolCall, ToolContext, ToolDefinition};

/// Events of one answer that may wait to be read; then the provider has to wait.
const EVENT_QUEUE_LEN: usize = 256;

/// The context size of a script in tokens; a script needs no limit.
const UNLIMITED_TOKENS: u64 = 1 << 40;

/// What decides an agent's next step.
#[derive(Debug)]
pub enum Brain {
    Scripted(ScriptedBrain),
    Provider(Provider),
}

impl Brain {
    /// Starts to answer a conversation, which is first shortened to fit. Needs a tokio runtime.
    pub fn start_answer(
        &mut self,
        conversation: &mut Conversation,
        tools: &[ToolDefinition],
        config: Option<&PromptConfig>,
    ) -> AnswerStream {
        let allowed = config.and_then(|config| config.tools_allowed.as_ref());
        let tools: Vec<_> = tools
            .iter()
            .filter(|tool| allowed.is_none_or(|names| names.iter().any(|name| name == tool.name)))
            .cloned()
            .collect();
        match self {
            Brain::Scripted(scripted) => scripted.start_answer(conversation),
            Brain::Provider(provider) => {
                conversation.fit(provider.context_budget(&tools, config));
                provider.start_answer(conversation, &tools, config)
            }
        }
    }

    /// Whether it starts before the first prompt.
    pub fn starts_unprompted(&self) -> bool {
        match self {
            Brain::Scripted(scripted) => scripted.starts_unprompted(),
            Brain::Provider(_) => false,
        }
    }

    /// How much of a command's output goes into a result for this brain.
    pub fn text_limits(&self) -> ResultTextLimits {
        match self {
            Brain::Scripted(_) => ResultTextLimits::default(),
            Brain::Provider(provider) => ResultTextLimits::for_context(provider.context_tokens()),
        }
    }

    /// Tokens of conversation that fit into this brain's context.
    pub fn context_budget(&self, tools: &[ToolDefinition]) -> u64 {
        match self {
            Brain::Scripted(_) => UNLIMITED_TOKENS,
            Brain::Provider(provider) => provider.context_budget(tools, None),
        }
    }
}

/// A part of an answer as it arrives.
#[derive(Debug, Clone, PartialEq)]
pub enum BrainEvent {
    /// More thinking.
    Thinking(String),
    /// A signature that the provider wants back, unchanged, with the thinking before it. Not for
    /// people.
    ThinkingSignature(String),
    /// Thinking that the provider keeps hidden, but wants back.
    RedactedThinking(String),
    /// More response text.
    Text(String),
    /// A complete call. Act on it only once the answer is `Finished`.
    ToolCall(ToolCall),
    /// The provider could not answer; the request is repeated after a wait.
    Retrying { why: String, wait: Duration },
    /// The token usage, once, just before the end.
    Usage(UsageStats),
    /// The end of the answer.
    Finished(AnswerFinish),
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFinish {
    Complete,
    /// It waits for the results of its calls.
    ToolUse,
    /// It was cut off; its last call may be incomplete.
    MaxTokens,
    /// The provider withheld the answer.
    Withheld,
}

impl AnswerFinish {
    /// The finish reason of the protocol.
    pub fn finish_reason(self) -> FinishReason {
        match self {
            AnswerFinish::Complete => FinishReason::Complete,
            AnswerFinish::ToolUse => FinishReason::ToolUse,
            AnswerFinish::MaxTokens => FinishReason::MaxTokens,
            AnswerFinish::Withheld => FinishReason::Error,
        }
    }
}

/// Why there is no answer, or only a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BrainError {
    pub kind: BrainErrorKind,
    pub message: String,
}

/// The kind of error, which decides whether to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrainErrorKind {
    /// The provider is overloaded; it may say when to retry.
    Busy { after: Option<Duration> },
    /// The connection failed, went silent, or ended in the middle.
    ConnectionLost,
    /// The response could not be understood.
    InvalidResponse,
    /// The conversation is too long; a shorter one may be answered.
    ContextTooLong,
    /// The provider refused: the key, the model, the address or the request is wrong.
    Refused,
    /// Something happened that the script did not expect.
    ScriptFailed,
}

impl BrainError {
    pub(crate) fn new(kind: BrainErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            BrainErrorKind::Busy { .. }
            | BrainErrorKind::ConnectionLost
            | BrainErrorKind::InvalidResponse => true,
            BrainErrorKind::ContextTooLong
            | BrainErrorKind::Refused
            | BrainErrorKind::ScriptFailed => false,
        }
    }
}

/// An answer as it arrives. Dropping it cancels the request.
#[derive(Debug)]
pub struct AnswerStream {
    events: mpsc::Receiver<Result<BrainEvent, BrainError>>,
    task: Option<AbortHandle>,
    ended: bool,
}

impl AnswerStream {
    /// The next event; `None` after `Finished` or an error. Cancel safe: dropping the future loses
    /// no event.
    pub async fn next(&mut self) -> Option<Result<BrainEvent, BrainError>> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().await.unwrap_or_else(|| {
            let message = "the answer stopped before its end";
            Err(BrainError::new(BrainErrorKind::ConnectionLost, message))
        });
        self.ended = matches!(event, Err(_) | Ok(BrainEvent::Finished(_)));
        Some(event)
    }

    /// An answer whose events are all known.
    pub(crate) fn from_events(events: Vec<Result<BrainEvent, BrainError>>) -> Self {
        let (sender, receiver) = mpsc::channel(events.len().max(1));
        for event in events {
            sender
                .try_send(event)
                .expect("there is room for all of them");
        }
        Self {
            events: receiver,
            task: None,
            ended: false,
        }
    }

    /// An answer that a task produces.
    pub(crate) fn from_task<F>(
        produce: impl FnOnce(mpsc::Sender<Result<BrainEvent, BrainError>>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(EVENT_QUEUE_LEN);
        let task = tokio::spawn(produce(sender)).abort_handle();
        Self {
            events,
            task: Some(task),
            ended: false,
        }
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_breaks_off_ends_with_an_error_and_then_with_nothing() {
        let text = BrainEvent::Text("half".to_owned());
        let mut answer_stream = AnswerStream::from_events(vec![Ok(text.clone())]);
        assert_eq!(answer_stream.next().await, Some(Ok(text)));
        let broken = BrainError::new(
            BrainErrorKind::ConnectionLost,
            "the answer stopped before its end",
        );
        assert_eq!(answer_stream.next().await, Some(Err(broken)));
        assert_eq!(answer_stream.next().await, None);
    }

    #[tokio::test]
    async fn dropping_an_answer_ends_its_task() {
        let (alive, mut gone) = mpsc::channel::<()>(1);
        let answer_stream = AnswerStream::from_task(|_events| async move {
            let _alive = alive;
            std::future::pending().await
        });
        drop(answer_stream);
        assert_eq!(gone.recv().await, None);
    }
}
