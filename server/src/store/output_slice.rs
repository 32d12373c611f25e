//! Finds the chunks of a command's output that contain a line or byte, without reading those before.

use pvp_protocol::payload::OutputStream;
use pvp_session::{IndexedChunk, OutputPosition, OutputStreams};

use super::{ReadLimit, StoreError};

/// Where to begin in a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStart {
    /// At the last chunk that begins at or before this line, counted over the wanted streams, or
    /// this byte, whichever is later; the lines that are unfinished there are wanted too.
    LineOrByte { line: Option<u64>, byte: u64 },
    /// Where another slice ended, whose reader has the unfinished lines.
    Position(OutputPosition),
}

/// Which chunks of a command's output are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputQuery {
    /// The sequence number of the command's proposal.
    pub run: u64,
    /// The streams that are counted; chunks of others are left out.
    pub streams: OutputStreams,
    /// Where to begin.
    pub from: OutputStart,
    /// Where to stop.
    pub until: OutputPosition,
    /// How many chunks at most, and how many bytes of output; one chunk is always returned if there
    /// is one.
    pub limit: ReadLimit,
}

/// Consecutive chunks of a command's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSlice {
    /// Earlier chunks that contain the unfinished lines with which the slice begins, oldest first.
    pub unfinished: Vec<IndexedChunk>,
    /// The chunks, in order.
    pub chunks: Vec<IndexedChunk>,
    /// How far the output had come before the slice.
    pub before: OutputPosition,
    /// How far it had come after the slice.
    pub after: OutputPosition,
}

/// Finds a slice with `get`, which reads the chunk of a stream with a number.
pub(super) fn find_slice(
    query: &OutputQuery,
    mut get: impl FnMut(OutputStream, u64) -> Result<Option<IndexedChunk>, StoreError>,
) -> Result<OutputSlice, StoreError> {
    let damaged = |stream: OutputStream, number: u64| {
        let run = query.run;
        StoreError::Damaged(format!(
            "the index of the output of {run}, chunk {number} of {stream:?}"
        ))
    };
    let mut chunk_at = |stream: OutputStream, number: u64| {
        let chunk = get(stream, number)?;
        let is_at = |chunk: &IndexedChunk| (chunk.stream, chunk.number()) == (stream, number);
        chunk.filter(is_at).ok_or_else(|| damaged(stream, number))
    };
    let mut slice = OutputSlice {
        after: query.until,
        ..OutputSlice::default()
    };
    match query.from {
        OutputStart::Position(position) => slice.before = position,
        OutputStart::LineOrByte { line, byte } => {
            slice.before = find_start(query, line, byte, &mut chunk_at)?;
            slice.unfinished = find_unfinished(&slice.before, query.streams, &mut chunk_at)?;
        }
    }
    let before = slice.before;
    let mut heads = Vec::new();
    for stream in query.streams.iter() {
        let number = before.stream(stream).chunks;
        if number < query.until.stream(stream).chunks {
            heads.push(chunk_at(stream, number)?);
        }
    }
    let mut bytes = 0;
    while let Some(position) = (0..heads.len()).min_by_key(|position| heads[*position].seq) {
        let chunk = &heads[position];
        bytes = chunk.bytes.saturating_add(bytes);
        let full =
            slice.chunks.len() >= query.limit.records.max(1) || bytes > query.limit.bytes as u64;
        if full && !slice.chunks.is_empty() {
            slice.after = chunk.before;
            // What follows must go on where this ends, or reading would never end.
            let mut next = heads.iter();
            let goes_on = next.all(|head| slice.after.stream(head.stream).chunks == head.number());
            if !goes_on {
                return Err(damaged(chunk.stream, chunk.number()));
            }
            break;
        }
        let (stream, next) = (chunk.stream, chunk.number() + 1);
        let chunk = match next < query.until.stream(stream).chunks {
            true => std::mem::replace(&mut heads[position], chunk_at(stream, next)?),
            false => heads.remove(position),
        };
        slice.chunks.push(chunk);
    }
    Ok(slice)
}

/// Where the last chunk begins that begins at or before a line or a byte, whichever is later.
fn find_start(
    query: &OutputQuery,
    line: Option<u64>,
    byte: u64,
    chunk_at: &mut impl FnMut(OutputStream, u64) -> Result<IndexedChunk, StoreError>,
) -> Result<OutputPosition, StoreError> {
    let mut latest: Option<IndexedChunk> = None;
    for stream in query.streams.iter() {
        let end = query.until.stream(stream).chunks;
        let by_line = match line {
            None => None,
            Some(line) => last_that(end, |number| {
                let before = chunk_at(stream, number)?.before;
                Ok(before.ended_lines(query.streams) <= line)
            })?,
        };
        let by_byte = last_that(end, |number| {
            let before = chunk_at(stream, number)?.before;
            Ok(before.total_bytes(query.streams) <= byte)
        })?;
        if let Some(number) = by_line.max(by_byte) {
            let chunk = chunk_at(stream, number)?;
            if latest.as_ref().is_none_or(|latest| latest.seq < chunk.seq) {
                latest = Some(chunk);
            }
        }
    }
    Ok(latest.map_or(query.until, |chunk| chunk.before))
}

/// The last number below `end` that fulfils a condition which holds up to some number, if it holds
/// for any.
fn last_that(
    end: u64,
    mut holds: impl FnMut(u64) -> Result<bool, StoreError>,
) -> Result<Option<u64>, StoreError> {
    // It holds for what is below `low`, and not for `high` and above.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle)? {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low.checked_sub(1))
}

/// The chunks that contain the lines which are unfinished at a position, oldest first.
fn find_unfinished(
    position: &OutputPosition,
    streams: OutputStreams,
    chunk_at: &mut impl FnMut(OutputStream, u64) -> Result<IndexedChunk, StoreError>,
) -> Result<Vec<IndexedChunk>, StoreError> {
    let mut chunks = Vec::new();
    for stream in streams.iter() {
        let state = position.stream(stream);
        let begin = state.bytes.saturating_sub(state.partial_bytes);
        let (mut end, mut number) = (state.bytes, state.chunks);
        while end > begin && number > 0 {
            number -= 1;
            let chunk = chunk_at(stream, number)?;
            end = chunk.before.stream(stream).bytes;
            chunks.push(chunk);
        }
    }
    chunks.sort_unstable_by_key(|chunk| chunk.seq);
    Ok(chunks)
}
