//! Reads a command's recorded output line by line.

use std::collections::VecDeque;
use std::sync::Arc;

use pvp_protocol::payload::{OutputLine, OutputPage, OutputRead, OutputStream, ToolOutput};
use pvp_protocol::{Limits, Refusal, ServerMessage, SessionId, parse_server_message};
use pvp_session::OutputRange;

use crate::directory::SessionDirectory;
use crate::store::{ReadLimit, Store};

/// Lines in a page unless the request gives a number, and the most it may ask for.
const DEFAULT_LINES: u64 = 1000;
const MAX_LINES: u64 = 10_000;

/// Bytes of text in a page; a page must fit in a message with its escapes.
const MAX_PAGE_BYTES: usize = 256 * 1024;

const READ_LIMIT: ReadLimit = ReadLimit {
    records: 1024,
    bytes: 1024 * 1024,
};

/// Reads the lines that a request asks for.
pub(crate) async fn read_page(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    request: OutputRead,
) -> Result<OutputPage, Refusal> {
    let range = OutputLineRange::from_request(&request)?;
    let reference = request.reference.clone();
    let span = directory
        .query(session, move |session| session.output_range(&reference))
        .await;
    let span = span
        .flatten()
        .ok_or_else(|| Refusal::NoSuchProposal(request.reference.clone()))?;
    let permit = directory.read_permits.clone().acquire_owned().await;
    let (store, session) = (directory.store.clone(), session.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut collector = OutputLineCollector::new(range, request);
        scan_output(&store, &session, span, &mut collector)?;
        Ok(collector.into_page(span.last_seq.is_some()))
    });
    reading
        .await
        .unwrap_or_else(|panic| Err(Refusal::ReadFailed(panic.to_string())))
}

fn scan_output(
    store: &Store,
    session: &SessionId,
    span: OutputRange,
    collector: &mut OutputLineCollector,
) -> Result<(), Refusal> {
    let unreadable = Refusal::ReadFailed;
    let mut from = span.first_seq;
    loop {
        let records = store
            .read(session, from, READ_LIMIT)
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
                collector.push_output(output);
            }
        }
        match records.last() {
            Some(last) => from = last.seq + 1,
            None => return Ok(()),
        }
    }
}

/// Which of the matching lines a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputLineRange {
    Offset { offset: u64, limit: u64 },
    Tail(u64),
}

impl OutputLineRange {
    fn from_request(request: &OutputRead) -> Result<Self, Refusal> {
        let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
        let ranged = request.offset.is_some() || request.limit.is_some();
        match (request.head, request.tail) {
            (Some(_), Some(_)) => malformed("ask for `head` or for `tail`, not for both"),
            (Some(_), _) | (_, Some(_)) if ranged => {
                malformed("`head` and `tail` do not go with `offset` and `limit`")
            }
            (Some(head), None) => Ok(OutputLineRange::Offset {
                offset: 0,
                limit: head.min(MAX_LINES),
            }),
            (None, Some(tail)) => Ok(OutputLineRange::Tail(tail.min(MAX_LINES))),
            (None, None) => Ok(OutputLineRange::Offset {
                offset: request.offset.unwrap_or(0),
                limit: request.limit.unwrap_or(DEFAULT_LINES).min(MAX_LINES),
            }),
        }
    }
}

/// Joins chunks of output into lines and keeps the requested ones.
struct OutputLineCollector {
    /// Which of the matching lines to keep.
    range: OutputLineRange,
    /// The request, which says what a line must match.
    request: OutputRead,
    /// The unfinished last line of stdout and of stderr.
    partial_lines: [String; 2],
    /// The lines kept so far.
    lines: VecDeque<OutputLine>,
    /// Bytes of text in `lines`.
    bytes: usize,
    /// Lines seen so far, matching or not.
    total_lines: u64,
    /// Lines seen so far that match the request.
    matching_lines: u64,
    /// Bytes of output seen so far.
    total_bytes: u64,
    /// Whether requested text was left out because the page is full or a line is too long.
    truncated: bool,
}

impl OutputLineCollector {
    fn new(range: OutputLineRange, request: OutputRead) -> Self {
        Self {
            range,
            request,
            partial_lines: Default::default(),
            lines: VecDeque::new(),
            bytes: 0,
            total_lines: 0,
            matching_lines: 0,
            total_bytes: 0,
            truncated: false,
        }
    }

