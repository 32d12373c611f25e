//! The participant's side of a PVP session: a connection to the server, and a pure view of the
//! session that any user interface can draw.

pub mod api;
pub mod connection;
pub mod link;
pub mod narrate;
pub mod record;
pub mod shell_result;
pub mod user_directories;
pub mod view;

mod actions;
mod outbox;
mod tls;

pub use api::{ApiClient, ApiError};
pub use connection::{
    ConnectError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason,
    OwnJoin, Receipt, RecordCheck, SendError,
};
pub use link::{Link, LinkError};
pub use pvp_clock::{fresh_id, now};
pub use record::{RecordMemory, RecordWarning};
pub use shell_result::{ShellResult, ShellResultQueue};
pub use view::View;
