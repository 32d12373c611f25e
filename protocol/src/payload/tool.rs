//! Messages about tools and commands, from proposal to output and result.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::payload::Approval;
use crate::{
    Action, Assessment, Digest, ExecutionLimits, ExtraFields, JsonObject, MessageId, ParticipantId,
    Risk, SandboxProfile, Timestamp, ToolCategory, ToolKind,
};

wire_enums! {
    /// One of a command's two output streams.
    pub enum OutputStream {
        Stdout,
        Stderr,
    }

    /// What allowed a command to run.
    pub enum ClearedBy {
        /// It was assessed as a read.
        Read,
        /// Its gate reached the quorum.
        Quorum,
        /// The gate's deadline passed, and the session is configured to approve writes then.
        Clock,
        /// An allow rule covers it.
        AllowRule,
        /// A person's own command, run directly.
        Direct,
        /// Nothing did: it is only tried in the read sandbox, because nothing is known about it.
        Tried,
    }

    /// What git has of a file.
    pub enum GitCopy {
        /// Its present content.
        Same,
        /// Another content.
        Older,
        /// Nothing.
        None,
    }

    /// Whether it is known how a command ended.
    pub enum RunOutcome {
        /// The executor saw it end.
        Known,
        /// The executor was lost, so the command may or may not have completed.
        Unknown,
        /// The client was allowed to run it and did not; only of what a client runs.
        NotRun,
    }

    /// Who runs what is granted.
    #[derive(Default)]
    pub enum RunBy {
        /// The proposer's executor, which runs exactly the granted bytes.
        #[default]
        Executor,
        /// The agent client itself, with its own tools.
        Client,
    }

    /// How sure it is that what was approved is what ran, from the surest on.
    pub enum Degree {
        /// An executor of this protocol ran exactly these bytes.
        Executed,
        /// The client ran it; the bridge stood in the client's protocol, where nothing runs unasked.
        Held,
        /// The client's hook asked; what the client then ran is its own word alone.
        Hooked,
    }
}

impl Degree {
    /// What it means, for those who vote.
    pub fn explanation(self) -> &'static str {
        match self {
            Degree::Executed => "PVP's executor runs exactly this",
            Degree::Held => "the client runs it; it could not start unasked",
            Degree::Hooked => "the client asked; what it runs is the client's own word",
        }
    }
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum ToolResultValue {
    /// What a command printed and how it exited.
    Command(ToolResultBody),
    /// What any other tool returned, as it is.
    Other(#[cfg_attr(feature = "generate", ts(type = "unknown"))] Value),
}

impl<'de> serde::Deserialize<'de> for ToolResultValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let body = looks_like_command(&value).then(|| ToolResultBody::deserialize(&value).ok());
        Ok(match body.flatten() {
            Some(body) => ToolResultValue::Command(body),
            None => ToolResultValue::Other(value),
        })
    }
}

fn looks_like_command(value: &Value) -> bool {
    let has = |name| value.get(name).is_some();
    has("exitCode") || has("stdout") || has("stderr")
}

impl From<ToolResultBody> for ToolResultValue {
    fn from(body: ToolResultBody) -> Self {
        ToolResultValue::Command(body)
    }
}

/// The kind of a tool whose name says it; `None` if only its agent does.
fn known_category(tool_name: &str) -> Option<ToolCategory> {
    match tool_name {
        "shell" => Some(ToolCategory::ShellExecute),
        "file_read" => Some(ToolCategory::FileRead),
        "file_write" | "file_edit" => Some(ToolCategory::FileWrite),
        _ => None,
    }
}

/// The estimate of an agent that gives none.
fn no_estimate() -> Risk {
    Risk::Safe
}

fn is_by_executor(runs: &RunBy) -> bool {
    *runs == RunBy::Executor
}

impl ToolPropose {
    /// The kind of tool. The agent states it, except for tools that are known.
    pub fn tool_kind(&self) -> ToolKind {
        let known = known_category(&self.tool_name).map(ToolKind::Known);
        known.unwrap_or(ToolKind::Stated(self.category))
    }
}

impl GrantTerms {
    /// What the run may use. A grant without limits is for a client, and an executor refuses it; if
    /// it were run, it could use nothing.
    pub fn executor_limits(&self) -> ExecutionLimits {
        self.limits.unwrap_or(ExecutionLimits {
            timeout_ms: 1,
            output_bytes: 0,
        })
    }
}

impl ToolResult {
    /// What a command printed and how it exited; `None` if this is not the result of a command.
    pub fn command(&self) -> Option<&ToolResultBody> {
        match &self.result {
            Some(ToolResultValue::Command(body)) => Some(body),
            Some(ToolResultValue::Other(_)) | None => None,
        }
    }

    /// The exit code of a command; `None` if it has none.
    pub fn exit_code(&self) -> Option<i64> {
        self.command().and_then(|body| body.exit_code)
    }
}

