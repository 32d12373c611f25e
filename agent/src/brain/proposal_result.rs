//! Describes the result of a proposal in words that the model can act on.

mod call_result;

use pvp_protocol::payload::{GateOutcome, GateResolve, ResolutionCause, RunOutcome, ToolResult};
use pvp_protocol::{Assessment, MessageId, ParticipantId};

use super::result_text::{ResultTextLimits, headline, result_text, truncate_middle};
pub use call_result::{CallOutcome, CallResult, CallStatus};

/// Bytes that are quoted of a person's or a rule's reason.
const MAX_QUOTED_BYTES: usize = 8 * 1024;

/// An edit that was made before the command was approved.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedEdit {
    pub by: Option<ParticipantId>,
    /// The edited command, which ran.
    pub command: String,
    pub reason: Option<String>,
}

/// How a proposal ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalResult {
    /// The policy blocks the command; it never runs.
    Blocked { rule: String, reason: String },
    /// The server refused the proposal, such as for a rate limit or a malformed argument.
    Refused { why: String },
    /// The gate closed without approval.
    NotApproved(Box<GateResolve>),
    /// It runs in the background.
    Started {
        reference: MessageId,
        pid: Option<u32>,
        file: Option<String>,
        edit: Option<AppliedEdit>,
    },
    /// It ran, or it is not known whether it ran.
    Ran {
        result: Box<ToolResult>,
        edit: Option<AppliedEdit>,
    },
}

impl ProposalResult {
    /// The result that the model reads. `assessment` is the server's, if there was one.
    pub fn to_call_result(
        &self,
        assessment: Option<&Assessment>,
        limits: ResultTextLimits,
    ) -> CallResult {
        let (status, text) = self.status_and_text(limits);
        let result = match self {
            ProposalResult::Ran { result, .. } => Some(result.as_ref()),
            ProposalResult::Blocked { .. }
            | ProposalResult::Refused { .. }
            | ProposalResult::NotApproved(_) => None,
            ProposalResult::Started { .. } => None,
        };
        let (by, reason) = self.author_and_reason();
        let short_text = match (result, status) {
            (Some(result), CallStatus::Ran) => {
                let reference = &result.tool_proposal;
                format!(
                    "{} [old output; recall ref \"{reference}\"]",
                    headline(result)
                )
            }
            _ => truncate_middle(text.lines().next().unwrap_or_default(), 400),
        };
        CallResult {
            text,
            short_text,
            failed: !matches!(status, CallStatus::Ran | CallStatus::Started)
                || result.is_some_and(|result| !result.success),
            outcome: CallOutcome {
                status: Some(status),
                category: assessment.map(|assessment| assessment.category),
                exit_code: result.and_then(|result| result.exit_code()),
                reason,
                by,
            },
        }
    }

    fn author_and_reason(&self) -> (Option<ParticipantId>, Option<String>) {
        match self {
            ProposalResult::Blocked { reason, .. } => (None, Some(reason.clone())),
            ProposalResult::Refused { why } => (None, Some(why.clone())),
            ProposalResult::NotApproved(resolve) => (resolve.by.clone(), resolve.reason.clone()),
            ProposalResult::Started { .. } => (None, None),
            ProposalResult::Ran { result, .. } => (None, result.error.clone()),
        }
    }

    fn status_and_text(&self, limits: ResultTextLimits) -> (CallStatus, String) {
        match self {
            ProposalResult::Blocked { rule, reason } => (
                CallStatus::Blocked,
                format!(
                    "Blocked: this command never runs here, and nobody can approve it. {} \
                     (rule {rule}). Nothing was done. Do not try to get around it: find a safer \
                     way, or say what you need and why.",
                    sentence(reason)
                ),
            ),
            ProposalResult::Refused { why } => (
                CallStatus::Refused,
                format!(
                    "The proposal was not accepted: {} Nothing was done.",
                    sentence(why)
                ),
            ),
            ProposalResult::NotApproved(resolve) => not_approved_text(resolve),
            ProposalResult::Started {
                reference,
                pid,
                file,
                edit,
            } => (
                CallStatus::Started,
                with_edit_note(
                    edit.as_ref(),
                    started_text(reference, *pid, file.as_deref()),
                ),
            ),
            ProposalResult::Ran { result, edit } => {
                let (status, words) = ran_text(result, limits);
                (status, with_edit_note(edit.as_ref(), words))
            }
        }
    }
}

