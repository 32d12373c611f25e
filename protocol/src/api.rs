//! The request and response bodies of the HTTP API, apart from messages.

mod chain;
mod decision;
mod notifications;

use std::collections::{BTreeMap, BTreeSet};

use crate::payload::{
    AllowRuleInfo, AllowedBy, Approval, ClearedBy, ClientOrigin, Degree, ExecutorInfo, FileContent,
    GateResolve, OpenGate, Participant, RunOutcome, RunningCommand, SessionAck,
};
use crate::{
    Capability, Category, Digest, JsonObject, MessageId, ParticipantId, ParticipantKind, Risk,
    Role, SessionConfig, SessionId, Timestamp,
};

pub use chain::{ChainCheckpoint, ChainEntry, ChainPage};
pub use decision::{AwaitedVotes, DecisionState, ProposalDecision, ProposalRequest};
pub use notifications::{
    ChangeChannelRequest, ChannelKind, ChannelTest, GateEvent, GateNotification, NewChannelRequest,
    NewPushSubscription, NotificationChannel, NotificationEvent, NotificationPreferences,
    NotificationSettings, PushKey, PushSubscriptionCreated, PushSubscriptionKeys, QuietHours,
    VoteLinkCard,
};

wire_enums! {
    /// The state of a gate.
    pub enum GateStatus {
        Open,
        Approved,
        Rejected,
        TimedOut,
        Cancelled,
    }

    /// The state of a command.
    pub enum CommandStatus {
        Waiting,
        Running,
        Blocked,
        Rejected,
        TimedOut,
        Cancelled,
        Finished,
    }

    /// Whether a token is valid.
    pub enum TokenState {
        Valid,
        Expired,
        Revoked,
    }

    /// A vote for or against.
    pub enum VoteChoice {
        Approve,
        Reject,
    }
}

