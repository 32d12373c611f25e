//! Envelopes that the server makes outside the log: answers, welcomes, heartbeats.

use pvp_protocol::payload::{ErrorReport, HeartbeatPing, HeartbeatPong, SessionAck};
use pvp_protocol::{
    Envelope, ExtraFields, Heading, MessageId, Refusal, Sender, ServerMessage, SessionId,
};

use crate::clock;
use crate::outbox::{Reply, Verdict};

/// Something the server says that is not kept.
pub(crate) fn unkept(
    session: &SessionId,
    reference: Option<MessageId>,
    message: impl Into<ServerMessage>,
) -> Vec<u8> {
    unkept_by(session, Sender::System, reference, message)
}

/// Something someone said before, told again to a newcomer.
pub(crate) fn unkept_by(
    session: &SessionId,
    sender: Sender,
    reference: Option<MessageId>,
    message: impl Into<ServerMessage>,
) -> Vec<u8> {
    let heading = Heading {
        id: clock::fresh_id(),
        session: session.clone(),
        sender,
        reference,
        causal_refs: Vec::new(),
        fork: None,
    };
    Envelope {
        heading,
        at: clock::now(),
        seq: None,
        message: message.into(),
    }
    .to_json()
}

/// A refusal as the one who asked is told.
pub(crate) fn error(
    session: &SessionId,
    refusal: &Refusal,
    related_to: Option<MessageId>,
) -> Vec<u8> {
    let report = ErrorReport {
        code: refusal.code(),
        message: refusal.to_string(),
        recoverable: refusal.is_recoverable(),
        details: None,
        related_to: related_to.clone(),
        extra: ExtraFields::new(),
    };
    unkept(session, related_to, report)
}

/// The answer to a message.
pub(crate) fn reply(session: &SessionId, reply: Reply) -> Vec<u8> {
    let Reply { id, verdict } = reply;
    let (seq, duplicate) = match verdict {
        Verdict::Accepted(seq) => (seq, false),
        Verdict::Duplicate(seq) => (Some(seq), true),
        Verdict::Refused(refusal) => return error(session, &refusal, Some(id)),
    };
    unkept(session, Some(id.clone()), SessionAck { id, seq, duplicate })
}

/// The answer to a ping.
pub(crate) fn pong(session: &SessionId, ping: MessageId) -> Vec<u8> {
    unkept(session, Some(ping), HeartbeatPong::default())
}

/// The server's own ping.
pub(crate) fn ping(session: &SessionId) -> Vec<u8> {
    unkept(session, None, HeartbeatPing::default())
}
