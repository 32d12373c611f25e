//! Decides on messages about runs. Only the grant's executor may report on a run, and its result
//! closes it.

use pvp_protocol::payload::{
    GateOutcome, GateResolve, OutputStream, ResolutionCause, RunBy, RunOutcome, ToolCancel,
    ToolInput, ToolOutput, ToolResult, ToolResultBody, ToolResultValue,
};
use pvp_protocol::{Capability, ExtraFields, MessageId, ParticipantId, Refusal};

use super::context::written_file;
use super::{Answer, AnswerResult, DecisionBuilder};
use crate::authority;
use crate::input::SubmittedMessage;
use crate::output_index::OutputStreamPosition;
use crate::proposal::{Execution, ExecutionKind, Proposal, ProposalOutcome, ProposalStage};

/// How many bytes of each stream a result repeats; the rest is in the output entries.
const MAX_EXCERPT_BYTES: usize = 64 * 1024;

/// The size in bytes of output entries that are made from a result with the whole output.
const OUTPUT_ENTRY_BYTES: usize = 256 * 1024;

/// The most output in a result of an agent that does not stream, in bytes of both streams.
const MAX_UNSTREAMED_RESULT_BYTES: u64 = 24 * 1024 * 1024;

/// The most bytes of keystrokes in one `tool.input`.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// A run whose result may bring output that was not streamed.
struct UnstreamedOutput {
    proposal: MessageId,
    /// What was streamed of stdout and stderr.
    recorded: [OutputStreamPosition; 2],
    /// Whether the tool goes on after this result.
    more_output: bool,
}

