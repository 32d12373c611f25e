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

export type Action = { command: Command, cwd?: string,
/**
 * Additions to the environment.
 */
env?: { [key in string]: string }, mode: Mode, timeout_seconds?: number,
/**
 * Who may type, in `pty` mode.
 */
driver?: ParticipantId, };

export type ActionTaken = "paused" | "stopped" | "acknowledged" | "ignored";

export type Announce = { id: ParticipantId, name: string, type: ParticipantKind, roles: Array<Role>, capabilities?: Array<Capability>, transport: Transport, metadata?: Record<string, unknown>,
/**
 * Set by agents that run commands.
 */
executor?: ExecutorAbility, };

export type Approval = { participant: ParticipantId, at: string, comment?: string, };

export type Assessment = { category: Category, risk: Risk,
/**
 * The stable id of the rule that decided.
 */
rule: string,
/**
 * Why, in a sentence for the person who votes.
 */
reason: string,
/**
 * Verdicts of the parts of a compound command, in the order they stand.
 */
parts?: Array<PartVerdict>,
/**
 * What kept it from a milder category, or what the agent's own claim raised.
 */
notes?: Array<string>,
/**
 * The sandbox an automatic run needs.
 */
profile: Profile,
/**
 * Binds the verdict, and every vote, to exactly this action.
 */
digest: string,
/**
 * Hash of the rule set that gave the verdict.
 */
policy: string, };

export type Ballot = { vote: Choice,
/**
 * Said with an approval.
 */
comment?: string,
/**
 * Why not; a rejection needs one, and the agent reads it.
 */
reason?: string,
/**
 * The digest of what was shown; needed once a command was edited.
 */
digest?: string,
/**
 * The id of the vote; repeating it does not vote twice.
 */
id?: MessageId, };

export type Capability = "prompt" | "approve" | "interrupt" | "fork" | "add_context" | "manage_participants" | "end_session" | "exec";

export type Category = "read" | "write" | "destructive" | "blocked";

export type Choice = "approve" | "reject";

export type ClearedBy = "read" | "quorum" | "clock" | "allow_rule" | "direct";

export type Command = { "form": "shell", line: string, } | { "form": "argv", command: string, args: Array<string>, } | { "form": "login_shell", line: string, } | { "form": "tool", name: string, arguments: Record<string, unknown>, };

export type CommandPage = { commands: Array<CommandRecord>,
/**
 * Ask for older ones with this as `before`.
 */
next?: number, };

export type CommandRecord = {
/**
 * The proposal; its output is read by the same id.
 */
tool_proposal: MessageId, seq: number, at: string, proposer: ParticipantId, command: string, cwd?: string, description: string, category: Category, risk: Risk, rule: string, status: CommandStatus,
/**
 * Who edited it last.
 */
edited_by?: ParticipantId, resolution?: GateResolve, executor?: ParticipantId, cleared_by?: ClearedBy, approvals: Array<Approval>, result?: CommandResult, };

export type CommandResult = { at: string, success: boolean, exit_code?: number, error?: string, duration_ms: number, outcome?: Outcome, };

export type CommandStatus = "waiting" | "running" | "blocked" | "rejected" | "timed_out" | "cancelled" | "finished";

export type ConfigChanges = { require_approval_for?: Array<ToolCategory>, default_gate_quorum?: QuorumRule, allow_forks?: boolean, max_participants?: number, ordering_mode?: OrderingMode, on_participant_timeout?: ParticipantTimeoutAction, heartbeat_interval_seconds?: number, idle_timeout_seconds?: number, away_timeout_seconds?: number, quorum_by_category?: QuorumByCategory, gate_timeout_seconds?: number, on_gate_timeout?: GateTimeoutAction, shell_exec?: ShellExecMode, four_eyes?: boolean, trust_reads?: boolean, profile?: Profile, };

export type Content = string | Record<string, unknown>;

export type ContentRef = { hash: string, size_bytes: number, mime_type: string, storage: Storage, uri?: string, };

