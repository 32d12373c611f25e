//! Folding: what one entry makes of the session. The only code that changes its state.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{
    Announce, Approval, ContextAdd, ContextUpdate, GateAmend, GateOutcome, GateRequest,
    GateResolve, GateTimeout, InterruptRaise, PresenceStatus, PresenceUpdate, RoleChange,
    SecretShare, ShellExec, ThinkingStart, TimeoutResolution, ToolExecute, ToolOutput, ToolPropose,
};
use pvp_protocol::{
    Action, Assessment, Category, Command, MessageId, ParticipantId, Sender, ServerMessage,
    Timestamp,
};

use crate::entry::{Audience, Entry, EntryError};
use crate::gate::Gate;
use crate::member::Member;
use crate::proposal::{Closed, Ending, Execution, Proposal, Stage, StreamState};
use crate::state::{
    AllowRule, ContextItem, OpenInterrupt, OpenStream, Session, SharedSecret, StreamKind,
};

/// How many prompts are remembered for amending.
const PROMPTS: usize = 1024;

/// How many interrupts wait for an acknowledgement at a time.
const INTERRUPTS: usize = 256;

/// Beyond its own time limit, how long a run may go without a result before it is given up:
/// the grant's life, killing, and a reconnect.
const RESULT_GRACE_MS: u64 = 120_000;

