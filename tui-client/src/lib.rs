//! The terminal screen of a PVP session.
