//! The PVP server: HTTP and WebSocket through axum, one task per session, and a durable log.

pub mod config;
pub mod invite;
pub mod socket;
pub mod store;
pub mod token;

mod connection;
mod delivery;
mod directory;
mod envelope;
mod feed;
mod http;
mod metrics;
mod origin;
mod output;
mod reply_queue;
mod secrets;
mod serve;
mod task;
mod viewer;

pub use serve::{PolicyReloader, Server};
