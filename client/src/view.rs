//! What a person sees of a session, folded from the messages they are told.

/// What a person sees.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct View {}
