//! Folds the messages about commands: proposals, grants, output, results and cancels.

use std::sync::Arc;

use pvp_protocol::payload::{
    ClearedBy, ShellExec, ToolCancel, ToolDiscard, ToolExecute, ToolOutput, ToolPropose, ToolResult,
};
use pvp_protocol::{Action, Category, MessageId};

use super::proposal::{
    CancelRequestView, CommandHistoryEntry, CommandOrigin, ProposalState, ProposalView, RunView,
};
use super::requested_action::{CommandForm, MAX_CLOSED_COMMAND_BYTES, RequestedAction};
use super::text::{truncate_line, truncate_optional_line};
use super::timeline::TimelineEvent;
use super::version::{CommandVersion, LoggedVersion};
use super::{MessageMeta, View, push_bounded};

/// Maximum number of commands kept with their output; the oldest that have ended are dropped first.
pub const MAX_PROPOSALS: usize = 300;

/// Maximum number of ended commands kept as one line of history.
pub const MAX_HISTORY: usize = 1000;

/// The purpose shown for a person's own command.
const OWN_COMMAND_PURPOSE: &str = "a person's own command";

impl View {
    pub(super) fn proposal_mut(&mut self, id: &MessageId) -> Option<&mut ProposalView> {
        self.commands
            .iter_mut()
            .rev()
            .find(|proposal| proposal.id == *id)
    }

    pub(super) fn fold_propose(&mut self, meta: &MessageMeta<'_>, propose: &ToolPropose) {
        let Ok(action) = Action::from_arguments(&propose.tool_name, &propose.arguments) else {
            return;
        };
        let requested = RequestedAction::from_proposal(propose, &action);
        let (proposal, command) = (meta.id.clone(), CommandVersion::of(&requested));
        self.record_proposal(meta, CommandOrigin::Agent, requested);
        self.push_logged_item(meta, TimelineEvent::Proposed { proposal, command });
    }

    pub(super) fn fold_shell_exec(&mut self, meta: &MessageMeta<'_>, exec: &ShellExec) {
        let Some(by) = meta.participant() else { return };
        let action = Action::from_shell_exec(exec);
        let requested =
            RequestedAction::new(by, &action, exec.assessment.as_ref(), OWN_COMMAND_PURPOSE);
        let (proposal, command) = (meta.id.clone(), CommandVersion::of(&requested));
        self.record_proposal(meta, CommandOrigin::Person, requested);
        self.push_logged_item(meta, TimelineEvent::Executed { proposal, command });
    }

    /// Records a command. If a welcome already described it, only adds what the welcome left out.
    fn record_proposal(
        &mut self,
        meta: &MessageMeta<'_>,
        origin: CommandOrigin,
        requested: RequestedAction,
    ) {
        let blocked = requested.category() == Some(Category::Blocked);
        let logged = LoggedVersion::new(&requested);
        if let Some(known) = self.remove_proposal(meta.id) {
            let requested = match known.requested.assessment {
                Some(_) => Arc::new(known.requested.with_proposal(requested)),
                None => Arc::new(requested),
            };
            if let Some(card) = self.card_mut(meta.id) {
                card.requested = Arc::clone(&requested);
            }
            let (seq, at) = (meta.seq, Some(meta.at));
            // Moved to the end, so that the list is in log order.
            self.commands.push_back(ProposalView {
                seq,
                at,
                origin,
                requested,
                logged,
                ..known
            });
            return;
        }
        let (seq, at) = (meta.seq, Some(meta.at));
        let proposal = ProposalView::new(meta.id, origin, Arc::new(requested));
        self.push_proposal(ProposalView {
            seq,
            at,
            logged,
            ..proposal
        });
        if blocked {
            self.close_proposal(meta.id, ProposalState::Blocked);
        }
    }

    fn remove_proposal(&mut self, id: &MessageId) -> Option<ProposalView> {
        let index = self
            .commands
            .iter()
            .rposition(|proposal| proposal.id == *id)?;
        self.commands.remove(index)
    }

    pub(super) fn push_proposal(&mut self, proposal: ProposalView) {
        self.commands.push_back(proposal);
        if self.commands.len() > MAX_PROPOSALS {
            let over = self
                .commands
                .iter()
                .position(|proposal| proposal.state.is_over());
            self.commands.remove(over.unwrap_or(0));
        }
    }

    pub(super) fn advance_proposal(&mut self, id: &MessageId, state: ProposalState) {
        if let Some(proposal) = self.proposal_mut(id) {
            proposal.advance_to(state);
        }
    }

