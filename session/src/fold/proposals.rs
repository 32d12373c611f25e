//! Folds entries about proposals, gates and runs.

use std::collections::BTreeMap;

use pvp_protocol::payload::{
    Approval, ClearedBy, GateAmend, GateOutcome, GateRequest, GateResolve, GateTimeout, RunBy,
    ShellExec, TimeoutResolution, ToolDefer, ToolDiscard, ToolExecute, ToolOutput, ToolPropose,
    ToolResult,
};
use pvp_protocol::{
    Action, Assessment, Category, Command, ExecutionLimits, MessageId, ParticipantId, Risk,
    Timestamp, ToolCategory, ToolKind,
};

use crate::gate::Gate;
use crate::output_index::{IndexChange, OutputPosition};
use crate::proposal::{
    ClientRun, Execution, ExecutionKind, GateSteps, Proposal, ProposalOutcome, ProposalRecord,
    ProposalSeqs, ProposalStage,
};
use crate::state::Session;

const NOT_ASSESSED: &str = "it has no assessment";

/// How long after its time limit a run may go without a result before it is closed as unknown. It
/// covers the lifetime of the grant, killing the command, and a reconnect.
const RESULT_GRACE_MS: u64 = 120_000;

/// The fields of a proposal that an amendment changes.
pub(super) struct AmendableFields<'a> {
    action: &'a mut Action,
    assessment: &'a mut Assessment,
    seqs: &'a mut ProposalSeqs,
    steps: &'a mut GateSteps,
}

impl Session {
    pub(super) fn fold_proposal(
        &mut self,
        id: &MessageId,
        propose: &ToolPropose,
    ) -> Result<Option<IndexChange>, String> {
        let action = Action::from_arguments(&propose.tool_name, &propose.arguments)
            .map_err(|error| error.to_string())?;
        let assessment = propose.assessment.as_ref().ok_or(NOT_ASSESSED)?;
        let agent = &propose.agent;
        let opened = self.open_proposal(id, agent, agent, action, assessment, &propose.description);
        if let Some(proposal) = self.proposals.get_mut(id) {
            proposal.streaming = propose.streaming;
            proposal.tool_kind = propose.tool_kind();
            proposal.claimed_risk = propose.risk_level;
            proposal.claimed_category = propose.category;
            proposal.origin.clone_from(&propose.origin);
            proposal.client_run = match propose.runs {
                RunBy::Executor => None,
                RunBy::Client => Some(ClientRun {
                    deferred_until: None,
                }),
            };
            proposal.leased = propose.lease && proposal.client_run.is_none();
            proposal.degree = propose.degree;
        }
        Ok(opened)
    }

    pub(super) fn fold_shell_exec(
        &mut self,
        id: &MessageId,
        by: Option<&ParticipantId>,
        exec: &ShellExec,
    ) -> Result<Option<IndexChange>, String> {
        let by = by.ok_or("a person's own command without a person")?;
        let executor = exec.executor.as_ref().ok_or("it names no executor")?;
        let assessment = exec.assessment.as_ref().ok_or(NOT_ASSESSED)?;
        Ok(self.open_proposal(
            id,
            by,
            executor,
            Action::from_shell_exec(exec),
            assessment,
            "a person's own command",
        ))
    }

    pub(super) fn open_proposal(
        &mut self,
        id: &MessageId,
        proposer: &ParticipantId,
        executor: &ParticipantId,
        action: Action,
        assessment: &Assessment,
        description: &str,
    ) -> Option<IndexChange> {
        let proposal = Proposal {
            id: id.clone(),
            proposer: proposer.clone(),
            executor: executor.clone(),
            action,
            tool_kind: ToolKind::SHELL,
            claimed_risk: Risk::Safe,
            claimed_category: ToolCategory::ShellExecute,
            assessment: assessment.clone(),
            description: description.to_owned(),
            streaming: false,
            degree: None,
            client_run: None,
            leased: false,
            origin: None,
            stage: ProposalStage::Assessed,
            gate: None,
            trial: None,
            seqs: ProposalSeqs {
                proposed: self.head,
                ..ProposalSeqs::default()
            },
            steps: GateSteps::default(),
        };
        self.proposals.insert(id.clone(), proposal);
        match assessment.category {
            Category::Blocked => self.close_proposal(id, ProposalOutcome::Blocked),
            Category::Read | Category::Write | Category::Destructive => None,
        }
    }

