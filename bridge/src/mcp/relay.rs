//! Serves MCP to programs that a supervised client starts, over a socket that only its user reaches.
//!
//! The client starts a program and speaks MCP with it. That program passes everything on to the one
//! process that is the agent in the session, so that one identity never has two connections.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use pvp_agent::agent::Agent;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::{McpOptions, serve_streams};

/// The name of the socket in the directory of a client's files.
const SOCKET: &str = "mcp.sock";

/// Programs that are served at a time; a client starts one, and its subagents may start more.
const MAX_CONNECTIONS: usize = 16;

/// The socket that a client's programs are served on.
pub struct RelayListener {
    listener: UnixListener,
}

impl RelayListener {
    /// Opens the socket in a private directory; an old one is replaced.
    pub fn bind(directory: &Path) -> io::Result<Self> {
        let reached = ShortPath::open(directory)?;
        let path = reached.path();
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path)?;
        Ok(Self { listener })
    }

    /// Serves with an agent's tools until this is dropped. What a program that leaves has proposed
    /// is withdrawn.
    pub async fn serve(self, agent: Arc<Agent>, options: McpOptions) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(serve_one(agent.clone(), options.clone(), stream));
                        }
                        Err(error) => tracing::warn!(%error, "a client was not served"),
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn serve_one(agent: Arc<Agent>, options: McpOptions, stream: UnixStream) {
    let (input, output) = stream.into_split();
    if let Err(error) = serve_streams(agent, options, input, output).await {
        tracing::warn!(%error, "serving a client ended");
    }
}

/// Passes standard input and output on to the socket in a directory, until either side ends.
pub async fn relay_stdio(directory: &Path) -> anyhow::Result<()> {
    let away = "the session of this client is over; start the client again with `pvp run`";
    let reached = ShortPath::open(directory).context(away)?;
    let stream = UnixStream::connect(reached.path()).await.context(away)?;
    let (mut from_agent, mut to_agent) = stream.into_split();
    let (mut input, mut output) = rmcp::transport::stdio_pipes();
    tokio::select! {
        copied = tokio::io::copy(&mut input, &mut to_agent) => {
            copied.context("reading from the client")?;
            // Closing its side ends what it still waits for.
            to_agent.shutdown().await.ok();
        }
        copied = tokio::io::copy(&mut from_agent, &mut output) => {
            copied.context("writing to the client")?;
        }
    }
    output.flush().await.ok();
    Ok(())
}

/// A way to a socket whose path may be longer than the address of a socket.
struct ShortPath {
    directory: std::fs::File,
}

impl ShortPath {
    fn open(directory: &Path) -> io::Result<Self> {
        let directory = std::fs::File::open(directory)?;
        Ok(Self { directory })
    }

    fn path(&self) -> PathBuf {
        let descriptor = self.directory.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{descriptor}/{SOCKET}"))
    }
}
