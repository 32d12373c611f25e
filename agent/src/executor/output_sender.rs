//! Sends a command's output and result to the session.

use std::collections::VecDeque;

use pvp_client::{Connection, Receipt, SendError};
use pvp_protocol::payload::{
    OutputStream, RunOutcome, ToolOutput, ToolResult, ToolResultBody, ToolResultValue,
};
use pvp_protocol::{ClientMessage, ExecutionLimits, ExtraFields, MessageId};
use serde_json::json;
use tokio::sync::mpsc;

use super::job_file::JobFile;
use crate::run::{FinishedRun, StdioChunk, StopReason, StreamSummary};

/// Output messages that the server has not acknowledged yet; at this many, the pipe is not read.
const MAX_UNACKNOWLEDGED: usize = 48;

/// Bytes of a stream that a result repeats, at most.
const MAX_EXCERPT_BYTES: usize = 64 * 1024;

/// Room for the note on what an excerpt leaves out, in bytes.
const OMISSION_NOTE_BYTES: usize = 64;

/// Sends a message and waits until it is accepted; returns whether it was.
pub(super) async fn send_acknowledged(
    connection: &Connection,
    message: impl Into<ClientMessage>,
) -> bool {
    match connection.send_and_wait(message).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "the server did not accept a message");
            false
        }
    }
}

/// Whether all output was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentOutput {
    Complete,
    Truncated,
}

/// Sends the output of one run.
pub(super) struct OutputSender<'a> {
    /// The connection to the session.
    connection: &'a Connection,
    /// The proposal whose command prints this.
    proposal: &'a MessageId,
    /// Receipts of sent messages that are not acknowledged yet, oldest first.
    unacknowledged: VecDeque<Receipt>,
    /// Bytes of each stream that were sent.
    sent_bytes: [u64; 2],
    /// Bytes that the session still accepts.
    remaining_bytes: u64,
    /// Whether some output did not fit and was dropped.
    truncated: bool,
    /// The local file for a background job's output; `None` for other commands.
    job_file: Option<&'a mut JobFile>,
}

impl<'a> OutputSender<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        proposal: &'a MessageId,
        remaining_bytes: u64,
        job_file: Option<&'a mut JobFile>,
    ) -> Self {
        Self {
            connection,
            proposal,
            unacknowledged: VecDeque::new(),
            sent_bytes: [0; 2],
            remaining_bytes,
            truncated: false,
            job_file,
        }
    }

    /// Sends every chunk; back-pressure from a slow server slows the command down. Returns whether
    /// more was printed than the session accepts.
    pub(super) async fn send_all(mut self, mut chunks: mpsc::Receiver<StdioChunk>) -> SentOutput {
        while let Some(chunk) = chunks.recv().await {
            if let Some(file) = &mut self.job_file {
                file.append(&chunk.text).await;
            }
            self.send_chunk(chunk).await;
        }
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let offset = self.sent_bytes[stream as usize];
            self.send_output(stream, String::new(), offset, true).await;
        }
        while let Some(receipt) = self.unacknowledged.pop_front() {
            await_receipt(receipt).await;
        }
        match self.truncated {
            true => SentOutput::Truncated,
            false => SentOutput::Complete,
        }
    }

    /// Sends as much of a chunk as fits; after the first that does not fit, sends nothing more.
    async fn send_chunk(&mut self, chunk: StdioChunk) {
        if self.truncated {
            return;
        }
        let room = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX);
        let fits = chunk.text.floor_char_boundary(room);
        self.truncated = fits < chunk.text.len();
        let mut text = chunk.text;
        text.truncate(fits);
        self.remaining_bytes -= fits as u64;
        self.sent_bytes[chunk.stream as usize] = chunk.offset + fits as u64;
        if fits > 0 {
            self.send_output(chunk.stream, text, chunk.offset, false)
                .await;
        }
    }

    async fn send_output(
        &mut self,
        stream: OutputStream,
        text: String,
        offset: u64,
        complete: bool,
    ) {
        let output = ToolOutput {
            tool_proposal: self.proposal.clone(),
            stream,
            text,
            complete,
            offset: Some(offset),
            extra: ExtraFields::new(),
        };
        match self.connection.send(output).await {
            Ok(receipt) => self.unacknowledged.push_back(receipt),
            Err(error) => tracing::warn!(%error, "output was not sent"),
        }
        if self.unacknowledged.len() >= MAX_UNACKNOWLEDGED
            && let Some(oldest) = self.unacknowledged.pop_front()
        {
            await_receipt(oldest).await;
        }
    }
}

