//! Upgrades an HTTP request to a WebSocket.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use tokio::net::TcpStream;
use tungstenite::handshake::derive_accept_key;

use super::{Socket, SocketLimits, SocketStream};
use crate::connection_stream::ConnectionStream;
use crate::network_stream::NetworkStream;

/// The subprotocol, selected if the client offers it; a client that offers none is served too.
pub const SUBPROTOCOL: &str = "pvp.v1";

/// Why a request is not upgraded. Converts to the response with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefusal {
    #[error("a WebSocket is opened with GET")]
    NotGet,
    #[error("a WebSocket needs HTTP/1.1")]
    OldHttp,
    #[error("this address speaks WebSocket: send `Connection: Upgrade` and `Upgrade: websocket`")]
    NotWebSocket,
    #[error("only `Sec-WebSocket-Version: 13` is supported")]
    WrongVersion,
    #[error("`Sec-WebSocket-Key` must be 16 bytes in base64, once")]
    BadKey,
    #[error("this connection cannot be upgraded")]
    NotUpgradable,
}

/// Checks a request and builds the 101 response. The socket exists once that response has been
/// sent, so the caller returns the response and awaits [`PendingUpgrade::accept`] in another task.
pub fn upgrade(
    request: &mut Request,
    limits: SocketLimits,
) -> Result<(Response, PendingUpgrade), UpgradeRefusal> {
    let key = validate_upgrade(request)?;
    let response = switching_protocols(key, request.headers());
    let on_upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let on_upgrade = on_upgrade.ok_or(UpgradeRefusal::NotUpgradable)?;
    Ok((response, PendingUpgrade { on_upgrade, limits }))
}

/// A connection whose 101 response is being sent.
#[derive(Debug)]
pub struct PendingUpgrade {
    on_upgrade: OnUpgrade,
    limits: SocketLimits,
}

impl PendingUpgrade {
    pub async fn accept(self) -> Result<Socket<SocketStream>, hyper::Error> {
        let (stream, leftover) = unwrap_stream(self.on_upgrade.await?);
        Ok(Socket::new(stream, leftover, self.limits))
    }
}

fn unwrap_stream(upgraded: Upgraded) -> (SocketStream, Bytes) {
    let upgraded = match upgraded.downcast::<TokioIo<ConnectionStream>>() {
        Ok(parts) => {
            return own_stream(parts.io.into_inner().into_network_stream(), parts.read_buf);
        }
        Err(upgraded) => upgraded,
    };
    match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => own_stream(NetworkStream::Tcp(parts.io.into_inner()), parts.read_buf),
        // `axum::serve` wraps the connection once more.
        Err(upgraded) => match downcast::<TokioIo<TcpStream>>(upgraded) {
            Ok(parts) => own_stream(NetworkStream::Tcp(parts.io.into_inner()), parts.read_buf),
            // hyper returns what it has already read when this stream is read.
            Err(upgraded) => (
                SocketStream::Other(Box::new(TokioIo::new(upgraded))),
                Bytes::new(),
            ),
        },
    }
}

fn own_stream(stream: NetworkStream, leftover: Bytes) -> (SocketStream, Bytes) {
    if let Err(error) = stream.tcp().set_nodelay(true) {
        tracing::debug!(%error, "small frames may be delayed");
    }
    (SocketStream::Own(stream), leftover)
}

fn validate_upgrade(request: &Request) -> Result<&HeaderValue, UpgradeRefusal> {
    let headers = request.headers();
    if request.method() != Method::GET {
        return Err(UpgradeRefusal::NotGet);
    }
    if request.version() < Version::HTTP_11 {
        return Err(UpgradeRefusal::OldHttp);
    }
    let wants_websocket = header_lists(headers, header::CONNECTION, "upgrade")
        && header_lists(headers, header::UPGRADE, "websocket");
    if !wants_websocket {
        return Err(UpgradeRefusal::NotWebSocket);
    }
    if single_header(headers, header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(UpgradeRefusal::WrongVersion);
    }
    single_header(headers, header::SEC_WEBSOCKET_KEY)
        .filter(|key| is_websocket_key(key.as_bytes()))
        .ok_or(UpgradeRefusal::BadKey)
}

/// Whether a comma-separated header, on one line or several, names a token.
fn header_lists(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|offered| offered.trim().eq_ignore_ascii_case(token))
}

fn single_header(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn is_websocket_key(key: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    matches!(key, [digits @ .., b'=', b'='] if digits.len() == 22 && digits.iter().all(is_base64))
}

fn switching_protocols(key: &HeaderValue, offered: &HeaderMap) -> Response {
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .expect("base64 is a valid header value");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if header_lists(offered, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        let chosen = HeaderValue::from_static(SUBPROTOCOL);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, chosen);
    }
    response
}

impl IntoResponse for UpgradeRefusal {
    fn into_response(self) -> Response {
        let text = format!("{self}\n");
        let upgrade = [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
        ];
        match self {
            UpgradeRefusal::NotGet => {
                let allow = [(header::ALLOW, "GET")];
                (StatusCode::METHOD_NOT_ALLOWED, allow, text).into_response()
            }
            UpgradeRefusal::NotWebSocket | UpgradeRefusal::NotUpgradable => {
                (StatusCode::UPGRADE_REQUIRED, upgrade, text).into_response()
            }
            UpgradeRefusal::WrongVersion => {
                let version = [(header::SEC_WEBSOCKET_VERSION, "13")];
                (StatusCode::UPGRADE_REQUIRED, upgrade, version, text).into_response()
            }
            UpgradeRefusal::OldHttp | UpgradeRefusal::BadKey => {
                (StatusCode::BAD_REQUEST, text).into_response()
            }
        }
    }
}
