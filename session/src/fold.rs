//! Folding: what one entry makes of the session. The only code that changes its state.

mod proposals;

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    Announce, ContextAdd, ContextUpdate, InterruptRaise, PresenceStatus, PresenceUpdate,
    RoleChange, SecretShare, ThinkingStart,
};
use pvp_protocol::{MessageId, ParticipantId, Sender, ServerMessage};

use crate::entry::{Audience, Entry, EntryError};
use crate::member::Member;
use crate::proposal::{Ending, Stage};
use crate::state::{
    AllowRule, ContextItem, OpenInterrupt, OpenStream, Session, SharedSecret, StreamKind,
};

/// How many prompts are remembered for amending.
const PROMPTS: usize = 1024;

/// How many interrupts wait for an acknowledgement at a time.
const INTERRUPTS: usize = 256;

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
            M::ToolCancel(cancel) => self.take_cancel(&cancel.tool_proposal, at),
            M::PolicyAllow(allow) => {
                if let Some(by) = by {
                    self.rules.retain(|_, rule| rule.expires_at > at);
                    let rule = AllowRule {
                        by: by.clone(),
                        at,
                        prefix: allow.prefix.clone(),
                        expires_at: allow.expires_at,
                        reason: allow.reason.clone(),
                    };
                    self.rules.insert(id.clone(), rule);
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
}