async fn await_receipt(receipt: Receipt) {
    match receipt.ack().await {
        Ok(_) => {}
        Err(error @ (SendError::Refused(_) | SendError::Closed | SendError::Dropped)) => {
            tracing::warn!(%error, "the server did not accept output");
        }
    }
}

/// The result of a run, with the fields of the published protocol and additional ones.
pub(super) fn tool_result(
    proposal: &MessageId,
    finished: &FinishedRun,
    limits: ExecutionLimits,
    sent: SentOutput,
) -> ToolResult {
    let cut =
        sent == SentOutput::Truncated || finished.stdout.truncated || finished.stderr.truncated;
    let error = finished.stop_reason.as_ref().map(|stopped| match stopped {
        StopReason::TimedOut => format!(
            "stopped after {} s, its time limit",
            limits.timeout_ms / 1000
        ),
        StopReason::OutputLimit => format!(
            "stopped after {} bytes of output, its limit",
            limits.output_bytes
        ),
        StopReason::Requested(why) => format!("stopped: {why}"),
    });
    let mut extra = ExtraFields::new();
    let mut insert = |name: &str, value: serde_json::Value| {
        extra.insert(name.to_owned(), value);
    };
    insert("truncated", json!(cut));
    insert(
        "streams",
        json!({ "stdout": stream_facts(&finished.stdout), "stderr": stream_facts(&finished.stderr) }),
    );
    if let Some(signal) = finished.signal {
        insert("signal", json!(signal));
    }
    if let Some(error) = &error {
        insert("kill_reason", json!(error));
    }
    if let Some(mechanism) = finished.kill_mechanism {
        insert("kill_mechanism", json!(mechanism));
    }
    if finished.left_behind > 0 {
        insert("left_behind", json!(finished.left_behind));
    }
    ToolResult {
        tool_proposal: proposal.clone(),
        success: finished.exit_code == Some(0) && finished.stop_reason.is_none(),
        result: Some(
            ToolResultBody {
                exit_code: finished.exit_code.map(i64::from),
                stdout: excerpt(&finished.stdout),
                stderr: excerpt(&finished.stderr),
                extra: ExtraFields::new(),
            }
            .into(),
        ),
        error,
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        outcome: Some(RunOutcome::Known),
        more_output: false,
        attested: false,
        extra,
    }
}

/// Adds the fields that only results of a person's own command have.
pub(super) fn add_shell_exec_fields(result: &mut ToolResult, finished: &FinishedRun) {
    let shortened = |summary: &StreamSummary| summary.truncated || summary.omitted_bytes > 0;
    let (stdout, stderr) = (shortened(&finished.stdout), shortened(&finished.stderr));
    if let Some(ToolResultValue::Command(body)) = &mut result.result {
        let fields = [
            ("exit_code", json!(finished.exit_code)),
            ("signal", json!(finished.signal)),
            ("duration_ms", json!(result.duration_ms)),
            (
                "truncated",
                json!({ "stdout": stdout, "stderr": stderr, "combined": stdout || stderr }),
            ),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        body.extra.extend(fields);
    }
}

fn stream_facts(summary: &StreamSummary) -> serde_json::Value {
    json!({
        "bytes": summary.bytes, "lines": summary.lines, "sha256": summary.sha256, "truncated": summary.truncated,
    })
}

/// The beginning and the end of a stream, with a note between them on what is left out. The whole
/// stays within what the session accepts: otherwise the session would cut the note out and count
/// only its own cut.
fn excerpt(summary: &StreamSummary) -> String {
    if summary.omitted_bytes == 0 {
        return format!("{}{}", summary.head, summary.tail);
    }
    let room =
        MAX_EXCERPT_BYTES - OMISSION_NOTE_BYTES - summary.tail.len().min(MAX_EXCERPT_BYTES / 2);
    let (head, cut) = summary
        .head
        .split_at(summary.head.floor_char_boundary(room));
    let omitted = summary.omitted_bytes + cut.len() as u64;
    format!("{head}\n[… {omitted} bytes omitted …]\n{}", summary.tail)
}
