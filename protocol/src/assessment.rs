//! How dangerous a proposal was found to be, in a form that explains itself.

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
        /// Catastrophe; never runs.
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

    /// What kind of tool a proposal is for, as published.
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

impl Category {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::Read => "read",
            Category::Write => "write",
            Category::Destructive => "destructive",
            Category::Blocked => "blocked",
        }
    }
}

impl std::fmt::Display for Category {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

wire_structs! {
    /// The verdict on one proposal: computed once, recorded, never computed again.
    pub struct Assessment {
        pub category: Category,
        pub risk: Risk,
        /// The stable id of the rule that decided.
        pub rule: String,
        /// Why, in a sentence for the person who votes.
        pub reason: String,
        /// Verdicts of the parts of a compound command, in the order they stand.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub parts: Vec<PartAssessment>,
        /// What kept it from a milder category, or what the agent's own claim raised.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub notes: Vec<String>,
        /// The sandbox an automatic run needs.
        pub profile: SandboxProfile,
        /// Binds the verdict, and every vote, to exactly this action.
        pub digest: Digest,
        /// Hash of the rule set that gave the verdict.
        pub policy: String,
    }

    /// The verdict on one simple command inside a longer line.
    pub struct PartAssessment {
        /// Byte range in the command as shown.
        pub start: usize,
        pub end: usize,
        pub text: String,
        pub category: Category,
        pub rule: String,
        pub reason: String,
    }
}
