//! Serves HTTP: the upgrade to WebSocket and the API.

mod archives;
mod body;
mod bridge;
mod chain;
mod commands;
mod commit_context;
mod contents;
mod decisions;
mod devices;
mod extractors;
mod gate_list;
mod gates;
mod gzip;
mod invites;
mod landing_page;
mod messages;
mod notifications;
mod openapi;
mod page;
mod proposals;
mod routes;
mod send;
mod sessions;
mod static_document;
mod transcript;
mod vote_link;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::any;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pvp_protocol::api::PublicKeys;
use pvp_protocol::payload::ErrorReport;
use pvp_protocol::{ErrorCode, ExtraFields, MessageId, Refusal, SCHEMA, hex};
use serde_json::json;

use self::body::AnswerBody;
use self::extractors::{NoParameters, StrictQuery};
use self::static_document::StaticDocument;
use crate::admission::{self, MessageRefusal};
use crate::connection;
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::metrics;
use crate::origin::AllowedHosts;
use crate::socket::{SocketLimits, UpgradeRefusal, upgrade};

/// The longest that a request may wait. It is bounded, so that disconnected callers are noticed.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The most bytes in a request's body, unless the body is a message.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A refusal as an HTTP response.
pub(crate) struct RefusalResponse {
    refusal: Refusal,
    status: StatusCode,
    related_to: Option<MessageId>,
}

impl From<Refusal> for RefusalResponse {
    fn from(refusal: Refusal) -> Self {
        let status = match (&refusal, refusal.code()) {
            (Refusal::NoSuchGate(_) | Refusal::NoSuchProposal(_) | Refusal::NoSuchText(_), _) => {
                StatusCode::NOT_FOUND
            }
            (Refusal::BodyTooSlow { .. }, _) => StatusCode::REQUEST_TIMEOUT,
            (_, ErrorCode::InvalidMessage) => StatusCode::BAD_REQUEST,
            (_, ErrorCode::Unauthorized) => StatusCode::FORBIDDEN,
            (_, ErrorCode::SessionNotFound | ErrorCode::ParticipantNotFound) => {
                StatusCode::NOT_FOUND
            }
            (_, ErrorCode::GateFailed | ErrorCode::InvalidState) => StatusCode::CONFLICT,
            (_, ErrorCode::RateLimited) => StatusCode::TOO_MANY_REQUESTS,
            (_, ErrorCode::ContextTooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            (
                _,
                ErrorCode::Timeout
                | ErrorCode::TransportError
                | ErrorCode::AgentError
                | ErrorCode::InternalError,
            ) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            refusal,
            status,
            related_to: None,
        }
    }
}

impl From<MessageRefusal> for RefusalResponse {
    fn from(refused: MessageRefusal) -> Self {
        Self {
            related_to: refused.related_to,
            ..Self::from(refused.refusal)
        }
    }
}

impl RefusalResponse {
    /// The response to a name of something that does not exist.
    fn not_found(problem: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            ..Self::from(Refusal::Malformed(problem.to_owned()))
        }
    }

    /// The response to a body that is larger than the route takes.
    fn too_large(refusal: Refusal) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..Self::from(refusal)
        }
    }

    /// The response to a caller who did not authenticate.
    fn unauthenticated(refusal: Refusal) -> Self {
        let status = match refusal.code() == ErrorCode::Unauthorized {
            true => StatusCode::UNAUTHORIZED,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            refusal,
            status,
            related_to: None,
        }
    }

    /// Adds the id of the refused message.
    fn with_related_to(mut self, id: &MessageId) -> Self {
        self.related_to = Some(id.clone());
        self
    }
}

impl RefusalResponse {
    /// The body.
    fn report(&self) -> ErrorReport {
        ErrorReport {
            code: self.refusal.code(),
            message: self.refusal.to_string(),
            recoverable: self.refusal.is_recoverable(),
            details: None,
            related_to: self.related_to.clone(),
            extra: ExtraFields::new(),
        }
    }
}

impl IntoResponse for RefusalResponse {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.report())).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        // The middleware that counts requests reads it.
        response
            .extensions_mut()
            .insert(RefusalExtension(self.refusal));
        response
    }
}

/// A refusal, attached to its response.
#[derive(Clone)]
struct RefusalExtension(Refusal);

/// Everything that the server answers on its own address.
pub(crate) fn router(directory: Arc<SessionDirectory>, allowed_hosts: AllowedHosts) -> Router {
    let mut router = Router::new()
        .route("/", any(websocket_upgrade))
        .route("/ws", any(websocket_upgrade));
    for route in routes::all(&directory) {
        router = router.route(route.path, route.handler);
    }
    if directory.config.open {
        router = router.nest("/bridge", bridge::routes());
    }
    let router = router.fallback(page_file_or_nothing);
    // Only where an authority has signed the certificate: a browser that has seen this header once
    // lets nobody go on with a certificate that it does not trust.
    let has_signed_certificate = directory.config.acme.is_some();
    let router = with_layers(router, directory, allowed_hosts);
    match has_signed_certificate {
        true => router.layer(middleware::map_response(require_https)),
        false => router,
    }
}

/// Tells browsers to come back with HTTPS only.
async fn require_https(mut response: Response) -> Response {
    let for_half_a_year = HeaderValue::from_static("max-age=15552000");
    let headers = response.headers_mut();
    headers.insert(STRICT_TRANSPORT_SECURITY, for_half_a_year);
    response
}

/// The published routes of decision tracking, as a server without login answers them on a port of
/// their own.
pub(crate) fn bridge_router(
    directory: Arc<SessionDirectory>,
    allowed_hosts: AllowedHosts,
) -> Router {
    let router = bridge::routes().fallback(not_found);
    with_layers(router, directory, allowed_hosts)
}

