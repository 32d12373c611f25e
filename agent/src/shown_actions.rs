//! What this participant wrote down itself: the digest of everything that it proposed, or that a
//! person asked of it.
//!
//! A grant counts only for what is written down here. A proposal is written down by the process
//! that makes it, before it is sent; what the server says was proposed counts for nothing, so a
//! process that was restarted knows none of the proposals before. A person's own command and an
//! edit at a gate can only come from the server: those are believed, but they are kept apart from
//! proposals, and an executor's own policy judges each like anything else.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{ClearedBy, GateAmend, RunBy, ShellExec, ToolExecute};
use pvp_protocol::{Action, Command, Digest, MessageId, ParticipantId, Timestamp};

use crate::grant_check::GrantRefusal;

/// Actions of each origin that are remembered; the oldest is dropped, and its grant then refused.
const MAX_SHOWN: usize = 4096;

/// What an executor takes from the server besides grants for its own proposals. Nobody but the
/// server vouches for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedOrigins {
    /// People's edits of its proposals.
    pub edits: bool,
    /// People's own commands.
    pub shell_exec: bool,
}

impl Default for AcceptedOrigins {
    /// Edits, but no commands that it did not propose.
    fn default() -> Self {
        Self {
            edits: true,
            shell_exec: false,
        }
    }
}

/// The actions that were shown to everyone and may come back as a grant.
#[derive(Debug)]
pub struct ShownActions {
    /// This participant's own id.
    me: ParticipantId,
    /// What is taken besides this process's own proposals.
    accepted: AcceptedOrigins,
    /// The actions, by the id of the proposal or shell command.
    actions: BTreeMap<MessageId, ShownAction>,
    /// The ids of all proposals of this process, open or over; no command of a person has one.
    proposed: BTreeSet<MessageId>,
    /// The number of the next action; the lowest numbers are the oldest.
    next_number: u64,
}

#[derive(Debug)]
struct ShownAction {
    /// The digest of what may run.
    digest: Digest,
    /// Whether somebody edited it.
    edited: bool,
    /// Whether it was tried in the sandbox.
    tried: bool,
    /// The tool that an edit gives other arguments to; `None` if the action is never edited.
    tool: Option<String>,
    /// When it was written down, in order.
    number: u64,
    /// Who wanted it.
    origin: ActionOrigin,
}

/// Who wanted a shown action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionOrigin {
    /// This participant proposed it.
    Proposal,
    /// This participant proposed it, and somebody edited it.
    Edit,
    /// A person sent it as their own command.
    ShellExec,
}

impl ShownActions {
    pub fn new(me: ParticipantId, accepted: AcceptedOrigins) -> Self {
        Self {
            me,
            accepted,
            actions: BTreeMap::new(),
            proposed: BTreeSet::new(),
            next_number: 0,
        }
    }

    /// Writes down a proposal of this participant that is about to be sent.
    pub fn record_proposal(&mut self, id: &MessageId, action: &Action) {
        let tool = match &action.command {
            Command::Shell { .. } | Command::Argv { .. } => Some("shell".to_owned()),
            Command::Tool { name, .. } => Some(name.clone()),
            Command::LoginShell { .. } => None,
        };
        self.proposed.insert(id.clone());
        self.insert(id, action.digest(), tool, ActionOrigin::Proposal);
    }

    /// Writes down a person's own command, if it is addressed to this participant.
    pub fn record_shell_exec(&mut self, id: &MessageId, exec: &ShellExec) {
        // A message of the server's cannot replace what this participant wrote down itself.
        let is_known = self.actions.contains_key(id) || self.proposed.contains(id);
        if self.accepted.shell_exec && exec.executor.as_ref() == Some(&self.me) && !is_known {
            let digest = Action::from_shell_exec(exec).digest();
            self.insert(id, digest, None, ActionOrigin::ShellExec);
        }
    }

    /// Applies a recorded edit of a proposal: from here on the edited action is the one that may
    /// run. Returns that action, if the edit is whole.
    pub fn record_edit(&mut self, proposal: &MessageId, amend: &GateAmend) -> Option<Action> {
        let shown = self.actions.get_mut(proposal)?;
        let action = Action::from_arguments(shown.tool.as_deref()?, &amend.arguments).ok()?;
        let digest = amend.assessment.as_ref()?.digest;
        if action.digest() != digest {
            return None;
        }
        shown.edited = true;
        shown.digest = digest;
        Some(action)
    }

