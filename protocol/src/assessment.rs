//! Assessments: how dangerous an action is, and why.

use crate::Digest;

wire_enums! {
    /// What a command does to the machine, in order of severity.
    pub enum Category {
        /// No lasting effect.
        Read,
        /// Makes or changes things that can be made again or undone, or runs code.
        Write,
        /// Loses data, stops services, rewrites shared history.
        Destructive,
        /// Catastrophic; never runs.
        Blocked,
    }

    /// How bad it could be.
    pub enum Risk {
        Safe,
        Low,
        Medium,
        High,
        Critical,
    }

    /// The sandbox a command runs in.
    pub enum SandboxProfile {
        /// Unconfined.
        None,
        /// Read-only, no network, no sockets.
        Read,
        /// Read-only files, sockets allowed.
        ReadNet,
        /// Writes only below the workspace and the private temporary directory.
        Workspace,
    }

    /// The kind of tool that a proposal is for, as the published protocol lists them.
    pub enum ToolCategory {
        FileRead,
        FileWrite,
        FileDelete,
        ShellExecute,
        NetworkRequest,
        Deploy,
        Database,
        SecretAccess,
        ExternalApi,
        All,
    }
}

wire_structs! {
    /// The policy's judgement of an action, computed once and recorded.
    pub struct Assessment {
        /// What the action does to the machine.
        pub category: Category,
        /// How bad it could be.
        pub risk: Risk,
        /// The stable id of the rule that decided.
        pub rule: String,
        /// Why, in a sentence for those who vote.
        pub reason: String,
        /// It only reads, and is a `write` because of what it reads: files that may hold secrets, or
        /// that lie outside the workspace.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub sensitive_read: bool,
        /// The assessments of the parts of a compound command, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub parts: Vec<PartAssessment>,
        /// What prevented a milder category, or what the agent's own estimate raised.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub notes: Vec<String>,
        /// Directories that would make it a read if they were read roots; empty if more than its
        /// paths keeps it from being one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub needed_read_roots: Vec<String>,
        /// Whether its program runs whatever it is given, so that no allow rule ever covers it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub runs_given_code: bool,
        /// The sandbox that a run without a vote needs.
        pub profile: SandboxProfile,
        /// The digest of the action, which binds the assessment and every vote to it.
        pub digest: Digest,
        /// The hash of the rules that were applied.
        pub policy: String,
    }

    /// The judgement of one simple command inside a longer line.
    pub struct PartAssessment {
        /// Where the part begins in the command as shown, in bytes.
        pub start: usize,
        /// Where it ends.
        pub end: usize,
        /// The part itself.
        pub text: String,
        /// What the part does to the machine.
        pub category: Category,
        /// The stable id of the rule that decided.
        pub rule: String,
        /// Why, in a sentence for those who vote.
        pub reason: String,
        /// It only reads, and is a `write` because of what it reads.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub sensitive_read: bool,
    }
}

impl Assessment {
    /// The category as people read it.
    pub fn category_label(&self) -> &'static str {
        self.category.label(self.sensitive_read)
    }
}

impl PartAssessment {
    /// The category as people read it.
    pub fn category_label(&self) -> &'static str {
        self.category.label(self.sensitive_read)
    }
}

impl Category {
    /// The category as people read it. A read that needs approval is a `write` to machines, because
    /// only a `read` runs without approval.
    pub fn label(self, sensitive_read: bool) -> &'static str {
        match self {
            Category::Write if sensitive_read => "sensitive read",
            // An agent that calls its own read dangerous raises the category, and then it shows.
            Category::Read | Category::Write | Category::Destructive | Category::Blocked => {
                self.as_str()
            }
        }
    }
}

impl SandboxProfile {
    /// The one of the two that allows less.
    pub fn narrower(self, other: Self) -> Self {
        match self.freedom() <= other.freedom() {
            true => self,
            false => other,
        }
    }

    /// How much a profile allows; each allows everything that the ones below it allow.
    fn freedom(self) -> u8 {
        match self {
            SandboxProfile::Read => 0,
            SandboxProfile::ReadNet => 1,
            SandboxProfile::Workspace => 2,
            SandboxProfile::None => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_profile_allows_less() {
        use SandboxProfile::{None, Read, ReadNet, Workspace};
        for (one, other, narrower) in [
            (None, Read, Read),
            (Read, ReadNet, Read),
            (ReadNet, Workspace, ReadNet),
            (Workspace, None, Workspace),
            (None, None, None),
        ] {
            assert_eq!(one.narrower(other), narrower);
            assert_eq!(other.narrower(one), narrower);
        }
    }
}