/// What holds for every route: the limit of bodies, the counters, and the check of hosts and origins.
fn with_layers(
    router: Router<Arc<SessionDirectory>>,
    directory: Arc<SessionDirectory>,
    allowed_hosts: AllowedHosts,
) -> Router {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(
            directory.clone(),
            count_request,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::new(allowed_hosts),
            check_host_and_origin,
        ))
        .with_state(directory)
}

/// The requested wait in seconds as a duration, limited to [`MAX_WAIT`].
fn clamp_wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_WAIT)
}

/// What is no route: a file of the page, or nothing.
async fn page_file_or_nothing(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match page::file(uri.path(), &headers) {
        Some(file) if matches!(method, Method::GET | Method::HEAD) => file,
        Some(_) => method_not_allowed(method, uri).await,
        None => not_found(uri).await,
    }
}

async fn not_found(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    let problem = format!("there is no `{path}` here; /openapi.json lists what there is");
    RefusalResponse::not_found(&problem).into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let problem = format!("`{}` takes another method than {method}", uri.path());
    let mut refused = RefusalResponse::from(Refusal::Malformed(problem));
    refused.status = StatusCode::METHOD_NOT_ALLOWED;
    refused.into_response()
}

/// Counts requests by the route they matched, and counts refusals.
async fn count_request(
    State(directory): State<Arc<SessionDirectory>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.and_then(|path| routes::known_path(path.as_str()));
    let slot = request.extensions().get::<Arc<ConnectionSlot>>().cloned();
    let response = next.run(request).await;
    let status = match response.status().as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    };
    directory
        .metrics
        .record_request(route.unwrap_or("other"), status);
    if let Some(RefusalExtension(refusal)) = response.extensions().get() {
        directory.metrics.record_refusal(refusal);
        tracing::info!(status = response.status().as_u16(), code = ?refusal.code(), "refused a request");
    }
    match slot {
        Some(slot) => response.map(|body| Body::new(AnswerBody { body, slot })),
        None => response,
    }
}

async fn check_host_and_origin(
    State(allowed_hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(foreign) = allowed_hosts.check(request.headers()) {
        tracing::info!(%foreign, "refused a request");
        return RefusalResponse::from(Refusal::Unauthorized(foreign.to_string())).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// Whose server this is. A public key is no secret, and a client asks before it sends its token.
async fn server_keys(
    State(directory): State<Arc<SessionDirectory>>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Json<PublicKeys> {
    let identity = directory.store.identity();
    Json(PublicKeys {
        key: hex::encode(&identity.key),
        earlier_keys: identity.earlier_keys_in_hex(),
    })
}

/// Ready means that the store can be read.
async fn ready(State(directory): State<Arc<SessionDirectory>>) -> Response {
    match directory.store.next_deadline().await {
        Ok(_) => Json(json!({ "status": "ready" })).into_response(),
        Err(error) => RefusalResponse::from(Refusal::from(error)).into_response(),
    }
}

async fn metrics(State(directory): State<Arc<SessionDirectory>>) -> Response {
    match directory.metrics.render(directory.counts()) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The JSON Schema of every message.
async fn schema(headers: HeaderMap) -> Response {
    static DOCUMENT: OnceLock<StaticDocument> = OnceLock::new();
    let document = || StaticDocument::new("application/schema+json", SCHEMA);
    DOCUMENT.get_or_init(document).respond(&headers)
}

/// Upgrades to a WebSocket. Other requests to `/` get a page or a line of text that says what this
/// is.
async fn websocket_upgrade(
    State(directory): State<Arc<SessionDirectory>>,
    mut request: Request,
) -> Response {
    // Before a token is looked at: the page takes it out of the link.
    if request.uri().path() == "/" && landing_page::is_wanted(request.method(), request.headers()) {
        return page::index(request.headers()).unwrap_or_else(landing_page::respond);
    }
    let limits = SocketLimits {
        max_message: directory.settings.limits.message_bytes,
    };
    let login = match presented_token(request.headers(), request.uri()) {
        None => None,
        Some(token) => match admission::authenticate(&directory, token).await {
            Ok(login) => Some(login),
            Err(refusal) => return RefusalResponse::unauthenticated(refusal).into_response(),
        },
    };
    let (response, pending) = match upgrade(&mut request, limits) {
        Ok(upgraded) => upgraded,
        Err(UpgradeRefusal::NotWebSocket) if request.uri().path() == "/" => {
            return "PVP server. Connect a client to this address with a WebSocket.\n"
                .into_response();
        }
        Err(refusal) => return refusal.into_response(),
    };
    let slot = request.extensions_mut().remove::<Arc<ConnectionSlot>>();
    // The headers hold on to the buffer they were read into.
    drop(request);
    let Some(slot) = slot else {
        return UpgradeRefusal::NotUpgradable.into_response();
    };
    tokio::spawn(async move {
        match pending.accept().await {
            Ok(socket) => connection::serve(Box::new(socket), directory, login, slot).await,
            Err(error) => tracing::debug!(%error, "an upgrade was not completed"),
        }
    });
    response
}

/// The token in the `Authorization` header, else in the query.
fn presented_token(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            value
                .strip_prefix("Bearer ")
                .or_else(|| value.strip_prefix("bearer "))
        })
        .map(|token| token.trim().to_owned());
    let query = || {
        let pairs = uri.query()?.split('&');
        pairs
            .filter_map(|pair| pair.strip_prefix("token="))
            .next()
            .map(str::to_owned)
    };
    bearer.or_else(query)
}
