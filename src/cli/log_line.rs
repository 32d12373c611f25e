//! One entry of the log as a line of text.

use pvp_client::View;
use pvp_client::narrate::{Narrator, NarratorStyle, shorten};
use pvp_protocol::Envelope;

/// The longest line that is printed, in characters.
const MAX_LINE_CHARS: usize = 160;

/// Formats the entries of a session's log, which it must receive in order.
#[derive(Default)]
pub(super) struct LogLines(View);

impl LogLines {
    /// Reads an entry that is not printed, for what later ones say about it.
    pub(super) fn skip(&mut self, envelope: &Envelope) {
        self.0.fold(envelope);
    }

    /// The next entry, with its sequence number, time and sender.
    pub(super) fn line(&mut self, envelope: &Envelope) -> String {
        self.0.fold(envelope);
        // Participants choose their names, so the log shows ids.
        let narrator = Narrator::new(&self.0, NarratorStyle::Log, super::one_line);
        let text = narrator.message_text(envelope);
        let seq = envelope.seq.map(|seq| seq.to_string()).unwrap_or_default();
        let sender = super::one_line(envelope.header.sender.as_str());
        let line = format!("{seq:>6}  {}  {sender}: {text}", envelope.at);
        shorten(&line, MAX_LINE_CHARS)
    }
}
