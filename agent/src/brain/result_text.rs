//! The text of a command's result for the model: how it ended, and the end of its output.

use pvp_client::narrate;
use pvp_protocol::payload::{OutputStream, ToolResult};

/// A stream that has a longer line is cut to this many bytes, half from each end.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Bytes of both streams; the text around them may use the rest of `MAX_RESULT_BYTES`.
const MAX_STREAMS_BYTES: usize = 120 * 1024;

/// Bytes of the whole text, at most.
pub const MAX_RESULT_BYTES: usize = 128 * 1024;

/// Bytes of one sentence about how the command ended, at most.
const MAX_SENTENCE_BYTES: usize = 2 * 1024;

/// The context size that the default limits are for, in tokens.
const REFERENCE_CONTEXT_TOKENS: u64 = 200_000;

/// How many times as many lines of a file are shown as of a command's output.
const FILE_LINES_FACTOR: usize = 25;

/// How many lines of each stream the text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultTextLimits {
    pub stderr_lines: usize,
    pub stdout_lines: usize,
    /// Which lines of standard output.
    pub stdout_part: ShownPart,
}

/// Which part of a long stream is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownPart {
    Beginning,
    End,
}

impl Default for ResultTextLimits {
    fn default() -> Self {
        Self {
            stderr_lines: 50,
            stdout_lines: 20,
            stdout_part: ShownPart::End,
        }
    }
}

impl ResultTextLimits {
    /// Limits in proportion to a model's context, between a minimum and ten times the default.
    pub fn for_context(tokens: u64) -> Self {
        let scaled = |lines: usize, min: usize| {
            let lines =
                lines as u64 * tokens.min(REFERENCE_CONTEXT_TOKENS * 10) / REFERENCE_CONTEXT_TOKENS;
            usize::try_from(lines).unwrap_or(usize::MAX).max(min)
        };
        let default = Self::default();
        Self {
            stderr_lines: scaled(default.stderr_lines, 10),
            stdout_lines: scaled(default.stdout_lines, 5),
            ..default
        }
    }

    /// The limits for the lines of a file, which are read from their beginning.
    pub fn for_file(self) -> Self {
        Self {
            stdout_lines: self.stdout_lines.saturating_mul(FILE_LINES_FACTOR),
            stdout_part: ShownPart::Beginning,
            ..self
        }
    }
}

/// The first line of the text, which stays when the rest is dropped.
pub fn headline(result: &ToolResult) -> String {
    let body = result.command();
    let code = body.and_then(|body| body.exit_code);
    let line_count =
        |stream| narrate::pluralize(stream_excerpt(result, stream).total_lines, "line");
    format!(
        "Exit code: {} | stdout: {} | stderr: {}",
        code.map_or("none".to_owned(), |code| code.to_string()),
        line_count(OutputStream::Stdout),
        line_count(OutputStream::Stderr),
    )
}

/// What the model reads of a result.
pub fn result_text(result: &ToolResult, limits: ResultTextLimits) -> String {
    let mut text = headline(result);
    for sentence in status_sentences(result) {
        text.push('\n');
        text.push_str(&truncate_middle(&sentence, MAX_SENTENCE_BYTES));
    }
    let stderr = last_lines(
        &stream_excerpt(result, OutputStream::Stderr),
        limits.stderr_lines,
    );
    let stdout = match limits.stdout_part {
        ShownPart::End => last_lines(
            &stream_excerpt(result, OutputStream::Stdout),
            limits.stdout_lines,
        ),
        ShownPart::Beginning => first_lines(result, limits.stdout_lines),
    };
    let half = MAX_STREAMS_BYTES / 2;
    let for_stderr = MAX_STREAMS_BYTES - stdout.text.len().min(half);
    let for_stdout = MAX_STREAMS_BYTES - stderr.text.len().min(half);
    let mut cut = false;
    for (name, part, room) in [
        ("stderr", stderr, for_stderr),
        ("stdout", stdout, for_stdout),
    ] {
        if part.text.is_empty() && part.note.is_empty() {
            continue;
        }
        cut |= part.truncated || part.text.len() > room;
        let body = truncate_middle(&part.text, room);
        text.push_str(&format!("\n\n{name}{}:\n{body}", part.note));
    }
    if cut {
        text.push_str(&format!(
            "\n\nThis is not all of it: read the rest with recall, ref \"{}\".",
            result.tool_proposal
        ));
    }
    text
}

