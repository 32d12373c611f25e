// Generated from the `protocol` crate by `make generate`. Do not edit.

export interface Envelope<Type extends string, Payload> {
  v: 1;
  id: string;
  ts?: string;
  session: string;
  sender: string;
  type: Type;
  payload: Payload;
  ref?: string;
  seq?: number;
  causal_refs?: string[];
  fork?: string;
}

export type Action = {
/**
 * What to run.
 */
command: Command,
/**
 * The working directory; the executor's own if not given.
 */
cwd?: string,
/**
 * Variables added to the environment.
 */
env?: { [key in string]: string },
/**
 * How the command is run.
 */
mode: RunMode,
/**
 * The requested time limit; the default of the category and mode if not given.
 */
timeout_seconds?: number,
/**
 * Who may type, in `pty` mode.
 */
driver?: ParticipantId,
/**
 * The names of the shared secrets that the command receives as variables.
 */
secrets?: Array<string>,
/**
 * The files that the command runs or changes; it does not start if one of them has changed.
 */
files?: Array<BoundFile>, };

export type AllowRuleInfo = {
/**
 * The id of its `policy.allow`.
 */
rule: MessageId,
/**
 * Who allowed it.
 */
by: ParticipantId,
/**
 * When it was allowed.
 */
at: string,
/**
 * The words that an allowed command begins with; empty if it allows reading a directory.
 */
prefix?: Array<string>,
/**
 * The directory that may be read, as in `policy.allow`.
 */
read_root?: string,
/**
 * Where an allowed command runs, as in `policy.allow`.
 */
directory?: string,
/**
 * When the rule expires.
 */
expires_at: string,
/**
 * Why it was allowed.
 */
reason?: string, };

export type AllowedBy = {
/**
 * Who made the rule.
 */
participant: ParticipantId,
/**
 * The words that the commands it allows begin with.
 */
prefix: Array<string>, };

export type Announce = {
/**
 * The participant's id.
 */
id: ParticipantId,
/**
 * The name that others see.
 */
name: string,
/**
 * A person or an agent.
 */
type: ParticipantKind,
/**
 * The roles they hold.
 */
roles: Array<Role>,
/**
 * Capabilities beyond those of the roles, if any.
 */
capabilities?: Array<Capability>,
/**
 * How they are connected.
 */
transport: Transport,
/**
 * Free-form facts about the client.
 */
metadata?: Record<string, unknown>,
/**
 * What their executor can do; set by agents that run commands.
 */
executor?: ExecutorInfo,
/**
 * Who invited them, if a participant did; set by the server.
 */
invited_by?: ParticipantId,
/**
 * Whether they were invited before the session was created; set by the server.
 */
invited_before_session?: boolean, };

export type Approval = { participant: ParticipantId, at: string, comment?: string, };

export type Assessment = {
/**
 * What the action does to the machine.
 */
category: Category,
/**
 * How bad it could be.
 */
risk: Risk,
/**
 * The stable id of the rule that decided.
 */
rule: string,
/**
 * Why, in a sentence for those who vote.
 */
reason: string,
/**
 * It only reads, and is a `write` because of what it reads: files that may hold secrets, or
 * that lie outside the workspace.
 */
sensitive_read?: boolean,
/**
 * The assessments of the parts of a compound command, in order.
 */
parts?: Array<PartAssessment>,
/**
 * What prevented a milder category, or what the agent's own estimate raised.
 */
notes?: Array<string>,
/**
 * Directories that would make it a read if they were read roots; empty if more than its
 * paths keeps it from being one.
 */
needed_read_roots?: Array<string>,
/**
 * Whether its program runs whatever it is given, so that no allow rule ever covers it.
 */
runs_given_code?: boolean,
/**
 * The sandbox that a run without a vote needs.
 */
profile: SandboxProfile,
/**
 * The digest of the action, which binds the assessment and every vote to it.
 */
digest: string,
/**
 * The hash of the rules that were applied.
 */
policy: string, };

export type AwaitedVotes = {
/**
 * The gate and the version of the command, for `pvp approve`.
 */
handle: string,
/**
 * The quorum, in words.
 */
quorum: string,
/**
 * Approvals that count so far.
 */
received: number,
/**
 * Approvals that are needed.
 */
required: number,
/**
 * Who could still approve.
 */
awaited: Array<ParticipantId>,
/**
 * When the gate times out; absent if it never does.
 */
deadline?: string, };

export type BoundFile = {
/**
 * The path, from the executor's workspace.
 */
path: string,
/**
 * The SHA-256 of the content; absent if there was no such file, and there must be none
 * when the command starts.
 */
sha256?: string,
/**
 * The size in bytes; 0 if there was no such file.
 */
bytes: number, };

export type Capability = "prompt" | "approve" | "interrupt" | "fork" | "add_context" | "manage_participants" | "end_session" | "exec";

export type Category = "read" | "write" | "destructive" | "blocked";

export type ChainCheckpoint = {
/**
 * The sequence number of the entry.
 */
seq: number,
/**
 * The hash of that entry, in hex.
 */
hash: string,
/**
 * When it was signed.
 */
at: string,
/**
 * The hash of the snapshot made at that entry, in hex; absent if none was made there.
 */
snapshot?: string,
/**
 * The public key of the signer, in hex.
 */
key: string,
/**
 * The Ed25519 signature over all of this and the session's id, in hex.
 */
signature: string, };

export type ChainEntry = { seq: number,
/**
 * The hash over the hash before it, its meta and its body, in hex.
 */
hash: string,
/**
 * The meta that the hash covers, byte for byte; empty if the entry has none. Absent if the
 * caller may not see the entry, or while it holds a grant that can still be used.
 */
meta?: string, };

export type ChainPage = { entries: Array<ChainEntry>,
/**
 * The newest checkpoint up to `next`; absent if there is none.
 */
checkpoint?: ChainCheckpoint,
/**
 * Pass this as `after` to get the entries that follow.
 */
next: number,
/**
 * The sequence number of the last entry of the log.
 */
head: number, };

export type ChangeChannelRequest = { label?: string, enabled?: boolean, };

export type ChannelKind = "push" | "webhook" | "ntfy" | "slack" | "discord" | "email";

export type ChannelTest = { delivered: boolean,
/**
 * Why it did not; absent if it did.
 */
error?: string, };

export type ClearedBy = "read" | "quorum" | "clock" | "allow_rule" | "direct" | "tried";

export type ClientOrigin = {
/**
 * The client, such as `claude-code`.
 */
client: string,
/**
 * Its version, if it is known.
 */
version?: string,
/**
 * The client's own id of its conversation.
 */
session?: string,
/**
 * The client's own id of the call.
 */
call?: string,
/**
 * The subagent that makes the call; absent if the agent itself does.
 */
subagent?: string,
/**
 * If what asks PVP crashes, this client runs the call unasked. Absent if it does not.
 */
fails_open?: boolean, };

export type ClientReads = "ask" | "workspace";

export type Command = { "form": "shell", line: string, } | { "form": "argv", command: string, args: Array<string>, } | { "form": "login_shell", line: string, } | { "form": "tool", name: string, arguments: Record<string, unknown>, };

export type CommandPage = { commands: Array<CommandRecord>,
/**
 * Pass this as `before` to get older ones; absent if there are none.
 */
next?: number, };

export type CommandRecord = {
/**
 * The proposal's id, which also names its output.
 */
tool_proposal: MessageId,
/**
 * The short id of the proposal.
 */
short_id: string,
/**
 * The sequence number of the proposal.
 */
seq: number,
/**
 * When it was proposed.
 */
at: string,
/**
 * Who proposed it.
 */
proposer: ParticipantId,
/**
 * The command as one line; what an edit made of it, if it was edited.
 */
command: string,
/**
 * The tool, if it is not the shell; a command is then its name and its arguments as JSON.
 */
tool?: string,
/**
 * The versions that edits replaced, oldest first: what was proposed is the first.
 */
earlier?: Array<EarlierCommand>,
/**
 * The working directory; the executor's own if not given.
 */
cwd?: string,
/**
 * What the proposer says it does.
 */
description: string,
/**
 * The category of its assessment.
 */
category: Category,
/**
 * It only reads, and is a `write` because of what it reads.
 */
sensitive_read?: boolean,
/**
 * The risk of its assessment.
 */
risk: Risk,
/**
 * The policy rule that decided the assessment.
 */
rule: string,
/**
 * Its state.
 */
status: CommandStatus,
/**
 * Who edited it last; absent if nobody did.
 */
edited_by?: ParticipantId,
/**
 * How its gate closed; absent if it has none or is still open.
 */
resolution?: GateResolve,
/**
 * How sure it is that what was approved is what ran; absent if an executor runs it.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin,
/**
 * Who runs it; absent before a grant.
 */
executor?: ParticipantId,
/**
 * What allowed it to run; absent before a grant.
 */
cleared_by?: ClearedBy,
/**
 * The allow rule that it ran under; absent if it needed none.
 */
allowed_by?: AllowedBy,
/**
 * The approvals it was granted with.
 */
approvals: Array<Approval>,
/**
 * How it ended; absent before that.
 */
result?: CommandResult, };

