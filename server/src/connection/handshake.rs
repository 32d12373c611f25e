//! Handles a connection that has not joined yet, which may create a session and must soon join one.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{SessionCreate, SessionJoin};
use pvp_protocol::{
    ClientMessage, EnvelopeHeader, MessageId, ParticipantId, Refusal, Role, Sender, SessionId,
    VERSION, parse_client_message,
};
use pvp_session::Identity;
use tokio::time::{Instant, timeout_at};

use super::{CloseReason, ConnectionEnd, close_code, poll_message, push_text};
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::envelope;
use crate::reply_queue::ConnectionReply;
use crate::socket::{Incoming, Socket, SocketStream};
use crate::task::JoinedSession;
use crate::token::{self, Login};

/// Messages that a client may send before joining.
const MAX_MESSAGES_BEFORE_JOIN: usize = 32;

/// A connection that has joined a session.
pub(super) struct AdmittedConnection {
    /// The session it has joined.
    pub(super) session: SessionId,
    /// What it needs to follow the session.
    pub(super) joined: Box<JoinedSession>,
    /// The message it joined with, without its token.
    pub(super) join: SessionJoin,
    /// The id of that message.
    pub(super) join_id: MessageId,
    /// The verified token; `None` if the client joined an open server without one.
    pub(super) login: Option<Login>,
    /// Counts the connection until it ends.
    pub(super) slot: ConnectionSlot,
}

/// A connection that has not joined, and what is known about it.
struct Handshake<'a> {
    directory: &'a Arc<SessionDirectory>,
    login: Option<Login>,
    slot: Option<ConnectionSlot>,
    /// Without login, the participant that the first message claimed to be from.
    claimed_id: Option<ParticipantId>,
}

/// Waits until the connection has joined a session.
pub(super) async fn await_join(
    socket: &mut Socket<SocketStream>,
    directory: &Arc<SessionDirectory>,
    login: Option<Login>,
    slot: ConnectionSlot,
) -> Result<Box<AdmittedConnection>, ConnectionEnd> {
    let seconds = directory.config.join_seconds;
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut handshake = Handshake {
        directory,
        login,
        slot: Some(slot),
        claimed_id: None,
    };
    let mut shutdown = directory.shutdown_signal();
    for _ in 0..MAX_MESSAGES_BEFORE_JOIN {
        let message = tokio::select! {
            message = timeout_at(deadline, poll_fn(|cx| poll_message(socket, cx))) => message,
            _ = shutdown.wait_for(|stopping| *stopping) => {
                return Err(ConnectionEnd::ByServer(CloseReason::new(close_code::GOING_AWAY, "the server is shutting down")));
            }
        };
        let text = match message {
            Err(_) => {
                let reason = format!("not joined within {seconds} seconds");
                return Err(ConnectionEnd::ByServer(CloseReason::new(
                    close_code::POLICY,
                    &reason,
                )));
            }
            Ok(Ok(Incoming::Text(text))) => text,
            Ok(Ok(Incoming::Binary(_))) => {
                let refusal = Refusal::Malformed("send text frames, one message each".to_owned());
                push_text(
                    socket,
                    &envelope::error_report(&unknown_session(), &refusal, None),
                );
                continue;
            }
            Ok(Ok(Incoming::Closed { .. }) | Err(_)) => return Err(ConnectionEnd::ByPeer),
        };
        let (header, message) = match parse_client_message(&text, &directory.settings.limits) {
            Ok(read) => read,
            Err(error) => {
                push_text(
                    socket,
                    &envelope::error_report(&unknown_session(), &error.refusal, error.related_to),
                );
                continue;
            }
        };
        let (session, id) = (header.session.clone(), header.id.clone());
        match Box::pin(handshake.on_message(socket, header, message)).await {
            Ok(Some(admitted)) => return Ok(admitted),
            Ok(None) => {}
            Err(refusal) => {
                tracing::info!(%session, %refusal, "refused a stranger");
                push_text(
                    socket,
                    &envelope::error_report(&session, &refusal, Some(id)),
                );
            }
        }
    }
    Err(ConnectionEnd::ByServer(CloseReason::new(
        close_code::POLICY,
        "too many messages before joining",
    )))
}

/// The session id in an answer to a message that named no session.
fn unknown_session() -> SessionId {
    SessionId::parse("unknown").expect("a plain word")
}

