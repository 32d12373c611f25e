//! Posts to addresses of the web, and to none that the caller may not reach.
//!
//! The host is looked up once, every address is checked, and the connection goes to a checked address,
//! so that a name cannot lead elsewhere the second time. Redirects are not followed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

use crate::addresses::{HostResolver, SystemResolver, is_public};
use crate::error::DeliveryError;
use crate::sender::wall_time;
use crate::web_target::WebTarget;

/// How long one address may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long all of a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How many addresses of a host are tried.
const MAX_ADDRESSES: usize = 3;

/// How long the body of an answer may take, which says nothing more.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The most bytes of an answer's head that are read.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The most bytes of an answer's body that are read; none of them are used.
const MAX_BODY_BYTES: usize = 4 * 1024;

/// The most bytes that are read of all of an answer: a receiver may send heads without end before the
/// one that counts.
const MAX_ANSWER_BYTES: usize = MAX_HEAD_BYTES + MAX_BODY_BYTES;

/// The longest that a receiver may ask to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Posts to addresses of the web.
pub struct WebPoster {
    resolver: Arc<dyn HostResolver>,
    /// Made when it is first needed, because loading the certificates of the system takes a while.
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Default for WebPoster {
    fn default() -> Self {
        Self::with_resolver(Arc::new(SystemResolver::default()))
    }
}

impl WebPoster {
    /// A poster that looks up hosts with this resolver.
    pub fn with_resolver(resolver: Arc<dyn HostResolver>) -> Self {
        Self {
            resolver,
            tls: OnceCell::new(),
        }
    }

    /// Posts a body, and returns when the receiver has taken it.
    pub(crate) async fn post(
        &self,
        target: &WebTarget,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), DeliveryError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let request = build_request(target, headers, body)?;
        let connecting = timeout_at(deadline, self.connect(target)).await;
        let stream = connecting.map_err(|_| too_slow())??;
        if target.url().scheme() == "http" {
            return exchange(stream, request, deadline).await;
        }
        let securing = timeout_at(deadline, self.secure(target, stream)).await;
        let stream = securing.map_err(|_| too_slow())??;
        exchange(stream, request, deadline).await
    }

    async fn connect(&self, target: &WebTarget) -> Result<TcpStream, DeliveryError> {
        connect(&self.resolve(target).await?).await
    }

    async fn secure(
        &self,
        target: &WebTarget,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DeliveryError> {
        let host = target.url().host_str().unwrap_or_default();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|_| DeliveryError::Permanent("its host has no name".to_owned()))?;
        let connector = TlsConnector::from(self.tls().await?);
        let connecting = connector.connect(name, stream).await;
        connecting.map_err(|error| DeliveryError::transient(format!("TLS failed: {error}")))
    }

    /// The addresses of a target's host, all of which may be reached.
    async fn resolve(&self, target: &WebTarget) -> Result<Vec<SocketAddr>, DeliveryError> {
        let url = target.url();
        let port = url.port_or_known_default().unwrap_or(443);
        let addresses = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Ipv6(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Domain(name)) => self
                .resolver
                .resolve(name, port)
                .await
                .map_err(|_| unreachable_host())?,
            None => Vec::new(),
        };
        // One that is not public is enough: whoever controls the name chose it.
        let is_allowed = |address: &SocketAddr| target.trusted || is_public(address.ip());
        match !addresses.is_empty() && addresses.iter().all(is_allowed) {
            true => Ok(addresses),
            false => Err(unreachable_host()),
        }
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, DeliveryError> {
        let config = self.tls.get_or_try_init(|| async {
            let building = tokio::task::spawn_blocking(build_tls);
            match building.await {
                Ok(Ok(config)) => Ok(Arc::new(config)),
                Ok(Err(error)) => Err(DeliveryError::transient(format!("TLS failed: {error}"))),
                Err(_) => Err(DeliveryError::transient("TLS failed")),
            }
        });
        config.await.cloned()
    }
}

/// One error for a name that does not exist and one that leads inside, or people could find out which
/// names there are in the network of the server.
fn unreachable_host() -> DeliveryError {
    DeliveryError::transient("its host cannot be found on the public Internet")
}

fn too_slow() -> DeliveryError {
    DeliveryError::transient("it did not answer in time")
}

/// Verifies servers by the certificates of the system.
fn build_tls() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_platform_verifier()?.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, DeliveryError> {
    for address in addresses.iter().take(MAX_ADDRESSES) {
        if let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    Err(DeliveryError::transient("it does not accept connections"))
}

fn build_request(
    target: &WebTarget,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let url = target.url();
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let invalid = |_| DeliveryError::Permanent("its address cannot be used".to_owned());
    let host = HeaderValue::from_str(&target.authority())
        .map_err(|_| DeliveryError::Permanent("its address cannot be used".to_owned()))?;
    let agent = concat!("pvp/", env!("CARGO_PKG_VERSION"));
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let request = Request::post(path).body(Full::new(body));
    let mut request = request.map_err(invalid)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sends a request on a connection of its own, and reads a little of the answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    deadline: Instant,
) -> Result<(), DeliveryError> {
    let (received, sent) = tokio::io::split(stream);
    let received = received.take(MAX_ANSWER_BYTES as u64);
    let stream = tokio::io::join(received, sent);
    let broken = |_| DeliveryError::transient("the connection broke");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let answering = async {
        let answer = timeout_at(deadline, sender.send_request(request)).await;
        let answer = answer.map_err(|_| too_slow())?.map_err(broken)?;
        let result = judge(&answer);
        // The receiver has decided; however long the rest takes, nothing is sent again.
        let _ = timeout(BODY_TIMEOUT, skim(answer.into_body())).await;
        result
    };
    tokio::pin!(answering);
    tokio::select! {
        biased;
        result = &mut answering => result,
        // What had arrived by then may be the answer.
        _ = connection => answering.await,
    }
}

fn judge(answer: &Response<Incoming>) -> Result<(), DeliveryError> {
    if answer.status().is_success() {
        return Ok(());
    }
    let retry_after = answer.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| parse_retry_after(text, now_seconds()));
    Err(DeliveryError::from_status(answer.status(), retry_after))
}

fn now_seconds() -> i64 {
    i64::try_from(wall_time().as_millis() / 1000).unwrap_or(i64::MAX)
}

/// Reads what a receiver asks for: seconds, or a date.
fn parse_retry_after(text: &str, now: i64) -> Option<Duration> {
    let seconds = match text.trim().parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
            u64::try_from(date.timestamp().as_second() - now).unwrap_or(0)
        }
    };
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Reads what is left of a short answer, so that the receiver sees a connection that ends well.
async fn skim(mut body: Incoming) {
    let mut left = MAX_BODY_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        left = left.saturating_sub(bytes);
        if left == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
