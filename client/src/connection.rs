//! A participant's connection to a session, which joins, tracks the answer to each message, and
//! reconnects on its own.

mod own_join;
mod server_clock;
mod task;

use pvp_clock::{fresh_id, now};
use pvp_protocol::payload::{Announce, ErrorReport, ExecutorInfo, SessionAck, SessionWelcome};
use pvp_protocol::{
    ClientMessage, Envelope, EnvelopeHeader, ExtraFields, JsonObject, MessageId, ParticipantId,
    ParticipantKind, Role, Sender, SessionId, Timestamp, Transport, WireMessage,
};
use tokio::sync::{mpsc, oneshot};

use crate::api::{ApiClient, ApiError};
use crate::link::Link;
use crate::outbox::{OutgoingMessage, ResendPolicy};
use crate::record::{RecordMemory, RecordWarning};
pub use own_join::OwnJoin;
use server_clock::ServerClock;

/// Capacity of the event channel. When it is full the socket is not read, so back-pressure reaches
/// the server.
const EVENT_BUFFER: usize = 1024;

/// Capacity of the send channel. When it is full, sending waits.
const SEND_BUFFER: usize = 256;

/// How to join a session.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// The session to join; `None` uses the one that the link or the token names.
    pub session: Option<SessionId>,
    /// The roles to join with, to have fewer than the token allows; `None` joins with all of them.
    pub roles: Option<Vec<Role>>,
    /// The participant id to join as; needed only on a server without login.
    pub participant: Option<ParticipantId>,
    /// The name to join with, on a server without login; `None` means the participant id.
    pub name: Option<String>,
    /// Human or agent, on a server without login; `None` means human.
    pub kind: Option<ParticipantKind>,
    /// Set by agents that run commands.
    pub executor: Option<ExecutorInfo>,
    /// Free-form facts about this client, announced to the other participants.
    pub metadata: Option<JsonObject>,
    /// Resume after this sequence number: only later messages are delivered.
    pub after: Option<u64>,
    /// How many past messages to receive when not resuming; `None` uses the server's default.
    pub history: Option<u64>,
    /// A complete `session.create` envelope to send before joining.
    pub create: Option<String>,
    /// The join to send as it is; it says who joins which session, and the other options do not.
    pub own_join: Option<OwnJoin>,
    /// Whether each welcome is followed by a comparison of the log with what was seen of it before.
    pub record_check: RecordCheck,
}

/// Whether a connection compares the log with what was seen of it before.
#[derive(Debug, Clone, Default)]
pub enum RecordCheck {
    /// It does not.
    #[default]
    Off,
    /// It does, and reports what is odd as an event.
    Report(RecordMemory),
    /// It does, and ends if the log was cut or rewritten: for those who act on what they receive.
    Enforce(RecordMemory),
}

impl RecordCheck {
    pub(crate) fn memory(&self) -> Option<&RecordMemory> {
        match self {
            RecordCheck::Off => None,
            RecordCheck::Report(memory) | RecordCheck::Enforce(memory) => Some(memory),
        }
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the link names no session; choose one")]
    NoSession,
    #[error(
        "the link has no token; get one with `pvp join` or `pvp login`, or, on a server without login, say who you are"
    )]
    NoParticipant,
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("{0}")]
    RecordChanged(RecordWarning),
    #[error("cannot connect: {0}")]
    Failed(String),
}

/// One event of a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// Joined, for the first time or after a reconnect. When `resumed` is false, the caller starts
    /// with an empty view.
    Connected { resumed: bool },
    /// A message from the server. `envelope` is `None` if this version does not know its type or
    /// cannot parse it; `text` is always the JSON as received.
    Message {
        envelope: Option<Box<Envelope>>,
        text: String,
    },
    /// Something is odd about the session's log, compared with what was seen of it before. It
    /// comes before the `Connected` of the same socket.
    RecordWarning(RecordWarning),
    /// The connection is lost; a reconnect follows.
    Disconnected { why: String },
    /// The connection is closed for good; no reconnect follows.
    Ended(EndReason),
}