fn not_approved_text(resolve: &GateResolve) -> (CallStatus, String) {
    let by = by_whom(resolve.by.as_ref());
    let because = reason_clause(resolve.reason.as_deref());
    match (resolve.outcome, resolve.how) {
        (GateOutcome::Rejected, _) => {
            let suggestion = match resolve.suggestion.as_deref() {
                Some(suggestion) => format!(" They suggest: {}", sentence(suggestion)),
                None => String::new(),
            };
            (
                CallStatus::Rejected,
                format!(
                    "Rejected{by}{because}. Nothing was done.{suggestion} Take the reason \
                     seriously: do not propose the same thing in other words."
                ),
            )
        }
        (GateOutcome::TimedOut, _) => (
            CallStatus::TimedOut,
            "Nobody decided in time, so the command did not run. Go on without it if you can; \
             otherwise say what you are waiting for, and propose it again when someone is there."
                .to_owned(),
        ),
        (GateOutcome::Cancelled, ResolutionCause::SessionEnded) => (
            CallStatus::Cancelled,
            "The session ended before anyone decided. Nothing was done.".to_owned(),
        ),
        (GateOutcome::Cancelled, ResolutionCause::ProposerLeft) => (
            CallStatus::Withdrawn,
            "The proposal was withdrawn, because you left the session before anyone decided. \
             Nothing was done."
                .to_owned(),
        ),
        (
            GateOutcome::Cancelled,
            ResolutionCause::Quorum
            | ResolutionCause::Rejection
            | ResolutionCause::Deadline
            | ResolutionCause::Clock
            | ResolutionCause::Cancel,
        ) => (
            CallStatus::Withdrawn,
            format!(
                "The proposal was withdrawn{by} before anyone decided{because}. Nothing was done."
            ),
        ),
        (GateOutcome::Approved, _) => (
            CallStatus::Unknown,
            "The command was approved, but its result is not known yet.".to_owned(),
        ),
    }
}

fn started_text(reference: &MessageId, pid: Option<u32>, file: Option<&str>) -> String {
    let mut words = "It was started in the background and keeps running".to_owned();
    if let Some(pid) = pid {
        words.push_str(&format!(", as process {pid}"));
    }
    words.push_str(&format!(", ref \"{reference}\"."));
    if let Some(file) = file {
        words.push_str(&format!(" Its output goes to {file}."));
    }
    words.push_str(
        " Read it with recall and that ref; stop it with jobs, action \"stop\" and that ref; it is \
         stopped when the session ends. The start is not yet a success: look at its output before \
         you rely on it.",
    );
    words
}

fn ran_text(result: &ToolResult, limits: ResultTextLimits) -> (CallStatus, String) {
    match result.outcome {
        Some(RunOutcome::Unknown) => (
            CallStatus::Unknown,
            format!(
                "It is not known whether this command ran to its end: {} Look at the state of \
                 things before you do anything that builds on it, and do not simply run it again.",
                sentence(result.error.as_deref().unwrap_or("what ran it was lost"))
            ),
        ),
        Some(RunOutcome::Known | RunOutcome::NotRun) | None if result.result.is_none() => (
            CallStatus::Stopped,
            format!(
                "It did not run: {} Nothing was printed.",
                sentence(result.error.as_deref().unwrap_or("no reason was given"))
            ),
        ),
        Some(RunOutcome::Known | RunOutcome::NotRun) | None => {
            let stopped = result.error.is_some();
            let mut words = result_text(result, limits);
            if stopped {
                words.push_str(
                    "\n\nIt was stopped with everything it had started, so its work may be half \
                     done. If it needs longer, use mode slow; if it has to keep running, mode background; \
                     if it prints too much, use quiet flags or write to a file.",
                );
            }
            (
                if stopped {
                    CallStatus::Stopped
                } else {
                    CallStatus::Ran
                },
                words,
            )
        }
    }
}

fn with_edit_note(edit: Option<&AppliedEdit>, words: String) -> String {
    let Some(edit) = edit else { return words };
    format!(
        "{words}\n\nThis is not what you proposed: it was edited{} before it was approved{}. What \
         ran is:\n{}",
        by_whom(edit.by.as_ref()),
        reason_clause(edit.reason.as_deref()),
        truncate_middle(&edit.command, MAX_QUOTED_BYTES)
    )
}

fn by_whom(by: Option<&ParticipantId>) -> String {
    by.map_or(String::new(), |by| format!(" by {by}"))
}

fn reason_clause(reason: Option<&str>) -> String {
    match reason.map(str::trim) {
        None | Some("") => String::new(),
        Some(reason) => format!(
            ", with the reason: {}",
            truncate_middle(reason.trim_end_matches('.'), MAX_QUOTED_BYTES)
        ),
    }
}

