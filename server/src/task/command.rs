//! The commands that the rest of the server sends to a session's task, with their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_protocol::payload::{Announce, ContextAdd, PresenceStatus, SessionCreate, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantId, Refusal};
use pvp_session::{Answer, HistoryFilter, Identity, Session, SubmittedMessage};
use tokio::sync::oneshot;

use crate::admission::{Charge, Speaker};
use crate::feed::SessionFeed;
use crate::live_tokens::EndedToken;
use crate::reply_queue::{ConnectionReply, ReplyQueue};
use crate::roster::RosterForJoiner;
use crate::secrets::SecretStore;
use crate::store::{LogHead, Tombstone};
use crate::viewer::{DeviceGuard, Viewer};

/// A request to change the session, which the session accepts or refuses.
pub(crate) enum SessionRequest {
    /// `token`: the id of the token that makes it; `None` on a server without login.
    Create {
        by: ParticipantId,
        token: Option<String>,
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
        by: Speaker,
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
    /// A request waits for this proposal, so its client is there.
    RenewLease(MessageId),
    /// An HTTP request wants access to the session.
    HttpAccess(Option<ParticipantId>, oneshot::Sender<Option<HttpAccess>>),
    /// A token of a participant was revoked or has expired.
    TokenEnded(Box<EndedToken>),
    /// A query on the current state of the session.
    Query(SessionQuery),
    /// An admin deletes the session.
    Delete(DeletionRequest, oneshot::Sender<Result<Tombstone, Refusal>>),
    /// The server is shutting down.
    Stop,
}

/// Who deletes a session.
pub(crate) struct DeletionRequest {
    /// A participant's id, or what the store calls retention.
    pub(crate) by: String,
    /// Where its log must end; `None` if that does not matter.
    pub(crate) head: Option<LogHead>,
}

/// What a connection needs to follow a session.
pub(crate) struct JoinedSession {
    /// Counts this connection as one of the participant's devices.
    pub(crate) device: DeviceGuard,
    /// Where the connection reads new entries.
    pub(crate) feed: Arc<SessionFeed>,
    /// The values of the session's secrets, for the executor's copies of grants.
    pub(crate) secrets: Arc<SecretStore>,
    /// The message that answers the join, without people.
    pub(crate) welcome: SessionWelcome,
    /// The people of the welcome, and how the others announced themselves.
    pub(crate) roster: RosterForJoiner,
    /// The session's working directory, shared as context; `None` if none was shared.
    pub(crate) working_directory: Option<ContextAdd>,
    /// What the history leaves out for an agent that would act on it again; `None` for others.
    pub(crate) history_filter: Option<HistoryFilter>,
    /// The first sequence number that is not history: that of the participant's own announcement,
    /// or of the next entry.
    pub(crate) live_from_seq: u64,
    /// The sequence number of the entry that the join made; `None` if it made none.
    pub(crate) accepted_seq: Option<u64>,
    /// The number of the last ephemeral message that the roster takes into account.
    pub(crate) last_ephemeral: u64,
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
    /// The queue of a connection, the id of its message, and whether that has been charged.
    Queue(Arc<ReplyQueue>, MessageId, Charge),
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
            ReplyTo::Queue(reply_queue, id, charge) => {
                reply_queue.push(ConnectionReply { id, answer }, charge);
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
            SessionCommand::Delete(_, answer) => {
                // The caller may have stopped waiting.
                let _ = answer.send(Err(refusal));
            }
            // When the log is readable again, the store says which tokens have ended.
            SessionCommand::TokenEnded(_)
            | SessionCommand::ParticipantReturned(_)
            | SessionCommand::ConnectionClosed
            | SessionCommand::RenewLease(_)
            | SessionCommand::HttpAccess(..)
            | SessionCommand::Query(_)
            | SessionCommand::Stop => {}
        }
    }
}
