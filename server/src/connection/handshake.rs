//! Handles a connection that has not joined yet, which may create a session and must soon join one.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{SessionCreate, SessionJoin};
use pvp_protocol::{
    ClientMessage, EnvelopeHeader, MessageId, Refusal, SessionId, parse_client_message,
};
use tokio::time::{Instant, timeout_at};

use super::{
    CloseReason, ConnectionEnd, binary_frame, close_code, loggable, poll_message, push_text,
};
use crate::admission::{self, AdmittedMessage, MessageRefusal, ParsedMessage, Principal};
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::envelope;
use crate::reply_queue::ConnectionReply;
use crate::socket::{Incoming, Socket, SocketStream};
use crate::task::JoinedSession;
use crate::token::Login;

/// Messages that a client may send before joining.
const MAX_MESSAGES_BEFORE_JOIN: usize = 32;

/// The same on a server without login, where each of them lets the client take its time.
const MAX_OPEN_MESSAGES_BEFORE_JOIN: usize = 1024;

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
    /// Who talks on it.
    pub(super) principal: Principal,
    /// Counts the connection until it ends.
    pub(super) slot: Arc<ConnectionSlot>,
}

/// A connection that has not joined, and what is known about it.
struct Handshake<'a> {
    directory: &'a Arc<SessionDirectory>,
    principal: Principal,
    slot: Arc<ConnectionSlot>,
}

/// Waits until the connection has joined a session.
pub(super) async fn await_join(
    socket: &mut Socket<SocketStream>,
    directory: &Arc<SessionDirectory>,
    login: Option<Login>,
    slot: Arc<ConnectionSlot>,
) -> Result<Box<AdmittedConnection>, ConnectionEnd> {
    let seconds = directory.config.join_seconds;
    let time_to_join = Duration::from_secs(seconds);
    let mut deadline = Instant::now() + time_to_join;
    let most = match directory.config.open {
        true => MAX_OPEN_MESSAGES_BEFORE_JOIN,
        false => MAX_MESSAGES_BEFORE_JOIN,
    };
    let mut handshake = Handshake {
        directory,
        principal: Principal::new(login),
        slot: slot.clone(),
    };
    let mut shutdown = directory.shutdown_signal();
    for _ in 0..most {
        let message = tokio::select! {
            message = timeout_at(deadline, poll_fn(|cx| poll_message(socket, cx))) => message,
            _ = shutdown.wait_for(|stopping| *stopping) => {
                return Err(ConnectionEnd::ByServer(CloseReason::new(close_code::GOING_AWAY, "the server is shutting down")));
            }
            () = slot.evicted() => {
                return Err(ConnectionEnd::ByServer(CloseReason::new(close_code::TRY_AGAIN, "too many connections; reconnect later")));
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
                push_text(
                    socket,
                    &envelope::error_report(&unknown_session(), &binary_frame(), None),
                );
                continue;
            }
            Ok(Ok(Incoming::Closed { .. }) | Err(_)) => return Err(ConnectionEnd::ByPeer),
        };
        if directory.config.open {
            deadline = Instant::now() + time_to_join;
        }
        let parsed = parse_client_message(&text, &directory.settings.limits);
        let session = match &parsed {
            Ok((header, _)) => header.session.clone(),
            Err(_) => unknown_session(),
        };
        match Box::pin(handshake.on_message(socket, parsed)).await {
            Ok(Some(admitted)) => return Ok(admitted),
            Ok(None) => {}
            Err(MessageRefusal {
                refusal,
                related_to,
            }) => {
                tracing::info!(%session, why = loggable(&refusal), "refused a login");
                push_text(
                    socket,
                    &envelope::error_report(&session, &refusal, related_to),
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
    async fn on_message(
        &mut self,
        socket: &mut Socket<SocketStream>,
        parsed: ParsedMessage,
    ) -> Result<Option<Box<AdmittedConnection>>, MessageRefusal> {
        let admitted = admission::admit_message(&mut self.principal, parsed, None, None)?;
        let related_to = Some(admitted.header.id.clone());
        self.on_admitted(socket, admitted)
            .await
            .map_err(|refusal| MessageRefusal {
                refusal,
                related_to,
            })
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only three messages are accepted before joining"
    )]
    async fn on_admitted(
        &mut self,
        socket: &mut Socket<SocketStream>,
        admitted: AdmittedMessage,
    ) -> Result<Option<Box<AdmittedConnection>>, Refusal> {
        self.principal.recheck(self.directory).await?;
        let header = admitted.header;
        match admitted.message {
            ClientMessage::HeartbeatPing(_) => {
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

    async fn create(
        &mut self,
        socket: &mut Socket<SocketStream>,
        header: EnvelopeHeader,
        create: SessionCreate,
    ) -> Result<(), Refusal> {
        self.principal.check_may_create(self.directory)?;
        let by = self.principal.check_sender(&header.sender)?;
        let (session, id) = (header.session, header.id);
        let token = self
            .principal
            .login()
            .map(|login| login.quota_token().to_owned());
        let answer = self
            .directory
            .create(&session, by, token, id.clone(), create)
            .await?;
        // Published clients wait to hear of it before they join.
        if self.directory.config.open
            && let Some(told) = envelope::creation(self.directory, &session, id.clone()).await
        {
            push_text(socket, &told);
        }
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
        let session = header.session;
        let identity = self
            .principal
            .authorize_join(self.directory, &session, &header.sender, &mut join)
            .await?;
        admission::count_connection(&self.slot, &self.principal)?;
        let (announce, join_id) = (join.participant.clone(), header.id);
        match self
            .directory
            .join(&session, identity, announce, join_id.clone())
            .await
        {
            Ok(joined) => {
                let principal = std::mem::replace(&mut self.principal, Principal::new(None));
                Ok(Box::new(AdmittedConnection {
                    session,
                    joined,
                    join,
                    join_id,
                    principal,
                    slot: self.slot.clone(),
                }))
            }
            Err(refusal) => {
                self.slot.detach();
                Err(refusal)
            }
        }
    }
}
