//! Extracts the caller, the session, the parameters and the body from a request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::Json;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use pvp_protocol::suggestion::suggest_in;
use pvp_protocol::{JsonObject, MessageId, Refusal, SessionId, nesting_depth};
use serde::de::DeserializeOwned;

use super::{RefusalResponse, body, presented_token};
use crate::admission;
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::token::Login;

/// Who makes the request; `None` only on a server without login.
pub(super) struct Caller(pub(super) Option<Login>);

impl FromRequestParts<Arc<SessionDirectory>> for Caller {
    type Rejection = RefusalResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        match presented_token(&parts.headers, &parts.uri) {
            Some(token) => match admission::authenticate(directory, token).await {
                Ok(login) => {
                    if let Some(slot) = parts.extensions.get::<Arc<ConnectionSlot>>() {
                        slot.begin_request(&login.token_id)?;
                    }
                    Ok(Self(Some(login)))
                }
                Err(refusal) => Err(RefusalResponse::unauthenticated(refusal)),
            },
            None if directory.config.open => Ok(Self(None)),
            None => Err(RefusalResponse::unauthenticated(admission::login_required())),
        }
    }
}

impl Caller {
    /// The caller's login, for routes that need one even on a server without login.
    pub(super) fn require_login(self) -> Result<Login, RefusalResponse> {
        self.0
            .ok_or_else(|| RefusalResponse::unauthenticated(admission::token_required()))
    }
}

/// The session in the path, which the caller's token is valid for.
pub(super) struct AuthorizedSession {
    pub(super) session: SessionId,
    pub(super) login: Option<Login>,
}

impl FromRequestParts<Arc<SessionDirectory>> for AuthorizedSession {
    type Rejection = RefusalResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let Caller(login) = Caller::from_request_parts(parts, directory).await?;
        let Path(names) = Path::<std::collections::BTreeMap<String, String>>::from_request_parts(
            parts, directory,
        )
        .await
        .map_err(|error| Refusal::Malformed(error.body_text()))?;
        let session = names.get("session").map_or("", String::as_str);
        let session =
            SessionId::parse(session).map_err(|error| Refusal::Malformed(error.to_string()))?;
        admission::check_session(login.as_ref(), &session)?;
        Ok(Self { session, login })
    }
}

/// The second parameter in the path, which is a message id.
pub(super) struct PathMessageId(pub(super) MessageId);

impl FromRequestParts<Arc<SessionDirectory>> for PathMessageId {
    type Rejection = RefusalResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let Path((_, id)) = Path::<(String, String)>::from_request_parts(parts, directory)
            .await
            .map_err(|error| Refusal::Malformed(error.body_text()))?;
        let id = MessageId::parse(&id).map_err(|error| Refusal::Malformed(error.to_string()))?;
        Ok(Self(id))
    }
}

/// One query parameter, as the documentation describes it.
pub(super) struct QueryParameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) meaning: &'static str,
}

/// The query parameters of a route.
pub(super) trait QueryParameters: DeserializeOwned {
    const ALL: &'static [QueryParameter];
}

/// Declares the parameters of a route: all optional, each with its JSON type and its meaning.
macro_rules! parameters {
    ($name:ident { $(#[doc = $meaning:literal] $key:ident: $type:ty = $kind:literal,)* }) => {
        #[derive(Debug, Default, serde::Deserialize)]
        pub(in crate::http) struct $name {
            $(#[doc = $meaning] #[serde(default)] pub(in crate::http) $key: Option<$type>,)*
        }

        impl $crate::http::extractors::QueryParameters for $name {
            const ALL: &'static [$crate::http::extractors::QueryParameter] = &[$(
                $crate::http::extractors::QueryParameter { name: stringify!($key), kind: $kind, meaning: $meaning.trim_ascii() },
            )*];
        }
    };
}
pub(super) use parameters;

/// The query of a request. An unknown parameter is refused, so that typos do not pass unnoticed.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: QueryParameters> FromRequestParts<Arc<SessionDirectory>> for StrictQuery<T> {
    type Rejection = RefusalResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let known = |key: &str| key == "token" || T::ALL.iter().any(|one| one.name == key);
        let keys = parts.uri.query().unwrap_or_default().split('&');
        let keys = keys.map(|pair| pair.split('=').next().unwrap_or_default());
        if let Some(unknown) = keys.filter(|key| !key.is_empty()).find(|key| !known(key)) {
            let names: Vec<_> = T::ALL.iter().map(|one| one.name).collect();
            let unknown: String = unknown.chars().take(64).collect();
            let problem = match names.as_slice() {
                [] => format!("there is no parameter `{unknown}`; this takes none"),
                names => format!(
                    "there is no parameter `{unknown}`; use {}",
                    names.join(", ")
                ),
            };
            return Err(Refusal::Malformed(problem).into());
        }
        let Query(query) = Query::try_from_uri(&parts.uri)
            .map_err(|error| Refusal::Malformed(error.body_text()))?;
        Ok(Self(query))
    }
}

