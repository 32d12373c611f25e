//! Decides which grants an executor acts on: its own, exactly as shown, once, in time, not blocked.

use std::collections::BTreeMap;

use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{
    ClearedBy, GateAmend, GateRequest, GrantTerms, ShellExec, ToolExecute, ToolPropose,
};
use pvp_protocol::{Action, Assessment, Category, Digest, MessageId, ParticipantId, Timestamp};

/// Shown proposals that are remembered; the oldest is dropped, and its grant then refused.
const MAX_SHOWN: usize = 4096;

/// Why a grant is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    #[error("the grant does not carry its nonce, so it is not this executor's own copy")]
    NoNonce,
    #[error("nothing of the kind was proposed or asked of this executor")]
    UnknownProposal,
    #[error("the granted command is not the one that was shown")]
    Changed,
    #[error("the grant has expired")]
    Expired,
    #[error("blocked here by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
    #[error(
        "the server says it was cleared by {cleared_by}, which is impossible here: by rule \
         `{rule}` it is {category} ({reason})"
    )]
    ImpossibleClearance {
        cleared_by: ClearedBy,
        category: Category,
        rule: String,
        reason: String,
    },
    #[error("the server says that it was approved, but names nobody who could have done so")]
    NobodyApproved,
    #[error("the server says that it is a person's own command, but this agent proposed it")]
    NotAnOwnCommand,
}

/// What was shown to everyone and may come back as a grant.
#[derive(Debug)]
pub struct GrantCheck {
    /// The executor's own participant id.
    me: ParticipantId,
    /// The workspace, for assessing granted actions.
    workspace: Workspace,
    /// The digest of every shown action, by the id of its proposal or shell command.
    shown_actions: BTreeMap<MessageId, ShownAction>,
    /// The proposal behind each gate.
    gate_proposals: BTreeMap<MessageId, MessageId>,
    /// The number of the next shown action; the lowest numbers are the oldest.
    next_number: u64,
}

#[derive(Debug)]
struct ShownAction {
    digest: Digest,
    number: u64,
    origin: ActionOrigin,
}

/// Who wanted a shown action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActionOrigin {
    /// This agent proposed it.
    Proposal,
    /// A person sent it as their own command.
    ShellExec,
}

