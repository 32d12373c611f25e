//! What attackers tried, with the source open: each test is named after what they wanted, and looks
//! at what the others and the log then show.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod allow_rules;
mod capacity;
mod changed_files;
mod clock;
mod credentials;
mod false_people;
mod hidden_environment;
mod lying_server;
mod ordinary_user;
mod rewritten_record;
mod secrets_through_reads;
mod stolen_tokens;
mod wider_rights;
