//! Decides which grants an executor acts on: its own, exactly as shown, once, in time, not blocked.
//!
//! The check rests on what the executor knows by itself: what it wrote down
//! ([`ShownActions`]) and its own policy. Nothing here reads the view, which is folded from what
//! the server says.

use std::sync::Arc;

use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::{Approval, ClearedBy, GrantTerms, RunBy, ToolExecute};
use pvp_protocol::{Assessment, Category, ParticipantId, SandboxProfile, Timestamp};

use crate::shown_actions::{AcceptedOrigins, ActionOrigin, ShownActions};

/// Why a grant is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    #[error("the grant does not carry its nonce, so it is not this executor's own copy")]
    NoNonce,
    #[error("the grant is for a client that runs the command itself, not for an executor")]
    ForClient,
    #[error("this executor has not seen a proposal for it since it was started")]
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
    #[error("the server says that it was approved, but names nobody who may approve it")]
    NobodyApproved,
    #[error("the server says that it is a person's own command, but this agent proposed it")]
    NotAnOwnCommand,
    #[error(
        "this executor does not run people's own commands; start it with `pvp agent --accept-shell`"
    )]
    NoShellExec,
    #[error("somebody edited it, and this executor runs only what it proposed itself")]
    NoEdits,
    #[error("this executor does not try commands in its sandbox")]
    NoTrials,
    #[error("it may not be tried: rule `{rule}` makes it {category} ({reason})")]
    NotToBeTried {
        category: Category,
        rule: String,
        reason: String,
    },
    #[error("it has already been tried")]
    AlreadyTried,
    #[error("the server adds `{name}` to its environment, which the shown command does not name")]
    HiddenVariable { name: String },
    #[error("its environment sets `{name}`, which decides which code runs")]
    CodeVariable { name: String },
}

/// What an executor does with a grant that it acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedGrant {
    /// The sandbox: the narrower of the granted one and the executor's own.
    pub profile: SandboxProfile,
    /// Where the action comes from.
    pub origin: ActionOrigin,
}

/// The executor's own settings that limit what a grant allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantLimits {
    /// What is taken from the server besides grants for own proposals.
    pub accepted: AcceptedOrigins,
    /// The widest sandbox of commands that somebody approved.
    pub profile: SandboxProfile,
    /// Whether a read may run unconfined on a machine that cannot confine it.
    pub unconfined_reads: bool,
    /// The sandboxes that this machine enforces.
    pub enforceable: Vec<SandboxProfile>,
    /// Whether commands are tried: this machine can count what its sandbox denies, and its owner
    /// lets it.
    pub trials: bool,
}

/// Decides about every grant by the executor's own records and its own policy.
#[derive(Debug)]
pub struct GrantCheck {
    /// What was proposed here, or asked of this executor.
    pub shown: ShownActions,
    policy: Arc<Policy>,
    /// The workspace, for assessing granted actions.
    workspace: Workspace,
    limits: GrantLimits,
}

impl GrantCheck {
    pub fn new(
        me: ParticipantId,
        policy: Arc<Policy>,
        workspace: Workspace,
        limits: GrantLimits,
    ) -> Self {
        Self {
            shown: ShownActions::new(me, limits.accepted),
            policy,
            workspace,
            limits,
        }
    }

    /// The directories beside the workspace that reads may see from here on.
    pub fn set_read_roots(&mut self, read_roots: Vec<String>) {
        self.workspace.read_roots = read_roots;
    }

    /// Whether to act on a grant, and how; `None` if it is for another executor.
    pub fn check(
        &self,
        execute: &ToolExecute,
        now: Timestamp,
    ) -> Option<Result<AcceptedGrant, GrantRefusal>> {
        let shown = self.shown.check(execute, now)?;
        Some(shown.and_then(|origin| self.check_by_policy(&execute.grant, origin)))
    }

