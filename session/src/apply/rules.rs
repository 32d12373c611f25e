//! Decides on allow rules, which let a command prefix run, or a directory be read, without a vote
//! until they expire.

use std::collections::BTreeSet;

use pvp_policy::Workspace;
use pvp_protocol::payload::{PolicyAllow, PolicyRevoke};
use pvp_protocol::{
    Approvers, Category, MessageId, ParticipantId, QuorumRule, Refusal, RunMode, tally,
};

use super::{AnswerResult, DecisionBuilder};
use crate::input::SubmittedMessage;
use crate::member::Member;
use crate::proposal::Proposal;
use crate::state::{AllowRule, Allowed};

/// The most allow rules at a time.
const MAX_RULES: usize = 200;

/// The most words of a prefix.
const MAX_PREFIX_WORDS: usize = 32;

/// The `directory` of a rule that holds everywhere.
const ANYWHERE: &str = "*";

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
        let quorum = self.quorum_for_category(Category::Write);
        if !self.could_approve_alone(by, &quorum)? {
            let problem = format!("writes need {quorum} here, so one person cannot allow them");
            return Err(Refusal::Unauthorized(problem));
        }
        Ok(self.relay(by, submitted, allow))
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
        let gated_always = proposal.action.mode == RunMode::Pty || !proposal.action.env.is_empty();
        if gated_always || proposal.assessment.category > Category::Write {
            return None;
        }
        let words = pvp_policy::plain_words(&proposal.action)?;
        let policy = &self.decision_context.policy;
        if policy.runs_given_code(&words).is_some() {
            return None;
        }
        let workspace = self.workspace_of(&proposal.executor);
        let quorum = self.quorum_for(&proposal.assessment);
        let covers = |allowed: &Allowed| match allowed {
            Allowed::Commands { prefix, directory } => {
                let cwd = proposal.action.cwd.as_deref();
                words.starts_with(prefix) && holds_in(directory.as_deref(), &workspace, cwd)
            }
            Allowed::Reading { .. } => false,
        };
        self.session
            .allow_rules
            .iter()
            .filter(|(_, rule)| rule.expires_at > self.at && covers(&rule.allowed))
            .find(|(_, rule)| self.approval_would_pass(&rule.by, &quorum))
            .map(|(id, _)| id.clone())
    }

    /// The directories that may be read without a vote: those of the configuration, and those of
    /// rules whose authors could still approve such a read alone.
    pub(super) fn read_roots(&self) -> Vec<String> {
        let quorum = self.quorum_for_category(Category::Write);
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
