//! Tests of the socket over a fake stream that the test controls read by read and write by write.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use proptest::prelude::*;
use tokio::io::ReadBuf;
use tungstenite::protocol::frame::FrameSocket;

use super::*;

const LIMITS: SocketLimits = SocketLimits {
    max_message: 10_000,
};

#[derive(Default)]
struct FakeStream {
    unread: Vec<u8>,
    /// How many bytes may still be written to it.
    writable: usize,
    written: Vec<u8>,
    writes: usize,
}

impl AsyncRead for FakeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Poll::Pending;
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.drain(..length).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FakeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.writable == 0 {
            return Poll::Pending;
        }
        let offered = slices
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect::<Vec<_>>();
        let length = offered.len().min(self.writable);
        self.written.extend_from_slice(&offered[..length]);
        self.writable -= length;
        self.writes += 1;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket<FakeStream> {
    fn with_writable(writable: usize) -> Self {
        let stream = FakeStream {
            writable,
            ..FakeStream::default()
        };
        Socket::new(stream, Bytes::new(), LIMITS)
    }

    fn receive_bytes(&mut self, frames: &[u8]) -> Poll<Result<Incoming, SocketError>> {
        self.io.unread.extend_from_slice(frames);
        self.poll_incoming(&mut noop_context())
    }

    fn receive_text(&mut self, frames: &[u8]) -> Utf8Bytes {
        let incoming = self.receive_bytes(frames);
        let Poll::Ready(Ok(Incoming::Text(text))) = incoming else {
            panic!("not a text: {incoming:?}");
        };
        text
    }

    /// What the peer has received, as first byte and payload of each frame.
    fn received(&self) -> Vec<(u8, Vec<u8>)> {
        let mut frames = FrameSocket::new(Cursor::new(&self.io.written));
        let mut received = Vec::new();
        while let Some(frame) = frames.read(None).unwrap() {
            let first = u8::from(frame.header().opcode) | u8::from(frame.header().is_final) << 7;
            received.push((first, frame.into_payload().to_vec()));
        }
        let whole: usize = received
            .iter()
            .map(|(_, payload)| header_length(payload.len()) + payload.len())
            .sum();
        assert_eq!(
            whole,
            self.io.written.len(),
            "something besides whole frames was written"
        );
        received
    }
}

fn header_length(payload: usize) -> usize {
    match payload {
        0..=125 => 2,
        126..=65_535 => 4,
        _ => 10,
    }
}

fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = frame::text_frame(payload).to_vec();
    let header = frame.len() - payload.len();
    frame[0] = first;
    frame[1] |= 0x80;
    // A mask of zeros leaves the payload as it is.
    frame.splice(header..header, [0; 4]);
    frame
}

#[test]
fn a_batch_of_64_frames_leaves_in_one_vectored_write() {
    let mut socket = Socket::with_writable(usize::MAX);
    assert!(
        socket
            .receive_bytes(&client_frame(0x89, b"are you there"))
            .is_pending()
    );
    assert_eq!(socket.io.writes, 1);
    for index in 0..64 {
        socket.push(text_frame(format!("frame {index}").as_bytes()));
    }
    assert!(!socket.wants_frames());
    assert!(socket.poll_write(&mut noop_context()).is_ready());
    assert_eq!(socket.io.writes, 2);
    assert!(socket.wants_frames());
    assert_eq!(socket.bytes_written(), socket.io.written.len() as u64);
    let texts = (0..64).map(|index| (0x81, format!("frame {index}").into_bytes()));
    let pong = (0x8a, b"are you there".to_vec());
    assert_eq!(
        socket.received(),
        std::iter::once(pong).chain(texts).collect::<Vec<_>>()
    );
}

#[test]
fn an_idle_socket_is_small() {
    let parser_buffer = 256;
    let size = size_of::<Socket<SocketStream>>() + parser_buffer;
    assert!(size < 1024, "{size} bytes");
}

#[test]
fn a_large_message_leaves_no_large_buffer_behind() {
    let mut socket = Socket::with_writable(0);
    let text = socket.receive_text(&client_frame(0x81, &[b'x'; 9_000]));
    assert!(Bytes::from(text).is_unique());
    assert_eq!(
        socket.receive_text(&client_frame(0x81, b"small")).as_str(),
        "small"
    );
}

#[test]
fn the_limit_can_be_raised() {
    let mut socket = Socket::with_writable(0);
    socket.set_max_message(20_000);
    let large = client_frame(0x81, &[b'x'; 20_000]);
    assert_eq!(socket.receive_text(&large).len(), 20_000);
    assert_eq!(socket.receive_text(&large).len(), 20_000);
}

