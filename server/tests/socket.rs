//! Tests of the WebSocket transport behind a real HTTP server, with hand-written bytes and with an
//! independent client.

#![expect(clippy::unwrap_used, reason = "test helpers may panic like tests")]

use std::future::poll_fn;
use std::io::Cursor;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use pvp_server::socket::{
    Incoming, Socket, SocketError, SocketLimits, append_text_frame, text_frame, upgrade,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::FrameSocket;
use tungstenite::{Message, Utf8Bytes};

const LIMITS: SocketLimits = SocketLimits { max_message: 1_000 };

const HANDSHAKE: &str = "GET /listen HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// What the server receives on a connection, until it ends.
#[derive(Debug, PartialEq, Eq)]
enum ReceivedEvent {
    Text(String),
    Binary(Vec<u8>),
    Closed(Option<u16>),
    Refused(u16),
    Disconnected,
}

/// The first byte of a frame, and its payload.
type SocketFrame = (u8, Vec<u8>);

struct SocketCase {
    name: &'static str,
    sent: Vec<u8>,
    events: Vec<ReceivedEvent>,
    received: Vec<SocketFrame>,
}

#[tokio::test]
async fn conformance_in_one_piece() {
    let mut server = TestSocketServer::start().await;
    for case in cases() {
        let mut client = server.connect().await;
        client.write_all(HANDSHAKE.as_bytes()).await.unwrap();
        read_head(&mut client).await;
        client.write_all(&case.sent).await.unwrap();
        case.check(client, server.next_events().await).await;
    }
}

#[tokio::test]
async fn conformance_glued_to_the_handshake() {
    let mut server = TestSocketServer::start().await;
    for case in cases() {
        let mut client = server.connect().await;
        let glued = [HANDSHAKE.as_bytes(), &case.sent].concat();
        client.write_all(&glued).await.unwrap();
        read_head(&mut client).await;
        case.check(client, server.next_events().await).await;
    }
}

#[tokio::test]
async fn conformance_byte_by_byte() {
    for case in cases() {
        let (mut client, stream) = duplex(1);
        let (sender, mut events) = unbounded_channel();
        let socket = Socket::new(stream, Bytes::new(), LIMITS);
        let listening = tokio::spawn(record_events(socket, sender));
        client.write_all(&case.sent).await.unwrap();
        case.check(client, events.recv().await.unwrap()).await;
        listening.await.unwrap();
    }
}

#[tokio::test]
async fn conformance_over_a_stream_that_is_not_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (sender, mut events) = unbounded_channel();
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(axum::serve(listener, router(sender)).into_future());
    for case in cases() {
        let mut client = UnixStream::connect(&path).await.unwrap();
        let glued = [HANDSHAKE.as_bytes(), &case.sent].concat();
        client.write_all(&glued).await.unwrap();
        read_head(&mut client).await;
        case.check(client, events.recv().await.unwrap()).await;
    }
}

