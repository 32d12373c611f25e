//! The HTTP API of a real server: every route, its refusals, and that it behaves like the
//! WebSocket. Every response is checked against the server's OpenAPI document.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod chain;
mod decisions;
mod devices;
mod fixture;
mod gates;
mod history;
mod http_and_socket;
mod http_client;
mod limits;
mod long_polling;
mod message_cost;
mod messages;
mod metrics;
mod notifications;
mod open_mode;
mod openapi;
mod page;
mod proposals;
mod published_binding;
mod refusal_case;
mod refusals;
mod sessions;
mod tokens;
mod votes;
