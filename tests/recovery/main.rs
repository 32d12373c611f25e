//! Crashes, lost connections and disk faults: nothing is lost, no command runs twice, and nothing
//! waits forever.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod agent_killed;
mod connection_lost;
mod disk_faults;
mod earlier_log;
mod expired_grants;
mod random_kills;
mod server_killed;
mod session_ends;
