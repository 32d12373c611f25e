//! Telling everyone what a command prints and how it ended.

use std::collections::VecDeque;

use pvp_client::{Connection, Receipt, SendError};
use pvp_protocol::payload::{OutputStream, RunOutcome, ToolOutput, ToolResult, ToolResultBody};
use pvp_protocol::{ClientMessage, ExecutionLimits, ExtraFields, MessageId};
use serde_json::json;
use tokio::sync::mpsc;

use super::job_file::JobFile;
use crate::run::{Finish, Piece, Stopped, Summary};

/// Pieces under way that the server has not acknowledged; then the pipe is not read.
const UNDER_WAY: usize = 48;

/// Bytes of a stream that a result repeats, at most.
const EXCERPT: usize = 64 * 1024;

/// Bytes of the remark on what it leaves out.
const REMARK: usize = 64;

/// Sends a message and waits until it is accepted; false if it was not.
pub(super) async fn send(connection: &Connection, message: impl Into<ClientMessage>) -> bool {
    match connection.send_and_wait(message).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "the server did not take a message");
            false
        }
    }
}

/// Whether everything that was printed was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Nowhere,
    Short,
}

/// What one run prints, on its way to the session.
pub(super) struct Telling<'a> {
    connection: &'a Connection,
    proposal: &'a MessageId,
    under_way: VecDeque<Receipt>,
    /// Bytes told of each stream.
    told: [u64; 2],
    /// Bytes that the session still takes.
    room: u64,
    cut: bool,
    /// Where a background job's output is kept on this machine.
    file: Option<&'a mut JobFile>,
}

impl<'a> Telling<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        proposal: &'a MessageId,
        room: u64,
        file: Option<&'a mut JobFile>,
    ) -> Self {
        Self {
            connection,
            proposal,
            under_way: VecDeque::new(),
            told: [0; 2],
            room,
            cut: false,
            file,
        }
    }

    /// Tells every piece; a server that does not keep up slows the command down. Gives whether
    /// more was printed than the session takes.
    pub(super) async fn tell(mut self, mut pieces: mpsc::Receiver<Piece>) -> Cut {
        while let Some(piece) = pieces.recv().await {
            if let Some(file) = &mut self.file {
                file.keep(&piece.text).await;
            }
            self.pass_on(piece).await;
        }
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let offset = self.told[stream as usize];
            self.send(stream, String::new(), offset, true).await;
        }
        while let Some(receipt) = self.under_way.pop_front() {
            answered(receipt).await;
        }
        match self.cut {
            true => Cut::Short,
            false => Cut::Nowhere,
        }
    }

    /// Sends a piece as far as there is room; after the first that does not fit, none.
    async fn pass_on(&mut self, piece: Piece) {
        if self.cut {
            return;
        }
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let fits = piece.text.floor_char_boundary(room);
        self.cut = fits < piece.text.len();
        let mut text = piece.text;
        text.truncate(fits);
        self.room -= fits as u64;
        self.told[piece.stream as usize] = piece.offset + fits as u64;
        if fits > 0 {
            self.send(piece.stream, text, piece.offset, false).await;
        }
    }

    async fn send(&mut self, stream: OutputStream, text: String, offset: u64, complete: bool) {
        let output = ToolOutput {
            tool_proposal: self.proposal.clone(),
            stream,
            text,
            complete,
            offset: Some(offset),
            extra: ExtraFields::new(),
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
}

async fn answered(receipt: Receipt) {
    match receipt.ack().await {
        Ok(_) => {}
        Err(error @ (SendError::Refused(_) | SendError::Closed | SendError::Dropped)) => {
            tracing::warn!(%error, "output was not taken");
        }
    }
}

/// How a run went, with the published fields and ours.
pub(super) fn result(
    proposal: &MessageId,
    finish: &Finish,
    limits: ExecutionLimits,
    told: Cut,
) -> ToolResult {
    let cut = told == Cut::Short || finish.stdout.cut || finish.stderr.cut;
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
    let mut extra = ExtraFields::new();
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
        result: Some(ToolResultBody {
            exit_code: finish.code.map(i64::from),
            stdout: excerpt(&finish.stdout),
            stderr: excerpt(&finish.stderr),
            extra: ExtraFields::new(),
        }),
        error,
        duration_ms: u64::try_from(finish.duration.as_millis()).unwrap_or(u64::MAX),
        outcome: Some(RunOutcome::Known),
        extra,
    }
}

/// What people who ran a command of their own are told in its result, beside what everyone is.
pub(super) fn own_fields(result: &mut ToolResult, finish: &Finish) {
    let shortened = |summary: &Summary| summary.cut || summary.omitted > 0;
    let (stdout, stderr) = (shortened(&finish.stdout), shortened(&finish.stderr));
    if let Some(body) = &mut result.result {
        let fields = [
            ("exit_code", json!(finish.code)),
            ("signal", json!(finish.signal)),
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

fn facts(summary: &Summary) -> serde_json::Value {
    json!({
        "bytes": summary.bytes, "lines": summary.lines, "sha256": summary.sha256, "truncated": summary.cut,
    })
}

/// The beginning and the end of a stream, with the remark between them in no more than the session
/// takes: it would cut the remark out, and count only that.
fn excerpt(summary: &Summary) -> String {
    if summary.omitted == 0 {
        return format!("{}{}", summary.head, summary.tail);
    }
    let room = EXCERPT - REMARK - summary.tail.len().min(EXCERPT / 2);
    let (head, cut) = summary
        .head
        .split_at(summary.head.floor_char_boundary(room));
    let omitted = summary.omitted + cut.len() as u64;
    format!("{head}\n[… {omitted} bytes omitted …]\n{}", summary.tail)
}
