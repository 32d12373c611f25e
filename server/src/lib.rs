//! The PVP server.
