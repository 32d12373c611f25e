//! Results of a person's own commands, which are sent to an agent with that person's next prompt.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::OutputStream;
use serde::Serialize;

use crate::view::{OutputChunk, OutputView, ProposalView, StreamTotal};

/// A stream of up to this many characters is included whole.
pub const MAX_INLINE_CHARS: usize = 10_000;

/// Lines that an excerpt shows from the beginning, and as many again from the end.
pub const EXCERPT_LINES: usize = 100;

/// Maximum characters of either part of an excerpt, because one line may be as long as a file.
const EXCERPT_CHARS: usize = 10_000;

/// Characters of the command that are included: enough to recognise it.
pub const PREVIEW_CHARS: usize = 300;

/// Results that may be queued at a time. Someone who runs more commands without sending a prompt
/// loses the oldest results.
pub const MAX_QUEUED_RESULTS: usize = 64;

/// Bytes of result blocks sent with one prompt; a message has at most one mebibyte by default.
const MAX_BLOCK_BYTES_PER_PROMPT: usize = 512 * 1024;

/// One command's result, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellResult {
    /// The command's id, which also identifies its output.
    pub id: MessageId,
    /// The beginning of the command, verbatim.
    pub command_preview: String,
    pub exit_code: Option<i64>,
    /// What the agent reads: `<shell_result>{…}</shell_result>`.
    pub block: String,
}

/// The JSON inside a `<shell_result>` block, as the agent reads it.
#[derive(Serialize)]
struct ShellResultBlock<'a> {
    /// The command's id.
    id: &'a MessageId,
    /// The beginning of the command, verbatim.
    command_preview: &'a str,
    /// `None` if a signal ended the command or it did not run to its end.
    exit_code: Option<i64>,
    /// The signal that ended the command, if one did.
    signal: Option<&'a str>,
    /// How long the command ran, in milliseconds.
    duration_ms: u64,
    /// All of stdout; `None` if it is empty or too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<&'a str>,
    /// All of stderr; `None` if it is empty or too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<&'a str>,
    /// The beginning and the end of a stdout that is too long to include whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_excerpt: Option<&'a str>,
    /// The beginning and the end of a stderr that is too long to include whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_excerpt: Option<&'a str>,
    /// The id to read all of stdout by; `None` unless it is an excerpt.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_cache_id: Option<&'a str>,
    /// The id to read all of stderr by; `None` unless it is an excerpt.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_cache_id: Option<&'a str>,
    /// Which parts of the output are incomplete.
    truncated: TruncatedStreams,
}

#[derive(Serialize)]
struct TruncatedStreams {
    /// The block has only an excerpt of stdout.
    stdout: bool,
    /// The block has only an excerpt of stderr.
    stderr: bool,
    /// The executor itself did not keep all of the output.
    combined: bool,
}

impl ShellResult {
    /// The result of a finished command; `None` if it has not finished.
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

/// Encodes the block so that nothing inside it can be mistaken for its end.
fn encode_block(block: &ShellResultBlock<'_>) -> String {
    let json = serde_json::to_string(block).unwrap_or_default();
    // JSON has these characters only inside strings, where the escape means the same.
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

/// How much of one stream a block includes.
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

/// The first lines of a text, up to the limits of an excerpt.
fn first_lines(text: &str) -> &str {
    let lines = text.split_inclusive('\n').take(EXCERPT_LINES);
    let end: usize = lines.map(str::len).sum();
    let cut = text[..end].char_indices().nth(EXCERPT_CHARS);
    &text[..cut.map_or(end, |(at, _)| at)]
}

/// The last lines of a text, up to the limits of an excerpt.
fn last_lines(text: &str) -> &str {
    let lines = text.split_inclusive('\n').rev().take(EXCERPT_LINES);
    let start = text.len() - lines.map(str::len).sum::<usize>();
    let cut = text[start..].char_indices().nth_back(EXCERPT_CHARS - 1);
    &text[cut.map_or(start, |(at, _)| start + at)..]
}

/// Joins both parts, with a note of how much was omitted between them.
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

/// Results waiting for the next prompt, in the order in which the commands finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellResultQueue {
    queue: VecDeque<QueuedShellResult>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QueuedShellResult {
    result: ShellResult,
    /// The prompt it was sent with, while that is unanswered; `None` if it has not been sent.
    sent_with: Option<MessageId>,
}

impl ShellResultQueue {
    /// Adds a result. If there are too many, removes and returns the oldest.
    pub fn push(&mut self, result: ShellResult) -> Option<ShellResult> {
        let sent_with = None;
        self.queue
            .push_back(QueuedShellResult { result, sent_with });
        if self.queue.len() <= MAX_QUEUED_RESULTS {
            return None;
        }
        self.queue.pop_front().map(|queued| queued.result)
    }

    /// Results that have not been delivered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &ShellResult> {
        self.queue.iter().map(|queued| &queued.result)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes the result of one command, so that no agent receives it.
    pub fn remove(&mut self, id: &MessageId) {
        self.queue.retain(|queued| queued.result.id != *id);
    }

    /// The text of a prompt, preceded by the results that are not yet sent. They stay queued until
    /// the message with this id is [accepted](Self::prompt_accepted).
    pub fn prepend_to_prompt(&mut self, message: &MessageId, text: &str) -> String {
        let mut remaining_bytes = MAX_BLOCK_BYTES_PER_PROMPT;
        let mut prompt = String::new();
        let results = self.queue.iter_mut();
        for queued in results.filter(|queued| queued.sent_with.is_none()) {
            let block = &queued.result.block;
            let Some(left) = remaining_bytes.checked_sub(block.len()) else {
                // Results stay in order, so no later one may go first.
                break;
            };
            remaining_bytes = left;
            queued.sent_with = Some(message.clone());
            prompt.push_str(block);
            prompt.push('\n');
        }
        prompt + text
    }

    /// The server accepted the message; removes the results sent with it.
    pub fn prompt_accepted(&mut self, message: &MessageId) {
        let was_sent_with = |queued: &QueuedShellResult| queued.sent_with.as_ref() == Some(message);
        self.queue.retain(|queued| !was_sent_with(queued));
    }

    /// The server did not accept the message; its results wait again, in their old position.
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
