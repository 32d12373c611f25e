//! Decodes the bytes of a stream into the events of an answer, within limits.

use super::super::{BrainError, BrainErrorKind, BrainEvent};
use super::sse::{self, SseParser};
use super::{Dialect, anthropic, openai};

/// Bytes of one answer as it is sent; far more than any model answers.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Calls of one answer that are kept, so that each gets a result; far more than are started.
const MAX_CALLS: usize = 1024;

/// Decodes the stream of one answer.
pub(crate) struct AnswerDecoder {
    sse: SseParser,
    decoder: DialectDecoder,
}

enum DialectDecoder {
    Anthropic(Box<anthropic::AnthropicDecoder>),
    OpenAi(Box<openai::OpenAiDecoder>),
}

impl AnswerDecoder {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let decoder = match dialect {
            Dialect::Anthropic => DialectDecoder::Anthropic(Box::default()),
            Dialect::OpenAi => DialectDecoder::OpenAi(Box::default()),
        };
        Self {
            sse: SseParser::default(),
            decoder,
        }
    }

    /// Whether everything that matters has arrived, even if the formal end is missing.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.decoder {
            DialectDecoder::Anthropic(decoder) => decoder.is_complete(),
            DialectDecoder::OpenAi(decoder) => decoder.is_complete(),
        }
    }

    /// The events that these bytes complete, up to the first error.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Result<BrainEvent, BrainError>> {
        match self.sse.push(bytes) {
            Ok(data) => self.decode(data),
            Err(sse::SseTooLong) => vec![Err(endless_event_error())],
        }
    }

    pub(crate) fn finish(&mut self) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = match self.sse.finish() {
            Ok(data) => self.decode(data),
            Err(sse::SseTooLong) => vec![Err(endless_event_error())],
        };
        let over = |event: &Result<BrainEvent, BrainError>| {
            matches!(event, Err(_) | Ok(BrainEvent::Finished(_)))
        };
        if !events.iter().any(over) {
            let end = match &mut self.decoder {
                DialectDecoder::Anthropic(decoder) => decoder.finish(),
                DialectDecoder::OpenAi(decoder) => decoder.finish(),
            };
            extend_events(&mut events, end);
        }
        events
    }

    fn decode(
        &mut self,
        data: impl IntoIterator<Item = sse::SseData>,
    ) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = Vec::new();
        for data in data {
            let more = match &mut self.decoder {
                DialectDecoder::Anthropic(decoder) => decoder.push(&data),
                DialectDecoder::OpenAi(decoder) => decoder.push(&data),
            };
            let over = match &more {
                Ok(more) => more.iter().any(|it| matches!(it, BrainEvent::Finished(_))),
                Err(_) => true,
            };
            extend_events(&mut events, more);
            if over {
                break;
            }
        }
        events
    }
}

fn extend_events(
    events: &mut Vec<Result<BrainEvent, BrainError>>,
    more: Result<Vec<BrainEvent>, BrainError>,
) {
    match more {
        Ok(more) => events.extend(more.into_iter().map(Ok)),
        Err(error) => events.push(Err(error)),
    }
}

fn endless_event_error() -> BrainError {
    BrainError::new(
        BrainErrorKind::InvalidResponse,
        "the provider sent an event that is too long",
    )
}

/// Limits the size of one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerLimits {
    bytes: usize,
    calls: usize,
}

impl AnswerLimits {
    pub(super) fn add_bytes(&mut self, bytes: usize) -> Result<(), BrainError> {
        self.bytes += bytes;
        if self.bytes <= MAX_ANSWER_BYTES {
            return Ok(());
        }
        let message = "the provider's answer is too long";
        Err(BrainError::new(BrainErrorKind::Refused, message))
    }

    /// Counts one more call; returns whether it is kept.
    pub(super) fn allow_call(&mut self) -> bool {
        self.calls += 1;
        self.calls <= MAX_CALLS
    }
}
