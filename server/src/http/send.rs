//! The route that sends a message, and how every other route that says something in a session
//! submits it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::payload::{Announce, SessionAck, SessionCreate, SessionJoin};
use pvp_protocol::{
    ClientMessage, EnvelopeHeader, ExtraFields, MessageId, ParticipantId, ParticipantKind, Refusal,
    Sender, SessionId, Transport, VERSION, parse_client_message,
};
use pvp_session::{Answer, SubmittedMessage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, MessageBody, NoParameters, StrictQuery};
use crate::admission::{
    self, AdmittedMessage, Allowance, Charge, MessageRefusal, ParsedMessage, Principal,
};
use crate::directory::SessionDirectory;
use crate::task::HttpAccess;
use crate::token::TokenClaims;

pub(super) async fn send(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    MessageBody(body): MessageBody,
) -> Result<Json<SessionAck>, RefusalResponse> {
    let principal = Principal::new(login);
    let (bytes, limits) = (body.len(), &directory.settings.limits);
    let permit = admission::large_message_permit(&directory, bytes).await;
    let text = fill_defaults(body, &session, principal.participant());
    let parsed = parse_client_message(&text, limits);
    admission::check_size(bytes, &parsed, &directory).map_err(RefusalResponse::too_large)?;
    drop(permit);
    let named = match &parsed {
        Ok((header, _)) => match &header.sender {
            Sender::Participant(id) => Some(id.clone()),
            Sender::System => None,
        },
        Err(_) => None,
    };
    let mut participant = HttpParticipant::find(&directory, &session, principal, named).await?;
    let admitted = participant.admit(parsed)?;
    let id = admitted.header.id.clone();
    participant
        .on_message(admitted)
        .await
        .map(Json)
        .map_err(|refused| refused.with_related_to(&id))
}

/// The fields of an envelope that a message over HTTP may leave out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GivenFields {
    v: Option<IgnoredAny>,
    id: Option<IgnoredAny>,
    session: Option<IgnoredAny>,
    sender: Option<IgnoredAny>,
    payload: Option<IgnoredAny>,
}

/// Completes the envelope of a message that left out fields the server knows. A text that is no
/// envelope stays as it is, for the parser to refuse.
fn fill_defaults(body: String, session: &SessionId, me: Option<&ParticipantId>) -> String {
    let Ok(given) = serde_json::from_str::<GivenFields>(&body) else {
        return body;
    };
    let Some(rest) = body.trim_start().strip_prefix('{') else {
        return body;
    };
    let fields = [
        ("v", given.v, Some(json!(VERSION))),
        ("id", given.id, Some(json!(pvp_clock::fresh_id()))),
        ("session", given.session, Some(json!(session))),
        ("sender", given.sender, me.map(|me| json!(me))),
        ("payload", given.payload, Some(json!({}))),
    ];
    let mut text = String::from("{");
    for (name, given, default) in fields {
        if let (None, Some(default)) = (given, default) {
            text += &format!("\"{name}\":{default},");
        }
    }
    if rest.trim_start().starts_with('}') && text.ends_with(',') {
        text.pop();
    }
    text + rest
}

/// A participant who sends something over HTTP, without a connection of their own.
pub(super) struct HttpParticipant<'a> {
    directory: &'a Arc<SessionDirectory>,
    session: &'a SessionId,
    principal: Principal,
    /// Without a token, the participant whom the message is from.
    named: Option<ParticipantId>,
    /// `None` if the session does not exist.
    access: Option<HttpAccess>,
}

impl<'a> HttpParticipant<'a> {
    pub(super) async fn find(
        directory: &'a Arc<SessionDirectory>,
        session: &'a SessionId,
        principal: Principal,
        named: Option<ParticipantId>,
    ) -> Result<Self, Refusal> {
        let mut participant = Self {
            directory,
            session,
            principal,
            named,
            access: None,
        };
        match participant.refresh().await {
            // On an open server a join creates it.
            Ok(()) | Err(Refusal::NoSuchSession(_)) => Ok(participant),
            Err(refusal) => Err(refusal),
        }
    }

    /// Reads whether they have joined, which makes them present if they have.
    async fn refresh(&mut self) -> Result<(), Refusal> {
        let me = self.participant();
        self.access = Some(self.directory.http_access(self.session, me).await?);
        Ok(())
    }

    fn participant(&self) -> Option<ParticipantId> {
        let known = self.principal.participant();
        known.or(self.named.as_ref()).cloned()
    }

