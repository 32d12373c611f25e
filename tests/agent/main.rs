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
mod acp_attacks;
mod acp_editor;
mod background;
mod binary_output;
mod claude_control;
mod codex;
mod codex_attacks;
mod codex_hooks;
mod codex_screen;
mod commit_decisions;
mod executor_alone;
mod file_tools;
mod fixture;
mod git;
mod hook_attacks;
mod hooks;
mod installed_hooks;
mod interactive;
mod interrupts;
mod limits;
mod lying_server;
mod mcp;
mod model;
mod opencode_notice;
mod opencode_plugin;
mod other_clients;
mod proposer;
mod provider_errors;
mod read_roots;
mod run_from_nothing;
mod script;
mod secrets;
mod shell_exec;
mod trials;

use support::session::{approve, next_gate, next_result, reject, start_session};
