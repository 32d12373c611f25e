//! Decides on allow rules, which let a command prefix run, or a directory be read, without a vote
//! until they expire.

use std::collections::BTreeSet;

use pvp_policy::Workspace;
use pvp_protocol::payload::{
    AllowedBy, GateOutcome, GateResolve, PolicyAllow, PolicyRevoke, ResolutionCause,
};
use pvp_protocol::{
    Approvers, Category, MessageId, ParticipantId, QuorumRule, Refusal, RunMode, ToolKind, tally,
};

use super::{AnswerResult, DecisionBuilder};
use crate::gate::{Clearance, Gate};
use crate::input::SubmittedMessage;
use crate::member::Member;
use crate::proposal::Proposal;
use crate::state::{AllowRule, Allowed};

/// The most allow rules at a time.
const MAX_RULES: usize = 200;

/// The most words of a prefix.
const MAX_PREFIX_WORDS: usize = 32;

/// The `directory` of a rule that holds everywhere.
pub(super) const ANYWHERE: &str = "*";

/// The longest path of a rule's directory.
const MAX_DIRECTORY_BYTES: usize = 4096;

/// The longest lifetime of a rule: a week.
const MAX_RULE_LIFETIME_MS: u64 = 7 * 86_400_000;

impl DecisionBuilder<'_> {
    pub(super) fn policy_allow(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        allow: PolicyAllow,
    ) -> AnswerResult {
        match &allow.read_root {
            Some(root) => check_reading(root, &allow)?,
            None => self.check_commands(&allow)?,
        }
        if allow.expires_at <= self.at
            || allow.expires_at > self.at.plus_millis(MAX_RULE_LIFETIME_MS)
        {
            let problem = "`expires_at` must be in the future, a week ahead at most";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        let in_force = |rule: &&AllowRule| rule.expires_at > self.at;
        if self.session.allow_rules.values().filter(in_force).count() >= MAX_RULES {
            return Err(Refusal::TooMany {
                what: "allow rules",
                limit: MAX_RULES as u64,
            });
        }
        let quorum = self.quorum_for_category(Category::Write, ToolKind::SHELL);
        if !self.could_approve_alone(by, &quorum)? {
            let problem = format!("writes need {quorum} here, so one person cannot allow them");
            return Err(Refusal::Unauthorized(problem));
        }
        let answer = self.relay(by, submitted, allow);
        self.grant_newly_allowed(by, &submitted.id);
        Ok(answer)
    }

    /// Grants what waits at a gate and a new rule covers. The rule is the vote of its author on those
    /// gates and counts as one: where more votes are needed, the command still waits for them.
    fn grant_newly_allowed(&mut self, by: &ParticipantId, rule: &MessageId) {
        // Where a session asks for every tool of a kind, no rule answers.
        let always_asks = !self.session.config.require_approval_for.is_empty();
        if always_asks || self.session.paused_for().is_some() {
            return;
        }
        let gates = self.session.open_gates().into_iter();
        let clearances: Vec<_> = gates
            .filter_map(|(proposal, gate)| self.clear_by_new_rule(by, rule, proposal, gate))
            .collect();
        for clearance in clearances {
            let proposal = clearance.proposal.clone();
            let (passed, quorum) = (GateOutcome::Approved, ResolutionCause::Quorum);
            let resolve = GateResolve {
                approvals: clearance.approvals.clone(),
                rule: Some(rule.clone()),
                ..self.build_resolution(&proposal, passed, quorum, Some(by))
            };
            self.append_system(resolve, Some(proposal));
            self.append_grant(clearance);
        }
    }

    /// A clearance, if the rule covers the proposal and its author's vote lets the gate pass.
    fn clear_by_new_rule(
        &self,
        by: &ParticipantId,
        rule: &MessageId,
        proposal: &Proposal,
        gate: &Gate,
    ) -> Option<Clearance> {
        let allowed = &self.session.allow_rules.get(rule)?.allowed;
        let covered = self.allowable_command(proposal)?.is_covered_by(allowed);
        // What the author's token does not let them approve, their rule does not approve either.
        self.check_escalation(gate).ok()?;
        self.check_voting_role(by, gate).ok()?;
        if !covered || gate.is_due(self.at) {
            return None;
        }
        let approvers = self.session.approvers(gate, &proposal.proposer);
        let approvals = gate.approvals_with_rule_of(by, &approvers)?;
        let clearance = Clearance::for_allow_rule(proposal, rule.clone())?;
        Some(Clearance {
            approvals,
            ..clearance
        })
    }

    fn check_commands(&self, allow: &PolicyAllow) -> Result<(), Refusal> {
        check_prefix(&allow.prefix)?;
        if let Some(directory) = &allow.directory {
            check_directory(directory)?;
        }
        match self.decision_context.policy.runs_given_code(&allow.prefix) {
            Some(program) => {
                let problem = format!(
                    "`{program}` runs whatever it is given, so no prefix of it can be allowed; allow the commands that it would run"
                );
                Err(Refusal::Malformed(problem))
            }
            None => Ok(()),
        }
    }

    pub(super) fn policy_revoke(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        revoke: PolicyRevoke,
    ) -> AnswerResult {
        if !self.session.allow_rules.contains_key(&revoke.rule) {
            return Err(Refusal::InvalidState(format!(
                "there is no rule `{}`",
                revoke.rule
            )));
        }
        Ok(self.relay(by, submitted, revoke))
    }

    /// The rule, if any, that lets a proposal run. Its author must still be able to approve the
    /// proposal alone, because a rule is one vote given in advance and counts no more than one.
    pub(super) fn covering_rule(&self, proposal: &Proposal) -> Option<MessageId> {
        let command = self.allowable_command(proposal)?;
        let quorum = self.quorum_for(proposal);
        self.session
            .allow_rules
            .iter()
            .filter(|(_, rule)| rule.expires_at > self.at && command.is_covered_by(&rule.allowed))
            .find(|(_, rule)| self.approval_would_pass(&rule.by, &quorum))
            .map(|(id, _)| id.clone())
    }

    /// What an allow rule needs to know about a proposal; `None` if no rule ever covers it.
    fn allowable_command<'p>(&self, proposal: &'p Proposal) -> Option<AllowableCommand<'p>> {
        let action = &proposal.action;
        let gated_always = action.mode == RunMode::Pty || !action.env.is_empty();
        if gated_always || proposal.assessment.category > Category::Write {
            return None;
        }
        let words = pvp_policy::plain_words(action)?;
        let policy = &self.decision_context.policy;
        if policy.runs_given_code(&words).is_some() {
            return None;
        }
        Some(AllowableCommand {
            words,
            workspace: self.workspace_of(&proposal.executor),
            cwd: action.cwd.as_deref(),
        })
    }

    /// What a rule allows and who made it, as the grants that are based on it say it.
    pub(super) fn describe_rule(&self, rule: &MessageId) -> Option<AllowedBy> {
        let rule = self.session.allow_rules.get(rule)?;
        match &rule.allowed {
            Allowed::Commands { prefix, .. } => Some(AllowedBy {
                participant: rule.by.clone(),
                prefix: prefix.clone(),
            }),
            Allowed::Reading { .. } => None,
        }
    }

    /// The directories that may be read without a vote: those of the configuration, and those of
    /// rules whose authors could still approve such a read alone.
    pub(super) fn read_roots(&self) -> Vec<String> {
        let quorum = self.quorum_for_category(Category::Write, ToolKind::SHELL);
        let in_force = |rule: &&AllowRule| {
            rule.expires_at > self.at && self.approval_would_pass(&rule.by, &quorum)
        };
        let allowed = self.session.allow_rules.values().filter(in_force);
        let allowed = allowed.filter_map(|rule| match &rule.allowed {
            Allowed::Commands { .. } => None,
            Allowed::Reading { root } => Some(root),
        });
        let configured = self.session.config.read_roots.iter();
        configured.chain(allowed).cloned().collect()
    }

    /// Whether the sender's approval alone would pass a gate with this quorum.
    pub(super) fn could_approve_alone(
        &self,
        by: &ParticipantId,
        quorum: &QuorumRule,
    ) -> Result<bool, Refusal> {
        let sender = self.sender()?;
        let needed = match quorum {
            QuorumRule::Role { role, .. } => Some(*role),
            QuorumRule::Any { .. }
            | QuorumRule::All
            | QuorumRule::Specific { .. }
            | QuorumRule::Majority => None,
        };
        let allowed = sender.may_vote() && needed.is_none_or(|role| sender.has_role(role));
        Ok(allowed && self.approval_would_pass(by, quorum))
    }

    fn approval_would_pass(&self, by: &ParticipantId, quorum: &QuorumRule) -> bool {
        let voters = || {
            self.session
                .members
                .iter()
                .filter(|(_, member)| member.may_vote())
        };
        let ids: BTreeSet<_> = voters().map(|(id, _)| id.clone()).collect();
        let roles = |member: &Member| member.announce.roles.iter().copied().collect();
        let approvers = Approvers {
            eligible: ids.clone(),
            electorate: ids,
            roles: voters()
                .map(|(id, member)| (id.clone(), roles(member)))
                .collect(),
            ..Approvers::default()
        };
        tally(quorum, &approvers, &BTreeSet::from([by.clone()])).passed
    }
}