impl Session {
    /// Takes one stored entry, in order, without deciding anything.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), EntryError> {
        if entry.seq() != self.head + 1 {
            return Err(EntryError::OutOfOrder {
                head: self.head,
                found: entry.seq(),
            });
        }
        self.evolve(entry);
        Ok(())
    }

    pub(crate) fn evolve(&mut self, entry: &Entry) {
        let envelope = &entry.envelope;
        self.head = entry.seq();
        self.clock = self.clock.max(envelope.at);
        self.seen
            .remember(entry.id().clone(), entry.origin, self.head);
        let by = match &envelope.heading.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        };
        self.take(entry, by);
    }

    fn take(&mut self, entry: &Entry, by: Option<&ParticipantId>) {
        use ServerMessage as M;
        let (id, at) = (entry.id(), entry.envelope.at);
        match &entry.envelope.message {
            M::SessionCreate(create) => {
                self.name.clone_from(&create.name);
                self.config = create.config.clone();
            }
            M::SessionConfigUpdate(update) => {
                self.config = self.config.clone().with(&update.changes);
            }
            M::SessionLeave(_) => self.take_leave(by),
            M::SessionEnd(end) => self.ended = Some(end.clone()),
            M::Announce(announce) => self.take_announce(announce),
            M::RoleChange(change) => self.take_role_change(change),
            M::PresenceUpdate(presence) => self.take_presence(presence),
            M::ContextAdd(add) => self.take_context(by, add, &entry.audience),
            M::ContextUpdate(update) => self.take_context_update(update),
            M::ContextRemove(remove) => {
                self.context.remove(&remove.key);
            }
            M::SecretShare(share) => self.take_secret(by, share),
            M::SecretRevoke(revoke) => {
                self.secrets.remove(&revoke.key);
            }
            M::PromptSubmit(_) => {
                self.prompts.insert(self.head, id.clone());
                if self.prompts.len() > PROMPTS {
                    self.prompts.pop_first();
                }
            }
            M::ThinkingStart(ThinkingStart { agent, .. }) => {
                self.take_stream(id, agent, StreamKind::Thinking, &entry.audience);
            }
            M::ResponseStart(start) => {
                self.take_stream(id, &start.agent, StreamKind::Response, &entry.audience);
            }
            M::ThinkingEnd(_) | M::ResponseEnd(_) => {
                if let Some(start) = &entry.envelope.heading.reference {
                    self.streams.remove(start);
                }
            }
            M::ToolPropose(propose) => self.take_proposal(id, propose),
            M::ShellExec(exec) => self.take_shell_exec(id, by, exec),
            M::GateRequest(request) => self.take_gate(id, request),
            M::ToolApprove(vote) => {
                self.take_approval(
                    &vote.tool_proposal,
                    &vote.approver,
                    at,
                    vote.comment.as_ref(),
                );
            }
            M::GateApprove(vote) => {
                self.take_approval(&vote.gate, &vote.approver, at, vote.comment.as_ref());
            }
            M::ToolReject(vote) => self.take_rejection(&vote.tool_proposal, &vote.rejector),
            M::GateReject(vote) => self.take_rejection(&vote.gate, &vote.rejector),
            M::GateAmend(amend) => self.take_amendment(by, amend),
            M::GateTimeout(timeout) => self.take_timeout(timeout),
            M::GateResolve(resolve) => self.take_resolution(resolve),
            M::ToolExecute(execute) => self.take_grant(execute, at),
            M::ToolOutput(output) => self.take_output(output),
            M::ToolResult(result) => self.close(&result.tool_proposal, Ending::Finished),
            M::ToolCancel(cancel) => self.take_cancel(&cancel.tool_proposal),
            M::PolicyAllow(allow) => {
                if let Some(by) = by {
                    self.rules.retain(|_, rule| rule.expires_at > at);
                    let (prefix, expires_at) = (allow.prefix.clone(), allow.expires_at);
                    self.rules.insert(
                        id.clone(),
                        AllowRule {
                            by: by.clone(),
                            prefix,
                            expires_at,
                        },
                    );
                }
            }
            M::PolicyRevoke(revoke) => {
                self.rules.remove(&revoke.rule);
            }
            M::InterruptRaise(interrupt) => self.take_interrupt(id, interrupt),
            M::InterruptAcknowledge(acknowledgement) => {
                if let Some(open) = self.interrupts.get_mut(&acknowledgement.interrupt) {
                    open.awaited.remove(&acknowledgement.by);
                    if open.awaited.is_empty() {
                        self.interrupts.remove(&acknowledgement.interrupt);
                    }
                }
            }
            M::PromptAmend(_)
            | M::PromptDraft(_)
            | M::ThinkingChunk(_)
            | M::ResponseChunk(_)
            | M::ToolInput(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_)
            | M::SessionWelcome(_)
            | M::SessionAck(_)
            | M::OutputPage(_)
            | M::Error(_) => {}
        }
    }

    fn take_announce(&mut self, announce: &Announce) {
        let known = self.people.get(&announce.id).filter(|member| !member.left);
        let member = Member {
            announce: announce.clone(),
            explicit: announce.capabilities.iter().flatten().copied().collect(),
            roles_set_by_admin: known.is_some_and(|member| member.roles_set_by_admin)
                || self
                    .people
                    .get(&announce.id)
                    .is_some_and(|m| m.roles_set_by_admin),
            left: false,
            timed_out: known.is_some_and(|member| member.timed_out),
        };
        let may_vote = member.may_vote();
        self.people.insert(announce.id.clone(), member);
        if !may_vote {
            self.strike_from_votes(&announce.id);
        }
    }

    fn take_leave(&mut self, by: Option<&ParticipantId>) {
        let Some(by) = by else { return };
        if let Some(member) = self.people.get_mut(by) {
            member.left = true;
            member.timed_out = false;
        }
        self.streams.retain(|_, stream| stream.agent != *by);
        for open in self.interrupts.values_mut() {
            open.awaited.remove(by);
        }
        self.interrupts.retain(|_, open| !open.awaited.is_empty());
        self.strike_from_votes(by);
    }

    /// Who left or lost the right is out of every open vote, even if the right comes back.
    fn strike_from_votes(&mut self, who: &ParticipantId) {
        for proposal in self.proposals.values_mut() {
            if let Stage::Gated(gate) = &mut proposal.stage {
                gate.electorate.remove(who);
                gate.approvals.remove(who);
            }
        }
    }

    fn take_role_change(&mut self, change: &RoleChange) {
        let Some(member) = self.people.get_mut(&change.participant) else {
            return;
        };
        member.announce.roles.clone_from(&change.new_roles);
        member.roles_set_by_admin = true;
        if let Some(capabilities) = &change.capabilities {
            member.explicit = capabilities.iter().copied().collect();
            member.announce.capabilities = Some(capabilities.clone());
        }
        if !member.may_vote() {
            self.strike_from_votes(&change.participant);
        }
    }

    fn take_presence(&mut self, presence: &PresenceUpdate) {
        if let Some(member) = self.people.get_mut(&presence.participant) {
            member.timed_out = matches!(
                presence.status,
                PresenceStatus::Away | PresenceStatus::Disconnected
            );
        }
    }

    fn take_context(&mut self, by: Option<&ParticipantId>, add: &ContextAdd, audience: &Audience) {
        let item = ContextItem {
            by: by.cloned(),
            audience: audience.clone(),
            bytes: ContextItem::cost(add, audience),
            shown: by.is_none().then(|| add.clone()),
        };
        self.context.insert(add.key.clone(), item);
    }

    fn take_context_update(&mut self, update: &ContextUpdate) {
        let Some(item) = self.context.get_mut(&update.key) else {
            return;
        };
        item.bytes = item.cost_after(update);
    }

    fn take_secret(&mut self, by: Option<&ParticipantId>, share: &SecretShare) {
        let Some(by) = by.cloned() else { return };
        let scope = share.scope.iter().cloned().collect();
        let secret = SharedSecret {
            by,
            scope,
            expires_at: share.expires_at,
        };
        self.secrets.insert(share.key.clone(), secret);
    }

    fn take_stream(
        &mut self,
        id: &MessageId,
        agent: &ParticipantId,
        kind: StreamKind,
        audience: &Audience,
    ) {
        let (agent, audience) = (agent.clone(), audience.clone());
        self.streams.insert(
            id.clone(),
            OpenStream {
                kind,
                agent,
                audience,
                begun_seq: self.head,
            },
        );
    }

    fn take_proposal(&mut self, id: &MessageId, propose: &ToolPropose) {
        let Ok(action) = Action::read(&propose.tool_name, &propose.arguments) else {
            return;
        };
        let Some(assessment) = &propose.assessment else {
            return;
        };
        let agent = &propose.agent;
        self.open_proposal(id, agent, agent, action, assessment, &propose.description);
    }

    fn take_shell_exec(&mut self, id: &MessageId, by: Option<&ParticipantId>, exec: &ShellExec) {
        let (Some(by), Some(executor), Some(assessment)) = (by, &exec.executor, &exec.assessment)
        else {
            return;
        };
        let action = Action {
            cwd: exec.cwd.clone(),
            timeout_seconds: exec.timeout_seconds,
            ..Action::plain(Command::LoginShell {
                line: exec.command.clone(),
            })
        };
        self.open_proposal(
            id,
            by,
            executor,
            action,
            assessment,
            "a person's own command",
        );
    }

    fn open_proposal(
        &mut self,
        id: &MessageId,
        proposer: &ParticipantId,
        executor: &ParticipantId,
        action: Action,
        assessment: &Assessment,
        description: &str,
    ) {
        let proposal = Proposal {
            id: id.clone(),
            proposer: proposer.clone(),
            executor: executor.clone(),
            action,
            assessment: assessment.clone(),
            description: description.to_owned(),
            stage: Stage::Judged,
            first_seq: self.head,
        };
        self.proposals.insert(id.clone(), proposal);
        if assessment.category == Category::Blocked {
            self.close(id, Ending::Blocked);
        }
    }

    fn take_gate(&mut self, id: &MessageId, request: &GateRequest) {
        let opened_seq = self.head;
        let Some(proposal) = self.proposals.get_mut(&request.action_ref) else {
            return;
        };
        proposal.stage = Stage::Gated(Gate {
            id: id.clone(),
            request: request.clone(),
            electorate: request.voters.iter().cloned().collect(),
            approvals: BTreeMap::new(),
            escalated: false,
            amended_by: None,
            opened_seq,
        });
        self.gates.insert(id.clone(), request.action_ref.clone());
    }

    /// The proposal, if its gate is open, that a gate id or a proposal id names.
    fn gate_mut(&mut self, name: &MessageId) -> Option<(&mut Gate, &mut Action, &mut Assessment)> {
        let proposal = self.gates.get(name).unwrap_or(name).clone();
        let proposal = self.proposals.get_mut(&proposal)?;
        match &mut proposal.stage {
            Stage::Gated(gate) => Some((gate, &mut proposal.action, &mut proposal.assessment)),
            Stage::Judged | Stage::Cleared { .. } | Stage::Running(_) => None,
        }
    }

    fn take_approval(
        &mut self,
        gate: &MessageId,
        approver: &ParticipantId,
        at: Timestamp,
        comment: Option<&String>,
    ) {
        let Some((gate, ..)) = self.gate_mut(gate) else {
            return;
        };
        let participant = approver.clone();
        let approval = Approval {
            participant,
            at,
            comment: comment.cloned(),
        };
        gate.approvals.insert(approver.clone(), approval);
    }

    /// The last vote of a person counts; the gate closes by the resolution that follows.
    fn take_rejection(&mut self, gate: &MessageId, rejector: &ParticipantId) {
        if let Some((gate, ..)) = self.gate_mut(gate) {
            gate.approvals.remove(rejector);
        }
    }

    fn take_amendment(&mut self, by: Option<&ParticipantId>, amend: &GateAmend) {
        let Some((gate, action, assessment)) = self.gate_mut(&amend.gate) else {
            return;
        };
        let tool = match &action.command {
            Command::Tool { name, .. } => name.clone(),
            Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
                "shell".to_owned()
            }
        };
        let (Ok(amended), Some(verdict)) =
            (Action::read(&tool, &amend.arguments), &amend.assessment)
        else {
            return;
        };
        *action = amended;
        *assessment = verdict.clone();
        gate.approvals.clear();
        gate.amended_by = by.cloned();
        gate.escalated = false;
        gate.request.category = verdict.category;
        gate.request.digest = verdict.digest;
        gate.request.deadline = amend.deadline;
        if let Some(quorum) = &amend.quorum {
            gate.request.quorum = quorum.clone();
        }
        if let Some(voters) = &amend.voters {
            gate.electorate = voters.iter().cloned().collect();
            gate.request.voters.clone_from(voters);
        }
    }

    fn take_timeout(&mut self, timeout: &GateTimeout) {
        if timeout.resolution != TimeoutResolution::Escalated {
            return;
        }
        let Some((gate, ..)) = self.gate_mut(&timeout.gate) else {
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

    fn take_resolution(&mut self, resolve: &GateResolve) {
        let ending = match resolve.outcome {
            GateOutcome::Approved => {
                if let Some(proposal) = self.proposals.get_mut(&resolve.tool_proposal) {
                    proposal.stage = Stage::Cleared {
                        gate: resolve.gate.clone(),
                    };
                }
                return;
            }
            GateOutcome::Rejected => Ending::Rejected,
            GateOutcome::TimedOut => Ending::TimedOut,
            GateOutcome::Cancelled => Ending::Cancelled,
        };
        self.close(&resolve.tool_proposal, ending);
    }

    fn take_grant(&mut self, execute: &ToolExecute, at: Timestamp) {
        let Some(proposal) = self.proposals.get_mut(&execute.tool_proposal) else {
            return;
        };
        let grant = &execute.grant;
        let gate = match &proposal.stage {
            Stage::Cleared { gate } => Some(gate.clone()),
            Stage::Judged | Stage::Gated(_) | Stage::Running(_) => None,
        };
        let limited = grant.limits.timeout_ms > 0;
        proposal.stage = Stage::Running(Execution {
            grant: grant.id.clone(),
            gate,
            limits: grant.limits,
            since: at,
            deadline: limited
                .then(|| at.plus_millis(grant.limits.timeout_ms.saturating_add(RESULT_GRACE_MS))),
            driver: grant.driver.clone(),
            stdout: StreamState::default(),
            stderr: StreamState::default(),
            cancelled: false,
            mode: grant.action.mode,
        });
    }

    fn execution_mut(&mut self, proposal: &MessageId) -> Option<&mut Execution> {
        match &mut self.proposals.get_mut(proposal)?.stage {
            Stage::Running(execution) => Some(execution),
            Stage::Judged | Stage::Gated(_) | Stage::Cleared { .. } => None,
        }
    }

    fn take_output(&mut self, output: &ToolOutput) {
        let Some(execution) = self.execution_mut(&output.tool_proposal) else {
            return;
        };
        let stream = execution.stream_mut(output.stream);
        stream.bytes += output.text.len() as u64;
        stream.complete |= output.complete;
    }

    fn take_cancel(&mut self, proposal: &MessageId) {
        if let Some(execution) = self.execution_mut(proposal) {
            execution.cancelled = true;
        }
    }

    fn take_interrupt(&mut self, id: &MessageId, interrupt: &InterruptRaise) {
        let awaited: BTreeSet<_> = self
            .members()
            .filter(|(_, member)| member.is_present_agent())
            .map(|(agent, _)| agent.clone())
            .filter(|agent| {
                interrupt
                    .target
                    .as_ref()
                    .is_none_or(|target| target == agent)
            })
            .collect();
        if awaited.is_empty() {
            return;
        }
        let open = OpenInterrupt {
            urgency: interrupt.urgency,
            awaited,
            raised_seq: self.head,
        };
        self.interrupts.insert(id.clone(), open);
        if self.interrupts.len() > INTERRUPTS {
            let oldest = self
                .interrupts
                .iter()
                .min_by_key(|(_, open)| open.raised_seq);
            let oldest = oldest.map(|(id, _)| id.clone());
            self.interrupts.retain(|id, _| Some(id) != oldest.as_ref());
        }
    }

    fn close(&mut self, proposal: &MessageId, ending: Ending) {
        if let Some(open) = self.proposals.remove(proposal) {
            let closed = Closed {
                ending,
                first_seq: open.first_seq,
                last_seq: self.head,
            };
            self.closed.insert(proposal.clone(), closed);
        }
    }
}
