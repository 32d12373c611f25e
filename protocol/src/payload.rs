//! The payload type of each message.

mod agent;
mod context;
mod gate;
mod participants;
mod server;
mod session;
mod tool;

pub use agent::*;
pub use context::*;
pub use gate::*;
pub use participants::*;
pub use server::*;
pub use session::*;
pub use tool::*;
