//! Counts the lines and bytes of a command's output, so that any part of it is found without reading
//! what comes before.
//!
//! Lines are numbered in the order in which they end, over both streams or within one.

use pvp_protocol::payload::{OutputStream, ToolOutput};
use serde::{Deserialize, Serialize};

/// A line that is longer than this many bytes is split.
pub const MAX_LINE_BYTES: u64 = 256 * 1024;

/// How far the output of a command has come, by stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPosition {
    /// Standard output.
    pub stdout: OutputStreamPosition,
    /// Standard error.
    pub stderr: OutputStreamPosition,
}

/// How far one stream has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputStreamPosition {
    /// Chunks so far.
    pub chunks: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Lines that have ended.
    pub lines: u64,
    /// Bytes of the line that has not ended.
    pub partial_bytes: u64,
    /// Whether nothing more will come.
    pub complete: bool,
}

/// One chunk of a command's output: one entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedChunk {
    /// The sequence number of the command's proposal.
    pub run: u64,
    /// The sequence number of the chunk.
    pub seq: u64,
    /// The stream it belongs to.
    pub stream: OutputStream,
    /// How many bytes it has.
    pub bytes: u64,
    /// How far the output had come before it.
    pub before: OutputPosition,
}

impl IndexedChunk {
    /// Its number in its stream, counted from 0.
    pub fn number(&self) -> u64 {
        self.before.stream(self.stream).chunks
    }
}

/// Which streams a reader wants: one, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputStreams(pub Option<OutputStream>);

impl OutputStreams {
    /// The streams, in the order in which their unfinished last lines are counted.
    pub fn iter(self) -> impl Iterator<Item = OutputStream> {
        let both = [OutputStream::Stdout, OutputStream::Stderr];
        both.into_iter()
            .filter(move |stream| self.contains(*stream))
    }

    /// Whether this stream is wanted.
    pub fn contains(self, stream: OutputStream) -> bool {
        self.0.is_none_or(|only| only == stream)
    }
}

impl OutputPosition {
    /// How far one stream has come.
    pub fn stream(&self, stream: OutputStream) -> &OutputStreamPosition {
        match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        }
    }

    fn stream_mut(&mut self, stream: OutputStream) -> &mut OutputStreamPosition {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Lines of these streams that have ended.
    pub fn ended_lines(&self, streams: OutputStreams) -> u64 {
        let lines = streams.iter().map(|stream| self.stream(stream).lines);
        lines.fold(0, u64::saturating_add)
    }

    /// Lines of these streams, including unfinished last ones.
    pub fn total_lines(&self, streams: OutputStreams) -> u64 {
        let unfinished = |stream: &OutputStream| self.stream(*stream).partial_bytes > 0;
        let unfinished = streams.iter().filter(unfinished).count() as u64;
        self.ended_lines(streams).saturating_add(unfinished)
    }

    /// Bytes of these streams.
    pub fn total_bytes(&self, streams: OutputStreams) -> u64 {
        let bytes = streams.iter().map(|stream| self.stream(stream).bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Moves past a chunk, and returns its place in the index.
    pub fn advance(&mut self, run: u64, seq: u64, output: &ToolOutput) -> IndexedChunk {
        let before = *self;
        let stream = self.stream_mut(output.stream);
        stream.chunks += 1;
        stream.bytes += output.text.len() as u64;
        stream.complete |= output.complete;
        stream.partial_bytes += output.text.len() as u64;
        if let Some(end) = output.text.rfind('\n') {
            let ended = output.text.bytes().filter(|byte| *byte == b'\n').count();
            stream.lines += ended as u64;
            stream.partial_bytes = (output.text.len() - end - 1) as u64;
        }
        if line_ends(stream.partial_bytes, output.complete) {
            stream.lines += 1;
            stream.partial_bytes = 0;
        }
        IndexedChunk {
            run,
            seq,
            stream: output.stream,
            bytes: output.text.len() as u64,
            before,
        }
    }
}

/// Whether a line without a line break ends here: at the end of its stream, or because it is too
/// long.
pub fn line_ends(partial_bytes: u64, complete: bool) -> bool {
    (complete && partial_bytes > 0) || partial_bytes > MAX_LINE_BYTES
}

/// What an entry adds to the indexes of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexChange {
    /// A proposal was closed.
    Closed(crate::ProposalRecord),
    /// A command printed something.
    Output(IndexedChunk),
}
