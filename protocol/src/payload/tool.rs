//! Tools: proposed, granted, run, watched and finished.

use std::collections::BTreeMap;

use crate::payload::Approval;
use crate::{
    Action, Assessment, Digest, ExecutionLimits, ExtraFields, JsonObject, MessageId, ParticipantId,
    Risk, SandboxProfile, Timestamp, ToolCategory,
};

wire_enums! {
    /// Which of a command's two streams.
    pub enum OutputStream {
        Stdout,
        Stderr,
    }

    /// What let a command run.
    pub enum ClearedBy {
        /// The verdict was read.
        Read,
        /// Enough of the right people approved.
        Quorum,
        /// The deadline passed and the session is configured to approve writes then.
        Clock,
        /// A session rule allows this prefix.
        AllowRule,
        /// A person's own command, run directly.
        Direct,
    }

    /// Whether a result is what happened, or all that can be known.
    pub enum RunOutcome {
        /// The executor saw it end.
        Known,
        /// The executor was lost; it may or may not have run to its end.
        Unknown,
    }
}

wire_structs! {
    /// `tool.propose`
    pub struct ToolPropose {
        pub tool_name: String,
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        pub agent: ParticipantId,
        /// A claim: it can raise the verdict, never lower it.
        pub risk_level: Risk,
        pub description: String,
        /// A claim: `true` asks for a gate, `false` changes nothing.
        pub requires_approval: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggested_approvers: Option<Vec<ParticipantId>>,
        pub category: ToolCategory,
        /// The server's verdict; whatever a client says here is replaced.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.approve`: the same act as `gate.approve`
    pub struct ToolApprove {
        pub tool_proposal: MessageId,
        pub approver: ParticipantId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// The digest that was shown to the voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.reject`: the same act as `gate.reject`
    pub struct ToolReject {
        pub tool_proposal: MessageId,
        pub rejector: ParticipantId,
        pub reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggestion: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// The terms a command runs on. Everybody sees them; only the executor's copy has the nonce.
    pub struct GrantTerms {
        pub id: MessageId,
        pub executor: ParticipantId,
        pub action: Action,
        pub digest: Digest,
        pub limits: ExecutionLimits,
        pub profile: SandboxProfile,
        pub expires_at: Timestamp,
        pub cleared_by: ClearedBy,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub approvals: Vec<Approval>,
        /// The allow rule that cleared it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rule: Option<MessageId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub driver: Option<ParticipantId>,
        /// Proof that this is the executor's own copy.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nonce: Option<String>,
        /// Values of secrets shared with the executor; never stored.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub secret_env: Option<BTreeMap<String, String>>,
    }

    /// `tool.execute`
    pub struct ToolExecute {
        pub tool_proposal: MessageId,
        pub approved_by: Vec<ParticipantId>,
        pub grant: GrantTerms,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.output`
    pub struct ToolOutput {
        pub tool_proposal: MessageId,
        pub stream: OutputStream,
        pub text: String,
        pub complete: bool,
        /// Byte offset of this text in its stream.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offset: Option<u64>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// What a command printed and how it exited, as published, with ours beside it.
    pub struct ToolResultBody {
        /// Absent or null when a signal ended the command.
        #[serde(rename = "exitCode")]
        #[cfg_attr(feature = "generate", ts(type = "number | null"))]
        pub exit_code: Option<i64>,
        #[serde(default)]
        pub stdout: String,
        #[serde(default)]
        pub stderr: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.result`
    pub struct ToolResult {
        pub tool_proposal: MessageId,
        pub success: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub result: Option<ToolResultBody>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
        pub duration_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.cancel`: withdraw a proposal, or stop a run
    pub struct ToolCancel {
        pub tool_proposal: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// The size of a terminal.
    #[derive(Copy, Eq)]
    pub struct TerminalSize {
        pub columns: u16,
        pub rows: u16,
    }

    /// `tool.input`: keys and resize for an interactive command
    pub struct ToolInput {
        pub tool_proposal: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub resize: Option<TerminalSize>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `shell.exec`: a person's own command
    pub struct ShellExec {
        pub command: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_seconds: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub executor: Option<ParticipantId>,
        /// Always `ui_bang` in the record.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub origin: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `policy.allow`: let commands that begin with these words run without asking
    pub struct PolicyAllow {
        pub prefix: Vec<String>,
        /// When the rule ends by itself.
        pub expires_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `policy.revoke`
    pub struct PolicyRevoke {
        /// The id of the `policy.allow` message.
        pub rule: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `output.read`: lines of a command's output, by the id of its proposal
    pub struct OutputRead {
        #[serde(rename = "ref")]
        pub reference: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stream: Option<OutputStream>,
        /// First line, counted from 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offset: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub head: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tail: Option<u64>,
        /// Only lines that contain this text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub grep: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// One line of recorded output.
    pub struct OutputLine {
        pub number: u64,
        pub stream: OutputStream,
        pub text: String,
    }

    /// `output.page`
    pub struct OutputPage {
        #[serde(rename = "ref")]
        pub reference: MessageId,
        pub lines: Vec<OutputLine>,
        pub total_lines: u64,
        pub total_bytes: u64,
        /// Whether the command has ended, so that no more lines will come.
        pub finished: bool,
        /// Whether the page was cut to fit in a message.
        pub cut: bool,
    }
}
