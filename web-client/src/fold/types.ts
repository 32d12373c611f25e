// What a view of a session consists of, field by field as in `tests/transcripts/*.view.json`.

import type {
  AllowedBy,
  Approval,
  Assessment,
  BoundFile,
  Capability,
  Category,
  ClearedBy,
  ClientOrigin,
  ConfigChanges,
  ContextContentType,
  Degree,
  ErrorCode,
  ExecutionLimits,
  ExecutorInfo,
  FileContent,
  FinalState,
  FinishReason,
  GateOutcome,
  GateTimeoutAction,
  InterruptAction,
  InterruptUrgency,
  Limits,
  MessageId,
  OutputStream,
  ParticipantId,
  ParticipantKind,
  PresenceStatus,
  ProtocolExtensions,
  QuorumRule,
  ResolutionCause,
  Risk,
  Role,
  RunMode,
  SandboxProfile,
  SecretType,
  SessionConfig,
  SessionId,
  TimeoutResolution,
  ToolCategory,
  UsageStats,
} from "@protocol";

/** A time in RFC 3339, in UTC: texts compare as the times do. */
export type Timestamp = string;

/** A SHA-256 in hex. */
export type Digest = string;

/** The id of a participant, or `system` for the server itself. */
export type Sender = ParticipantId | "system";

/**
 * An object that is changed in place and keeps its identity. `version` grows with each change, so a
 * component that gets both as props is drawn again only when there is something new to draw.
 */
export type Live<T> = T & { readonly version: number };

/** What one participant sees of a session. */
export interface ViewData {
  /** The session; null before the first message. */
  session: SessionId | null;
  /** The session's name, if it has one. */
  name: string | null;
  /** The participant whose view this is; null before the first welcome. */
  me: SelfView | null;
  /** The session's configuration. */
  config: SessionConfig;
  /** The server's limits; null before the first welcome. */
  limits: Limits | null;
  /** The protocol extensions that the server supports; null before the first welcome. */
  extensions: ProtocolExtensions | null;
  /** The server's name and version; null before the first welcome. */
  server: string | null;
  /** The sequence number of the last message folded, to resume after; 0 if there is none. */
  head: number;
  /** The absent participants that the session waits for; null if it is not paused. */
  paused: string | null;
  /** How the session ended; null while it is open. */
  ended: SessionEndView | null;
  /** Where commands run by default; null if the server has not said. */
  working_directory: string | null;
  /** The participants by id, including those who have left. */
  people: Record<ParticipantId, ParticipantView>;
  /** What happened, item by item. */
  stream: TimelineData;
  /** Open gates, oldest first. */
  gates: GateCard[];
  /** Commands in every state, oldest first. */
  commands: ProposalView[];
  /** Closed cards, oldest first. */
  resolved: ClosedGateCard[];
  /** Commands that have ended, one line each, oldest first. */
  history: CommandHistoryEntry[];
  /** Allow rules, oldest first; some may have expired. */
  rules: AllowRuleView[];
  /** What others are typing, the latest draft of each. */
  drafts: Record<ParticipantId, DraftView>;
  /** Shared context by key, without the content. */
  context: Record<string, ContextView>;
  /** Secrets by name, without their values. */
  secrets: Record<string, SecretView>;
  /** Interrupts that some agent has not acknowledged, oldest first. */
  interrupts: InterruptView[];
}

/** How the session ended. */
export interface SessionEndView {
  by: Sender;
  at: Timestamp;
  reason: string;
  final_state: FinalState;
}

/** One person or agent. */
export interface ParticipantView {
  id: ParticipantId;
  /** The name to show. */
  name: string;
  kind: ParticipantKind;
  /** The roles held, without duplicates. */
  roles: Role[];
  /** Everything they may do, through roles or in addition to them. */
  capabilities: Capability[];
  presence: PresenceStatus;
  /** What their executor can do; null if they do not run commands. */
  executor: ExecutorInfo | null;
  /** When they last did something; null if that is unknown. */
  last_active: Timestamp | null;
  /** They have left the session. */
  left: boolean;
  /** They have been silent for so long that `on_participant_timeout` applies. */
  timed_out: boolean;
  /** Who invited them, if a participant did. */
  invited_by?: ParticipantId;
}