#[test]
fn an_oversize_message_is_refused_by_its_header() {
    let mut socket = Socket::with_writable(usize::MAX);
    let header = [0x81, 0xff, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    let refused = socket.receive_bytes(&header);
    assert!(matches!(
        refused,
        Poll::Ready(Err(SocketError::TooBig { limit: 10_000 }))
    ));
    assert!(socket.poll_write(&mut noop_context()).is_ready());
    let close = [&[0x03, 0xf1][..], b"message is larger than 10000 bytes"].concat();
    assert_eq!(socket.received(), [(0x88, close)]);
}

#[test]
fn nothing_follows_a_close() {
    let mut socket = Socket::with_writable(0);
    socket.push(text_frame(b"before"));
    socket.close(1008, "enough");
    socket.push(text_frame(b"after"));
    socket.close(1000, "again");
    assert!(
        socket
            .receive_bytes(&client_frame(0x89, b"ping"))
            .is_pending()
    );
    assert!(!socket.wants_frames());
    socket.io.writable = usize::MAX;
    assert!(socket.poll_write(&mut noop_context()).is_ready());
    let close = [&[0x03, 0xf0][..], b"enough"].concat();
    assert_eq!(
        socket.received(),
        [(0x81, b"before".to_vec()), (0x88, close)]
    );
    assert!(!socket.wants_frames());
}

#[test]
fn a_closed_socket_waits_for_the_peers_close() {
    let mut socket = Socket::with_writable(usize::MAX);
    socket.close(1000, "");
    assert!(socket.poll_closed(&mut noop_context()).is_pending());
    socket.io.unread = client_frame(0x81, b"still talking");
    assert!(socket.poll_closed(&mut noop_context()).is_pending());
    socket.io.unread = client_frame(0x88, &[0x03, 0xe8]);
    assert!(socket.poll_closed(&mut noop_context()).is_ready());
    assert_eq!(socket.received(), [(0x88, vec![0x03, 0xe8])]);
}

#[test]
fn reading_stops_while_too_many_pongs_are_unwritten() {
    let mut socket = Socket::with_writable(0);
    let ping = client_frame(0x89, &[7; 125]);
    let pings = ping.repeat(10_000);
    let mut polls = 0;
    assert!(socket.receive_bytes(&pings).is_pending());
    while socket.io.unread.len() > pings.len() - 64 * 1024 && polls < 1_000 {
        assert!(socket.poll_incoming(&mut noop_context()).is_pending());
        polls += 1;
    }
    assert_eq!(polls, 1_000, "the stream was read on and on");
    socket.io.writable = usize::MAX;
    while socket.bytes_written() < 10_000 * 127 {
        assert!(socket.poll_incoming(&mut noop_context()).is_pending());
    }
    assert_eq!(socket.received(), vec![(0x8a, vec![7; 125]); 10_000]);
}

#[test]
fn a_busy_peer_yields_to_other_tasks() {
    struct WakeCounter(AtomicUsize);
    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(WakeCounter(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let mut socket = Socket::with_writable(0);
    socket.io.unread = client_frame(0x81, b"hey").repeat(160);
    let mut bursts = [0; 3];
    for burst in &mut bursts {
        while socket.poll_incoming(&mut cx).is_ready() {
            *burst += 1;
        }
    }
    assert_eq!(bursts, [64, 64, 32]);
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}

#[derive(Clone, Debug)]
enum SocketStep {
    Push(usize),
    Ping(usize),
    Writable(usize),
}

fn step() -> impl Strategy<Value = SocketStep> {
    prop_oneof![
        prop_oneof![0..20usize, 100..300usize].prop_map(SocketStep::Push),
        (0..=125usize).prop_map(SocketStep::Ping),
        prop_oneof![Just(1), 0..20usize, 0..2_000usize].prop_map(SocketStep::Writable),
    ]
}

proptest! {
    #[test]
    fn frames_arrive_whole_and_in_order_however_little_is_writable(
        steps in prop::collection::vec(step(), 0..60)
    ) {
        let mut socket = Socket::with_writable(0);
        let (mut texts, mut pongs) = (Vec::new(), Vec::new());
        for (index, step) in steps.into_iter().enumerate() {
            let payload = |length| vec![b'a' + (index % 26) as u8; length];
            match step {
                SocketStep::Push(length) => {
                    socket.push(text_frame(&payload(length)));
                    texts.push((0x81, payload(length)));
                }
                SocketStep::Ping(length) => {
                    prop_assert!(socket.receive_bytes(&client_frame(0x89, &payload(length))).is_pending());
                    pongs.push((0x8a, payload(length)));
                }
                SocketStep::Writable(bytes) => {
                    socket.io.writable = bytes;
                    let written = socket.poll_write(&mut noop_context());
                    prop_assert_eq!(written.is_ready(), socket.wants_frames());
                }
            }
        }
        socket.io.writable = usize::MAX;
        while socket.poll_incoming(&mut noop_context()).is_ready() {}
        prop_assert!(socket.poll_write(&mut noop_context()).is_ready());
        let is_pong = |frame: &(u8, Vec<u8>)| frame.0 == 0x8a;
        let (received_pongs, received_texts) = socket.received().into_iter().partition::<Vec<_>, _>(is_pong);
        prop_assert_eq!(received_texts, texts);
        prop_assert_eq!(received_pongs, pongs);
    }

    #[test]
    fn messages_arrive_the_same_however_they_are_cut(
        messages in prop::collection::vec((0..3_000usize, any::<bool>()), 1..10),
        cuts in prop::collection::vec(1..2_000usize, 1..50),
    ) {
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for (index, (length, fragmented)) in messages.into_iter().enumerate() {
            let text = vec![b'a' + index as u8; length];
            if fragmented {
                stream.extend(client_frame(0x01, &text[..length / 2]));
                stream.extend(client_frame(0x8a, b"a pong between fragments"));
                stream.extend(client_frame(0x80, &text[length / 2..]));
            } else {
                stream.extend(client_frame(0x81, &text));
            }
            sent.push(text);
        }
        let mut socket = Socket::with_writable(0);
        let mut received = Vec::new();
        let mut cuts = cuts.into_iter().cycle();
        while !stream.is_empty() {
            let cut = cuts.next().unwrap().min(stream.len());
            socket.io.unread = stream.drain(..cut).collect();
            // Pending may only mean that other tasks get a turn.
            for _ in 0..3 {
                while let Poll::Ready(incoming) = socket.poll_incoming(&mut noop_context()) {
                    let Ok(Incoming::Text(text)) = incoming else { panic!("{incoming:?}") };
                    received.push(text.as_bytes().to_vec());
                }
            }
        }
        prop_assert_eq!(received, sent);
    }
}