export type ContextAdd = { key: string, content_type: ContextContentType, content?: Content, content_ref?: ContentRef,
/**
 * Only these, and whoever added it, see it.
 */
visible_to?: Array<ParticipantId>, source?: string, tags?: Array<string>, };

export type ContextContentType = "text" | "file" | "reference" | "structured" | "image" | "audio_transcript";

export type ContextRemove = { key: string, reason: string, };

export type ContextUpdate = { key: string, diff?: string, new_content?: Content, new_content_ref?: ContentRef, reason: string, };

export type Edit = {
/**
 * The whole new arguments, as in `tool.propose`.
 */
arguments: Record<string, unknown>,
/**
 * The digest of what is edited.
 */
digest: string, reason?: string, id?: MessageId, };

export type ErrorCode = "INVALID_MESSAGE" | "UNAUTHORIZED" | "SESSION_NOT_FOUND" | "PARTICIPANT_NOT_FOUND" | "GATE_FAILED" | "TIMEOUT" | "RATE_LIMITED" | "CONTEXT_TOO_LARGE" | "INVALID_STATE" | "TRANSPORT_ERROR" | "AGENT_ERROR" | "INTERNAL_ERROR";

export type ErrorReport = { code: ErrorCode, message: string, recoverable: boolean, details?: Record<string, unknown>, related_to?: MessageId, };

export type ExecutionLimits = {
/**
 * Milliseconds; 0 means no limit (background and interactive runs).
 */
timeout_ms: number,
/**
 * Bytes of standard output and standard error together.
 */
output_bytes: number, };

export type ExecutorAbility = {
/**
 * Sandbox profiles that this machine enforces.
 */
profiles: Array<Profile>,
/**
 * Whether it takes people's own commands.
 */
shell_exec: boolean,
/**
 * Where commands run unless they say otherwise.
 */
working_directory?: string,
/**
 * A prefix that every approved command runs behind, such as a container.
 */
runner?: Array<string>,
/**
 * The account's login shell.
 */
shell?: string, };

export type Extensions = { supports_shell_exec: boolean, supports_amend: boolean, supports_allow_rules: boolean, supports_resume: boolean, supports_output_read: boolean, supports_forks: boolean, };

export type FinalState = "completed" | "aborted" | "timeout";

export type FinishReason = "complete" | "interrupted" | "error" | "max_tokens" | "tool_use";

export type ForkCreate = { name: string, from_point: MessageId, reason: string, participants: Array<ParticipantId>, copy_context: boolean, };

export type ForkId = string;

export type ForkSwitch = { target_fork: ForkId, };

export type GateActionType = "tool" | "deploy" | "prompt" | "context_change" | "session_config" | "participant_add" | "fork" | "merge";

export type GateAmend = { gate: MessageId,
/**
 * The whole new arguments, as in `tool.propose`.
 */
arguments: Record<string, unknown>,
/**
 * The digest of what was edited.
 */
digest: string, reason?: string,
/**
 * The verdict on the new command; set by the server.
 */
assessment?: Assessment,
/**
 * The quorum of the new command; set by the server.
 */
quorum?: QuorumRule,
/**
 * The new deadline; set by the server.
 */
deadline?: string, voters?: Array<ParticipantId>, };

export type GateAnswer = { ack: SessionAck, gate: GateState, };

export type GateApprove = { gate: MessageId, approver: ParticipantId, comment?: string,
/**
 * The digest that was shown to the voter; needed once a command was edited.
 */
digest?: string, };

export type GateList = { gates: Array<GateListed>,
/**
 * Ask again with this as `after` and a `wait` to hear of the next change.
 */
version: number, };

