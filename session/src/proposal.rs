//! One proposal from its first word to its last: judged, gated, running, closed.

use pvp_protocol::payload::Stream;
use pvp_protocol::{
    Action, Assessment, ExecutionLimits, MessageId, Mode, ParticipantId, Timestamp,
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
    pub stage: Stage,
    pub trail: Trail,
}

/// Where in the log the steps of a proposal are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// It was proposed.
    pub first: u64,
    /// It was edited last.
    pub amended: Option<u64>,
    /// Its gate was resolved.
    pub resolved: Option<u64>,
    /// It was granted.
    pub granted: Option<u64>,
}

/// How far a proposal has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Judged; what follows is in the same batch of entries.
    Judged,
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
    pub stdout: StreamState,
    pub stderr: StreamState,
    pub cancelled: bool,
    pub mode: Mode,
}

/// How much of a stream has been recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamState {
    pub bytes: u64,
    pub complete: bool,
}

impl Execution {
    /// The state of one stream.
    pub fn stream(&self, stream: Stream) -> StreamState {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    pub(crate) fn stream_mut(&mut self, stream: Stream) -> &mut StreamState {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Bytes of both streams.
    pub fn output_bytes(&self) -> u64 {
        self.stdout.bytes + self.stderr.bytes
    }
}

/// What is kept of a proposal for as long as the session lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub ending: Ending,
    pub trail: Trail,
    pub last_seq: u64,
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Blocked,
    Rejected,
    TimedOut,
    Cancelled,
    /// It ran, and there is a result.
    Finished,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ending::Blocked => "blocked",
            Ending::Rejected => "rejected",
            Ending::TimedOut => "timed out",
            Ending::Cancelled => "cancelled",
            Ending::Finished => "finished",
        })
    }
}

/// Which entries hold the output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputSpan {
    pub first_seq: u64,
    /// `None` while it runs.
    pub last_seq: Option<u64>,
}

/// A proposal in the history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    pub id: MessageId,
    pub trail: Trail,
    /// How and at which seq it ended; `None` while it is waiting or running.
    pub end: Option<(Ending, u64)>,
}
