//! `pvp agent` in real sessions: what it proposes, runs, tells and hears.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod background;
mod binary;
mod git;
mod interactive;
mod interrupts;
mod limits;
mod model;
mod own;
mod scene;
mod script;
mod secrets;
mod trouble;

use kit::room::{approve, gate, reject, result, room};