    fn insert(
        &mut self,
        id: &MessageId,
        digest: Digest,
        tool: Option<String>,
        origin: ActionOrigin,
    ) {
        let number = self.next_number;
        self.next_number += 1;
        let shown = ShownAction {
            digest,
            edited: false,
            tried: false,
            tool,
            number,
            origin,
        };
        self.actions.insert(id.clone(), shown);
        // What comes from the server never displaces what this participant wrote down itself.
        let same = || {
            let actions = self.actions.iter();
            actions.filter(move |(_, shown)| shown.origin == origin)
        };
        if same().count() > MAX_SHOWN {
            let oldest = same().min_by_key(|(_, shown)| shown.number);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.actions.remove(&oldest);
            }
        }
    }

    /// Writes down that an action was tried in the sandbox; it may still run once, but not be tried
    /// again.
    pub fn record_trial(&mut self, id: &MessageId) {
        if let Some(shown) = self.actions.get_mut(id) {
            shown.tried = true;
        }
    }

    /// Whether this participant proposed it, even if it is over.
    pub fn is_proposed(&self, id: &MessageId) -> bool {
        self.proposed.contains(id)
    }

    /// Forgets an action that is over; a second grant for it is refused.
    pub fn forget(&mut self, id: &MessageId) {
        self.actions.remove(id);
    }

    /// Whether a grant is this participant's own copy, in time, for exactly what was shown; `None`
    /// if it is for another executor.
    pub fn check(
        &self,
        execute: &ToolExecute,
        now: Timestamp,
    ) -> Option<Result<ActionOrigin, GrantRefusal>> {
        let grant = &execute.grant;
        (grant.executor == self.me).then(|| {
            let has_nonce = grant.nonce.as_ref().is_some_and(|nonce| !nonce.is_empty());
            if grant.runs == RunBy::Executor && !has_nonce {
                return Err(GrantRefusal::NoNonce);
            }
            if grant.expires_at <= now {
                return Err(GrantRefusal::Expired);
            }
            let Some(shown) = self.actions.get(&execute.tool_proposal) else {
                return Err(match grant.action.command {
                    Command::LoginShell { .. } if !self.accepted.shell_exec => {
                        GrantRefusal::NoShellExec
                    }
                    Command::LoginShell { .. }
                    | Command::Shell { .. }
                    | Command::Argv { .. }
                    | Command::Tool { .. } => GrantRefusal::UnknownProposal,
                });
            };
            if shown.edited && !self.accepted.edits {
                return Err(GrantRefusal::NoEdits);
            }
            if shown.tried && grant.cleared_by == ClearedBy::Tried {
                return Err(GrantRefusal::AlreadyTried);
            }
            let digest = grant.action.digest();
            match digest == grant.digest && digest == shown.digest {
                true if shown.edited => Ok(ActionOrigin::Edit),
                true => Ok(shown.origin),
                false => Err(GrantRefusal::Changed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn everything() -> AcceptedOrigins {
        AcceptedOrigins {
            edits: true,
            shell_exec: true,
        }
    }

    fn shown_actions() -> ShownActions {
        ShownActions::new(ParticipantId::parse("bot").unwrap(), everything())
    }

    fn shell(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    #[test]
    fn a_persons_command_cannot_replace_a_proposal() {
        let mut shown = shown_actions();
        shown.record_proposal(&id("p1"), &shell("ls"));
        let exec = json!({ "command": "rm -rf build", "executor": "bot" });
        shown.record_shell_exec(&id("p1"), &serde_json::from_value(exec).unwrap());
        let kept = &shown.actions[&id("p1")];
        assert_eq!(
            (kept.digest, kept.origin),
            (shell("ls").digest(), ActionOrigin::Proposal)
        );
    }

    #[test]
    fn an_edit_of_another_tool_keeps_the_tool() {
        let mut shown = shown_actions();
        let arguments = |text: &str| serde_json::from_value(json!({ "text": text })).unwrap();
        let proposed = Action::from_arguments("Edit", &arguments("a")).unwrap();
        let edited = Action::from_arguments("Edit", &arguments("b")).unwrap();
        shown.record_proposal(&id("p1"), &proposed);
        let amend = |digest: Digest| -> GateAmend {
            let assessment = json!({
                "category": "write", "risk": "medium", "rule": "r", "reason": "r", "parts": [],
                "notes": [], "profile": "none", "digest": digest, "policy": "p",
            });
            serde_json::from_value(json!({
                "gate": "g1", "arguments": { "text": "b" }, "digest": proposed.digest(),
                "assessment": assessment,
            }))
            .unwrap()
        };
        // The digest must be that of the edited arguments.
        assert_eq!(
            shown.record_edit(&id("p1"), &amend(proposed.digest())),
            None
        );
        assert_eq!(
            shown.record_edit(&id("p1"), &amend(edited.digest())),
            Some(edited.clone())
        );
        assert_eq!(shown.actions[&id("p1")].digest, edited.digest());
    }

    #[test]
    fn the_oldest_actions_are_forgotten() {
        let mut shown = shown_actions();
        for number in 0..=MAX_SHOWN {
            shown.record_proposal(&id(&format!("p{number}")), &shell("ls"));
        }
        assert_eq!(shown.actions.len(), MAX_SHOWN);
        assert!(!shown.actions.contains_key(&id("p0")));
        assert!(shown.actions.contains_key(&id("p1")));
    }

    #[test]
    fn a_flood_of_commands_displaces_no_proposal_and_takes_no_id_of_one() {
        let id = |text: &str| MessageId::parse(text).unwrap();
        let exec = |command: &str| -> ShellExec {
            let exec = json!({ "command": command, "executor": "bot" });
            serde_json::from_value(exec).unwrap()
        };
        let mut shown = ShownActions::new(ParticipantId::parse("bot").unwrap(), everything());
        let line = "ls".to_owned();
        let action = Action::new(Command::Shell { line });
        shown.record_proposal(&id("open"), &action);
        shown.record_proposal(&id("over"), &action);
        shown.forget(&id("over"));
        for number in 0..=MAX_SHOWN {
            shown.record_shell_exec(&id(&format!("x{number}")), &exec("ls"));
        }
        for name in ["open", "over"] {
            shown.record_shell_exec(&id(name), &exec("touch evil"));
        }
        let kept = &shown.actions[&id("open")];
        assert_eq!(kept.origin, ActionOrigin::Proposal);
        assert_eq!(kept.digest, action.digest());
        assert!(!shown.actions.contains_key(&id("over")));
        assert!(
            !shown.actions.contains_key(&id("x0")),
            "the oldest is dropped"
        );
    }
}
