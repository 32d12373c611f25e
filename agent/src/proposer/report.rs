//! Reports results that were obtained elsewhere: somebody else ran what was granted.

use std::collections::VecDeque;

use pvp_client::Receipt;
use pvp_protocol::payload::{OutputStream, RunOutcome, ToolOutput, ToolResult, ToolResultBody};
use pvp_protocol::{ExtraFields, MessageId};
use serde_json::json;
use tokio::sync::oneshot;

use super::{ProposeError, Proposer, ProposerRequest};
use crate::brain::result_text::truncate_middle;

/// Bytes of output in one message.
const CHUNK_BYTES: usize = 32 * 1024;

/// Output messages that the server has not acknowledged yet; at this many, the next one waits.
const MAX_UNACKNOWLEDGED: usize = 48;

/// Bytes of a stream that a result repeats, at most. The session accepts a little more.
const MAX_EXCERPT_BYTES: usize = 63 * 1024;

/// How a granted action ended that somebody else ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Whether it did what it should.
    pub success: bool,
    /// The exit code; `None` if it has none.
    pub exit_code: Option<i64>,
    /// What it printed or returned.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
    /// What went wrong, if anything did besides the exit code.
    pub error: Option<String>,
    /// How long it took, in milliseconds; 0 if nobody measured it.
    pub duration_ms: u64,
}

impl Proposer {
    /// Reports how a granted proposal of this participant ended, with its output. Output beyond
    /// what the grant allows is cut, and the result says so. A report that was cut short, by a crash
    /// for example, may be made again.
    pub async fn report(
        &self,
        proposal: &MessageId,
        report: RunReport,
    ) -> Result<(), ProposeError> {
        let (limit, answer) = oneshot::channel();
        self.request(ProposerRequest::OutputLimit {
            proposal: proposal.clone(),
            limit,
        })
        .await?;
        let limit = answer.await.map_err(|_| ProposeError::Closed)?;
        // Without a known limit only the excerpts in the result are sent.
        let mut room = usize::try_from(limit.unwrap_or(0)).unwrap_or(usize::MAX);
        let mut truncated = false;
        for (stream, text) in [
            (OutputStream::Stdout, &report.stdout),
            (OutputStream::Stderr, &report.stderr),
        ] {
            let fits = &text[..text.floor_char_boundary(room)];
            truncated |= fits.len() < text.len();
            room -= fits.len();
            if limit.is_some() {
                self.send_stream(proposal, stream, fits).await?;
            }
        }
        let result = tool_result(proposal.clone(), &report, truncated);
        self.connection().send_and_wait(result).await?;
        Ok(())
    }

    /// Sends one stream from its beginning; the offsets tell the server what it has already.
    async fn send_stream(
        &self,
        proposal: &MessageId,
        stream: OutputStream,
        text: &str,
    ) -> Result<(), ProposeError> {
        let mut unacknowledged: VecDeque<Receipt> = VecDeque::new();
        let mut offset = 0;
        loop {
            let end = text.floor_char_boundary(offset + CHUNK_BYTES);
            let output = ToolOutput {
                tool_proposal: proposal.clone(),
                stream,
                text: text[offset..end].to_owned(),
                complete: end == text.len(),
                offset: Some(offset as u64),
                extra: ExtraFields::new(),
            };
            unacknowledged.push_back(self.connection().send(output).await?);
            if unacknowledged.len() >= MAX_UNACKNOWLEDGED
                && let Some(oldest) = unacknowledged.pop_front()
            {
                oldest.ack().await?;
            }
            offset = end;
            if offset == text.len() {
                break;
            }
        }
        for receipt in unacknowledged {
            receipt.ack().await?;
        }
        Ok(())
    }
}

fn tool_result(proposal: MessageId, report: &RunReport, truncated: bool) -> ToolResult {
    let mut extra = ExtraFields::new();
    extra.insert("truncated".to_owned(), json!(truncated));
    ToolResult {
        tool_proposal: proposal,
        success: report.success,
        result: Some(
            ToolResultBody {
                exit_code: report.exit_code,
                stdout: truncate_middle(&report.stdout, MAX_EXCERPT_BYTES),
                stderr: truncate_middle(&report.stderr, MAX_EXCERPT_BYTES),
                extra: ExtraFields::new(),
            }
            .into(),
        ),
        error: report.error.clone(),
        duration_ms: report.duration_ms,
        outcome: Some(RunOutcome::Known),
        more_output: false,
        extra,
    }
}
