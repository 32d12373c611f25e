//! Routes that read a session's messages, wait for new ones, and send one.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use http::header::CONTENT_TYPE;
use pvp_protocol::payload::{Announce, SessionAck};
use pvp_protocol::{
    ClientMessage, Envelope, EnvelopeHeader, ExtraFields, JsonObject, Limits, MessageId,
    ParticipantId, ParticipantKind, Refusal, Sender, SessionId, Transport, nesting_depth,
    parse_client_message, parse_server_message,
};
use pvp_session::{Answer, Identity, SubmittedMessage};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::extractors::{AuthorizedSession, NoParameters, RawBody, StrictQuery, parameters};
use super::{RefusalResponse, clamp_wait};
use crate::delivery;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{ReadLimit, Store};
use crate::task::HttpAccess;
use crate::token::Login;

/// Messages in a page unless the caller gives a number, and the most they may ask for.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// The most bytes in a page; one message is always returned if there is one.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

parameters! {
    ReadParameters {
        /// Only what came after this seq; everything unless given.
        after: u64 = "integer",
        /// At most this many: 1 to 1000, 100 unless given.
        limit: usize = "integer",
        /// Seconds to wait for the next message if there is none, at most 60.
        wait: u64 = "integer",
    }
}

/// Like `MessagePage`, with the messages byte for byte as they were logged.
#[derive(Serialize)]
struct RawMessagePage {
    messages: Vec<Box<RawValue>>,
    next: u64,
    head: u64,
}

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<ReadParameters>,
) -> Result<Response, RefusalResponse> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let deadline = Instant::now() + clamp_wait(query.wait.unwrap_or(0));
    let slot = login
        .as_ref()
        .map(|login| directory.acquire_request_slot(&login.token_id));
    let _slot = slot.transpose()?;
    let participant = login.map(|login| login.claims.participant);
    let access = directory.http_access(&session, participant).await?;
    let _waiting = access.viewer.as_ref().map(|viewer| viewer.begin_wait());
    let mut shutdown = directory.shutdown_signal();
    let mut after = query.after.unwrap_or(0);
    let page = loop {
        let mut notified = pin!(access.feed.notifier().notified());
        notified.as_mut().enable();
        let page = read_page(&directory, &session, &access, after, limit).await?;
        if !page.messages.is_empty() || Instant::now() >= deadline || access.feed.is_closed() {
            break page;
        }
        // Entries that this viewer may not see need not be read again.
        after = page.next;
        tokio::select! {
            () = notified => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = shutdown.wait_for(|stopping| *stopping) => break page,
        }
    };
    let json = serde_json::to_vec(&page).map_err(|_| log_unreadable())?;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

async fn read_page(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    access: &HttpAccess,
    after: u64,
    limit: usize,
) -> Result<RawMessagePage, Refusal> {
    let head = access.feed.head();
    let empty = RawMessagePage {
        messages: Vec::new(),
        next: after,
        head,
    };
    if after >= head {
        return Ok(empty);
    }
    let permit = directory.read_permits.clone().acquire_owned().await;
    let (store, session) = (directory.store.clone(), session.clone());
    let (viewer, secrets) = (access.viewer.clone(), access.secrets.clone());
    let reading = tokio::task::spawn_blocking(move || -> Result<RawMessagePage, String> {
        let _permit = permit;
        let read_limit = ReadLimit {
            records: limit,
            bytes: MAX_PAGE_BYTES,
        };
        let mut page = empty;
        let records = store
            .read(&session, after + 1, read_limit)
            .map_err(|error| error.to_string())?;
        // Entries that are written but not published yet belong to the next page.
        for record in records.iter().take_while(|record| record.seq <= head) {
            let delivery =
                delivery::from_record(record, &secrets).map_err(|error| error.to_string())?;
            if let Some(body) = delivery.body_for_http_reader(viewer.as_deref()) {
                let text = String::from_utf8(body.to_vec()).map_err(|error| error.to_string())?;
                page.messages
                    .push(RawValue::from_string(text).map_err(|error| error.to_string())?);
            }
            page.next = record.seq;
        }
        Ok(page)
    });
    reading
        .await
        .unwrap_or_else(|panic| Err(panic.to_string()))
        .map_err(Refusal::ReadFailed)
}

/// Reads one entry of the log.
pub(super) async fn read_entry(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    seq: u64,
) -> Result<Envelope, Refusal> {
    let (store, session) = (directory.store.clone(), session.clone());
    tokio::task::spawn_blocking(move || read_entry_blocking(&store, &session, seq))
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?
        .ok_or_else(log_unreadable)
}

