//! The PVP server: HTTP and WebSocket through axum, one task per session, and a durable log.

pub mod config;
pub mod invite;
pub mod join;
pub mod socket;
pub mod store;
pub mod token;

mod addresses;
mod admission;
mod anchoring;
mod connection;
mod connection_stream;
mod decisions;
mod delivery;
mod device_codes;
mod directory;
mod envelope;
mod feed;
mod http;
mod live_tokens;
mod long_text;
mod metrics;
mod network_stream;
mod notifier;
mod origin;
mod output;
mod reply_queue;
mod roster;
mod secrets;
mod serve;
mod session_workspace;
mod task;
mod tls;
mod token_uses;

mod viewer;

pub use serve::{FileReloader, Server};
