//! Codex without a screen: people prompt it from the screens of PVP.

use std::io;

use tokio::sync::{mpsc, watch};

use super::app_server::{AppServer, AppServerCommand};
use super::bridge::{CodexBridge, ThreadSettings as Settings};
use crate::headless::HeadlessClient;
use crate::supervisor::Supervisor;

pub use super::bridge::ThreadSettings;

/// Instructions that may wait.
const MAX_INSTRUCTIONS: usize = 64;

/// What the agent says that may wait to be told.
pub const MAX_UNTOLD: usize = 1024;

/// Codex without a screen.
pub struct HeadlessCodex {
    pub client: HeadlessClient,
    /// Its last whole message.
    pub last_message: watch::Receiver<String>,
}

/// Starts Codex for [`crate::headless::drive`].
pub fn start_headless(
    supervisor: Supervisor,
    version: Option<String>,
    command: &AppServerCommand,
    settings: Settings,
) -> io::Result<HeadlessCodex> {
    let server = AppServer::start(command)?;
    let (instructions, instruction_receiver) = mpsc::channel(MAX_INSTRUCTIONS);
    let (spoken, events) = mpsc::channel(MAX_UNTOLD);
    let (bridge, call_events) = CodexBridge::new(supervisor, version, server, None, spoken);
    let last_message = bridge.last_message();
    tokio::spawn(async move {
        let end = bridge
            .run_headless(call_events, settings, instruction_receiver)
            .await;
        tracing::debug!(?end, "Codex has ended");
    });
    let client = HeadlessClient {
        instructions,
        events,
    };
    Ok(HeadlessCodex {
        client,
        last_message,
    })
}