/// Why a connection ended for good.
#[derive(Debug)]
pub enum EndReason {
    /// This client closed it.
    Closed,
    /// This client left the session.
    Left,
    /// The server no longer lets this client in.
    Refused(Box<ErrorReport>),
    /// The session's log was cut or rewritten, and this client does not go on then.
    RecordChanged(RecordWarning),
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("the connection has ended")]
    Closed,
    #[error("the connection was lost before it was sent, and it would be too late now")]
    Dropped,
}

/// Delivers the server's answer to the caller that sent the message.
pub(crate) type AckSender = oneshot::Sender<Result<SessionAck, SendError>>;

/// A handle to a joined session. Dropping the last clone closes the connection, once the server has
/// answered every message that was sent.
#[derive(Clone)]
pub struct Connection {
    outgoing: mpsc::Sender<OutgoingMessage<AckSender>>,
    participant: ParticipantId,
    session: SessionId,
    server_clock: ServerClock,
}

/// The events of a connection, in order. A caller that does not read them blocks the connection,
/// acknowledgements included; dropping this discards the events instead.
pub struct ConnectionEvents(mpsc::Receiver<ConnectionEvent>);

impl ConnectionEvents {
    /// The next event; `None` after the connection has ended.
    pub async fn next(&mut self) -> Option<ConnectionEvent> {
        self.0.recv().await
    }

    /// The next message of a type that this version knows; waits across reconnects. `None` after
    /// the connection has ended.
    pub async fn next_message(&mut self) -> Option<Box<Envelope>> {
        loop {
            if let ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } = self.next().await?
            {
                return Some(envelope);
            }
        }
    }
}

/// A sent message whose answer is pending.
pub struct Receipt {
    /// The id of the message.
    pub id: MessageId,
    ack: oneshot::Receiver<Result<SessionAck, SendError>>,
}

impl Receipt {
    /// Waits for the server's answer, across reconnects.
    pub async fn ack(self) -> Result<SessionAck, SendError> {
        self.ack.await.unwrap_or(Err(SendError::Closed))
    }
}

impl Connection {
    /// Joins a session. After this returns, losing the connection is an event, not an error.
    pub async fn open(
        link: Link,
        options: ConnectOptions,
    ) -> Result<(Self, ConnectionEvents), ConnectError> {
        let (announce, session) = resolve_identity(&link, &options).await?;
        let participant = announce.id.clone();
        let (outgoing, outgoing_receiver) = mpsc::channel(SEND_BUFFER);
        let (event_sender, event_receiver) = mpsc::channel(EVENT_BUFFER);
        let (first_join_sender, first_join) = oneshot::channel();
        let server_clock = ServerClock::default();
        let own_join = options.own_join.as_ref();
        let params = task::JoinParams {
            link,
            session: session.clone(),
            announce,
            after: own_join.map_or(options.after, OwnJoin::after),
            history: own_join.map_or(options.history, OwnJoin::history),
            create: options.create,
            own_join: options.own_join,
            record_check: options.record_check,
        };
        tokio::spawn(task::run(
            params,
            outgoing_receiver,
            event_sender,
            first_join_sender,
            server_clock.clone(),
        ));
        let joined = first_join.await.unwrap_or_else(|_| {
            Err(ConnectError::Failed(
                "the connection's task ended".to_owned(),
            ))
        });
        joined.map(|()| {
            let connection = Self {
                outgoing,
                participant,
                session,
                server_clock,
            };
            (connection, ConnectionEvents(event_receiver))
        })
    }