export type CommandResult = {
/**
 * When the result was logged.
 */
at: string,
/**
 * Whether the executor reports success.
 */
success: boolean,
/**
 * The exit code; absent if a signal ended the command.
 */
exit_code?: number,
/**
 * What went wrong, if anything did.
 */
error?: string,
/**
 * How long the command ran, in milliseconds.
 */
duration_ms: number,
/**
 * Whether the executor saw the command end.
 */
outcome?: RunOutcome,
/**
 * A client ran it, and only its own word says how it ended.
 */
attested?: boolean, };

export type CommandStatus = "waiting" | "running" | "blocked" | "rejected" | "timed_out" | "cancelled" | "finished";

export type ConfigChanges = {
/**
 * Tool categories that always need a gate, whatever the assessment.
 */
require_approval_for?: Array<ToolCategory>,
/**
 * The quorum of a gate unless its category or rule sets another.
 */
default_gate_quorum?: QuorumRule,
/**
 * Whether forks are allowed; has no effect yet, because the server refuses all forks.
 */
allow_forks?: boolean,
/**
 * How many participants may be in the session at once.
 */
max_participants?: number,
/**
 * The requested order of delivery; has no effect, because the order is always total.
 */
ordering_mode?: OrderingMode,
/**
 * What happens to decisions while a participant is away.
 */
on_participant_timeout?: ParticipantTimeoutAction,
/**
 * Seconds between heartbeat pings.
 */
heartbeat_interval_seconds?: number,
/**
 * Seconds without activity after which a participant is idle.
 */
idle_timeout_seconds?: number,
/**
 * Seconds of silence after which a participant is away.
 */
away_timeout_seconds?: number,
/**
 * Quorums that differ from the default, by the category of the command.
 */
quorum_by_category?: QuorumByCategory,
/**
 * Seconds until a gate's deadline; 0 means that gates have none.
 */
gate_timeout_seconds?: number,
/**
 * What happens when a gate's deadline passes.
 */
on_gate_timeout?: GateTimeoutAction,
/**
 * Whether people may run their own commands.
 */
shell_exec?: ShellExecMode,
/**
 * Whoever amends a command may not vote on it.
 */
four_eyes?: boolean,
/**
 * People may approve their own commands, for a session with one person in it. An agent's
 * commands still need somebody else, because agents do not vote.
 */
solo?: boolean,
/**
 * Where more than one approval is needed, do not count that of a participant whom another
 * counted approver or the owner of the proposal invited during the session.
 */
quorum_independent?: boolean,
/**
 * Reads run without a vote even if the executor cannot sandbox them.
 */
trust_reads?: boolean,
/**
 * What happens to reads that an agent client runs by itself, where no sandbox holds them.
 */
client_reads?: ClientReads,
/**
 * Commands that nothing is known about are tried in the read sandbox, and need a vote only if
 * it denies them something.
 */
try_unknown?: boolean,
/**
 * The sandbox of approved commands: `none` or `workspace`.
 */
profile?: SandboxProfile,
/**
 * Directories beside the executor's own that may be read without a vote, as absolute paths.
 */
read_roots?: Array<string>, };

export type ConflictResolution = "use_source" | "use_target" | "custom";

export type Content = string | Record<string, unknown>;

export type ContentRef = { hash: string, size_bytes: number, mime_type: string, storage: ContentStorage, uri?: string, };

export type ContentStorage = "inline" | "local" | "s3" | "ipfs";

export type ContextAdd = {
/**
 * The key that names the item in the session.
 */
key: string,
/**
 * The kind of content.
 */
content_type: ContextContentType,
/**
 * The content; required unless `content_ref` is given.
 */
content?: Content,
/**
 * Where the content is stored; required unless `content` is given.
 */
content_ref?: ContentRef,
/**
 * The only people who see it, besides its sender; everyone if not given.
 */
visible_to?: Array<ParticipantId>,
/**
 * Where it comes from.
 */
source?: string,
/**
 * Labels for finding it.
 */
tags?: Array<string>, };

export type ContextContentType = "text" | "file" | "reference" | "structured" | "image" | "audio_transcript";

export type ContextRemove = { key: string, reason: string, };

export type ContextUpdate = {
/**
 * The key of the item.
 */
key: string,
/**
 * The change as a diff; one of `diff`, `new_content` and `new_content_ref` is given.
 */
diff?: string,
/**
 * The new content.
 */
new_content?: Content,
/**
 * Where the new content is stored.
 */
new_content_ref?: ContentRef,
/**
 * Why it changes.
 */
reason: string, };

export type CreateSessionRequest = {
/**
 * The session's id; generated if not given.
 */
session?: SessionId, name?: string,
/**
 * Its configuration; fields that are not given have their defaults, unknown ones are
 * refused.
 */
config: SessionConfig, };

export type CreatedDevice = {
/**
 * What the device logs in with.
 */
token: string,
/**
 * Names the device, for removing it; it is not secret.
 */
id: string,
/**
 * The participant whose device it is.
 */
participant: ParticipantId,
/**
 * The participant's name.
 */
participant_name: string,
/**
 * What the list of devices calls it.
 */
name: string,
/**
 * The roles that the token allows.
 */
roles: Array<Role>,
/**
 * The only session the token is for; all sessions if not given.
 */
session?: SessionId,
/**
 * When the token expires; never if not given.
 */
expires?: string, };

export type CreatedDeviceCode = {
/**
 * The page's address with a code that makes one device.
 */
link: string,
/**
 * When the code expires.
 */
expires: string, };

export type CreatedJoinCode = {
/**
 * Names the code in lists; it is not secret.
 */
id: string,
/**
 * The code.
 */
code: string,
/**
 * The server's address with the code, for a browser or a QR code.
 */
link: string,
/**
 * The roles of whoever uses it.
 */
roles: Array<Role>,
/**
 * The only session it is for; all sessions if not given.
 */
session?: SessionId,
/**
 * When the code expires.
 */
expires: string, };

export type CreatedSession = { session: SessionId, seq: number, };

export type DecidedCommand = {
/**
 * The proposal's id.
 */
tool_proposal: MessageId,
/**
 * The short id of the proposal.
 */
short_id: string,
/**
 * The sequence number of the proposal.
 */
seq: number,
/**
 * The command as one line.
 */
command: string,
/**
 * The directory it runs in; absent if that is not known.
 */
cwd?: string,
/**
 * The category of its assessment.
 */
category: Category,
/**
 * Whether it runs or has ended.
 */
status: CommandStatus,
/**
 * What allowed it to run.
 */
cleared_by: ClearedBy,
/**
 * Who approved it.
 */
approvers: Array<NamedParticipant>,
/**
 * When its result was logged; absent if it runs.
 */
ended_at?: string, };

export type DecisionState = "waiting" | "allowed" | "denied";

export type Degree = "executed" | "held" | "hooked";

export type DeletedFile = {
/**
 * The path from the executor's workspace.
 */
path: string,
/**
 * Its size.
 */
bytes: number,
/**
 * Whether git could bring it back.
 */
in_git: GitCopy, };

export type DeviceCodeRequest = {
/**
 * The session that the page opens; the inbox if not given.
 */
session?: SessionId, };

export type DeviceList = { devices: Array<DeviceListItem>, };

export type DeviceListItem = {
/**
 * Names the device, for removing it.
 */
id: string,
/**
 * What it calls itself.
 */
name: string,
/**
 * When its token was made.
 */
created: string,
/**
 * When its token expires; never if not given.
 */
expires?: string,
/**
 * When it was last used, to the minute; never if not given.
 */
last_used?: string,
/**
 * Whether the request was made with its token.
 */
this_device: boolean, };

export type DeviceRequest = {
/**
 * What the list of devices calls it, such as `Firefox on Linux`.
 */
name: string, };

export type DiscardedTrial = {
/**
 * What the sandbox denied, such as `write notes.txt`; the first denial ends a trial.
 */
denied?: Array<string>,
/**
 * Why else, such as a limit that was reached.
 */
reason?: string, };

export type EarlierCommand = {
/**
 * The command as one line.
 */
command: string,
/**
 * The category of its assessment.
 */
category: Category,
/**
 * The risk of its assessment.
 */
risk: Risk,
/**
 * The digest of the action.
 */
digest: string,
/**
 * The approvals that it had; the edit made them void.
 */
void_approvals?: Array<Approval>,
/**
 * Who edited it.
 */
edited_by: ParticipantId,
/**
 * When it was edited.
 */
edited_at: string,
/**
 * Why it was edited.
 */
reason?: string, };

export type EditRequest = {
/**
 * The complete new arguments, as in `tool.propose`.
 */
arguments: Record<string, unknown>,
/**
 * The digest of the command that is edited.
 */
digest: string, reason?: string, id?: MessageId, };