impl DecisionBuilder<'_> {
    /// The run of a proposal, if this participant is its executor.
    pub(super) fn find_own_run(
        &self,
        by: &ParticipantId,
        id: &MessageId,
    ) -> Result<(&Proposal, &Execution), Refusal> {
        let open = self.session.proposals.get(id);
        if open.is_none() && self.session.closed_proposals.get(id).is_some() {
            let recent = self.session.closed_proposals.recent(id);
            return Err(match recent.and_then(|record| record.closed) {
                Some((ProposalOutcome::Finished, _)) | None => Refusal::AlreadyFinished(id.clone()),
                Some((
                    ProposalOutcome::Blocked
                    | ProposalOutcome::Rejected
                    | ProposalOutcome::TimedOut
                    | ProposalOutcome::Cancelled,
                    _,
                )) => Refusal::NotRunning(id.clone()),
            });
        }
        let unknown = || Refusal::NoSuchProposal(id.clone());
        let proposal = self.session.proposals.get(id).ok_or_else(unknown)?;
        if proposal.executor != *by {
            return Err(Refusal::NotTheExecutor(proposal.executor.clone()));
        }
        match &proposal.stage {
            ProposalStage::Running(execution) => Ok((proposal, execution)),
            ProposalStage::Assessed | ProposalStage::Gated(_) | ProposalStage::Cleared => {
                Err(Refusal::NotRunning(id.clone()))
            }
        }
    }

    pub(super) fn tool_output(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut output: ToolOutput,
    ) -> AnswerResult {
        let (_, execution) = self.find_own_run(by, &output.tool_proposal)?;
        let stream = execution.stream(output.stream);
        let (offset, end) = match output.offset {
            None => (stream.bytes, stream.bytes + output.text.len() as u64),
            Some(offset) => (offset, offset.saturating_add(output.text.len() as u64)),
        };
        let has_new_output = end > stream.bytes || (output.complete && !stream.complete);
        if offset <= stream.bytes && !has_new_output {
            return Ok(Answer::Duplicate(self.session.head));
        }
        if stream.complete {
            return Err(Refusal::InvalidState("this stream is complete".to_owned()));
        }
        if offset != stream.bytes {
            let expected = stream.bytes;
            let problem = format!("output continues at byte {expected}, not at {offset}");
            return Err(Refusal::InvalidState(problem));
        }
        let budget = execution.limits.output_bytes;
        if execution.output_bytes() + output.text.len() as u64 > budget {
            return Err(Refusal::OutputBudgetExceeded(budget));
        }
        output.offset = Some(offset);
        Ok(self.relay(by, submitted, output))
    }

    pub(super) fn tool_result(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut result: ToolResult,
    ) -> AnswerResult {
        let (proposal, execution) = self.find_own_run(by, &result.tool_proposal)?;
        match (execution.kind, &result.result) {
            (ExecutionKind::Trial, None) if execution.output_bytes() == 0 => {
                return Ok(self.discard_failed_trial(by, submitted, result));
            }
            (ExecutionKind::Trial, _) => {
                result.extra.insert("tried".to_owned(), true.into());
            }
            (ExecutionKind::Run, _) => {}
        }
        let recorded =
            [OutputStream::Stdout, OutputStream::Stderr].map(|stream| execution.stream(stream));
        result.attested = proposal.runs() == RunBy::Client;
        result.outcome = Some(checked_outcome(&result));
        result.more_output = result.success && proposal.streaming && !execution.has_result;
        let file = written_file(proposal, &result);
        if let Some(value) = result.result.take() {
            let run = UnstreamedOutput {
                proposal: result.tool_proposal.clone(),
                recorded,
                more_output: result.more_output,
            };
            result.result = Some(self.record_value(by, &run, value));
        }
        result.error = result.error.take().map(excerpt);
        bound_extra(&mut result.extra);
        if let Some(ToolResultValue::Command(body)) = &mut result.result {
            bound_extra(&mut body.extra);
        }
        let reference = result.tool_proposal.as_str().into();
        result.extra.insert("output_ref".to_owned(), reference);
        let answer = self.relay(by, submitted, result);
        if let Some(file) = file {
            self.share_written_file(file);
        }
        Ok(answer)
    }

    /// Logs what a result brings that was not streamed, and returns what the result tells of it.
    fn record_value(
        &mut self,
        by: &ParticipantId,
        run: &UnstreamedOutput,
        value: ToolResultValue,
    ) -> ToolResultValue {
        let open_mode = self.decision_context.settings.open_mode;
        match value {
            ToolResultValue::Command(mut body) => {
                let whole = [
                    std::mem::take(&mut body.stdout),
                    std::mem::take(&mut body.stderr),
                ];
                if open_mode || run.more_output {
                    self.record_unstreamed(by, run, &whole);
                }
                let [stdout, stderr] = whole;
                ToolResultValue::Command(ToolResultBody {
                    stdout: excerpt(stdout),
                    stderr: excerpt(stderr),
                    ..body
                })
            }
            ToolResultValue::Other(value) => {
                let text = value.as_str().map(str::to_owned);
                let text = text.unwrap_or_else(|| value.to_string());
                let short = !open_mode || text.len() <= OUTPUT_ENTRY_BYTES;
                if short && !run.more_output {
                    return ToolResultValue::Other(value);
                }
                let whole = [text, String::new()];
                self.record_unstreamed(by, run, &whole);
                if short {
                    return ToolResultValue::Other(value);
                }
                let [text, _] = whole;
                ToolResultValue::Other(excerpt(text).into())
            }
        }
    }

    /// Appends output that was not streamed as output entries, so that it can be read like any
    /// other. An agent of the published protocol may send its output only in the result.
    fn record_unstreamed(
        &mut self,
        by: &ParticipantId,
        run: &UnstreamedOutput,
        whole: &[String; 2],
    ) {
        let recorded = run.recorded;
        let mut remaining_bytes =
            MAX_UNSTREAMED_RESULT_BYTES.saturating_sub(recorded[0].bytes + recorded[1].bytes);
        for (stream, (text, recorded)) in [OutputStream::Stdout, OutputStream::Stderr]
            .into_iter()
            .zip(whole.iter().zip(recorded))
            .filter(|(_, (_, recorded))| !recorded.complete)
        {
            let mut offset = recorded.bytes;
            let Ok(from) = usize::try_from(offset) else {
                continue;
            };
            let Some(mut rest) = text.get(from..) else {
                continue;
            };
            while !rest.is_empty() {
                let max_bytes =
                    OUTPUT_ENTRY_BYTES.min(usize::try_from(remaining_bytes).unwrap_or(usize::MAX));
                let (chunk, after) = rest.split_at(rest.floor_char_boundary(max_bytes));
                if chunk.is_empty() {
                    // The remaining bytes would split a character.
                    break;
                }
                rest = after;
                remaining_bytes = remaining_bytes.saturating_sub(chunk.len() as u64);
                let output = ToolOutput {
                    tool_proposal: run.proposal.clone(),
                    stream,
                    text: chunk.to_owned(),
                    complete: rest.is_empty() && !run.more_output,
                    offset: Some(offset),
                    extra: ExtraFields::new(),
                };
                offset += chunk.len() as u64;
                let submitted = SubmittedMessage::new(self.id_generator.next_id(), output.clone());
                self.relay(by, &submitted, output);
            }
        }
    }

    pub(super) fn tool_cancel(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        cancel: ToolCancel,
    ) -> AnswerResult {
        let id = super::proposals::proposal_id_of(self, &cancel.tool_proposal)
            .ok_or_else(|| Refusal::NoSuchProposal(cancel.tool_proposal.clone()))?;
        let Some(proposal) = self.session.proposals.get(&id) else {
            return Err(Refusal::AlreadyFinished(id));
        };
        if proposal.proposer != *by {
            authority::require_capability(self.sender()?, Capability::Interrupt)?;
        }
        let waiting = matches!(proposal.stage, ProposalStage::Gated(_));
        let (executor, reason) = (proposal.executor.clone(), cancel.reason.clone());
        let answer = self.relay(
            by,
            submitted,
            ToolCancel {
                tool_proposal: id.clone(),
                ..cancel
            },
        );
        if waiting {
            let resolve = GateResolve {
                reason,
                ..self.build_resolution(
                    &id,
                    GateOutcome::Cancelled,
                    ResolutionCause::Cancel,
                    Some(by),
                )
            };
            self.close_gate(resolve);
        } else if self
            .session
            .members
            .get(&executor)
            .is_none_or(|e| e.left || e.timed_out)
        {
            self.close_run_as_unknown(&id, "cancelled while its executor was away");
        }
        Ok(answer)
    }

    pub(super) fn tool_input(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        input: ToolInput,
    ) -> AnswerResult {
        let id = &input.tool_proposal;
        let unknown = || Refusal::NotRunning(id.clone());
        let proposal = self.session.proposals.get(id).ok_or_else(unknown)?;
        let ProposalStage::Running(execution) = &proposal.stage else {
            return Err(unknown());
        };
        match &execution.driver {
            None => {
                return Err(Refusal::InvalidState(
                    "this command takes no input".to_owned(),
                ));
            }
            Some(driver) if driver != by => {
                return Err(Refusal::Unauthorized(format!(
                    "only `{driver}` may type into this command"
                )));
            }
            Some(_) => {}
        }
        if input.data.is_none() && input.resize.is_none() {
            return Err(Refusal::Malformed(
                "`tool.input` needs `data` or `resize`".to_owned(),
            ));
        }
        if input
            .data
            .as_ref()
            .is_some_and(|data| data.len() > MAX_INPUT_BYTES)
        {
            return Err(Refusal::Malformed(format!(
                "`data` is at most {MAX_INPUT_BYTES} bytes"
            )));
        }
        Ok(self.relay(by, submitted, input))
    }

    /// Closes the runs of an executor that will not report on them any more.
    pub(super) fn close_runs_as_unknown(&mut self, executor: &ParticipantId, why: &str) {
        let lost: Vec<_> = self
            .session
            .running()
            .filter(|(proposal, _)| proposal.executor == *executor)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in lost {
            self.close_run_as_unknown(&proposal, why);
        }
    }

    /// Closes the runs of streaming tools whose agent is gone. They have no deadline of their own.
    pub(super) fn close_streaming_runs(&mut self, executor: &ParticipantId) {
        let streaming: Vec<_> = self
            .session
            .running()
            .filter(|(proposal, execution)| proposal.executor == *executor && execution.has_result)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in streaming {
            self.close_run_as_unknown(&proposal, "the connection to its agent was lost");
        }
    }

    /// Closes a run with an unknown outcome.
    pub(super) fn close_run_as_unknown(&mut self, proposal: &MessageId, why: &str) {
        if self.discard_lost_trial(proposal, why) {
            return;
        }
        let Some((execution, proposal_runs)) =
            self.session
                .proposals
                .get(proposal)
                .and_then(|proposal| match &proposal.stage {
                    ProposalStage::Running(execution) => Some((execution, proposal.runs())),
                    ProposalStage::Assessed | ProposalStage::Gated(_) | ProposalStage::Cleared => {
                        None
                    }
                })
        else {
            return;
        };
        let result = ToolResult {
            tool_proposal: proposal.clone(),
            success: false,
            result: None,
            error: Some(format!("outcome unknown: {why}")),
            duration_ms: self.at.millis_since(execution.since),
            outcome: Some(RunOutcome::Unknown),
            more_output: false,
            attested: proposal_runs == RunBy::Client,
            extra: ExtraFields::new(),
        };
        self.append_system(result, Some(proposal.clone()));
    }
}

