//! Reads a command's recorded output line by line. A page costs what it returns, wherever in the
//! output it is; only a search reads more, and at most [`MAX_SEARCH_BYTES`] in
//! [`MAX_SEARCH_CHUNKS`] for a page.

mod line_assembler;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pvp_protocol::payload::{OutputLine, OutputPage, OutputRead, ToolOutput};
use pvp_protocol::{Limits, MessageId, Refusal, ServerMessage, SessionId, parse_server_message};
use pvp_session::{IndexedChunk, OutputPosition, OutputStreams};

use line_assembler::LineAssembler;

use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{LogRecord, OutputQuery, OutputSlice, OutputStart, ReadLimit, Store};

/// Lines in a page unless the request gives a number, and the most it may ask for.
const DEFAULT_LINES: u64 = 1000;
const MAX_LINES: u64 = 10_000;

/// Bytes of text in a page; a page must fit in a message with its escapes.
const MAX_PAGE_BYTES: usize = 256 * 1024;

/// A page has at most this many bytes of one line.
const MAX_PAGE_LINE_BYTES: usize = MAX_PAGE_BYTES / 4;

/// How many bytes of output are read for one page, and in how many chunks. A page has at least one
/// line, however many chunks that line has.
const MAX_SEARCH_BYTES: u64 = 8 * 1024 * 1024;
const MAX_SEARCH_CHUNKS: usize = 16 * 1024;

/// How much output is read at a time at most.
const WINDOW: ReadLimit = ReadLimit {
    records: 1024,
    bytes: 2 * 1024 * 1024,
};

/// How many chunks are read at a time at least.
const MIN_WINDOW_CHUNKS: usize = 16;

/// Reads the lines that a request asks for.
pub(crate) async fn read_page(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    request: OutputRead,
) -> Result<OutputPage, Refusal> {
    let range = OutputLineRange::from_request(&request)?;
    let found = directory.find_proposal(session, &request.reference).await?;
    let proposal = found.filter(|proposal| proposal.id == request.reference);
    let proposal = proposal.ok_or_else(|| Refusal::NoSuchProposal(request.reference.clone()))?;
    let reader = OutputReader {
        store: directory.store.as_ref(),
        session,
        run: proposal.seqs.proposed,
        end: proposal.output,
        request,
    };
    let page = match range {
        OutputLineRange::Offset { offset, limit } => reader.read_from(offset, limit).await?,
        OutputLineRange::Tail(0) => PageLines::default(),
        OutputLineRange::Tail(count) => reader.read_tail(count).await?,
    };
    Ok(OutputPage {
        total_lines: reader.end.total_lines(reader.streams()),
        total_bytes: reader.end.total_bytes(reader.streams()),
        reference: reader.request.reference,
        lines: page.lines.into(),
        next: page.next,
        finished: proposal.closed.is_some(),
        cut: page.cut,
    })
}

/// Which lines a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputLineRange {
    /// From this line on; so many, or so many that match.
    Offset { offset: u64, limit: u64 },
    /// The last lines, or the last ones that match.
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

/// The lines of a page while they are collected.
#[derive(Default)]
struct PageLines {
    lines: VecDeque<OutputLine>,
    /// Bytes of text in `lines`.
    bytes: usize,
    /// Where the next page begins; `None` if nothing follows.
    next: Option<u64>,
    /// Whether requested text was left out because the page is full or a line is too long.
    cut: bool,
}

impl PageLines {
    fn has_room_for(&self, line: &OutputLine) -> bool {
        self.bytes + line.text.len() <= MAX_PAGE_BYTES
    }

    /// Shortens a line that is too long for a page.
    fn shorten(&mut self, line: &mut OutputLine) {
        if line.text.len() > MAX_PAGE_LINE_BYTES {
            let end = line.text.floor_char_boundary(MAX_PAGE_LINE_BYTES);
            line.text.truncate(end);
            self.cut = true;
        }
    }

    fn push_back(&mut self, line: OutputLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
    }

    fn push_front(&mut self, line: OutputLine) {
        self.bytes += line.text.len();
        self.lines.push_front(line);
    }
}

