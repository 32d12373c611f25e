//! `pvp agent` in real sessions: what it proposes, runs, sends and receives.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod acp;
mod acp_editor;
mod background;
mod binary_output;
mod claude_control;
mod codex;
mod commit_decisions;
mod executor_alone;
mod file_tools;
mod fixture;
mod git;
mod hooks;
mod installed_hooks;
mod interactive;
mod interrupts;
mod limits;
mod lying_server;
mod mcp;
mod model;
mod other_clients;
mod proposer;
mod provider_errors;
mod read_roots;
mod script;
mod secrets;
mod shell_exec;
mod trials;

use support::session::{approve, next_gate, next_result, reject, start_session};
