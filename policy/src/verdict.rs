//! The verdict on one command, and how several are combined into the most severe.

use pvp_protocol::{Category, Risk, SandboxProfile};

/// What one rule says about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandVerdict {
    pub(crate) category: Category,
    pub(crate) risk: Risk,
    pub(crate) rule: String,
    pub(crate) reason: String,
    /// What a read needs; none for anything else, and for what the shell does by itself.
    pub(crate) profile: SandboxProfile,
}

impl CommandVerdict {
    pub(crate) fn new(category: Category, risk: Risk, rule: &str, reason: &str) -> Self {
        Self {
            category,
            risk,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            profile: SandboxProfile::None,
        }
    }

    pub(crate) fn write(risk: Risk, rule: &str, reason: &str) -> Self {
        Self::new(Category::Write, risk, rule, reason)
    }

    /// The more severe of the two; `self` if they are equal.
    pub(crate) fn max(self, other: Self) -> Self {
        if (other.category, other.risk) > (self.category, self.risk) {
            other
        } else {
            self
        }
    }

    /// This verdict, but never a read, because it is not certain what the wrapper runs.
    pub(crate) fn at_least_write(self, wrapper: &str) -> Self {
        if self.category > Category::Read {
            return self;
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