export type EntryHash = { seq: number, hash: string, };

export type ErrorCode = "INVALID_MESSAGE" | "UNAUTHORIZED" | "SESSION_NOT_FOUND" | "PARTICIPANT_NOT_FOUND" | "GATE_FAILED" | "TIMEOUT" | "RATE_LIMITED" | "CONTEXT_TOO_LARGE" | "INVALID_STATE" | "TRANSPORT_ERROR" | "AGENT_ERROR" | "INTERNAL_ERROR";

export type ErrorReport = {
/**
 * The published error code.
 */
code: ErrorCode,
/**
 * What is wrong and what to do about it.
 */
message: string,
/**
 * Whether the same message may succeed later.
 */
recoverable: boolean,
/**
 * Further facts about the error.
 */
details?: Record<string, unknown>,
/**
 * The id of the message that was refused.
 */
related_to?: MessageId, };

export type ExecutionLimits = {
/**
 * Milliseconds; 0 means no limit (background and interactive runs).
 */
timeout_ms: number,
/**
 * Bytes of standard output and standard error together.
 */
output_bytes: number, };

export type ExecutorInfo = {
/**
 * Sandbox profiles that this machine enforces.
 */
profiles: Array<SandboxProfile>,
/**
 * Whether it tries commands in the sandbox, where the kernel counts what is denied.
 */
trials?: boolean,
/**
 * Whether it runs people's own commands.
 */
shell_exec: boolean,
/**
 * Whether it runs commands as people edited them; it does unless it says otherwise.
 */
edits?: boolean,
/**
 * The working directory of commands that name none.
 */
working_directory?: string,
/**
 * A command that every approved command runs under, such as a container runner.
 */
runner?: Array<string>,
/**
 * The account's login shell.
 */
shell?: string,
/**
 * Whether it lets reads see the session's read roots; older executors do not.
 */
read_roots?: boolean, };

export type FileContent = {
/**
 * The path, as in the `files` of the arguments.
 */
path: string,
/**
 * The whole content; its SHA-256 is the bound one.
 */
text: string, };

export type FinalState = "completed" | "aborted" | "timeout";

export type FinishReason = "complete" | "interrupted" | "error" | "max_tokens" | "tool_use";

export type ForkCreate = {
/**
 * The fork's name.
 */
name: string,
/**
 * The message it starts after.
 */
from_point: MessageId,
/**
 * Why it is made.
 */
reason: string,
/**
 * Who takes part in it.
 */
participants: Array<ParticipantId>,
/**
 * Whether it starts with the session's context.
 */
copy_context: boolean, };

export type ForkId = string;

export type ForkSwitch = { target_fork: ForkId, };

export type GateActionType = "tool" | "deploy" | "prompt" | "context_change" | "session_config" | "participant_add" | "fork" | "merge";

export type GateAmend = {
/**
 * The gate's id.
 */
gate: MessageId,
/**
 * The complete new arguments, as in `tool.propose`.
 */
arguments: Record<string, unknown>,
/**
 * The digest of the action that was edited.
 */
digest: string,
/**
 * Why it was edited.
 */
reason?: string,
/**
 * The assessment of the new command; set by the server.
 */
assessment?: Assessment,
/**
 * The quorum of the new command; set by the server.
 */
quorum?: QuorumRule,
/**
 * The new deadline; set by the server.
 */
deadline?: string,
/**
 * Who could approve at the time of the edit; set by the server.
 */
voters?: Array<ParticipantId>, };

export type GateApprove = {
/**
 * The gate's proposal; a client may name the `gate.request` instead.
 */
gate: MessageId,
/**
 * Who approves; must be the sender.
 */
approver: ParticipantId,
/**
 * What the voter says about it.
 */
comment?: string,
/**
 * The digest of the action that was shown to the voter; required once a command was
 * edited.
 */
digest?: string,
/**
 * The id of the gate's `gate.request`; set by the server.
 */
gate_request?: MessageId, };

export type GateDetails = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * The id of the proposal.
 */
tool_proposal: MessageId,
/**
 * The short id of the proposal.
 */
short_id: string,
/**
 * Whether it is open, or how it closed.
 */
status: GateStatus,
/**
 * The gate and the state of its vote; absent if it is closed.
 */
open?: GateListItem,
/**
 * The contents of the files that the command at an open gate binds, as far as the
 * proposal has them.
 */
file_contents?: Array<FileContent>,
/**
 * How it closed; absent if it is open.
 */
resolution?: GateResolve,
/**
 * The command that waits or waited at it, with its earlier versions.
 */
command?: CommandRecord, };

export type GateEvent = "opened" | "escalated" | "closing" | "more_wait" | "closed" | "test";

export type GateList = { gates: Array<GateListItem>,
/**
 * Pass this as `after`, with a `wait`, to wait for the next change.
 */
version: number, };

export type GateListItem = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * The short id of the proposal, which a path takes instead of the whole one where only one
 * proposal of the session has it.
 */
short_id: string,
/**
 * The short id with the beginning of the digest, which names exactly what is shown here.
 */
handle: string,
/**
 * What its executor has announced: where it runs, and what is put before it. Absent if it
 * has announced nothing.
 */
executor?: ExecutorInfo,
/**
 * Approvals that count.
 */
received: number,
/**
 * Approvals that are needed.
 */
required: number,
/**
 * Named people whose approval is still needed; empty if any voter will do.
 */
awaited: Array<ParticipantId>,
/**
 * Who invited those who approved, if a participant did.
 */
invited_by?: { [key in ParticipantId]: ParticipantId },
/**
 * Approvals that do not count as those of one more person, and who keeps them from it.
 */
not_counted?: { [key in ParticipantId]: ParticipantId },
/**
 * Whether the caller may vote on it.
 */
may_vote: boolean,
/**
 * Bytes of JSON that a list leaves out of a gate of more than 64 KiB; absent if all of it
 * is there. What is left of the action is enough to recognise it, not to decide: the
 * gate's own address has all of it. The digest is that of the whole action.
 */
cut_bytes?: number,
/**
 * The gate's id.
 */
gate: MessageId,
/**
 * The request that opened it, as amended and escalated since.
 */
request: GateRequest,
/**
 * The action that is voted on.
 */
action: Action,
/**
 * The assessment of the action.
 */
assessment: Assessment,
/**
 * Who proposed it.
 */
proposer: ParticipantId,
/**
 * What the proposer says it does.
 */
description: string,
/**
 * How sure it is that what is approved is what runs; absent if an executor runs it.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin,
/**
 * The approvals given so far.
 */
approvals: Array<Approval>,
/**
 * Whether the gate has been escalated to the admins.
 */
escalated: boolean,
/**
 * Who edited the command last; absent if nobody did.
 */
amended_by?: ParticipantId, };

export type GateNotification = {
/**
 * What happened.
 */
event: GateEvent,
/**
 * The session of the gate.
 */
session: SessionId,
/**
 * What people call the session.
 */
session_name?: string,
/**
 * The gate.
 */
gate: MessageId,
/**
 * The digest of the action that is voted on; only if the person wants the command in
 * notifications, because whoever guesses a command can compare it.
 */
digest?: string,
/**
 * The category of the command.
 */
category: Category,
/**
 * The risk of the command.
 */
risk: Risk,
/**
 * One line that says what happened.
 */
title: string,
/**
 * What else there is to know; without the person's wish, nothing of the command.
 */
body: string,
/**
 * The command as one line; only if the person wants it in notifications.
 */
command?: string,
/**
 * When the gate times out; absent if it never does.
 */
deadline?: string,
/**
 * Where the card is: for a browser relative to the server, otherwise absolute.
 */
url: string,
/**
 * The same for every notification of one gate, so that a later one replaces an earlier one.
 */
tag: string, };

export type GateOutcome = "approved" | "rejected" | "timed_out" | "cancelled";

export type GateReject = {
/**
 * The gate's proposal; a client may name the `gate.request` instead.
 */
gate: MessageId,
/**
 * Who rejects it; must be the sender.
 */
rejector: ParticipantId,
/**
 * Why, for the agent.
 */
reason: string,
/**
 * The digest of the action that was shown to the voter.
 */
digest?: string,
/**
 * The id of the gate's `gate.request`, if there was one; set by the server.
 */
gate_request?: MessageId, };

export type GateRequest = {
/**
 * What the gate decides about.
 */
action_type: GateActionType,
/**
 * The id of the proposal that waits.
 */
action_ref: MessageId,
/**
 * How many of whom must approve.
 */
quorum: QuorumRule,
/**
 * Seconds from opening to the deadline; 0 means no deadline.
 */
timeout_seconds: number,
/**
 * What to show to those who vote.
 */
message: string,
/**
 * The category of the command's assessment.
 */
category: Category,
/**
 * The digest of the action that is voted on.
 */
digest: string,
/**
 * When the gate times out; absent if it never does.
 */
deadline?: string,
/**
 * What happens at the deadline.
 */
on_timeout: GateTimeoutAction,
/**
 * Who could approve when the gate opened.
 */
voters: Array<ParticipantId>,
/**
 * What came of trying the command in the sandbox, if it was tried.
 */
trial?: DiscardedTrial, };