export type GateListed = { session: SessionId,
/**
 * Approvals that count, and how many are needed.
 */
received: number, required: number,
/**
 * Named people whose approval is still needed; empty if anyone's will do.
 */
awaited: Array<ParticipantId>,
/**
 * Whether the one who asks may vote on it.
 */
may_vote: boolean, gate: MessageId, request: GateRequest, action: Action, assessment: Assessment, proposer: ParticipantId, description: string, approvals: Array<Approval>, escalated: boolean,
/**
 * Who edited the command last.
 */
amended_by?: ParticipantId, };

export type GateOutcome = "approved" | "rejected" | "timed_out" | "cancelled";

export type GateReject = { gate: MessageId, rejector: ParticipantId, reason: string, digest?: string, };

export type GateRequest = { action_type: GateActionType, action_ref: MessageId, quorum: QuorumRule, timeout_seconds: number, message: string, category: Category, digest: string, deadline?: string, on_timeout: GateTimeoutAction,
/**
 * Who could approve when the gate opened.
 */
voters: Array<ParticipantId>, };

export type GateResolve = { gate: MessageId, tool_proposal: MessageId, outcome: GateOutcome, how: ResolvedHow, at: string, approvals?: Array<Approval>,
/**
 * Who rejected or cancelled it.
 */
by?: ParticipantId, reason?: string, suggestion?: string, };

export type GateState = { session: SessionId, tool_proposal: MessageId, status: GateStatus, open?: GateListed, resolution?: GateResolve, };

export type GateStatus = "open" | "approved" | "rejected" | "timed_out" | "cancelled";

export type GateTimeout = { gate: MessageId, approvals_received: number, approvals_required: number, resolution: TimeoutResolution,
/**
 * After escalation: the second and last deadline.
 */
deadline?: string,
/**
 * After escalation: the rule and the people that decide.
 */
quorum?: QuorumRule, voters?: Array<ParticipantId>, };

export type GateTimeoutAction = "reject" | "escalate" | "auto_approve";

export type GrantTerms = { id: MessageId, executor: ParticipantId, action: Action, digest: string, limits: ExecutionLimits, profile: Profile, expires_at: string, cleared_by: ClearedBy, approvals?: Array<Approval>,
/**
 * The allow rule that cleared it.
 */
rule?: MessageId, driver?: ParticipantId,
/**
 * Proof that this is the executor's own copy.
 */
nonce?: string,
/**
 * Values of secrets shared with the executor; never stored.
 */
secret_env?: { [key in string]: string }, };

export type HeartbeatPing = Record<string, unknown>;

export type HeartbeatPong = Record<string, unknown>;

export type InterruptAcknowledge = { interrupt: MessageId, by: ParticipantId, action_taken: ActionTaken, ignore_reason?: string, };

export type InterruptRaise = {
/**
 * One agent, or all of them.
 */
target?: ParticipantId, urgency: InterruptUrgency, message: string, inject_context?: Content, inject_context_ref?: ContentRef, };

export type InterruptUrgency = "pause" | "stop" | "emergency";

export type Invitation = { token: string, link: string, participant: ParticipantId, roles: Array<Role>, expires?: string, };

export type Invite = { name: string,
/**
 * The most they may be.
 */
roles: Array<Role>, kind: ParticipantKind, capabilities: Array<Capability>,
/**
 * The one session it is for; all of them if not given.
 */
session?: SessionId,
/**
 * How long the token lives; for ever if not given.
 */
expires_seconds?: number,
/**
 * Another device or another token for someone who is known already.
 */
participant?: ParticipantId, };

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
 * Messages a second that a participant may go on sending.
 */
messages_per_second: number,
/**
 * Messages that may come at once before the rate counts.
 */
message_burst: number,
/**
 * People and agents in one session, whatever its own configuration allows.
 */
participants: number,
/**
 * Proposals of one agent that are waiting or running.
 */
open_proposals: number,
/**
 * Gates of one session that are open at a time.
 */
open_gates: number,
/**
 * Bytes of context that one session holds.
 */
context_bytes: number,
/**
 * Proposals over the life of one session; their ids are never forgotten.
 */
proposals: number, };

