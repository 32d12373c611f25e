//! What messages make of commands: proposed, granted, printing, over.

use std::sync::Arc;

use pvp_protocol::payload::{
    ShellExec, ToolCancel, ToolExecute, ToolOutput, ToolPropose, ToolResult,
};
use pvp_protocol::{Action, Category, Command, MessageId};

use super::asked::{Asked, CLOSED_COMMAND_BYTES, Form};
use super::proposal::{CancelAsked, Origin, Past, Proposal, Run, State};
use super::text::some_line;
use super::timeline::What;
use super::{Told, View, push_newest};

/// Commands that are kept with their output; the oldest that are over go first.
pub const PROPOSALS: usize = 300;

/// Commands that are kept as one line of history.
pub const HISTORY: usize = 1000;

/// What the record says a person wants a command of their own for.
const OWN_COMMAND: &str = "a person's own command";

impl View {
    pub(super) fn proposal_mut(&mut self, id: &MessageId) -> Option<&mut Proposal> {
        self.commands
            .iter_mut()
            .rev()
            .find(|proposal| proposal.id == *id)
    }

    pub(super) fn fold_propose(&mut self, told: &Told<'_>, propose: &ToolPropose) {
        let Ok(action) = Action::from_arguments(&propose.tool_name, &propose.arguments) else {
            return;
        };
        let assessment = propose.assessment.as_ref();
        let asked = Asked::new(&propose.agent, &action, assessment, &propose.description);
        self.propose(told, Origin::Agent, asked);
        let proposal = told.id.clone();
        self.tell(told, What::Proposed { proposal });
    }

    pub(super) fn fold_shell_exec(&mut self, told: &Told<'_>, exec: &ShellExec) {
        let Some(by) = told.by() else { return };
        let line = exec.command.clone();
        let action = Action {
            cwd: exec.cwd.clone(),
            timeout_seconds: exec.timeout_seconds,
            ..Action::new(Command::LoginShell { line })
        };
        let asked = Asked::new(by, &action, exec.assessment.as_ref(), OWN_COMMAND);
        self.propose(told, Origin::Person, asked);
        let proposal = told.id.clone();
        self.tell(told, What::Executed { proposal });
    }

    /// Notes a command; of one that a welcome told of, what the welcome left out.
    fn propose(&mut self, told: &Told<'_>, origin: Origin, asked: Asked) {
        let blocked = asked.category() == Some(Category::Blocked);
        if let Some(known) = self.take_proposal(told.id) {
            let asked = match known.asked.assessment {
                Some(_) => Arc::clone(&known.asked),
                None => Arc::new(asked),
            };
            let (seq, at) = (told.seq, Some(told.at));
            // Put where it was told, so that the list is in order.
            self.commands.push_back(Proposal {
                seq,
                at,
                origin,
                asked,
                ..known
            });
            return;
        }
        let (seq, at) = (told.seq, Some(told.at));
        let proposal = Proposal::new(told.id, origin, Arc::new(asked));
        self.remember_proposal(Proposal {
            seq,
            at,
            ..proposal
        });
        if blocked {
            self.close(told.id, State::Blocked);
        }
    }

    fn take_proposal(&mut self, id: &MessageId) -> Option<Proposal> {
        let place = self
            .commands
            .iter()
            .rposition(|proposal| proposal.id == *id)?;
        self.commands.remove(place)
    }

    pub(super) fn remember_proposal(&mut self, proposal: Proposal) {
        self.commands.push_back(proposal);
        if self.commands.len() > PROPOSALS {
            let over = self
                .commands
                .iter()
                .position(|proposal| proposal.state.is_over());
            self.commands.remove(over.unwrap_or(0));
        }
    }

    pub(super) fn reach(&mut self, id: &MessageId, state: State) {
        if let Some(proposal) = self.proposal_mut(id) {
            proposal.reach(state);
        }
    }

    /// Moves a command to its end, and into the history.
    pub(super) fn close(&mut self, id: &MessageId, state: State) {
        let Some(proposal) = self.proposal_mut(id) else {
            return;
        };
        proposal.reach(state);
        if proposal.asked.command.len() > CLOSED_COMMAND_BYTES {
            Arc::make_mut(&mut proposal.asked).shorten();
        }
        let past = Past::new(proposal);
        match self
            .history
            .iter_mut()
            .rev()
            .find(|past| past.proposal == *id)
        {
            Some(known) => *known = past,
            None => push_newest(&mut self.history, past, HISTORY),
        }
    }

    pub(super) fn fold_execute(&mut self, told: &Told<'_>, execute: &ToolExecute) {
        let (id, action) = (&execute.tool_proposal, &execute.grant.action);
        if self.proposal(id).is_none() {
            self.remember_granted(id, action);
        }
        let Some(proposal) = self.proposal_mut(id) else {
            return;
        };
        let granted = proposal.run.as_ref().is_some_and(|run| run.grant.is_some());
        if granted || proposal.state > State::Over {
            return;
        }
        proposal.run = Some(Run::granted(execute, told.at));
        proposal.asked = Arc::new(proposal.asked.granted(action));
        proposal.reach(State::Running);
    }

    /// A grant says what runs, even if the proposal was before what was told.
    fn remember_granted(&mut self, id: &MessageId, action: &Action) {
        let asked = Asked::only_line("", action.mode).granted(action);
        let origin = match asked.form {
            Form::LoginShell => Origin::Person,
            Form::Shell | Form::Argv | Form::Tool => Origin::Agent,
        };
        self.remember_proposal(Proposal::new(id, origin, Arc::new(asked)));
    }

    pub(super) fn fold_output(&mut self, output: &ToolOutput) {
        let Some(proposal) = self.proposal_mut(&output.tool_proposal) else {
            return;
        };
        match proposal.state {
            State::Running | State::Over => {}
            State::Judged
            | State::Waiting
            | State::Approved
            | State::Blocked
            | State::Rejected
            | State::TimedOut
            | State::Cancelled
            | State::Finished => return,
        }
        let (stream, offset) = (output.stream, output.offset);
        proposal.output.take(stream, offset, &output.text);
        if output.complete {
            proposal.output.complete(stream);
        }
    }

    pub(super) fn fold_result(&mut self, told: &Told<'_>, result: &ToolResult) {
        let id = &result.tool_proposal;
        let open = |proposal: &&mut Proposal| proposal.state <= State::Over;
        if let Some(proposal) = self.proposal_mut(id).filter(open) {
            proposal.finish(result, told.at);
            self.close(id, State::Finished);
        }
    }

    /// A cancel only asks: a waiting command is closed by its gate, a running one by its result.
    pub(super) fn fold_cancel(&mut self, told: &Told<'_>, cancel: &ToolCancel) {
        let reason = some_line(cancel.reason.as_ref());
        let what = What::CancelAsked {
            proposal: cancel.tool_proposal.clone(),
            reason: reason.clone(),
        };
        self.tell(told, what);
        if let Some(proposal) = self.proposal_mut(&cancel.tool_proposal) {
            let (by, at) = (told.who.clone(), told.at);
            proposal.cancel = Some(CancelAsked { by, at, reason });
        }
    }
}
