//! What became of a call, in words that the model can act on.

mod result;

use pvp_protocol::payload::{GateOutcome, GateResolve, ResolutionCause, RunOutcome, ToolResult};
use pvp_protocol::{Assessment, MessageId, ParticipantId};

use super::digest::{Caps, digest, ends, headline};
pub use result::{Account, CallResult, Ending};

/// Bytes of what a person or a rule said.
const SAID: usize = 8 * 1024;

/// A command that people changed before they approved it.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    pub by: Option<ParticipantId>,
    /// What ran.
    pub command: String,
    pub reason: Option<String>,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// It is of a kind that never runs.
    Blocked { rule: String, reason: String },
    /// The server refused the proposal, such as for a rate or a malformed argument.
    Refused { why: String },
    /// The gate closed without a yes.
    NotApproved(Box<GateResolve>),
    /// It goes on in the background.
    Started {
        reference: MessageId,
        pid: Option<u32>,
        file: Option<String>,
        edit: Option<Edit>,
    },
    /// It ran, or cannot be known to have run.
    Ran {
        result: Box<ToolResult>,
        edit: Option<Edit>,
    },
}

impl Fate {
    /// What the model reads. `assessment` is the server's verdict, if there was one.
    pub fn tell(&self, assessment: Option<&Assessment>, caps: Caps) -> CallResult {
        let (ending, words) = self.words(caps);
        let result = match self {
            Fate::Ran { result, .. } => Some(result.as_ref()),
            Fate::Blocked { .. } | Fate::Refused { .. } | Fate::NotApproved(_) => None,
            Fate::Started { .. } => None,
        };
        let (by, reason) = self.said();
        let brief = match (result, ending) {
            (Some(result), Ending::Ran) => {
                let reference = &result.tool_proposal;
                format!(
                    "{} [old output; recall ref \"{reference}\"]",
                    headline(result)
                )
            }
            _ => ends(words.lines().next().unwrap_or_default(), 400),
        };
        CallResult {
            text: words,
            brief,
            failed: !matches!(ending, Ending::Ran | Ending::Started)
                || result.is_some_and(|result| !result.success),
            account: Account {
                ending: Some(ending),
                category: assessment.map(|assessment| assessment.category),
                exit: result.and_then(|result| result.result.as_ref()?.exit_code),
                reason,
                by,
            },
        }
    }

    fn said(&self) -> (Option<ParticipantId>, Option<String>) {
        match self {
            Fate::Blocked { reason, .. } => (None, Some(reason.clone())),
            Fate::Refused { why } => (None, Some(why.clone())),
            Fate::NotApproved(resolve) => (resolve.by.clone(), resolve.reason.clone()),
            Fate::Started { .. } => (None, None),
            Fate::Ran { result, .. } => (None, result.error.clone()),
        }
    }

    fn words(&self, caps: Caps) -> (Ending, String) {
        match self {
            Fate::Blocked { rule, reason } => (
                Ending::Blocked,
                format!(
                    "Blocked: this command never runs here, and nobody can approve it. {} \
                     (rule {rule}). Nothing was done. Do not try to get around it: find a safer \
                     way, or say what you need and why.",
                    sentence(reason)
                ),
            ),
            Fate::Refused { why } => (
                Ending::Refused,
                format!(
                    "The proposal was not accepted: {} Nothing was done.",
                    sentence(why)
                ),
            ),
            Fate::NotApproved(resolve) => not_approved(resolve),
            Fate::Started {
                reference,
                pid,
                file,
                edit,
            } => (
                Ending::Started,
                edited(edit.as_ref(), started(reference, *pid, file.as_deref())),
            ),
            Fate::Ran { result, edit } => {
                let (ending, words) = ran(result, caps);
                (ending, edited(edit.as_ref(), words))
            }
        }
    }
}