export type Me = { participant: ParticipantId, name: string, kind: ParticipantKind, roles: Array<Role>,
/**
 * The one session it is for; all of them if not given.
 */
session?: SessionId, expires?: string, };

export type MergeExecute = { merge_proposal: MessageId, resolved_conflicts?: Array<ResolvedConflict>, };

export type MergePropose = { source_fork: ForkId, target_fork: ForkId, strategy: MergeStrategy, summary: string, };

export type MergeStrategy = "replace" | "append" | "interleave" | "manual";

export type MessageId = string;

export type MessagePage = {
/**
 * Envelopes, as on the socket.
 */
messages: ServerMessage[],
/**
 * Ask for what follows with this as `after`.
 */
next: number,
/**
 * The seq of the last message in the log.
 */
head: number, };

export type Mode = "normal" | "slow" | "background" | "pty";

export type NewSession = {
/**
 * Its id; a fresh one if not given.
 */
session?: SessionId, name?: string, config: SessionConfig, };

export type OpenGate = { gate: MessageId, request: GateRequest, action: Action, assessment: Assessment, proposer: ParticipantId, description: string, approvals: Array<Approval>, escalated: boolean,
/**
 * Who edited the command last.
 */
amended_by?: ParticipantId, };

export type OrderingMode = "causal" | "total";

export type Outcome = "known" | "unknown";

export type OutputLine = { number: number, stream: Stream, text: string, };

export type OutputPage = { ref: MessageId, lines: Array<OutputLine>, total_lines: number, total_bytes: number,
/**
 * Whether the command has ended, so that no more lines will come.
 */
finished: boolean,
/**
 * Whether the page was cut to fit in a message.
 */
cut: boolean, };

export type OutputRead = { ref: MessageId, stream?: Stream,
/**
 * First line, counted from 0.
 */
offset?: number, limit?: number, head?: number, tail?: number,
/**
 * Only lines that contain this text.
 */
grep?: string, };

export type PartVerdict = {
/**
 * Byte range in the command as shown.
 */
start: number, end: number, text: string, category: Category, rule: string, reason: string, };

export type ParticipantId = string;

export type ParticipantKind = "human" | "agent";

export type ParticipantTimeoutAction = "wait" | "skip" | "pause_session";

export type Person = { presence: PresenceStatus, id: ParticipantId, name: string, type: ParticipantKind, roles: Array<Role>, capabilities?: Array<Capability>, transport: Transport, metadata?: Record<string, unknown>,
/**
 * Set by agents that run commands.
 */
executor?: ExecutorAbility, };

export type PolicyAllow = { prefix: Array<string>,
/**
 * When the rule ends by itself.
 */
expires_at: string, reason?: string, };

export type PolicyRevoke = {
/**
 * The id of the `policy.allow` message.
 */
rule: MessageId, reason?: string, };

export type PresenceStatus = "active" | "idle" | "away" | "disconnected";

export type PresenceUpdate = { participant: ParticipantId, status: PresenceStatus, last_active: string, };

export type Profile = "none" | "read" | "read_net" | "workspace";

export type PromptAmend = { original_prompt: MessageId, amendment: string, reason: string, };

export type PromptConfig = { temperature?: number, max_tokens?: number, tools_allowed?: Array<string>, model?: string, provider_params?: Record<string, unknown>, };

export type PromptDraft = { content: string, target_agent?: ParticipantId, contributors: Array<ParticipantId>, };

export type PromptSubmit = { content: string, target_agent: ParticipantId, contributors: Array<ParticipantId>, context_keys: Array<string>, config?: PromptConfig, };

export type QuorumByCategory = { write?: QuorumRule, destructive?: QuorumRule, };

export type QuorumRule = { "type": "any", count: number, } | { "type": "all" } | { "type": "role", role: Role, count: number, } | { "type": "specific", participants: Array<ParticipantId>, } | { "type": "majority" };

export type Resolution = "use_source" | "use_target" | "custom";

