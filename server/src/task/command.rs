//! The commands that the rest of the server sends to a session's task, with their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_protocol::payload::{Announce, ContextAdd, PresenceStatus, SessionCreate, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantId, Refusal};
use pvp_session::{Answer, Identity, Session, SubmittedMessage};
use tokio::sync::oneshot;

use crate::feed::SessionFeed;
use crate::reply_queue::{ConnectionReply, ReplyQueue};
use crate::secrets::SecretStore;
use crate::viewer::{DeviceGuard, Viewer};

/// A request to change the session, which the session accepts or refuses.
pub(crate) enum SessionRequest {
    Create {
        by: ParticipantId,
        id: MessageId,
        create: SessionCreate,
    },
    /// `create_if_missing`: how to create a session that does not exist, on a server where anyone
    /// may create one.
    Join {
        identity: Identity,
        announce: Announce,
        id: MessageId,
        create_if_missing: Option<Box<SessionCreate>>,
    },
    Submit {
        by: ParticipantId,
        submitted: SubmittedMessage,
    },
}

/// Reads a session and who is present. The result may depend on entries that are still being
/// written, so the reply is deferred until they are durable. If it is dropped instead, the query
/// was refused.
pub(crate) type SessionQuery = Box<dyn FnOnce(&Session, &PresenceMap) -> DeferredReply + Send>;

/// Sends the result of a query to its caller.
pub(crate) type DeferredReply = Box<dyn FnOnce() + Send>;

/// Everyone's presence, as last published.
pub(crate) type PresenceMap = BTreeMap<ParticipantId, PresenceStatus>;

pub(crate) enum SessionCommand {
    Request(Box<SessionRequest>, ReplyTo),
    /// A participant who counted as inactive has sent a message.
    ParticipantReturned(ParticipantId),
    /// A connection to the session has closed.
    ConnectionClosed,
    /// An HTTP request wants access to the session.
    HttpAccess(Option<ParticipantId>, oneshot::Sender<Option<HttpAccess>>),
    /// A query on the current state of the session.
    Query(SessionQuery),
    /// The server is shutting down.
    Stop,
}

/// What a connection needs to follow a session.
pub(crate) struct JoinedSession {
    /// Counts this connection as one of the participant's devices.
    pub(crate) device: DeviceGuard,
    /// Where the connection reads new entries.
    pub(crate) feed: Arc<SessionFeed>,
    /// The values of the session's secrets, for the executor's copies of grants.
    pub(crate) secrets: Arc<SecretStore>,
    /// The message that answers the join.
    pub(crate) welcome: SessionWelcome,
    /// How the other participants announced themselves.
    pub(crate) other_announcements: Vec<Announce>,
    /// The session's working directory, shared as context; `None` if none was shared.
    pub(crate) working_directory: Option<ContextAdd>,
    /// The first sequence number that is not history: that of the participant's own announcement,
    /// or of the next entry.
    pub(crate) live_from_seq: u64,
    /// The sequence number of the entry that the join made; `None` if it made none.
    pub(crate) accepted_seq: Option<u64>,
}

/// What an HTTP request needs to read a session.
pub(crate) struct HttpAccess {
    /// The participant who reads; `None` for an anonymous reader on a server without login.
    pub(crate) viewer: Option<Arc<Viewer>>,
    /// Keeps the participant present, if they have joined.
    pub(crate) device: Option<DeviceGuard>,
    pub(crate) feed: Arc<SessionFeed>,
    pub(crate) secrets: Arc<SecretStore>,
}

/// Where an answer goes.
pub(crate) enum ReplyTo {
    Queue(Arc<ReplyQueue>, MessageId),
    Oneshot(oneshot::Sender<Result<Answer, Refusal>>),
    Join(
        oneshot::Sender<Result<Box<JoinedSession>, Refusal>>,
        Option<Box<JoinedSession>>,
    ),
}

impl ReplyTo {
    pub(crate) fn refuse(self, refusal: Refusal) {
        self.answer(Answer::Refused(refusal));
    }

    /// Sends the answer. A caller that has stopped waiting does not need it.
    pub(crate) fn answer(self, answer: Answer) {
        match self {
            ReplyTo::Queue(reply_queue, id) => {
                reply_queue.push(ConnectionReply { id, answer });
            }
            ReplyTo::Oneshot(sender) => {
                let _ = sender.send(match answer {
                    Answer::Refused(refusal) => Err(refusal),
                    Answer::Accepted(_) | Answer::Duplicate(_) => Ok(answer),
                });
            }
            ReplyTo::Join(sender, joined) => {
                let _ = sender.send(match (answer, joined) {
                    (Answer::Refused(refusal), _) => Err(refusal),
                    (Answer::Accepted(_) | Answer::Duplicate(_), Some(joined)) => Ok(joined),
                    (Answer::Accepted(_) | Answer::Duplicate(_), None) => Err(Refusal::NotJoined),
                });
            }
        }
    }
}

impl SessionCommand {
    pub(crate) fn refuse(self, refusal: Refusal) {
        match self {
            SessionCommand::Request(_, reply) => reply.refuse(refusal),
            SessionCommand::ParticipantReturned(_)
            | SessionCommand::ConnectionClosed
            | SessionCommand::HttpAccess(..)
            | SessionCommand::Query(_)
            | SessionCommand::Stop => {}
        }
    }
}
