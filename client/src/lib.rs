//! A participant's side of a PVP session: the connection, and the pure view that any screen folds.

pub mod api;
pub mod connection;
pub mod link;
pub mod shell_result;
pub mod view;

mod acts;
mod backoff;
mod outbox;

pub use api::{Api, ApiError};
pub use connection::{
    ConnectError, Connection, Ending, Event, Events, Options, Receipt, SendError, fresh_id, now,
};
pub use link::{Link, LinkError};
pub use shell_result::{ShellResult, ShellResults};
pub use view::View;
