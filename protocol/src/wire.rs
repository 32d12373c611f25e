//! How the wire types are written down: one macro for objects, one for words.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields this version does not know, kept so that a relayed message loses nothing.
pub type Extra = BTreeMap<String, Value>;

/// A JSON object whose keys are the business of whoever wrote it.
pub type JsonObject = serde_json::Map<String, Value>;

/// Objects: structs that are read from and written to JSON, with schema and TypeScript.
macro_rules! objects {
    ($($item:item)*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "generate", ts(optional_fields))]
        $item
    )*};
}

/// Words: enums whose variants are plain snake_case strings on the wire.
macro_rules! words {
    ($($item:item)*) => {$(
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[serde(rename_all = "snake_case")]
        $item
    )*};
}