fn cases() -> Vec<SocketCase> {
    use ReceivedEvent::{Binary, Closed, Refused, Text};
    let text = |text: &str| Text(text.into());
    let bye = masked_frame(0x88, &1000u16.to_be_bytes());
    let bye_echo = close_frame(1000, "");
    let accepted = |name,
                    frames: &[Vec<u8>],
                    events: Vec<ReceivedEvent>,
                    received: Vec<SocketFrame>| SocketCase {
        name,
        sent: [&frames.concat()[..], &bye].concat(),
        events: events.into_iter().chain([Closed(Some(1000))]).collect(),
        received: received.into_iter().chain([bye_echo.clone()]).collect(),
    };
    let closing = |name, payload: &[u8], code: Option<u16>, reply: Vec<u8>| SocketCase {
        name,
        sent: masked_frame(0x88, payload),
        events: vec![Closed(code)],
        received: vec![(0x88, reply)],
    };
    let refused = |name, frames: &[Vec<u8>], code: u16, reason: &str| SocketCase {
        name,
        sent: frames.concat(),
        events: vec![Refused(code)],
        received: vec![close_frame(code, reason)],
    };
    let mut unmasked = masked_frame(0x81, b"hi");
    unmasked.splice(1..6, [2]);
    let huge = vec![0x81, 0xff, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4];
    let too_big = "message is larger than 1000 bytes";
    vec![
        accepted(
            "text",
            &[masked_frame(0x81, b"hi")],
            vec![text("hi")],
            vec![],
        ),
        accepted(
            "empty text",
            &[masked_frame(0x81, b"")],
            vec![text("")],
            vec![],
        ),
        accepted(
            "longest text",
            &[masked_frame(0x81, &[b'x'; 1_000])],
            vec![text(&"x".repeat(1_000))],
            vec![],
        ),
        accepted(
            "ping",
            &[masked_frame(0x89, b"here?")],
            vec![],
            vec![(0x8a, b"here?".to_vec())],
        ),
        accepted(
            "pings",
            &[masked_frame(0x89, b""), masked_frame(0x89, &[9; 125])],
            vec![],
            vec![(0x8a, vec![]), (0x8a, vec![9; 125])],
        ),
        accepted(
            "pong unasked",
            &[masked_frame(0x8a, b"here")],
            vec![],
            vec![],
        ),
        accepted(
            "binary",
            &[masked_frame(0x82, &[0, 255])],
            vec![Binary(vec![0, 255])],
            vec![],
        ),
        accepted(
            "fragments, cut inside a character",
            &[
                masked_frame(0x01, b"caf\xc3"),
                masked_frame(0x00, b""),
                masked_frame(0x80, b"\xa9"),
            ],
            vec![text("café")],
            vec![],
        ),
        accepted(
            "control between fragments",
            &[
                masked_frame(0x01, b"on"),
                masked_frame(0x89, b"here?"),
                masked_frame(0x80, b"ce"),
                masked_frame(0x81, b"2"),
            ],
            vec![text("once"), text("2")],
            vec![(0x8a, b"here?".to_vec())],
        ),
        closing("close", &[], None, vec![]),
        closing(
            "close with code",
            &[0x0f, 0xa0],
            Some(4000),
            vec![0x0f, 0xa0],
        ),
        closing(
            "close with reason",
            b"\x03\xe9leaving",
            Some(1001),
            vec![0x03, 0xe9],
        ),
        closing(
            "close with forbidden code",
            &[0x03, 0xed],
            Some(1002),
            vec![0x03, 0xea],
        ),
        refused(
            "close with half a code",
            &[masked_frame(0x88, &[3])],
            1002,
            "not WebSocket: Invalid close sequence",
        ),
        refused(
            "text not UTF-8",
            &[masked_frame(0x81, b"\xff")],
            1007,
            "text is not UTF-8",
        ),
        refused(
            "fragments not UTF-8",
            &[masked_frame(0x01, b"caf\xc3"), masked_frame(0x80, b"e")],
            1007,
            "text is not UTF-8",
        ),
        refused(
            "unmasked",
            &[unmasked],
            1002,
            "not WebSocket: Received an unmasked frame from client",
        ),
        refused(
            "reserved bit",
            &[masked_frame(0xc1, b"hi")],
            1002,
            "not WebSocket: Reserved bits are non-zero",
        ),
        refused(
            "reserved data",
            &[masked_frame(0x83, b"hi")],
            1002,
            "not WebSocket: Encountered invalid opcode: 3",
        ),
        refused(
            "reserved control",
            &[masked_frame(0x8b, b"hi")],
            1002,
            "not WebSocket: Encountered invalid opcode: 11",
        ),
        refused(
            "continuation of nothing",
            &[masked_frame(0x80, b"hi")],
            1002,
            "not WebSocket: Continue frame but nothing to continue",
        ),
        refused(
            "text inside a fragmented text",
            &[masked_frame(0x01, b"on"), masked_frame(0x81, b"ce")],
            1002,
            "not WebSocket: While waiting for more fragments received: TEXT",
        ),
        refused(
            "fragmented ping",
            &[masked_frame(0x09, b"he")],
            1002,
            "not WebSocket: Fragmented control frame",
        ),
        refused(
            "long ping",
            &[masked_frame(0x89, &[1; 126])],
            1002,
            "not WebSocket: Control frame too big (payload must be 125 bytes or less)",
        ),
        refused("header of 64 MiB", &[huge], 1009, too_big),
        refused(
            "one byte too many",
            &[masked_frame(0x81, &[b'x'; 1_001])],
            1009,
            too_big,
        ),
        refused(
            "fragments too big together",
            &[
                masked_frame(0x01, &[b'x'; 600]),
                masked_frame(0x80, &[b'x'; 401]),
            ],
            1009,
            too_big,
        ),
    ]
}

impl SocketCase {
    async fn check(self, mut client: impl AsyncRead + Unpin, events: Vec<ReceivedEvent>) {
        assert_eq!(events, self.events, "{}", self.name);
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.expect(self.name);
        assert_eq!(parse_frames(&bytes), self.received, "{}", self.name);
    }
}

