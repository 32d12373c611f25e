//! A participant's connection: joins, sends with acknowledgement, and comes back by itself.

mod task;

use pvp_protocol::payload::{Announce, ErrorReport, ExecutorInfo, SessionAck, SessionWelcome};
use pvp_protocol::{
    ClientMessage, Envelope, ExtraFields, Heading, JsonObject, MessageId, ParticipantId,
    ParticipantKind, Role, Sender, SessionId, Timestamp, Transport, WireMessage,
};
use tokio::sync::{mpsc, oneshot};

use crate::api::{Api, ApiError};
use crate::link::Link;
use crate::outbox::{Outgoing, Weight};

/// Events that may wait to be taken; then the socket is not read, and the server waits.
const EVENTS: usize = 1024;

/// Messages that may wait to be sent; then sending waits.
const ORDERS: usize = 256;

/// How to join.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The session, if the link does not name it.
    pub session: Option<SessionId>,
    /// Fewer roles than the token allows.
    pub roles: Option<Vec<Role>>,
    /// Who to be where nobody logs in.
    pub participant: Option<ParticipantId>,
    /// Human, where nobody logs in and nothing else is said.
    pub kind: Option<ParticipantKind>,
    /// Set by agents that run commands.
    pub executor: Option<ExecutorInfo>,
    pub metadata: Option<JsonObject>,
    /// Resume: tell only what came after this seq.
    pub after: Option<u64>,
    /// How many past messages to tell when not resuming; the server's default if not given.
    pub history: Option<u64>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the link names no session; say which")]
    NoSession,
    #[error("this server has no login, so say who you are")]
    Nobody,
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("cannot connect: {0}")]
    Lost(String),
}

/// What happens on a connection.
#[derive(Debug)]
pub enum Event {
    /// Joined, for the first time or again. Not `resumed` means that the view begins anew.
    Up { resumed: bool },
    /// A message from the server; `envelope` is `None` if this version does not know its type.
    Told {
        envelope: Option<Box<Envelope>>,
        text: String,
    },
    /// The connection is lost and will be tried again.
    Down { why: String },
    /// It is over, and will not be tried again.
    Ended(Ending),
}

/// How a connection ended for good.
#[derive(Debug)]
pub enum Ending {
    /// We closed it.
    Closed,
    /// We left the session.
    Left,
    /// The server does not let us in any more.
    Refused(Box<ErrorReport>),
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("the connection is over")]
    Over,
    #[error("it was not sent before the connection was lost, and is not worth sending late")]
    Passed,
}

/// The answer to a message.
pub(crate) type Reply = oneshot::Sender<Result<SessionAck, SendError>>;

/// A place in a session. Dropping the last clone closes the connection once everything sent is
/// answered.
#[derive(Clone)]
pub struct Connection {
    orders: mpsc::Sender<Outgoing<Reply>>,
    participant: ParticipantId,
    session: SessionId,
}

/// What happens on a connection, in order. Not taking events holds the connection up, answers
/// included; dropping this lets them pass unseen.
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// The next event; `None` after the connection has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// The next message of a type this version knows; waits through losses.
    pub async fn next_told(&mut self) -> Option<Box<Envelope>> {
        loop {
            if let Event::Told {
                envelope: Some(envelope),
                ..
            } = self.next().await?
            {
                return Some(envelope);
            }
        }
    }
}

/// A message under way.
pub struct Receipt {
    /// Its id.
    pub id: MessageId,
    answer: oneshot::Receiver<Result<SessionAck, SendError>>,
}

impl Receipt {
    /// Waits for the server's answer, through losses of the connection.
    pub async fn answer(self) -> Result<SessionAck, SendError> {
        self.answer.await.unwrap_or(Err(SendError::Over))
    }
}

impl Connection {
    /// Joins a session. After this, losing the connection is an event, not an error.
    pub async fn open(link: Link, options: Options) -> Result<(Self, Events), ConnectError> {
        let (announce, session) = identify(&link, &options).await?;
        let participant = announce.id.clone();
        let (orders, inbox) = mpsc::channel(ORDERS);
        let (events, outside) = mpsc::channel(EVENTS);
        let (first, joined) = oneshot::channel();
        let seat = task::Seat {
            link,
            session: session.clone(),
            announce,
            after: options.after,
            history: options.history,
        };
        tokio::spawn(task::live(seat, inbox, events, first));
        let welcomed = joined
            .await
            .unwrap_or_else(|_| Err(ConnectError::Lost("the connection's task ended".to_owned())));
        welcomed.map(|()| {
            let connection = Self {
                orders,
                participant,
                session,
            };
            (connection, Events(outside))
        })
    }

