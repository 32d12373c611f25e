//! What the rest of the server may ask of a session's task, and how it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_protocol::payload::{Announce, ContextAdd, PresenceStatus, SessionCreate, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantId, Refusal};
use pvp_session::{Answer, Identity, Session, Submitted};
use tokio::sync::oneshot;

use crate::feed::Feed;
use crate::outbox::{Outbox, Reply, Verdict};
use crate::vault::Vault;
use crate::viewer::{Device, Viewer};

/// Something that changes the session, if it may be.
pub(crate) enum Wish {
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
        found: Option<Box<SessionCreate>>,
    },
    Say {
        by: ParticipantId,
        said: Submitted,
    },
}

/// Looks at a session and at who is there. What was seen may rest on entries that are still being
/// written, so it is released when they are durable; dropped, it was refused.
pub(crate) type Question = Box<dyn FnOnce(&Session, &Presence) -> Release + Send>;

/// Gives an answer to the one who asked.
pub(crate) type Release = Box<dyn FnOnce() + Send>;

/// Who is there, as last told.
pub(crate) type Presence = BTreeMap<ParticipantId, PresenceStatus>;

pub(crate) enum Order {
    Wish(Box<Wish>, ReplyTo),
    /// Someone who had gone quiet was heard of.
    Heard(ParticipantId),
    /// A device of someone's is gone.
    Disconnected,
    /// Someone looks in without a connection of their own.
    Visit(Option<ParticipantId>, oneshot::Sender<Option<Visit>>),
    /// A question about the session as it is.
    Ask(Question),
    /// The server is shutting down.
    Stop,
}

/// What a connection needs to follow a session.
pub(crate) struct Joined {
    pub(crate) device: Device,
    pub(crate) feed: Arc<Feed>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) welcome: SessionWelcome,
    /// The people who were there before.
    pub(crate) others: Vec<Announce>,
    pub(crate) working_directory: Option<ContextAdd>,
    /// The first seq that is not history: the newcomer's own announcement, or what comes next.
    pub(crate) present: u64,
    pub(crate) seq: Option<u64>,
}

/// What someone needs who reads a session over HTTP.
pub(crate) struct Visit {
    /// `None` where nobody has to say who they are.
    pub(crate) viewer: Option<Arc<Viewer>>,
    /// Keeps them present, if they have joined.
    pub(crate) device: Option<Device>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) vault: Arc<Vault>,
}

/// Where an answer goes.
pub(crate) enum ReplyTo {
    Outbox(Arc<Outbox>, MessageId),
    Once(oneshot::Sender<Result<Answer, Refusal>>),
    Seat(
        oneshot::Sender<Result<Box<Joined>, Refusal>>,
        Option<Box<Joined>>,
    ),
}

impl ReplyTo {
    pub(crate) fn refuse(self, refusal: Refusal) {
        self.answer(Answer::Refused(refusal));
    }

    /// Who asked may have gone; then nobody needs the answer.
    pub(crate) fn answer(self, answer: Answer) {
        match self {
            ReplyTo::Outbox(outbox, id) => {
                outbox.put(Reply {
                    id,
                    verdict: Verdict::from(answer),
                });
            }
            ReplyTo::Once(sender) => {
                let _ = sender.send(match answer {
                    Answer::Refused(refusal) => Err(refusal),
                    Answer::Accepted(_) | Answer::Duplicate(_) => Ok(answer),
                });
            }
            ReplyTo::Seat(sender, joined) => {
                let _ = sender.send(match (answer, joined) {
                    (Answer::Refused(refusal), _) => Err(refusal),
                    (Answer::Accepted(_) | Answer::Duplicate(_), Some(joined)) => Ok(joined),
                    (Answer::Accepted(_) | Answer::Duplicate(_), None) => Err(Refusal::NotJoined),
                });
            }
        }
    }
}

impl Order {
    pub(crate) fn refuse(self, refusal: Refusal) {
        match self {
            Order::Wish(_, reply) => reply.refuse(refusal),
            Order::Heard(_)
            | Order::Disconnected
            | Order::Visit(..)
            | Order::Ask(_)
            | Order::Stop => {}
        }
    }
}
