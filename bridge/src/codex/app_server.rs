//! The process `codex app-server`, spoken to over its standard input and output, so that nobody else
//! on the machine reaches it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::wire::{MAX_MESSAGE_BYTES, Message};
use super::{FEATURES_OFF, FEATURES_ON};

/// Messages that may wait to be written. At more than this the app-server is not reading.
const MAX_UNWRITTEN: usize = 4096;

/// Messages that may wait to be looked at.
const MAX_UNREAD: usize = 64;

/// How the app-server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppServerCommand {
    pub program: OsString,
    /// Settings of the user that it takes: `-c key=value`, `--enable` and `--disable`.
    pub settings: Vec<OsString>,
    pub directory: PathBuf,
    /// Variables that are removed.
    pub without_variables: Vec<String>,
}

/// A running app-server; killed when dropped.
pub struct AppServer {
    child: Child,
    writer: mpsc::Sender<Value>,
    messages: mpsc::Receiver<Message>,
}

impl AppServer {
    pub fn start(command: &AppServerCommand) -> io::Result<Self> {
        let mut process = Command::new(&command.program);
        process.args(&command.settings);
        for feature in FEATURES_OFF {
            process.arg("-c").arg(format!("features.{feature}=false"));
        }
        for feature in FEATURES_ON {
            process.arg("-c").arg(format!("features.{feature}=true"));
        }
        process.arg("app-server");
        for name in &command.without_variables {
            process.env_remove(name);
        }
        process
            .current_dir(&command.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        // What a person types to interrupt is for the screen.
        process.process_group(0);
        let mut child = process.spawn()?;
        let missing = || io::Error::other("the app-server has no standard input or output");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let (writer, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        let (reader, messages) = mpsc::channel(MAX_UNREAD);
        tokio::spawn(write(stdin, unwritten));
        tokio::spawn(read(stdout, reader));
        Ok(Self {
            child,
            writer,
            messages,
        })
    }

    /// The id of the process.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The next message; `None` when it has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Sends a message; false if it cannot take it.
    #[must_use]
    pub fn send(&self, message: Value) -> bool {
        self.writer.try_send(message).is_ok()
    }

    /// Ends it at once, with what it started in its group: the program may be a script that starts
    /// the real one.
    pub fn kill(&mut self) {
        let group = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let killed = group.map(|group| kill_process_group(group, Signal::KILL));
        if let Some(Err(error)) = killed {
            tracing::debug!(%error, "the app-server has ended already");
        }
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn write(mut stdin: ChildStdin, mut unwritten: mpsc::Receiver<Value>) {
    while let Some(message) = unwritten.recv().await {
        let mut line = message.to_string();
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, messages: mpsc::Sender<Message>) {
    let mut lines = BufReader::new(stdout);
    while let Some(line) = next_line(&mut lines).await {
        match Message::parse(&line) {
            Some(message) => {
                if messages.send(message).await.is_err() {
                    return;
                }
            }
            None => tracing::warn!("the app-server said something that is no message"),
        }
    }
}

/// The next line; `None` at the end, and after a line that is too long or no text.
async fn next_line(lines: &mut BufReader<impl AsyncRead + Unpin>) -> Option<String> {
    let mut line = Vec::new();
    let limit = MAX_MESSAGE_BYTES as u64 + 1;
    let read = lines.take(limit).read_until(b'\n', &mut line).await;
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) if line.len() > MAX_MESSAGE_BYTES => {
            tracing::error!("the app-server said more than {MAX_MESSAGE_BYTES} bytes in a line");
            None
        }
        Ok(_) => String::from_utf8(line).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_it() {
        let long = vec![b'x'; MAX_MESSAGE_BYTES + 2];
        let input = [b"{}\n".as_slice(), &long].concat();
        let mut lines = BufReader::new(input.as_slice());
        assert_eq!(next_line(&mut lines).await.as_deref(), Some("{}\n"));
        assert_eq!(next_line(&mut lines).await, None);
    }
}