export type GateResolve = {
/**
 * The gate's id.
 */
gate: MessageId,
/**
 * The proposal that waited at it.
 */
tool_proposal: MessageId,
/**
 * How it closed.
 */
outcome: GateOutcome,
/**
 * What closed it.
 */
how: ResolutionCause,
/**
 * When it closed.
 */
at: string,
/**
 * The approvals it had when it closed.
 */
approvals?: Array<Approval>,
/**
 * Who rejected or cancelled it; absent if nobody did.
 */
by?: ParticipantId,
/**
 * Why it was rejected or cancelled, for the agent.
 */
reason?: string,
/**
 * What the rejector suggests doing instead.
 */
suggestion?: string,
/**
 * The allow rule that approved it, which counts as the vote of its author, `by`.
 */
rule?: MessageId, };

export type GateStatus = "open" | "approved" | "rejected" | "timed_out" | "cancelled";

export type GateTimeout = {
/**
 * The gate's proposal.
 */
gate: MessageId,
/**
 * The id of the gate's `gate.request`; absent in logs of earlier versions, where `gate` is
 * that id.
 */
gate_request?: MessageId,
/**
 * Approvals that count.
 */
approvals_received: number,
/**
 * Approvals that were needed.
 */
approvals_required: number,
/**
 * What happens next.
 */
resolution: TimeoutResolution,
/**
 * After escalation, the second and last deadline.
 */
deadline?: string,
/**
 * After escalation, the rule that decides.
 */
quorum?: QuorumRule,
/**
 * After escalation, the people who decide.
 */
voters?: Array<ParticipantId>, };

export type GateTimeoutAction = "reject" | "escalate" | "auto_approve";

export type GateUpdateResponse = { ack: SessionAck, gate: GateDetails, };

export type GitCopy = "same" | "older" | "none";

export type GrantTerms = {
/**
 * The grant's id.
 */
id: MessageId,
/**
 * Who may run the action.
 */
executor: ParticipantId,
/**
 * What may be run.
 */
action: Action,
/**
 * The digest of the action.
 */
digest: string,
/**
 * Who runs it.
 */
runs?: RunBy,
/**
 * What the run may use; absent if a client runs it, which nothing limits.
 */
limits?: ExecutionLimits,
/**
 * The sandbox to run it in; absent if a client runs it, which nothing confines.
 */
profile?: SandboxProfile,
/**
 * When the grant expires if the run has not started.
 */
expires_at: string,
/**
 * What allowed the action.
 */
cleared_by: ClearedBy,
/**
 * The approvals that counted.
 */
approvals?: Array<Approval>,
/**
 * The allow rule that covers the action, if one does.
 */
rule?: MessageId,
/**
 * What that rule allows, and who made it.
 */
allowed_by?: AllowedBy,
/**
 * Who may type, in `pty` mode.
 */
driver?: ParticipantId,
/**
 * The proof that this copy is the executor's own; absent in all other copies.
 */
nonce?: string,
/**
 * The values of secrets shared with the executor, as environment variables; never stored.
 */
secret_env?: { [key in string]: string }, };

export type HeartbeatPing = Record<string, unknown>;

export type HeartbeatPong = Record<string, unknown>;

export type InterruptAcknowledge = { interrupt: MessageId, by: ParticipantId, action_taken: InterruptAction, ignore_reason?: string, };

export type InterruptAction = "paused" | "stopped" | "acknowledged" | "ignored";

export type InterruptRaise = {
/**
 * The agent to interrupt; all agents if not given.
 */
target?: ParticipantId,
/**
 * How urgent it is.
 */
urgency: InterruptUrgency,
/**
 * What to tell the agent.
 */
message: string,
/**
 * Content that the agent should take into account.
 */
inject_context?: Content,
/**
 * The same, kept elsewhere.
 */
inject_context_ref?: ContentRef, };

export type InterruptUrgency = "pause" | "stop" | "emergency";

export type Invitation = { token: string, link: string, participant: ParticipantId, roles: Array<Role>, expires?: string, };

export type InviteRequest = {
/**
 * The name that others see.
 */
name: string,
/**
 * The roles that the token allows.
 */
roles: Array<Role>,
/**
 * A person or an agent; a person if not given.
 */
kind: ParticipantKind,
/**
 * Capabilities beyond those of the roles.
 */
capabilities: Array<Capability>,
/**
 * The only session the token is for; all sessions if not given.
 */
session?: SessionId,
/**
 * Seconds until the token expires; never if not given.
 */
expires_seconds?: number,
/**
 * The id of somebody who already has a token, to give them another token or device.
 */
participant?: ParticipantId, };

export type JoinCodeListItem = {
/**
 * Names the code, for revoking it.
 */
id: string,
/**
 * The roles of whoever uses it.
 */
roles: Array<Role>,
/**
 * The only session it is for; all sessions if not given.
 */
session?: SessionId,
/**
 * When it was made.
 */
created: string,
/**
 * When it expires.
 */
expires: string, };

export type JoinCodeRequest = {
/**
 * The roles that the token allows; never admin.
 */
roles: Array<Role>,
/**
 * The only session the token is for; all sessions if not given.
 */
session?: SessionId,
/**
 * Seconds until the code expires; an hour if not given, a day at most.
 */
code_seconds?: number,
/**
 * Seconds until the token expires, counted from when the code is used; never if not given.
 */
expires_seconds?: number, };

export type Limits = {
/**
 * Bytes of one message.
 */
message_bytes: number,
/**
 * Levels of nested JSON.
 */
json_depth: number,
/**
 * Messages per second that a participant may send continuously.
 */
messages_per_second: number,
/**
 * Messages that a participant may send at once before the rate applies.
 */
message_burst: number,
/**
 * Participants of one session; its own configuration cannot allow more.
 */
participants: number,
/**
 * Proposals of one agent that may wait or run at a time.
 */
open_proposals: number,
/**
 * Gates of one session that may be open at a time.
 */
open_gates: number,
/**
 * Bytes of context that one session may hold.
 */
context_bytes: number,
/**
 * Proposals in total in one session, because their ids are kept forever.
 */
proposals: number, };

export type MergeExecute = { merge_proposal: MessageId, resolved_conflicts?: Array<ResolvedConflict>, };

export type MergePropose = { source_fork: ForkId, target_fork: ForkId, strategy: MergeStrategy, summary: string, };

export type MergeStrategy = "replace" | "append" | "interleave" | "manual";

export type MessageId = string;

export type MessagePage = {
/**
 * Envelopes, the same as on the WebSocket.
 */
messages: ServerMessage[],
/**
 * Pass this as `after` to get the messages that follow.
 */
next: number,
/**
 * The sequence number of the last message in the log.
 */
head: number, };

export type NamedParticipant = { id: ParticipantId, name: string, };

export type NamedProposal = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * The proposal's id.
 */
tool_proposal: MessageId,
/**
 * The sequence number of the proposal.
 */
seq: number,
/**
 * The id of its gate; absent if it never waited at one.
 */
gate?: MessageId,
/**
 * Its state.
 */
status: CommandStatus, };

export type NamedProposals = { proposals: Array<NamedProposal>,
/**
 * Whether there are more than these.
 */
more: boolean, };

export type NewChannelRequest = {
/**
 * How it reaches the caller; a browser subscribes with `/api/push/subscriptions`.
 */
kind: ChannelKind,
/**
 * What the caller calls it.
 */
label: string,
/**
 * An address that begins with https://, or an e-mail address.
 */
target: string,
/**
 * A secret of the caller's own that signs what is sent to a webhook, or the access token of
 * an ntfy topic. Without one, a webhook gets a random one.
 */
secret?: string, };

export type NewPushSubscription = {
/**
 * The address of the push service for this browser.
 */
endpoint: string,
/**
 * The keys that what is sent there is encrypted with.
 */
keys: PushSubscriptionKeys,
/**
 * When the browser drops it; not used, because the push service says so too.
 */
expirationTime?: number,
/**
 * What the caller calls this browser.
 */
label?: string, };

export type NotificationChannel = {
/**
 * Names the channel.
 */
id: string,
/**
 * How it reaches the person.
 */
kind: ChannelKind,
/**
 * What the person calls it.
 */
label: string,
/**
 * Where it leads, without what is secret about it.
 */
target: string,
/**
 * Whether it is used.
 */
enabled: boolean,
/**
 * Why the last delivery failed; absent if it did not.
 */
last_error?: string,
/**
 * When something was last delivered; absent if nothing was.
 */
last_delivery?: string,
/**
 * The secret that signs what is sent to a webhook. It is shown only when the channel is
 * made.
 */
secret?: string, };

