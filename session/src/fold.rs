//! Folds entries into the session. This is the only code that changes its state.

mod proposals;

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    Announce, ContextAdd, ContextUpdate, InterruptRaise, PresenceStatus, PresenceUpdate,
    RoleChange, SecretShare, ThinkingStart,
};
use pvp_protocol::{MessageId, ParticipantId, Sender, ServerMessage};

use crate::apply::WORKING_DIRECTORY_KEY;
use crate::entry::{Audience, Entry, EntryError};
use crate::member::Member;
use crate::output_index::IndexChange;
use crate::proposal::ProposalStage;
use crate::state::{
    AgentStream, AgentStreamKind, AllowRule, Allowed, ContextItem, ContextSlot, OpenInterrupt,
    RecentPrompt, Session, SharedSecret,
};

/// How many recent prompts can be amended.
const MAX_PROMPTS: usize = 1024;

/// How many interrupts may wait for acknowledgements at a time.
const MAX_INTERRUPTS: usize = 256;

impl Session {
    /// Folds the next stored entry, without deciding anything. Returns what the entry adds to the
    /// indexes of the log.
    pub fn replay(&mut self, entry: &Entry) -> Result<Option<IndexChange>, EntryError> {
        if entry.seq() != self.head + 1 {
            return Err(EntryError::OutOfOrder {
                head: self.head,
                found: entry.seq(),
            });
        }
        self.fold_entry(entry)
    }

