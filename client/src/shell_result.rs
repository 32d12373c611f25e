//! Results of a person's own commands, on their way to an agent with that person's next prompt.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::OutputStream;
use serde::Serialize;

use crate::view::{Output, Piece, Proposal, StreamTotal};

/// Characters of a stream that a block holds whole.
pub const WHOLE_CHARS: usize = 10_000;

/// Lines at the beginning, and at the end, that an excerpt shows.
pub const EXCERPT_LINES: usize = 100;

/// Characters of either part of an excerpt; one line may be as long as a file.
const EXCERPT_CHARS: usize = 10_000;

/// Characters of the command: enough to recognise it.
pub const PREVIEW_CHARS: usize = 300;

/// Results that wait at a time; who runs more before saying anything loses the oldest.
pub const RESULTS: usize = 64;

/// Bytes of blocks that go with one prompt; a message has at most a mebibyte by default.
const BLOCK_BYTES: usize = 512 * 1024;

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
struct Block<'a> {
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
    truncated: Truncated,
}

#[derive(Serialize)]
struct Truncated {
    /// The block has only an excerpt of it.
    stdout: bool,
    stderr: bool,
    /// The executor itself did not keep everything.
    combined: bool,
}

impl ShellResult {
    /// The result of a command that has finished; `None` while it has not.
    pub fn of(proposal: &Proposal) -> Option<Self> {
        let finish = proposal.finish.as_ref()?;
        let stdout = Told::of(&proposal.output, OutputStream::Stdout);
        let stderr = Told::of(&proposal.output, OutputStream::Stderr);
        let reference = finish.output_ref.as_deref();
        let reference = Some(reference.unwrap_or(proposal.id.as_str()));
        let command_preview = preview(&proposal.asked.command);
        let block = Block {
            id: &proposal.id,
            command_preview: &command_preview,
            exit_code: finish.exit_code,
            signal: finish.signal.as_deref(),
            duration_ms: finish.duration_ms,
            stdout: stdout.whole(),
            stderr: stderr.whole(),
            stdout_excerpt: stdout.excerpt(),
            stderr_excerpt: stderr.excerpt(),
            stdout_cache_id: reference.filter(|_| stdout.is_cut()),
            stderr_cache_id: reference.filter(|_| stderr.is_cut()),
            truncated: Truncated {
                stdout: stdout.is_cut(),
                stderr: stderr.is_cut(),
                combined: finish.truncated,
            },
        };
        Some(Self {
            id: proposal.id.clone(),
            exit_code: finish.exit_code,
            block: wrapped(&block),
            command_preview,
        })
    }
}

/// JSON in which nothing can be taken for the end of the block.
fn wrapped(block: &Block<'_>) -> String {
    let json = serde_json::to_string(block).unwrap_or_default();
    // Outside of strings JSON has neither, and inside an escape means the same.
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e");
    format!("<shell_result>{json}</shell_result>")
}

fn preview(command: &str) -> String {
    match command.char_indices().nth(PREVIEW_CHARS) {
        None => command.to_owned(),
        Some(_) => {
            let beginning = command.chars().take(PREVIEW_CHARS - 1);
            beginning.chain(['…']).collect()
        }
    }
}

/// What is told of one stream.
enum Told {
    Nothing,
    Whole(String),
    Excerpt(String),
}

impl Told {
    fn of(output: &Output, stream: OutputStream) -> Self {
        let total = output.total(stream);
        if total.bytes == 0 {
            return Told::Nothing;
        }
        let text = output.text(stream);
        let is_whole = text.len() as u64 == total.bytes;
        if is_whole && text.chars().nth(WHOLE_CHARS).is_none() {
            return Told::Whole(text);
        }
        if is_whole {
            let first = beginning(&text);
            return Told::Excerpt(joined(first, ending(&text[first.len()..]), total));
        }
        let of_stream = |piece: &&Piece| piece.stream == stream;
        let head = output.head.iter().filter(of_stream);
        let tail = output.tail.iter().filter(of_stream);
        let head: String = head.map(|piece| piece.text.as_str()).collect();
        let tail: String = tail.map(|piece| piece.text.as_str()).collect();
        Told::Excerpt(joined(beginning(&head), ending(&tail), total))
    }

    fn whole(&self) -> Option<&str> {
        match self {
            Told::Whole(text) => Some(text),
            Told::Nothing | Told::Excerpt(_) => None,
        }
    }

    fn excerpt(&self) -> Option<&str> {
        match self {
            Told::Excerpt(text) => Some(text),
            Told::Nothing | Told::Whole(_) => None,
        }
    }

    fn is_cut(&self) -> bool {
        self.excerpt().is_some()
    }
}

/// The first lines of a text, as far as an excerpt shows them.
fn beginning(text: &str) -> &str {
    let lines = text.split_inclusive('\n').take(EXCERPT_LINES);
    let end: usize = lines.map(str::len).sum();
    let cut = text[..end].char_indices().nth(EXCERPT_CHARS);
    &text[..cut.map_or(end, |(at, _)| at)]
}

/// The last lines of a text.
fn ending(text: &str) -> &str {
    let lines = text.split_inclusive('\n').rev().take(EXCERPT_LINES);
    let start = text.len() - lines.map(str::len).sum::<usize>();
    let cut = text[start..].char_indices().nth_back(EXCERPT_CHARS - 1);
    &text[cut.map_or(start, |(at, _)| start + at)..]
}

/// Both parts, and how much of the stream is not between them.
fn joined(first: &str, last: &str, total: StreamTotal) -> String {
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
pub struct ShellResults {
    waiting: VecDeque<Queued>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Queued {
    result: ShellResult,
    /// The message it went with, which is not answered yet.
    sent_with: Option<MessageId>,
}

impl ShellResults {
    /// Adds a result. Gives the oldest that waits back if there are too many.
    pub fn push(&mut self, result: ShellResult) -> Option<ShellResult> {
        let sent_with = None;
        self.waiting.push_back(Queued { result, sent_with });
        if self.waiting.len() <= RESULTS {
            return None;
        }
        self.waiting.pop_front().map(|queued| queued.result)
    }

    /// Results that have not reached the agent, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &ShellResult> {
        self.waiting.iter().map(|queued| &queued.result)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets the result of one command, which then no agent is told.
    pub fn forget(&mut self, id: &MessageId) {
        self.waiting.retain(|queued| queued.result.id != *id);
    }

    /// The text of a prompt with every result before it that is not under way. They are kept
    /// until the message of this id is [accepted](Self::accepted).
    pub fn prompt(&mut self, message: &MessageId, text: &str) -> String {
        let mut room = BLOCK_BYTES;
        let mut prompt = String::new();
        let free = self.waiting.iter_mut();
        for queued in free.filter(|queued| queued.sent_with.is_none()) {
            let block = &queued.result.block;
            let Some(left) = room.checked_sub(block.len()) else {
                // What follows would overtake this one.
                break;
            };
            room = left;
            queued.sent_with = Some(message.clone());
            prompt.push_str(block);
            prompt.push('\n');
        }
        prompt + text
    }

    /// The message was taken; what went with it has arrived.
    pub fn accepted(&mut self, message: &MessageId) {
        let with = |queued: &Queued| queued.sent_with.as_ref() == Some(message);
        self.waiting.retain(|queued| !with(queued));
    }

    /// The message was not taken; what was to go with it waits again, in its place.
    pub fn failed(&mut self, message: &MessageId) {
        for queued in &mut self.waiting {
            if queued.sent_with.as_ref() == Some(message) {
                queued.sent_with = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
