//! The terminal screen as a person uses it: the real `pvp tui` in a real pseudo-terminal, against
//! real servers and agents.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod deciding;
mod lines;
mod manual;
mod remembering;
mod screen;
mod streaming;
mod suspending;
mod talking;
mod terminal;