export type ResolvedConflict = { conflict_id: string, resolution: Resolution, custom_value?: unknown, };

export type ResolvedHow = "quorum" | "rejection" | "deadline" | "clock" | "cancel" | "proposer_left" | "session_ended";

export type ResponseChunk = { text: string, };

export type ResponseEnd = { finish_reason: FinishReason, usage?: UsageStats, };

export type ResponseStart = { agent: ParticipantId, prompt_ref: MessageId, };

export type ResultBody = {
/**
 * Absent or null when a signal ended the command.
 */
exitCode: number | null, stdout: string, stderr: string, };

export type Risk = "safe" | "low" | "medium" | "high" | "critical";

export type Role = "driver" | "navigator" | "adversary" | "observer" | "approver" | "admin";

export type RoleChange = { participant: ParticipantId, old_roles: Array<Role>, new_roles: Array<Role>, changed_by: ParticipantId, reason?: string,
/**
 * Capabilities beyond the roles; replaces what an admin gave before.
 */
capabilities?: Array<Capability>, };

export type Running = { tool_proposal: MessageId, executor: ParticipantId, command: string, mode: Mode, since: string, };

export type SecretRevoke = { key: string, reason: string, };

export type SecretShare = { key: string, scope: Array<ParticipantId>, expires_at?: string,
/**
 * Where the value is; a name, not the value.
 */
value_ref: string, secret_type?: SecretType,
/**
 * The value itself, if the server should hand it to executors in scope. Taken out before
 * anything is recorded, kept in memory only, and masked in output.
 */
value?: string, };

export type SecretType = "api_key" | "database_url" | "token" | "credential" | "other";

export type SessionAck = { id: MessageId,
/**
 * Messages that are not kept have none.
 */
seq?: number,
/**
 * It had been applied before.
 */
duplicate?: boolean, };

export type SessionConfig = {
/**
 * Tool categories that always ask, whatever the verdict.
 */
require_approval_for: Array<ToolCategory>, default_gate_quorum: QuorumRule, allow_forks: boolean, max_participants: number, ordering_mode: OrderingMode, on_participant_timeout: ParticipantTimeoutAction, heartbeat_interval_seconds: number, idle_timeout_seconds: number, away_timeout_seconds: number, quorum_by_category: QuorumByCategory,
/**
 * 0 means that a gate never closes by itself.
 */
gate_timeout_seconds: number, on_gate_timeout: GateTimeoutAction, shell_exec: ShellExecMode,
/**
 * Who amends a command may not vote on it.
 */
four_eyes: boolean,
/**
 * Run reads at once even where the executor cannot sandbox them.
 */
trust_reads: boolean,
/**
 * The sandbox of approved commands: `none` or `workspace`.
 */
profile: Profile, };

export type SessionConfigUpdate = { changes: ConfigChanges, reason: string, };

export type SessionCreate = { name?: string, config: SessionConfig, };

export type SessionEnd = { reason: string, final_state: FinalState, };

export type SessionId = string;

export type SessionJoin = { participant: Announce,
/**
 * Says who this is; taken out before anything is recorded.
 */
token?: string, supported_versions: Array<number>,
/**
 * Resume: tell only what came after this seq.
 */
after?: number,
/**
 * How many past messages to tell when not resuming.
 */
history?: number, };

export type SessionLeave = { reason?: string, };

export type SessionList = { sessions: Array<SessionListed>,
/**
 * There are older ones; ask again with `before` as the last session's id.
 */
more: boolean, };

export type SessionListed = { session: SessionId, name?: string, created_at: string, updated_at: string,
/**
 * The seq of the last message in the log.
 */
head: number, open_gates: number, ended: boolean, };

export type SessionMade = { session: SessionId, seq: number, };

export type SessionState = { session: SessionId, name?: string, config: SessionConfig, head: number, people: Array<Person>, gates: Array<GateListed>, running: Array<Running>,
/**
 * Why nothing starts at the moment, if it does not.
 */
paused?: string, ended: boolean, };