export type NotificationEvent = "opened" | "escalated" | "closing";

export type NotificationPreferences = {
/**
 * What they are notified of.
 */
events: Array<NotificationEvent>,
/**
 * The sessions that they are notified of; all that they may vote in if null.
 */
sessions?: Array<SessionId>,
/**
 * When they are not notified; null if they always are.
 */
quiet_hours?: QuietHours,
/**
 * Whether a notification contains the command.
 */
show_command: boolean,
/**
 * Whether a notification contains a link that votes in their name.
 */
vote_links: boolean, };

export type NotificationSettings = {
/**
 * The caller's channels, oldest first.
 */
channels: Array<NotificationChannel>,
/**
 * What they are notified of.
 */
events: Array<NotificationEvent>,
/**
 * The sessions that they are notified of; all that they may vote in if null.
 */
sessions?: Array<SessionId>,
/**
 * When they are not notified; null if they always are.
 */
quiet_hours?: QuietHours,
/**
 * Whether a notification contains the command.
 */
show_command: boolean,
/**
 * Whether a notification contains a link that votes in their name.
 */
vote_links: boolean,
/**
 * The kinds of channels that the operator allows.
 */
kinds: Array<ChannelKind>,
/**
 * Whether the operator allows vote links.
 */
vote_links_allowed: boolean, };

export type OpenGate = {
/**
 * The gate's id.
 */
gate: MessageId,
/**
 * The request that opened it, as amended and escalated since.
 */
request: GateRequest,
/**
 * The action that is voted on.
 */
action: Action,
/**
 * The assessment of the action.
 */
assessment: Assessment,
/**
 * Who proposed it.
 */
proposer: ParticipantId,
/**
 * What the proposer says it does.
 */
description: string,
/**
 * How sure it is that what is approved is what runs; absent if an executor runs it.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin,
/**
 * The approvals given so far.
 */
approvals: Array<Approval>,
/**
 * Whether the gate has been escalated to the admins.
 */
escalated: boolean,
/**
 * Who edited the command last; absent if nobody did.
 */
amended_by?: ParticipantId, };

export type OrderingMode = "causal" | "total";

export type OutputLine = { number: number, stream: OutputStream, text: string, };

export type OutputPage = {
/**
 * The id of the proposal.
 */
ref: MessageId,
/**
 * The lines that were asked for.
 */
lines: Array<OutputLine>,
/**
 * Lines recorded so far in the requested streams.
 */
total_lines: number,
/**
 * Bytes recorded so far in the requested streams.
 */
total_bytes: number,
/**
 * The `offset` of the next page; left out if this one reaches the end.
 */
next?: number,
/**
 * Whether the command has ended, so that no more lines will come.
 */
finished: boolean,
/**
 * Whether the page was truncated to fit in a message.
 */
cut: boolean, };

export type OutputRead = {
/**
 * The id of the proposal.
 */
ref: MessageId,
/**
 * The stream to read; both if not given.
 */
stream?: OutputStream,
/**
 * The first line, counted from 0; with `grep`, the line at which the search begins.
 */
offset?: number,
/**
 * The most lines to return; not with `head` or `tail`.
 */
limit?: number,
/**
 * Return the first lines, this many.
 */
head?: number,
/**
 * Return the last lines, this many.
 */
tail?: number,
/**
 * Return only lines that contain this text.
 */
grep?: string, };

export type OutputStream = "stdout" | "stderr";

export type PartAssessment = {
/**
 * Where the part begins in the command as shown, in bytes.
 */
start: number,
/**
 * Where it ends.
 */
end: number,
/**
 * The part itself.
 */
text: string,
/**
 * What the part does to the machine.
 */
category: Category,
/**
 * The stable id of the rule that decided.
 */
rule: string,
/**
 * Why, in a sentence for those who vote.
 */
reason: string,
/**
 * It only reads, and is a `write` because of what it reads.
 */
sensitive_read?: boolean, };

export type Participant = { presence: PresenceStatus,
/**
 * The participant's id.
 */
id: ParticipantId,
/**
 * The name that others see.
 */
name: string,
/**
 * A person or an agent.
 */
type: ParticipantKind,
/**
 * The roles they hold.
 */
roles: Array<Role>,
/**
 * Capabilities beyond those of the roles, if any.
 */
capabilities?: Array<Capability>,
/**
 * How they are connected.
 */
transport: Transport,
/**
 * Free-form facts about the client.
 */
metadata?: Record<string, unknown>,
/**
 * What their executor can do; set by agents that run commands.
 */
executor?: ExecutorInfo,
/**
 * Who invited them, if a participant did; set by the server.
 */
invited_by?: ParticipantId,
/**
 * Whether they were invited before the session was created; set by the server.
 */
invited_before_session?: boolean, };

export type ParticipantId = string;

export type ParticipantKind = "human" | "agent";

export type ParticipantTimeoutAction = "wait" | "skip" | "pause_session";

export type PolicyAllow = {
/**
 * The words that an allowed command begins with; not given with `read_root`.
 */
prefix?: Array<string>,
/**
 * A directory beside the executor's own that may be read without a vote, as an absolute
 * path; not given with `prefix`.
 */
read_root?: string,
/**
 * Where the commands must run: a directory, relative to the executor's own or absolute,
 * or `*` for anywhere. Without it, the executor's own directory.
 */
directory?: string,
/**
 * When the rule expires.
 */
expires_at: string,
/**
 * Why it is allowed.
 */
reason?: string, };

export type PolicyRevoke = {
/**
 * The id of the `policy.allow` message.
 */
rule: MessageId, reason?: string, };

export type PresenceStatus = "active" | "idle" | "away" | "disconnected";

export type PresenceUpdate = { participant: ParticipantId, status: PresenceStatus, last_active: string, };

export type PromptAmend = { original_prompt: MessageId, amendment: string, reason: string, };

export type PromptConfig = {
/**
 * The sampling temperature; the agent's default if not given.
 */
temperature?: number,
/**
 * The most tokens to answer with; the agent's default if not given.
 */
max_tokens?: number,
/**
 * The only tools the agent may use; all its tools if not given.
 */
tools_allowed?: Array<string>,
/**
 * The model to use; the agent's default if not given.
 */
model?: string,
/**
 * Further parameters for the model provider.
 */
provider_params?: Record<string, unknown>, };

export type PromptDraft = { content: string, target_agent?: ParticipantId, contributors: Array<ParticipantId>, };

export type PromptSubmit = {
/**
 * The text of the prompt.
 */
content: string,
/**
 * The agent that should answer.
 */
target_agent: ParticipantId,
/**
 * Everyone who wrote part of it.
 */
contributors: Array<ParticipantId>,
/**
 * Keys of shared context that the prompt refers to.
 */
context_keys: Array<string>,
/**
 * How to answer it; the agent's defaults if not given.
 */
config?: PromptConfig,
/**
 * The agent client that the person typed it into, which has it already.
 */
origin?: ClientOrigin, };

export type ProposalDecision = {
/**
 * The proposal's id.
 */
tool_proposal: MessageId,
/**
 * Whether it may run.
 */
decision: DecisionState,
/**
 * Whether the proposal was there before this request.
 */
repeated: boolean,
/**
 * Why it may not run, by whom and what to do instead, for the agent; absent otherwise.
 */
reason?: string,
/**
 * The category of its assessment.
 */
category: Category,
/**
 * The arguments as they were decided on.
 */
arguments: Record<string, unknown>,
/**
 * What it waits for; absent once it is decided.
 */
awaits?: AwaitedVotes,
/**
 * What the log says about it.
 */
command: CommandRecord, };

export type ProposalRequest = {
/**
 * The id of the proposal; sending the same again asks for its decision.
 */
id: MessageId,
/**
 * The tool; `shell` runs commands.
 */
tool_name: string,
/**
 * The tool's arguments.
 */
arguments: Record<string, unknown>,
/**
 * The kind of tool.
 */
category: ToolCategory,
/**
 * What the agent says it does.
 */
description: string,
/**
 * The agent's own estimate, which can raise the assessment.
 */
risk_level?: Risk,
/**
 * Whether it needs a vote even if the policy would let it run.
 */
requires_approval?: boolean,
/**
 * The contents of the files that the arguments bind.
 */
file_contents?: Array<FileContent>,
/**
 * Who runs it once it is granted.
 */
runs: RunBy,
/**
 * How sure it is that what is approved is what runs.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin, };

export type ProtocolExtensions = {
/**
 * People may run their own commands with `shell.exec`.
 */
supports_shell_exec: boolean,
/**
 * `gate.amend` edits a command at its gate.
 */
supports_amend: boolean,
/**
 * `policy.allow` and `policy.revoke` manage allow rules.
 */
supports_allow_rules: boolean,
/**
 * `session.join` with `after` resumes.
 */
supports_resume: boolean,
/**
 * `output.read` reads recorded output.
 */
supports_output_read: boolean,
/**
 * Sessions can be forked and merged.
 */
supports_forks: boolean, };

