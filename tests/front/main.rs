//! The command line as a person uses it: the real `pvp` against real servers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod bad;
mod connect;
mod escapes;
mod gates;
mod login;
mod past;
mod sessions;
mod story;
mod talk;
mod tools;
mod up;
mod votes;
