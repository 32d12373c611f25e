//! Reads JSON values that a program writes one per line, with a bound on what is kept.

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Bytes of the longest line.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonLine {
    Value(Value),
    /// Something that is not JSON, in its beginning; programs print such things now and then.
    Other(String),
}

/// Characters that are repeated of a line that is not JSON.
const SHOWN_CHARS: usize = 200;

/// Reads lines until the program closes its output, or writes a line that is too long.
pub struct JsonLines<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> JsonLines<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
        }
    }

    /// The next line that is not empty; `None` at the end, or if nothing more can be read. Cancel
    /// safe: what was read of a line is kept.
    pub async fn next(&mut self) -> Option<JsonLine> {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok(available) => available,
                Err(error) => {
                    tracing::warn!(%error, "reading from a client failed");
                    return None;
                }
            };
            if available.is_empty() {
                // Half a line is no message.
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if self.line.len() + taken > MAX_LINE_BYTES {
                tracing::error!("a client wrote a line of more than {MAX_LINE_BYTES} bytes");
                return None;
            }
            self.line.extend_from_slice(&available[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                let line = line.trim();
                if !line.is_empty() {
                    return Some(parse(line));
                }
            }
        }
    }
}

fn parse(line: &str) -> JsonLine {
    match serde_json::from_str(line) {
        Ok(value) => JsonLine::Value(value),
        Err(_) => JsonLine::Other(line.chars().take(SHOWN_CHARS).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::BufReader;

    async fn read(text: &[u8]) -> Vec<JsonLine> {
        let mut lines = JsonLines::new(BufReader::new(text));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn lines_are_values_and_what_is_not_json_is_shown() {
        let expected = [
            JsonLine::Value(json!({"a": 1})),
            JsonLine::Other("hello \u{fffd}".to_owned()),
            JsonLine::Value(json!(2)),
        ];
        assert_eq!(
            read(b"{\"a\":1}\n\n  \nhello \xff\n2\n{\"half\":").await,
            expected
        );
        let long = "x".repeat(1000) + "\n";
        let shown = JsonLine::Other("x".repeat(SHOWN_CHARS));
        assert_eq!(read(long.as_bytes()).await, [shown]);
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory_without_end() {
        let endless = tokio::io::repeat(b'x');
        let mut lines = JsonLines::new(BufReader::new(endless));
        assert_eq!(lines.next().await, None);
        assert!(lines.line.len() <= MAX_LINE_BYTES);
    }
}
