//! The PVP server.

pub mod socket;
pub mod store;
