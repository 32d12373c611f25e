//! Reading a command's recorded output by lines.

use std::collections::VecDeque;
use std::sync::Arc;

use pvp_protocol::payload::{OutputLine, OutputPage, OutputRead, OutputStream, ToolOutput};
use pvp_protocol::{Limits, Refusal, ServerMessage, SessionId, parse_server_message};
use pvp_session::OutputRange;

use crate::house::House;
use crate::store::{ReadBound, Store};

/// Lines of a page unless the reader says otherwise, and at most.
const DEFAULT_LINES: u64 = 1000;
const MOST_LINES: u64 = 10_000;

/// Bytes of text in a page; a page must fit in a message with its escapes.
const MOST_BYTES: usize = 256 * 1024;

const PAGE: ReadBound = ReadBound {
    records: 1024,
    bytes: 1024 * 1024,
};

/// The lines that were asked for.
pub(crate) async fn page(
    house: &Arc<House>,
    session: &SessionId,
    read: OutputRead,
) -> Result<OutputPage, Refusal> {
    let wanted = Wanted::from(&read)?;
    let reference = read.reference.clone();
    let span = house
        .ask(session, move |session| session.output_range(&reference))
        .await;
    let span = span
        .flatten()
        .ok_or_else(|| Refusal::NoSuchProposal(read.reference.clone()))?;
    let permit = house.readers.clone().acquire_owned().await;
    let (store, session) = (house.store.clone(), session.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut picker = Picker::new(wanted, read);
        scan(&store, &session, span, &mut picker)?;
        Ok(picker.page(span.last_seq.is_some()))
    });
    reading
        .await
        .unwrap_or_else(|panic| Err(Refusal::ReadFailed(panic.to_string())))
}

fn scan(
    store: &Store,
    session: &SessionId,
    span: OutputRange,
    picker: &mut Picker,
) -> Result<(), Refusal> {
    let unreadable = Refusal::ReadFailed;
    let mut from = span.first_seq;
    loop {
        let records = store
            .read(session, from, PAGE)
            .map_err(|error| unreadable(error.to_string()))?;
        for record in &records {
            if span.last_seq.is_some_and(|last| record.seq > last) {
                return Ok(());
            }
            let text =
                std::str::from_utf8(&record.body).map_err(|error| unreadable(error.to_string()))?;
            if !text.contains("\"tool.output\"") {
                continue;
            }
            if let Ok(Some(envelope)) = parse_server_message(text, &Limits::default())
                && let ServerMessage::ToolOutput(output) = envelope.message
            {
                picker.take(output);
            }
        }
        match records.last() {
            Some(last) => from = last.seq + 1,
            None => return Ok(()),
        }
    }
}

/// Which of the lines that match are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    From { offset: u64, limit: u64 },
    Last(u64),
}

impl Wanted {
    fn from(read: &OutputRead) -> Result<Self, Refusal> {
        let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
        let ranged = read.offset.is_some() || read.limit.is_some();
        match (read.head, read.tail) {
            (Some(_), Some(_)) => malformed("ask for `head` or for `tail`, not for both"),
            (Some(_), _) | (_, Some(_)) if ranged => {
                malformed("`head` and `tail` do not go with `offset` and `limit`")
            }
            (Some(head), None) => Ok(Wanted::From {
                offset: 0,
                limit: head.min(MOST_LINES),
            }),
            (None, Some(tail)) => Ok(Wanted::Last(tail.min(MOST_LINES))),
            (None, None) => Ok(Wanted::From {
                offset: read.offset.unwrap_or(0),
                limit: read.limit.unwrap_or(DEFAULT_LINES).min(MOST_LINES),
            }),
        }
    }
}

/// Puts chunks together to lines and keeps the wanted ones.
struct Picker {
    wanted: Wanted,
    read: OutputRead,
    partial: [String; 2],
    lines: VecDeque<OutputLine>,
    bytes: usize,
    total_lines: u64,
    matching: u64,
    total_bytes: u64,
    cut: bool,
}

impl Picker {
    fn new(wanted: Wanted, read: OutputRead) -> Self {
        Self {
            wanted,
            read,
            partial: Default::default(),
            lines: VecDeque::new(),
            bytes: 0,
            total_lines: 0,
            matching: 0,
            total_bytes: 0,
            cut: false,
        }
    }