impl GrantCheck {
    pub fn new(me: ParticipantId, workspace: Workspace) -> Self {
        Self {
            me,
            workspace,
            shown_actions: BTreeMap::new(),
            gate_proposals: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Notes a proposal as it was sent; other agents' proposals are ignored.
    pub fn on_propose(&mut self, id: &MessageId, propose: &ToolPropose) {
        if propose.agent == self.me
            && let Ok(action) = Action::from_arguments(&propose.tool_name, &propose.arguments)
        {
            self.insert_shown(id, action.digest(), ActionOrigin::Proposal);
        }
    }

    /// Notes a person's own command, if it is addressed to this executor.
    pub fn on_shell_exec(&mut self, id: &MessageId, exec: &ShellExec) {
        if exec.executor.as_ref() == Some(&self.me) {
            let digest = Action::from_shell_exec(exec).digest();
            self.insert_shown(id, digest, ActionOrigin::ShellExec);
        }
    }

    pub fn on_gate_request(&mut self, gate: &MessageId, request: &GateRequest) {
        if self.shown_actions.contains_key(&request.action_ref) {
            self.gate_proposals
                .insert(gate.clone(), request.action_ref.clone());
        }
    }

    /// Applies a recorded edit: from here on the edited action is the one that may run.
    pub fn on_gate_amend(&mut self, amend: &GateAmend) {
        let proposal = self.gate_proposals.get(&amend.gate).unwrap_or(&amend.gate);
        let Some(shown) = self.shown_actions.get_mut(proposal) else {
            return;
        };
        if let (Ok(action), Some(assessment)) = (
            Action::from_arguments("shell", &amend.arguments),
            &amend.assessment,
        ) && action.digest() == assessment.digest
        {
            shown.digest = assessment.digest;
        }
    }

    fn insert_shown(&mut self, id: &MessageId, digest: Digest, origin: ActionOrigin) {
        let number = self.next_number;
        self.next_number += 1;
        self.shown_actions.insert(
            id.clone(),
            ShownAction {
                digest,
                number,
                origin,
            },
        );
        if self.shown_actions.len() > MAX_SHOWN {
            let oldest = self
                .shown_actions
                .iter()
                .min_by_key(|(_, shown)| shown.number);
            let oldest = oldest.map(|(id, _)| id.clone());
            self.shown_actions
                .retain(|id, _| Some(id) != oldest.as_ref());
            self.gate_proposals
                .retain(|_, proposal| Some(&*proposal) != oldest.as_ref());
        }
    }

    /// Forgets a proposal that is over; a second grant for it is refused.
    pub fn forget(&mut self, proposal: &MessageId) {
        self.shown_actions.remove(proposal);
        self.gate_proposals.retain(|_, guarded| guarded != proposal);
    }

    /// Whether to act on a grant; `None` if it is for another executor.
    pub fn check(
        &self,
        execute: &ToolExecute,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Result<(), GrantRefusal>> {
        let grant = &execute.grant;
        (grant.executor == self.me).then(|| {
            if grant.nonce.as_ref().is_none_or(String::is_empty) {
                return Err(GrantRefusal::NoNonce);
            }
            let shown = self
                .shown_actions
                .get(&execute.tool_proposal)
                .ok_or(GrantRefusal::UnknownProposal)?;
            let digest = grant.action.digest();
            if digest != grant.digest || digest != shown.digest {
                return Err(GrantRefusal::Changed);
            }
            if grant.expires_at <= now {
                return Err(GrantRefusal::Expired);
            }
            let assessment = policy.assess(&grant.action, &self.workspace);
            if assessment.category == Category::Blocked {
                let (rule, reason) = (assessment.rule, assessment.reason);
                return Err(GrantRefusal::Blocked { rule, reason });
            }
            check_clearance(grant, shown.origin, assessment)
        })
    }
}

/// Whether what the server says cleared a command can have cleared it, by this executor's own
/// policy. A server that lies can still name people who never voted.
fn check_clearance(
    grant: &GrantTerms,
    origin: ActionOrigin,
    assessment: Assessment,
) -> Result<(), GrantRefusal> {
    let most_severe = match grant.cleared_by {
        ClearedBy::Read => Category::Read,
        ClearedBy::AllowRule | ClearedBy::Clock => Category::Write,
        ClearedBy::Quorum => {
            let by_others = grant
                .approvals
                .iter()
                .any(|approval| approval.participant != grant.executor);
            return by_others.then_some(()).ok_or(GrantRefusal::NobodyApproved);
        }
        ClearedBy::Direct => {
            return match origin {
                ActionOrigin::ShellExec => Ok(()),
                ActionOrigin::Proposal => Err(GrantRefusal::NotAnOwnCommand),
            };
        }
    };
    if assessment.category <= most_severe {
        return Ok(());
    }
    Err(GrantRefusal::ImpossibleClearance {
        cleared_by: grant.cleared_by,
        category: assessment.category,
        rule: assessment.rule,
        reason: assessment.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::payload::Approval;
    use pvp_protocol::{
        Command, ExecutionLimits, ExtraFields, JsonObject, Risk, RunMode, SandboxProfile,
        ToolCategory,
    };
    use serde_json::{Value, json};

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn me() -> ParticipantId {
        ParticipantId::parse("bot").unwrap()
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }

    fn arguments(line: &str) -> JsonObject {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        arguments
    }

    fn propose(line: &str) -> ToolPropose {
        ToolPropose {
            tool_name: "shell".to_owned(),
            arguments: arguments(line),
            agent: me(),
            risk_level: Risk::Safe,
            description: "d".to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            assessment: None,
            extra: ExtraFields::new(),
        }
    }

    fn grant(proposal: &str, line: &str) -> ToolExecute {
        let action = Action::new(Command::Shell {
            line: line.to_owned(),
        });
        ToolExecute {
            tool_proposal: id(proposal),
            approved_by: Vec::new(),
            grant: GrantTerms {
                id: id("g1"),
                executor: me(),
                digest: action.digest(),
                action,
                limits: ExecutionLimits {
                    timeout_ms: 1000,
                    output_bytes: 1000,
                },
                profile: SandboxProfile::None,
                expires_at: now().plus_seconds(60),
                cleared_by: ClearedBy::Quorum,
                approvals: vec![Approval {
                    participant: ParticipantId::parse("ann").unwrap(),
                    at: now(),
                    comment: None,
                }],
                rule: None,
                driver: None,
                nonce: Some("n".to_owned()),
                secret_env: None,
            },
            extra: ExtraFields::new(),
        }
    }

    fn grant_check() -> GrantCheck {
        let mut grant_check = GrantCheck::new(me(), Workspace::default());
        grant_check.on_propose(&id("p1"), &propose("touch a"));
        grant_check.on_propose(&id("p2"), &propose("touch b"));
        grant_check
    }

    fn check(grant_check: &GrantCheck, execute: &ToolExecute) -> Option<Result<(), GrantRefusal>> {
        grant_check.check(execute, &Policy::built_in(), now())
    }

    #[test]
    fn a_grant_for_exactly_the_shown_action_is_accepted() {
        assert_eq!(check(&grant_check(), &grant("p1", "touch a")), Some(Ok(())));
    }

    #[test]
    fn any_other_grant_is_refused() {
        let grant_check = grant_check();
        let refused = |execute: &ToolExecute| check(&grant_check, execute).unwrap().unwrap_err();
        assert_eq!(refused(&grant("p1", "touch b")), GrantRefusal::Changed);
        assert_eq!(
            refused(&grant("p3", "touch a")),
            GrantRefusal::UnknownProposal
        );
        let mut execute = grant("p1", "touch a");
        execute.grant.nonce = None;
        assert_eq!(refused(&execute), GrantRefusal::NoNonce);
        let mut execute = grant("p1", "touch a");
        execute.grant.expires_at = now();
        assert_eq!(refused(&execute), GrantRefusal::Expired);
        let mut execute = grant("p1", "touch a");
        execute.grant.executor = ParticipantId::parse("other").unwrap();
        assert_eq!(check(&grant_check, &execute), None);
    }

    #[test]
    fn a_command_that_the_local_policy_blocks_does_not_run() {
        let mut grant_check = grant_check();
        grant_check.on_propose(&id("p9"), &propose("rm -rf /"));
        let refused = check(&grant_check, &grant("p9", "rm -rf /"))
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(refused, GrantRefusal::Blocked { .. }),
            "{refused:?}"
        );
    }

    #[test]
    fn a_clearance_that_is_impossible_by_the_local_policy_is_refused() {
        let mut grant_check = grant_check();
        grant_check.on_propose(&id("read"), &propose("ls"));
        grant_check.on_propose(&id("lost"), &propose("rm -rf build"));
        let result = |proposal: &str, line: &str, cleared_by| {
            let mut execute = grant(proposal, line);
            execute.grant.cleared_by = cleared_by;
            execute.grant.approvals.clear();
            check(&grant_check, &execute).unwrap()
        };
        assert_eq!(result("read", "ls", ClearedBy::Read), Ok(()));
        assert_eq!(result("p1", "touch a", ClearedBy::AllowRule), Ok(()));
        assert_eq!(result("p1", "touch a", ClearedBy::Clock), Ok(()));
        for (proposal, line, cleared_by) in [
            ("p1", "touch a", ClearedBy::Read),
            ("lost", "rm -rf build", ClearedBy::Read),
            ("lost", "rm -rf build", ClearedBy::AllowRule),
            ("lost", "rm -rf build", ClearedBy::Clock),
        ] {
            let refused = result(proposal, line, cleared_by).unwrap_err();
            assert!(
                matches!(refused, GrantRefusal::ImpossibleClearance { .. }),
                "{line} by {cleared_by}: {refused}"
            );
        }
        assert_eq!(
            result("p1", "touch a", ClearedBy::Direct),
            Err(GrantRefusal::NotAnOwnCommand)
        );
        assert_eq!(
            result("p1", "touch a", ClearedBy::Quorum),
            Err(GrantRefusal::NobodyApproved)
        );
        let mut by_itself = grant("p1", "touch a");
        by_itself.grant.approvals[0].participant = me();
        assert_eq!(
            check(&grant_check, &by_itself).unwrap(),
            Err(GrantRefusal::NobodyApproved)
        );
    }

    #[test]
    fn a_recorded_edit_replaces_the_shown_action() {
        let mut grant_check = grant_check();
        let request = json!({
            "action_type": "tool", "action_ref": "p1", "quorum": { "type": "any", "count": 1 },
            "timeout_seconds": 0, "message": "m", "category": "write", "digest": "00".repeat(32),
            "on_timeout": "reject", "voters": [],
        });
        let request: GateRequest = serde_json::from_value(request).unwrap();
        grant_check.on_gate_request(&id("gate1"), &request);
        let edited = Action::new(Command::Shell {
            line: "touch c".to_owned(),
        });
        let assessment: Assessment = Policy::built_in().assess(&edited, &Workspace::default());
        let amend = json!({
            "gate": "gate1", "arguments": arguments("touch c"), "digest": "00".repeat(32),
            "assessment": assessment,
        });
        grant_check.on_gate_amend(&serde_json::from_value(amend).unwrap());
        assert_eq!(check(&grant_check, &grant("p1", "touch c")), Some(Ok(())));
        assert_eq!(
            check(&grant_check, &grant("p1", "touch a")),
            Some(Err(GrantRefusal::Changed))
        );
    }

    #[test]
    fn a_grant_for_a_proposal_that_is_over_is_refused() {
        let mut grant_check = grant_check();
        grant_check.forget(&id("p1"));
        assert_eq!(
            check(&grant_check, &grant("p1", "touch a")),
            Some(Err(GrantRefusal::UnknownProposal))
        );
    }

    #[test]
    fn a_persons_command_runs_only_on_the_executor_it_names() {
        let mut grant_check = grant_check();
        let exec = |executor: &str| -> ShellExec {
            serde_json::from_value(json!({ "command": "ls", "executor": executor })).unwrap()
        };
        grant_check.on_shell_exec(&id("s1"), &exec("bot"));
        grant_check.on_shell_exec(&id("s2"), &exec("other"));
        let mut execute = grant("s1", "ls");
        execute.grant.action = Action::from_shell_exec(&exec("bot"));
        execute.grant.digest = execute.grant.action.digest();
        assert_eq!(check(&grant_check, &execute), Some(Ok(())));
        execute.tool_proposal = id("s2");
        assert_eq!(
            check(&grant_check, &execute),
            Some(Err(GrantRefusal::UnknownProposal))
        );
    }

    /// A copy of a grant with one value changed, anywhere in it.
    fn mutated(value: &Value, number: usize) -> Value {
        let mut value = value.clone();
        let leaves = leaves(&value, String::new());
        let leaf = value.pointer_mut(&leaves[number % leaves.len()]).unwrap();
        *leaf = match (leaf.take(), number / leaves.len()) {
            (Value::String(text), round) => {
                let at = round % (text.len() + 1);
                json!(format!(
                    "{}{}{}",
                    &text[..at],
                    char::from(b'!' + (round % 90) as u8),
                    &text[at..]
                ))
            }
            (Value::Number(number), round) => {
                json!(number.as_u64().unwrap_or(0) + 1 + round as u64)
            }
            (_, round) => json!(format!("x{round}")),
        };
        value
    }

    fn leaves(value: &Value, path: String) -> Vec<String> {
        match value {
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(key, value)| leaves(value, format!("{path}/{key}")))
                .collect(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .flat_map(|(at, value)| leaves(value, format!("{path}/{at}")))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![path],
        }
    }

    /// Any change to what would run, for whom or by whom is refused; other changes have no effect.
    #[test]
    fn ten_thousand_mutated_grants_run_nothing_but_what_was_shown() {
        let grant_check = grant_check();
        let mut good = grant("p1", "touch a");
        good.grant.action.cwd = None;
        good.grant.action.mode = RunMode::Normal;
        let good = serde_json::to_value(&good).unwrap();
        let shown = Action::new(Command::Shell {
            line: "touch a".to_owned(),
        });
        let (mut refused, mut accepted) = (0, 0);
        for number in 0..10_000 {
            let Ok(execute) = serde_json::from_value::<ToolExecute>(mutated(&good, number)) else {
                refused += 1;
                continue;
            };
            match check(&grant_check, &execute) {
                Some(Ok(())) => {
                    accepted += 1;
                    assert_eq!(execute.grant.action, shown);
                    assert_eq!(execute.tool_proposal, id("p1"));
                    assert!(execute.grant.expires_at > now());
                }
                Some(Err(_)) | None => refused += 1,
            }
        }
        assert!(
            refused > 4000 && accepted > 0,
            "{refused} refused, {accepted} accepted"
        );
    }
}
