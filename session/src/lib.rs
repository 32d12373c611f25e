//! What happens next in a PVP session.
