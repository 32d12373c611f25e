//! A session's messages over HTTP: read from anywhere, waited for, and sent.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use http::header::CONTENT_TYPE;
use pvp_protocol::payload::{Announce, SessionAck};
use pvp_protocol::{
    ClientMessage, Envelope, ExtraFields, Heading, JsonObject, Limits, MessageId, ParticipantId,
    ParticipantKind, Refusal, Sender, SessionId, Transport, nesting_depth, parse_client_message,
    parse_server_message,
};
use pvp_session::{Answer, Identity, Submitted};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::asking::{Asked, InSession, NoParameters, WholeBody, parameters};
use super::{Refused, longest_wait};
use crate::clock;
use crate::house::{House, unreadable};
use crate::store::{ReadBound, Store};
use crate::task::Visit;
use crate::token::Login;
use crate::told;

/// Messages of one answer unless the caller says otherwise, and at most.
const DEFAULT_LIMIT: usize = 100;
const MOST: usize = 1000;

/// Bytes of one answer; one message is always given if there is one.
const MOST_BYTES: usize = 4 * 1024 * 1024;

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

/// As `MessagePage`, with the messages as they were written.
#[derive(Serialize)]
struct Page {
    messages: Vec<Box<RawValue>>,
    next: u64,
    head: u64,
}

pub(super) async fn read(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Asked(asked): Asked<ReadParameters>,
) -> Result<Response, Refused> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MOST);
    let until = Instant::now() + longest_wait(asked.wait.unwrap_or(0));
    let turn = login.as_ref().map(|login| house.turn(&login.token_id));
    let _turn = turn.transpose()?;
    let me = login.map(|login| login.bearer.participant);
    let visit = house.visit(&session, me).await?;
    let _waiting = visit.viewer.as_ref().map(|viewer| viewer.wait());
    let mut stopping = house.stopping();
    let mut after = asked.after.unwrap_or(0);
    let page = loop {
        let mut bell = pin!(visit.feed.bell().notified());
        bell.as_mut().enable();
        let page = page(&house, &session, &visit, after, limit).await?;
        if !page.messages.is_empty() || Instant::now() >= until || visit.feed.is_closed() {
            break page;
        }
        // What was not for this viewer need not be looked at again.
        after = page.next;
        tokio::select! {
            () = bell => {}
            () = tokio::time::sleep_until(until) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break page,
        }
    };
    let json = serde_json::to_vec(&page).map_err(|_| unreadable())?;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

