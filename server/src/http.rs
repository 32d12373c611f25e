//! The HTTP edge: the upgrade to WebSocket, and the API beside it.

mod asking;
mod gates;
mod invites;
mod messages;
mod openapi;
mod outputs;
mod routes;
mod sessions;
mod transcript;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::any;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pvp_protocol::payload::ErrorReport;
use pvp_protocol::{ErrorCode, ExtraFields, MessageId, Refusal, SCHEMA};
use serde_json::json;

use crate::connection::{self, check_token};
use crate::house::House;
use crate::metrics;
use crate::origin::OwnNames;
use crate::socket::{SocketLimits, UpgradeRefusal, upgrade};

/// Longest wait for something to happen; bounded, so that a caller who is gone is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Bytes of a request's body, where it is not a message.
const MOST_BODY: usize = 64 * 1024;

/// A refusal as an HTTP answer.
pub(crate) struct Refused {
    refusal: Refusal,
    status: StatusCode,
    related_to: Option<MessageId>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let status = match (&refusal, refusal.code()) {
            (Refusal::NoSuchGate(_) | Refusal::NoSuchProposal(_), _) => StatusCode::NOT_FOUND,
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

impl Refused {
    /// For someone who has not shown who they are.
    fn unknown_caller(refusal: Refusal) -> Self {
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

    /// Says which message was refused.
    fn about(mut self, id: &MessageId) -> Self {
        self.related_to = Some(id.clone());
        self
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let report = ErrorReport {
            code: self.refusal.code(),
            message: self.refusal.to_string(),
            recoverable: self.refusal.is_recoverable(),
            details: None,
            related_to: self.related_to,
            extra: ExtraFields::new(),
        };
        let mut response = (self.status, Json(report)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        // The middleware counts it.
        response.extensions_mut().insert(Counted(self.refusal));
        response
    }
}

/// A refusal on its way out.
#[derive(Clone)]
struct Counted(Refusal);

pub(crate) fn router(house: Arc<House>, names: OwnNames) -> Router {
    let mut router = Router::new()
        .route("/", any(front_door))
        .route("/ws", any(front_door));
    for route in routes::all(&house) {
        router = router.route(route.path, route.handler);
    }
    router
        .fallback(no_such_route)
        .method_not_allowed_fallback(not_that_method)
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(middleware::from_fn_with_state(house.clone(), count))
        .layer(middleware::from_fn_with_state(
            Arc::new(names),
            own_names_only,
        ))
        .with_state(house)
}

/// How long a request may wait for something to happen.
fn longest_wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_WAIT)
}

async fn no_such_route(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    let problem = format!("there is no `{path}` here; /openapi.json lists what there is");
    let mut refused = Refused::from(Refusal::Malformed(problem));
    refused.status = StatusCode::NOT_FOUND;
    refused.into_response()
}

async fn not_that_method(method: Method, uri: Uri) -> Response {
    let problem = format!("`{}` takes another method than {method}", uri.path());
    let mut refused = Refused::from(Refusal::Malformed(problem));
    refused.status = StatusCode::METHOD_NOT_ALLOWED;
    refused.into_response()
}

/// Counts requests by the route they matched, and what was refused.
async fn count(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.and_then(|path| routes::name(path.as_str()));
    let response = next.run(request).await;
    let status = match response.status().as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    };
    house.metrics.answered(route.unwrap_or("other"), status);
    if let Some(Counted(refusal)) = response.extensions().get() {
        house.metrics.refused(refusal);
        tracing::info!(status = response.status().as_u16(), code = ?refusal.code(), "refused a request");
    }
    response
}

async fn own_names_only(
    State(names): State<Arc<OwnNames>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(foreign) = names.check(request.headers()) {
        tracing::info!(%foreign, "refused a request");
        return Refused::from(Refusal::Unauthorized(foreign.to_string())).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// Ready means that the store answers.
async fn ready(State(house): State<Arc<House>>) -> Response {
    let store = house.store.clone();
    match tokio::task::spawn_blocking(move || store.next_deadline()).await {
        Ok(Ok(_)) => Json(json!({ "status": "ready" })).into_response(),
        Ok(Err(error)) => Refused::from(Refusal::ReadFailed(error.to_string())).into_response(),
        Err(panic) => Refused::from(Refusal::ReadFailed(panic.to_string())).into_response(),
    }
}

async fn metrics(State(house): State<Arc<House>>) -> Response {
    match house.metrics.render(house.population()) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The JSON Schema of every message.
async fn schema() -> Response {
    ([(CONTENT_TYPE, "application/schema+json")], SCHEMA).into_response()
}

/// A WebSocket for those who ask for one; for a browser, a word about where it is.
async fn front_door(State(house): State<Arc<House>>, mut request: Request) -> Response {
    let limits = SocketLimits {
        max_message: house.settings.limits.message_bytes,
    };
    let login = match presented_token(request.headers(), request.uri()) {
        None => None,
        Some(token) => match check_token(&house, token).await {
            Ok(login) => Some(login),
            Err(refusal) => return Refused::unknown_caller(refusal).into_response(),
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
    // The headers keep the buffer they were read into.
    drop(request);
    let Some(place) = house.place() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many connections; try again later\n",
        )
            .into_response();
    };
    tokio::spawn(async move {
        match pending.accept().await {
            Ok(socket) => connection::serve(Box::new(socket), house, login, place).await,
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
