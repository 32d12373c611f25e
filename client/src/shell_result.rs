//! Results of a person's own commands, on their way to an agent with that person's next prompt.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::OutputStream;
use serde::Serialize;

use crate::view::{OutputChunk, OutputView, ProposalView, StreamTotal};

/// Characters of a stream that a block holds whole.
pub const MAX_INLINE_CHARS: usize = 10_000;

/// Lines at the beginning, and at the end, that an excerpt shows.
pub const EXCERPT_LINES: usize = 100;

/// Characters of either part of an excerpt; one line may be as long as a file.
const EXCERPT_CHARS: usize = 10_000;

/// Characters of the command: enough to recognise it.
pub const PREVIEW_CHARS: usize = 300;

/// Results that wait at a time; who runs more before saying anything loses the oldest.
pub const MAX_QUEUED_RESULTS: usize = 64;

/// Bytes of blocks that go with one prompt; a message has at most a mebibyte by default.
const MAX_BLOCK_BYTES_PER_PROMPT: usize = 512 * 1024;

/// One result, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellResult {
    /// The command's id, under which its output is read too.
    pub id: MessageId,
    /// The beginning of the command, verbatim.
    pub command_preview: String,
    pub exit_code: Option<i64>,
    /// What the agent reads: `<shell_result>{…}</shell_result>`.
    pub block: String,
}

#[derive(Serialize)]
struct ShellResultBlock<'a> {
    id: &'a MessageId,
    command_preview: &'a str,
    exit_code: Option<i64>,
    signal: Option<&'a str>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_excerpt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_excerpt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_cache_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_cache_id: Option<&'a str>,
    truncated: TruncatedStreams,
}

#[derive(Serialize)]
struct TruncatedStreams {
    /// The block has only an excerpt of it.
    stdout: bool,
    stderr: bool,
    /// The executor itself did not keep everything.
    combined: bool,
}

impl ShellResult {
    /// The result of a command that has finished; `None` while it has not.
    pub fn from_proposal(proposal: &ProposalView) -> Option<Self> {
        let finish = proposal.finish.as_ref()?;
        let stdout = StreamText::new(&proposal.output, OutputStream::Stdout);
        let stderr = StreamText::new(&proposal.output, OutputStream::Stderr);
        let output_ref = finish.output_ref.as_deref();
        let output_ref = Some(output_ref.unwrap_or(proposal.id.as_str()));
        let command_preview = command_preview(&proposal.requested.command);
        let block = ShellResultBlock {
            id: &proposal.id,
            command_preview: &command_preview,
            exit_code: finish.exit_code,
            signal: finish.signal.as_deref(),
            duration_ms: finish.duration_ms,
            stdout: stdout.whole(),
            stderr: stderr.whole(),
            stdout_excerpt: stdout.excerpt(),
            stderr_excerpt: stderr.excerpt(),
            stdout_cache_id: output_ref.filter(|_| stdout.is_truncated()),
            stderr_cache_id: output_ref.filter(|_| stderr.is_truncated()),
            truncated: TruncatedStreams {
                stdout: stdout.is_truncated(),
                stderr: stderr.is_truncated(),
                combined: finish.truncated,
            },
        };
        Some(Self {
            id: proposal.id.clone(),
            exit_code: finish.exit_code,
            block: encode_block(&block),
            command_preview,
        })
    }
}

/// JSON in which nothing can be taken for the end of the block.
fn encode_block(block: &ShellResultBlock<'_>) -> String {
    let json = serde_json::to_string(block).unwrap_or_default();
    // Outside of strings JSON has neither, and inside an escape means the same.
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e");
    format!("<shell_result>{json}</shell_result>")
}

fn command_preview(command: &str) -> String {
    match command.char_indices().nth(PREVIEW_CHARS) {
        None => command.to_owned(),
        Some(_) => {
            let beginning = command.chars().take(PREVIEW_CHARS - 1);
            beginning.chain(['…']).collect()
        }
    }
}

/// What is told of one stream.
enum StreamText {
    Empty,
    Whole(String),
    Excerpt(String),
}

impl StreamText {
    fn new(output: &OutputView, stream: OutputStream) -> Self {
        let total = output.total(stream);
        if total.bytes == 0 {
            return StreamText::Empty;
        }
        let text = output.text(stream);
        let is_whole = text.len() as u64 == total.bytes;
        if is_whole && text.chars().nth(MAX_INLINE_CHARS).is_none() {
            return StreamText::Whole(text);
        }
        if is_whole {
            let first = first_lines(&text);
            return StreamText::Excerpt(join_excerpt(
                first,
                last_lines(&text[first.len()..]),
                total,
            ));
        }
        let of_stream = |chunk: &&OutputChunk| chunk.stream == stream;
        let head = output.head.iter().filter(of_stream);
        let tail = output.tail.iter().filter(of_stream);
        let head: String = head.map(|chunk| chunk.text.as_str()).collect();
        let tail: String = tail.map(|chunk| chunk.text.as_str()).collect();
        StreamText::Excerpt(join_excerpt(first_lines(&head), last_lines(&tail), total))
    }

