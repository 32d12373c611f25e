//! The client's view of a session, folded from what one participant receives.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod agreement;
mod arbitrary_messages;
mod support;
mod tool_calls;
mod transcripts;