export type PublicKeys = {
/**
 * The server's public key, in hex.
 */
key: string,
/**
 * The keys that it had before, oldest first.
 */
earlier_keys: Array<string>, };

export type PushKey = {
/**
 * The uncompressed point of the VAPID key on P-256, in base64url.
 */
key: string, };

export type PushSubscriptionCreated = {
/**
 * Names the channel.
 */
id: string, };

export type PushSubscriptionKeys = {
/**
 * Its public key on P-256, as an uncompressed point.
 */
p256dh: string,
/**
 * Its authentication secret of 16 bytes.
 */
auth: string, };

export type QuietHours = {
/**
 * The time of day at which they begin, such as `22:00`.
 */
from: string,
/**
 * The time of day at which they end, such as `07:00`; it may be that of the next day.
 */
to: string,
/**
 * The time zone of both, such as `Europe/Berlin`.
 */
time_zone: string, };

export type QuorumByCategory = { write?: QuorumRule, destructive?: QuorumRule, } & ({ [key in "file_read" | "file_write" | "file_delete" | "shell_execute" | "network_request" | "deploy" | "database" | "secret_access" | "external_api" | "all"]?: { "type": "any", count: number, } | { "type": "all" } | { "type": "role", role: Role, count: number, } | { "type": "specific", participants: Array<ParticipantId>, } | { "type": "majority" } });

export type QuorumRule = { "type": "any", count: number, } | { "type": "all" } | { "type": "role", role: Role, count: number, } | { "type": "specific", participants: Array<ParticipantId>, } | { "type": "majority" };

export type RedeemCodeRequest = {
/**
 * The code, as it was sent.
 */
code: string,
/**
 * The name that others see.
 */
name: string, };

export type RedeemDeviceCodeRequest = {
/**
 * The code, which follows `device=` in the link.
 */
code: string,
/**
 * What the list of devices calls this one, such as `Firefox on Linux`.
 */
name: string, };

export type ResolutionCause = "quorum" | "rejection" | "deadline" | "clock" | "cancel" | "proposer_left" | "session_ended";

export type ResolvedConflict = { conflict_id: string, resolution: ConflictResolution, custom_value?: unknown, };

export type ResponseChunk = { text: string, };

export type ResponseEnd = { finish_reason: FinishReason, usage?: UsageStats, };

export type ResponseStart = { agent: ParticipantId, prompt_ref: MessageId, };

export type Risk = "safe" | "low" | "medium" | "high" | "critical";

export type Role = "driver" | "navigator" | "adversary" | "observer" | "approver" | "admin";

export type RoleChange = {
/**
 * Whose roles change.
 */
participant: ParticipantId,
/**
 * The current roles; the change is refused if they differ.
 */
old_roles: Array<Role>,
/**
 * The roles they get.
 */
new_roles: Array<Role>,
/**
 * The admin who changes them.
 */
changed_by: ParticipantId,
/**
 * Why.
 */
reason?: string,
/**
 * Capabilities beyond those of the roles; replaces those that an admin gave before.
 */
capabilities?: Array<Capability>,
/**
 * Whether their approvals at open gates are void; set by the server when a token of theirs
 * was revoked or has expired.
 */
votes_void?: boolean, };

export type RunBy = "executor" | "client";

export type RunMode = "normal" | "slow" | "background" | "pty";

export type RunOutcome = "known" | "unknown" | "not_run";

export type RunningCommand = {
/**
 * The proposal that it was.
 */
tool_proposal: MessageId,
/**
 * Who runs it.
 */
executor: ParticipantId,
/**
 * The command, for people.
 */
command: string,
/**
 * How it runs.
 */
mode: RunMode,
/**
 * When it was granted.
 */
since: string,
/**
 * How sure it is that what was approved is what runs; absent if an executor runs it.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin, };

export type SandboxProfile = "none" | "read" | "read_net" | "workspace";

export type SecretInfo = {
/**
 * The name of the variable.
 */
key: string,
/**
 * Who shared it.
 */
by: ParticipantId,
/**
 * The participants it is shared with.
 */
scope: Array<ParticipantId>,
/**
 * When the server revokes it; never if not given.
 */
expires_at?: string, };

export type SecretRevoke = { key: string, reason: string, };

export type SecretShare = {
/**
 * The key that names the secret in the session.
 */
key: string,
/**
 * The participants it is shared with.
 */
scope: Array<ParticipantId>,
/**
 * When the server revokes it; never if not given.
 */
expires_at?: string,
/**
 * Where the value is stored: a name, not the value.
 */
value_ref: string,
/**
 * What the secret is.
 */
secret_type?: SecretType,
/**
 * The value itself, if the server should pass it to executors in `scope`. It is removed
 * before anything is recorded, kept in memory only, and masked in output.
 */
value?: string, };

export type SecretType = "api_key" | "database_url" | "token" | "credential" | "other";

export type SessionAck = { id: MessageId,
/**
 * The sequence number; absent for ephemeral messages.
 */
seq?: number,
/**
 * Whether the message had been applied before, so that it was not applied again.
 */
duplicate?: boolean, };

export type SessionCommitContext = {
/**
 * The sequence number of the last message in the log.
 */
head: number,
/**
 * The commands that people decided on and that run or have ended, newest first.
 */
commands: Array<DecidedCommand>,
/**
 * Whether there are older ones.
 */
more: boolean,
/**
 * The session; null if there is none.
 */
session_id?: SessionId,
/**
 * The last commit that a hook reported; null if none did.
 */
last_commit?: string,
/**
 * How many messages were logged, without pieces of output and of answers.
 */
messages_since_last_commit: number,
/**
 * The names of those who are present, separated by commas.
 */
active_participants: string,
/**
 * What was decided, in a line; null if nothing was.
 */
decision_summary?: string,
/**
 * The tools that ran and how often, such as `shell:3`, separated by commas.
 */
tool_executions: string,
/**
 * How many prompts were sent.
 */
prompts_count: number,
/**
 * How many approvals were given.
 */
approvals_count: number, };

export type SessionConfig = {
/**
 * Tool categories that always need a gate, whatever the assessment.
 */
require_approval_for: Array<ToolCategory>,
/**
 * The quorum of a gate unless its category or rule sets another.
 */
default_gate_quorum: QuorumRule,
/**
 * Whether forks are allowed; has no effect yet, because the server refuses all forks.
 */
allow_forks: boolean,
/**
 * How many participants may be in the session at once.
 */
max_participants: number,
/**
 * The requested order of delivery; has no effect, because the order is always total.
 */
ordering_mode: OrderingMode,
/**
 * What happens to decisions while a participant is away.
 */
on_participant_timeout: ParticipantTimeoutAction,
/**
 * Seconds between heartbeat pings.
 */
heartbeat_interval_seconds: number,
/**
 * Seconds without activity after which a participant is idle.
 */
idle_timeout_seconds: number,
/**
 * Seconds of silence after which a participant is away.
 */
away_timeout_seconds: number,
/**
 * Quorums that differ from the default, by the category of the command.
 */
quorum_by_category: QuorumByCategory,
/**
 * Seconds until a gate's deadline; 0 means that gates have none.
 */
gate_timeout_seconds: number,
/**
 * What happens when a gate's deadline passes.
 */
on_gate_timeout: GateTimeoutAction,
/**
 * Whether people may run their own commands.
 */
shell_exec: ShellExecMode,
/**
 * Whoever amends a command may not vote on it.
 */
four_eyes: boolean,
/**
 * People may approve their own commands, for a session with one person in it. An agent's
 * commands still need somebody else, because agents do not vote.
 */
solo: boolean,
/**
 * Where more than one approval is needed, do not count that of a participant whom another
 * counted approver or the owner of the proposal invited during the session.
 */
quorum_independent: boolean,
/**
 * Reads run without a vote even if the executor cannot sandbox them.
 */
trust_reads: boolean,
/**
 * What happens to reads that an agent client runs by itself, where no sandbox holds them.
 */
client_reads: ClientReads,
/**
 * Commands that nothing is known about are tried in the read sandbox, and need a vote only if
 * it denies them something.
 */
try_unknown: boolean,
/**
 * The sandbox of approved commands: `none` or `workspace`.
 */
profile: SandboxProfile,
/**
 * Directories beside the executor's own that may be read without a vote, as absolute paths.
 */
read_roots: Array<string>, };

export type SessionConfigUpdate = { changes: ConfigChanges, reason: string, };

export type SessionCreate = { name?: string, config: SessionConfig, };

export type SessionDetails = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * Its name, if it has one.
 */
name?: string,
/**
 * Its configuration.
 */
config: SessionConfig,
/**
 * The sequence number of the last message in the log.
 */
head: number,
/**
 * Everyone in the session.
 */
people: Array<Participant>,
/**
 * The open gates.
 */
