//! The verdict on one command, and how several are combined into the most severe.

use pvp_protocol::{Category, Risk, SandboxProfile};

use crate::rule_table::RuleOrigin;

/// What one rule says about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandVerdict {
    /// The category of the command.
    pub(crate) category: Category,
    /// How much harm it could do.
    pub(crate) risk: Risk,
    /// The id of the rule that decided.
    pub(crate) rule: String,
    /// Why, in words.
    pub(crate) reason: String,
    /// What a read needs; none for anything else, and for what the shell does by itself.
    pub(crate) profile: SandboxProfile,
    /// It only reads, and is a write because of what it reads.
    pub(crate) sensitive_read: bool,
    /// Who wrote the rule.
    origin: RuleOrigin,
    /// Other rules with the same category.
    equals: Vec<String>,
}

impl CommandVerdict {
    pub(crate) fn new(category: Category, risk: Risk, rule: &str, reason: &str) -> Self {
        Self {
            category,
            risk,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            profile: SandboxProfile::None,
            sensitive_read: false,
            origin: RuleOrigin::BuiltIn,
            equals: Vec::new(),
        }
    }

    /// This verdict by a rule of this origin.
    pub(crate) fn by(self, origin: RuleOrigin) -> Self {
        Self { origin, ..self }
    }

    /// Whether a user's rule gave it.
    pub(crate) fn is_by_user(&self) -> bool {
        self.origin == RuleOrigin::User
    }

    /// The ids of all rules that gave the category.
    pub(crate) fn deciding_rules(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.rule).chain(&self.equals)
    }

    pub(crate) fn write(risk: Risk, rule: &str, reason: &str) -> Self {
        Self::new(Category::Write, risk, rule, reason)
    }

    /// The verdict on a command that only reads, but reads what people are asked for.
    pub(crate) fn sensitive_read(risk: Risk, rule: &str, reason: &str) -> Self {
        Self {
            sensitive_read: true,
            ..Self::write(risk, rule, reason)
        }
    }

    /// The more severe of the two. If they are equal, that of a user's rule, or else `self`. It
    /// stays a sensitive read only if the other does no more than read either.
    pub(crate) fn max(self, other: Self) -> Self {
        let only_reads = self.only_reads() && other.only_reads();
        let rank = |it: &Self| (it.category, it.risk, it.origin == RuleOrigin::User);
        let (mut more_severe, less_severe) = match rank(&other) > rank(&self) {
            true => (other, self),
            false => (self, other),
        };
        if less_severe.category == more_severe.category {
            let ids = std::iter::once(less_severe.rule).chain(less_severe.equals);
            for id in ids {
                if more_severe.deciding_rules().all(|other| *other != id) {
                    more_severe.equals.push(id);
                }
            }
        }
        match only_reads {
            true => more_severe,
            false => more_severe.not_only_reading(),
        }
    }

    fn only_reads(&self) -> bool {
        self.category == Category::Read || self.sensitive_read
    }

    /// This verdict on something that may do more than read.
    pub(crate) fn not_only_reading(self) -> Self {
        Self {
            sensitive_read: false,
            ..self
        }
    }

    /// This verdict, but never a read, because it is not certain what the wrapper runs.
    pub(crate) fn at_least_write(self, wrapper: &str) -> Self {
        if self.category > Category::Read {
            return self.not_only_reading();
        }
        let reason = format!("run by `{wrapper}`, which may run anything");
        Self::write(Risk::Low, "default.wrapped", &reason)
    }

    /// This verdict with a higher risk, because the command runs with more privileges.
    pub(crate) fn with_raised_risk(self) -> Self {
        let risk = match self.risk {
            Risk::Safe => Risk::Medium,
            Risk::Low => Risk::Medium,
            Risk::Medium => Risk::High,
            Risk::High | Risk::Critical => Risk::Critical,
        };
        Self { risk, ..self }
    }
}

/// The risk of a category, unless a rule sets another.
pub(crate) fn default_risk(category: Category) -> Risk {
    match category {
        Category::Read => Risk::Safe,
        Category::Write => Risk::Low,
        Category::Destructive => Risk::High,
        Category::Blocked => Risk::Critical,
    }
}
