//! A join that the caller has written, which is sent as it is.

use std::fmt;

use pvp_protocol::payload::{Announce, SessionJoin};
use pvp_protocol::{ClientMessage, Limits, MessageId, Refusal, SessionId, parse_client_message};

/// A `session.join` in the caller's own words. The first socket sends it unchanged; a later one
/// sends it with another id, and resumes.
#[derive(Clone)]
pub struct OwnJoin {
    id: MessageId,
    session: SessionId,
    join: SessionJoin,
    text: String,
}

impl OwnJoin {
    /// Reads the envelope of a `session.join`.
    pub fn parse(text: String) -> Result<Self, Refusal> {
        let parsed = parse_client_message(&text, &Limits::default());
        let (header, message) = parsed.map_err(|error| error.refusal)?;
        let ClientMessage::SessionJoin(join) = message else {
            let problem = "not a `session.join`".to_owned();
            return Err(Refusal::Malformed(problem));
        };
        Ok(Self {
            id: header.id,
            session: header.session,
            join,
            text,
        })
    }

    /// Who joins.
    pub fn announce(&self) -> &Announce {
        &self.join.participant
    }

    /// The session that it joins.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The token in the message, if it brings one.
    pub fn token(&self) -> Option<&str> {
        self.join.token.as_deref()
    }

    pub(crate) fn id(&self) -> &MessageId {
        &self.id
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn after(&self) -> Option<u64> {
        self.join.after
    }

    pub(crate) fn history(&self) -> Option<u64> {
        self.join.history
    }

    /// The payload to join with again.
    pub(crate) fn payload(&self) -> SessionJoin {
        self.join.clone()
    }
}

/// Without the token.
impl fmt::Debug for OwnJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnJoin")
            .field("id", &self.id)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