    fn check_by_policy(
        &self,
        grant: &GrantTerms,
        origin: ActionOrigin,
    ) -> Result<AcceptedGrant, GrantRefusal> {
        let granted = match (grant.runs, grant.profile, grant.limits) {
            (RunBy::Executor, Some(profile), Some(_)) => profile,
            (RunBy::Executor | RunBy::Client, _, _) => return Err(GrantRefusal::ForClient),
        };
        check_environment(grant)?;
        let assessment = self.policy.assess(&grant.action, &self.workspace);
        if assessment.category == Category::Blocked {
            let (rule, reason) = (assessment.rule, assessment.reason);
            return Err(GrantRefusal::Blocked { rule, reason });
        }
        if grant.cleared_by == ClearedBy::Tried {
            return self.check_trial(grant, origin, assessment);
        }
        let own = self.own_profile(grant.cleared_by, assessment.profile);
        check_clearance(grant, origin, assessment)?;
        let profile = granted.narrower(own);
        Ok(AcceptedGrant { profile, origin })
    }

    /// Whether a command may be tried here: whatever the server says, only what this executor
    /// proposed, only in the read sandbox, and never what its own policy knows to do something.
    fn check_trial(
        &self,
        grant: &GrantTerms,
        origin: ActionOrigin,
        assessment: Assessment,
    ) -> Result<AcceptedGrant, GrantRefusal> {
        let profile = SandboxProfile::Read;
        if !self.limits.trials || !self.limits.enforceable.contains(&profile) {
            return Err(GrantRefusal::NoTrials);
        }
        let may_try = self.policy.may_try(&grant.action, &self.workspace);
        if !may_try || origin != ActionOrigin::Proposal || grant.secret_env.is_some() {
            return Err(GrantRefusal::NotToBeTried {
                category: assessment.category,
                rule: assessment.rule,
                reason: assessment.reason,
            });
        }
        Ok(AcceptedGrant { profile, origin })
    }

    /// The widest sandbox that this executor gives a command; `read` is what a read needs.
    fn own_profile(&self, cleared_by: ClearedBy, read: SandboxProfile) -> SandboxProfile {
        let limits = &self.limits;
        match cleared_by {
            ClearedBy::Read if limits.unconfined_reads && !limits.enforceable.contains(&read) => {
                SandboxProfile::None
            }
            ClearedBy::Read => read,
            ClearedBy::Tried => SandboxProfile::Read,
            ClearedBy::Quorum | ClearedBy::Clock | ClearedBy::AllowRule | ClearedBy::Direct => {
                limits.profile
            }
        }
    }
}

/// Refuses variables that people could not see before they voted, and those that change what the
/// command means.
fn check_environment(grant: &GrantTerms) -> Result<(), GrantRefusal> {
    let action = &grant.action;
    let added = || grant.secret_env.iter().flat_map(|secrets| secrets.keys());
    let mut names = action.env.keys().chain(&action.secrets).chain(added());
    if let Some(name) = names.find(|name| pvp_policy::changes_meaning(name)) {
        let name = name.clone();
        return Err(GrantRefusal::CodeVariable { name });
    }
    match added().find(|name| !action.secrets.contains(name)) {
        Some(name) => Err(GrantRefusal::HiddenVariable { name: name.clone() }),
        None => Ok(()),
    }
}