/** The viewer's own participant and rights. */
export interface SelfView {
  participant: ParticipantId;
  roles: Role[];
  /** Everything the viewer may do, through roles or in addition to them. */
  capabilities: Capability[];
  /** The viewer may vote on other participants' proposals. */
  may_approve: boolean;
  /** The viewer may run their own commands. */
  may_exec: boolean;
  /** The viewer may interrupt agents. */
  may_interrupt: boolean;
  /** The viewer may prompt agents. */
  may_prompt: boolean;
}

/** What someone else is typing. */
export interface DraftView {
  text: string;
  to: ParticipantId | null;
  at: Timestamp;
}

/** An interrupt that some agent has not acknowledged. */
export interface InterruptView {
  interrupt: MessageId;
  by: Sender;
  at: Timestamp;
  urgency: InterruptUrgency;
  /** The agent it is for; null means all agents. */
  target: ParticipantId | null;
  /** What the agents read. */
  message: string;
  /** The agents that have not acknowledged it. */
  awaited: ParticipantId[];
}

/** One item of shared context, without its content. */
export interface ContextView {
  by: Sender;
  at: Timestamp;
  content_type: ContextContentType;
  bytes: number;
}

/** A shared secret, without its value. */
export interface SecretView {
  by: Sender;
  /** When it was shared; null if that was before the messages received. */
  at: Timestamp | null;
  scope: ParticipantId[];
  expires_at: Timestamp | null;
  secret_type: SecretType | null;
}

/** A command prefix that runs without a vote, or a directory that may be read without one. */
export interface AllowRuleView {
  rule: MessageId;
  by: ParticipantId;
  at: Timestamp;
  /** The words that a command must begin with; empty if the rule allows reading. */
  prefix: string[];
  /** The directory that may be read, if the rule allows that. */
  read_root?: string;
  /** Where it must run: the executor's own directory if absent, anywhere if `*`. */
  directory?: string;
  expires_at: Timestamp;
  reason: string | null;
}

/** How a command is run: by bash, directly, by the login shell, or as another tool. */
export type CommandForm = "shell" | "argv" | "login_shell" | "tool";

/** An action that someone wants to run, in the size that is kept for display. */
export interface RequestedAction {
  /** Who proposed it; null if that was before the messages received. */
  proposer: ParticipantId | null;
  /** The command verbatim. */
  command: string;
  /** What people read as the command: with invisible characters escaped, or a call's headline. */
  shown: string;
  /** The number of invisible characters in the command, its directory and its environment. */
  hidden: number;
  /** Bytes of the command, its words, directory and environment that are not kept here. */
  cut_bytes: number;
  form: CommandForm;
  /** The words of the command in the `argv` form; empty otherwise. */
  argv: string[];
  /** The tool's name in the `tool` form; null otherwise. */
  tool: string | null;
  /** The tool call in the `tool` form, as people read it. */
  call?: ToolCallView;
  /** The working directory; null means the session's. */
  cwd: string | null;
  /** Additions to the environment. */
  env: Record<string, string>;
  mode: RunMode;
  /** The time limit asked for, in seconds; null means the default of the mode. */
  timeout_seconds: number | null;
  /** Who may type, in `pty` mode. */
  driver: ParticipantId | null;
  /** The names of the shared secrets that it receives as variables. */
  secrets?: string[];
  /** The files that it runs, as they must be when it starts. */
  files?: BoundFile[];
  /** The contents of these files, as far as they came with the proposal and fit their hashes. */
  file_contents?: FileContent[];
  /** Why the proposer wants to run it, in their words. */
  purpose: string;
  /** The policy's assessment; null if it is unknown. */
  assessment: Assessment | null;
  /** A prefix that an allow rule for such commands could use; empty if no rule could cover it. */
  prefix: string[];
  /** Who amended it last; null if nobody did. */
  edited_by: ParticipantId | null;
  /** How sure it is that what is approved is what runs; absent if PVP's executor runs it. */
  degree?: Degree;
  /** The agent client that the call comes from. */
  client?: ClientOrigin;
}

