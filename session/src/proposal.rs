//! One proposal from its first word to its last: judged, gated, running, closed.

use pvp_protocol::payload::OutputStream;
use pvp_protocol::{
    Action, Assessment, ExecutionLimits, MessageId, ParticipantId, RunMode, Timestamp,
};

use crate::gate::Gate;

/// Something that someone wants to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub id: MessageId,
    /// Who wants it; never counts towards its own quorum.
    pub proposer: ParticipantId,
    /// Who would run it.
    pub executor: ParticipantId,
    pub action: Action,
    pub assessment: Assessment,
    pub description: String,
    pub stage: ProposalStage,
    pub seqs: ProposalSeqs,
}

/// Where in the log the steps of a proposal are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProposalSeqs {
    /// It was proposed.
    pub proposed: u64,
    /// It was edited last.
    pub amended: Option<u64>,
    /// Its gate was resolved.
    pub resolved: Option<u64>,
    /// It was granted.
    pub granted: Option<u64>,
}

/// How far a proposal has come.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalStage {
    /// Judged; what follows is in the same batch of entries.
    Assessed,
    /// Waiting for votes.
    Gated(Gate),
    /// The gate has passed; the grant is in the same batch of entries.
    Cleared { gate: MessageId },
    /// Granted, once.
    Running(Execution),
}

/// A granted run.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    pub grant: MessageId,
    pub gate: Option<MessageId>,
    pub limits: ExecutionLimits,
    pub since: Timestamp,
    /// When its outcome is given up as unknown; `None` for runs without a time limit.
    pub deadline: Option<Timestamp>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
    pub stdout: OutputStreamState,
    pub stderr: OutputStreamState,
    pub cancelled: bool,
    pub mode: RunMode,
}

/// How much of a stream has been recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputStreamState {
    pub bytes: u64,
    pub complete: bool,
}

impl Execution {
    /// The state of one stream.
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

    /// Bytes of both streams.
    pub fn output_bytes(&self) -> u64 {
        self.stdout.bytes + self.stderr.bytes
    }
}

/// What is kept of a proposal for as long as the session lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedProposal {
    pub ending: ProposalEnding,
    pub seqs: ProposalSeqs,
    pub last_seq: u64,
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalEnding {
    Blocked,
    Rejected,
    TimedOut,
    Cancelled,
    /// It ran, and there is a result.
    Finished,
}

impl std::fmt::Display for ProposalEnding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProposalEnding::Blocked => "blocked",
            ProposalEnding::Rejected => "rejected",
            ProposalEnding::TimedOut => "timed out",
            ProposalEnding::Cancelled => "cancelled",
            ProposalEnding::Finished => "finished",
        })
    }
}

/// Which entries hold the output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRange {
    pub first_seq: u64,
    /// `None` while it runs.
    pub last_seq: Option<u64>,
}

/// A proposal in the history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalRecord {
    pub id: MessageId,
    pub seqs: ProposalSeqs,
    /// How and at which seq it ended; `None` while it is waiting or running.
    pub closed: Option<(ProposalEnding, u64)>,
}
