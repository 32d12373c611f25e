//! A real `pvp server` and its WebSocket protocol, end to end.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod acme;
mod answer_order;
mod auth;
mod client_connection;
mod delivery;
mod idle_connections;
mod limits;
mod open_mode;
mod published_clients;
mod refusals;
mod shared_session;
mod tls;
mod visibility;
mod workspaces;