/// Someone else's text as a sentence with a full stop.
fn sentence(text: &str) -> String {
    let text = truncate_middle(text.trim(), MAX_QUOTED_BYTES);
    match text.chars().last() {
        None | Some('.' | '!' | '?') => text,
        Some(_) => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result_text::tests::finished_result;
    use super::*;
    use pvp_protocol::Timestamp;

    fn ann() -> Option<ParticipantId> {
        Some(ParticipantId::parse("ann").unwrap())
    }

    fn closed_gate(outcome: GateOutcome, how: ResolutionCause) -> ProposalResult {
        ProposalResult::NotApproved(Box::new(GateResolve {
            gate: MessageId::parse("g1").unwrap(),
            tool_proposal: MessageId::parse("p1").unwrap(),
            outcome,
            how,
            at: Timestamp::from_millis(0),
            approvals: Vec::new(),
            by: ann(),
            reason: Some("production is frozen".to_owned()),
            suggestion: Some("use staging".to_owned()),
            rule: None,
        }))
    }

    fn rendered(proposal_result: &ProposalResult) -> (CallStatus, String) {
        let result = proposal_result.to_call_result(None, ResultTextLimits::default());
        (result.outcome.status.unwrap(), result.text)
    }

    #[test]
    fn a_rejection_says_who_and_why_and_what_they_suggest() {
        let proposal_result = closed_gate(GateOutcome::Rejected, ResolutionCause::Rejection);
        assert_eq!(
            rendered(&proposal_result),
            (
                CallStatus::Rejected,
                "Rejected by ann, with the reason: production is frozen. Nothing was done. They \
                 suggest: use staging. Take the reason seriously: do not propose the same thing in \
                 other words."
                    .to_owned()
            )
        );
        let outcome = proposal_result
            .to_call_result(None, ResultTextLimits::default())
            .outcome;
        assert_eq!(outcome.reason.as_deref(), Some("production is frozen"));
        assert_eq!(outcome.by, ann());
    }

    #[test]
    fn every_ending_without_a_run_says_that_nothing_was_done() {
        for (proposal_result, status) in [
            (
                closed_gate(GateOutcome::Cancelled, ResolutionCause::Cancel),
                CallStatus::Withdrawn,
            ),
            (
                closed_gate(GateOutcome::Cancelled, ResolutionCause::ProposerLeft),
                CallStatus::Withdrawn,
            ),
            (
                closed_gate(GateOutcome::Cancelled, ResolutionCause::SessionEnded),
                CallStatus::Cancelled,
            ),
            (
                ProposalResult::Blocked {
                    rule: "rm-root".into(),
                    reason: "it deletes everything".into(),
                },
                CallStatus::Blocked,
            ),
            (
                ProposalResult::Refused {
                    why: "too many open proposals".into(),
                },
                CallStatus::Refused,
            ),
        ] {
            let (actual, words) = rendered(&proposal_result);
            assert_eq!(actual, status);
            assert!(words.contains("Nothing was done."), "{words}");
            assert!(
                proposal_result
                    .to_call_result(None, ResultTextLimits::default())
                    .failed
            );
        }
        let (status, words) = rendered(&closed_gate(
            GateOutcome::TimedOut,
            ResolutionCause::Deadline,
        ));
        assert_eq!(status, CallStatus::TimedOut);
        assert!(words.starts_with("Nobody decided in time, so the command did not run."));
    }

    #[test]
    fn an_edit_is_mentioned_after_the_result() {
        let edit = AppliedEdit {
            by: ann(),
            command: "ls /srv".to_owned(),
            reason: None,
        };
        let result = Box::new(finished_result(Some(0), "a\n", ""));
        let proposal_result = ProposalResult::Ran {
            result,
            edit: Some(edit),
        };
        assert_eq!(
            rendered(&proposal_result),
            (
                CallStatus::Ran,
                "Exit code: 0 | stdout: 1 line | stderr: 0 lines\n\nstdout:\na\n\nThis is not what \
                 you proposed: it was edited by ann before it was approved. What ran is:\nls /srv"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_run_that_was_stopped_or_lost_is_no_success() {
        let mut result = finished_result(None, "", "");
        result.error = Some("stopped after 30 s, its time limit".to_owned());
        let stopped = ProposalResult::Ran {
            result: Box::new(result.clone()),
            edit: None,
        };
        let (status, words) = rendered(&stopped);
        assert_eq!(status, CallStatus::Stopped);
        assert!(
            words.contains("its time limit.") && words.contains("mode slow"),
            "{words}"
        );
        result.outcome = Some(RunOutcome::Unknown);
        result.error = Some("the executor was lost".to_owned());
        let lost = ProposalResult::Ran {
            result: Box::new(result),
            edit: None,
        };
        let (status, words) = rendered(&lost);
        assert_eq!(status, CallStatus::Unknown);
        assert!(
            words.contains("not known whether this command ran to its end: the executor was lost.")
        );
    }

    #[test]
    fn an_old_result_keeps_its_first_line_and_where_to_find_the_rest() {
        let result = Box::new(finished_result(Some(1), &"x\n".repeat(300), ""));
        let mut call_result = ProposalResult::Ran { result, edit: None }
            .to_call_result(None, ResultTextLimits::default());
        call_result.shorten();
        assert_eq!(
            call_result.text,
            "Exit code: 1 | stdout: 300 lines | stderr: 0 lines [old output; recall ref \"p1\"]"
        );
        let short = call_result.clone();
        call_result.shorten();
        assert_eq!(call_result, short);
    }
}
