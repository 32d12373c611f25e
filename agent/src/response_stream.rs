//! Streams what an agent thinks and says to the session, in order and coalesced into chunks.

use std::time::Duration;

use pvp_client::{Connection, fresh_id};
use pvp_protocol::payload::{
    FinishReason, ResponseChunk, ResponseEnd, ResponseStart, ThinkingChunk, ThinkingEnd,
    ThinkingStart, UsageStats, Visibility, VisibilityGroup,
};
use pvp_protocol::{ClientMessage, ExtraFields, MessageId};
use tokio::time::{Instant, sleep_until};

use crate::brain::BrainEvent;

/// How long text may wait for more text.
const COALESCE_DELAY: Duration = Duration::from_millis(50);

/// Bytes of one chunk.
const MAX_CHUNK_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponsePartKind {
    Thinking,
    Response,
}

/// A part that was started and not ended yet.
struct OpenResponsePart {
    kind: ResponsePartKind,
    start_id: MessageId,
    started_at: Instant,
}

/// One answer of an agent, as it comes.
pub struct ResponseStream {
    /// The connection to the session.
    connection: Connection,
    /// The prompt that this responds to; a fresh id if there is none.
    prompt_id: MessageId,
    /// The part that is being sent; `None` before the first and after the last.
    open_part: Option<OpenResponsePart>,
    /// Text that is not sent yet.
    buffer: String,
    /// When the buffer is sent; `None` while it is empty.
    flush_at: Option<Instant>,
    /// The beginning of the response text, without thinking, for the event callback.
    response_text: String,
}

impl ResponseStream {
    /// Responds to a prompt, or to nothing in particular.
    pub fn new(connection: Connection, prompt: Option<MessageId>) -> Self {
        Self {
            connection,
            prompt_id: prompt.unwrap_or_else(fresh_id),
            open_part: None,
            buffer: String::new(),
            flush_at: None,
            response_text: String::new(),
        }
    }

    /// The beginning of the response text, without thinking.
    pub fn response_text(&self) -> &str {
        &self.response_text
    }

    /// Sends what people should see of an event.
    pub(crate) async fn on_event(&mut self, event: &BrainEvent) {
        match event {
            BrainEvent::Thinking(text) => self.push_thinking(text).await,
            BrainEvent::Text(text) => self.push_text(text).await,
            BrainEvent::Retrying { why, wait } => {
                let seconds = wait.as_secs_f32();
                let text = format!("\n[retrying in {seconds:.0} s: {why}]\n");
                self.push_thinking(&text).await;
            }
            BrainEvent::ThinkingSignature(_)
            | BrainEvent::RedactedThinking(_)
            | BrainEvent::ToolCall(_)
            | BrainEvent::Usage(_)
            | BrainEvent::Finished(_) => {}
        }
    }

    /// Adds what the agent thinks.
    pub async fn push_thinking(&mut self, text: &str) {
        self.push(ResponsePartKind::Thinking, text).await;
    }

    /// Adds what the agent says.
    pub async fn push_text(&mut self, text: &str) {
        self.push(ResponsePartKind::Response, text).await;
        if self.response_text.len() < MAX_CHUNK_BYTES {
            self.response_text.push_str(text);
        }
    }

    async fn push(&mut self, kind: ResponsePartKind, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open_part.as_ref().is_none_or(|open| open.kind != kind) {
            self.close_part().await;
            self.begin_part(kind).await;
        }
        self.buffer.push_str(text);
        self.flush_at.get_or_insert(Instant::now() + COALESCE_DELAY);
        if self.buffer.len() >= MAX_CHUNK_BYTES {
            self.flush().await;
        }
    }

    /// Waits until the buffer should be sent; forever if it is empty.
    pub async fn wait_flush_due(&self) {
        match self.flush_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Sends the buffer.
    pub async fn flush(&mut self) {
        self.flush_at = None;
        let text = std::mem::take(&mut self.buffer);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES));
            let (text, extra) = (chunk.to_owned(), ExtraFields::new());
            match self.open_part.as_ref().map(|open| open.kind) {
                Some(ResponsePartKind::Thinking) => self.send(ThinkingChunk { text, extra }).await,
                Some(ResponsePartKind::Response) => self.send(ResponseChunk { text, extra }).await,
                None => return,
            }
            rest = more;
        }
    }

    async fn begin_part(&mut self, kind: ResponsePartKind) {
        let start = fresh_id();
        let (agent, prompt_ref) = (
            self.connection.participant().clone(),
            self.prompt_id.clone(),
        );
        let extra = ExtraFields::new();
        let message: ClientMessage = match kind {
            ResponsePartKind::Thinking => ThinkingStart {
                agent,
                prompt_ref,
                visible_to: Visibility::Group(VisibilityGroup::All),
                extra,
            }
            .into(),
            ResponsePartKind::Response => ResponseStart {
                agent,
                prompt_ref,
                extra,
            }
            .into(),
        };
        if kind == ResponsePartKind::Response && !self.response_text.is_empty() {
            self.response_text.push('\n');
        }
        self.send_with_id(start.clone(), None, message).await;
        let since = Instant::now();
        self.open_part = Some(OpenResponsePart {
            kind,
            start_id: start,
            started_at: since,
        });
    }

    /// Ends the open part. A response that ends here is followed by more of the same answer.
    async fn close_part(&mut self) {
        self.flush().await;
        let Some(open) = self.open_part.take() else {
            return;
        };
        let reference = Some(open.start_id);
        match open.kind {
            ResponsePartKind::Thinking => {
                let duration = open.started_at.elapsed().as_millis();
                let end = ThinkingEnd {
                    summary: None,
                    duration_ms: u64::try_from(duration).ok(),
                    extra: ExtraFields::new(),
                };
                self.send_with_id(fresh_id(), reference, end).await;
            }
            ResponsePartKind::Response => {
                let end = response_end(FinishReason::ToolUse, None);
                self.send_with_id(fresh_id(), reference, end).await;
            }
        }
    }

    /// Ends the answer. An answer without text gets an end too if there is something to report: its
    /// usage, or that it broke off.
    pub async fn finish(mut self, finish: FinishReason, usage: Option<UsageStats>) {
        if !matches!(&self.open_part, Some(open) if open.kind == ResponsePartKind::Response) {
            self.close_part().await;
            let uneventful = match finish {
                FinishReason::Complete | FinishReason::ToolUse => true,
                FinishReason::Interrupted | FinishReason::Error | FinishReason::MaxTokens => false,
            };
            if uneventful && usage.is_none() {
                return;
            }
            self.begin_part(ResponsePartKind::Response).await;
        }
        self.flush().await;
        let reference = self.open_part.take().map(|open| open.start_id);
        self.send_with_id(fresh_id(), reference, response_end(finish, usage))
            .await;
    }

    async fn send(&self, message: impl Into<ClientMessage>) {
        let reference = self.open_part.as_ref().map(|open| open.start_id.clone());
        self.send_with_id(fresh_id(), reference, message).await;
    }

    async fn send_with_id(
        &self,
        id: MessageId,
        reference: Option<MessageId>,
        message: impl Into<ClientMessage>,
    ) {
        // There is no need to wait for the acknowledgement: messages are sent in order.
        if let Err(error) = self.connection.send_with_id(id, reference, message).await {
            tracing::warn!(%error, "what was said was not sent");
        }
    }
}

fn response_end(finish_reason: FinishReason, usage: Option<UsageStats>) -> ResponseEnd {
    ResponseEnd {
        finish_reason,
        usage,
        extra: ExtraFields::new(),
    }
}
