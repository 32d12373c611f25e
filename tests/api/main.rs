//! The HTTP API of a real server: every route, what it refuses, and that it is the same door as the
//! socket. Every answer is checked against the document that the server gives of itself.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod commands;
mod document;
mod door;
mod gates;
mod http;
mod limits;
mod numbers;
mod open;
mod reading;
mod refusals;
mod room;
mod sessions;
mod tokens;
mod votes;
mod waiting;
