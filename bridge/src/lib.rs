//! Agent clients that people already have, unmodified, under the gates of a session.
//!
//! A client's tool calls become proposals, the votes and the reason go back to it, and what happened
//! is in the record. [`translation`] says what a client's call is in the words of this protocol,
//! [`supervisor`] has it decided, and one module for each protocol that clients speak stands
//! between the two.

pub mod acp;
pub mod bound_call;
mod claimed_text;
pub mod claude_control;
pub mod client_files;
pub mod client_processes;
pub mod codex;
pub mod doctor;
pub mod headless;
pub mod hooks;
pub mod install;
pub mod json_lines;
pub mod json_text;
pub mod keeper;
pub mod launch;
mod leases;
pub mod mcp;
mod patched_files;
pub mod reach;
pub mod supervisor;
pub mod translation;
