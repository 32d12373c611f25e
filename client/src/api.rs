//! A typed client of the server's HTTP API. Calls block, so make them from a thread that may.

mod notifications;

use std::error::Error;
use std::io::{Read, Write};
use std::sync::OnceLock;
use std::time::Duration;

use pvp_protocol::api::{
    CommandPage, CreateSessionRequest, CreatedDevice, CreatedDeviceCode, CreatedJoinCode,
    CreatedSession, DeviceCodeRequest, EditRequest, GateDetails, GateList, GateUpdateResponse,
    Invitation, InviteRequest, JoinCodeRequest, MessagePage, NamedProposals, ProposalDecision,
    ProposalRequest, RedeemCodeRequest, RedeemDeviceCodeRequest, SessionCommitContext,
    SessionDetails, SessionHead, SessionList, SessionTombstone, TokenList, VoteRequest, WhoAmI,
};
use pvp_protocol::payload::{ErrorReport, OutputPage, SessionAck};
use pvp_protocol::{ClientMessage, JsonObject, MessageId, SessionId, WireMessage};
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::{Method, StatusCode, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Link;
use crate::record::is_well_formed;
use crate::tls;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take unless the caller says otherwise, in addition to the time that a long
/// poll waits.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the archive of a session may take, or its deletion.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The largest response that is read.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024 * 1024;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server refused it.
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    /// The request could not be made, and trying again would not help.
    #[error("cannot send a request to {base}: {why}")]
    NotSent { base: String, why: String },
    /// The server could not be reached or did not respond.
    #[error("cannot reach {base}: {why}; check that the server is running")]
    Unreachable { base: String, why: String },
    /// The server is not known to be the one that was meant, so it was told nothing.
    #[error("{base} is not trusted: {why}")]
    Untrusted { base: String, why: String },
    /// The answer is not one that a PVP server gives.
    #[error("{base} does not answer like a PVP server ({why}); check the address")]
    InvalidResponse { base: String, why: String },
}

impl ApiError {
    /// Whether a later attempt may succeed: the server is down, stopping or busy.
    pub fn is_transient(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } => true,
            ApiError::Refused(report) => report.recoverable,
            ApiError::NotSent { .. }
            | ApiError::Untrusted { .. }
            | ApiError::InvalidResponse { .. } => false,
        }
    }
}

/// The answer to a proposal. Its status is sent before it is decided, so it may be a refusal too.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum DecisionOrReport {
    Decision(Box<ProposalDecision>),
    Report(Box<ErrorReport>),
}