/** A call of a tool other than the shell, in the size that is kept for display. */
export interface ToolCallView {
  /** One line by which people recognise the call, with invisible characters escaped. */
  headline: string;
  /** The kind of tool, as the agent states it; null if the proposal was not received. */
  stated_category: ToolCategory | null;
  /** The change of a file, computed from the arguments; null if they do not tell one. */
  change: FileChangeView | null;
  /** The other arguments, in order. */
  arguments: ArgumentView[];
  /** What the agent says about the change; nobody has compared it with the change. */
  stated_diffs?: StatedDiff[];
  /** The number of invisible characters in it, all of them escaped. */
  hidden: number;
  /** Bytes of the call that are not kept here. */
  cut_bytes: number;
}

/** A text with which the agent describes the change itself. */
export interface StatedDiff {
  /** The name of the argument. */
  name: string;
  text: string;
}

/** One argument, or one item of a nested one. */
export interface ArgumentView {
  /** How deep it is nested; 0 for an argument itself. */
  depth: number;
  /** Its key, quoted if it is not a plain word, or its place in a list, such as `[0]`. */
  name: string;
  /** Its value; several lines for a long text, empty if its items follow. */
  value: string;
}

/** What a change is compared with. */
export type ChangeBasis = "present_content" | "new_file" | "unknown" | "replaced_text" | "notebook_cell";

/** The change of one file. */
export interface FileChangeView {
  /** The path, with invisible characters escaped. */
  path: string;
  basis: ChangeBasis;
  /** Lines added. */
  added: number;
  /** Lines removed. */
  removed: number;
  hunks: DiffHunk[];
  /** What is known about the text to replace, in words. */
  notes?: string[];
}

export type DiffLineKind = "context" | "added" | "removed";

/** A change with the lines around it. */
export interface DiffHunk {
  /** Which change it is, if there are several. */
  title?: string;
  /** The number of its first line in the old text; null if that is unknown. */
  old_start: number | null;
  /** The number of its first line in the new text; null if that is unknown. */
  new_start: number | null;
  lines: DiffLine[];
}

/** One line of a comparison. */
export interface DiffLine {
  kind: DiffLineKind;
  /** The line with invisible characters escaped; in a changed line, blanks at the end are marked. */
  text: string;
  /** The text ends with this line, without a line feed. */
  no_newline?: boolean;
}

/** Whether the viewer may vote, and if not, why. */
export type VoteEligibility =
  | "may_vote"
  /** The viewer has approved, and may still reject. */
  | "approved"
  | "not_here"
  | "agent"
  | "proposer"
  | "not_an_approver"
  /** Under the four-eyes rule, whoever edited a command does not vote on it. */
  | "editor"
  /** The deadline has passed, so only admins decide. */
  | "admins_only"
  /** The command is too long to be shown whole. */
  | "not_shown_whole";

/** What it would do if the viewer allowed commands that begin like the one on a card. */
export type PrefixOffer =
  | "not_possible"
  /** The rule is also the vote that this command still needs. */
  | "also_approves"
  /** The rule covers later commands only; this one still needs its votes. */
  | "later_only";

