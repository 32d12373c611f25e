//! Parses server-sent events from bytes that arrive in arbitrary chunks.

/// Bytes of one line.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Bytes of the data of one event.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// The data of one event. Both providers repeat the event's name in the data.
pub(crate) type SseData = String;

/// A line or an event that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SseTooLong;

/// Parses a stream of events.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a carriage return, so a line feed after it belongs to the same line end.
    after_carriage_return: bool,
    bom_checked: bool,
}

impl SseParser {
    /// The events that these bytes complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseData>, SseTooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            let returned = std::mem::replace(&mut self.after_carriage_return, *byte == b'\r');
            match byte {
                b'\n' if returned => {}
                b'\n' | b'\r' => events.extend(self.end_line()?),
                _ if self.line.len() >= MAX_LINE_BYTES => return Err(SseTooLong),
                _ => self.line.push(*byte),
            }
        }
        Ok(events)
    }

    /// Ends the stream: some servers leave out the empty line after the last event.
    pub(crate) fn finish(&mut self) -> Result<Option<SseData>, SseTooLong> {
        self.end_line()?;
        Ok(self.data.take())
    }

    fn end_line(&mut self) -> Result<Option<SseData>, SseTooLong> {
        let bytes = std::mem::take(&mut self.line);
        // A split character is complete at the end of its line.
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if !std::mem::replace(&mut self.bom_checked, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.data.take());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            let data = match self.data.take() {
                None => value.to_owned(),
                Some(data) => format!("{data}\n{value}"),
            };
            if data.len() > MAX_EVENT_BYTES {
                return Err(SseTooLong);
            }
            self.data = Some(data);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(pieces: &[&[u8]]) -> Vec<SseData> {
        let mut sse = SseParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            events.extend(sse.push(piece).unwrap());
        }
        events.extend(sse.finish().unwrap());
        events
    }

    #[test]
    fn events_are_parsed_with_every_kind_of_line_end() {
        for text in [
            "\u{feff}event: a\ndata: 1\n\n: comment\n\ndata:2\ndata: 3\nid: 7\n\n",
            "event: a\r\ndata: 1\r\n\r\n: comment\r\n\r\ndata:2\r\ndata: 3\r\n\r\n",
            "data: 1\r\rdata: 2\rdata: 3\r\r",
            "data: 1\n\ndata: 2\ndata: 3",
        ] {
            assert_eq!(parse(&[text.as_bytes()]), ["1", "2\n3"], "{text:?}");
        }
    }

    #[test]
    fn invalid_bytes_are_replaced() {
        assert_eq!(parse(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
        assert_eq!(parse(&[b"data\n\n"]), [""]);
    }

    #[test]
    fn a_line_without_an_end_is_an_error_and_does_not_fill_the_memory() {
        let mut sse = SseParser::default();
        let piece = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(sse.push(&piece), Ok(vec![]));
        assert_eq!(sse.push(b"x"), Err(SseTooLong));
        let mut sse = SseParser::default();
        let line = [b"data: ".as_slice(), &piece[..MAX_LINE_BYTES / 2], b"\n"].concat();
        let refused = (0..20).any(|_| sse.push(&line).is_err());
        assert!(refused);
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_bytes_are_split(
            bytes in prop::collection::vec(prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), Just(0xc3), Just(0xa9), any::<u8>()
            ], 0..200),
            size in 1..9_usize,
        ) {
            let bytes = [b"data: x\xc3\xa9\r\n".as_slice(), &bytes].concat();
            let pieces: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(parse(&pieces), parse(&[&bytes]));
        }
    }
}
