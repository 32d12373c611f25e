//! Commands as an executor runs them: started, bounded, sandboxed and ended.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod running;
mod sandbox;
mod skips;