fn not_approved(resolve: &GateResolve) -> (Ending, String) {
    let by = by_whom(resolve.by.as_ref());
    let because = because(resolve.reason.as_deref());
    match (resolve.outcome, resolve.how) {
        (GateOutcome::Rejected, _) => {
            let suggestion = match resolve.suggestion.as_deref() {
                Some(suggestion) => format!(" They suggest: {}", sentence(suggestion)),
                None => String::new(),
            };
            (
                Ending::Rejected,
                format!(
                    "Rejected{by}{because}. Nothing was done.{suggestion} Take the reason \
                     seriously: do not propose the same thing in other words."
                ),
            )
        }
        (GateOutcome::TimedOut, _) => (
            Ending::TimedOut,
            "Nobody decided in time, so the command did not run. Go on without it if you can; \
             otherwise say what you are waiting for, and propose it again when someone is there."
                .to_owned(),
        ),
        (GateOutcome::Cancelled, ResolutionCause::SessionEnded) => (
            Ending::Cancelled,
            "The session ended before anyone decided. Nothing was done.".to_owned(),
        ),
        (GateOutcome::Cancelled, ResolutionCause::ProposerLeft) => (
            Ending::Withdrawn,
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
            Ending::Withdrawn,
            format!(
                "The proposal was withdrawn{by} before anyone decided{because}. Nothing was done."
            ),
        ),
        (GateOutcome::Approved, _) => (
            Ending::Unknown,
            "The command was approved, but nothing is known of it yet.".to_owned(),
        ),
    }
}

