//! What the rest of the server may ask of a session's task, and how it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_protocol::payload::{Announce, ContextAdd, PresenceStatus, SessionCreate, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantId, Refusal};
use pvp_session::{Answer, Identity, Session, Submitted};
use tokio::sync::oneshot;

use crate::feed::SessionFeed;
use crate::reply_queue::{ConnectionReply, ReplyQueue, ReplyStatus};
use crate::secrets::SecretStore;
use crate::viewer::{DeviceGuard, Viewer};

/// Something that changes the session, if it may be.
pub(crate) enum SessionRequest {
    Create {
        by: ParticipantId,
        id: MessageId,
        create: SessionCreate,
    },
    /// `found`: what to make of a session that does not exist, where anyone may make one.
    Join {
        identity: Identity,
        announce: Announce,
        id: MessageId,
        create_if_missing: Option<Box<SessionCreate>>,
    },
    Submit {
        by: ParticipantId,
        submitted: Submitted,
    },
}

/// Looks at a session and at who is there. What was seen may rest on entries that are still being
/// written, so it is released when they are durable; dropped, it was refused.
pub(crate) type SessionQuery = Box<dyn FnOnce(&Session, &PresenceMap) -> DeferredReply + Send>;

/// Gives an answer to the one who asked.
pub(crate) type DeferredReply = Box<dyn FnOnce() + Send>;

/// Who is there, as last told.
pub(crate) type PresenceMap = BTreeMap<ParticipantId, PresenceStatus>;

pub(crate) enum SessionCommand {
    Request(Box<SessionRequest>, ReplyTo),
    /// Someone who had gone quiet was heard of.
    ParticipantReturned(ParticipantId),
    /// A device of someone's is gone.
    ConnectionClosed,
    /// Someone looks in without a connection of their own.
    HttpAccess(Option<ParticipantId>, oneshot::Sender<Option<HttpAccess>>),
    /// A question about the session as it is.
    Query(SessionQuery),
    /// The server is shutting down.
    Stop,
}

/// What a connection needs to follow a session.
pub(crate) struct JoinedSession {
    pub(crate) device: DeviceGuard,
    pub(crate) feed: Arc<SessionFeed>,
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) welcome: SessionWelcome,
    /// The people who were there before.
    pub(crate) other_announcements: Vec<Announce>,
    pub(crate) working_directory: Option<ContextAdd>,
    /// The first seq that is not history: the newcomer's own announcement, or what comes next.
    pub(crate) live_from_seq: u64,
    pub(crate) accepted_seq: Option<u64>,
}

/// What someone needs who reads a session over HTTP.
pub(crate) struct HttpAccess {
    /// `None` where nobody has to say who they are.
    pub(crate) viewer: Option<Arc<Viewer>>,
    /// Keeps them present, if they have joined.
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

    /// Who asked may have gone; then nobody needs the answer.
    pub(crate) fn answer(self, answer: Answer) {
        match self {
            ReplyTo::Queue(reply_queue, id) => {
                reply_queue.push(ConnectionReply {
                    id,
                    status: ReplyStatus::from(answer),
                });
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