/// A command that an allow rule may cover.
struct AllowableCommand<'p> {
    words: Vec<String>,
    workspace: Workspace,
    cwd: Option<&'p str>,
}

impl AllowableCommand<'_> {
    fn is_covered_by(&self, allowed: &Allowed) -> bool {
        match allowed {
            Allowed::Commands { prefix, directory } => {
                let holds = || holds_in(directory.as_deref(), &self.workspace, self.cwd);
                self.words.starts_with(prefix) && holds()
            }
            Allowed::Reading { .. } => false,
        }
    }
}

/// Whether a rule for this directory holds for a command in `cwd`.
fn holds_in(directory: Option<&str>, workspace: &Workspace, cwd: Option<&str>) -> bool {
    match directory {
        Some(ANYWHERE) => true,
        directory => workspace.is_same_directory(directory, cwd),
    }
}

/// Checks a rule that allows reading a directory.
fn check_reading(root: &str, allow: &PolicyAllow) -> Result<(), Refusal> {
    if !allow.prefix.is_empty() || allow.directory.is_some() {
        let problem =
            "a rule has a `prefix` or a `read_root`, and a `directory` only with a prefix";
        return Err(Refusal::Malformed(problem.to_owned()));
    }
    pvp_policy::check_read_root(root)
        .map_err(|problem| Refusal::Malformed(format!("`read_root`: {problem}")))
}

