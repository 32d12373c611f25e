//! A participant's side of a PVP session: the connection, and the pure view that any screen folds.

pub mod api;
pub mod connection;
pub mod link;
pub mod shell_result;
pub mod view;

mod actions;
mod outbox;

pub use api::{ApiClient, ApiError};
pub use connection::{
    ConnectError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason,
    Receipt, SendError,
};
pub use link::{Link, LinkError};
pub use pvp_clock::{fresh_id, now};
pub use shell_result::{ShellResult, ShellResultQueue};
pub use view::View;