fn started(reference: &MessageId, pid: Option<u32>, file: Option<&str>) -> String {
    let mut words = "It was started in the background and goes on".to_owned();
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

fn ran(result: &ToolResult, caps: Caps) -> (Ending, String) {
    match result.outcome {
        Some(RunOutcome::Unknown) => (
            Ending::Unknown,
            format!(
                "It is not known whether this command ran to its end: {} Look at the state of \
                 things before you do anything that builds on it, and do not simply run it again.",
                sentence(result.error.as_deref().unwrap_or("what ran it was lost"))
            ),
        ),
        Some(RunOutcome::Known) | None if result.result.is_none() => (
            Ending::Stopped,
            format!(
                "It did not run: {} Nothing was printed.",
                sentence(result.error.as_deref().unwrap_or("no reason was given"))
            ),
        ),
        Some(RunOutcome::Known) | None => {
            let stopped = result.error.is_some();
            let mut words = digest(result, caps);
            if stopped {
                words.push_str(
                    "\n\nIt was stopped with everything it had started, so its work may be half \
                     done. If it needs longer, use mode slow; if it has to go on, mode background; \
                     if it prints too much, use quiet flags or write to a file.",
                );
            }
            (
                if stopped {
                    Ending::Stopped
                } else {
                    Ending::Ran
                },
                words,
            )
        }
    }
}

fn edited(edit: Option<&Edit>, words: String) -> String {
    let Some(edit) = edit else { return words };
    format!(
        "{words}\n\nThis is not what you proposed: it was edited{} before it was approved{}. What \
         ran is:\n{}",
        by_whom(edit.by.as_ref()),
        because(edit.reason.as_deref()),
        ends(&edit.command, SAID)
    )
}

fn by_whom(by: Option<&ParticipantId>) -> String {
    by.map_or(String::new(), |by| format!(" by {by}"))
}

fn because(reason: Option<&str>) -> String {
    match reason.map(str::trim) {
        None | Some("") => String::new(),
        Some(reason) => format!(
            ", with the reason: {}",
            ends(reason.trim_end_matches('.'), SAID)
        ),
    }
}

/// A text of someone else's as a sentence with an end.
fn sentence(text: &str) -> String {
    let text = ends(text.trim(), SAID);
    match text.chars().last() {
        None | Some('.' | '!' | '?') => text,
        Some(_) => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::digest::tests::ran as printed;
    use super::*;
    use pvp_protocol::Timestamp;

    fn ann() -> Option<ParticipantId> {
        Some(ParticipantId::parse("ann").unwrap())
    }

    fn closed(outcome: GateOutcome, how: ResolutionCause) -> Fate {
        Fate::NotApproved(Box::new(GateResolve {
            gate: MessageId::parse("g1").unwrap(),
            tool_proposal: MessageId::parse("p1").unwrap(),
            outcome,
            how,
            at: Timestamp::from_millis(0),
            approvals: Vec::new(),
            by: ann(),
            reason: Some("production is frozen".to_owned()),
            suggestion: Some("use staging".to_owned()),
        }))
    }

    fn told(fate: &Fate) -> (Ending, String) {
        let result = fate.tell(None, Caps::default());
        (result.account.ending.unwrap(), result.text)
    }

    #[test]
    fn a_rejection_says_who_and_why_and_what_they_suggest() {
        let fate = closed(GateOutcome::Rejected, ResolutionCause::Rejection);
        assert_eq!(
            told(&fate),
            (
                Ending::Rejected,
                "Rejected by ann, with the reason: production is frozen. Nothing was done. They \
                 suggest: use staging. Take the reason seriously: do not propose the same thing in \
                 other words."
                    .to_owned()
            )
        );
        let account = fate.tell(None, Caps::default()).account;
        assert_eq!(account.reason.as_deref(), Some("production is frozen"));
        assert_eq!(account.by, ann());
    }

    #[test]
    fn every_ending_without_a_run_says_that_nothing_was_done() {
        for (fate, ending) in [
            (
                closed(GateOutcome::Cancelled, ResolutionCause::Cancel),
                Ending::Withdrawn,
            ),
            (
                closed(GateOutcome::Cancelled, ResolutionCause::ProposerLeft),
                Ending::Withdrawn,
            ),
            (
                closed(GateOutcome::Cancelled, ResolutionCause::SessionEnded),
                Ending::Cancelled,
            ),
            (
                Fate::Blocked {
                    rule: "rm-root".into(),
                    reason: "it deletes everything".into(),
                },
                Ending::Blocked,
            ),
            (
                Fate::Refused {
                    why: "too many open proposals".into(),
                },
                Ending::Refused,
            ),
        ] {
            let (really, words) = told(&fate);
            assert_eq!(really, ending);
            assert!(words.contains("Nothing was done."), "{words}");
            assert!(fate.tell(None, Caps::default()).failed);
        }
        let (ending, words) = told(&closed(GateOutcome::TimedOut, ResolutionCause::Deadline));
        assert_eq!(ending, Ending::TimedOut);
        assert!(words.starts_with("Nobody decided in time, so the command did not run."));
    }

    #[test]
    fn an_edit_is_told_after_what_it_led_to() {
        let edit = Edit {
            by: ann(),
            command: "ls /srv".to_owned(),
            reason: None,
        };
        let result = Box::new(printed(Some(0), "a\n", ""));
        let fate = Fate::Ran {
            result,
            edit: Some(edit),
        };
        assert_eq!(
            told(&fate),
            (
                Ending::Ran,
                "Exit code: 0 | stdout: 1 lines | stderr: 0 lines\n\nstdout:\na\n\nThis is not what \
                 you proposed: it was edited by ann before it was approved. What ran is:\nls /srv"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_run_that_was_stopped_or_lost_is_no_success() {
        let mut result = printed(None, "", "");
        result.error = Some("stopped after 30 s, its time limit".to_owned());
        let stopped = Fate::Ran {
            result: Box::new(result.clone()),
            edit: None,
        };
        let (ending, words) = told(&stopped);
        assert_eq!(ending, Ending::Stopped);
        assert!(
            words.contains("its time limit.") && words.contains("mode slow"),
            "{words}"
        );
        result.outcome = Some(RunOutcome::Unknown);
        result.error = Some("the executor was lost".to_owned());
        let lost = Fate::Ran {
            result: Box::new(result),
            edit: None,
        };
        let (ending, words) = told(&lost);
        assert_eq!(ending, Ending::Unknown);
        assert!(
            words.contains("not known whether this command ran to its end: the executor was lost.")
        );
    }

    #[test]
    fn an_old_result_keeps_its_first_line_and_where_to_find_the_rest() {
        let result = Box::new(printed(Some(1), &"x\n".repeat(300), ""));
        let mut told = Fate::Ran { result, edit: None }.tell(None, Caps::default());
        told.reduce();
        assert_eq!(
            told.text,
            "Exit code: 1 | stdout: 300 lines | stderr: 0 lines [old output; recall ref \"p1\"]"
        );
        let short = told.clone();
        told.reduce();
        assert_eq!(told, short);
    }
}
