//! The HTTP edge: the upgrade to WebSocket, health, the published transcript, and invitations.

mod invites;
mod transcript;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, delete, get, post};
use http::header::{AUTHORIZATION, CACHE_CONTROL, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use pvp_protocol::payload::ErrorReport;
use pvp_protocol::{ErrorCode, Extra, Refusal};
use serde_json::json;

use crate::connection::{self, check_token};
use crate::house::House;
use crate::origin::OwnNames;
use crate::socket::{SocketLimits, UpgradeRefusal, upgrade};
use crate::token::Login;

/// Bytes of a request's body.
const MOST_BODY: usize = 64 * 1024;

/// A refusal as an HTTP answer.
pub(crate) struct Refused(pub(crate) Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.code() {
            ErrorCode::InvalidMessage => StatusCode::BAD_REQUEST,
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::SessionNotFound | ErrorCode::ParticipantNotFound => StatusCode::NOT_FOUND,
            ErrorCode::GateFailed | ErrorCode::InvalidState => StatusCode::CONFLICT,
            ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::ContextTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::Timeout
            | ErrorCode::TransportError
            | ErrorCode::AgentError
            | ErrorCode::InternalError => StatusCode::SERVICE_UNAVAILABLE,
        };
        let report = ErrorReport {
            code: self.0.code(),
            message: self.0.to_string(),
            recoverable: self.0.recoverable(),
            details: None,
            related_to: None,
            extra: Extra::new(),
        };
        (status, Json(report)).into_response()
    }
}

pub(crate) fn router(house: Arc<House>, names: OwnNames) -> Router {
    Router::new()
        .route("/", any(front_door))
        .route("/ws", any(front_door))
        .route("/health", get(health))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/sessions/{session}/transcript", get(transcript::read))
        .route("/api/invites", post(invites::invite))
        .route("/api/tokens/{token}", delete(invites::revoke))
        .layer(axum::extract::DefaultBodyLimit::max(MOST_BODY))
        .layer(middleware::from_fn_with_state(
            Arc::new(names),
            own_names_only,
        ))
        .with_state(house)
}

async fn own_names_only(
    State(names): State<Arc<OwnNames>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(foreign) = names.check(request.headers()) {
        tracing::info!(%foreign, "refused a request");
        return (StatusCode::FORBIDDEN, foreign.to_string()).into_response();
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
        Ok(Err(error)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the store does not answer: {error}"),
        )
            .into_response(),
        Err(panic) => (StatusCode::SERVICE_UNAVAILABLE, panic.to_string()).into_response(),
    }
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
            Err(refusal) => return Refused(refusal).into_response(),
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

/// Who asks over HTTP; without login only where nobody needs one.
async fn caller(
    house: &Arc<House>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Option<Login>, Refused> {
    match presented_token(headers, uri) {
        Some(token) => Ok(Some(check_token(house, token).await?)),
        None if house.config.open => Ok(None),
        None => Err(Refused(Refusal::Unauthorized(
            "bring a token as `Authorization: Bearer` or `?token=`".to_owned(),
        ))),
    }
}