wire_structs! {
    /// The content of a file that a proposal binds, for those who vote.
    #[derive(Eq)]
    pub struct FileContent {
        /// The path, as in the `files` of the arguments.
        pub path: String,
        /// The whole content; its SHA-256 is the bound one.
        pub text: String,
    }

    /// A file that a command deletes, as its executor found it when it proposed the command.
    #[derive(Eq)]
    pub struct DeletedFile {
        /// The path from the executor's workspace.
        pub path: String,
        /// Its size.
        pub bytes: u64,
        /// Whether git could bring it back.
        pub in_git: GitCopy,
    }

    /// The agent client that a call or a prompt comes from, as its bridge describes it.
    #[derive(Default, Eq)]
    pub struct ClientOrigin {
        /// The client, such as `claude-code`.
        pub client: String,
        /// Its version, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<String>,
        /// The client's own id of its conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<String>,
        /// The client's own id of the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub call: Option<String>,
        /// The subagent that makes the call; absent if the agent itself does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subagent: Option<String>,
        /// If what asks PVP crashes, this client runs the call unasked. Absent if it does not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub fails_open: bool,
    }

    /// `tool.propose`
    pub struct ToolPropose {
        /// The tool; `shell` runs commands.
        pub tool_name: String,
        /// The tool's arguments.
        #[serde(serialize_with = "crate::sorted_fields::serialize")]
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The agent that proposes it.
        pub agent: ParticipantId,
        /// The agent's own estimate. It can raise the assessment, never lower it.
        #[serde(default = "no_estimate")]
        pub risk_level: Risk,
        /// What the agent says it does.
        pub description: String,
        /// Whether the agent asks for a gate. `false` has no effect.
        pub requires_approval: bool,
        /// People the agent would like to decide; relayed but not interpreted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggested_approvers: Option<Vec<ParticipantId>>,
        /// The kind of tool, as the agent states it.
        pub category: ToolCategory,
        /// The contents of the files that the arguments bind, as far as they are text and short.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub file_contents: Vec<FileContent>,
        /// Whether the tool goes on sending output after its first result, as a monitor does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub streaming: bool,
        /// The files that it deletes by name, for those who vote.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub deleted_files: Vec<DeletedFile>,
        /// Who runs it once it is granted.
        #[serde(default, skip_serializing_if = "is_by_executor")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub runs: RunBy,
        /// How sure it is that what is approved is what runs; only with `runs: "client"`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub degree: Option<Degree>,
        /// The agent client that the call comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
        /// Whether it is withdrawn while it waits as soon as its proposer is gone, who renews it until
        /// then. What a client runs has a lease anyway.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub lease: bool,
        /// The server's assessment; it replaces whatever a client sends here.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.approve`: has the same effect as `gate.approve`
    pub struct ToolApprove {
        pub tool_proposal: MessageId,
        pub approver: ParticipantId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// The digest of the action that was shown to the voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.reject`: has the same effect as `gate.reject`
    pub struct ToolReject {
        /// The proposal.
        pub tool_proposal: MessageId,
        /// Who rejects it; must be the sender.
        pub rejector: ParticipantId,
        /// Why, for the agent.
        pub reason: String,
        /// What to do instead.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggestion: Option<String>,
        /// The digest of the action that was shown to the voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// The allow rule that a grant is based on.
    pub struct AllowedBy {
        /// Who made the rule.
        pub participant: ParticipantId,
        /// The words that the commands it allows begin with.
        pub prefix: Vec<String>,
    }

    /// The terms of a grant. Everyone sees them, but only the executor's copy has the nonce.
    pub struct GrantTerms {
        /// The grant's id.
        pub id: MessageId,
        /// Who may run the action.
        pub executor: ParticipantId,
        /// What may be run.
        pub action: Action,
        /// The digest of the action.
        pub digest: Digest,
        /// Who runs it.
        #[serde(default, skip_serializing_if = "is_by_executor")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub runs: RunBy,
        /// What the run may use; absent if a client runs it, which nothing limits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limits: Option<ExecutionLimits>,
        /// The sandbox to run it in; absent if a client runs it, which nothing confines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub profile: Option<SandboxProfile>,
        /// When the grant expires if the run has not started.
        pub expires_at: Timestamp,
        /// What allowed the action.
        pub cleared_by: ClearedBy,
        /// The approvals that counted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub approvals: Vec<Approval>,
        /// The allow rule that covers the action, if one does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rule: Option<MessageId>,
        /// What that rule allows, and who made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub allowed_by: Option<AllowedBy>,
        /// Who may type, in `pty` mode.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub driver: Option<ParticipantId>,
        /// The proof that this copy is the executor's own; absent in all other copies.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nonce: Option<String>,
        /// The values of secrets shared with the executor, as environment variables; never stored.
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
        /// The proposal that runs.
        pub tool_proposal: MessageId,
        /// Which stream it was written to.
        pub stream: OutputStream,
        /// The output.
        pub text: String,
        /// Whether this is the last of the stream.
        pub complete: bool,
        /// The byte offset of this text in its stream; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offset: Option<u64>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// What a command printed and how it exited, in the form of the published protocol.
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
        /// The proposal that ran.
        pub tool_proposal: MessageId,
        /// Whether the command succeeded.
        pub success: bool,
        /// What it returned; absent if it did not run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub result: Option<ToolResultValue>,
        /// What went wrong, if anything did.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
        /// How long it ran, in milliseconds.
        pub duration_ms: u64,
        /// Whether it is known how the command ended; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
        /// The tool is a streaming one and goes on: more output and another result may follow; set
        /// by the server.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub more_output: bool,
        /// The client ran it, and only its own word says how it ended; set by the server.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub attested: bool,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// Why what a command printed while it was tried was discarded.
    #[derive(Eq)]
    pub struct DiscardedTrial {
        /// What the sandbox denied, such as `write notes.txt`; the first denial ends a trial.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub denied: Vec<String>,
        /// Why else, such as a limit that was reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    /// `tool.discard`: a command was tried in the sandbox and needs approval after all
    pub struct ToolDiscard {
        /// The proposal that was tried.
        pub tool_proposal: MessageId,
        /// Why its output was discarded.
        pub trial: DiscardedTrial,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.cancel`: withdraws a proposal or stops a run
    pub struct ToolCancel {
        pub tool_proposal: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.renew`: whoever waits for these proposals, or runs them, is still there; ephemeral
    pub struct ToolRenew {
        /// Proposals of the sender with `runs: "client"`.
        pub tool_proposals: Vec<MessageId>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `tool.defer`: the client of a proposal goes away and asks again later
    pub struct ToolDefer {
        /// A proposal of the sender with `runs: "client"`.
        pub tool_proposal: MessageId,
        /// How long it waits for the client to be back.
        pub seconds: u32,
        /// Fields this version does not know.
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

    /// `tool.input`: keystrokes and resizes for a `pty` command
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
        /// The line that the login shell runs.
        pub command: String,
        /// The time limit; the server sets its default if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_seconds: Option<u32>,
        /// The working directory; the executor's own if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        /// Who runs it; chosen by the server if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub executor: Option<ParticipantId>,
        /// Always `ui_bang`; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub origin: Option<String>,
        /// The names of the shared secrets that the command receives; set by the server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub secrets: Vec<String>,
        /// The server's assessment; it replaces whatever a client sends here.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `policy.allow`: lets commands that begin with these words run without a vote, or reads below
    /// a directory
    pub struct PolicyAllow {
        /// The words that an allowed command begins with; not given with `read_root`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub prefix: Vec<String>,
        /// A directory beside the executor's own that may be read without a vote, as an absolute
        /// path; not given with `prefix`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub read_root: Option<String>,
        /// Where the commands must run: a directory, relative to the executor's own or absolute,
        /// or `*` for anywhere. Without it, the executor's own directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub directory: Option<String>,
        /// When the rule expires.
        pub expires_at: Timestamp,
        /// Why it is allowed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Fields this version does not know.
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

    /// `output.read`: asks for lines of a command's output
    pub struct OutputRead {
        /// The id of the proposal.
        #[serde(rename = "ref")]
        pub reference: MessageId,
        /// The stream to read; both if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stream: Option<OutputStream>,
        /// The first line, counted from 0; with `grep`, the line at which the search begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offset: Option<u64>,
        /// The most lines to return; not with `head` or `tail`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u64>,
        /// Return the first lines, this many.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub head: Option<u64>,
        /// Return the last lines, this many.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tail: Option<u64>,
        /// Return only lines that contain this text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub grep: Option<String>,
        /// Fields this version does not know.
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
        /// The id of the proposal.
        #[serde(rename = "ref")]
        pub reference: MessageId,
        /// The lines that were asked for.
        pub lines: Vec<OutputLine>,
        /// Lines recorded so far in the requested streams.
        pub total_lines: u64,
        /// Bytes recorded so far in the requested streams.
        pub total_bytes: u64,
        /// The `offset` of the next page; left out if this one reaches the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
        /// Whether the command has ended, so that no more lines will come.
        pub finished: bool,
        /// Whether the page was truncated to fit in a message.
        pub cut: bool,
    }
}

impl std::fmt::Display for DiscardedTrial {
    /// For those who vote: what came of the trial.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.denied.as_slice(), &self.reason) {
            ([], None) => f.write_str("tried in the sandbox, without a result"),
            ([], Some(reason)) => write!(f, "tried in the sandbox, without a result: {reason}"),
            (denied, _) => write!(
                f,
                "tried in the sandbox, which denied: {}",
                denied.join(", ")
            ),
        }
    }
}
