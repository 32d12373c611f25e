//! The terminal screen as a person uses it: the real `pvp tui` in a real pseudo-terminal, against
//! real servers and agents.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod client_terminal;
mod deciding;
mod fixture;
mod input_history;
mod old_agent;
mod own_commands;
mod plain_mode;
mod prompts;
mod streaming;
mod suspending;
mod terminal;
mod two_people;