/// What is known of how a run ended. A success is always known; only a failure may be unknown, and
/// only a client may say that it did not run what it was allowed to run.
fn checked_outcome(result: &ToolResult) -> RunOutcome {
    match result.outcome {
        Some(RunOutcome::Unknown) if !result.success => RunOutcome::Unknown,
        Some(RunOutcome::NotRun) if !result.success && result.attested => RunOutcome::NotRun,
        Some(RunOutcome::Known | RunOutcome::Unknown | RunOutcome::NotRun) | None => {
            RunOutcome::Known
        }
    }
}

/// Drops further fields of a result that are too long to repeat.
fn bound_extra(extra: &mut ExtraFields) {
    let bytes = serde_json::to_vec(&extra).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_EXCERPT_BYTES {
        extra.clear();
        extra.insert("fields_cut".to_owned(), true.into());
    }
}

/// The head and tail of a text that is too long to repeat.
fn excerpt(text: String) -> String {
    if text.len() <= MAX_EXCERPT_BYTES {
        return text;
    }
    let head = &text[..text.floor_char_boundary(MAX_EXCERPT_BYTES / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - MAX_EXCERPT_BYTES / 2)..];
    let cut = text.len() - head.len() - tail.len();
    format!("{head}\n[… {cut} bytes cut; read them by `output_ref` …]\n{tail}")
}