/** An open gate. */
export interface GateCard extends RequestedAction {
  gate: MessageId;
  /** The id of the proposal that waits at the gate. */
  proposal: MessageId;
  /** When the gate opened; null if that was before the messages received. */
  opened_at: Timestamp | null;
  category: Category;
  /** The digest of the action as shown; a vote names it and counts only for that action. */
  digest: Digest;
  /** The server's description of what the gate waits for. */
  message: string;
  /** Who must approve, and how many. */
  quorum: QuorumRule;
  /** The quorum in words. */
  quorum_words: string;
  /** The approvals given so far. */
  votes: Record<ParticipantId, Approval>;
  /** Who could approve when the gate opened, except those who have since left or lost the right. */
  voters: ParticipantId[];
  /** How many approvals count so far. */
  received: number;
  /** How many approvals the gate needs. */
  required: number;
  /** Approvals that do not count as those of one more person, and who keeps them from it. */
  not_counted?: Record<ParticipantId, ParticipantId>;
  /** Participants who must approve and have not. */
  awaited: ParticipantId[];
  /** Participants who have not approved and whose approval would count. */
  undecided: ParticipantId[];
  /** Whether the viewer may vote. */
  standing: VoteEligibility;
  /** What it would do if the viewer allowed commands that begin like this one. */
  allow_prefix: PrefixOffer;
  /** When the gate times out; null if it never does. */
  deadline: Timestamp | null;
  on_timeout: GateTimeoutAction;
  /** What happens at the deadline, as a sentence to show. */
  at_deadline: string;
  /** The first deadline has passed, so only admins decide. */
  escalated: boolean;
}

/** The state of a command, in chronological order. */
export type ProposalState =
  /** Assessed; a gate, a grant or the end follows at once. */
  | "judged"
  | "waiting"
  /** The gate has passed; the grant follows at once. */
  | "approved"
  | "running"
  /** Ended, but how is unknown. */
  | "over"
  | "blocked"
  | "rejected"
  | "timed_out"
  | "cancelled"
  /** It ran and has a result. */
  | "finished";

/** Who asked for a command: an agent proposed it, or a person typed it. */
export type CommandOrigin = "agent" | "person";

/** How a gate closed. */
export interface ResolutionView {
  outcome: GateOutcome;
  /** What closed the gate, such as the quorum or the deadline. */
  how: ResolutionCause;
  at: Timestamp;
  /** The approvals that counted. */
  approvals: Approval[];
  /** Who rejected or cancelled it; null otherwise. */
  by: ParticipantId | null;
  reason: string | null;
  /** What the rejecter suggests instead, if anything. */
  suggestion: string | null;
  /** The allow rule whose author's vote approved it, if one did. */
  rule?: MessageId;
}

/** A granted run. A welcome describes a running command only in part. */
export interface RunView {
  executor: ParticipantId;
  /** When it was granted. */
  started_at: Timestamp;
  grant: MessageId | null;
  cleared_by: ClearedBy | null;
  /** The approvals that cleared it; empty if no vote was needed. */
  approvals: Approval[];
  /** The allow rule that cleared it, if one did. */
  rule: MessageId | null;
  /** What that rule allows and who made it, if the server said so. */
  allowed_by?: AllowedBy;
  limits: ExecutionLimits | null;
  profile: SandboxProfile | null;
  /** Who may type, in `pty` mode. */
  driver: ParticipantId | null;
}

/** A request to withdraw or stop a command. */
export interface CancelRequestView {
  by: Sender;
  at: Timestamp;
  reason: string | null;
}

/** How a run ended. */
export interface RunResultView {
  at: Timestamp;
  success: boolean;
  /** The exit code; null if the command did not exit by itself. */
  exit_code: number | null;
  /** The signal that ended the command, if one did. */
  signal: string | null;
  error: string | null;
  duration_ms: number;
  /** The executor was lost, so the command may or may not have run to its end. */
  outcome_unknown: boolean;
  /** The client was allowed to run it and did not. */
  not_run?: boolean;
  /** A client ran it, and only its own word says how it ended. */
  attested?: boolean;
  /** The executor did not keep all of the output. */
  truncated: boolean;
  /** Why the executor stopped the command, if it did. */
  kill_reason: string | null;
  /** It returned something other than the result of a command. */
  returned_value?: boolean;
  /** The id to read the whole output by; null if the executor gave none. */
  output_ref: string | null;
}

/** A chunk of text from one stream. */
export interface OutputChunk {
  stream: OutputStream;
  /** Where the text begins in its stream, in bytes. */
  offset: number;
  /** Bytes directly before the text that were never received. */
  missing: number;
  text: string;
}