    pub(super) fn fold_gate_request(&mut self, id: &MessageId, request: &GateRequest) {
        let opened_seq = self.head;
        let Some(proposal) = self.proposals.get_mut(&request.action_ref) else {
            return;
        };
        proposal.gate = Some(id.clone());
        proposal.stage = ProposalStage::Gated(Gate {
            id: id.clone(),
            request: request.clone(),
            electorate: request.voters.iter().cloned().collect(),
            approvals: BTreeMap::new(),
            approval_seqs: BTreeMap::new(),
            escalated: false,
            amended_by: None,
            opened_seq,
        });
        self.proposal_by_gate
            .insert(id.clone(), request.action_ref.clone());
    }

    /// The open gate that a gate id or a proposal id names, with its proposal.
    pub(super) fn open_gate_mut(
        &mut self,
        name: &MessageId,
    ) -> Option<(&mut Gate, AmendableFields<'_>)> {
        let proposal = self.proposal_by_gate.get(name).unwrap_or(name).clone();
        let proposal = self.proposals.get_mut(&proposal)?;
        let amendable = AmendableFields {
            action: &mut proposal.action,
            assessment: &mut proposal.assessment,
            seqs: &mut proposal.seqs,
            steps: &mut proposal.steps,
        };
        match &mut proposal.stage {
            ProposalStage::Gated(gate) => Some((gate, amendable)),
            ProposalStage::Assessed | ProposalStage::Cleared | ProposalStage::Running(_) => None,
        }
    }

    pub(super) fn fold_approval(
        &mut self,
        gate: &MessageId,
        approver: &ParticipantId,
        at: Timestamp,
        comment: Option<&String>,
    ) {
        let head = self.head;
        let Some((gate, amendable)) = self.open_gate_mut(gate) else {
            return;
        };
        amendable.steps.push(head);
        gate.approval_seqs.insert(approver.clone(), head);
        let participant = approver.clone();
        let approval = Approval {
            participant,
            at,
            comment: comment.cloned(),
        };
        gate.approvals.insert(approver.clone(), approval);
    }

    /// Removes an earlier approval, because a person's last vote counts. The resolution that
    /// follows closes the gate.
    pub(super) fn fold_rejection(&mut self, gate: &MessageId, rejector: &ParticipantId) {
        let head = self.head;
        if let Some((gate, amendable)) = self.open_gate_mut(gate) {
            amendable.steps.push(head);
            gate.approvals.remove(rejector);
        }
    }

