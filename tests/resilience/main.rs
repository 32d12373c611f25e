//! What crashes and cuts do to commands that run: nothing is lost, nothing runs twice, and nothing
//! is waited for in vain.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod agent_killed;
mod line_cut;
