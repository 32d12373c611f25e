//! Which grants an executor acts on: its own, exactly as shown, once, in time, and not blocked.

use std::collections::BTreeMap;

use pvp_policy::{Place, Policy};
use pvp_protocol::payload::{GateAmend, GateRequest, ShellExec, ToolExecute, ToolPropose};
use pvp_protocol::{Action, Category, Digest, MessageId, ParticipantId, Timestamp};

/// Proposals that are remembered as shown; the oldest is forgotten, and its grant refused.
const MOST_SHOWN: usize = 4096;

/// Why a grant is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the grant does not carry its nonce, so it is not this executor's own copy")]
    NoNonce,
    #[error("nothing of the kind was proposed or asked of this executor")]
    NotShown,
    #[error("the granted command is not the one that was shown")]
    Changed,
    #[error("the grant has expired")]
    Expired,
    #[error("blocked here by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
}

/// What was shown to everyone and may come back as a grant.
#[derive(Debug)]
pub struct Orders {
    me: ParticipantId,
    place: Place,
    shown: BTreeMap<MessageId, Shown>,
    /// The proposal that each gate guards.
    gates: BTreeMap<MessageId, MessageId>,
    next: u64,
}

#[derive(Debug)]
struct Shown {
    digest: Digest,
    number: u64,
}

impl Orders {
    pub fn new(me: ParticipantId, place: Place) -> Self {
        Self {
            me,
            place,
            shown: BTreeMap::new(),
            gates: BTreeMap::new(),
            next: 0,
        }
    }

    /// A proposal as it was sent; only this executor's own matter.
    pub fn proposed(&mut self, id: &MessageId, propose: &ToolPropose) {
        if propose.agent == self.me
            && let Ok(action) = Action::read(&propose.tool_name, &propose.arguments)
        {
            self.show(id, action.digest());
        }
    }

    /// A person's own command, if it is asked of this executor.
    pub fn asked(&mut self, id: &MessageId, exec: &ShellExec) {
        if exec.executor.as_ref() == Some(&self.me) {
            self.show(id, Action::own(exec).digest());
        }
    }

    pub fn gated(&mut self, gate: &MessageId, request: &GateRequest) {
        if self.shown.contains_key(&request.action_ref) {
            self.gates.insert(gate.clone(), request.action_ref.clone());
        }
    }

    /// A recorded edit of something shown: from here on that is what may run.
    pub fn amended(&mut self, amend: &GateAmend) {
        let proposal = self.gates.get(&amend.gate).unwrap_or(&amend.gate);
        let Some(shown) = self.shown.get_mut(proposal) else {
            return;
        };
        if let (Ok(action), Some(assessment)) =
            (Action::read("shell", &amend.arguments), &amend.assessment)
            && action.digest() == assessment.digest
        {
            shown.digest = assessment.digest;
        }
    }

    fn show(&mut self, id: &MessageId, digest: Digest) {
        let number = self.next;
        self.next += 1;
        self.shown.insert(id.clone(), Shown { digest, number });
        if self.shown.len() > MOST_SHOWN {
            let oldest = self.shown.iter().min_by_key(|(_, shown)| shown.number);
            let oldest = oldest.map(|(id, _)| id.clone());
            self.shown.retain(|id, _| Some(id) != oldest.as_ref());
            self.gates
                .retain(|_, proposal| Some(&*proposal) != oldest.as_ref());
        }
    }

    /// It is over; a second grant for it is refused.
    pub fn closed(&mut self, proposal: &MessageId) {
        self.shown.remove(proposal);
        self.gates.retain(|_, guarded| guarded != proposal);
    }

    /// Whether to act on a grant; `None` if it is somebody else's.
    pub fn check(
        &self,
        execute: &ToolExecute,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Result<(), Refused>> {
        let grant = &execute.grant;
        (grant.executor == self.me).then(|| {
            if grant.nonce.as_ref().is_none_or(String::is_empty) {
                return Err(Refused::NoNonce);
            }
            let shown = self
                .shown
                .get(&execute.tool_proposal)
                .ok_or(Refused::NotShown)?;
            let digest = grant.action.digest();
            if digest != grant.digest || digest != shown.digest {
                return Err(Refused::Changed);
            }
            if grant.expires_at <= now {
                return Err(Refused::Expired);
            }
            let verdict = policy.assess(&grant.action, &self.place);
            if verdict.category == Category::Blocked {
                let (rule, reason) = (verdict.rule, verdict.reason);
                return Err(Refused::Blocked { rule, reason });
            }
            Ok(())
        })
    }
}
