//! The life of a proposal: assessed, gated, running, closed.

use pvp_protocol::payload::{ClientOrigin, Degree, DiscardedTrial, OutputStream, RunBy};
use pvp_protocol::{
    Action, Assessment, ExecutionLimits, MessageId, ParticipantId, Risk, RunMode, Timestamp,
    ToolCategory, ToolKind,
};

use serde::{Deserialize, Serialize};

use crate::gate::Gate;
use crate::output_index::{OutputPosition, OutputStreamPosition, OutputStreams};

/// A proposal that is waiting or running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The proposal's id.
    pub id: MessageId,
    /// Who proposed it; their vote never counts on it.
    pub proposer: ParticipantId,
    /// Who would run it.
    pub executor: ParticipantId,
    /// What exactly would run.
    pub action: Action,
    /// The kind of tool.
    pub tool_kind: ToolKind,
    /// The agent's own estimate, which can raise the assessment.
    pub claimed_risk: Risk,
    /// The kind of tool as the agent states it, which can raise the assessment, too.
    pub claimed_category: ToolCategory,
    /// The policy's assessment of the action.
    pub assessment: Assessment,
    /// What the proposer says it does.
    pub description: String,
    /// Whether it goes on sending output after its first result.
    pub streaming: bool,
    /// How sure it is that what is approved is what runs; `None` if an executor runs it.
    #[serde(default)]
    pub degree: Option<Degree>,
    /// Set if an agent client runs it by itself.
    #[serde(default)]
    pub client_run: Option<ClientRun>,
    /// Whether an executor runs it, and it is withdrawn while it waits once its proposer is gone.
    #[serde(default)]
    pub leased: bool,
    /// The agent client that the call comes from.
    #[serde(default)]
    pub origin: Option<ClientOrigin>,
    /// Its current stage.
    pub stage: ProposalStage,
    /// Its gate, open or passed; `None` if it never had one.
    pub gate: Option<MessageId>,
    /// What came of trying it in the sandbox; `None` if it was not tried, or still is.
    pub trial: Option<DiscardedTrial>,
    /// The sequence numbers of its steps.
    pub seqs: ProposalSeqs,
    /// The votes and amendments at its gate.
    pub steps: GateSteps,
}

/// What is known of a proposal that an agent client runs by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRun {
    /// Until when it waits for a client that went away; `None` if the client must be there.
    pub deferred_until: Option<Timestamp>,
}

/// How many votes and amendments of one proposal are remembered.
const MAX_GATE_STEPS: usize = 200;

/// The sequence numbers of the votes and amendments at a gate, in order. Of very many the oldest are
/// forgotten; the log has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GateSteps(Vec<u64>);

impl GateSteps {
    pub(crate) fn push(&mut self, seq: u64) {
        if self.0.len() == MAX_GATE_STEPS {
            self.0.remove(0);
        }
        self.0.push(seq);
    }

    /// The sequence numbers, oldest first.
    pub fn seqs(&self) -> &[u64] {
        &self.0
    }

    /// Whether nobody voted or edited, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The sequence numbers of a proposal's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// What the run may use.
    pub limits: ExecutionLimits,
    /// When it was granted.
    pub since: Timestamp,
    /// When the run is closed with an unknown outcome; `None` for runs without a time limit.
    pub deadline: Option<Timestamp>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
    /// How much of the output has been logged.
    pub output: OutputPosition,
    /// Whether a cancel was sent.
    pub cancelled: bool,
    /// Whether the first result of a streaming tool has come; another one ends it.
    pub has_result: bool,
    /// How the command is run.
    pub mode: RunMode,
    /// Whether the command runs, or is only tried.
    pub kind: ExecutionKind,
}

/// Whether a granted command runs, or is only tried in the read sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutionKind {
    Run,
    /// Its output counts only if the sandbox denied it nothing; otherwise it needs a vote.
    Trial,
}

impl Execution {
    /// How much of one stream has been logged.
    pub fn stream(&self, stream: OutputStream) -> OutputStreamPosition {
        *self.output.stream(stream)
    }

    /// How many bytes of both streams have been logged.
    pub fn output_bytes(&self) -> u64 {
        self.output.total_bytes(OutputStreams(None))
    }
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// A proposal in the history of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalRecord {
    /// The proposal's id.
    pub id: MessageId,
    /// The id of its gate; `None` if it never had one.
    pub gate: Option<MessageId>,
    /// The sequence numbers of its steps.
    pub seqs: ProposalSeqs,
    /// The votes and amendments at its gate; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "GateSteps::is_empty")]
    pub steps: GateSteps,
    /// How it ended and at which sequence number; `None` while it waits or runs.
    pub closed: Option<(ProposalOutcome, u64)>,
    /// How much output it has.
    pub output: OutputPosition,
}

impl ProposalRecord {
    /// Whether this text is the id of the proposal or of its gate, or an end of one that is no
    /// shorter than a short id.
    pub fn is_named_by(&self, text: &str) -> bool {
        let gate = self.gate.as_ref();
        self.id.is_named_by(text) || gate.is_some_and(|gate| gate.is_named_by(text))
    }
}

impl Proposal {
    /// Who runs it once it is granted.
    pub fn runs(&self) -> RunBy {
        match self.client_run {
            Some(_) => RunBy::Client,
            None => RunBy::Executor,
        }
    }

    /// Whether it is over as soon as its client is gone. What an executor runs ends with the
    /// executor, which may also come back to it.
    pub fn needs_lease(&self) -> bool {
        match &self.client_run {
            Some(run) => run.deferred_until.is_none(),
            None => self.leased && matches!(self.stage, ProposalStage::Gated(_)),
        }
    }

    /// What the history of the session says about it.
    pub(crate) fn record(&self) -> ProposalRecord {
        let output = match &self.stage {
            ProposalStage::Running(execution) => execution.output,
            ProposalStage::Assessed | ProposalStage::Gated(_) | ProposalStage::Cleared => {
                OutputPosition::default()
            }
        };
        ProposalRecord {
            id: self.id.clone(),
            gate: self.gate.clone(),
            seqs: self.seqs,
            steps: self.steps.clone(),
            closed: None,
            output,
        }
    }
}