    fn whole(&self) -> Option<&str> {
        match self {
            StreamText::Whole(text) => Some(text),
            StreamText::Empty | StreamText::Excerpt(_) => None,
        }
    }

    fn excerpt(&self) -> Option<&str> {
        match self {
            StreamText::Excerpt(text) => Some(text),
            StreamText::Empty | StreamText::Whole(_) => None,
        }
    }

    fn is_truncated(&self) -> bool {
        self.excerpt().is_some()
    }
}

/// The first lines of a text, as far as an excerpt shows them.
fn first_lines(text: &str) -> &str {
    let lines = text.split_inclusive('\n').take(EXCERPT_LINES);
    let end: usize = lines.map(str::len).sum();
    let cut = text[..end].char_indices().nth(EXCERPT_CHARS);
    &text[..cut.map_or(end, |(at, _)| at)]
}

/// The last lines of a text.
fn last_lines(text: &str) -> &str {
    let lines = text.split_inclusive('\n').rev().take(EXCERPT_LINES);
    let start = text.len() - lines.map(str::len).sum::<usize>();
    let cut = text[start..].char_indices().nth_back(EXCERPT_CHARS - 1);
    &text[cut.map_or(start, |(at, _)| start + at)..]
}

/// Both parts, and how much of the stream is not between them.
fn join_excerpt(first: &str, last: &str, total: StreamTotal) -> String {
    let shown = first.lines().count() + last.lines().count();
    let lines = total.lines.saturating_sub(shown as u64);
    let bytes = total
        .bytes
        .saturating_sub((first.len() + last.len()) as u64);
    let line_break = if first.ends_with('\n') { "" } else { "\n" };
    match (bytes, lines) {
        (0, _) => format!("{first}{last}"),
        (bytes, 0) => format!("{first}{line_break}[… {bytes} bytes omitted …]\n{last}"),
        (_, lines) => format!("{first}{line_break}[… {lines} lines omitted …]\n{last}"),
    }
}

/// Results that wait for the next prompt, in the order in which the commands finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellResultQueue {
    queue: VecDeque<QueuedShellResult>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QueuedShellResult {
    result: ShellResult,
    /// The message it went with, which is not answered yet.
    sent_with: Option<MessageId>,
}

impl ShellResultQueue {
    /// Adds a result. Gives the oldest that waits back if there are too many.
    pub fn push(&mut self, result: ShellResult) -> Option<ShellResult> {
        let sent_with = None;
        self.queue
            .push_back(QueuedShellResult { result, sent_with });
        if self.queue.len() <= MAX_QUEUED_RESULTS {
            return None;
        }
        self.queue.pop_front().map(|queued| queued.result)
    }

    /// Results that have not reached the agent, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &ShellResult> {
        self.queue.iter().map(|queued| &queued.result)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets the result of one command, which then no agent is told.
    pub fn remove(&mut self, id: &MessageId) {
        self.queue.retain(|queued| queued.result.id != *id);
    }

    /// The text of a prompt with every result before it that is not under way. They are kept
    /// until the message of this id is [accepted](Self::accepted).
    pub fn prepend_to_prompt(&mut self, message: &MessageId, text: &str) -> String {
        let mut remaining_bytes = MAX_BLOCK_BYTES_PER_PROMPT;
        let mut prompt = String::new();
        let results = self.queue.iter_mut();
        for queued in results.filter(|queued| queued.sent_with.is_none()) {
            let block = &queued.result.block;
            let Some(left) = remaining_bytes.checked_sub(block.len()) else {
                // What follows would overtake this one.
                break;
            };
            remaining_bytes = left;
            queued.sent_with = Some(message.clone());
            prompt.push_str(block);
            prompt.push('\n');
        }
        prompt + text
    }

    /// The message was taken; what went with it has arrived.
    pub fn prompt_accepted(&mut self, message: &MessageId) {
        let was_sent_with = |queued: &QueuedShellResult| queued.sent_with.as_ref() == Some(message);
        self.queue.retain(|queued| !was_sent_with(queued));
    }

    /// The message was not taken; what was to go with it waits again, in its place.
    pub fn prompt_failed(&mut self, message: &MessageId) {
        for queued in &mut self.queue {
            if queued.sent_with.as_ref() == Some(message) {
                queued.sent_with = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
