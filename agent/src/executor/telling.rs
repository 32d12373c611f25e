//! Telling everyone what a command prints and how it ended.

use std::collections::VecDeque;
use std::path::PathBuf;

use pvp_client::{Connection, Receipt, SendError};
use pvp_protocol::payload::{Outcome, ResultBody, Stream, ToolOutput, ToolResult};
use pvp_protocol::{ClientMessage, ExecutionLimits, Extra, MessageId, Mode};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::Settings;
use crate::run::{Finish, Piece, Stopped, Summary};

/// Pieces under way that the server has not acknowledged; then the pipe is not read.
const UNDER_WAY: usize = 16;

/// Bytes of a background job's file: the last so many are kept.
const JOB_FILE: u64 = 8 * 1024 * 1024;

/// Sends a message and waits until it is accepted; false if it was not.
pub(super) async fn send(connection: &Connection, message: impl Into<ClientMessage>) -> bool {
    match connection.say(message).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "the server did not take a message");
            false
        }
    }
}

/// What one run prints, on its way to the session.
pub(super) struct Telling<'a> {
    connection: &'a Connection,
    proposal: &'a MessageId,
    under_way: VecDeque<Receipt>,
    /// Bytes told of each stream.
    told: [u64; 2],
    /// Where a background job's output is kept on this machine.
    file: Option<PathBuf>,
    written: u64,
}

impl<'a> Telling<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        proposal: &'a MessageId,
        settings: &Settings,
        mode: Mode,
    ) -> Self {
        let file = match mode {
            Mode::Background => Some(job_file(settings, proposal)),
            Mode::Normal | Mode::Slow | Mode::Pty => None,
        };
        Self {
            connection,
            proposal,
            under_way: VecDeque::new(),
            told: [0; 2],
            file,
            written: 0,
        }
    }

    /// Tells every piece; a server that does not keep up slows the command down.
    pub(super) async fn tell(mut self, mut pieces: mpsc::Receiver<Piece>) {
        while let Some(piece) = pieces.recv().await {
            self.keep(&piece.text).await;
            self.told[piece.stream as usize] = piece.offset + piece.text.len() as u64;
            self.send(piece.stream, piece.text, piece.offset, false)
                .await;
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            let offset = self.told[stream as usize];
            self.send(stream, String::new(), offset, true).await;
        }
        while let Some(receipt) = self.under_way.pop_front() {
            answered(receipt).await;
        }
    }

    async fn send(&mut self, stream: Stream, text: String, offset: u64, complete: bool) {
        let output = ToolOutput {
            tool_proposal: self.proposal.clone(),
            stream,
            text,
            complete,
            offset: Some(offset),
            extra: Extra::new(),
        };
        match self.connection.send(output).await {
            Ok(receipt) => self.under_way.push_back(receipt),
            Err(error) => tracing::warn!(%error, "output was not sent"),
        }
        if self.under_way.len() >= UNDER_WAY
            && let Some(oldest) = self.under_way.pop_front()
        {
            answered(oldest).await;
        }
    }

    /// Adds to a background job's file, and begins it again when it has grown twice its size.
    async fn keep(&mut self, text: &str) {
        let Some(path) = &self.file else { return };
        self.written += text.len() as u64;
        let kept = async {
            if self.written > 2 * JOB_FILE {
                let bytes = tokio::fs::read(path).await?;
                let from = bytes
                    .len()
                    .saturating_sub(usize::try_from(JOB_FILE).unwrap_or(usize::MAX));
                tokio::fs::write(path, &bytes[from..]).await?;
            }
            let mut file = tokio::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .await?;
            file.write_all(text.as_bytes()).await?;
            file.flush().await
        };
        match kept.await {
            Ok(()) if self.written > 2 * JOB_FILE => self.written = JOB_FILE,
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, path = %path.display(), "could not keep output"),
        }
    }
}

/// The file of a background job.
pub(crate) fn job_file(settings: &Settings, proposal: &MessageId) -> PathBuf {
    // An id has no slash and does not begin with a dot.
    settings.state.join(format!("{proposal}.log"))
}

async fn answered(receipt: Receipt) {
    match receipt.answer().await {
        Ok(_) => {}
        Err(error @ (SendError::Refused(_) | SendError::Over | SendError::Passed)) => {
            tracing::warn!(%error, "output was not taken");
        }
    }
}

/// How a run went, with the published fields and ours.
pub(super) fn result(proposal: &MessageId, finish: &Finish, limits: ExecutionLimits) -> ToolResult {
    let cut = finish.stdout.cut || finish.stderr.cut;
    let error = finish.stopped.as_ref().map(|stopped| match stopped {
        Stopped::TimedOut => format!(
            "stopped after {} s, its time limit",
            limits.timeout_ms / 1000
        ),
        Stopped::PrintedTooMuch => format!(
            "stopped after {} bytes of output, its limit",
            limits.output_bytes
        ),
        Stopped::Asked(why) => format!("stopped: {why}"),
    });
    let mut extra = Extra::new();
    let mut note = |name: &str, value: serde_json::Value| {
        extra.insert(name.to_owned(), value);
    };
    note("truncated", json!(cut));
    note(
        "streams",
        json!({ "stdout": facts(&finish.stdout), "stderr": facts(&finish.stderr) }),
    );
    if let Some(signal) = finish.signal {
        note("signal", json!(signal));
    }
    if let Some(error) = &error {
        note("kill_reason", json!(error));
    }
    if let Some(mechanism) = finish.mechanism {
        note("kill_mechanism", json!(mechanism));
    }
    if finish.left_behind > 0 {
        note("left_behind", json!(finish.left_behind));
    }
    ToolResult {
        tool_proposal: proposal.clone(),
        success: finish.code == Some(0) && finish.stopped.is_none(),
        result: Some(ResultBody {
            exit_code: finish.code.map(i64::from),
            stdout: excerpt(&finish.stdout),
            stderr: excerpt(&finish.stderr),
            extra: Extra::new(),
        }),
        error,
        duration_ms: u64::try_from(finish.duration.as_millis()).unwrap_or(u64::MAX),
        outcome: Some(Outcome::Known),
        extra,
    }
}

fn facts(summary: &Summary) -> serde_json::Value {
    json!({
        "bytes": summary.bytes, "lines": summary.lines, "sha256": summary.sha256, "truncated": summary.cut,
    })
}

/// The beginning and the end of a stream.
fn excerpt(summary: &Summary) -> String {
    match summary.omitted {
        0 => format!("{}{}", summary.head, summary.tail),
        omitted => format!(
            "{}\n[… {omitted} bytes omitted …]\n{}",
            summary.head, summary.tail
        ),
    }
}
