//! The calls of one answer: proposed, followed to their end, and told in words for the model.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use pvp_protocol::payload::OutputRead;
use pvp_protocol::{Assessment, RunMode};
use tokio::sync::Notify;

use super::ears::Halt;
use super::{INTERRUPTED, Moment, Watch};
use crate::agent::{Agent, Proposal, ProposeError, Step};
use crate::brain::digest::ends;
use crate::brain::tools::{JobsUse, ShellUse, jobs_text};
use crate::brain::words::{CallResult, Edit};
use crate::brain::{Caps, Fate, ToolCall, ToolUse, recall};

/// Calls of one answer that are begun.
const MOST: usize = 64;

pub(super) struct Calls<'a> {
    agent: &'a Agent,
    caps: Caps,
    allowed: Option<&'a [String]>,
    watch: &'a Watch,
    /// Proposals that wait for people.
    waiting: AtomicUsize,
    bell: Notify,
    paused: AtomicBool,
    stopped: AtomicBool,
}

impl<'a> Calls<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        caps: Caps,
        allowed: Option<&'a [String]>,
        watch: &'a Watch,
    ) -> Self {
        Self {
            agent,
            caps,
            allowed,
            watch,
            waiting: AtomicUsize::new(0),
            bell: Notify::new(),
            paused: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Nothing more is begun; after a stop, what is just being proposed is withdrawn too.
    pub(super) fn halt(&self, halt: Halt) {
        let which = match halt {
            Halt::Pause => &self.paused,
            Halt::Stop => &self.stopped,
        };
        which.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_halted(&self) -> bool {
        self.is_stopped() || self.paused.load(Ordering::Relaxed)
    }

    /// Whether some proposal waits for people.
    pub(super) fn waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until one more proposal waits for people.
    pub(super) async fn waits_more(&self) {
        self.bell.notified().await;
    }

    /// Proposes in the order of the calls, then follows all of them at once.
    pub(super) async fn perform(&self, calls: &[ToolCall]) -> Vec<CallResult> {
        let mut begun = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            begun.push(if self.is_halted() {
                Begun::Over(CallResult::failed(INTERRUPTED))
            } else if number >= MOST {
                Begun::Over(CallResult::failed(&format!(
                    "Nothing was done: only the first {MOST} calls of an answer are begun. Call \
                     again in a later answer."
                )))
            } else {
                self.begin(call).await
            });
        }
        join_all(begun.into_iter().map(|begun| self.end(begun))).await
    }

    async fn begin(&self, call: &ToolCall) -> Begun {
        if let Some(allowed) = self.allowed
            && !allowed.contains(&call.name)
        {
            return Begun::Over(CallResult::failed(&format!(
                "The tool `{}` is not allowed for this prompt. Nothing was done.",
                call.name
            )));
        }
        match ToolUse::read(call) {
            Ok(ToolUse::Shell(shell)) => self.propose(shell).await,
            Ok(ToolUse::Recall(read)) => Begun::Recall(read),
            Ok(ToolUse::Jobs(jobs)) => Begun::Jobs(jobs),
            Err(why) => Begun::Over(CallResult::failed(&why)),
        }
    }

    async fn end(&self, begun: Begun) -> CallResult {
        match begun {
            Begun::Over(result) => result,
            Begun::Recall(read) => self.recall(read).await,
            Begun::Jobs(jobs) => self.jobs(jobs).await,
            Begun::Proposed(shell, proposal) => {
                let mut course = Course::default();
                let fate = self.follow(proposal, shell.mode, &mut course).await;
                if course.waits {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                }
                self.tell(&shell, &fate, course.verdict.as_deref())
            }
        }
    }

    async fn recall(&self, read: OutputRead) -> CallResult {
        match self.agent.recall(read.clone()).await {
            Ok(page) => CallResult::answered(recall::text(&read, &page)),
            Err(error) => CallResult::failed(&format!("The output cannot be read: {error}.")),
        }
    }

    async fn jobs(&self, jobs: JobsUse) -> CallResult {
        let done = match &jobs {
            JobsUse::List => self.agent.jobs().await.map(|jobs| jobs_text(&jobs)),
            JobsUse::Stop(reference) => {
                let stopped = self.agent.stop(reference, "the agent stopped it").await;
                stopped.map(|how| {
                    let how = how.unwrap_or_else(|| "it is being stopped".to_owned());
                    format!("ref \"{reference}\" has ended, with all that it started: {how}")
                })
            }
        };
        match done {
            Ok(text) => CallResult::answered(text),
            Err(error) => CallResult::failed(&format!("That did not work: {error}.")),
        }
    }

    async fn propose(&self, shell: ShellUse) -> Begun {
        (self.watch)(Moment::Proposed {
            command: shell.command.clone(),
            purpose: shell.purpose.clone(),
        });
        let proposed = self
            .agent
            .propose_openly(shell.arguments(), &shell.purpose)
            .await;
        let fate = match proposed {
            Ok(proposal) => {
                if self.is_stopped() {
                    self.withdraw(&proposal).await;
                }
                return Begun::Proposed(shell, proposal);
            }
            Err(ProposeError::Blocked { rule, reason }) => Fate::Blocked { rule, reason },
            Err(error) => Fate::Refused {
                why: error.to_string(),
            },
        };
        Begun::Over(self.tell(&shell, &fate, None))
    }

    /// The session withdrew what it knew of when it was stopped; this one came after.
    async fn withdraw(&self, proposal: &Proposal) {
        let why = Some("people stopped the agent".to_owned());
        if let Err(error) = self.agent.connection().cancel(&proposal.id, why).await {
            tracing::warn!(%error, "could not withdraw a proposal");
        }
    }

    fn tell(&self, shell: &ShellUse, fate: &Fate, verdict: Option<&Assessment>) -> CallResult {
        let result = fate.tell(verdict, self.caps);
        (self.watch)(Moment::Ended {
            command: shell.command.clone(),
            how: ends(result.text.lines().next().unwrap_or_default(), 1000),
        });
        result
    }

    /// Follows a proposal until its fate is known; a background job's when it has begun.
    async fn follow(&self, mut proposal: Proposal, mode: RunMode, course: &mut Course) -> Fate {
        while let Some(step) = proposal.next().await {
            match step {
                Step::Judged(verdict) => course.verdict = Some(verdict),
                Step::Waiting { quorum } => {
                    if !std::mem::replace(&mut course.waits, true) {
                        self.waiting.fetch_add(1, Ordering::Relaxed);
                        self.bell.notify_one();
                    }
                    (self.watch)(Moment::Waiting { quorum });
                }
                Step::Edited {
                    by,
                    command,
                    reason,
                } => {
                    course.edit = Some(Edit {
                        by,
                        command,
                        reason,
                    });
                }
                Step::Granted { .. } => {
                    if std::mem::replace(&mut course.waits, false) {
                        self.waiting.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                Step::Started { pid, file } if mode == RunMode::Background => {
                    return Fate::Started {
                        reference: proposal.id,
                        pid: Some(pid),
                        file: file.map(|file| file.display().to_string()),
                        edit: course.edit.take(),
                    };
                }
                Step::Started { .. } | Step::Output { .. } => {}
                Step::Finished(result) => {
                    let edit = course.edit.take();
                    return Fate::Ran { result, edit };
                }
                Step::NotRun(resolve) => return Fate::NotApproved(resolve),
            }
        }
        let why = "the session is over".to_owned();
        Fate::Refused { why }
    }
}

/// A call that was begun.
enum Begun {
    Over(CallResult),
    Proposed(ShellUse, Proposal),
    Recall(OutputRead),
    Jobs(JobsUse),
}

/// What is known of a proposal on its way.
#[derive(Default)]
struct Course {
    verdict: Option<Box<Assessment>>,
    edit: Option<Edit>,
    waits: bool,
}