/** The size of one stream. */
export interface StreamTotal {
  /** Bytes up to the last one received, including missing ones. */
  bytes: number;
  /** Lines begun in the text received. */
  lines: number;
  /** Bytes that were never received. */
  missing: number;
  /** The stream has ended. */
  complete: boolean;
}

/** The output of a command, as much of it as is kept. */
export interface OutputData {
  stdout: StreamTotal;
  stderr: StreamTotal;
  /** The beginning of the output. */
  head: OutputChunk[];
  /** Bytes between `head` and `tail` that are not kept. */
  dropped_bytes: number;
  /** The end of the output. */
  tail: OutputChunk[];
}

/** A command as it was at some time. */
export interface CommandVersion {
  /** The command with invisible characters escaped; empty if its message was not received. */
  shown: string;
  category: Category | null;
  /** Whether it only reads, and needs approval because of what it reads. */
  sensitive_read: boolean;
  digest: Digest | null;
}

/** A version of a command that an edit has replaced. */
export interface EarlierVersion extends CommandVersion {
  /** Who had approved it; the edit made these votes void. */
  void_votes: ParticipantId[];
  edited_by: ParticipantId | null;
  edited_at: Timestamp;
  reason: string | null;
}

/** One command, in any state. */
export interface ProposalView extends RequestedAction {
  id: MessageId;
  /** The sequence number of the proposal; null if it was before the messages received. */
  seq: number | null;
  /** When it was proposed; null if that was before the messages received. */
  at: Timestamp | null;
  origin: CommandOrigin;
  state: ProposalState;
  /** The gate that it waits or waited at, if there is one. */
  gate: MessageId | null;
  /** How its gate closed; null if it has not, or if there is no gate. */
  resolution: ResolutionView | null;
  /** The run; null until it is granted. */
  run: RunView | null;
  /** The last request to cancel it, if any. */
  cancel: CancelRequestView | null;
  /** What it has printed. */
  output: OutputData;
  /** The result; null until it has finished. */
  finish: RunResultView | null;
  /** The versions that edits have replaced, oldest first. */
  earlier?: EarlierVersion[];
}

/** A closed gate card. */
export interface ClosedGateCard extends ResolutionView {
  gate: MessageId;
  proposal: MessageId;
  /** The command, truncated to one line's length. */
  command: string;
  /** The command with invisible characters escaped, truncated likewise. */
  shown: string;
  category: Category | null;
  risk: Risk | null;
}

/** A command that has ended, as one line of the session's history. */
export interface CommandHistoryEntry {
  proposal: MessageId;
  at: Timestamp | null;
  origin: CommandOrigin;
  proposer: ParticipantId | null;
  /** The agent that ran it; null if it was not granted. */
  executor: ParticipantId | null;
  /** The command, truncated to one line's length. */
  command: string;
  /** The command with invisible characters escaped, truncated likewise. */
  shown: string;
  category: Category | null;
  /** It only reads, and is a `write` because of what it reads. */
  sensitive_read?: boolean;
  /** The policy rule that decided the category; null if the assessment is unknown. */
  rule: string | null;
  /** The state in which it ended. */
  outcome: ProposalState;
  cleared_by: ClearedBy | null;
  /** Who approved it. */
  approvers: ParticipantId[];
  /** The allow rule that cleared it, if one did. */
  allowed_by?: AllowedBy;
  /** What was proposed, if an edit changed it; empty if the proposal was not received. */
  proposed?: string;
  /** Who edited it last. */
  edited_by?: ParticipantId;
  success: boolean | null;
  exit_code: number | null;
  duration_ms: number | null;
  /** The id to read the whole output by; null if there is none. */
  output_ref: string | null;
}

/** What happened in a session, as much of it as is kept. */
export interface TimelineData {
  /** Oldest first. */
  items: TimelineItem[];
  /** The number of older items that are not kept. */
  dropped: number;
}

