//! Runs: only the grant's executor speaks of them, and once a result is in they are closed.

use pvp_protocol::payload::{
    GateOutcome, GateResolve, Outcome, ResolvedHow, ResultBody, Stream, ToolCancel, ToolInput,
    ToolOutput, ToolResult,
};
use pvp_protocol::{Capability, Extra, MessageId, ParticipantId, Refusal};

use super::{Answer, Decided, Decision};
use crate::authority;
use crate::input::Said;
use crate::proposal::{Ending, Execution, Proposal, Stage, StreamState};

/// Bytes of each stream that a result repeats; the rest is in the output entries.
const EXCERPT: usize = 64 * 1024;

/// Bytes of one output entry made from a result that carried its output whole.
const PIECE: usize = 256 * 1024;

/// Output that a published agent may bring in its result, both streams together.
const OPEN_RESULT: u64 = 24 * 1024 * 1024;

/// Most bytes of keys in one `tool.input`.
const MAX_KEYS: usize = 64 * 1024;

impl Decision<'_> {
    /// The run of a proposal, if this participant is the one who runs it.
    fn own_run(
        &self,
        by: &ParticipantId,
        id: &MessageId,
    ) -> Result<(&Proposal, &Execution), Refusal> {
        if let Some(closed) = self.session.closed.get(id) {
            return Err(match closed.ending {
                Ending::Finished => Refusal::AlreadyFinished(id.clone()),
                Ending::Blocked | Ending::Rejected | Ending::TimedOut | Ending::Cancelled => {
                    Refusal::NotRunning(id.clone())
                }
            });
        }
        let unknown = || Refusal::NoSuchProposal(id.clone());
        let proposal = self.session.proposals.get(id).ok_or_else(unknown)?;
        if proposal.executor != *by {
            return Err(Refusal::NotTheExecutor(proposal.executor.clone()));
        }
        match &proposal.stage {
            Stage::Running(execution) => Ok((proposal, execution)),
            Stage::Judged | Stage::Gated(_) | Stage::Cleared { .. } => {
                Err(Refusal::NotRunning(id.clone()))
            }
        }
    }

    pub(super) fn output(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        mut output: ToolOutput,
    ) -> Decided {
        let (_, execution) = self.own_run(by, &output.tool_proposal)?;
        let stream = execution.stream(output.stream);
        let (offset, end) = match output.offset {
            None => (stream.bytes, stream.bytes + output.text.len() as u64),
            Some(offset) => (offset, offset.saturating_add(output.text.len() as u64)),
        };
        let news = end > stream.bytes || (output.complete && !stream.complete);
        if offset <= stream.bytes && !news {
            return Ok(Answer::Duplicate(self.session.head));
        }
        if stream.complete {
            return Err(Refusal::InvalidState("this stream is complete".to_owned()));
        }
        if offset != stream.bytes {
            let expected = stream.bytes;
            let problem = format!("output goes on at byte {expected}, not at {offset}");
            return Err(Refusal::InvalidState(problem));
        }
        let budget = execution.limits.output_bytes;
        if execution.output_bytes() + output.text.len() as u64 > budget {
            return Err(Refusal::OutputBudgetSpent(budget));
        }
        output.offset = Some(offset);
        Ok(self.relay(by, said, output))
    }

    pub(super) fn result(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        mut result: ToolResult,
    ) -> Decided {
        let (_, execution) = self.own_run(by, &result.tool_proposal)?;
        let recorded = [Stream::Stdout, Stream::Stderr].map(|stream| execution.stream(stream));
        // A success is seen; only who failed may say that nobody knows how.
        if result.success || result.outcome.is_none() {
            result.outcome = Some(Outcome::Known);
        }
        if let Some(mut body) = result.result.take() {
            let whole = [
                std::mem::take(&mut body.stdout),
                std::mem::take(&mut body.stderr),
            ];
            if self.terms.settings.open {
                self.record_unstreamed(by, &result.tool_proposal, &whole, recorded);
            }
            let [stdout, stderr] = whole;
            result.result = Some(ResultBody {
                stdout: excerpt(stdout),
                stderr: excerpt(stderr),
                ..body
            });
        }
        let reference = result.tool_proposal.as_str().into();
        result.extra.insert("output_ref".to_owned(), reference);
        Ok(self.relay(by, said, result))
    }

    /// A published agent may bring its output in the result alone; what was not streamed becomes
    /// output entries, so that it can be read by reference like any other.
    fn record_unstreamed(
        &mut self,
        by: &ParticipantId,
        proposal: &MessageId,
        whole: &[String; 2],
        recorded: [StreamState; 2],
    ) {
        let mut room = OPEN_RESULT.saturating_sub(recorded[0].bytes + recorded[1].bytes);
        for (stream, (text, recorded)) in [Stream::Stdout, Stream::Stderr]
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
                let most = PIECE.min(usize::try_from(room).unwrap_or(usize::MAX));
                let (piece, after) = rest.split_at(rest.floor_char_boundary(most));
                if piece.is_empty() {
                    // What room is left would cut a character in two.
                    break;
                }
                rest = after;
                room = room.saturating_sub(piece.len() as u64);
                let output = ToolOutput {
                    tool_proposal: proposal.clone(),
                    stream,
                    text: piece.to_owned(),
                    complete: rest.is_empty(),
                    offset: Some(offset),
                    extra: Extra::new(),
                };
                offset += piece.len() as u64;
                let said = Said::new(self.fresh.id(), output.clone());
                self.relay(by, &said, output);
            }
        }
    }

    pub(super) fn cancel(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        cancel: ToolCancel,
    ) -> Decided {
        let id = super::proposals::named(self, &cancel.tool_proposal)
            .ok_or_else(|| Refusal::NoSuchProposal(cancel.tool_proposal.clone()))?;
        if self.session.closed.contains_key(&id) {
            return Err(Refusal::AlreadyFinished(id));
        }
        let proposal = &self.session.proposals[&id];
        if proposal.proposer != *by {
            authority::holds(&self.session.people[by], Capability::Interrupt)?;
        }
        let waiting = matches!(proposal.stage, Stage::Gated(_));
        let (executor, reason) = (proposal.executor.clone(), cancel.reason.clone());
        let answer = self.relay(
            by,
            said,
            ToolCancel {
                tool_proposal: id.clone(),
                ..cancel
            },
        );
        if waiting {
            let resolve = GateResolve {
                reason,
                ..self.resolution(&id, GateOutcome::Cancelled, ResolvedHow::Cancel, Some(by))
            };
            self.tell(resolve, Some(id));
        } else if self
            .session
            .people
            .get(&executor)
            .is_none_or(|e| e.left || e.timed_out)
        {
            self.give_up(&id, "cancelled while its executor was away");
        }
        Ok(answer)
    }

    pub(super) fn input(&mut self, by: &ParticipantId, said: &Said, input: ToolInput) -> Decided {
        let id = &input.tool_proposal;
        let unknown = || Refusal::NotRunning(id.clone());
        let proposal = self.session.proposals.get(id).ok_or_else(unknown)?;
        let Stage::Running(execution) = &proposal.stage else {
            return Err(unknown());
        };
        match &execution.driver {
            None => {
                return Err(Refusal::InvalidState(
                    "this command takes no input".to_owned(),
                ));
            }
            Some(driver) if driver != by => {
                return Err(Refusal::Unauthorized(format!("`{driver}` is at the keys")));
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
            .is_some_and(|data| data.len() > MAX_KEYS)
        {
            return Err(Refusal::Malformed(format!(
                "`data` is at most {MAX_KEYS} bytes"
            )));
        }
        Ok(self.relay(by, said, input))
    }

    /// Closes the runs of an executor that will not speak of them any more.
    pub(super) fn give_up_runs_of(&mut self, executor: &ParticipantId, why: &str) {
        let lost: Vec<_> = self
            .session
            .running()
            .filter(|(proposal, _)| proposal.executor == *executor)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in lost {
            self.give_up(&proposal, why);
        }
    }

    /// Records that nobody can tell how a run ended.
    pub(super) fn give_up(&mut self, proposal: &MessageId, why: &str) {
        let Some(Proposal {
            stage: Stage::Running(execution),
            ..
        }) = self.session.proposals.get(proposal)
        else {
            return;
        };
        let result = ToolResult {
            tool_proposal: proposal.clone(),
            success: false,
            result: None,
            error: Some(format!("outcome unknown: {why}")),
            duration_ms: self.at.millis_since(execution.since),
            outcome: Some(Outcome::Unknown),
            extra: Extra::new(),
        };
        self.tell(result, Some(proposal.clone()));
    }
}

/// Head and tail of a text that is too long to repeat.
fn excerpt(text: String) -> String {
    if text.len() <= EXCERPT {
        return text;
    }
    let head = &text[..text.floor_char_boundary(EXCERPT / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - EXCERPT / 2)..];
    let cut = text.len() - head.len() - tail.len();
    format!("{head}\n[… {cut} bytes cut; read them by `output_ref` …]\n{tail}")
}
