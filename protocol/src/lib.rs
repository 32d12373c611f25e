//! What may be said in a PVP session.

mod id;
mod time;

pub use id::{ForkId, IdError, MAX_ID_LENGTH, MessageId, ParticipantId, SessionId};
pub use time::{Timestamp, TimestampError};