    pub(super) fn fold_amendment(
        &mut self,
        by: Option<&ParticipantId>,
        amend: &GateAmend,
    ) -> Result<(), String> {
        let head = self.head;
        let (gate, amendable) = self
            .open_gate_mut(&amend.gate)
            .ok_or("it edits a gate that is not open")?;
        let tool = match &amendable.action.command {
            Command::Tool { name, .. } => name.clone(),
            Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
                "shell".to_owned()
            }
        };
        let amended =
            Action::from_arguments(&tool, &amend.arguments).map_err(|error| error.to_string())?;
        let assessment = amend.assessment.as_ref().ok_or(NOT_ASSESSED)?;
        *amendable.action = amended;
        *amendable.assessment = assessment.clone();
        amendable.seqs.amended = Some(head);
        amendable.steps.push(head);
        gate.approvals.clear();
        gate.amended_by = by.cloned();
        gate.escalated = false;
        gate.request.category = assessment.category;
        gate.request.digest = assessment.digest;
        gate.request.deadline = amend.deadline;
        // What was tried was another command.
        gate.request.trial = None;
        if let Some(quorum) = &amend.quorum {
            gate.request.quorum = quorum.clone();
        }
        if let Some(voters) = &amend.voters {
            gate.electorate = voters.iter().cloned().collect();
            gate.request.voters.clone_from(voters);
        }
        Ok(())
    }

    pub(super) fn fold_timeout(&mut self, timeout: &GateTimeout) {
        if timeout.resolution != TimeoutResolution::Escalated {
            return;
        }
        let Some((gate, ..)) = self.open_gate_mut(&timeout.gate) else {
            return;
        };
        gate.escalated = true;
        gate.request.deadline = timeout.deadline;
        if let (Some(quorum), Some(voters)) = (&timeout.quorum, &timeout.voters) {
            gate.request.quorum = quorum.clone();
            gate.electorate = voters.iter().cloned().collect();
            gate.request.voters.clone_from(voters);
        }
    }

    pub(super) fn fold_resolution(&mut self, resolve: &GateResolve) -> Option<IndexChange> {
        if let Some(proposal) = self.proposals.get_mut(&resolve.tool_proposal) {
            proposal.seqs.resolved = Some(self.head);
        }
        let outcome = match resolve.outcome {
            GateOutcome::Approved => {
                if let Some(proposal) = self.proposals.get_mut(&resolve.tool_proposal) {
                    proposal.stage = ProposalStage::Cleared;
                }
                return None;
            }
            GateOutcome::Rejected => ProposalOutcome::Rejected,
            GateOutcome::TimedOut => ProposalOutcome::TimedOut,
            GateOutcome::Cancelled => ProposalOutcome::Cancelled,
        };
        self.close_proposal(&resolve.tool_proposal, outcome)
    }

    pub(super) fn fold_grant(&mut self, execute: &ToolExecute, at: Timestamp) {
        let Some(proposal) = self.proposals.get_mut(&execute.tool_proposal) else {
            return;
        };
        let grant = &execute.grant;
        let limits = grant.limits.unwrap_or(ExecutionLimits::CLIENT_RUN);
        let limited = limits.timeout_ms > 0;
        proposal.seqs.granted = Some(self.head);
        proposal.stage = ProposalStage::Running(Execution {
            limits,
            since: at,
            deadline: limited
                .then(|| at.plus_millis(limits.timeout_ms.saturating_add(RESULT_GRACE_MS))),
            driver: grant.driver.clone(),
            output: OutputPosition::default(),
            cancelled: false,
            has_result: false,
            mode: grant.action.mode,
            kind: match grant.cleared_by {
                ClearedBy::Tried => ExecutionKind::Trial,
                ClearedBy::Read
                | ClearedBy::Quorum
                | ClearedBy::Clock
                | ClearedBy::AllowRule
                | ClearedBy::Direct => ExecutionKind::Run,
            },
        });
    }

    /// Ends a trial: the proposal is where it was before, and its grant is spent.
    pub(super) fn fold_discard(&mut self, discard: &ToolDiscard) {
        if let Some(proposal) = self.proposals.get_mut(&discard.tool_proposal) {
            proposal.stage = ProposalStage::Assessed;
            proposal.trial = Some(discard.trial.clone());
            proposal.seqs.granted = None;
        }
    }

    pub(super) fn execution_mut(&mut self, proposal: &MessageId) -> Option<&mut Execution> {
        match &mut self.proposals.get_mut(proposal)?.stage {
            ProposalStage::Running(execution) => Some(execution),
            ProposalStage::Assessed | ProposalStage::Gated(_) | ProposalStage::Cleared => None,
        }
    }

    pub(super) fn fold_output(&mut self, output: &ToolOutput) -> Option<IndexChange> {
        let seq = self.head;
        let run = self.proposals.get(&output.tool_proposal)?.seqs.proposed;
        let execution = self.execution_mut(&output.tool_proposal)?;
        let chunk = execution.output.advance(run, seq, output);
        Some(IndexChange::Output(chunk))
    }

    /// A result ends its proposal, except the first one of a streaming tool.
    pub(super) fn fold_result(&mut self, result: &ToolResult) -> Option<IndexChange> {
        if !result.more_output {
            return self.close_proposal(&result.tool_proposal, ProposalOutcome::Finished);
        }
        if let Some(execution) = self.execution_mut(&result.tool_proposal) {
            execution.has_result = true;
            if !execution.cancelled {
                execution.deadline = None;
            }
        }
        None
    }

    /// A client goes away, or is back.
    pub(super) fn fold_defer(&mut self, defer: &ToolDefer, at: Timestamp) {
        if let Some(proposal) = self.proposals.get_mut(&defer.tool_proposal)
            && let Some(run) = &mut proposal.client_run
        {
            let seconds = u64::from(defer.seconds);
            run.deferred_until = (seconds > 0).then(|| at.plus_seconds(seconds));
        }
    }

    pub(super) fn fold_cancel(&mut self, proposal: &MessageId, at: Timestamp) {
        if let Some(execution) = self.execution_mut(proposal) {
            execution.cancelled = true;
            // A run without a time limit gets a deadline for its result once it is cancelled.
            execution
                .deadline
                .get_or_insert(at.plus_millis(RESULT_GRACE_MS));
        }
    }

    pub(super) fn close_proposal(
        &mut self,
        proposal: &MessageId,
        outcome: ProposalOutcome,
    ) -> Option<IndexChange> {
        let open = self.proposals.remove(proposal)?;
        let record = ProposalRecord {
            closed: Some((outcome, self.head)),
            ..open.record()
        };
        let forgotten = self.closed_proposals.insert(record.clone());
        if let Some(gate) = forgotten.and_then(|forgotten| forgotten.gate) {
            self.proposal_by_gate.remove(&gate);
        }
        Some(IndexChange::Closed(record))
    }
}