wire_structs! {
    /// What remains of a session that was deleted, signed by the server.
    #[serde(deny_unknown_fields)]
    pub struct SessionTombstone {
        /// The session; its id is never used again.
        pub session: SessionId,
        /// How many entries its log had.
        pub entries: u64,
        /// The hash of the last of them, in hex.
        pub head: String,
        /// When it was deleted.
        pub at: Timestamp,
        /// Who deleted it: a participant's id, or `server (retention)`.
        pub by: String,
        /// When this was signed; later than `at` if the server's key was rotated since.
        pub signed_at: Timestamp,
        /// The public key of the signer, in hex.
        pub key: String,
        /// The Ed25519 signature over all of this, in hex.
        pub signature: String,
    }

    /// Who a token identifies, and the most that they may be.
    pub struct WhoAmI {
        /// The participant's id.
        pub participant: ParticipantId,
        /// The name that others see.
        pub name: String,
        /// A person or an agent.
        pub kind: ParticipantKind,
        /// The roles that the token allows.
        pub roles: BTreeSet<Role>,
        /// The only session the token is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// When the token expires; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Timestamp>,
    }

    /// Creates a token for somebody.
    #[serde(deny_unknown_fields)]
    pub struct InviteRequest {
        /// The name that others see.
        pub name: String,
        /// The roles that the token allows.
        pub roles: BTreeSet<Role>,
        /// A person or an agent; a person if not given.
        #[serde(default = "human")]
        pub kind: ParticipantKind,
        /// Capabilities beyond those of the roles.
        #[serde(default)]
        pub capabilities: BTreeSet<Capability>,
        /// The only session the token is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// Seconds until the token expires; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_seconds: Option<u64>,
        /// The id of somebody who already has a token, to give them another token or device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub participant: Option<ParticipantId>,
    }

    /// The token of an invitation and the link that carries it. The token is shown only this once.
    pub struct Invitation {
        pub token: String,
        pub link: String,
        pub participant: ParticipantId,
        pub roles: BTreeSet<Role>,
        pub expires: Option<Timestamp>,
    }

    /// Creates a code that somebody exchanges for a token of their own, once.
    #[serde(deny_unknown_fields)]
    pub struct JoinCodeRequest {
        /// The roles that the token allows; never admin.
        pub roles: BTreeSet<Role>,
        /// The only session the token is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// Seconds until the code expires; an hour if not given, a day at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code_seconds: Option<u64>,
        /// Seconds until the token expires, counted from when the code is used; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_seconds: Option<u64>,
    }

    /// A join code. It is shown only this once.
    pub struct CreatedJoinCode {
        /// Names the code in lists; it is not secret.
        pub id: String,
        /// The code.
        pub code: String,
        /// The server's address with the code, for a browser or a QR code.
        pub link: String,
        /// The roles of whoever uses it.
        pub roles: BTreeSet<Role>,
        /// The only session it is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// When the code expires.
        pub expires: Timestamp,
    }

    /// Exchanges a join code for a token.
    #[serde(deny_unknown_fields)]
    pub struct RedeemCodeRequest {
        /// The code, as it was sent.
        pub code: String,
        /// The name that others see.
        pub name: String,
    }

    /// Exchanges the token of a link for a token of this device.
    #[serde(deny_unknown_fields)]
    pub struct DeviceRequest {
        /// What the list of devices calls it, such as `Firefox on Linux`.
        pub name: String,
    }

    /// The token of a device, which allows what the token of the link does. It is shown only this
    /// once.
    pub struct CreatedDevice {
        /// What the device logs in with.
        pub token: String,
        /// Names the device, for removing it; it is not secret.
        pub id: String,
        /// The participant whose device it is.
        pub participant: ParticipantId,
        /// The participant's name.
        pub participant_name: String,
        /// What the list of devices calls it.
        pub name: String,
        /// The roles that the token allows.
        pub roles: BTreeSet<Role>,
        /// The only session the token is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// When the token expires; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Timestamp>,
    }

    /// Makes a link that opens the page on another device of the caller's.
    #[serde(deny_unknown_fields)]
    pub struct DeviceCodeRequest {
        /// The session that the page opens; the inbox if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
    }

    /// A link that opens the page on another device of whoever made it, once. It is shown only this
    /// once.
    pub struct CreatedDeviceCode {
        /// The page's address with a code that makes one device.
        pub link: String,
        /// When the code expires.
        pub expires: Timestamp,
    }

    /// Exchanges a device code for the token of this device.
    #[serde(deny_unknown_fields)]
    pub struct RedeemDeviceCodeRequest {
        /// The code, which follows `device=` in the link.
        pub code: String,
        /// What the list of devices calls this one, such as `Firefox on Linux`.
        pub name: String,
    }

    /// A device of the caller.
    pub struct DeviceListItem {
        /// Names the device, for removing it.
        pub id: String,
        /// What it calls itself.
        pub name: String,
        /// When its token was made.
        pub created: Timestamp,
        /// When its token expires; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Timestamp>,
        /// When it was last used, to the minute; never if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last_used: Option<Timestamp>,
        /// Whether the request was made with its token.
        pub this_device: bool,
    }

    /// The devices of the caller whose tokens are valid, oldest first.
    pub struct DeviceList {
        pub devices: Vec<DeviceListItem>,
    }

    /// A token in a list, without its secret.
    pub struct TokenListItem {
        /// Names the token, for revoking it.
        pub id: String,
        /// The participant who holds it.
        pub participant: ParticipantId,
        /// The name that others see.
        pub name: String,
        /// A person or an agent.
        pub kind: ParticipantKind,
        /// The roles that it allows.
        pub roles: BTreeSet<Role>,
        /// The only session it is for; all sessions if not given.
        #[serde(default)]
        pub session: Option<SessionId>,
        /// Who made it; the server's operator if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub invited_by: Option<ParticipantId>,
        /// The name of the device that it was made for; absent if it is that of a link.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub device: Option<String>,
        /// The token that it was made with, which it ends with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub made_with: Option<String>,
        /// When it was made.
        pub created: Timestamp,
        /// When it expires; never if not given.
        #[serde(default)]
        pub expires: Option<Timestamp>,
        /// When it was revoked.
        #[serde(default)]
        pub revoked: Option<Timestamp>,
        /// When it was last used, to the minute; never if not given.
        #[serde(default)]
        pub last_used: Option<Timestamp>,
        /// Whether it is valid.
        pub state: TokenState,
    }

    /// A join code that nobody has used, without its secret.
    pub struct JoinCodeListItem {
        /// Names the code, for revoking it.
        pub id: String,
        /// The roles of whoever uses it.
        pub roles: BTreeSet<Role>,
        /// The only session it is for; all sessions if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// When it was made.
        pub created: Timestamp,
        /// When it expires.
        pub expires: Timestamp,
    }

    /// Every token that the caller may see, oldest first, and the join codes that can still be used.
    pub struct TokenList {
        pub tokens: Vec<TokenListItem>,
        pub codes: Vec<JoinCodeListItem>,
    }

    /// Creates a session.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct CreateSessionRequest {
        /// The session's id; generated if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Its configuration; fields that are not given have their defaults, unknown ones are
        /// refused.
        #[serde(default, deserialize_with = "crate::config::parse_strictly")]
        #[cfg_attr(feature = "generate", schemars(with = "SessionConfig"))]
        pub config: SessionConfig,
    }

    /// The session that was created.
    pub struct CreatedSession {
        pub session: SessionId,
        pub seq: u64,
    }

    /// A session in a list.
    pub struct SessionListItem {
        /// The session's id.
        pub session: SessionId,
        /// Its name, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// When it was created.
        pub created_at: Timestamp,
        /// When its last message was logged.
        pub updated_at: Timestamp,
        /// The sequence number of the last message in the log.
        pub head: u64,
        /// How many gates are open.
        pub open_gates: u32,
        /// Whether the session has ended.
        pub ended: bool,
    }

    /// A page of sessions, newest first.
    pub struct SessionList {
        pub sessions: Vec<SessionListItem>,
        /// Whether there are older ones; pass the last session's id as `before` to get them.
        pub more: bool,
    }

    /// The current state of a session.
    pub struct SessionDetails {
        /// The session's id.
        pub session: SessionId,
        /// Its name, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Its configuration.
        pub config: SessionConfig,
        /// The sequence number of the last message in the log.
        pub head: u64,
        /// Everyone in the session.
        pub people: Vec<Participant>,
        /// The open gates.
        pub gates: Vec<GateListItem>,
        /// The commands that are running.
        pub running: Vec<RunningCommand>,
        /// The allow rules; some may have expired.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub rules: Vec<AllowRuleInfo>,
        /// Why the session is paused; absent if it is not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub paused: Option<String>,
        /// Whether the session has ended.
        pub ended: bool,
    }

    /// An entry of a log, by its sequence number and its hash in hex.
    pub struct EntryHash {
        pub seq: u64,
        pub hash: String,
    }

    /// Where the log of a session ends, for those who remember where it ended before.
    pub struct SessionHead {
        /// The session's id.
        pub session: SessionId,
        /// The last entry of its log.
        pub head: EntryHash,
        /// The entry that the request asked for; absent if it asked for none or there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub entry: Option<EntryHash>,
        /// The server's public key, in hex.
        pub key: String,
        /// The keys that it had before, oldest first.
        #[serde(default)]
        pub earlier_keys: Vec<String>,
        /// When the operator last declared that the logs were restored from a backup; absent if
        /// never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub restored_at: Option<Timestamp>,
        /// The server's clock.
        pub now: Timestamp,
    }

    /// Whose server this is, for those who ask before they send it a token.
    pub struct PublicKeys {
        /// The server's public key, in hex.
        pub key: String,
        /// The keys that it had before, oldest first.
        pub earlier_keys: Vec<String>,
    }

    /// A page of a session's messages, in order.
    pub struct MessagePage {
        /// Envelopes, the same as on the WebSocket.
        #[cfg_attr(feature = "generate", ts(type = "ServerMessage[]"))]
        pub messages: Vec<JsonObject>,
        /// Pass this as `after` to get the messages that follow.
        pub next: u64,
        /// The sequence number of the last message in the log.
        pub head: u64,
    }

    /// An open gate and the state of its vote.
    pub struct GateListItem {
        /// The session's id.
        pub session: SessionId,
        /// The short id of the proposal, which a path takes instead of the whole one where only one
        /// proposal of the session has it.
        #[serde(default)]
        pub short_id: String,
        /// The short id with the beginning of the digest, which names exactly what is shown here.
        #[serde(default)]
        pub handle: String,
        /// The gate and the proposal that waits at it.
        #[serde(flatten)]
        pub open: OpenGate,
        /// What its executor has announced: where it runs, and what is put before it. Absent if it
        /// has announced nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub executor: Option<ExecutorInfo>,
        /// Approvals that count.
        pub received: u32,
        /// Approvals that are needed.
        pub required: u32,
        /// Named people whose approval is still needed; empty if any voter will do.
        pub awaited: Vec<ParticipantId>,
        /// Who invited those who approved, if a participant did.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub invited_by: BTreeMap<ParticipantId, ParticipantId>,
        /// Approvals that do not count as those of one more person, and who keeps them from it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub not_counted: BTreeMap<ParticipantId, ParticipantId>,
        /// Whether the caller may vote on it.
        pub may_vote: bool,
        /// Bytes of JSON that a list leaves out of a gate of more than 64 KiB; absent if all of it
        /// is there. What is left of the action is enough to recognise it, not to decide: the
        /// gate's own address has all of it. The digest is that of the whole action.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cut_bytes: Option<u64>,
    }

    /// The open gates of every session that the caller may see, oldest session first.
    pub struct GateList {
        pub gates: Vec<GateListItem>,
        /// Pass this as `after`, with a `wait`, to wait for the next change.
        pub version: u64,
    }

    /// One gate, open or closed.
    pub struct GateDetails {
        /// The session's id.
        pub session: SessionId,
        /// The id of the proposal.
        pub tool_proposal: MessageId,
        /// The short id of the proposal.
        #[serde(default)]
        pub short_id: String,
        /// Whether it is open, or how it closed.
        pub status: GateStatus,
        /// The gate and the state of its vote; absent if it is closed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub open: Option<GateListItem>,
        /// The contents of the files that the command at an open gate binds, as far as the
        /// proposal has them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub file_contents: Vec<FileContent>,
        /// How it closed; absent if it is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resolution: Option<GateResolve>,
        /// The command that waits or waited at it, with its earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub command: Option<CommandRecord>,
    }

    /// Votes on a gate.
    #[serde(deny_unknown_fields)]
    pub struct VoteRequest {
        pub vote: VoteChoice,
        /// A comment on an approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// Why the command was rejected; required for a rejection and sent to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The digest of the command that was shown; required once a command was edited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// The id of the vote; sending it again does not vote twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<MessageId>,
    }

    /// Edits a command that waits at a gate.
    #[serde(deny_unknown_fields)]
    pub struct EditRequest {
        /// The complete new arguments, as in `tool.propose`.
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The digest of the command that is edited.
        pub digest: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<MessageId>,
    }

    /// The response to a vote or an edit: its acknowledgement, and the gate after it.
    pub struct GateUpdateResponse {
        pub ack: SessionAck,
        pub gate: GateDetails,
    }

    /// One command of a session, whether it waits, runs or has ended.
    pub struct CommandRecord {
        /// The proposal's id, which also names its output.
        pub tool_proposal: MessageId,
        /// The short id of the proposal.
        #[serde(default)]
        pub short_id: String,
        /// The sequence number of the proposal.
        pub seq: u64,
        /// When it was proposed.
        pub at: Timestamp,
        /// Who proposed it.
        pub proposer: ParticipantId,
        /// The command as one line; what an edit made of it, if it was edited.
        pub command: String,
        /// The tool, if it is not the shell; a command is then its name and its arguments as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<String>,
        /// The versions that edits replaced, oldest first: what was proposed is the first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub earlier: Vec<EarlierCommand>,
        /// The working directory; the executor's own if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        /// What the proposer says it does.
        pub description: String,
        /// The category of its assessment.
        pub category: Category,
        /// It only reads, and is a `write` because of what it reads.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub sensitive_read: bool,
        /// The risk of its assessment.
        pub risk: Risk,
        /// The policy rule that decided the assessment.
        pub rule: String,
        /// Its state.
        pub status: CommandStatus,
        /// Who edited it last; absent if nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub edited_by: Option<ParticipantId>,
        /// How its gate closed; absent if it has none or is still open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resolution: Option<GateResolve>,
        /// How sure it is that what was approved is what ran; absent if an executor runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub degree: Option<Degree>,
        /// The agent client that the call comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
        /// Who runs it; absent before a grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub executor: Option<ParticipantId>,
        /// What allowed it to run; absent before a grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cleared_by: Option<ClearedBy>,
        /// The allow rule that it ran under; absent if it needed none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub allowed_by: Option<AllowedBy>,
        /// The approvals it was granted with.
        #[serde(default)]
        pub approvals: Vec<Approval>,
        /// How it ended; absent before that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<CommandResult>,
    }

    /// A version of a command that an edit replaced.
    pub struct EarlierCommand {
        /// The command as one line.
        pub command: String,
        /// The category of its assessment.
        pub category: Category,
        /// The risk of its assessment.
        pub risk: Risk,
        /// The digest of the action.
        pub digest: Digest,
        /// The approvals that it had; the edit made them void.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub void_approvals: Vec<Approval>,
        /// Who edited it.
        pub edited_by: ParticipantId,
        /// When it was edited.
        pub edited_at: Timestamp,
        /// Why it was edited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    /// A proposal that an id, or the end of one, names.
    pub struct NamedProposal {
        /// The session's id.
        pub session: SessionId,
        /// The proposal's id.
        pub tool_proposal: MessageId,
        /// The sequence number of the proposal.
        pub seq: u64,
        /// The id of its gate; absent if it never waited at one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub gate: Option<MessageId>,
        /// Its state.
        pub status: CommandStatus,
    }

    /// The proposals that an id, or the end of one, names. Proposers choose their ids, so the end of
    /// one may name several.
    pub struct NamedProposals {
        pub proposals: Vec<NamedProposal>,
        /// Whether there are more than these.
        #[serde(default)]
        pub more: bool,
    }

    /// The result of a command.
    pub struct CommandResult {
        /// When the result was logged.
        pub at: Timestamp,
        /// Whether the executor reports success.
        pub success: bool,
        /// The exit code; absent if a signal ended the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit_code: Option<i64>,
        /// What went wrong, if anything did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
        /// How long the command ran, in milliseconds.
        pub duration_ms: u64,
        /// Whether the executor saw the command end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
        /// A client ran it, and only its own word says how it ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub attested: bool,
    }

    /// What happened in a session since a commit, as the published git hooks read it.
    pub struct CommitContext {
        /// The session; null if there is none.
        #[serde(default)]
        pub session_id: Option<SessionId>,
        /// The last commit that a hook reported; null if none did.
        #[serde(default)]
        pub last_commit: Option<String>,
        /// How many messages were logged, without pieces of output and of answers.
        pub messages_since_last_commit: u64,
        /// The names of those who are present, separated by commas.
        pub active_participants: String,
        /// What was decided, in a line; null if nothing was.
        #[serde(default)]
        pub decision_summary: Option<String>,
        /// The tools that ran and how often, such as `shell:3`, separated by commas.
        pub tool_executions: String,
        /// How many prompts were sent.
        pub prompts_count: u64,
        /// How many approvals were given.
        pub approvals_count: u64,
    }

    /// What happened in a session since a commit, with the commands that may have led to the next.
    pub struct SessionCommitContext {
        #[serde(flatten)]
        pub context: CommitContext,
        /// The sequence number of the last message in the log.
        pub head: u64,
        /// The commands that people decided on and that run or have ended, newest first.
        pub commands: Vec<DecidedCommand>,
        /// Whether there are older ones.
        pub more: bool,
    }

    /// A command that ran because people decided so.
    pub struct DecidedCommand {
        /// The proposal's id.
        pub tool_proposal: MessageId,
        /// The short id of the proposal.
        pub short_id: String,
        /// The sequence number of the proposal.
        pub seq: u64,
        /// The command as one line.
        pub command: String,
        /// The directory it runs in; absent if that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        /// The category of its assessment.
        pub category: Category,
        /// Whether it runs or has ended.
        pub status: CommandStatus,
        /// What allowed it to run.
        pub cleared_by: ClearedBy,
        /// Who approved it.
        pub approvers: Vec<NamedParticipant>,
        /// When its result was logged; absent if it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ended_at: Option<Timestamp>,
    }

    /// A participant, by id and name.
    pub struct NamedParticipant {
        pub id: ParticipantId,
        pub name: String,
    }

    /// A page of a session's commands, newest first.
    pub struct CommandPage {
        pub commands: Vec<CommandRecord>,
        /// Pass this as `before` to get older ones; absent if there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }
}

fn human() -> ParticipantKind {
    ParticipantKind::Human
}

/// Registers the types that only the HTTP API uses with the generators.
#[cfg(feature = "generate")]
macro_rules! api_types {
    ($($name:ident),*) => {
        pub(crate) fn schemas(generator: &mut schemars::SchemaGenerator) {
            $(generator.subschema_for::<$name>();)*
        }

        pub(crate) fn visit(visitor: &mut impl ts_rs::TypeVisitor) {
            $(visitor.visit::<$name>();)*
        }
    };
}

#[cfg(feature = "generate")]
api_types!(
    SessionTombstone,
    WhoAmI,
    InviteRequest,
    Invitation,
    JoinCodeRequest,
    CreatedJoinCode,
    RedeemCodeRequest,
    DeviceRequest,
    CreatedDevice,
    DeviceCodeRequest,
    CreatedDeviceCode,
    RedeemDeviceCodeRequest,
    DeviceList,
    TokenList,
    CreateSessionRequest,
    CreatedSession,
    SessionList,
    SessionDetails,
    SessionHead,
    PublicKeys,
    ChainPage,
    MessagePage,
    GateList,
    GateDetails,
    VoteRequest,
    EditRequest,
    GateUpdateResponse,
    CommandPage,
    SessionCommitContext,
    NamedProposals,
    ProposalRequest,
    ProposalDecision,
    NotificationSettings,
    NotificationPreferences,
    NewChannelRequest,
    ChangeChannelRequest,
    ChannelTest,
    PushKey,
    NewPushSubscription,
    PushSubscriptionCreated,
    GateNotification,
    VoteLinkCard
);
