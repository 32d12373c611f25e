//! Where Codex's own screen connects: a WebSocket on loopback, for one connection with a secret.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use pvp_client::fresh_id;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::wire::{MAX_MESSAGE_BYTES, Message};

/// How long a connection may take to say who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that may say who they are at the same time.
const MAX_HANDSHAKES: usize = 256;

/// Messages that may wait for the screen. At more than this it is not reading.
const MAX_UNWRITTEN: usize = 8192;

/// Messages of the screen that may wait to be looked at.
const MAX_UNREAD: usize = 64;

/// Where the screen connects.
pub struct ScreenListener {
    listener: TcpListener,
    address: SocketAddr,
    secret: String,
}

/// The screen's connection.
pub struct Screen {
    writer: mpsc::Sender<Value>,
    messages: mpsc::Receiver<Message>,
}

impl ScreenListener {
    pub async fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            // Two ids have more than 128 random bits.
            secret: format!("{}{}", fresh_id(), fresh_id()),
        })
    }

    /// The address, for `--remote`.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// What the screen has to say to be let in.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Waits for the screen. Nobody else is let in, then or later. Whoever connects and says nothing
    /// does not keep the screen waiting.
    pub async fn accept(self) -> io::Result<Screen> {
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if handshakes.len() < MAX_HANDSHAKES => {
                    let (socket, _) = accepted?;
                    let shaken = shake_hands(socket, self.secret.clone());
                    handshakes.spawn(tokio::time::timeout(HANDSHAKE_TIMEOUT, shaken));
                }
                Some(shaken) = handshakes.join_next() => match shaken {
                    Ok(Ok(Some(socket))) => return Ok(Screen::new(socket)),
                    Ok(Ok(None) | Err(_)) | Err(_) => {
                        tracing::warn!("somebody else tried to be Codex's screen");
                    }
                },
            }
        }
    }
}

async fn shake_hands(socket: TcpStream, secret: String) -> Option<WebSocketStream<TcpStream>> {
    let expected = format!("Bearer {secret}");
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    #[expect(clippy::result_large_err, reason = "the form that the library wants")]
    let check = move |request: &Request, response: Response| {
        let given = request.headers().get("authorization");
        let is_screen = given.is_some_and(|given| given.as_bytes() == expected.as_bytes());
        // A page in a browser says where it comes from, and has no business here.
        let is_page = request.headers().contains_key("origin");
        match is_screen && !is_page {
            true => Ok(response),
            false => {
                let mut refused = ErrorResponse::new(None);
                *refused.status_mut() = StatusCode::UNAUTHORIZED;
                Err(refused)
            }
        }
    };
    let accepted =
        tokio_tungstenite::accept_hdr_async_with_config(socket, check, Some(config)).await;
    accepted.ok()
}

impl Screen {
    fn new(socket: WebSocketStream<TcpStream>) -> Self {
        let (writer, mut unwritten) = mpsc::channel::<Value>(MAX_UNWRITTEN);
        let (reader, messages) = mpsc::channel(MAX_UNREAD);
        let (mut sink, mut stream) = socket.split();
        tokio::spawn(async move {
            while let Some(message) = unwritten.recv().await {
                let frame = Frame::text(message.to_string());
                if sink.send(frame).await.is_err() {
                    return;
                }
            }
            let _ = sink.close().await;
        });
        tokio::spawn(async move {
            while let Some(Ok(frame)) = stream.next().await {
                let Ok(text) = frame.to_text() else { return };
                if !frame.is_text() {
                    continue;
                }
                match Message::parse(text) {
                    Some(message) => {
                        if reader.send(message).await.is_err() {
                            return;
                        }
                    }
                    None => tracing::warn!("Codex's screen said something that is no message"),
                }
            }
        });
        Self { writer, messages }
    }

    /// The next message; `None` when it is gone. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Sends a message; false if it cannot take it.
    #[must_use]
    pub(super) fn send(&self, message: Value) -> bool {
        self.writer.try_send(message).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;

    #[tokio::test]
    async fn strangers_who_say_nothing_do_not_keep_the_screen_waiting() {
        let listener = ScreenListener::bind().await.unwrap();
        let (address, url) = (listener.address, listener.url());
        let bearer = format!("Bearer {}", listener.secret());
        let mut silent = Vec::new();
        for _ in 0..MAX_HANDSHAKES / 2 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let accepted = tokio::spawn(listener.accept());
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", bearer.parse().unwrap());
        let connected = tokio_tungstenite::connect_async(request);
        let connected = tokio::time::timeout(HANDSHAKE_TIMEOUT / 2, connected).await;
        assert!(connected.unwrap().is_ok());
        assert!(accepted.await.unwrap().is_ok());
    }
}