/// Reads one entry of the log, blocking on the disk; `None` if it cannot be read.
pub(super) fn read_entry_blocking(
    store: &Store,
    session: &SessionId,
    seq: u64,
) -> Option<Envelope> {
    let single_entry = ReadLimit {
        records: 1,
        bytes: 0,
    };
    let records = store.read(session, seq, single_entry).ok()?;
    let record = records.first().filter(|record| record.seq == seq)?;
    let text = std::str::from_utf8(&record.body).ok()?;
    let limits = Limits {
        json_depth: usize::MAX,
        ..Limits::default()
    };
    parse_server_message(text, &limits).ok().flatten()
}

/// A participant who sends a message over HTTP.
pub(super) struct HttpSender {
    pub(super) participant: ParticipantId,
    /// Who to join as if they have not joined; `None` without login.
    joins_as: Option<(Identity, Announce)>,
    kind: Option<ParticipantKind>,
}

impl From<Login> for HttpSender {
    fn from(login: Login) -> Self {
        let claims = login.claims;
        let announce = Announce {
            id: claims.participant.clone(),
            name: claims.name.clone(),
            kind: claims.kind,
            roles: claims.roles.iter().copied().collect(),
            capabilities: (!claims.capabilities.is_empty())
                .then(|| claims.capabilities.iter().copied().collect()),
            transport: Transport::Http,
            metadata: None,
            executor: None,
            extra: ExtraFields::new(),
        };
        Self {
            participant: claims.participant.clone(),
            kind: Some(claims.kind),
            joins_as: Some((claims.identity(), announce)),
        }
    }
}

impl HttpSender {
    /// The sender that a message claims, on a server without login; they must have joined.
    fn anonymous(participant: ParticipantId) -> Self {
        Self {
            participant,
            joins_as: None,
            kind: None,
        }
    }

    /// Submits a message the same way as a connection does, joining first if necessary.
    pub(super) async fn submit(
        self,
        directory: &Arc<SessionDirectory>,
        session: &SessionId,
        submitted: SubmittedMessage,
    ) -> Result<SessionAck, RefusalResponse> {
        let id = submitted.id.clone();
        let about = |refusal: Refusal| RefusalResponse::from(refusal).with_related_to(&id);
        let me = &self.participant;
        let mut access = directory
            .http_access(session, Some(me.clone()))
            .await
            .map_err(about)?;
        if let (None, Some((identity, announce))) = (&access.device, self.joins_as) {
            let fresh = pvp_clock::fresh_id();
            directory
                .join(session, identity, announce, fresh)
                .await
                .map_err(about)?;
            access = directory
                .http_access(session, Some(me.clone()))
                .await
                .map_err(about)?;
        }
        let viewer = access.viewer.ok_or(Refusal::NotJoined).map_err(about)?;
        let limits = &directory.settings.limits;
        let is_output = matches!(
            submitted.message,
            ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_)
        );
        let rate_exempt = is_output && self.kind == Some(ParticipantKind::Agent);
        if !rate_exempt && !viewer.try_charge_message(pvp_clock::now(), limits) {
            let per_second = limits.messages_per_second;
            return Err(about(Refusal::RateLimited { per_second }));
        }
        viewer.record_activity(pvp_clock::now());
        let answer = directory
            .submit_and_wait(session, me.clone(), submitted)
            .await;
        if rate_exempt && answer.is_err() {
            // It passed the rate limit as output but was refused, so it is charged after all.
            viewer.try_charge_message(pvp_clock::now(), limits);
        }
        acknowledge(id.clone(), answer.map_err(about)?)
    }
}

fn acknowledge(id: MessageId, answer: Answer) -> Result<SessionAck, RefusalResponse> {
    let (seq, duplicate) = match answer {
        Answer::Accepted(seq) => (seq, false),
        Answer::Duplicate(seq) => (Some(seq), true),
        Answer::Refused(refusal) => return Err(RefusalResponse::from(refusal).with_related_to(&id)),
    };
    Ok(SessionAck { id, seq, duplicate })
}