    /// Ends a command and adds it to the history.
    pub(super) fn close_proposal(&mut self, id: &MessageId, state: ProposalState) {
        let Some(proposal) = self.proposal_mut(id) else {
            return;
        };
        proposal.advance_to(state);
        let is_long = proposal.requested.command.len() > MAX_CLOSED_COMMAND_BYTES;
        if is_long || proposal.requested.call.is_some() {
            Arc::make_mut(&mut proposal.requested).shorten();
        }
        let entry = CommandHistoryEntry::new(proposal);
        match self
            .history
            .iter_mut()
            .rev()
            .find(|entry| entry.proposal == *id)
        {
            Some(known) => *known = entry,
            None => push_bounded(&mut self.history, entry, MAX_HISTORY),
        }
    }

    pub(super) fn fold_execute(&mut self, meta: &MessageMeta<'_>, execute: &ToolExecute) {
        let (id, action) = (&execute.tool_proposal, &execute.grant.action);
        if self.proposal(id).is_none() {
            self.push_granted_proposal(id, action);
        }
        let Some(proposal) = self.proposal_mut(id) else {
            return;
        };
        let granted = proposal.run.as_ref().is_some_and(|run| run.grant.is_some());
        if granted || proposal.state > ProposalState::Over {
            return;
        }
        proposal.run = Some(RunView::from_grant(execute, meta.at));
        proposal.requested = Arc::new(proposal.requested.with_granted_action(action));
        proposal.advance_to(ProposalState::Running);
    }

    /// Records a command from its grant, because the proposal was before the messages received.
    fn push_granted_proposal(&mut self, id: &MessageId, action: &Action) {
        let requested = RequestedAction::from_granted_action(action);
        let origin = match requested.form {
            CommandForm::LoginShell => CommandOrigin::Person,
            CommandForm::Shell | CommandForm::Argv | CommandForm::Tool => CommandOrigin::Agent,
        };
        self.push_proposal(ProposalView::new(id, origin, Arc::new(requested)));
    }

    pub(super) fn fold_output(&mut self, output: &ToolOutput) {
        let Some(proposal) = self.proposal_mut(&output.tool_proposal) else {
            return;
        };
        match proposal.state {
            ProposalState::Running | ProposalState::Over => {}
            ProposalState::Judged
            | ProposalState::Waiting
            | ProposalState::Approved
            | ProposalState::Blocked
            | ProposalState::Rejected
            | ProposalState::TimedOut
            | ProposalState::Cancelled
            | ProposalState::Finished => return,
        }
        let (stream, offset) = (output.stream, output.offset);
        proposal.output.append(stream, offset, &output.text);
        if output.complete {
            proposal.output.mark_complete(stream);
        }
    }

    pub(super) fn fold_result(&mut self, meta: &MessageMeta<'_>, result: &ToolResult) {
        let id = &result.tool_proposal;
        let open = |proposal: &&mut ProposalView| proposal.state <= ProposalState::Over;
        let Some(proposal) = self.proposal_mut(id).filter(open) else {
            return;
        };
        // What it returned so far is in the output already.
        if result.more_output {
            return;
        }
        proposal.record_result(result, meta.at);
        self.close_proposal(id, ProposalState::Finished);
    }

    /// A trial that was discarded leaves the command as if it had not been granted.
    pub(super) fn fold_discard(&mut self, meta: &MessageMeta<'_>, discard: &ToolDiscard) {
        let id = &discard.tool_proposal;
        let event = TimelineEvent::TrialDiscarded {
            proposal: id.clone(),
            command: self.version_of(id),
            why: truncate_line(&discard.trial.to_string()),
        };
        self.push_logged_item(meta, event);
        let tried = |proposal: &&mut ProposalView| {
            let run = proposal.run.as_ref();
            let is_trial = run.is_some_and(|run| run.cleared_by == Some(ClearedBy::Tried));
            proposal.is_running() && is_trial
        };
        if let Some(proposal) = self.proposal_mut(id).filter(tried) {
            proposal.run = None;
            proposal.state = ProposalState::Judged;
        }
    }

    /// A cancel is only a request: the gate closes a waiting command, the result a running one.
    pub(super) fn fold_cancel(&mut self, meta: &MessageMeta<'_>, cancel: &ToolCancel) {
        let reason = truncate_optional_line(cancel.reason.as_ref());
        let event = TimelineEvent::CancelAsked {
            proposal: cancel.tool_proposal.clone(),
            command: self.version_of(&cancel.tool_proposal),
            reason: reason.clone(),
        };
        self.push_logged_item(meta, event);
        if let Some(proposal) = self.proposal_mut(&cancel.tool_proposal) {
            let (by, at) = (meta.sender.clone(), meta.at);
            proposal.cancel = Some(CancelRequestView { by, at, reason });
        }
    }
}
