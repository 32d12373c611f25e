//! The HTTP API of a real server: every route, what it refuses, and that it is the same door as the
//! socket. Every answer is checked against the document that the server gives of itself.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod fixture;
mod gates;
mod history;
mod http_and_socket;
mod http_client;
mod limits;
mod long_polling;
mod messages;
mod metrics;
mod open_mode;
mod openapi;
mod refusals;
mod sessions;
mod tokens;
mod votes;