#[tokio::test]
async fn text_frames_of_every_length_arrive() {
    let server = TestSocketServer::start().await;
    let (mut client, _) = tokio_tungstenite::connect_async(server.url("/talk"))
        .await
        .unwrap();
    for length in LENGTHS {
        let text = client.next().await.unwrap().unwrap();
        assert_eq!(text, Message::text("x".repeat(length)));
    }
    assert_eq!(
        client.next().await.unwrap().unwrap(),
        Message::text("merged")
    );
    assert_eq!(
        client.next().await.unwrap().unwrap(),
        Message::text("frames")
    );
    let close = client.next().await.unwrap().unwrap();
    let Message::Close(Some(close)) = close else {
        panic!("{close:?}")
    };
    assert_eq!(
        (u16::from(close.code), close.reason),
        (1000, Utf8Bytes::from("that was all"))
    );
    assert!(client.next().await.is_none());
}

const LENGTHS: [usize; 5] = [0, 125, 126, 65_535, 65_536];

async fn send_texts<IO: AsyncRead + AsyncWrite + Unpin>(mut socket: Socket<IO>) {
    for length in LENGTHS {
        socket.push(text_frame(&vec![b'x'; length]));
    }
    let mut merged = BytesMut::new();
    append_text_frame(&mut merged, b"merged");
    append_text_frame(&mut merged, b"frames");
    socket.push(merged.freeze());
    poll_fn(|cx| socket.poll_write(cx)).await.unwrap();
    socket.close(1000, "that was all");
    wait_closed(socket).await;
}

#[tokio::test]
async fn an_independent_client_is_understood() {
    let mut server = TestSocketServer::start().await;
    let (mut client, _) = tokio_tungstenite::connect_async(server.url("/listen"))
        .await
        .unwrap();
    client.send(Message::text("hello")).await.unwrap();
    client.send(Message::Ping("here?".into())).await.unwrap();
    assert_eq!(
        client.next().await.unwrap().unwrap(),
        Message::Pong("here?".into())
    );
    client.close(None).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Close(None));
    assert!(client.next().await.is_none());
    let hello = ReceivedEvent::Text("hello".into());
    assert_eq!(
        server.next_events().await,
        [hello, ReceivedEvent::Closed(None)]
    );
}

#[tokio::test]
async fn a_peer_that_vanishes_is_reported_as_disconnected() {
    let mut server = TestSocketServer::start().await;
    let mut client = server.connect().await;
    client.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    read_head(&mut client).await;
    drop(client);
    assert_eq!(server.next_events().await, [ReceivedEvent::Disconnected]);
}

#[tokio::test]
async fn a_close_is_delivered_despite_unread_input() {
    let chatter = masked_frame(0x81, &[b'x'; 900]).repeat(500);
    let gibberish = vec![0xff; 500_000];
    for unread in [chatter, gibberish] {
        let server = TestSocketServer::start().await;
        let mut client = server.connect().await;
        let handshake = HANDSHAKE.replace("/listen", "/refuse");
        let glued = [handshake.as_bytes(), &unread].concat();
        client.write_all(&glued).await.unwrap();
        read_head(&mut client).await;
        client.write_all(&masked_frame(0x88, &[])).await.unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(
            parse_frames(&bytes),
            [(0x81, b"no".to_vec()), close_frame(1008, "not welcome")]
        );
    }
}

async fn refuse_peer<IO: AsyncRead + AsyncWrite + Unpin>(mut socket: Socket<IO>) {
    socket.push(text_frame(b"no"));
    socket.close(1008, "not welcome");
    wait_closed(socket).await;
}

