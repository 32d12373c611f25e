//! Extracts the caller, the session, the parameters and the body from a request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::Json;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use pvp_protocol::{MessageId, Refusal, SessionId, nesting_depth};
use serde::de::DeserializeOwned;

use super::{RefusalResponse, presented_token};
use crate::connection::check_token;
use crate::directory::SessionDirectory;
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
            Some(token) => match check_token(directory, token).await {
                Ok(login) => Ok(Self(Some(login))),
                Err(refusal) => Err(RefusalResponse::unauthenticated(refusal)),
            },
            None if directory.config.open => Ok(Self(None)),
            None => Err(RefusalResponse::unauthenticated(Refusal::Unauthorized(
                "bring a token as `Authorization: Bearer` or `?token=`".to_owned(),
            ))),
        }
    }
}

impl Caller {
    /// The caller's login, for routes that need one even on a server without login.
    pub(super) fn require_login(self) -> Result<Login, RefusalResponse> {
        self.0.ok_or_else(|| {
            let problem = "this takes a token; ask for an invitation".to_owned();
            RefusalResponse::unauthenticated(Refusal::Unauthorized(problem))
        })
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
        let allowed = login
            .as_ref()
            .is_none_or(|login| login.claims.allows_session(&session));
        if !allowed {
            let problem = "this token is for another session".to_owned();
            return Err(Refusal::Unauthorized(problem).into());
        }
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

/// The bytes of a body within the size limit.
pub(super) struct RawBody(pub(super) Bytes);

impl FromRequest<Arc<SessionDirectory>> for RawBody {
    type Rejection = RefusalResponse;

    async fn from_request(
        request: Request,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        match Bytes::from_request(request, directory).await {
            Ok(body) => Ok(Self(body)),
            Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let problem = "the body is larger than this takes".to_owned();
                let mut refused = RefusalResponse::from(Refusal::Malformed(problem));
                refused.status = StatusCode::PAYLOAD_TOO_LARGE;
                Err(refused)
            }
            Err(error) => Err(Refusal::Malformed(error.body_text()).into()),
        }
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
        let RawBody(body) = RawBody::from_request(request, directory).await?;
        let text = std::str::from_utf8(&body)
            .map_err(|_| Refusal::Malformed("a body is JSON in UTF-8".to_owned()))?;
        // The body becomes the payload of a message, which is one level deeper.
        let deepest = directory.settings.limits.json_depth - 1;
        if nesting_depth(text, deepest) > deepest {
            let problem = format!("JSON is nested deeper than {deepest} levels");
            return Err(Refusal::Malformed(problem).into());
        }
        // serde would read a list as the fields in their order.
        if text.trim_ascii_start().starts_with('[') {
            let problem = "a body is one JSON object, not a list".to_owned();
            return Err(Refusal::Malformed(problem).into());
        }
        match Json::<T>::from_bytes(&body) {
            Ok(Json(body)) => Ok(Self(body)),
            Err(error) => Err(Refusal::Malformed(error.body_text()).into()),
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
