//! The command line as a person uses it: the real `pvp` against real servers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod cancel;
mod check;
mod completion;
mod connect;
mod connect_own_join;
mod demo_model;
mod doctor_client;
mod error_messages;
mod errors;
mod gates;
mod git;
mod handles;
mod help;
mod history;
mod hook_install;
mod hook_install_attacks;
mod hook_output;
mod key_rotation;
mod login;
mod mixed_approval;
mod notify;
mod open;
mod reviewed_text;
mod rules;
mod send_and_tail;
mod sessions;
mod sharing;
mod status;
mod terminal_escapes;
mod tokens;
mod tool_calls;
mod tools;
mod tour;
mod up_and_demo;
mod votes;