    /// Who we are here.
    pub fn participant(&self) -> &ParticipantId {
        &self.participant
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Sends a message; the receipt tells when the server has taken it.
    pub async fn send(&self, message: impl Into<ClientMessage>) -> Result<Receipt, SendError> {
        self.send_with(fresh_id(), None, message).await
    }

    /// Sends a message under an id of one's own, about another one.
    pub async fn send_with(
        &self,
        id: MessageId,
        reference: Option<MessageId>,
        message: impl Into<ClientMessage>,
    ) -> Result<Receipt, SendError> {
        let message = message.into();
        let kind = message.kind();
        let heading = Heading {
            id: id.clone(),
            session: self.session.clone(),
            sender: Sender::Participant(self.participant.clone()),
            reference,
            causal_refs: Vec::new(),
            fork: None,
        };
        let text = written(heading, message);
        self.send_text(id, kind, text).await
    }

    /// Sends and waits for the answer.
    pub async fn say(&self, message: impl Into<ClientMessage>) -> Result<SessionAck, SendError> {
        self.send(message).await?.answer().await
    }

    /// Sends a whole envelope, of which this is the id and the type, as text.
    pub async fn send_text(
        &self,
        id: MessageId,
        kind: &str,
        text: String,
    ) -> Result<Receipt, SendError> {
        let (reply, answer) = oneshot::channel();
        let outgoing = Outgoing {
            id: id.clone(),
            text,
            weight: Weight::of(kind),
            reply,
        };
        self.orders
            .send(outgoing)
            .await
            .map_err(|_| SendError::Over)?;
        Ok(Receipt { id, answer })
    }
}

/// This moment, as far as this machine knows.
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// An id that nobody has used.
pub fn fresh_id() -> MessageId {
    let mut entropy = [0; 10];
    getrandom::fill(&mut entropy).expect("the kernel's random source always answers");
    MessageId::new_v7(now(), entropy)
}

fn written<M: WireMessage>(heading: Heading, message: M) -> String {
    let envelope = Envelope {
        heading,
        at: now(),
        seq: None,
        message,
    };
    String::from_utf8(envelope.to_json()).expect("JSON is UTF-8")
}

/// Finds out whom the link's token stands for, and which session it is about.
async fn identify(link: &Link, options: &Options) -> Result<(Announce, SessionId), ConnectError> {
    let mut announce = Announce {
        id: ParticipantId::parse("nobody").expect("a plain word"),
        name: String::new(),
        kind: options.kind.unwrap_or(ParticipantKind::Human),
        roles: options.roles.clone().unwrap_or_default(),
        capabilities: None,
        transport: Transport::Websocket,
        metadata: options.metadata.clone(),
        executor: options.executor.clone(),
        extra: ExtraFields::new(),
    };
    let mut bound = None;
    if link.token().is_some() {
        let api = Api::new(link.clone());
        let me = tokio::task::spawn_blocking(move || api.me())
            .await
            .map_err(|panic| ConnectError::Lost(panic.to_string()))??;
        announce.id = me.participant;
        announce.name = me.name;
        announce.kind = me.kind;
        if options.roles.is_none() {
            announce.roles = me.roles.into_iter().collect();
        }
        bound = me.session;
    } else {
        announce.id = options.participant.clone().ok_or(ConnectError::Nobody)?;
        announce.name = announce.id.to_string();
    }
    let session = options.session.clone().or_else(|| link.session().cloned());
    let session = session.or(bound).ok_or(ConnectError::NoSession)?;
    Ok((announce, session))
}

/// What a welcome says about how the server listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) heartbeat_seconds: u64,
    pub(crate) message_bytes: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            heartbeat_seconds: 10,
            message_bytes: 1024 * 1024,
        }
    }
}

impl From<&SessionWelcome> for Terms {
    fn from(welcome: &SessionWelcome) -> Self {
        Self {
            heartbeat_seconds: u64::from(welcome.config.heartbeat_interval_seconds),
            message_bytes: welcome.limits.message_bytes,
        }
    }
}
