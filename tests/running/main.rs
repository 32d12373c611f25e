//! Real commands, run, streamed, bounded and ended with everything that they started.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod ahead;
mod beginning;
mod ending;
mod executor;
mod output;
mod place;
mod terminal;