    fn take(&mut self, output: ToolOutput) {
        if output.tool_proposal != self.read.reference
            || self
                .read
                .stream
                .is_some_and(|stream| stream != output.stream)
        {
            return;
        }
        self.total_bytes += output.text.len() as u64;
        let slot = output.stream as usize;
        let mut text = std::mem::take(&mut self.partial[slot]) + &output.text;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].split_terminator('\n') {
            self.line(output.stream, line);
        }
        text.drain(..whole);
        // A line that never ends is told in pieces.
        if (output.complete && !text.is_empty()) || text.len() > MOST_BYTES {
            self.line(output.stream, &text);
            text.clear();
        }
        self.partial[slot] = text;
    }

    fn line(&mut self, stream: OutputStream, mut text: &str) {
        let number = self.total_lines;
        self.total_lines += 1;
        if self
            .read
            .grep
            .as_ref()
            .is_some_and(|grep| !text.contains(grep.as_str()))
        {
            return;
        }
        let place = self.matching;
        self.matching += 1;
        if text.len() > MOST_BYTES / 4 {
            text = &text[..text.floor_char_boundary(MOST_BYTES / 4)];
            self.cut = true;
        }
        match self.wanted {
            Wanted::From { offset, limit } => {
                if place < offset || place - offset >= limit {
                    return;
                }
                if self.bytes + text.len() > MOST_BYTES {
                    self.cut = true;
                    return;
                }
            }
            Wanted::Last(count) => {
                while !self.lines.is_empty()
                    && (self.lines.len() as u64 >= count || self.bytes + text.len() > MOST_BYTES)
                {
                    self.cut |= (self.lines.len() as u64) < count;
                    self.bytes -= self.lines.pop_front().map_or(0, |line| line.text.len());
                }
                if count == 0 {
                    return;
                }
            }
        }
        self.bytes += text.len();
        self.lines.push_back(OutputLine {
            number,
            stream,
            text: text.to_owned(),
        });
    }

    fn page(mut self, finished: bool) -> OutputPage {
        for (slot, stream) in [OutputStream::Stdout, OutputStream::Stderr]
            .into_iter()
            .enumerate()
        {
            let rest = std::mem::take(&mut self.partial[slot]);
            if !rest.is_empty() {
                self.line(stream, &rest);
            }
        }
        OutputPage {
            reference: self.read.reference,
            lines: self.lines.into(),
            total_lines: self.total_lines,
            total_bytes: self.total_bytes,
            finished,
            cut: self.cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::{ExtraFields, MessageId};

    fn ask(change: impl FnOnce(&mut OutputRead)) -> Result<Vec<String>, Refusal> {
        let reference = MessageId::parse("p1").unwrap();
        let mut read = OutputRead {
            reference: reference.clone(),
            stream: None,
            offset: None,
            limit: None,
            head: None,
            tail: None,
            grep: None,
            extra: ExtraFields::new(),
        };
        change(&mut read);
        let mut picker = Picker::new(Wanted::from(&read)?, read);
        for (stream, text) in [
            (OutputStream::Stdout, "one\ntw"),
            (OutputStream::Stderr, "oops\n"),
            (OutputStream::Stdout, "o\nthree\n"),
            (OutputStream::Stdout, "four"),
        ] {
            let tool_proposal = reference.clone();
            let (text, extra) = (text.to_owned(), ExtraFields::new());
            picker.take(ToolOutput {
                tool_proposal,
                stream,
                text,
                complete: false,
                offset: None,
                extra,
            });
        }
        let page = picker.page(true);
        assert_eq!(page.total_bytes, 23);
        Ok(page
            .lines
            .iter()
            .map(|line| format!("{} {}", line.number, line.text))
            .collect())
    }

    #[test]
    fn lines_are_put_together_and_picked() {
        assert_eq!(
            ask(|_| {}).unwrap(),
            ["0 one", "1 oops", "2 two", "3 three", "4 four"]
        );
        assert_eq!(
            ask(|read| read.head = Some(2)).unwrap(),
            ["0 one", "1 oops"]
        );
        assert_eq!(
            ask(|read| read.tail = Some(2)).unwrap(),
            ["3 three", "4 four"]
        );
        assert_eq!(
            ask(|read| (read.offset, read.limit) = (Some(1), Some(2))).unwrap(),
            ["1 oops", "2 two"]
        );
        assert_eq!(
            ask(|read| read.grep = Some("o".to_owned())).unwrap(),
            ["0 one", "1 oops", "2 two", "4 four"]
        );
        assert_eq!(
            ask(|read| (read.grep, read.tail) = (Some("t".to_owned()), Some(1))).unwrap(),
            ["3 three"]
        );
        assert_eq!(
            ask(|read| read.tail = Some(0)).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn wrong_combinations_are_refused_with_a_sentence() {
        for refusal in [
            ask(|read| (read.head, read.tail) = (Some(1), Some(1))),
            ask(|read| (read.head, read.offset) = (Some(1), Some(1))),
            ask(|read| (read.tail, read.limit) = (Some(1), Some(1))),
        ] {
            assert!(matches!(refusal, Err(Refusal::Malformed(_))), "{refusal:?}");
        }
    }
}