gates: Array<GateListItem>,
/**
 * The commands that are running.
 */
running: Array<RunningCommand>,
/**
 * The allow rules; some may have expired.
 */
rules?: Array<AllowRuleInfo>,
/**
 * Why the session is paused; absent if it is not.
 */
paused?: string,
/**
 * Whether the session has ended.
 */
ended: boolean, };

export type SessionEnd = { reason: string, final_state: FinalState, };

export type SessionHead = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * The last entry of its log.
 */
head: EntryHash,
/**
 * The entry that the request asked for; absent if it asked for none or there is none.
 */
entry?: EntryHash,
/**
 * The server's public key, in hex.
 */
key: string,
/**
 * The keys that it had before, oldest first.
 */
earlier_keys: Array<string>,
/**
 * When the operator last declared that the logs were restored from a backup; absent if
 * never.
 */
restored_at?: string,
/**
 * The server's clock.
 */
now: string, };

export type SessionId = string;

export type SessionJoin = {
/**
 * Who joins, with which roles.
 */
participant: Announce,
/**
 * The token that proves who this is; removed before anything is recorded.
 */
token?: string,
/**
 * The protocol versions that the client speaks.
 */
supported_versions: Array<number>,
/**
 * To resume: send only what came after this sequence number.
 */
after?: number,
/**
 * How many past messages to send when not resuming.
 */
history?: number,
/**
 * Whether everyone who is present is announced after the welcome, which lists them too;
 * they are if this is not given.
 */
announce_others?: boolean, };

export type SessionLeave = { reason?: string,
/**
 * The server says it for somebody whose connections are all gone; their votes and their
 * proposals stay. Set by the server.
 */
connection_lost?: boolean, };

export type SessionList = { sessions: Array<SessionListItem>,
/**
 * Whether there are older ones; pass the last session's id as `before` to get them.
 */
more: boolean, };

export type SessionListItem = {
/**
 * The session's id.
 */
session: SessionId,
/**
 * Its name, if it has one.
 */
name?: string,
/**
 * When it was created.
 */
created_at: string,
/**
 * When its last message was logged.
 */
updated_at: string,
/**
 * The sequence number of the last message in the log.
 */
head: number,
/**
 * How many gates are open.
 */
open_gates: number,
/**
 * Whether the session has ended.
 */
ended: boolean, };

export type SessionTombstone = {
/**
 * The session; its id is never used again.
 */
session: SessionId,
/**
 * How many entries its log had.
 */
entries: number,
/**
 * The hash of the last of them, in hex.
 */
head: string,
/**
 * When it was deleted.
 */
at: string,
/**
 * Who deleted it: a participant's id, or `server (retention)`.
 */
by: string,
/**
 * When this was signed; later than `at` if the server's key was rotated since.
 */
signed_at: string,
/**
 * The public key of the signer, in hex.
 */
key: string,
/**
 * The Ed25519 signature over all of this, in hex.
 */
signature: string, };

export type SessionWelcome = {
/**
 * Your id.
 */
participant: ParticipantId,
/**
 * Your roles.
 */
roles: Array<Role>,
/**
 * Everything you may do.
 */
capabilities: Array<Capability>,
/**
 * The session's name, if it has one.
 */
name?: string,
/**
 * The session's configuration.
 */
config: SessionConfig,
/**
 * The sequence number of the last message in the log.
 */
head: number,
/**
 * Everyone in the session.
 */
people: Array<Participant>,
/**
 * The open gates.
 */
gates: Array<OpenGate>,
/**
 * The commands that are running.
 */
running: Array<RunningCommand>,
/**
 * The allow rules.
 */
rules?: Array<AllowRuleInfo>,
/**
 * The shared secrets, by name.
 */
secrets?: Array<SecretInfo>,
/**
 * What the session and its participants may use.
 */
limits: Limits,
/**
 * What this server supports beyond the published protocol.
 */
extensions: ProtocolExtensions,
/**
 * Why the session is paused; absent if it is not.
 */
paused?: string,
/**
 * The server's name and version.
 */
server: string, };

export type ShellExec = {
/**
 * The line that the login shell runs.
 */
command: string,
/**
 * The time limit; the server sets its default if not given.
 */
timeout_seconds?: number,
/**
 * The working directory; the executor's own if not given.
 */
cwd?: string,
/**
 * Who runs it; chosen by the server if not given.
 */
executor?: ParticipantId,
/**
 * Always `ui_bang`; set by the server.
 */
origin?: string,
/**
 * The names of the shared secrets that the command receives; set by the server.
 */
secrets?: Array<string>,
/**
 * The server's assessment; it replaces whatever a client sends here.
 */
assessment?: Assessment, };

export type ShellExecMode = "direct" | "direct_all" | "gated" | "off";

export type TerminalSize = { columns: number, rows: number, };

export type ThinkingChunk = { text: string, };

export type ThinkingEnd = { summary?: string, duration_ms?: number, };

export type ThinkingStart = { agent: ParticipantId, prompt_ref: MessageId, visible_to: Visibility, };

export type TimeoutResolution = "rejected" | "auto_approved" | "escalated";

export type TokenList = { tokens: Array<TokenListItem>, codes: Array<JoinCodeListItem>, };

export type TokenListItem = {
/**
 * Names the token, for revoking it.
 */
id: string,
/**
 * The participant who holds it.
 */
participant: ParticipantId,
/**
 * The name that others see.
 */
name: string,
/**
 * A person or an agent.
 */
kind: ParticipantKind,
/**
 * The roles that it allows.
 */
roles: Array<Role>,
/**
 * The only session it is for; all sessions if not given.
 */
session?: SessionId,
/**
 * Who made it; the server's operator if not given.
 */
invited_by?: ParticipantId,
/**
 * The name of the device that it was made for; absent if it is that of a link.
 */
device?: string,
/**
 * The token that it was made with, which it ends with.
 */
made_with?: string,
/**
 * When it was made.
 */
created: string,
/**
 * When it expires; never if not given.
 */
expires?: string,
/**
 * When it was revoked.
 */
revoked?: string,
/**
 * When it was last used, to the minute; never if not given.
 */
last_used?: string,
/**
 * Whether it is valid.
 */
state: TokenState, };

export type TokenState = "valid" | "expired" | "revoked";

export type ToolApprove = { tool_proposal: MessageId, approver: ParticipantId, comment?: string,
/**
 * The digest of the action that was shown to the voter.
 */
digest?: string, };

export type ToolCancel = { tool_proposal: MessageId, reason?: string, };

export type ToolCategory = "file_read" | "file_write" | "file_delete" | "shell_execute" | "network_request" | "deploy" | "database" | "secret_access" | "external_api" | "all";

export type ToolDefer = {
/**
 * A proposal of the sender with `runs: "client"`.
 */
tool_proposal: MessageId,
/**
 * How long it waits for the client to be back.
 */
seconds: number, };

export type ToolDiscard = {
/**
 * The proposal that was tried.
 */
tool_proposal: MessageId,
/**
 * Why its output was discarded.
 */
trial: DiscardedTrial, };

export type ToolExecute = { tool_proposal: MessageId, approved_by: Array<ParticipantId>, grant: GrantTerms, };

export type ToolInput = { tool_proposal: MessageId, data?: string, resize?: TerminalSize, };

export type ToolOutput = {
/**
 * The proposal that runs.
 */
tool_proposal: MessageId,
/**
 * Which stream it was written to.
 */
stream: OutputStream,
/**
 * The output.
 */
text: string,
/**
 * Whether this is the last of the stream.
 */
complete: boolean,
/**
 * The byte offset of this text in its stream; set by the server.
 */
offset?: number, };

export type ToolPropose = {
/**
 * The tool; `shell` runs commands.
 */
tool_name: string,
/**
 * The tool's arguments.
 */
arguments: Record<string, unknown>,
/**
 * The agent that proposes it.
 */
agent: ParticipantId,
/**
 * The agent's own estimate. It can raise the assessment, never lower it.
 */
risk_level: Risk,
/**
 * What the agent says it does.
 */
description: string,
/**
 * Whether the agent asks for a gate. `false` has no effect.
 */
requires_approval: boolean,
/**
 * People the agent would like to decide; relayed but not interpreted.
 */
suggested_approvers?: Array<ParticipantId>,
/**
 * The kind of tool, as the agent states it.
 */
category: ToolCategory,
/**
 * The contents of the files that the arguments bind, as far as they are text and short.
 */
file_contents?: Array<FileContent>,
/**
 * Whether the tool goes on sending output after its first result, as a monitor does.
 */
streaming?: boolean,
/**
 * The files that it deletes by name, for those who vote.
 */
deleted_files?: Array<DeletedFile>,
/**
 * Who runs it once it is granted.
 */
runs?: RunBy,
/**
 * How sure it is that what is approved is what runs; only with `runs: "client"`.
 */
degree?: Degree,
/**
 * The agent client that the call comes from.
 */
origin?: ClientOrigin,
/**
 * Whether it is withdrawn while it waits as soon as its proposer is gone, who renews it until
 * then. What a client runs has a lease anyway.
 */
lease?: boolean,
/**
 * The server's assessment; it replaces whatever a client sends here.
 */
assessment?: Assessment, };