    /// The participant that this connection joined as.
    pub fn participant(&self) -> &ParticipantId {
        &self.participant
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// What time it is by the server's clock, which deadlines are by.
    pub fn server_now(&self) -> Timestamp {
        self.server_clock.now()
    }

    /// Sends a message. The receipt resolves when the server answers it.
    pub async fn send(&self, message: impl Into<ClientMessage>) -> Result<Receipt, SendError> {
        self.send_with_id(fresh_id(), None, message).await
    }

    /// Sends a message with an id chosen by the caller, optionally referring to another message.
    pub async fn send_with_id(
        &self,
        id: MessageId,
        reference: Option<MessageId>,
        message: impl Into<ClientMessage>,
    ) -> Result<Receipt, SendError> {
        let message = message.into();
        let kind = message.kind();
        let header = EnvelopeHeader {
            id: id.clone(),
            session: self.session.clone(),
            sender: Sender::Participant(self.participant.clone()),
            reference,
            causal_refs: Vec::new(),
            fork: None,
        };
        let text = encode_envelope(header, message);
        self.send_text(id, kind, text).await
    }

    /// Sends a message and waits for the server's answer.
    pub async fn send_and_wait(
        &self,
        message: impl Into<ClientMessage>,
    ) -> Result<SessionAck, SendError> {
        self.send(message).await?.ack().await
    }

    /// Sends a complete envelope as JSON text; `id` and `kind` must be those of the envelope.
    pub async fn send_text(
        &self,
        id: MessageId,
        kind: &str,
        text: String,
    ) -> Result<Receipt, SendError> {
        let (ack_sender, ack) = oneshot::channel();
        let outgoing = OutgoingMessage {
            id: id.clone(),
            text,
            resend_policy: ResendPolicy::for_type(kind),
            ack_sender,
        };
        self.outgoing
            .send(outgoing)
            .await
            .map_err(|_| SendError::Closed)?;
        Ok(Receipt { id, ack })
    }
}

fn encode_envelope<M: WireMessage>(header: EnvelopeHeader, message: M) -> String {
    let envelope = Envelope {
        header,
        at: now(),
        seq: None,
        message,
    };
    String::from_utf8(envelope.to_json()).expect("JSON is UTF-8")
}

/// Finds out which participant and which session to join: from the caller's own join if there is
/// one, from the token if the link has one, otherwise from the options.
async fn resolve_identity(
    link: &Link,
    options: &ConnectOptions,
) -> Result<(Announce, SessionId), ConnectError> {
    if let Some(own_join) = &options.own_join {
        return Ok((own_join.announce().clone(), own_join.session().clone()));
    }
    let mut announce = Announce {
        id: ParticipantId::parse("nobody").expect("a plain word"),
        name: String::new(),
        kind: options.kind.unwrap_or(ParticipantKind::Human),
        roles: options.roles.clone().unwrap_or_default(),
        capabilities: None,
        transport: Transport::Websocket,
        metadata: options.metadata.clone(),
        executor: options.executor.clone(),
        invited_by: None,
        invited_before_session: None,
        extra: ExtraFields::new(),
    };
    let mut token_session = None;
    if link.token().is_some() {
        let api = ApiClient::new(link.clone());
        let me = tokio::task::spawn_blocking(move || api.whoami())
            .await
            .map_err(|panic| ConnectError::Failed(panic.to_string()))??;
        announce.id = me.participant;
        announce.name = me.name;
        announce.kind = me.kind;
        if options.roles.is_none() {
            announce.roles = me.roles.into_iter().collect();
        }
        token_session = me.session;
    } else {
        announce.id = options
            .participant
            .clone()
            .ok_or(ConnectError::NoParticipant)?;
        announce.name = match &options.name {
            Some(name) => name.clone(),
            None => announce.id.to_string(),
        };
    }
    let session = options.session.clone().or_else(|| link.session().cloned());
    let session = session.or(token_session).ok_or(ConnectError::NoSession)?;
    Ok((announce, session))
}

/// The limits of the server that matter to a connection, as the welcome states them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WelcomeLimits {
    pub(crate) heartbeat_seconds: u64,
    pub(crate) message_bytes: usize,
}

impl Default for WelcomeLimits {
    fn default() -> Self {
        Self {
            heartbeat_seconds: 10,
            message_bytes: 1024 * 1024,
        }
    }
}

impl From<&SessionWelcome> for WelcomeLimits {
    fn from(welcome: &SessionWelcome) -> Self {
        Self {
            heartbeat_seconds: u64::from(welcome.config.heartbeat_interval_seconds),
            message_bytes: welcome.limits.message_bytes,
        }
    }
}
