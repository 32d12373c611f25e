//! From the bytes of a stream to the events of an answer, within bounds.

use super::super::{BrainError, BrainEvent, Trouble};
use super::sse::{self, Sse};
use super::{Dialect, anthropic, openai};

/// Bytes of one answer as it is sent; far more than any model answers.
const ANSWER: usize = 64 * 1024 * 1024;

/// Calls of one answer that are kept, so that each is answered; far more than are begun.
const CALLS: usize = 1024;
/// From bytes to events.
pub(crate) struct Decoding {
    sse: Sse,
    decoder: Decoder,
}

enum Decoder {
    Anthropic(Box<anthropic::Decoder>),
    OpenAi(Box<openai::Decoder>),
}

impl Decoding {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let decoder = match dialect {
            Dialect::Anthropic => Decoder::Anthropic(Box::default()),
            Dialect::OpenAi => Decoder::OpenAi(Box::default()),
        };
        Self {
            sse: Sse::default(),
            decoder,
        }
    }

    /// Whether everything came that matters, whatever is missing of the end.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.decoder {
            Decoder::Anthropic(decoder) => decoder.is_whole(),
            Decoder::OpenAi(decoder) => decoder.is_whole(),
        }
    }

    /// The events that these bytes complete, up to the first thing that is wrong.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Result<BrainEvent, BrainError>> {
        match self.sse.take(bytes) {
            Ok(data) => self.decode(data),
            Err(sse::TooLong) => vec![Err(endless())],
        }
    }

    pub(crate) fn end(&mut self) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = match self.sse.end() {
            Ok(data) => self.decode(data),
            Err(sse::TooLong) => vec![Err(endless())],
        };
        let over = |event: &Result<BrainEvent, BrainError>| {
            matches!(event, Err(_) | Ok(BrainEvent::Finished(_)))
        };
        if !events.iter().any(over) {
            let end = match &mut self.decoder {
                Decoder::Anthropic(decoder) => decoder.end(),
                Decoder::OpenAi(decoder) => decoder.end(),
            };
            add(&mut events, end);
        }
        events
    }

    fn decode(
        &mut self,
        data: impl IntoIterator<Item = sse::Data>,
    ) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = Vec::new();
        for data in data {
            let more = match &mut self.decoder {
                Decoder::Anthropic(decoder) => decoder.take(&data),
                Decoder::OpenAi(decoder) => decoder.take(&data),
            };
            let over = match &more {
                Ok(more) => more.iter().any(|it| matches!(it, BrainEvent::Finished(_))),
                Err(_) => true,
            };
            add(&mut events, more);
            if over {
                break;
            }
        }
        events
    }
}

fn add(
    events: &mut Vec<Result<BrainEvent, BrainError>>,
    more: Result<Vec<BrainEvent>, BrainError>,
) {
    match more {
        Ok(more) => events.extend(more.into_iter().map(Ok)),
        Err(error) => events.push(Err(error)),
    }
}

fn endless() -> BrainError {
    BrainError::new(Trouble::Nonsense, "the provider sent an event without end")
}

/// Bounds one answer.
#[derive(Debug, Default)]
pub(super) struct Measure {
    bytes: usize,
    calls: usize,
}

impl Measure {
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), BrainError> {
        self.bytes += bytes;
        if self.bytes <= ANSWER {
            return Ok(());
        }
        let message = "the provider's answer does not end";
        Err(BrainError::new(Trouble::Refused, message))
    }

    /// Counts one more call; whether it is kept.
    pub(super) fn keeps_call(&mut self) -> bool {
        self.calls += 1;
        self.calls <= CALLS
    }
}
