//! Reads the session's log as it grows.

use std::time::Duration;

use pvp_client::{ApiClient, Link};
use pvp_protocol::{Envelope, Limits, SessionId, parse_server_message};
use tokio::sync::mpsc;

/// How long one request waits for a new entry.
const LONG_POLL: Duration = Duration::from_secs(20);

/// Entries of one request.
const PAGE_SIZE: u64 = 100;

/// Sends every entry of the log that the link may read. The channel closes when the server stops.
pub(super) fn watch(link: Link, session: SessionId) -> mpsc::Receiver<Box<Envelope>> {
    let (sender, receiver) = mpsc::channel(256);
    // A thread that nobody waits for: a request may still be under way when the program ends.
    std::thread::spawn(move || {
        let api = ApiClient::new(link);
        let mut after = 0;
        while let Ok(page) = api.messages(&session, after, PAGE_SIZE, LONG_POLL) {
            for message in page.messages {
                let text = serde_json::Value::Object(message).to_string();
                // A type that this version does not know is of no interest to the tour.
                if let Ok(Some(envelope)) = parse_server_message(&text, &Limits::default())
                    && sender.blocking_send(Box::new(envelope)).is_err()
                {
                    return;
                }
            }
            after = page.next;
        }
    });
    receiver
}