    /// Charges and checks a message.
    fn admit(&mut self, parsed: ParsedMessage) -> Result<AdmittedMessage, MessageRefusal> {
        let kind = self.principal.login().map(|login| login.claims.kind);
        let allowance = allowance(self.access.as_ref(), kind, self.directory);
        admission::admit_message(
            &mut self.principal,
            parsed,
            Some(self.session),
            allowance.as_ref(),
        )
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the session decides on every other message"
    )]
    async fn on_message(self, admitted: AdmittedMessage) -> Result<SessionAck, RefusalResponse> {
        let AdmittedMessage {
            header,
            message,
            charge,
        } = admitted;
        match message {
            ClientMessage::SessionCreate(create) => self.create(header, create).await,
            ClientMessage::OutputRead(_) => {
                let problem =
                    "read output with GET /api/sessions/{session}/outputs/{ref}".to_owned();
                Err(Refusal::Malformed(problem).into())
            }
            ClientMessage::SessionJoin(join) => self.join(header, join).await,
            ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
                self.access
                    .ok_or_else(|| Refusal::NoSuchSession(self.session.clone()))?;
                Ok(ack(header.id, None))
            }
            message => {
                let submitted = SubmittedMessage::with_header(header, message);
                self.submit(submitted, charge).await
            }
        }
    }

    /// Creates the session, if they may create any.
    async fn create(
        mut self,
        header: EnvelopeHeader,
        create: SessionCreate,
    ) -> Result<SessionAck, RefusalResponse> {
        self.principal.check_may_create(self.directory)?;
        let by = self.principal.check_sender(&header.sender)?;
        let token = self
            .principal
            .login()
            .map(|login| login.quota_token().to_owned());
        let id = header.id.clone();
        let creating = self
            .directory
            .create(self.session, by, token, header.id, create);
        Ok(answer_ack(id, creating.await?)?)
    }

    async fn join(
        mut self,
        header: EnvelopeHeader,
        mut join: SessionJoin,
    ) -> Result<SessionAck, RefusalResponse> {
        let identity = self
            .principal
            .authorize_join(self.directory, self.session, &header.sender, &mut join)
            .await?;
        let joined = self
            .directory
            .join(self.session, identity, join.participant, header.id.clone())
            .await?;
        // Makes them present, as any HTTP request does.
        self.refresh().await?;
        Ok(ack(header.id, joined.accepted_seq))
    }

    /// Charges a message that came in another form than an envelope, and submits it.
    pub(super) async fn charge_and_submit(
        self,
        submitted: SubmittedMessage,
    ) -> Result<SessionAck, RefusalResponse> {
        let id = submitted.id.clone();
        let about = |refused: RefusalResponse| refused.with_related_to(&id);
        let charge = self.charge(&submitted.message);
        let charge = charge.map_err(|refusal| about(refusal.into()))?;
        self.submit(submitted, charge).await.map_err(about)
    }

    /// Submits a message the same way as a connection does. The holder of a token is joined first
    /// if necessary.
    async fn submit(
        mut self,
        submitted: SubmittedMessage,
        mut charge: Charge,
    ) -> Result<SessionAck, RefusalResponse> {
        let access = self.access.as_ref();
        let access = access.ok_or_else(|| Refusal::NoSuchSession(self.session.clone()))?;
        if access.device.is_none() {
            self.join_with_token().await?;
            charge = self.charge(&submitted.message)?;
        }
        let me = self.participant().ok_or(Refusal::NotJoined)?;
        if let Some(HttpAccess {
            viewer: Some(viewer),
            ..
        }) = &self.access
        {
            viewer.record_activity(pvp_clock::now());
        }
        let id = submitted.id.clone();
        let me = self.principal.speaker(me);
        let submitting = self.directory.submit_and_wait(self.session, me, submitted);
        match submitting.await.and_then(|answer| answer_ack(id, answer)) {
            Ok(ack) => Ok(ack),
            Err(refusal) => {
                if let Some(allowance) = self.allowance() {
                    // What counts is the refusal; whether the next message passes is seen then.
                    let _ = allowance.charge_refused(charge);
                }
                Err(refusal.into())
            }
        }
    }

    /// Joins with the roles of the token.
    async fn join_with_token(&mut self) -> Result<(), Refusal> {
        let login = self.principal.login().ok_or(Refusal::NotJoined)?;
        let (identity, announce) = (login.identity(), announcement(&login.claims));
        self.directory
            .join(self.session, identity, announce, pvp_clock::fresh_id())
            .await?;
        self.refresh().await
    }

    fn charge(&self, message: &ClientMessage) -> Result<Charge, Refusal> {
        match self.allowance() {
            Some(allowance) => allowance.charge(Some(message)),
            None => Ok(Charge::Paid),
        }
    }

    /// Their rate limit; `None` if they have not joined.
    fn allowance(&self) -> Option<Allowance<'_>> {
        let kind = self.principal.login().map(|login| login.claims.kind);
        allowance(self.access.as_ref(), kind, self.directory)
    }
}

fn allowance<'a>(
    access: Option<&'a HttpAccess>,
    kind: Option<ParticipantKind>,
    directory: &'a SessionDirectory,
) -> Option<Allowance<'a>> {
    Some(Allowance {
        viewer: access?.device.as_ref()?,
        kind,
        limits: &directory.settings.limits,
    })
}

/// How the holder of a token joins who has not announced themselves.
fn announcement(claims: &TokenClaims) -> Announce {
    Announce {
        id: claims.participant.clone(),
        name: claims.name.clone(),
        kind: claims.kind,
        roles: claims.roles.iter().copied().collect(),
        capabilities: (!claims.capabilities.is_empty())
            .then(|| claims.capabilities.iter().copied().collect()),
        transport: Transport::Http,
        metadata: None,
        executor: None,
        invited_by: None,
        invited_before_session: None,
        extra: ExtraFields::new(),
    }
}

/// The acknowledgement of a message that was accepted.
fn answer_ack(id: MessageId, answer: Answer) -> Result<SessionAck, Refusal> {
    match answer {
        Answer::Accepted(seq) => Ok(ack(id, seq)),
        Answer::Duplicate(seq) => Ok(SessionAck {
            duplicate: true,
            ..ack(id, Some(seq))
        }),
        Answer::Refused(refusal) => Err(refusal),
    }
}

fn ack(id: MessageId, seq: Option<u64>) -> SessionAck {
    SessionAck {
        id,
        seq,
        duplicate: false,
    }
}