export type ToolReject = {
/**
 * The proposal.
 */
tool_proposal: MessageId,
/**
 * Who rejects it; must be the sender.
 */
rejector: ParticipantId,
/**
 * Why, for the agent.
 */
reason: string,
/**
 * What to do instead.
 */
suggestion?: string,
/**
 * The digest of the action that was shown to the voter.
 */
digest?: string, };

export type ToolRenew = {
/**
 * Proposals of the sender with `runs: "client"`.
 */
tool_proposals: Array<MessageId>, };

export type ToolResult = {
/**
 * The proposal that ran.
 */
tool_proposal: MessageId,
/**
 * Whether the command succeeded.
 */
success: boolean,
/**
 * What it returned; absent if it did not run.
 */
result?: ToolResultValue,
/**
 * What went wrong, if anything did.
 */
error?: string,
/**
 * How long it ran, in milliseconds.
 */
duration_ms: number,
/**
 * Whether it is known how the command ended; set by the server.
 */
outcome?: RunOutcome,
/**
 * The tool is a streaming one and goes on: more output and another result may follow; set
 * by the server.
 */
more_output?: boolean,
/**
 * The client ran it, and only its own word says how it ended; set by the server.
 */
attested?: boolean, };

export type ToolResultBody = {
/**
 * Absent or null when a signal ended the command.
 */
exitCode: number | null, stdout: string, stderr: string, };

export type ToolResultValue = ToolResultBody | unknown;

export type Transport = "websocket" | "mcp" | "http" | "stdio";

export type UsageStats = {
/**
 * Tokens of the request.
 */
input_tokens: number,
/**
 * Tokens of the response, including thinking.
 */
output_tokens: number,
/**
 * Tokens spent on thinking, if the provider reports them.
 */
thinking_tokens?: number,
/**
 * The cost in US dollars, if known.
 */
cost_usd?: number,
/**
 * The model that answered, if known.
 */
model?: string,
/**
 * Milliseconds from request to response, if measured.
 */
latency_ms?: number, };

export type Visibility = VisibilityGroup | Array<ParticipantId>;

export type VisibilityGroup = "all" | "approvers_only";

export type VoteChoice = "approve" | "reject";

export type VoteLinkCard = {
/**
 * The gate.
 */
gate: GateDetails,
/**
 * The participant who votes.
 */
participant: ParticipantId,
/**
 * The name that others see.
 */
name: string,
/**
 * What people call the session.
 */
session_name?: string, };

export type VoteRequest = { vote: VoteChoice,
/**
 * A comment on an approval.
 */
comment?: string,
/**
 * Why the command was rejected; required for a rejection and sent to the agent.
 */
reason?: string,
/**
 * The digest of the command that was shown; required once a command was edited.
 */
digest?: string,
/**
 * The id of the vote; sending it again does not vote twice.
 */
id?: MessageId, };

export type WhoAmI = {
/**
 * The participant's id.
 */
participant: ParticipantId,
/**
 * The name that others see.
 */
name: string,
/**
 * A person or an agent.
 */
kind: ParticipantKind,
/**
 * The roles that the token allows.
 */
roles: Array<Role>,
/**
 * The only session the token is for; all sessions if not given.
 */
session?: SessionId,
/**
 * When the token expires; never if not given.
 */
expires?: string, };

export type ClientMessage =
  | Envelope<"session.create", SessionCreate>
  | Envelope<"session.join", SessionJoin>
  | Envelope<"session.leave", SessionLeave>
  | Envelope<"session.end", SessionEnd>
  | Envelope<"session.config_update", SessionConfigUpdate>
  | Envelope<"participant.announce", Announce>
  | Envelope<"participant.role_change", RoleChange>
  | Envelope<"heartbeat.ping", HeartbeatPing>
  | Envelope<"heartbeat.pong", HeartbeatPong>
  | Envelope<"presence.update", PresenceUpdate>
  | Envelope<"context.add", ContextAdd>
  | Envelope<"context.update", ContextUpdate>
  | Envelope<"context.remove", ContextRemove>
  | Envelope<"secret.share", SecretShare>
  | Envelope<"secret.revoke", SecretRevoke>
  | Envelope<"prompt.draft", PromptDraft>
  | Envelope<"prompt.submit", PromptSubmit>
  | Envelope<"prompt.amend", PromptAmend>
  | Envelope<"thinking.start", ThinkingStart>
  | Envelope<"thinking.chunk", ThinkingChunk>
  | Envelope<"thinking.end", ThinkingEnd>
  | Envelope<"response.start", ResponseStart>
  | Envelope<"response.chunk", ResponseChunk>
  | Envelope<"response.end", ResponseEnd>
  | Envelope<"tool.propose", ToolPropose>
  | Envelope<"tool.approve", ToolApprove>
  | Envelope<"tool.reject", ToolReject>
  | Envelope<"tool.output", ToolOutput>
  | Envelope<"tool.result", ToolResult>
  | Envelope<"gate.approve", GateApprove>
  | Envelope<"gate.reject", GateReject>
  | Envelope<"interrupt.raise", InterruptRaise>
  | Envelope<"interrupt.acknowledge", InterruptAcknowledge>
  | Envelope<"fork.create", ForkCreate>
  | Envelope<"fork.switch", ForkSwitch>
  | Envelope<"merge.propose", MergePropose>
  | Envelope<"merge.execute", MergeExecute>
  | Envelope<"error", ErrorReport>
  | Envelope<"gate.amend", GateAmend>
  | Envelope<"tool.discard", ToolDiscard>
  | Envelope<"tool.cancel", ToolCancel>
  | Envelope<"tool.input", ToolInput>
  | Envelope<"tool.renew", ToolRenew>
  | Envelope<"tool.defer", ToolDefer>
  | Envelope<"shell.exec", ShellExec>
  | Envelope<"policy.allow", PolicyAllow>
  | Envelope<"policy.revoke", PolicyRevoke>
  | Envelope<"output.read", OutputRead>;

export type ServerMessage =
  | Envelope<"session.create", SessionCreate>
  | Envelope<"session.leave", SessionLeave>
  | Envelope<"session.end", SessionEnd>
  | Envelope<"session.config_update", SessionConfigUpdate>
  | Envelope<"session.welcome", SessionWelcome>
  | Envelope<"session.ack", SessionAck>
  | Envelope<"participant.announce", Announce>
  | Envelope<"participant.role_change", RoleChange>
  | Envelope<"heartbeat.ping", HeartbeatPing>
  | Envelope<"heartbeat.pong", HeartbeatPong>
  | Envelope<"presence.update", PresenceUpdate>
  | Envelope<"context.add", ContextAdd>
  | Envelope<"context.update", ContextUpdate>
  | Envelope<"context.remove", ContextRemove>
  | Envelope<"secret.share", SecretShare>
  | Envelope<"secret.revoke", SecretRevoke>
  | Envelope<"prompt.draft", PromptDraft>
  | Envelope<"prompt.submit", PromptSubmit>
  | Envelope<"prompt.amend", PromptAmend>
  | Envelope<"thinking.start", ThinkingStart>
  | Envelope<"thinking.chunk", ThinkingChunk>
  | Envelope<"thinking.end", ThinkingEnd>
  | Envelope<"response.start", ResponseStart>
  | Envelope<"response.chunk", ResponseChunk>
  | Envelope<"response.end", ResponseEnd>
  | Envelope<"tool.propose", ToolPropose>
  | Envelope<"tool.approve", ToolApprove>
  | Envelope<"tool.reject", ToolReject>
  | Envelope<"tool.execute", ToolExecute>
  | Envelope<"tool.output", ToolOutput>
  | Envelope<"tool.result", ToolResult>
  | Envelope<"gate.request", GateRequest>
  | Envelope<"gate.approve", GateApprove>
  | Envelope<"gate.reject", GateReject>
  | Envelope<"gate.timeout", GateTimeout>
  | Envelope<"gate.resolve", GateResolve>
  | Envelope<"gate.amend", GateAmend>
  | Envelope<"interrupt.raise", InterruptRaise>
  | Envelope<"interrupt.acknowledge", InterruptAcknowledge>
  | Envelope<"tool.discard", ToolDiscard>
  | Envelope<"tool.cancel", ToolCancel>
  | Envelope<"tool.input", ToolInput>
  | Envelope<"tool.defer", ToolDefer>
  | Envelope<"shell.exec", ShellExec>
  | Envelope<"policy.allow", PolicyAllow>
  | Envelope<"policy.revoke", PolicyRevoke>
  | Envelope<"output.page", OutputPage>
  | Envelope<"error", ErrorReport>;