/** Text that may still grow, up to a limit. */
export interface TruncatedText {
  text: string;
  /** Bytes at the end that are not kept. */
  cut_bytes: number;
}

interface AboutCommand extends CommandVersion {
  /** `View.proposal` tells what became of it. */
  proposal: MessageId;
}

/** What happened. */
export type TimelineEvent =
  | { kind: "created"; name: string | null }
  | { kind: "joined"; name: string; participant_kind: ParticipantKind; roles: Role[] }
  | { kind: "left"; reason: string | null }
  | { kind: "roles_changed"; participant: ParticipantId; old_roles: Role[]; new_roles: Role[]; reason: string | null }
  /** A participant timed out, or is back and counts for decisions again. */
  | { kind: "attendance"; participant: ParticipantId; status: PresenceStatus }
  /** `changes` is null if they are too long to keep. */
  | { kind: "configured"; changes: ConfigChanges | null; reason: string }
  | { kind: "ended"; reason: string; final_state: FinalState }
  | ({ kind: "prompt"; to: ParticipantId; context_keys: string[] } & TruncatedText)
  | ({ kind: "prompt_amended"; prompt: MessageId; reason: string } & TruncatedText)
  /** `prompt` is the prompt it answers; null if its start message was not received. */
  | ({
      kind: "thinking";
      prompt: MessageId | null;
      open: boolean;
      summary: string | null;
      duration_ms: number | null;
    } & TruncatedText)
  | ({
      kind: "response";
      prompt: MessageId | null;
      open: boolean;
      finish_reason: FinishReason | null;
      usage: UsageStats | null;
    } & TruncatedText)
  /** An agent proposed a command. */
  | ({ kind: "proposed" } & AboutCommand)
  /** A person ran their own command. */
  | ({ kind: "executed" } & AboutCommand)
  | ({ kind: "approved"; comment: string | null } & AboutCommand)
  | ({ kind: "rejected"; reason: string; suggestion: string | null } & AboutCommand)
  | ({ kind: "edited"; before: CommandVersion; void_votes: ParticipantId[]; reason: string | null } & AboutCommand)
  | ({ kind: "deadline_passed"; resolution: TimeoutResolution; received: number; required: number } & AboutCommand)
  | ({
      kind: "resolved";
      outcome: GateOutcome;
      how: ResolutionCause;
      by: ParticipantId | null;
      reason: string | null;
      /** The allow rule whose author's vote approved it, if one did. */
      rule: MessageId | null;
    } & AboutCommand)
  /** A command was tried in the sandbox, and needs approval after all. */
  | ({ kind: "trial_discarded"; why: string } & AboutCommand)
  | ({ kind: "cancel_asked"; reason: string | null } & AboutCommand)
  | { kind: "interrupted"; target: ParticipantId | null; urgency: InterruptUrgency; message: string }
  | { kind: "acknowledged"; interrupt: MessageId; action_taken: InterruptAction; reason: string | null }
  | { kind: "context_added"; key: string; bytes: number }
  | { kind: "context_updated"; key: string; bytes: number; reason: string }
  | { kind: "context_removed"; key: string; reason: string }
  | { kind: "secret_shared"; key: string; scope: ParticipantId[] }
  | { kind: "secret_revoked"; key: string; reason: string }
  | {
      kind: "allowed";
      prefix: string[];
      read_root?: string;
      directory?: string;
      expires_at: Timestamp;
      reason: string | null;
    }
  | { kind: "allow_revoked"; rule: MessageId; reason: string | null }
  /** The server refused a message of the viewer, or an agent reports a failure. */
  | { kind: "error"; code: ErrorCode; message: string; recoverable: boolean; related_to: MessageId | null };

/** One item of the timeline. */
export type TimelineItem = TimelineEvent & {
  /** The message's id; for thinking and responses, the id of their start message. */
  id: MessageId;
  /** The message's sequence number in the log; null if only the viewer received it. */
  seq: number | null;
  at: Timestamp;
  who: Sender;
};
