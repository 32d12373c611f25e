//! A server's HTTP side, typed. Calls block; use them from a thread that may.

use std::time::Duration;

use pvp_protocol::api::{
    CommandPage, CreateSessionRequest, CreatedSession, EditRequest, GateDetails, GateList,
    GateUpdateResponse, Invitation, InviteRequest, MessagePage, SessionDetails, SessionList,
    VoteRequest, WhoAmI,
};
use pvp_protocol::payload::{ErrorReport, OutputPage, SessionAck};
use pvp_protocol::{JsonObject, MessageId, SessionId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::Link;

/// How long a server may take to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take beyond the time that the server was asked to wait.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer that is read.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server has said no.
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    /// The server did not answer.
    #[error("cannot reach {base}: {why}")]
    Unreachable { base: String, why: String },
    /// Something answered that does not speak as a PVP server does.
    #[error("{base} answered what a PVP server would not ({why})")]
    InvalidResponse { base: String, why: String },
}

impl ApiError {
    /// Whether asking again later may help: the server is away, stopping, or busy.
    pub fn is_transient(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } => true,
            ApiError::Refused(report) => report.recoverable,
            ApiError::InvalidResponse { .. } => false,
        }
    }
}

/// Parameters of a request.
type QueryParams<'a> = &'a [(&'a str, Option<String>)];

/// A server, asked on behalf of a link's token.
pub struct ApiClient {
    link: Link,
    http: Agent,
}

impl ApiClient {
    pub fn new(link: Link) -> Self {
        let http = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_redirects(0)
            .build()
            .into();
        Self { link, http }
    }

    /// The link that it asks with.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whose token it is.
    pub fn whoami(&self) -> Result<WhoAmI, ApiError> {
        self.get("/api/me", &[])
    }

    /// Sessions that the token opens, newest first.
    pub fn list_sessions(&self, query: QueryParams<'_>) -> Result<SessionList, ApiError> {
        self.get("/api/sessions", query)
    }

    pub fn create_session(
        &self,
        request: &CreateSessionRequest,
    ) -> Result<CreatedSession, ApiError> {
        self.post("/api/sessions", request)
    }

    pub fn session(&self, session: &SessionId) -> Result<SessionDetails, ApiError> {
        self.get(&format!("/api/sessions/{session}"), &[])
    }

    /// Messages after a seq; waits up to `wait` for the first if there is none.
    pub fn messages(
        &self,
        session: &SessionId,
        after: u64,
        limit: u64,
        wait: Duration,
    ) -> Result<MessagePage, ApiError> {
        let query = [
            ("after", Some(after.to_string())),
            ("limit", Some(limit.to_string())),
            ("wait", Some(wait.as_secs().to_string())),
        ];
        let path = format!("/api/sessions/{session}/messages");
        self.get_long_poll(&path, &query, wait)
    }

    /// Sends a message, of which the envelope may be left to the server.
    pub fn send(&self, session: &SessionId, message: &JsonObject) -> Result<SessionAck, ApiError> {
        self.post(&format!("/api/sessions/{session}/messages"), message)
    }

    /// Open gates of every session that the token opens; waits for a change since `after`.
    pub fn list_gates(&self, after: Option<u64>, wait: Duration) -> Result<GateList, ApiError> {
        let wait_seconds = after.map(|_| wait.as_secs().to_string());
        let query = [
            ("after", after.map(|version| version.to_string())),
            ("wait", wait_seconds),
        ];
        self.get_long_poll("/api/gates", &query, wait)
    }

    pub fn gate(&self, session: &SessionId, gate: &MessageId) -> Result<GateDetails, ApiError> {
        self.get(&format!("/api/sessions/{session}/gates/{gate}"), &[])
    }

    pub fn vote(
        &self,
        session: &SessionId,
        gate: &MessageId,
        request: &VoteRequest,
    ) -> Result<GateUpdateResponse, ApiError> {
        self.post(
            &format!("/api/sessions/{session}/gates/{gate}/vote"),
            request,
        )
    }

    pub fn amend(
        &self,
        session: &SessionId,
        gate: &MessageId,
        request: &EditRequest,
    ) -> Result<GateUpdateResponse, ApiError> {
        self.post(
            &format!("/api/sessions/{session}/gates/{gate}/amend"),
            request,
        )
    }

    pub fn output(
        &self,
        session: &SessionId,
        reference: &MessageId,
        query: QueryParams<'_>,
    ) -> Result<OutputPage, ApiError> {
        self.get(
            &format!("/api/sessions/{session}/outputs/{reference}"),
            query,
        )
    }

    pub fn history(
        &self,
        session: &SessionId,
        query: QueryParams<'_>,
    ) -> Result<CommandPage, ApiError> {
        self.get(&format!("/api/sessions/{session}/history"), query)
    }

    pub fn invite(&self, invite: &InviteRequest) -> Result<Invitation, ApiError> {
        self.post("/api/invites", invite)
    }

    fn get<T: DeserializeOwned>(&self, path: &str, query: QueryParams<'_>) -> Result<T, ApiError> {
        self.get_long_poll(path, query, Duration::ZERO)
    }

    fn get_long_poll<T: DeserializeOwned>(
        &self,
        path: &str,
        query: QueryParams<'_>,
        wait: Duration,
    ) -> Result<T, ApiError> {
        let mut request = self.http.get(format!("{}{path}", self.link.base_url()));
        for (key, value) in query {
            if let Some(value) = value {
                request = request.query(key, value);
            }
        }
        if let Some(token) = self.link.token() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request
            .config()
            .timeout_global(Some(wait + RESPONSE_TIMEOUT))
            .build();
        self.parse_response(request.call())
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let mut request = self.http.post(format!("{}{path}", self.link.base_url()));
        if let Some(token) = self.link.token() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request
            .config()
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .build();
        self.parse_response(request.send_json(body))
    }

    fn parse_response<T: DeserializeOwned>(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ApiError> {
        let base = || self.link.base_url().to_owned();
        let mut response = response.map_err(|error| ApiError::Unreachable {
            base: base(),
            why: error.to_string(),
        })?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_RESPONSE_BYTES)
            .read_to_string()
            .map_err(|error| ApiError::Unreachable {
                base: base(),
                why: error.to_string(),
            })?;
        let invalid_response = |why: String| ApiError::InvalidResponse { base: base(), why };
        if status.is_success() {
            return serde_json::from_str(&text)
                .map_err(|error| invalid_response(error.to_string()));
        }
        match serde_json::from_str::<ErrorReport>(&text) {
            Ok(report) => Err(ApiError::Refused(Box::new(report))),
            Err(_) => {
                let excerpt: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
                Err(invalid_response(format!("{status} {excerpt}")))
            }
        }
    }
}
