//! What an attendant thinks and says, on its way to everyone: in order, and not a word a message.

use std::time::Duration;

use pvp_client::{Connection, fresh_id};
use pvp_protocol::payload::{
    FinishReason, ResponseChunk, ResponseEnd, ResponseStart, ThinkingChunk, ThinkingEnd,
    ThinkingStart, UsageStats, Visibility, VisibilityGroup,
};
use pvp_protocol::{ClientMessage, ExtraFields, MessageId};
use tokio::time::{Instant, sleep_until};

use crate::brain::BrainEvent;

/// How long words may wait for more of them.
const COALESCE: Duration = Duration::from_millis(50);

/// Bytes that are told at once.
const CHUNK: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Response,
}

/// A stream that is open.
struct Open {
    kind: Kind,
    start: MessageId,
    since: Instant,
}

pub(super) struct Speech {
    connection: Connection,
    prompt: MessageId,
    open: Option<Open>,
    waiting: String,
    flush_at: Option<Instant>,
    said: String,
}

impl Speech {
    /// About a prompt, or about nothing that anyone asked.
    pub(super) fn new(connection: Connection, prompt: Option<MessageId>) -> Self {
        Self {
            connection,
            prompt: prompt.unwrap_or_else(fresh_id),
            open: None,
            waiting: String::new(),
            flush_at: None,
            said: String::new(),
        }
    }

    /// The beginning of what was said aloud.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    /// Passes on what people are to see of an event.
    pub(super) async fn take(&mut self, event: &BrainEvent) {
        match event {
            BrainEvent::Thinking(text) => self.add(Kind::Thinking, text).await,
            BrainEvent::Text(text) => self.say(text).await,
            BrainEvent::Retrying { why, wait } => {
                let seconds = wait.as_secs_f32();
                let text = format!("\n[asked again in {seconds:.0} s: {why}]\n");
                self.add(Kind::Thinking, &text).await;
            }
            BrainEvent::ThinkingSeal(_)
            | BrainEvent::HiddenThinking(_)
            | BrainEvent::Call(_)
            | BrainEvent::Usage(_)
            | BrainEvent::Finished(_) => {}
        }
    }

    pub(super) async fn say(&mut self, text: &str) {
        self.add(Kind::Response, text).await;
        if self.said.len() < CHUNK {
            self.said.push_str(text);
        }
    }

    async fn add(&mut self, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close().await;
            self.begin(kind).await;
        }
        self.waiting.push_str(text);
        self.flush_at.get_or_insert(Instant::now() + COALESCE);
        if self.waiting.len() >= CHUNK {
            self.flush().await;
        }
    }

    /// Waits until words have waited long enough; for ever if there are none.
    pub(super) async fn due(&self) {
        match self.flush_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Tells what waits.
    pub(super) async fn flush(&mut self) {
        self.flush_at = None;
        let text = std::mem::take(&mut self.waiting);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(CHUNK));
            let (text, extra) = (piece.to_owned(), ExtraFields::new());
            match self.open.as_ref().map(|open| open.kind) {
                Some(Kind::Thinking) => self.send(ThinkingChunk { text, extra }).await,
                Some(Kind::Response) => self.send(ResponseChunk { text, extra }).await,
                None => return,
            }
            rest = more;
        }
    }

    async fn begin(&mut self, kind: Kind) {
        let start = fresh_id();
        let (agent, prompt_ref) = (self.connection.participant().clone(), self.prompt.clone());
        let extra = ExtraFields::new();
        let message: ClientMessage = match kind {
            Kind::Thinking => ThinkingStart {
                agent,
                prompt_ref,
                visible_to: Visibility::Group(VisibilityGroup::All),
                extra,
            }
            .into(),
            Kind::Response => ResponseStart {
                agent,
                prompt_ref,
                extra,
            }
            .into(),
        };
        if kind == Kind::Response && !self.said.is_empty() {
            self.said.push('\n');
        }
        self.send_as(start.clone(), None, message).await;
        let since = Instant::now();
        self.open = Some(Open { kind, start, since });
    }

    /// Ends thinking; a response waits for how the answer ends.
    async fn close(&mut self) {
        self.flush().await;
        let Some(open) = self.open.take() else { return };
        let about = Some(open.start);
        match open.kind {
            Kind::Thinking => {
                let duration = open.since.elapsed().as_millis();
                let end = ThinkingEnd {
                    summary: None,
                    duration_ms: u64::try_from(duration).ok(),
                    extra: ExtraFields::new(),
                };
                self.send_as(fresh_id(), about, end).await;
            }
            Kind::Response => {
                let end = ended(FinishReason::ToolUse, None);
                self.send_as(fresh_id(), about, end).await;
            }
        }
    }

    /// The end of the answer. Also an answer without a word has one, if there is something to say
    /// about it: what it cost, or that it broke off.
    pub(super) async fn end(mut self, finish: FinishReason, usage: Option<UsageStats>) {
        if !matches!(&self.open, Some(open) if open.kind == Kind::Response) {
            self.close().await;
            let uneventful = match finish {
                FinishReason::Complete | FinishReason::ToolUse => true,
                FinishReason::Interrupted | FinishReason::Error | FinishReason::MaxTokens => false,
            };
            if uneventful && usage.is_none() {
                return;
            }
            self.begin(Kind::Response).await;
        }
        self.flush().await;
        let about = self.open.take().map(|open| open.start);
        self.send_as(fresh_id(), about, ended(finish, usage)).await;
    }

    async fn send(&self, message: impl Into<ClientMessage>) {
        let about = self.open.as_ref().map(|open| open.start.clone());
        self.send_as(fresh_id(), about, message).await;
    }

    async fn send_as(
        &self,
        id: MessageId,
        about: Option<MessageId>,
        message: impl Into<ClientMessage>,
    ) {
        // The answer to it is not waited for: what follows is sent in the same order.
        if let Err(error) = self.connection.send_with_id(id, about, message).await {
            tracing::warn!(%error, "what was said was not sent");
        }
    }
}

fn ended(finish_reason: FinishReason, usage: Option<UsageStats>) -> ResponseEnd {
    ResponseEnd {
        finish_reason,
        usage,
        extra: ExtraFields::new(),
    }
}
