//! The messages of the protocol: examples of each, and the generated schema and TypeScript.

mod examples;
#[cfg(feature = "generate")]
mod generated;
mod golden;
#[cfg(feature = "generate")]
mod schema;