/// Consecutive lines of a command's output.
struct LineWindow {
    lines: Vec<OutputLine>,
    /// How far the output had come before the window, and after it.
    before: OutputPosition,
    after: OutputPosition,
    /// What was read for it.
    cost: ReadCost,
}

/// How much output was read for a page.
#[derive(Clone, Copy, Default)]
struct ReadCost {
    bytes: u64,
    chunks: usize,
}

impl ReadCost {
    fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.chunks += more.chunks;
    }

    fn is_too_much(self) -> bool {
        self.bytes >= MAX_SEARCH_BYTES || self.chunks >= MAX_SEARCH_CHUNKS
    }
}

/// Reads the output of one command, up to where it had come when the request arrived.
struct OutputReader<'a> {
    store: &'a dyn Store,
    session: &'a SessionId,
    /// The sequence number of the command's proposal.
    run: u64,
    end: OutputPosition,
    request: OutputRead,
}

impl OutputReader<'_> {
    fn streams(&self) -> OutputStreams {
        OutputStreams(self.request.stream)
    }

    fn matches(&self, line: &OutputLine) -> bool {
        let grep = self.request.grep.as_ref();
        grep.is_none_or(|grep| line.text.contains(grep.as_str()))
    }

    /// Reads at most `limit` matching lines from the line `offset` on.
    async fn read_from(&self, offset: u64, limit: u64) -> Result<PageLines, Refusal> {
        let mut page = PageLines::default();
        if limit == 0 || offset >= self.end.total_lines(self.streams()) {
            return Ok(page);
        }
        let mut from = OutputStart::LineOrByte {
            line: Some(offset),
            byte: 0,
        };
        let mut assembler = LineAssembler::default();
        let mut cost = ReadCost::default();
        loop {
            let chunks = self.chunks_for(limit - page.lines.len() as u64);
            let window = self.read_window(&mut assembler, from, self.end, chunks);
            let window = window.await?;
            cost.add(window.cost);
            for mut line in window.lines {
                if line.number < offset || !self.matches(&line) {
                    continue;
                }
                page.shorten(&mut line);
                if page.lines.len() as u64 == limit {
                    page.next = Some(line.number);
                    return Ok(page);
                }
                if !page.has_room_for(&line) {
                    (page.next, page.cut) = (Some(line.number), true);
                    return Ok(page);
                }
                page.push_back(line);
            }
            if window.after == self.end {
                return Ok(page);
            }
            let full = page.lines.len() as u64 == limit;
            let next = window.after.ended_lines(self.streams());
            if full || (cost.is_too_much() && next > offset) {
                page.next = Some(next);
                return Ok(page);
            }
            from = OutputStart::Position(window.after);
        }
    }

    /// Reads the last `count` matching lines, going backwards.
    async fn read_tail(&self, count: u64) -> Result<PageLines, Refusal> {
        let mut page = PageLines::default();
        let total_lines = self.end.total_lines(self.streams());
        let line = match self.request.grep {
            Some(_) => None,
            None => total_lines.checked_sub(count),
        };
        let mut until = self.end;
        let mut cost = ReadCost::default();
        while until.total_bytes(self.streams()) > 0 {
            let bytes_left = until.total_bytes(self.streams());
            let byte = bytes_left.saturating_sub(WINDOW.bytes as u64 / 2);
            let from = OutputStart::LineOrByte { line, byte };
            let window = self.read_windows(from, until).await?;
            cost.add(window.cost);
            for mut line in window.lines.into_iter().rev() {
                if !self.matches(&line) {
                    continue;
                }
                page.shorten(&mut line);
                if page.lines.len() as u64 == count {
                    return Ok(page);
                }
                if !page.has_room_for(&line) {
                    page.cut = true;
                    return Ok(page);
                }
                page.push_front(line);
            }
            if page.lines.len() as u64 == count {
                return Ok(page);
            }
            until = window.before;
            if cost.is_too_much() && until.total_bytes(self.streams()) > 0 {
                page.cut = true;
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// Reads all the lines that end from `from` on and before `until`.
    async fn read_windows(
        &self,
        from: OutputStart,
        until: OutputPosition,
    ) -> Result<LineWindow, Refusal> {
        let mut assembler = LineAssembler::default();
        let first = self.read_window(&mut assembler, from, until, WINDOW.records);
        let mut all = first.await?;
        while all.after != until {
            let from = OutputStart::Position(all.after);
            let next = self.read_window(&mut assembler, from, until, WINDOW.records);
            let next = next.await?;
            all.lines.extend(next.lines);
            all.after = next.after;
            all.cost.add(next.cost);
        }
        Ok(all)
    }

    /// How many chunks to read for this many lines: most chunks have a line or more, but who searches
    /// needs more than that.
    fn chunks_for(&self, lines: u64) -> usize {
        match self.request.grep {
            Some(_) => WINDOW.records,
            None => usize::try_from(lines)
                .unwrap_or(usize::MAX)
                .clamp(MIN_WINDOW_CHUNKS, WINDOW.records),
        }
    }

    /// Reads lines that end from `from` on and before `until`, in at most so many chunks.
    async fn read_window(
        &self,
        assembler: &mut LineAssembler,
        from: OutputStart,
        until: OutputPosition,
        chunks: usize,
    ) -> Result<LineWindow, Refusal> {
        let query = OutputQuery {
            run: self.run,
            streams: self.streams(),
            from,
            until,
            limit: ReadLimit {
                records: chunks,
                ..WINDOW
            },
        };
        let slice = self.store.output_slice(self.session, query).await?;
        let outputs = self.read_chunks(&slice).await?;
        if matches!(from, OutputStart::LineOrByte { .. }) {
            assembler.next_line = slice.before.ended_lines(self.streams());
            for chunk in &slice.unfinished {
                assembler.resume(output_of(&outputs, chunk)?);
            }
            for stream in self.streams().iter() {
                assembler.keep_last(stream, slice.before.stream(stream).partial_bytes);
            }
        }
        for chunk in &slice.chunks {
            assembler.push(output_of(&outputs, chunk)?);
        }
        // While a command runs, its unfinished lines are shown too.
        if slice.after == self.end {
            assembler.finish(self.streams());
        }
        let chunks = slice.unfinished.iter().chain(&slice.chunks);
        Ok(LineWindow {
            cost: ReadCost {
                bytes: chunks.clone().map(|chunk| chunk.bytes).sum(),
                chunks: chunks.count(),
            },
            before: slice.before,
            after: slice.after,
            lines: std::mem::take(&mut assembler.lines),
        })
    }

    /// The entries of the chunks of a slice, by sequence number.
    async fn read_chunks(&self, slice: &OutputSlice) -> Result<BTreeMap<u64, ToolOutput>, Refusal> {
        let chunks = slice.unfinished.iter().chain(&slice.chunks);
        let seqs = chunks.map(|chunk| chunk.seq).collect();
        let records = self.store.read_each(self.session, seqs).await?;
        let outputs = records
            .iter()
            .map(|record| parse_output(record, &self.request.reference));
        outputs.collect::<Option<_>>().ok_or_else(log_unreadable)
    }
}

fn parse_output(record: &LogRecord, reference: &MessageId) -> Option<(u64, ToolOutput)> {
    let text = std::str::from_utf8(&record.body).ok()?;
    let envelope = parse_server_message(text, &Limits::default())
        .ok()
        .flatten()?;
    if let ServerMessage::ToolOutput(output) = envelope.message
        && output.tool_proposal == *reference
    {
        return Some((record.seq, output));
    }
    None
}

/// The output that a chunk of the index stands for, if the log says the same about it.
fn output_of<'a>(
    outputs: &'a BTreeMap<u64, ToolOutput>,
    chunk: &IndexedChunk,
) -> Result<&'a ToolOutput, Refusal> {
    let begin = chunk.before.stream(chunk.stream).bytes;
    let is_same = |output: &&ToolOutput| {
        output.stream == chunk.stream
            && output.text.len() as u64 == chunk.bytes
            && output.offset.is_none_or(|offset| offset == begin)
    };
    let output = outputs.get(&chunk.seq).filter(is_same);
    output.ok_or_else(log_unreadable)
}
