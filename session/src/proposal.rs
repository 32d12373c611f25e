//! The life of a proposal: assessed, gated, running, closed.

use pvp_protocol::payload::OutputStream;
use pvp_protocol::{
    Action, Assessment, ExecutionLimits, MessageId, ParticipantId, RunMode, Timestamp,
};

use crate::gate::Gate;

/// A proposal that is waiting or running.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The proposal's id.
    pub id: MessageId,
    /// Who proposed it; their vote never counts on it.
    pub proposer: ParticipantId,
    /// Who would run it.
    pub executor: ParticipantId,
    /// What exactly would run.
    pub action: Action,
    /// The policy's assessment of the action.
    pub assessment: Assessment,
    /// What the proposer says it does.
    pub description: String,
    /// Its current stage.
    pub stage: ProposalStage,
    /// The sequence numbers of its steps.
    pub seqs: ProposalSeqs,
}

/// The sequence numbers of a proposal's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProposalSeqs {
    /// The proposal itself.
    pub proposed: u64,
    /// The last amendment, if there was one.
    pub amended: Option<u64>,
    /// The resolution of its gate.
    pub resolved: Option<u64>,
    /// The grant.
    pub granted: Option<u64>,
}

/// The stage of an open proposal.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalStage {
    /// Assessed; the next step is in the same batch of entries.
    Assessed,
    /// Waiting for votes.
    Gated(Gate),
    /// The gate has passed; the grant is in the same batch of entries.
    Cleared,
    /// Granted and running.
    Running(Execution),
}

/// A granted command while it executes.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// What the run may use.
    pub limits: ExecutionLimits,
    /// When it was granted.
    pub since: Timestamp,
    /// When the run is closed with an unknown outcome; `None` for runs without a time limit.
    pub deadline: Option<Timestamp>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
    /// How much of standard output has been logged.
    pub stdout: OutputStreamState,
    /// How much of standard error has been logged.
    pub stderr: OutputStreamState,
    /// Whether a cancel was sent.
    pub cancelled: bool,
    /// How the command is run.
    pub mode: RunMode,
}

/// How much of a stream has been logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputStreamState {
    pub bytes: u64,
    pub complete: bool,
}

impl Execution {
    /// How much of one stream has been logged.
    pub fn stream(&self, stream: OutputStream) -> OutputStreamState {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    pub(crate) fn stream_mut(&mut self, stream: OutputStream) -> &mut OutputStreamState {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// How many bytes of both streams have been logged.
    pub fn output_bytes(&self) -> u64 {
        self.stdout.bytes + self.stderr.bytes
    }
}

/// The record of a closed proposal, kept as long as the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedProposal {
    pub outcome: ProposalOutcome,
    pub seqs: ProposalSeqs,
    pub last_seq: u64,
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalOutcome {
    Blocked,
    Rejected,
    TimedOut,
    Cancelled,
    /// It ran and has a result.
    Finished,
}

impl std::fmt::Display for ProposalOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProposalOutcome::Blocked => "blocked",
            ProposalOutcome::Rejected => "rejected",
            ProposalOutcome::TimedOut => "timed out",
            ProposalOutcome::Cancelled => "cancelled",
            ProposalOutcome::Finished => "finished",
        })
    }
}

/// The range of entries that contains a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRange {
    pub first_seq: u64,
    /// `None` while the command waits or runs.
    pub last_seq: Option<u64>,
}

/// A proposal in the history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalRecord {
    pub id: MessageId,
    pub seqs: ProposalSeqs,
    /// How it ended and at which sequence number; `None` while it waits or runs.
    pub closed: Option<(ProposalOutcome, u64)>,
}