/// The query parameters of a request; those that are `None` are left out.
type QueryParams<'a> = &'a [(&'a str, Option<String>)];

/// A client of a server's HTTP API, with the token of a link.
pub struct ApiClient {
    link: Link,
    /// Created by the first request, because creating it blocks, as requests do.
    http: OnceLock<Client>,
    /// How long an answer may take, in addition to the time that a long poll waits.
    response_timeout: Duration,
}

impl ApiClient {
    pub fn new(link: Link) -> Self {
        Self::with_timeout(link, RESPONSE_TIMEOUT)
    }

    /// A client that gives up on an answer after this time, the time to connect included.
    pub fn with_timeout(link: Link, response_timeout: Duration) -> Self {
        Self {
            link,
            http: OnceLock::new(),
            response_timeout,
        }
    }

    /// The link that it was made for.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The participant that the token identifies.
    pub fn whoami(&self) -> Result<WhoAmI, ApiError> {
        self.get("/api/me", &[])
    }

    /// The sessions that the token gives access to, newest first.
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

    /// Deletes a session that has ended, if its log ends with the entry `head`.
    pub fn delete_session(
        &self,
        session: &SessionId,
        head: Option<u64>,
    ) -> Result<SessionTombstone, ApiError> {
        let query = [("head", head.map(|head| head.to_string()))];
        let path = format!("/api/sessions/{session}");
        let request = self.request(Method::DELETE, &path, &query)?;
        // A long log takes its time.
        self.send_request(request.timeout(ARCHIVE_TIMEOUT))
    }

    /// Writes the log of a session that has ended to `out`, as the server exports it.
    pub fn archive_session(
        &self,
        session: &SessionId,
        out: &mut dyn Write,
    ) -> Result<u64, ApiError> {
        let path = format!("/api/sessions/{session}/archive");
        let request = self.request(Method::GET, &path, &[])?;
        let request = request.timeout(ARCHIVE_TIMEOUT);
        let lost = |error: reqwest::Error| self.unreachable(&error.without_url());
        let mut response = request.send().map_err(lost)?;
        if !response.status().is_success() {
            let status = response.status();
            let body = self.read_body(response)?;
            return Err(self.refusal(status, &body));
        }
        std::io::copy(&mut response, out).map_err(|error| self.unreachable(&error))
    }

    /// Where the log of a session ends, and the hash of the entry `at`.
    pub fn session_head(
        &self,
        session: &SessionId,
        at: Option<u64>,
    ) -> Result<SessionHead, ApiError> {
        let query = [("at", at.map(|seq| seq.to_string()))];
        let head: SessionHead = self.get(&format!("/api/sessions/{session}/head"), &query)?;
        match is_well_formed(&head) && head.session == *session {
            true => Ok(head),
            false => Err(ApiError::InvalidResponse {
                base: self.link.base_url().to_owned(),
                why: "this is not where a log ends".to_owned(),
            }),
        }
    }

    /// The messages after a sequence number. If there is none yet, waits up to `wait` for one.
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

    /// Sends a message. The server fills in envelope fields that are missing.
    pub fn send(&self, session: &SessionId, message: &JsonObject) -> Result<SessionAck, ApiError> {
        self.post(&format!("/api/sessions/{session}/messages"), message)
    }

    /// Sends a message of a known type, under a fresh id.
    pub fn send_message(
        &self,
        session: &SessionId,
        message: impl Into<ClientMessage>,
    ) -> Result<SessionAck, ApiError> {
        let message = message.into();
        let payload = serde_json::to_value(&message).expect("a message is plain data");
        let envelope = JsonObject::from_iter([
            ("id".to_owned(), crate::fresh_id().as_str().into()),
            ("type".to_owned(), message.kind().into()),
            ("payload".to_owned(), payload),
        ]);
        self.send(session, &envelope)
    }

    /// The open gates of all accessible sessions. With `after`, waits for a change since then.
    pub fn list_gates(&self, after: Option<u64>, wait: Duration) -> Result<GateList, ApiError> {
        let wait_seconds = after.map(|_| wait.as_secs().to_string());
        let query = [
            ("after", after.map(|version| version.to_string())),
            ("wait", wait_seconds),
        ];
        self.get_long_poll("/api/gates", &query, wait)
    }

    /// The proposals that an id, or the end of one, names: of one session, or of all accessible ones.
    pub fn find_proposals(
        &self,
        id: &str,
        session: Option<&SessionId>,
    ) -> Result<NamedProposals, ApiError> {
        let query = [
            ("id", Some(id.to_owned())),
            ("session", session.map(ToString::to_string)),
        ];
        self.get("/api/proposals", &query)
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

    /// Proposes a call, or finds it if it was proposed before, and waits up to `wait` for the
    /// decision. After an error that is transient the same may be sent again.
    pub fn propose(
        &self,
        session: &SessionId,
        request: &ProposalRequest,
        wait: Duration,
    ) -> Result<ProposalDecision, ApiError> {
        let body = serde_json::to_vec(request).map_err(|error| self.not_sent(&error))?;
        let path = format!("/api/sessions/{session}/proposals");
        let query = [("wait", Some(wait.as_secs().to_string()))];
        let request = self.request(Method::POST, &path, &query)?;
        let request = request.header("Content-Type", "application/json");
        self.decided(request.body(body), wait)
    }

    /// Waits up to `wait` for the decision on a call that was proposed before, as it was proposed.
    pub fn decision(
        &self,
        session: &SessionId,
        proposal: &MessageId,
        wait: Duration,
    ) -> Result<ProposalDecision, ApiError> {
        let path = format!("/api/sessions/{session}/proposals/{proposal}/decision");
        let query = [("wait", Some(wait.as_secs().to_string()))];
        self.decided(self.request(Method::GET, &path, &query)?, wait)
    }

    fn decided(
        &self,
        request: RequestBuilder,
        wait: Duration,
    ) -> Result<ProposalDecision, ApiError> {
        let request = request.timeout(wait + self.response_timeout);
        match self.send_request(request)? {
            DecisionOrReport::Decision(decision) => Ok(*decision),
            DecisionOrReport::Report(report) => Err(ApiError::Refused(report)),
        }
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

    /// What happened in a session since a Unix time in seconds, for a git hook.
    pub fn commit_context(
        &self,
        session: &SessionId,
        since: Option<u64>,
    ) -> Result<SessionCommitContext, ApiError> {
        let query = [("since", since.map(|since| since.to_string()))];
        self.get(&format!("/api/sessions/{session}/commit-context"), &query)
    }

    pub fn invite(&self, invite: &InviteRequest) -> Result<Invitation, ApiError> {
        self.post("/api/invites", invite)
    }

    pub fn create_join_code(&self, request: &JoinCodeRequest) -> Result<CreatedJoinCode, ApiError> {
        self.post("/api/codes", request)
    }

    /// Exchanges a join code for a token.
    pub fn join(&self, request: &RedeemCodeRequest) -> Result<Invitation, ApiError> {
        self.post("/api/join", request)
    }

    /// Makes a link that opens the page on another device of whoever's link this is, once.
    pub fn create_device_code(
        &self,
        request: &DeviceCodeRequest,
    ) -> Result<CreatedDeviceCode, ApiError> {
        self.post("/api/device-codes", request)
    }

    /// Exchanges a device code for the token of a device.
    pub fn redeem_device_code(
        &self,
        request: &RedeemDeviceCodeRequest,
    ) -> Result<CreatedDevice, ApiError> {
        self.post("/api/join/device", request)
    }

    pub fn list_tokens(&self) -> Result<TokenList, ApiError> {
        self.get("/api/tokens", &[])
    }

    /// Revokes a token or a join code.
    pub fn revoke_token(&self, id: &str) -> Result<(), ApiError> {
        self.check_plain_id(id, "token")?;
        let request = self.request(Method::DELETE, &format!("/api/tokens/{id}"), &[])?;
        self.send_without_answer(request.timeout(RESPONSE_TIMEOUT))
    }

    /// Refuses what is no id, and would make another path.
    fn check_plain_id(&self, id: &str, of: &str) -> Result<(), ApiError> {
        let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match !id.is_empty() && id.chars().all(is_id) {
            true => Ok(()),
            false => Err(ApiError::NotSent {
                base: self.link.base_url().to_owned(),
                why: format!("`{id}` is not the id of a {of}"),
            }),
        }
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
        let request = self.request(Method::GET, path, query)?;
        self.send_request(request.timeout(wait + self.response_timeout))
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        self.send_body(Method::POST, path, body)
    }

    fn send_body<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| self.not_sent(&error))?;
        let request = self.request(method, path, &[])?;
        let request = request
            .header("Content-Type", "application/json")
            .body(body);
        self.send_request(request.timeout(self.response_timeout))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: QueryParams<'_>,
    ) -> Result<RequestBuilder, ApiError> {
        let url = format!("{}{path}", self.link.base_url());
        let mut url = Url::parse(&url).map_err(|error| self.not_sent(&error))?;
        for (key, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        let request = self.http()?.request(method, url);
        Ok(match self.link.token() {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    fn http(&self) -> Result<&Client, ApiError> {
        if let Some(client) = self.http.get() {
            return Ok(client);
        }
        let client = build_http_client(&self.link);
        let client = client.map_err(|error| self.not_sent(error.as_ref()))?;
        Ok(self.http.get_or_init(|| client))
    }

    fn not_sent(&self, error: &dyn Error) -> ApiError {
        ApiError::NotSent {
            base: self.link.base_url().to_owned(),
            why: error_chain(error),
        }
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) -> ApiError {
        let base = self.link.base_url().to_owned();
        match tls::certificate_problem(error) {
            Some(why) => ApiError::Untrusted { base, why },
            None => ApiError::Unreachable {
                base,
                why: innermost_cause(error),
            },
        }
    }

    fn send_without_answer(&self, request: RequestBuilder) -> Result<(), ApiError> {
        let lost = |error: reqwest::Error| self.unreachable(&error.without_url());
        let response = request.send().map_err(lost)?;
        let status = response.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(self.refusal(status, &self.read_body(response)?)),
        }
    }

    fn send_request<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ApiError> {
        let lost = |error: reqwest::Error| self.unreachable(&error.without_url());
        let response = request.send().map_err(lost)?;
        let status = response.status();
        let body = self.read_body(response)?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| self.invalid_response(error.to_string()))
    }

    fn read_body(&self, response: Response) -> Result<Vec<u8>, ApiError> {
        let mut body = Vec::new();
        response
            .take(MAX_RESPONSE_BYTES + 1)
            .read_to_end(&mut body)
            .map_err(|error| self.unreachable(&error))?;
        match body.len() as u64 > MAX_RESPONSE_BYTES {
            true => Err(self.invalid_response(format!("more than {MAX_RESPONSE_BYTES} bytes"))),
            false => Ok(body),
        }
    }

    /// The error that the body of a response without success describes.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> ApiError {
        match serde_json::from_slice::<ErrorReport>(body) {
            Ok(report) => ApiError::Refused(Box::new(report)),
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                let excerpt: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
                self.invalid_response(format!("{status} {excerpt}"))
            }
        }
    }

    fn invalid_response(&self, why: String) -> ApiError {
        let base = self.link.base_url().to_owned();
        ApiError::InvalidResponse { base, why }
    }
}

fn build_http_client(link: &Link) -> Result<Client, Box<dyn Error>> {
    let base_url = link.base_url();
    // Only the first call has an effect; all of our crates install the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // The token must not follow a redirect to another server.
        .redirect(redirect::Policy::none())
        // Nor may a variable lead it to a proxy, which would read it unless the server has TLS. The
        // socket of a session takes no proxy either.
        .no_proxy();
    let builder = match link.fingerprint() {
        Some(key) => builder.tls_backend_preconfigured(tls::pinned_config(key)?),
        // Loading the system's certificates takes longer than a request on the loopback.
        None if base_url.starts_with("http:") => builder.tls_certs_only([]),
        None => builder,
    };
    Ok(builder.build()?)
}

/// The text of an error and of its causes, without repetition.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = next.source();
    }
    text
}

/// What went wrong in the end; the errors around it only name the layers above.
fn innermost_cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}