#[tokio::test]
async fn the_subprotocol_is_chosen_when_offered() {
    let server = TestSocketServer::start().await;
    for (offered, chosen) in [("chat, pvp.v1", Some("pvp.v1")), ("chat", None)] {
        let offer = format!("Sec-WebSocket-Protocol: {offered}\r\n\r\n");
        let head = server
            .response_head(&HANDSHAKE.replace("\r\n\r\n", &format!("\r\n{offer}")))
            .await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert_eq!(
            header(&head, "sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        assert_eq!(header(&head, "sec-websocket-protocol"), chosen);
    }
    let mut request = server.url("/talk").into_client_request().unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", "pvp.v1".parse().unwrap());
    tokio_tungstenite::connect_async(request).await.unwrap();
}

#[tokio::test]
async fn requests_that_are_not_upgrades_get_the_reason() {
    let server = TestSocketServer::start().await;
    let refused = [
        ("GET /", "POST /", "405", ("allow", "GET")),
        (
            "HTTP/1.1",
            "HTTP/1.0",
            "400",
            ("content-type", "text/plain; charset=utf-8"),
        ),
        (
            "keep-alive, Upgrade",
            "keep-alive",
            "426",
            ("upgrade", "websocket"),
        ),
        (
            "Upgrade: websocket",
            "Upgrade: h2c",
            "426",
            ("upgrade", "websocket"),
        ),
        (
            "Version: 13",
            "Version: 8",
            "426",
            ("sec-websocket-version", "13"),
        ),
        (
            "Sec-WebSocket-Version: 13\r\n",
            "",
            "426",
            ("sec-websocket-version", "13"),
        ),
        (
            "dGhlIHNhbXBsZSBub25jZQ==",
            "dGhl",
            "400",
            ("content-type", "text/plain; charset=utf-8"),
        ),
        (
            "Sec-WebSocket-Key",
            "X-Key",
            "400",
            ("content-type", "text/plain; charset=utf-8"),
        ),
    ];
    for (right, wrong, status, (name, value)) in refused {
        let head = server.response_head(&HANDSHAKE.replace(right, wrong)).await;
        assert_eq!(head.split(' ').nth(1), Some(status), "{wrong}");
        assert_eq!(header(&head, name), Some(value), "{wrong}");
    }
}

struct TestSocketServer {
    address: std::net::SocketAddr,
    events: UnboundedReceiver<Vec<ReceivedEvent>>,
}

impl TestSocketServer {
    async fn start() -> Self {
        let (sender, events) = unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, router(sender)).into_future());
        Self { address, events }
    }

    fn url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.address)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn next_events(&mut self) -> Vec<ReceivedEvent> {
        self.events.recv().await.unwrap()
    }

    async fn response_head(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        read_head(&mut client).await
    }
}

fn router(events: UnboundedSender<Vec<ReceivedEvent>>) -> Router {
    Router::new()
        .route("/{what}", any(serve))
        .with_state(events)
}

async fn serve(
    State(events): State<UnboundedSender<Vec<ReceivedEvent>>>,
    mut request: Request,
) -> Response {
    let (response, pending) = match upgrade(&mut request, LIMITS) {
        Ok(upgraded) => upgraded,
        Err(refusal) => return refusal.into_response(),
    };
    let path = request.uri().path().to_owned();
    tokio::spawn(async move {
        let socket = pending.accept().await.unwrap();
        match path.as_str() {
            "/talk" => send_texts(socket).await,
            "/refuse" => refuse_peer(socket).await,
            _ => record_events(socket, events).await,
        }
    });
    response
}

async fn record_events<IO: AsyncRead + AsyncWrite + Unpin>(
    mut socket: Socket<IO>,
    sender: UnboundedSender<Vec<ReceivedEvent>>,
) {
    let mut all = Vec::new();
    while all
        .iter()
        .all(|event| matches!(event, ReceivedEvent::Text(_) | ReceivedEvent::Binary(_)))
    {
        let event = match poll_fn(|cx| socket.poll_incoming(cx)).await {
            Ok(Incoming::Text(text)) => ReceivedEvent::Text(text.to_string()),
            Ok(Incoming::Binary(bytes)) => ReceivedEvent::Binary(bytes.to_vec()),
            Ok(Incoming::Closed { code }) => ReceivedEvent::Closed(code),
            Err(SocketError::Disconnected) => ReceivedEvent::Disconnected,
            Err(error) => ReceivedEvent::Refused(error.close_code().unwrap()),
        };
        all.push(event);
    }
    sender.send(all).unwrap();
    wait_closed(socket).await;
}

async fn wait_closed<IO: AsyncRead + AsyncWrite + Unpin>(mut socket: Socket<IO>) {
    poll_fn(|cx| socket.poll_closed(cx)).await;
}

async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn masked_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x5a, 0x00, 0xff, 0x13];
    let length = match payload.len() {
        short @ ..=125 => vec![0x80 | short as u8],
        long => [vec![0x80 | 126], (long as u16).to_be_bytes().to_vec()].concat(),
    };
    let payload = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, mask)| byte ^ mask);
    [first]
        .into_iter()
        .chain(length)
        .chain(mask)
        .chain(payload)
        .collect()
}

fn close_frame(code: u16, reason: &str) -> SocketFrame {
    (0x88, [&code.to_be_bytes(), reason.as_bytes()].concat())
}

fn parse_frames(bytes: &[u8]) -> Vec<SocketFrame> {
    let mut socket = FrameSocket::new(Cursor::new(bytes));
    let mut frames = Vec::new();
    while let Some(frame) = socket.read(None).unwrap() {
        let first = u8::from(frame.header().opcode) | u8::from(frame.header().is_final) << 7;
        frames.push((first, frame.into_payload().to_vec()));
    }
    let (_, rest) = socket.into_inner();
    assert!(rest.is_empty(), "a frame was cut short");
    frames
}
