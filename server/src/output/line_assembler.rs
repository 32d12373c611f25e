//! Joins chunks of output into lines.

use pvp_protocol::payload::{OutputLine, OutputStream, ToolOutput};
use pvp_session::{OutputStreams, line_ends};

/// Joins chunks of output into lines.
#[derive(Default)]
pub(super) struct LineAssembler {
    /// The unfinished last line of stdout and of stderr.
    unfinished: [String; 2],
    /// The number of the next line.
    pub(super) next_line: u64,
    pub(super) lines: Vec<OutputLine>,
}

impl LineAssembler {
    /// Takes a chunk from before the window, which contains part of an unfinished line.
    pub(super) fn resume(&mut self, output: &ToolOutput) {
        self.unfinished[output.stream as usize].push_str(&output.text);
    }

    /// Keeps the last bytes of what was resumed: the unfinished line itself.
    pub(super) fn keep_last(&mut self, stream: OutputStream, bytes: u64) {
        let text = &mut self.unfinished[stream as usize];
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = text.floor_char_boundary(text.len().saturating_sub(bytes));
        text.drain(..start);
    }

    /// Takes the next chunk. Only its own text is searched, so that a line costs the same however
    /// many chunks it comes in.
    pub(super) fn push(&mut self, output: &ToolOutput) {
        let slot = output.stream as usize;
        let mut rest = output.text.as_str();
        while let Some((end_of_line, after)) = rest.split_once('\n') {
            let line = self.take_line(slot, end_of_line);
            self.push_line(output.stream, line);
            rest = after;
        }
        self.unfinished[slot].push_str(rest);
        if line_ends(self.unfinished[slot].len() as u64, output.complete) {
            let line = self.take_line(slot, "");
            self.push_line(output.stream, line);
        }
    }

    /// The unfinished line with its end.
    fn take_line(&mut self, slot: usize, end: &str) -> String {
        let mut line = std::mem::take(&mut self.unfinished[slot]);
        line.push_str(end);
        line
    }

    /// Counts unfinished lines as lines.
    pub(super) fn finish(&mut self, streams: OutputStreams) {
        for stream in streams.iter() {
            let rest = std::mem::take(&mut self.unfinished[stream as usize]);
            if !rest.is_empty() {
                self.push_line(stream, rest);
            }
        }
    }

    fn push_line(&mut self, stream: OutputStream, text: String) {
        let number = self.next_line;
        self.next_line += 1;
        self.lines.push(OutputLine {
            number,
            stream,
            text,
        });
    }
}
