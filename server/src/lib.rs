//! The PVP server: axum at the edge, one task a session, a durable log behind them.

pub mod clock;
pub mod config;
pub mod invite;
pub mod socket;
pub mod store;
pub mod token;

mod connection;
mod envelope;
mod feed;
mod house;
mod http;
mod metrics;
mod origin;
mod outbox;
mod output;
mod serve;
mod task;
mod told;
mod vault;
mod viewer;

pub use serve::{Reloader, Server};