    /// Applies an entry to the state. Fails if the entry lacks what the state needs of it: what was
    /// proposed and assessed is never dropped silently.
    pub(crate) fn fold_entry(&mut self, entry: &Entry) -> Result<Option<IndexChange>, EntryError> {
        let envelope = &entry.envelope;
        self.head = entry.seq();
        self.last_entry_at = self.last_entry_at.max(envelope.at);
        self.recent_messages
            .record(entry.id(), entry.submitted_digest);
        let by = match &envelope.header.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        };
        self.fold_message(entry, by)
            .map_err(|why| EntryError::Unusable {
                seq: self.head,
                why,
            })
    }

    fn fold_message(
        &mut self,
        entry: &Entry,
        by: Option<&ParticipantId>,
    ) -> Result<Option<IndexChange>, String> {
        use ServerMessage as M;
        let (id, at) = (entry.id(), entry.envelope.at);
        match &entry.envelope.message {
            M::SessionCreate(create) => {
                self.name.clone_from(&create.name);
                self.created_at = at;
                self.config = create.config.clone();
            }
            M::SessionConfigUpdate(update) => {
                self.config = self.config.clone().with_changes(&update.changes);
            }
            M::SessionLeave(leave) if leave.connection_lost => self.fold_connection_lost(by),
            M::SessionLeave(_) => self.fold_leave(by),
            M::SessionEnd(end) => self.ended = Some(end.clone()),
            M::Announce(announce) => self.fold_announce(announce),
            M::RoleChange(change) => self.fold_role_change(by, change),
            M::PresenceUpdate(presence) => self.fold_presence(presence),
            M::ContextAdd(add) => self.fold_context_add(by, add, &entry.audience),
            M::ContextUpdate(update) => self.fold_context_update(by, update),
            M::ContextRemove(remove) => {
                self.fold_context_remove(by, &remove.key);
            }
            M::SecretShare(share) => self.fold_secret_share(by, share),
            M::SecretRevoke(revoke) => {
                self.secrets.remove(&revoke.key);
            }
            M::PromptSubmit(prompt) => {
                let recent = RecentPrompt {
                    id: id.clone(),
                    target: prompt.target_agent.clone(),
                    taken: false,
                };
                self.prompts.insert(self.head, recent);
                if self.prompts.len() > MAX_PROMPTS {
                    self.prompts.pop_first();
                }
            }
            M::ThinkingStart(ThinkingStart {
                agent, prompt_ref, ..
            }) => {
                self.fold_prompt_taken(agent, prompt_ref);
                self.fold_stream_start(id, agent, AgentStreamKind::Thinking, &entry.audience);
            }
            M::ResponseStart(start) => {
                self.fold_prompt_taken(&start.agent, &start.prompt_ref);
                self.fold_stream_start(
                    id,
                    &start.agent,
                    AgentStreamKind::Response,
                    &entry.audience,
                );
            }
            M::ThinkingEnd(_) | M::ResponseEnd(_) => {
                if let Some(start) = &entry.envelope.header.reference {
                    self.agent_streams.remove(start);
                }
            }
            M::ToolPropose(propose) => return self.fold_proposal(id, propose),
            M::ShellExec(exec) => return self.fold_shell_exec(id, by, exec),
            M::GateRequest(request) => self.fold_gate_request(id, request),
            M::ToolApprove(vote) => {
                self.fold_approval(
                    &vote.tool_proposal,
                    &vote.approver,
                    at,
                    vote.comment.as_ref(),
                );
            }
            M::GateApprove(vote) => {
                self.fold_approval(&vote.gate, &vote.approver, at, vote.comment.as_ref());
            }
            M::ToolReject(vote) => self.fold_rejection(&vote.tool_proposal, &vote.rejector),
            M::GateReject(vote) => self.fold_rejection(&vote.gate, &vote.rejector),
            M::GateAmend(amend) => self.fold_amendment(by, amend)?,
            M::GateTimeout(timeout) => self.fold_timeout(timeout),
            M::GateResolve(resolve) => return Ok(self.fold_resolution(resolve)),
            M::ToolExecute(execute) => self.fold_grant(execute, at),
            M::ToolOutput(output) => return Ok(self.fold_output(output)),
            M::ToolResult(result) => return Ok(self.fold_result(result)),
            M::ToolDiscard(discard) => self.fold_discard(discard),
            M::ToolDefer(defer) => self.fold_defer(defer, at),
            M::ToolCancel(cancel) => self.fold_cancel(&cancel.tool_proposal, at),
            M::PolicyAllow(allow) => {
                if let Some(by) = by {
                    self.allow_rules.retain(|_, rule| rule.expires_at > at);
                    let rule = AllowRule {
                        by: by.clone(),
                        at,
                        allowed: match &allow.read_root {
                            Some(root) => Allowed::Reading { root: root.clone() },
                            None => Allowed::Commands {
                                prefix: allow.prefix.clone(),
                                directory: allow.directory.clone(),
                            },
                        },
                        expires_at: allow.expires_at,
                        reason: allow.reason.clone(),
                    };
                    self.allow_rules.insert(id.clone(), rule);
                }
            }
            M::PolicyRevoke(revoke) => {
                self.allow_rules.remove(&revoke.rule);
            }
            M::InterruptRaise(interrupt) => self.fold_interrupt(id, interrupt),
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
            | M::OutputPage(_) => {}
            M::Error(report) => {
                if let (Some(by), Some(prompt)) = (by, &report.related_to) {
                    self.fold_prompt_taken(by, prompt);
                }
            }
        }
        Ok(None)
    }

    fn fold_announce(&mut self, announce: &Announce) {
        let known = self.members.get(&announce.id);
        let member = Member {
            announce: announce.clone(),
            extra_capabilities: announce.capabilities.iter().flatten().copied().collect(),
            // What an admin decided holds for those who left and come back, too.
            roles_set_by_admin: known.is_some_and(|member| member.roles_set_by_admin),
            given_roles: known.map_or_else(BTreeSet::new, |member| member.given_roles.clone()),
            given_capabilities: known
                .map_or_else(BTreeSet::new, |member| member.given_capabilities.clone()),
            left: false,
            connection_lost: false,
            timed_out: known.is_some_and(|member| !member.left && member.timed_out),
        };
        let may_vote = member.may_vote();
        self.members.insert(announce.id.clone(), member);
        if !may_vote {
            self.remove_from_votes(&announce.id);
        }
    }

    fn fold_leave(&mut self, by: Option<&ParticipantId>) {
        let Some(by) = by else { return };
        if let Some(member) = self.members.get_mut(by) {
            member.left = true;
            member.connection_lost = false;
            member.timed_out = false;
        }
        self.agent_streams.retain(|_, stream| stream.agent != *by);
        for open in self.interrupts.values_mut() {
            open.awaited.remove(by);
        }
        self.interrupts.retain(|_, open| !open.awaited.is_empty());
        self.remove_from_votes(by);
    }

    /// Somebody whose connections are gone stays a member with their votes, and is announced again
    /// when they are back.
    fn fold_connection_lost(&mut self, by: Option<&ParticipantId>) {
        if let Some(member) = by.and_then(|by| self.members.get_mut(by)) {
            member.connection_lost = true;
        }
    }

    /// Removes someone who left or lost the right to vote from every open gate. They stay removed
    /// even if they get the right back.
    fn remove_from_votes(&mut self, who: &ParticipantId) {
        for proposal in self.proposals.values_mut() {
            if let ProposalStage::Gated(gate) = &mut proposal.stage {
                gate.electorate.remove(who);
                gate.approvals.remove(who);
            }
        }
    }

    fn fold_role_change(&mut self, by: Option<&ParticipantId>, change: &RoleChange) {
        let Some(member) = self.members.get_mut(&change.participant) else {
            return;
        };
        let before = std::mem::take(&mut member.announce.roles);
        member.announce.roles.clone_from(&change.new_roles);
        if let Some(capabilities) = &change.capabilities {
            let new = capabilities.iter().copied().collect();
            let before = std::mem::replace(&mut member.extra_capabilities, new);
            member.announce.capabilities = Some(capabilities.clone());
            let given = capabilities.iter().filter(|it| !before.contains(it));
            let given = given.filter(|_| by.is_some()).copied();
            member.given_capabilities.extend(given);
        }
        if by.is_some() {
            member.roles_set_by_admin = true;
            let new_roles = change.new_roles.iter();
            let given = new_roles.filter(|role| !before.contains(role)).copied();
            member.given_roles.extend(given);
        } else if change.new_roles.is_empty() {
            // Their last token has ended; a new one says anew what they may do.
            member.roles_set_by_admin = false;
        }
        let (roles, capabilities) = (&member.announce.roles, &member.extra_capabilities);
        member.given_roles.retain(|role| roles.contains(role));
        member
            .given_capabilities
            .retain(|capability| capabilities.contains(capability));
        if !member.may_vote() {
            self.remove_from_votes(&change.participant);
        } else if change.votes_void == Some(true) {
            self.void_approvals(&change.participant);
        }
    }

    /// Removes someone's approvals from every open gate; they may approve again.
    fn void_approvals(&mut self, who: &ParticipantId) {
        for proposal in self.proposals.values_mut() {
            if let ProposalStage::Gated(gate) = &mut proposal.stage {
                gate.approvals.remove(who);
            }
        }
    }

    fn fold_presence(&mut self, presence: &PresenceUpdate) {
        if let Some(member) = self.members.get_mut(&presence.participant) {
            member.timed_out = matches!(
                presence.status,
                PresenceStatus::Away | PresenceStatus::Disconnected
            );
        }
    }

    fn fold_context_add(
        &mut self,
        by: Option<&ParticipantId>,
        add: &ContextAdd,
        audience: &Audience,
    ) {
        let item = ContextItem {
            by: by.cloned(),
            audience: audience.clone(),
            bytes: ContextItem::stored_bytes(add, audience),
            sent_on_join: (add.key == WORKING_DIRECTORY_KEY).then(|| add.clone()),
        };
        match by {
            Some(by) if *audience != Audience::everyone() => {
                let owned = self.context.get(&add.key).map(|item| item.by.as_ref());
                if owned == Some(Some(by)) {
                    self.context.remove(&add.key);
                }
                let items = self.private_context.entry(add.key.clone()).or_default();
                items.insert(by.clone(), item);
            }
            Some(_) | None => {
                if let Some(by) = by {
                    self.remove_private_item(&add.key, by);
                }
                self.context.insert(add.key.clone(), item);
            }
        }
    }

    fn fold_context_update(&mut self, by: Option<&ParticipantId>, update: &ContextUpdate) {
        let slot = by.and_then(|by| self.context_slot(by, &update.key));
        let item = match slot.unwrap_or(ContextSlot::Public) {
            ContextSlot::Public => self.context.get_mut(&update.key),
            ContextSlot::Private(owner) => self
                .private_context
                .get_mut(&update.key)
                .and_then(|items| items.get_mut(&owner)),
        };
        match item {
            Some(item) => item.bytes = item.stored_bytes_after(update),
            None => self.fold_first_update(by, update),
        }
    }

    /// An update of a key that nobody has added is its first content.
    fn fold_first_update(&mut self, by: Option<&ParticipantId>, update: &ContextUpdate) {
        let item = ContextItem {
            by: by.cloned(),
            audience: Audience::everyone(),
            bytes: 0,
            sent_on_join: None,
        };
        let bytes = item.stored_bytes_after(update);
        let item = ContextItem { bytes, ..item };
        self.context.insert(update.key.clone(), item);
    }

    fn fold_context_remove(&mut self, by: Option<&ParticipantId>, key: &str) {
        let slot = by.and_then(|by| self.context_slot(by, key));
        match slot.unwrap_or(ContextSlot::Public) {
            ContextSlot::Public => {
                self.context.remove(key);
            }
            ContextSlot::Private(owner) => self.remove_private_item(key, &owner),
        }
    }

    fn remove_private_item(&mut self, key: &str, owner: &ParticipantId) {
        if let Some(items) = self.private_context.get_mut(key) {
            items.remove(owner);
            if items.is_empty() {
                self.private_context.remove(key);
            }
        }
    }

    fn fold_secret_share(&mut self, by: Option<&ParticipantId>, share: &SecretShare) {
        let Some(by) = by.cloned() else { return };
        let scope = share.scope.iter().cloned().collect();
        let secret = SharedSecret {
            by,
            scope,
            expires_at: share.expires_at,
        };
        self.secrets.insert(share.key.clone(), secret);
    }

    /// Somebody begins to answer a prompt, or says that they cannot.
    fn fold_prompt_taken(&mut self, by: &ParticipantId, prompt: &MessageId) {
        let mut recent = self.prompts.values_mut().rev();
        if let Some(prompt) = recent.find(|it| it.id == *prompt && it.target == *by) {
            prompt.taken = true;
        }
    }

    fn fold_stream_start(
        &mut self,
        id: &MessageId,
        agent: &ParticipantId,
        kind: AgentStreamKind,
        audience: &Audience,
    ) {
        let (agent, audience) = (agent.clone(), audience.clone());
        self.agent_streams.insert(
            id.clone(),
            AgentStream {
                kind,
                agent,
                audience,
                started_seq: self.head,
            },
        );
    }

    fn fold_interrupt(&mut self, id: &MessageId, interrupt: &InterruptRaise) {
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
        if self.interrupts.len() > MAX_INTERRUPTS {
            let oldest = self
                .interrupts
                .iter()
                .min_by_key(|(_, open)| open.raised_seq);
            let oldest = oldest.map(|(id, _)| id.clone());
            self.interrupts.retain(|id, _| Some(id) != oldest.as_ref());
        }
    }
}