    fn push_output(&mut self, output: ToolOutput) {
        if output.tool_proposal != self.request.reference
            || self
                .request
                .stream
                .is_some_and(|stream| stream != output.stream)
        {
            return;
        }
        self.total_bytes += output.text.len() as u64;
        let slot = output.stream as usize;
        let mut text = std::mem::take(&mut self.partial_lines[slot]) + &output.text;
        let complete_end = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..complete_end].split_terminator('\n') {
            self.push_line(output.stream, line);
        }
        text.drain(..complete_end);
        // A line that is longer than a page is split.
        if (output.complete && !text.is_empty()) || text.len() > MAX_PAGE_BYTES {
            self.push_line(output.stream, &text);
            text.clear();
        }
        self.partial_lines[slot] = text;
    }

    fn push_line(&mut self, stream: OutputStream, mut text: &str) {
        let number = self.total_lines;
        self.total_lines += 1;
        if self
            .request
            .grep
            .as_ref()
            .is_some_and(|grep| !text.contains(grep.as_str()))
        {
            return;
        }
        let index = self.matching_lines;
        self.matching_lines += 1;
        if text.len() > MAX_PAGE_BYTES / 4 {
            text = &text[..text.floor_char_boundary(MAX_PAGE_BYTES / 4)];
            self.truncated = true;
        }
        match self.range {
            OutputLineRange::Offset { offset, limit } => {
                if index < offset || index - offset >= limit {
                    return;
                }
                if self.bytes + text.len() > MAX_PAGE_BYTES {
                    self.truncated = true;
                    return;
                }
            }
            OutputLineRange::Tail(count) => {
                while !self.lines.is_empty()
                    && (self.lines.len() as u64 >= count
                        || self.bytes + text.len() > MAX_PAGE_BYTES)
                {
                    self.truncated |= (self.lines.len() as u64) < count;
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

    fn into_page(mut self, finished: bool) -> OutputPage {
        for (slot, stream) in [OutputStream::Stdout, OutputStream::Stderr]
            .into_iter()
            .enumerate()
        {
            let rest = std::mem::take(&mut self.partial_lines[slot]);
            if !rest.is_empty() {
                self.push_line(stream, &rest);
            }
        }
        OutputPage {
            reference: self.request.reference,
            lines: self.lines.into(),
            total_lines: self.total_lines,
            total_bytes: self.total_bytes,
            finished,
            cut: self.truncated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::{ExtraFields, MessageId};

    fn collect_lines(change: impl FnOnce(&mut OutputRead)) -> Result<Vec<String>, Refusal> {
        let reference = MessageId::parse("p1").unwrap();
        let mut request = OutputRead {
            reference: reference.clone(),
            stream: None,
            offset: None,
            limit: None,
            head: None,
            tail: None,
            grep: None,
            extra: ExtraFields::new(),
        };
        change(&mut request);
        let mut collector =
            OutputLineCollector::new(OutputLineRange::from_request(&request)?, request);
        for (stream, text) in [
            (OutputStream::Stdout, "one\ntw"),
            (OutputStream::Stderr, "oops\n"),
            (OutputStream::Stdout, "o\nthree\n"),
            (OutputStream::Stdout, "four"),
        ] {
            let tool_proposal = reference.clone();
            let (text, extra) = (text.to_owned(), ExtraFields::new());
            collector.push_output(ToolOutput {
                tool_proposal,
                stream,
                text,
                complete: false,
                offset: None,
                extra,
            });
        }
        let page = collector.into_page(true);
        assert_eq!(page.total_bytes, 23);
        Ok(page
            .lines
            .iter()
            .map(|line| format!("{} {}", line.number, line.text))
            .collect())
    }

    #[test]
    fn chunks_are_joined_into_lines_and_filtered() {
        assert_eq!(
            collect_lines(|_| {}).unwrap(),
            ["0 one", "1 oops", "2 two", "3 three", "4 four"]
        );
        assert_eq!(
            collect_lines(|read| read.head = Some(2)).unwrap(),
            ["0 one", "1 oops"]
        );
        assert_eq!(
            collect_lines(|read| read.tail = Some(2)).unwrap(),
            ["3 three", "4 four"]
        );
        assert_eq!(
            collect_lines(|read| (read.offset, read.limit) = (Some(1), Some(2))).unwrap(),
            ["1 oops", "2 two"]
        );
        assert_eq!(
            collect_lines(|read| read.grep = Some("o".to_owned())).unwrap(),
            ["0 one", "1 oops", "2 two", "4 four"]
        );
        assert_eq!(
            collect_lines(|read| (read.grep, read.tail) = (Some("t".to_owned()), Some(1))).unwrap(),
            ["3 three"]
        );
        assert_eq!(
            collect_lines(|read| read.tail = Some(0)).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn wrong_combinations_are_refused_with_a_sentence() {
        for refusal in [
            collect_lines(|read| (read.head, read.tail) = (Some(1), Some(1))),
            collect_lines(|read| (read.head, read.offset) = (Some(1), Some(1))),
            collect_lines(|read| (read.tail, read.limit) = (Some(1), Some(1))),
        ] {
            assert!(matches!(refusal, Err(Refusal::Malformed(_))), "{refusal:?}");
        }
    }
}
