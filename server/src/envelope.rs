//! Builds the envelopes that are not logged: answers, welcomes, heartbeats.

use std::sync::Arc;

use pvp_protocol::payload::{ErrorReport, HeartbeatPing, HeartbeatPong, SessionAck, SessionCreate};
use pvp_protocol::{
    Envelope, EnvelopeHeader, ExtraFields, MessageId, Refusal, Sender, ServerMessage, SessionId,
};

use pvp_session::Answer;

use crate::directory::SessionDirectory;
use crate::reply_queue::ConnectionReply;

/// A message from the server that is not logged.
pub(crate) fn ephemeral(
    session: &SessionId,
    reference: Option<MessageId>,
    message: impl Into<ServerMessage>,
) -> Vec<u8> {
    ephemeral_from(session, Sender::System, reference, message)
}

/// A message from `sender` that is not logged, such as an earlier announcement repeated to a
/// participant who has just joined.
pub(crate) fn ephemeral_from(
    session: &SessionId,
    sender: Sender,
    reference: Option<MessageId>,
    message: impl Into<ServerMessage>,
) -> Vec<u8> {
    let header = EnvelopeHeader {
        id: pvp_clock::fresh_id(),
        session: session.clone(),
        sender,
        reference,
        causal_refs: Vec::new(),
        fork: None,
    };
    Envelope {
        header,
        at: pvp_clock::now(),
        seq: None,
        message: message.into(),
    }
    .to_json()
}

/// A refusal, as the sender of the refused message receives it.
pub(crate) fn error_report(
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
    ephemeral(session, related_to, report)
}

/// The answer to a message.
pub(crate) fn reply(session: &SessionId, reply: ConnectionReply) -> Vec<u8> {
    let ConnectionReply { id, answer } = reply;
    let (seq, duplicate) = match answer {
        Answer::Accepted(seq) => (seq, false),
        Answer::Duplicate(seq) => (Some(seq), true),
        Answer::Refused(refusal) => return error_report(session, &refusal, Some(id)),
    };
    ephemeral(session, Some(id.clone()), SessionAck { id, seq, duplicate })
}

/// The answer to a ping.
pub(crate) fn pong(session: &SessionId, ping: MessageId) -> Vec<u8> {
    ephemeral(session, Some(ping), HeartbeatPong::default())
}

/// The server's own ping.
pub(crate) fn ping(session: &SessionId) -> Vec<u8> {
    ephemeral(session, None, HeartbeatPing::default())
}

/// What a session is, told to somebody who creates it; `None` if it cannot be read.
pub(crate) async fn creation(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    create: MessageId,
) -> Option<Vec<u8>> {
    let described = directory.query(session, |session| SessionCreate {
        name: session.name().map(str::to_owned),
        config: session.config().clone(),
        extra: ExtraFields::new(),
    });
    let described = described.await?;
    Some(ephemeral(session, Some(create), described))
}
