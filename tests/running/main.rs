//! Real commands, run, streamed, bounded and ended with everything that they started.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod cleanup;
mod executor_process;
mod fixture;
mod output;
mod prestarted_reaper;
mod pty;
mod starting;