parameters! { NoParameters {} }

/// The text of a body within the route's size limit; `too_large` is the refusal of another.
async fn read_text(
    request: Request,
    directory: &Arc<SessionDirectory>,
    too_large: impl FnOnce() -> Refusal,
) -> Result<String, RefusalResponse> {
    let seconds = directory.config.stall_seconds;
    let (request, pace) = body::require_pace(request, Duration::from_secs(seconds));
    let body = match Bytes::from_request(request, directory).await {
        Ok(body) => body,
        Err(_) if pace.was_missed() => return Err(Refusal::BodyTooSlow { seconds }.into()),
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return Err(RefusalResponse::too_large(too_large()));
        }
        Err(error) => return Err(Refusal::Malformed(error.body_text()).into()),
    };
    String::from_utf8(body.into())
        .map_err(|_| Refusal::Malformed("a body is JSON in UTF-8".to_owned()).into())
}

/// The text of a message.
pub(super) struct MessageBody(pub(super) String);

impl FromRequest<Arc<SessionDirectory>> for MessageBody {
    type Rejection = RefusalResponse;

    async fn from_request(
        request: Request,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let too_large = || admission::too_big(&directory.settings.limits);
        read_text(request, directory, too_large).await.map(Self)
    }
}

/// A JSON body; if it is not valid, the response says why.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<SessionDirectory>> for JsonBody<T> {
    type Rejection = RefusalResponse;

    async fn from_request(
        request: Request,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        if !is_json(request.headers()) {
            let problem = "send JSON, with `Content-Type: application/json`".to_owned();
            return Err(Refusal::Malformed(problem).into());
        }
        let too_large = || Refusal::Malformed("the body is too large".to_owned());
        let text = read_text(request, directory, too_large).await?;
        // The body becomes the payload of a message, which is one level deeper.
        let deepest = directory.settings.limits.json_depth - 1;
        if nesting_depth(&text, deepest) > deepest {
            let problem = format!("JSON is nested deeper than {deepest} levels");
            return Err(Refusal::Malformed(problem).into());
        }
        // serde would read a list as the fields in their order.
        if text.trim_ascii_start().starts_with('[') {
            let problem = "a body is one JSON object, not a list".to_owned();
            return Err(Refusal::Malformed(problem).into());
        }
        match Json::<T>::from_bytes(text.as_bytes()) {
            Ok(Json(body)) => Ok(Self(body)),
            Err(error) => Err(Refusal::Malformed(suggest_in(&error.body_text())).into()),
        }
    }
}

/// A JSON object that a published client sends: fields that are not known are ignored, an empty body
/// has none, and any `Content-Type` will do, because `curl -d` sends another one.
pub(super) struct LenientBody(pub(super) JsonObject);

impl FromRequest<Arc<SessionDirectory>> for LenientBody {
    type Rejection = RefusalResponse;

    async fn from_request(
        request: Request,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let too_large = || Refusal::Malformed("the body is too large".to_owned());
        let text = read_text(request, directory, too_large).await?;
        if text.trim_ascii().is_empty() {
            return Ok(Self(JsonObject::new()));
        }
        let deepest = directory.settings.limits.json_depth;
        if nesting_depth(&text, deepest) > deepest {
            let problem = format!("JSON is nested deeper than {deepest} levels");
            return Err(Refusal::Malformed(problem).into());
        }
        match serde_json::from_str(&text) {
            Ok(body) => Ok(Self(body)),
            Err(error) => {
                let problem = format!("send one JSON object: {error}");
                Err(Refusal::Malformed(problem).into())
            }
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}