export type SessionWelcome = { participant: ParticipantId, roles: Array<Role>, capabilities: Array<Capability>, name?: string, config: SessionConfig,
/**
 * The seq of the last message in the log.
 */
head: number, people: Array<Person>, gates: Array<OpenGate>, running: Array<Running>, rules?: Array<StandingRule>, limits: Limits, extensions: Extensions,
/**
 * Why nothing starts at the moment, if it does not.
 */
paused?: string, server: string, };

export type ShellExec = { command: string, timeout_seconds?: number, cwd?: string, executor?: ParticipantId,
/**
 * Always `ui_bang` in the record.
 */
origin?: string, assessment?: Assessment, };

export type ShellExecMode = "direct" | "direct_all" | "gated" | "off";

export type StandingRule = {
/**
 * The id of its `policy.allow`.
 */
rule: MessageId, by: ParticipantId, at: string, prefix: Array<string>, expires_at: string, reason?: string, };

export type Storage = "inline" | "local" | "s3" | "ipfs";

export type Stream = "stdout" | "stderr";

export type TerminalSize = { columns: number, rows: number, };

export type ThinkingChunk = { text: string, };

export type ThinkingEnd = { summary?: string, duration_ms?: number, };

export type ThinkingStart = { agent: ParticipantId, prompt_ref: MessageId, visible_to: Visibility, };

export type TimeoutResolution = "rejected" | "auto_approved" | "escalated";

export type ToolApprove = { tool_proposal: MessageId, approver: ParticipantId, comment?: string,
/**
 * The digest that was shown to the voter.
 */
digest?: string, };

export type ToolCancel = { tool_proposal: MessageId, reason?: string, };

export type ToolCategory = "file_read" | "file_write" | "file_delete" | "shell_execute" | "network_request" | "deploy" | "database" | "secret_access" | "external_api" | "all";

export type ToolExecute = { tool_proposal: MessageId, approved_by: Array<ParticipantId>, grant: GrantTerms, };

export type ToolInput = { tool_proposal: MessageId, data?: string, resize?: TerminalSize, };

export type ToolOutput = { tool_proposal: MessageId, stream: Stream, text: string, complete: boolean,
/**
 * Byte offset of this text in its stream.
 */
offset?: number, };

export type ToolPropose = { tool_name: string, arguments: Record<string, unknown>, agent: ParticipantId,
/**
 * A claim: it can raise the verdict, never lower it.
 */
risk_level: Risk, description: string,
/**
 * A claim: `true` asks for a gate, `false` changes nothing.
 */
requires_approval: boolean, suggested_approvers?: Array<ParticipantId>, category: ToolCategory,
/**
 * The server's verdict; whatever a client says here is replaced.
 */
assessment?: Assessment, };

export type ToolReject = { tool_proposal: MessageId, rejector: ParticipantId, reason: string, suggestion?: string, digest?: string, };

export type ToolResult = { tool_proposal: MessageId, success: boolean, result?: ResultBody, error?: string, duration_ms: number, outcome?: Outcome, };

export type Transport = "websocket" | "mcp" | "http" | "stdio";

export type UsageStats = { input_tokens: number, output_tokens: number, thinking_tokens?: number, cost_usd?: number, model?: string, latency_ms?: number, };

export type Visibility = VisibilityWord | Array<ParticipantId>;

export type VisibilityWord = "all" | "approvers_only";

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
  | Envelope<"tool.cancel", ToolCancel>
  | Envelope<"tool.input", ToolInput>
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
  | Envelope<"tool.cancel", ToolCancel>
  | Envelope<"tool.input", ToolInput>
  | Envelope<"shell.exec", ShellExec>
  | Envelope<"policy.allow", PolicyAllow>
  | Envelope<"policy.revoke", PolicyRevoke>
  | Envelope<"output.page", OutputPage>
  | Envelope<"error", ErrorReport>;
