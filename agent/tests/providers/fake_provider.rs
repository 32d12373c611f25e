//! A local server that imitates providers, including their failures.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// What the server does with one request.
pub(crate) enum FakeProviderReply {
    /// Status, headers and body.
    Full(u16, &'static str, String),
    /// A stream in these chunks, to its end.
    Stream(Vec<Vec<u8>>),
    /// A stream in these chunks, and then nothing, with the connection open.
    Stall(Vec<Vec<u8>>),
    /// A stream in these chunks, and then keep-alive comments forever.
    KeepAlive(Vec<Vec<u8>>),
    /// A stream in these chunks, and a reset that may overtake them.
    Reset(Vec<Vec<u8>>),
    /// A stream in these chunks, and a reset once the client has received some of it.
    ResetLater(Vec<Vec<u8>>),
}

/// A request that the server received.
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A running server.
pub(crate) struct FakeProvider {
    pub(crate) base_url: String,
    pub(crate) requests: mpsc::UnboundedReceiver<ReceivedRequest>,
    /// The test notifies this when it has received some of the answer.
    pub(crate) text_received: Arc<Notify>,
}

/// Starts a server that gives these replies in turn.
pub(crate) async fn start_fake_provider(replies: Vec<FakeProviderReply>) -> FakeProvider {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::unbounded_channel();
    let text_received = Arc::new(Notify::new());
    let server = FakeProvider {
        base_url: base,
        requests: received,
        text_received: text_received.clone(),
    };
    tokio::spawn(async move {
        let mut held = Vec::new();
        for reply in replies {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            // The test may not read the requests.
            let _ = requests.send(read_request(&mut socket).await);
            match reply {
                FakeProviderReply::Full(status, headers, body) => {
                    let answer = format!(
                        "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
                FakeProviderReply::Stream(pieces) => {
                    write_stream(&mut socket, pieces).await;
                    // The client may have closed the connection.
                    let _ = socket.write_all(b"0\r\n\r\n").await;
                }
                FakeProviderReply::Stall(pieces) => {
                    write_stream(&mut socket, pieces).await;
                    held.push(socket);
                }
                FakeProviderReply::KeepAlive(pieces) => {
                    write_stream(&mut socket, pieces).await;
                    tokio::spawn(send_keep_alives(socket));
                }
                FakeProviderReply::Reset(pieces) => {
                    write_stream(&mut socket, pieces).await;
                    socket.set_zero_linger().unwrap();
                }
                FakeProviderReply::ResetLater(pieces) => {
                    write_stream(&mut socket, pieces).await;
                    text_received.notified().await;
                    socket.set_zero_linger().unwrap();
                }
            }
        }
        // Further connections are refused.
        drop(listener);
        std::future::pending::<()>().await;
    });
    server
}

pub(crate) async fn read_request(socket: &mut TcpStream) -> ReceivedRequest {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                let body = serde_json::from_str(body).unwrap();
                let head = head.to_owned();
                return ReceivedRequest { head, body };
            }
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
}

/// Sends each piece as a chunk of its own, so that the network does not change the pieces.
async fn write_stream(socket: &mut TcpStream, pieces: Vec<Vec<u8>>) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        // The client may have closed the connection.
        let _ = socket.write_all(&chunk).await;
        tokio::task::yield_now().await;
    }
}

/// Sends a comment every 100 seconds, until the client has gone.
async fn send_keep_alives(mut socket: TcpStream) {
    let comment = ": here\n\n";
    let chunk = format!("{:x}\r\n{comment}\r\n", comment.len());
    while socket.write_all(chunk.as_bytes()).await.is_ok() {
        tokio::time::sleep(Duration::from_secs(100)).await;
    }
}

pub(crate) fn split_bytes(text: &str, size: usize) -> Vec<Vec<u8>> {
    text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect()
}
