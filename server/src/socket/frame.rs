//! Encodes the WebSocket frames that a server sends, which are final and never masked.

use bytes::{BufMut, Bytes, BytesMut};

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PONG: u8 = 0x8a;

/// Two bytes and the longest length field.
const MAX_HEADER_BYTES: usize = 10;

/// What remains of a control frame's 125 bytes after the close code.
const MAX_REASON_BYTES: usize = 123;

/// Encodes one text message, which must be UTF-8; all receivers can share the frame.
pub fn text_frame(text: &[u8]) -> Bytes {
    let mut buffer = BytesMut::with_capacity(MAX_HEADER_BYTES + text.len());
    append_text_frame(&mut buffer, text);
    buffer.freeze()
}

/// Encodes one text message whose text is these parts one after the other.
pub fn text_frame_of_parts(parts: &[&[u8]]) -> Bytes {
    let length = parts.iter().map(|part| part.len()).sum();
    let mut buffer = BytesMut::with_capacity(MAX_HEADER_BYTES + length);
    append_header(&mut buffer, TEXT, length);
    for part in parts {
        buffer.put_slice(part);
    }
    buffer.freeze()
}

/// Encodes one text message at the end of a buffer, so that one buffer can hold several.
pub fn append_text_frame(buffer: &mut BytesMut, text: &[u8]) {
    append_frame(buffer, TEXT, text);
}

/// Appends a pong. `payload` comes from a ping, so it has at most 125 bytes.
pub(super) fn append_pong(buffer: &mut BytesMut, payload: &[u8]) {
    append_frame(buffer, PONG, payload);
}

/// Encodes a close. Without a code the reason is left out too, because the format requires one.
pub(super) fn close_frame(code: Option<u16>, reason: &str) -> Bytes {
    let mut payload = BytesMut::new();
    if let Some(code) = code {
        payload.put_u16(code);
        payload.put_slice(truncate_reason(reason).as_bytes());
    }
    let mut buffer = BytesMut::with_capacity(2 + payload.len());
    append_frame(&mut buffer, CLOSE, &payload);
    buffer.freeze()
}

fn append_frame(buffer: &mut BytesMut, first: u8, payload: &[u8]) {
    buffer.reserve(MAX_HEADER_BYTES + payload.len());
    append_header(buffer, first, payload.len());
    buffer.put_slice(payload);
}

fn append_header(buffer: &mut BytesMut, first: u8, length: usize) {
    buffer.put_u8(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => buffer.put_u8(short),
        (_, Ok(medium)) => {
            buffer.put_u8(126);
            buffer.put_u16(medium);
        }
        (_, Err(_)) => {
            buffer.put_u8(127);
            buffer.put_u64(length as u64);
        }
    }
}

fn truncate_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_use_the_shortest_length() {
        let header = |length: usize| {
            let frame = text_frame(&vec![b'x'; length]);
            frame[..frame.len() - length].to_vec()
        };
        assert_eq!(header(0), [0x81, 0]);
        assert_eq!(header(125), [0x81, 125]);
        assert_eq!(header(126), [0x81, 126, 0, 126]);
        assert_eq!(header(65_535), [0x81, 126, 0xff, 0xff]);
        assert_eq!(header(65_536), [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn merged_frames_are_the_frames_one_after_the_other() {
        let mut merged = BytesMut::new();
        append_text_frame(&mut merged, b"one");
        append_text_frame(&mut merged, b"two");
        assert_eq!(merged, [text_frame(b"one"), text_frame(b"two")].concat());
    }

    #[test]
    fn a_frame_of_parts_is_the_frame_of_the_whole_text() {
        let long = [b'x'; 70_000];
        let parts: [&[u8]; 3] = [b"one", &long, b"two"];
        assert_eq!(text_frame_of_parts(&parts), text_frame(&parts.concat()));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let frame = close_frame(Some(1008), &"é".repeat(100));
        assert_eq!(frame[..4], [0x88, 124, 0x03, 0xf0]);
        assert_eq!(frame[4..], *"é".repeat(61).as_bytes());
    }

    #[test]
    fn a_close_without_code_is_empty() {
        assert_eq!(close_frame(None, "unsaid"), [0x88, 0].as_slice());
    }
}
