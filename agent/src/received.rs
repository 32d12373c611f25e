//! What arrives from a session, as everything that folds a view needs it.

use pvp_client::{ConnectionEvent, ConnectionEvents, EndReason};
use pvp_protocol::Envelope;

/// One thing that arrived.
pub(crate) enum Received {
    Message(Box<Envelope>),
    /// The next messages do not follow the ones before, so the view starts empty.
    NotResumed,
    /// The session is over for this participant; holds why, unless it left.
    Over(Option<String>),
}

/// The next thing that arrives. Cancel safe: dropping the future loses nothing.
pub(crate) async fn next_received(events: &mut ConnectionEvents) -> Received {
    loop {
        return match events.next().await {
            Some(ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            }) => Received::Message(envelope),
            Some(ConnectionEvent::Connected { resumed: false }) => Received::NotResumed,
            Some(
                ConnectionEvent::Connected { resumed: true }
                | ConnectionEvent::Disconnected { .. }
                | ConnectionEvent::Message { envelope: None, .. },
            ) => continue,
            Some(ConnectionEvent::Ended(EndReason::Refused(report))) => {
                let why = report.message;
                Received::Over(Some(format!(
                    "the server no longer lets this agent in: {why}"
                )))
            }
            Some(ConnectionEvent::Ended(EndReason::RecordChanged(warning))) => {
                Received::Over(Some(warning.to_string()))
            }
            Some(ConnectionEvent::RecordWarning(warning)) => {
                tracing::warn!("{warning}");
                continue;
            }
            Some(ConnectionEvent::Ended(EndReason::Closed | EndReason::Left)) | None => {
                Received::Over(None)
            }
        };
    }
}