impl Handshake<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only three messages are accepted before joining"
    )]
    async fn on_message(
        &mut self,
        socket: &mut Socket<SocketStream>,
        header: EnvelopeHeader,
        message: ClientMessage,
    ) -> Result<Option<Box<AdmittedConnection>>, Refusal> {
        match message {
            ClientMessage::HeartbeatPing(_) => {
                self.verify_sender(&header.sender)?;
                push_text(socket, &envelope::pong(&header.session, header.id));
                Ok(None)
            }
            ClientMessage::SessionCreate(create) => {
                self.create(socket, header, create).await.map(|()| None)
            }
            ClientMessage::SessionJoin(join) => self.join(header, join).await.map(Some),
            _ => Err(Refusal::NotJoined),
        }
    }

    /// The participant of this connection, if `sender` is the same one.
    fn verify_sender(&mut self, sender: &Sender) -> Result<ParticipantId, Refusal> {
        let Sender::Participant(claimed) = sender else {
            return Err(Refusal::Unauthorized(
                "nobody but the server is `system`".to_owned(),
            ));
        };
        let actual = match &self.login {
            Some(login) => &login.claims.participant,
            None => self.claimed_id.get_or_insert_with(|| claimed.clone()),
        };
        if claimed == actual {
            return Ok(claimed.clone());
        }
        Err(Refusal::IdentityMismatch {
            field: "sender",
            claimed: claimed.to_string(),
            actual: actual.clone(),
        })
    }

    async fn create(
        &mut self,
        socket: &mut Socket<SocketStream>,
        header: EnvelopeHeader,
        create: SessionCreate,
    ) -> Result<(), Refusal> {
        match &self.login {
            Some(login) if !login.claims.may_create_sessions() => {
                let problem = "creating a session takes a token with driver or admin that is not bound to one";
                return Err(Refusal::Unauthorized(problem.to_owned()));
            }
            None if !self.directory.config.open => return Err(login_required()),
            Some(_) | None => {}
        }
        let by = self.verify_sender(&header.sender)?;
        let (session, id) = (header.session, header.id);
        let answer = self
            .directory
            .create(&session, by, id.clone(), create)
            .await?;
        push_text(
            socket,
            &envelope::reply(&session, ConnectionReply { id, answer }),
        );
        Ok(())
    }

    async fn join(
        &mut self,
        header: EnvelopeHeader,
        mut join: SessionJoin,
    ) -> Result<Box<AdmittedConnection>, Refusal> {
        if let Some(token) = join.token.take() {
            self.login = Some(check_token(self.directory, token).await?);
        }
        if !join.supported_versions.contains(&u32::from(VERSION)) {
            let problem = "`supported_versions` must include 1".to_owned();
            return Err(Refusal::Malformed(problem));
        }
        let session = header.session;
        let identity = match &self.login {
            Some(login) if !login.claims.allows_session(&session) => {
                let problem = "this token is for another session".to_owned();
                return Err(Refusal::Unauthorized(problem));
            }
            Some(login) => login.claims.identity(),
            None if self.directory.config.open => anonymous_identity(&join),
            None => return Err(login_required()),
        };
        let sender = self.verify_sender(&header.sender)?;
        if join.participant.id != sender {
            let claimed = join.participant.id.to_string();
            return Err(Refusal::IdentityMismatch {
                field: "participant.id",
                claimed,
                actual: sender,
            });
        }
        let mut slot = self.slot.take().ok_or(Refusal::NotJoined)?;
        if let Some(login) = &self.login
            && let Err(refusal) = self.directory.attach_token(&mut slot, &login.token_id)
        {
            self.slot = Some(slot);
            return Err(refusal);
        }
        let (announce, join_id) = (join.participant.clone(), header.id);
        match self
            .directory
            .join(&session, identity, announce, join_id.clone())
            .await
        {
            Ok(joined) => {
                let login = self.login.take();
                Ok(Box::new(AdmittedConnection {
                    session,
                    joined,
                    join,
                    join_id,
                    login,
                    slot,
                }))
            }
            Err(refusal) => {
                self.directory.detach_token(&mut slot);
                self.slot = Some(slot);
                Err(refusal)
            }
        }
    }
}

/// The identity of a client without login: whoever it claims to be, with every role and the
/// capabilities it claims.
pub(crate) fn anonymous_identity(join: &SessionJoin) -> Identity {
    let claimed: BTreeSet<_> = join
        .participant
        .capabilities
        .iter()
        .flatten()
        .copied()
        .collect();
    Identity {
        participant: join.participant.id.clone(),
        name: None,
        kind: join.participant.kind,
        roles: Role::ALL.iter().copied().collect(),
        capabilities: claimed,
    }
}

fn login_required() -> Refusal {
    let problem =
        "log in: bring a token as `Authorization: Bearer`, `?token=` or in `session.join`";
    Refusal::Unauthorized(problem.to_owned())
}

/// Looks up a token without blocking other tasks.
pub(crate) async fn check_token(
    directory: &Arc<SessionDirectory>,
    token: String,
) -> Result<Login, Refusal> {
    let store = directory.store.clone();
    let checked = tokio::task::spawn_blocking(move || {
        token::verify(store.tokens(), &token, pvp_clock::now())
    })
    .await;
    match checked {
        Ok(Ok(login)) => Ok(login),
        Ok(Err(error)) => Err(Refusal::Unauthorized(error.to_string())),
        Err(panic) => Err(Refusal::ReadFailed(panic.to_string())),
    }
}