/// What is worth saying in addition to the exit code.
fn status_sentences(result: &ToolResult) -> Vec<String> {
    let mut sentences = Vec::new();
    let signal = result.extra.get("signal").and_then(|it| it.as_i64());
    match (&result.error, signal) {
        (Some(error), _) => sentences.push(format!("It did not end by itself: {error}.")),
        (None, Some(signal)) => sentences.push(format!("It was ended by signal {signal}.")),
        (None, None) => {}
    }
    if let Some(left) = result.extra.get("left_behind").and_then(|it| it.as_u64()) {
        let left = match left {
            1 => "1 process behind, which was".to_owned(),
            left => format!("{left} processes behind, which were"),
        };
        sentences.push(format!(
            "It left {left} ended; use mode background for what must keep running."
        ));
    }
    sentences
}

/// One stream, as far as the result contains it.
struct StreamExcerpt<'a> {
    /// The end of the stream, or all of it.
    text: &'a str,
    total_lines: u64,
    complete: bool,
}

fn stream_excerpt(result: &ToolResult, stream: OutputStream) -> StreamExcerpt<'_> {
    let Some(body) = result.command() else {
        return StreamExcerpt {
            text: "",
            total_lines: 0,
            complete: true,
        };
    };
    let (name, text) = match stream {
        OutputStream::Stdout => ("stdout", body.stdout.as_str()),
        OutputStream::Stderr => ("stderr", body.stderr.as_str()),
    };
    let facts = result
        .extra
        .get("streams")
        .and_then(|streams| streams.get(name));
    let fact = |fact: &str| facts?.get(fact)?.as_u64();
    let seen = text.lines().count() as u64;
    // The note on omitted bytes may be longer than what it replaces.
    let whole = match fact("bytes") {
        None => true,
        Some(bytes) if bytes < text.len() as u64 => after_omission(text).len() == text.len(),
        Some(bytes) => bytes == text.len() as u64,
    };
    StreamExcerpt {
        // The result holds the two ends of a long stream, with a note between them.
        text: if whole { text } else { after_omission(text) },
        total_lines: fact("lines").unwrap_or(seen).max(u64::from(seen > 0)),
        complete: whole,
    }
}

fn after_omission(text: &str) -> &str {
    match text.rfind(" bytes omitted …]\n") {
        Some(at) => &text[at + " bytes omitted …]\n".len()..],
        None => text,
    }
}

struct ShownLines {
    note: String,
    text: String,
    truncated: bool,
}

/// The last lines, with a note on how many come before them.
fn last_lines(excerpt: &StreamExcerpt<'_>, max_lines: usize) -> ShownLines {
    let lines: Vec<_> = excerpt.text.lines().collect();
    let kept = &lines[lines.len().saturating_sub(max_lines)..];
    let skipped = excerpt.total_lines.saturating_sub(kept.len() as u64);
    let mut text = kept.join("\n");
    let mut cut = skipped > 0 || !excerpt.complete;
    if kept.iter().any(|line| line.len() > MAX_LINE_BYTES) {
        text = truncate_middle(&text, MAX_LINE_BYTES);
        cut = true;
    }
    let note = match skipped {
        0 => String::new(),
        skipped => format!(
            " (last {} of {}, {skipped} skipped)",
            kept.len(),
            excerpt.total_lines
        ),
    };
    ShownLines {
        note,
        text,
        truncated: cut,
    }
}

/// The first lines of standard output, with a note on how many come after them.
fn first_lines(result: &ToolResult, max_lines: usize) -> ShownLines {
    let excerpt = stream_excerpt(result, OutputStream::Stdout);
    let whole = result.command().map_or("", |body| &body.stdout);
    let beginning = match excerpt.complete {
        true => whole,
        false => before_omission(whole),
    };
    let lines: Vec<_> = beginning.lines().take(max_lines).collect();
    let skipped = excerpt.total_lines.saturating_sub(lines.len() as u64);
    let mut text = lines.join("\n");
    let mut truncated = skipped > 0 || !excerpt.complete;
    if lines.iter().any(|line| line.len() > MAX_LINE_BYTES) {
        text = truncate_middle(&text, MAX_LINE_BYTES);
        truncated = true;
    }
    let note = match skipped {
        0 => String::new(),
        skipped => format!(
            " (first {} of {}, {skipped} not shown)",
            lines.len(),
            excerpt.total_lines
        ),
    };
    ShownLines {
        note,
        text,
        truncated,
    }
}

