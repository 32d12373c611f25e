//! The pages of docs/ and the examples are in step with the program.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod api;
mod console;
mod examples;
mod newcomer;
mod pages;
mod tui;
