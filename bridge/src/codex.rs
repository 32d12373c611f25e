//! Codex under supervision, in the protocol of its app-server.
//!
//! A [`CodexBridge`] stands between `codex app-server` and whoever speaks to it: Codex's own screen
//! ([`screen`]), or people without it ([`headless`]). It makes Codex ask about every call
//! ([`methods`], [`rules`]), has what is asked decided by the session ([`calls`]), and answers.

mod app_server;
mod bridge;
pub mod calls;
#[cfg(test)]
mod captured;
mod decide;
pub mod headless;
pub mod methods;
pub mod person;
pub mod rules;
pub mod screen;
mod threads;
pub mod wire;

pub use app_server::{AppServer, AppServerCommand};
pub use bridge::{BridgeEnd, CodexBridge};

/// The client's name in the record.
pub const CLIENT: &str = "codex";

/// Features of Codex that are switched off, because what they do asks nobody.
pub const FEATURES_OFF: [&str; 9] = [
    // Typing into a shell that is running would run commands that nobody has seen.
    "unified_exec_tty",
    // A hook may answer what people are asked.
    "hooks",
    // Their tools run unasked if they say of themselves that they only read.
    "apps",
    "plugins",
    // It reads files by itself.
    "view_image",
    // It works on what was said in the background.
    "memories",
    // Older names of the ones above, which a user's settings may still use.
    "codex_hooks",
    "connectors",
    "memory_tool",
];

/// Features of Codex that are switched on, because without them it asks nobody.
pub const FEATURES_ON: [&str; 2] = ["tool_call_mcp_elicitation", "write_stdin_approval"];