async fn page(
    house: &Arc<House>,
    session: &SessionId,
    visit: &Visit,
    after: u64,
    limit: usize,
) -> Result<Page, Refusal> {
    let head = visit.feed.head();
    let empty = Page {
        messages: Vec::new(),
        next: after,
        head,
    };
    if after >= head {
        return Ok(empty);
    }
    let permit = house.readers.clone().acquire_owned().await;
    let (store, session) = (house.store.clone(), session.clone());
    let (viewer, vault) = (visit.viewer.clone(), visit.vault.clone());
    let reading = tokio::task::spawn_blocking(move || -> Result<Page, String> {
        let _permit = permit;
        let bound = ReadBound {
            records: limit,
            bytes: MOST_BYTES,
        };
        let mut page = empty;
        let records = store
            .read(&session, after + 1, bound)
            .map_err(|error| error.to_string())?;
        // What is written but not yet told is for the next answer.
        for record in records.iter().take_while(|record| record.seq <= head) {
            let told = told::from_record(record, &vault).map_err(|error| error.to_string())?;
            if let Some(body) = told.body_for_reader(viewer.as_deref()) {
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

/// One entry of the log.
pub(super) async fn entry(
    house: &Arc<House>,
    session: &SessionId,
    seq: u64,
) -> Result<Envelope, Refusal> {
    let (store, session) = (house.store.clone(), session.clone());
    tokio::task::spawn_blocking(move || stored(&store, &session, seq))
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?
        .ok_or_else(unreadable)
}

/// One entry of the log, read where blocking is no harm.
pub(super) fn stored(store: &Store, session: &SessionId, seq: u64) -> Option<Envelope> {
    let one = ReadBound {
        records: 1,
        bytes: 0,
    };
    let records = store.read(session, seq, one).ok()?;
    let record = records.first().filter(|record| record.seq == seq)?;
    let text = std::str::from_utf8(&record.body).ok()?;
    let limits = Limits {
        json_depth: usize::MAX,
        ..Limits::default()
    };
    parse_server_message(text, &limits).ok().flatten()
}

/// Someone who says something without a connection.
pub(super) struct Speaker {
    pub(super) participant: ParticipantId,
    /// What to join as, if they have not joined.
    joins_as: Option<(Identity, Announce)>,
    kind: Option<ParticipantKind>,
}

impl From<Login> for Speaker {
    fn from(login: Login) -> Self {
        let bearer = login.bearer;
        let announce = Announce {
            id: bearer.participant.clone(),
            name: bearer.name.clone(),
            kind: bearer.kind,
            roles: bearer.roles.iter().copied().collect(),
            capabilities: (!bearer.capabilities.is_empty())
                .then(|| bearer.capabilities.iter().copied().collect()),
            transport: Transport::Http,
            metadata: None,
            executor: None,
            extra: ExtraFields::new(),
        };
        Self {
            participant: bearer.participant.clone(),
            kind: Some(bearer.kind),
            joins_as: Some((bearer.identity(), announce)),
        }
    }
}

impl Speaker {
    /// Where nobody logs in, whoever the message says; they must have joined.
    fn anyone(participant: ParticipantId) -> Self {
        Self {
            participant,
            joins_as: None,
            kind: None,
        }
    }

    /// Says one thing through the same door as a connection, joining first if need be.
    pub(super) async fn say(
        self,
        house: &Arc<House>,
        session: &SessionId,
        said: Submitted,
    ) -> Result<SessionAck, Refused> {
        let id = said.id.clone();
        let about = |refusal: Refusal| Refused::from(refusal).about(&id);
        let me = &self.participant;
        let mut visit = house
            .visit(session, Some(me.clone()))
            .await
            .map_err(about)?;
        if let (None, Some((identity, announce))) = (&visit.device, self.joins_as) {
            let fresh = clock::fresh_id();
            house
                .join(session, identity, announce, fresh)
                .await
                .map_err(about)?;
            visit = house
                .visit(session, Some(me.clone()))
                .await
                .map_err(about)?;
        }
        let viewer = visit.viewer.ok_or(Refusal::NotJoined).map_err(about)?;
        let limits = &house.settings.limits;
        let output = matches!(
            said.message,
            ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_)
        );
        let unpaid = output && self.kind == Some(ParticipantKind::Agent);
        if !unpaid && !viewer.may_send(clock::now(), limits) {
            let per_second = limits.messages_per_second;
            return Err(about(Refusal::RateLimited { per_second }));
        }
        viewer.acted(clock::now());
        let answer = house.say_once(session, me.clone(), said).await;
        if unpaid && answer.is_err() {
            // It was let past the rate as output, and was not.
            viewer.may_send(clock::now(), limits);
        }
        acknowledge(id.clone(), answer.map_err(about)?)
    }
}

fn acknowledge(id: MessageId, answer: Answer) -> Result<SessionAck, Refused> {
    let (seq, duplicate) = match answer {
        Answer::Accepted(seq) => (seq, false),
        Answer::Duplicate(seq) => (Some(seq), true),
        Answer::Refused(refusal) => return Err(Refused::from(refusal).about(&id)),
    };
    Ok(SessionAck { id, seq, duplicate })
}

pub(super) async fn send(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Asked(NoParameters {}): Asked<NoParameters>,
    WholeBody(body): WholeBody,
) -> Result<Json<SessionAck>, Refused> {
    let limits = &house.settings.limits;
    let me = login.as_ref().map(|login| &login.bearer.participant);
    let text = complete(&body, &session, me, limits)?;
    let (heading, message) = parse_client_message(&text, limits).map_err(|error| {
        let refused = Refused::from(error.refusal);
        match &error.related_to {
            Some(id) => refused.about(id),
            None => refused,
        }
    })?;
    let id = heading.id.clone();
    hear(&house, &session, login, heading, message)
        .await
        .map(Json)
        .map_err(|refused| refused.about(&id))
}

/// The whole envelope of a message that may have left out what the server knows.
fn complete(
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
    default("id", clock::fresh_id().as_str().into());
    default("session", session.as_str().into());
    default("payload", JsonObject::new().into());
    if let Some(me) = me {
        default("sender", me.as_str().into());
    }
    serde_json::to_string(&envelope).map_err(|error| malformed(error.to_string()))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "everything else is the session's business"
)]
async fn hear(
    house: &Arc<House>,
    session: &SessionId,
    login: Option<Login>,
    heading: Heading,
    message: ClientMessage,
) -> Result<SessionAck, Refused> {
    let Sender::Participant(sender) = &heading.sender else {
        let problem = "nobody but the server is `system`".to_owned();
        return Err(Refusal::Unauthorized(problem).into());
    };
    if heading.session != *session {
        let problem = format!(
            "`session` says `{}`, the address says `{session}`",
            heading.session
        );
        return Err(Refusal::Malformed(problem).into());
    }
    let speaker = match login {
        Some(login) if login.bearer.participant != *sender => {
            return Err(Refused::from(Refusal::IdentityMismatch {
                field: "sender",
                claimed: sender.to_string(),
                actual: login.bearer.participant,
            }));
        }
        Some(login) => Speaker::from(login),
        None => Speaker::anyone(sender.clone()),
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
            let me = speaker.participant;
            if join.participant.id != me {
                return Err(Refused::from(Refusal::IdentityMismatch {
                    field: "participant.id",
                    claimed: join.participant.id.to_string(),
                    actual: me,
                }));
            }
            let identity = match speaker.joins_as {
                Some((identity, _)) => identity,
                None => crate::connection::anyone(&join),
            };
            let joined = house
                .join(session, identity, join.participant, heading.id.clone())
                .await?;
            // From here on they are there as anyone is who asks.
            house.visit(session, Some(me)).await?;
            Ok(SessionAck {
                id: heading.id,
                seq: joined.seq,
                duplicate: false,
            })
        }
        ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
            house.visit(session, Some(speaker.participant)).await?;
            Ok(SessionAck {
                id: heading.id,
                seq: None,
                duplicate: false,
            })
        }
        message => {
            let said = Submitted {
                id: heading.id,
                reference: heading.reference,
                causal_refs: heading.causal_refs,
                fork: heading.fork,
                message,
            };
            speaker.say(house, session, said).await
        }
    }
}