/// The text before the note on omitted bytes.
fn before_omission(text: &str) -> &str {
    let end = text.len() - after_omission(text).len();
    let head = text.get(..end).unwrap_or(text);
    head.rfind("\n[… ").map_or(head, |at| &head[..at])
}

/// Shortens a text that is too long to its two ends.
pub(crate) fn truncate_middle(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(max_bytes / 2);
    let tail = text.ceil_char_boundary(text.len() - max_bytes / 2);
    format!(
        "{}\n[… {} bytes skipped …]\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use pvp_protocol::payload::ToolResultBody;
    use pvp_protocol::{ExtraFields, MessageId};
    use serde_json::json;

    pub(crate) fn finished_result(code: Option<i64>, stdout: &str, stderr: &str) -> ToolResult {
        ToolResult {
            tool_proposal: MessageId::parse("p1").unwrap(),
            success: code == Some(0),
            result: Some(
                ToolResultBody {
                    exit_code: code,
                    stdout: stdout.to_owned(),
                    stderr: stderr.to_owned(),
                    extra: ExtraFields::new(),
                }
                .into(),
            ),
            error: None,
            duration_ms: 12,
            outcome: None,
            more_output: false,
            attested: false,
            extra: ExtraFields::new(),
        }
    }

    fn numbered_lines(count: usize) -> String {
        (1..=count)
            .map(|number| format!("line {number}\n"))
            .collect()
    }

    #[test]
    fn a_file_is_shown_from_its_beginning() {
        let limits = ResultTextLimits::default().for_file();
        let short = result_text(&finished_result(Some(0), &numbered_lines(499), ""), limits);
        assert!(short.contains("\nline 1\n") && short.ends_with("\nline 499"));
        let long = result_text(&finished_result(Some(0), &numbered_lines(600), ""), limits);
        assert!(long.contains("stdout (first 500 of 600, 100 not shown):\nline 1\n"));
        assert!(long.contains("\nline 500\n\nThis is not all of it"));
        // The result holds only the two ends of what is longer.
        let ends = format!(
            "{}\n[… 7 bytes omitted …]\n{}",
            numbered_lines(3),
            "line 9\n"
        );
        let mut result = finished_result(Some(0), &ends, "");
        let facts = json!({ "stdout": { "bytes": 1000, "lines": 90 } });
        result.extra.insert("streams".to_owned(), facts);
        let text = result_text(&result, limits);
        assert!(
            text.contains("(first 3 of 90, 87 not shown):\nline 1\nline 2\nline 3\n\n"),
            "{text}"
        );
        assert!(!text.contains("line 9"), "{text}");
    }

    #[test]
    fn short_output_is_complete_and_has_no_hint() {
        let text = result_text(
            &finished_result(Some(0), "a\nb\n", ""),
            ResultTextLimits::default(),
        );
        assert_eq!(
            text,
            "Exit code: 0 | stdout: 2 lines | stderr: 0 lines\n\nstdout:\na\nb"
        );
        let nothing = result_text(
            &finished_result(Some(1), "", ""),
            ResultTextLimits::default(),
        );
        assert_eq!(nothing, "Exit code: 1 | stdout: 0 lines | stderr: 0 lines");
    }

    #[test]
    fn long_output_is_shown_by_its_last_lines() {
        let text = result_text(
            &finished_result(Some(2), &numbered_lines(21), &numbered_lines(120)),
            ResultTextLimits::default(),
        );
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "Exit code: 2 | stdout: 21 lines | stderr: 120 lines"
        );
        assert_eq!(lines[2], "stderr (last 50 of 120, 70 skipped):");
        assert_eq!((lines[3], lines[52]), ("line 71", "line 120"));
        assert_eq!(lines[54], "stdout (last 20 of 21, 1 skipped):");
        assert_eq!((lines[55], lines[74]), ("line 2", "line 21"));
        assert_eq!(
            lines[76],
            "This is not all of it: read the rest with recall, ref \"p1\"."
        );
        assert_eq!(lines.len(), 77);
    }

    #[test]
    fn a_huge_line_keeps_four_kibibytes_of_each_end() {
        let line = format!("{}{}", "a".repeat(10_000), "é".repeat(10_000));
        let text = result_text(
            &finished_result(Some(0), &line, ""),
            ResultTextLimits::default(),
        );
        let expected = format!(
            "Exit code: 0 | stdout: 1 line | stderr: 0 lines\n\nstdout:\n{}\n[… 21808 bytes skipped …]\n{}\n\n\
             This is not all of it: read the rest with recall, ref \"p1\".",
            "a".repeat(4096),
            "é".repeat(2048),
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_stream_of_which_the_result_has_only_the_ends_is_counted_in_full() {
        let mut result =
            finished_result(Some(0), "first\n[… 900 bytes omitted …]\nyes\nlast\n", "");
        result.extra.insert(
            "streams".to_owned(),
            json!({"stdout": {"bytes": 920, "lines": 100}, "stderr": {"bytes": 0, "lines": 0}}),
        );
        assert_eq!(
            result_text(&result, ResultTextLimits::default()),
            "Exit code: 0 | stdout: 100 lines | stderr: 0 lines\n\n\
             stdout (last 2 of 100, 98 skipped):\nyes\nlast\n\n\
             This is not all of it: read the rest with recall, ref \"p1\"."
        );
    }

    #[test]
    fn an_omission_note_that_is_longer_than_what_it_replaces_is_not_output() {
        let mut result = finished_result(Some(0), "first\n[… 4 bytes omitted …]\nlast\n", "");
        let streams = json!({"stdout": {"bytes": 15, "lines": 3}});
        result.extra.insert("streams".to_owned(), streams);
        assert_eq!(
            result_text(&result, ResultTextLimits::default()),
            "Exit code: 0 | stdout: 3 lines | stderr: 0 lines\n\n\
             stdout (last 1 of 3, 2 skipped):\nlast\n\n\
             This is not all of it: read the rest with recall, ref \"p1\"."
        );
    }

    #[test]
    fn the_text_says_why_a_command_did_not_end_by_itself() {
        let mut result = finished_result(None, "", "");
        result.error = Some("stopped after 30 s, its time limit".to_owned());
        assert_eq!(
            result_text(&result, ResultTextLimits::default()),
            "Exit code: none | stdout: 0 lines | stderr: 0 lines\n\
             It did not end by itself: stopped after 30 s, its time limit."
        );
        result.error = None;
        result.extra.insert("signal".to_owned(), json!(11));
        assert!(
            result_text(&result, ResultTextLimits::default())
                .ends_with("It was ended by signal 11.")
        );
    }

    #[test]
    fn the_limits_scale_with_the_context() {
        let limits = |stderr, stdout| ResultTextLimits {
            stderr_lines: stderr,
            stdout_lines: stdout,
            ..ResultTextLimits::default()
        };
        assert_eq!(
            ResultTextLimits::for_context(200_000),
            ResultTextLimits::default()
        );
        assert_eq!(ResultTextLimits::for_context(1_000_000), limits(250, 100));
        assert_eq!(ResultTextLimits::for_context(8_000), limits(10, 5));
        assert_eq!(ResultTextLimits::for_context(u64::MAX), limits(500, 200));
    }

    proptest! {
        #[test]
        fn a_result_text_is_never_over_its_limit(
            stdout in 0..400_usize, stderr in 0..400_usize, width in 0..20_000_usize, context in any::<u64>(),
        ) {
            let lines = |count: usize| format!("{}\n", "ü".repeat(width / 2)).repeat(count.min(2_000_000 / (width + 1)));
            let mut result = finished_result(Some(0), &lines(stdout), &lines(stderr));
            result.error = Some("x".repeat(width * 10));
            let text = result_text(&result, ResultTextLimits::for_context(context));
            prop_assert!(text.len() <= MAX_RESULT_BYTES);
            prop_assert!(text.starts_with("Exit code: 0 | stdout: "));
        }
    }
}