/// The approvals that this executor believes: those of others than itself. An approval is the
/// server's word; this is the one place that decides whether that is enough, so signatures of
/// approvers belong here.
fn believed_approvals(grant: &GrantTerms) -> impl Iterator<Item = &Approval> {
    let approvals = grant.approvals.iter();
    approvals.filter(|approval| approval.participant != grant.executor)
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
        ClearedBy::AllowRule | ClearedBy::Clock | ClearedBy::Tried => Category::Write,
        ClearedBy::Quorum => {
            let approval = believed_approvals(grant).next();
            return approval.map(|_| ()).ok_or(GrantRefusal::NobodyApproved);
        }
        ClearedBy::Direct => {
            return match origin {
                ActionOrigin::ShellExec => Ok(()),
                ActionOrigin::Proposal | ActionOrigin::Edit => Err(GrantRefusal::NotAnOwnCommand),
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
    use pvp_protocol::payload::ShellExec;
    use pvp_protocol::{
        Action, Command, ExecutionLimits, ExtraFields, JsonObject, MessageId, RunMode,
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

    fn action(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    fn grant(proposal: &str, line: &str) -> ToolExecute {
        let action = action(line);
        ToolExecute {
            tool_proposal: id(proposal),
            approved_by: Vec::new(),
            grant: GrantTerms {
                id: id("g1"),
                executor: me(),
                digest: action.digest(),
                action,
                runs: RunBy::Executor,
                limits: Some(ExecutionLimits {
                    timeout_ms: 1000,
                    output_bytes: 1000,
                }),
                profile: Some(SandboxProfile::None),
                expires_at: now().plus_seconds(60),
                cleared_by: ClearedBy::Quorum,
                approvals: vec![Approval {
                    participant: ParticipantId::parse("ann").unwrap(),
                    at: now(),
                    comment: None,
                }],
                rule: None,
                allowed_by: None,
                driver: None,
                nonce: Some("n".to_owned()),
                secret_env: None,
            },
            extra: ExtraFields::new(),
        }
    }

    fn grant_check() -> GrantCheck {
        let policy = Arc::new(Policy::built_in());
        let limits = GrantLimits {
            accepted: AcceptedOrigins {
                edits: true,
                shell_exec: true,
            },
            profile: SandboxProfile::None,
            unconfined_reads: false,
            enforceable: vec![SandboxProfile::Read],
            trials: true,
        };
        let mut grant_check = GrantCheck::new(me(), policy, Workspace::default(), limits);
        grant_check
            .shown
            .record_proposal(&id("p1"), &action("touch a"));
        grant_check
            .shown
            .record_proposal(&id("p2"), &action("touch b"));
        grant_check
    }

    fn check(grant_check: &GrantCheck, execute: &ToolExecute) -> Option<Result<(), GrantRefusal>> {
        let checked = grant_check.check(execute, now())?;
        Some(checked.map(|_| ()))
    }

    #[test]
    fn a_command_gets_the_narrower_of_two_sandboxes() {
        let mut grant_check = grant_check();
        grant_check
            .shown
            .record_proposal(&id("read"), &action("ls"));
        let profile = |grant_check: &GrantCheck, execute: &ToolExecute| {
            grant_check.check(execute, now()).unwrap().unwrap().profile
        };
        let mut read = grant("read", "ls");
        read.grant.cleared_by = ClearedBy::Read;
        assert_eq!(profile(&grant_check, &read), SandboxProfile::Read);
        let mut approved = grant("p1", "touch a");
        assert_eq!(profile(&grant_check, &approved), SandboxProfile::None);
        approved.grant.profile = Some(SandboxProfile::Workspace);
        assert_eq!(profile(&grant_check, &approved), SandboxProfile::Workspace);
        approved.grant.profile = Some(SandboxProfile::None);
        grant_check.limits.profile = SandboxProfile::Workspace;
        assert_eq!(profile(&grant_check, &approved), SandboxProfile::Workspace);
        // Unconfined only if the owner of the machine says so, and the machine cannot do better.
        grant_check.limits.unconfined_reads = true;
        assert_eq!(profile(&grant_check, &read), SandboxProfile::Read);
        grant_check.limits.enforceable.clear();
        assert_eq!(profile(&grant_check, &read), SandboxProfile::None);
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
        grant_check
            .shown
            .record_proposal(&id("p9"), &action("rm -rf /"));
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
        grant_check
            .shown
            .record_proposal(&id("read"), &action("ls"));
        grant_check
            .shown
            .record_proposal(&id("lost"), &action("rm -rf build"));
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
        let edited = action("touch c");
        let assessment: Assessment = Policy::built_in().assess(&edited, &Workspace::default());
        let amend = json!({
            "gate": "gate1", "arguments": arguments("touch c"), "digest": "00".repeat(32),
            "assessment": assessment,
        });
        let amend = serde_json::from_value(amend).unwrap();
        assert_eq!(
            grant_check.shown.record_edit(&id("p1"), &amend),
            Some(edited)
        );
        assert_eq!(check(&grant_check, &grant("p1", "touch c")), Some(Ok(())));
        assert_eq!(
            check(&grant_check, &grant("p1", "touch a")),
            Some(Err(GrantRefusal::Changed))
        );
    }

    #[test]
    fn a_grant_for_a_proposal_that_is_over_is_refused() {
        let mut grant_check = grant_check();
        grant_check.shown.forget(&id("p1"));
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
        grant_check.shown.record_shell_exec(&id("s1"), &exec("bot"));
        grant_check
            .shown
            .record_shell_exec(&id("s2"), &exec("other"));
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
        let shown = action("touch a");
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
