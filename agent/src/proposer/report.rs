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
    /// Whether it is known how it ended; `None` if it is.
    pub outcome: Option<RunOutcome>,
    /// Bytes of standard output and standard error that were sent before.
    pub streamed: [u64; 2],
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
        for (stream, text, before) in [
            (OutputStream::Stdout, &report.stdout, report.streamed[0]),
            (OutputStream::Stderr, &report.stderr, report.streamed[1]),
        ] {
            let fits = &text[..text.floor_char_boundary(room)];
            truncated |= fits.len() < text.len();
            room -= fits.len();
            if limit.is_some() {
                self.send_stream(proposal, stream, fits, before).await?;
            }
        }
        let result = report.to_result(proposal.clone(), truncated);
        self.connection().send_and_wait(result).await?;
        Ok(())
    }

    /// Sends one stream from its beginning, or from behind what was sent before; the offsets tell the
    /// server what it has already.
    async fn send_stream(
        &self,
        proposal: &MessageId,
        stream: OutputStream,
        text: &str,
        before: u64,
    ) -> Result<(), ProposeError> {
        let mut unacknowledged: VecDeque<Receipt> = VecDeque::new();
        for output in output_messages(proposal, stream, text, before) {
            unacknowledged.push_back(self.connection().send(output).await?);
            if unacknowledged.len() >= MAX_UNACKNOWLEDGED
                && let Some(oldest) = unacknowledged.pop_front()
            {
                oldest.ack().await?;
            }
        }
        for receipt in unacknowledged {
            receipt.ack().await?;
        }
        Ok(())
    }
}

/// The messages that say what a stream of a proposal has behind its first `before` bytes.
pub fn output_messages(
    proposal: &MessageId,
    stream: OutputStream,
    text: &str,
    before: u64,
) -> impl Iterator<Item = ToolOutput> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let end = text.floor_char_boundary(start + CHUNK_BYTES);
        let complete = end == text.len();
        next = (!complete).then_some(end);
        Some(ToolOutput {
            tool_proposal: proposal.clone(),
            stream,
            text: text[start..end].to_owned(),
            complete,
            offset: Some(before + start as u64),
            extra: ExtraFields::new(),
        })
    })
}

impl RunReport {
    /// The message that says how it ended; `truncated` if not all of its output was sent.
    pub fn to_result(&self, proposal: MessageId, truncated: bool) -> ToolResult {
        let mut extra = ExtraFields::new();
        extra.insert("truncated".to_owned(), json!(truncated));
        ToolResult {
            tool_proposal: proposal,
            success: self.success,
            result: (self.outcome.is_none()).then(|| {
                ToolResultBody {
                    exit_code: self.exit_code,
                    stdout: truncate_middle(&self.stdout, MAX_EXCERPT_BYTES),
                    stderr: truncate_middle(&self.stderr, MAX_EXCERPT_BYTES),
                    extra: ExtraFields::new(),
                }
                .into()
            }),
            error: self.error.clone(),
            duration_ms: self.duration_ms,
            outcome: self.outcome.or(Some(RunOutcome::Known)),
            more_output: false,
            attested: false,
            extra,
        }
    }
}