pub(super) async fn send(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    RawBody(body): RawBody,
) -> Result<Json<SessionAck>, RefusalResponse> {
    let limits = &directory.settings.limits;
    let me = login.as_ref().map(|login| &login.claims.participant);
    let text = fill_defaults(&body, &session, me, limits)?;
    let (header, message) = parse_client_message(&text, limits).map_err(|error| {
        let refused = RefusalResponse::from(error.refusal);
        match &error.related_to {
            Some(id) => refused.with_related_to(id),
            None => refused,
        }
    })?;
    let id = header.id.clone();
    on_message(&directory, &session, login, header, message)
        .await
        .map(Json)
        .map_err(|refused| refused.with_related_to(&id))
}

/// Completes the envelope of a message that left out fields the server knows.
fn fill_defaults(
    body: &[u8],
    session: &SessionId,
    me: Option<&ParticipantId>,
    limits: &Limits,
) -> Result<String, Refusal> {
    let malformed = |problem: String| Refusal::Malformed(problem);
    let text = std::str::from_utf8(body)
        .map_err(|_| malformed("a message is JSON in UTF-8".to_owned()))?;
    if nesting_depth(text, limits.json_depth) > limits.json_depth {
        let problem = format!("JSON is nested deeper than {} levels", limits.json_depth);
        return Err(malformed(problem));
    }
    let mut envelope: JsonObject = serde_json::from_str(text)
        .map_err(|error| malformed(format!("a message is one JSON object: {error}")))?;
    let mut default = |key: &str, value: serde_json::Value| {
        envelope.entry(key).or_insert(value);
    };
    default("v", pvp_protocol::VERSION.into());
    default("id", pvp_clock::fresh_id().as_str().into());
    default("session", session.as_str().into());
    default("payload", JsonObject::new().into());
    if let Some(me) = me {
        default("sender", me.as_str().into());
    }
    serde_json::to_string(&envelope).map_err(|error| malformed(error.to_string()))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the session decides on every other message"
)]
async fn on_message(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    login: Option<Login>,
    header: EnvelopeHeader,
    message: ClientMessage,
) -> Result<SessionAck, RefusalResponse> {
    let Sender::Participant(sender) = &header.sender else {
        let problem = "nobody but the server is `system`".to_owned();
        return Err(Refusal::Unauthorized(problem).into());
    };
    if header.session != *session {
        let problem = format!(
            "`session` says `{}`, the address says `{session}`",
            header.session
        );
        return Err(Refusal::Malformed(problem).into());
    }
    let http_sender = match login {
        Some(login) if login.claims.participant != *sender => {
            return Err(RefusalResponse::from(Refusal::IdentityMismatch {
                field: "sender",
                claimed: sender.to_string(),
                actual: login.claims.participant,
            }));
        }
        Some(login) => HttpSender::from(login),
        None => HttpSender::anonymous(sender.clone()),
    };
    match message {
        ClientMessage::SessionCreate(_) => {
            let problem = "make sessions with POST /api/sessions".to_owned();
            Err(Refusal::Malformed(problem).into())
        }
        ClientMessage::OutputRead(_) => {
            let problem = "read output with GET /api/sessions/{session}/outputs/{ref}".to_owned();
            Err(Refusal::Malformed(problem).into())
        }
        ClientMessage::SessionJoin(join) => {
            if !join
                .supported_versions
                .contains(&u32::from(pvp_protocol::VERSION))
            {
                let problem = "`supported_versions` must include 1".to_owned();
                return Err(Refusal::Malformed(problem).into());
            }
            let me = http_sender.participant;
            if join.participant.id != me {
                return Err(RefusalResponse::from(Refusal::IdentityMismatch {
                    field: "participant.id",
                    claimed: join.participant.id.to_string(),
                    actual: me,
                }));
            }
            let identity = match http_sender.joins_as {
                Some((identity, _)) => identity,
                None => crate::connection::anonymous_identity(&join),
            };
            let joined = directory
                .join(session, identity, join.participant, header.id.clone())
                .await?;
            // Makes them present, as any HTTP request does.
            directory.http_access(session, Some(me)).await?;
            Ok(SessionAck {
                id: header.id,
                seq: joined.accepted_seq,
                duplicate: false,
            })
        }
        ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
            directory
                .http_access(session, Some(http_sender.participant))
                .await?;
            Ok(SessionAck {
                id: header.id,
                seq: None,
                duplicate: false,
            })
        }
        message => {
            let submitted = SubmittedMessage {
                id: header.id,
                reference: header.reference,
                causal_refs: header.causal_refs,
                fork: header.fork,
                message,
            };
            http_sender.submit(directory, session, submitted).await
        }
    }
}