/// Checks that a directory is one, written so that it means the same to everyone.
fn check_directory(directory: &str) -> Result<(), Refusal> {
    let plain = |c: char| !c.is_control() && !"*?[]{}~$`\"'\\".contains(c);
    let named = !directory.is_empty()
        && directory.len() <= MAX_DIRECTORY_BYTES
        && directory.chars().all(plain)
        && directory.split('/').all(|name| name != "..");
    if named || directory == ANYWHERE {
        return Ok(());
    }
    let problem =
        "`directory` is a path without `..`, `~` or shell characters, or `*` for anywhere";
    Err(Refusal::Malformed(problem.to_owned()))
}

/// Checks that a prefix is words and not a list of commands: the first is a bare command name, and
/// none contains anything that a shell would interpret.
fn check_prefix(prefix: &[String]) -> Result<(), Refusal> {
    let problem = |what: &str| Err(Refusal::Malformed(format!("`prefix` {what}")));
    let Some(command) = prefix.first() else {
        return problem("is empty; give the words that commands begin with");
    };
    if prefix.len() > MAX_PREFIX_WORDS
        || prefix
            .iter()
            .any(|word| word.len() > 256 || word.is_empty())
    {
        return problem("has at most 32 words of 1 to 256 bytes");
    }
    if !command
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c))
    {
        return problem("begins with a bare command name, such as `npm`");
    }
    let active =
        |c: char| c.is_control() || c.is_whitespace() || ";&|<>()$`\"'\\*?[]{}~#!".contains(c);
    if prefix.iter().any(|word| word.chars().any(active)) {
        return problem("is a list of plain words, without spaces, quotes or shell characters");
    }
    Ok(())
}
