// The payloads of the server's messages: what each must have, and what it may leave out.

import type { ServerMessage, ToolResult } from "@protocol";
import { config, configChanges, defaultConfig } from "./config";
import {
  anything,
  both,
  count,
  decimal,
  digest,
  flag,
  id,
  ifTrue,
  integer,
  jsonObject,
  listOf,
  object,
  oneOf,
  optional,
  or,
  recordOf,
  smallCount,
  someOf,
  text,
  timestamp,
} from "./decode";
import type { Decoder } from "./decode";
import {
  capability,
  category,
  clearedBy,
  degree,
  gateTimeoutAction,
  kind,
  outputStream,
  presenceStatus,
  profile,
  quorum,
  resolutionCause,
  risk,
  role,
  runBy,
  runMode,
  toolCategory,
  transport,
} from "./names";

const part = object({
  start: count,
  end: count,
  text,
  category,
  rule: text,
  reason: text,
  sensitive_read: ifTrue,
});
export const assessment = object({
  category,
  risk,
  rule: text,
  reason: text,
  sensitive_read: ifTrue,
  parts: someOf(part),
  notes: someOf(text),
  needed_read_roots: someOf(text),
  runs_given_code: ifTrue,
  profile,
  digest,
  policy: text,
});

export const boundFile = object({ path: text, sha256: optional(digest), bytes: or(count, () => 0) });
export const fileContent = object({ path: text, text });

const commandForms = {
  shell: object({ form: oneOf("shell"), line: text }),
  argv: object({ form: oneOf("argv"), command: text, args: listOf(text) }),
  login_shell: object({ form: oneOf("login_shell"), line: text }),
  tool: object({ form: oneOf("tool"), name: text, arguments: jsonObject }),
};
const commandForm = object({ form: oneOf("shell", "argv", "login_shell", "tool") });
const command = (value: unknown) => commandForms[commandForm(value).form](value);

export const action = object({
  command,
  cwd: optional(text),
  env: or<Record<string, string>>(recordOf(text), () => ({})),
  mode: or(runMode, () => "normal" as const),
  timeout_seconds: optional(smallCount),
  driver: optional(id),
  secrets: or(listOf(text), () => []),
  files: or(listOf(boundFile), () => []),
});

const approval = object({ participant: id, at: timestamp, comment: optional(text) });
const clientOrigin = object({
  client: text,
  version: optional(text),
  session: optional(text),
  call: optional(text),
  subagent: optional(text),
  fails_open: optional(flag),
});
const trial = object({ denied: or(listOf(text), () => []), reason: optional(text) });
const contentRef = object({
  hash: digest,
  size_bytes: count,
  mime_type: text,
  storage: oneOf("inline", "local", "s3", "ipfs"),
  uri: optional(text),
});
const content = (value: unknown) => (typeof value === "string" ? value : jsonObject(value));

const executorInfo = object({
  profiles: or(listOf(profile), () => []),
  trials: ifTrue,
  shell_exec: or(flag, () => false),
  edits: (value) => (or(flag, () => true)(value) ? undefined : false),
  working_directory: optional(text),
  runner: someOf(text),
  shell: optional(text),
  read_roots: ifTrue,
});
const announce = object({
  id,
  name: text,
  type: kind,
  roles: listOf(role),
  capabilities: optional(listOf(capability)),
  transport,
  executor: optional(executorInfo),
  invited_by: optional(id),
  invited_before_session: optional(flag),
});

const gateRequest = object({
  action_type: oneOf(
    "tool",
    "deploy",
    "prompt",
    "context_change",
    "session_config",
    "participant_add",
    "fork",
    "merge",
  ),
  action_ref: id,
  quorum,
  timeout_seconds: smallCount,
  message: text,
  category,
  digest,
  deadline: optional(timestamp),
  on_timeout: gateTimeoutAction,
  voters: listOf(id),
  trial: optional(trial),
});
export const openGate = object({
  gate: id,
  request: gateRequest,
  action,
  assessment,
  proposer: id,
  description: text,
  degree: optional(degree),
  origin: optional(clientOrigin),
  approvals: or(listOf(approval), () => []),
  escalated: flag,
  amended_by: optional(id),
});
const runningCommand = object({
  tool_proposal: id,
  executor: id,
  command: text,
  mode: runMode,
  since: timestamp,
  degree: optional(degree),
  origin: optional(clientOrigin),
});
const ruleInfo = object({
  rule: id,
  by: id,
  at: timestamp,
  prefix: or(listOf(text), () => []),
  read_root: optional(text),
  directory: optional(text),
  expires_at: timestamp,
  reason: optional(text),
});
const secretInfo = object({ key: text, by: id, scope: listOf(id), expires_at: optional(timestamp) });
const limits = object({
  message_bytes: count,
  json_depth: count,
  messages_per_second: smallCount,
  message_burst: smallCount,
  participants: smallCount,
  open_proposals: smallCount,
  open_gates: smallCount,
  context_bytes: count,
  proposals: smallCount,
});
const extensions = object({
  supports_shell_exec: flag,
  supports_amend: flag,
  supports_allow_rules: flag,
  supports_resume: flag,
  supports_output_read: flag,
  supports_forks: flag,
});
const welcome = object({
  participant: id,
  roles: listOf(role),
  capabilities: listOf(capability),
  name: optional(text),
  config,
  head: count,
  people: listOf(both(announce, object({ presence: presenceStatus }))),
  gates: listOf(openGate),
  running: listOf(runningCommand),
  rules: or(listOf(ruleInfo), () => []),
  secrets: or(listOf(secretInfo), () => []),
  limits,
  extensions,
  paused: optional(text),
  server: text,
});

const grant = object({
  id,
  executor: id,
  action,
  digest,
  runs: runBy,
  limits: optional(object({ timeout_ms: count, output_bytes: count })),
  profile: optional(profile),
  expires_at: timestamp,
  cleared_by: clearedBy,
  approvals: or(listOf(approval), () => []),
  rule: optional(id),
  allowed_by: optional(object({ participant: id, prefix: listOf(text) })),
  driver: optional(id),
});
const usage = object({
  input_tokens: count,
  output_tokens: count,
  thinking_tokens: optional(count),
  cost_usd: optional(decimal),
  model: optional(text),
  latency_ms: optional(count),
});

/** What a command printed and how it exited, with fields that executors add. */
export const resultBody = object({
  exitCode: optional(integer),
  stdout: or(text, () => ""),
  stderr: or(text, () => ""),
});
/** The fields that executors add to a result. */
export const executorFields = object({
  signal: anything,
  truncated: anything,
  kill_reason: anything,
  output_ref: anything,
});
const toolResult: Decoder<ToolResult> = both(
  executorFields,
  object({
    tool_proposal: id,
    success: flag,
    result: anything,
    error: optional(text),
    duration_ms: count,
    outcome: optional(oneOf("known", "unknown", "not_run")),
    more_output: or(flag, () => false),
    attested: or(flag, () => false),
  }),
);

const chunk = object({ text });

type PayloadDecoders = { [Message in ServerMessage as Message["type"]]: Decoder<Message["payload"]> };

export const payloads: PayloadDecoders = {
  "session.create": object({ name: optional(text), config: or(config, defaultConfig) }),
  "session.leave": object({ reason: optional(text), connection_lost: or(flag, () => false) }),
  "session.end": object({ reason: text, final_state: oneOf("completed", "aborted", "timeout") }),
  "session.config_update": object({ changes: configChanges, reason: text }),
  "session.welcome": welcome,
  "session.ack": object({ id, seq: optional(count), duplicate: ifTrue }),
  "participant.announce": announce,
  "participant.role_change": object({
    participant: id,
    old_roles: listOf(role),
    new_roles: listOf(role),
    changed_by: id,
    reason: optional(text),
    capabilities: optional(listOf(capability)),
    votes_void: optional(flag),
  }),
  "heartbeat.ping": jsonObject,
  "heartbeat.pong": jsonObject,
  "presence.update": object({ participant: id, status: presenceStatus, last_active: timestamp }),
  "context.add": object({
    key: text,
    content_type: oneOf("text", "file", "reference", "structured", "image", "audio_transcript"),
    content: optional(content),
    content_ref: optional(contentRef),
  }),
  "context.update": object({
    key: text,
    diff: optional(text),
    new_content: optional(content),
    new_content_ref: optional(contentRef),
    reason: text,
  }),
  "context.remove": object({ key: text, reason: text }),
  "secret.share": object({
    key: text,
    scope: listOf(id),
    expires_at: optional(timestamp),
    value_ref: text,
    secret_type: optional(oneOf("api_key", "database_url", "token", "credential", "other")),
  }),
  "secret.revoke": object({ key: text, reason: text }),
  "prompt.draft": object({ content: text, target_agent: optional(id), contributors: listOf(id) }),
  "prompt.submit": object({ content: text, target_agent: id, contributors: listOf(id), context_keys: listOf(text) }),
  "prompt.amend": object({ original_prompt: id, amendment: text, reason: text }),
  "thinking.start": object({
    agent: id,
    prompt_ref: id,
    visible_to: (value) => (Array.isArray(value) ? listOf(id)(value) : oneOf("all", "approvers_only")(value)),
  }),
  "thinking.chunk": chunk,
  "thinking.end": object({ summary: optional(text), duration_ms: optional(count) }),
  "response.start": object({ agent: id, prompt_ref: id }),
  "response.chunk": chunk,
  "response.end": object({
    finish_reason: oneOf("complete", "interrupted", "error", "max_tokens", "tool_use"),
    usage: optional(usage),
  }),
  "tool.propose": object({
    tool_name: text,
    arguments: jsonObject,
    agent: id,
    risk_level: or(risk, () => "safe" as const),
    description: text,
    requires_approval: flag,
    category: toolCategory,
    file_contents: or(listOf(fileContent), () => []),
    degree: optional(degree),
    origin: optional(clientOrigin),
    assessment: optional(assessment),
  }),
  "tool.approve": object({ tool_proposal: id, approver: id, comment: optional(text), digest: optional(digest) }),
  "tool.reject": object({
    tool_proposal: id,
    rejector: id,
    reason: text,
    suggestion: optional(text),
    digest: optional(digest),
  }),
  "tool.execute": object({ tool_proposal: id, approved_by: listOf(id), grant }),
  "tool.output": object({
    tool_proposal: id,
    stream: outputStream,
    text,
    complete: flag,
    offset: optional(count),
  }),
  "tool.result": toolResult,
  "gate.request": gateRequest,
  "gate.approve": object({ gate: id, approver: id, comment: optional(text), digest: optional(digest) }),
  "gate.reject": object({ gate: id, rejector: id, reason: text, digest: optional(digest) }),
  "gate.timeout": object({
    gate: id,
    gate_request: optional(id),
    approvals_received: smallCount,
    approvals_required: smallCount,
    resolution: oneOf("rejected", "auto_approved", "escalated"),
    deadline: optional(timestamp),
    quorum: optional(quorum),
    voters: optional(listOf(id)),
  }),
  "gate.resolve": object({
    gate: id,
    tool_proposal: id,
    outcome: oneOf("approved", "rejected", "timed_out", "cancelled"),
    how: resolutionCause,
    at: timestamp,
    approvals: or(listOf(approval), () => []),
    by: optional(id),
    reason: optional(text),
    suggestion: optional(text),
    rule: optional(id),
  }),
  "gate.amend": object({
    gate: id,
    arguments: jsonObject,
    digest,
    reason: optional(text),
    assessment: optional(assessment),
    quorum: optional(quorum),
    deadline: optional(timestamp),
    voters: optional(listOf(id)),
  }),
  "interrupt.raise": object({
    target: optional(id),
    urgency: oneOf("pause", "stop", "emergency"),
    message: text,
  }),
  "interrupt.acknowledge": object({
    interrupt: id,
    by: id,
    action_taken: oneOf("paused", "stopped", "acknowledged", "ignored"),
    ignore_reason: optional(text),
  }),
  "tool.discard": object({ tool_proposal: id, trial }),
  "tool.cancel": object({ tool_proposal: id, reason: optional(text) }),
  "tool.input": object({
    tool_proposal: id,
    data: optional(text),
    resize: optional(object({ columns: smallCount, rows: smallCount })),
  }),
  "tool.defer": object({ tool_proposal: id, seconds: smallCount }),
  "shell.exec": object({
    command: text,
    timeout_seconds: optional(smallCount),
    cwd: optional(text),
    executor: optional(id),
    secrets: or(listOf(text), () => []),
    assessment: optional(assessment),
  }),
  "policy.allow": object({
    prefix: or(listOf(text), () => []),
    read_root: optional(text),
    directory: optional(text),
    expires_at: timestamp,
    reason: optional(text),
  }),
  "policy.revoke": object({ rule: id, reason: optional(text) }),
  "output.page": object({
    ref: id,
    lines: listOf(object({ number: count, stream: outputStream, text })),
    total_lines: count,
    total_bytes: count,
    next: optional(count),
    finished: flag,
    cut: flag,
  }),
  error: object({
    code: oneOf(
      "INVALID_MESSAGE",
      "UNAUTHORIZED",
      "SESSION_NOT_FOUND",
      "PARTICIPANT_NOT_FOUND",
      "GATE_FAILED",
      "TIMEOUT",
      "RATE_LIMITED",
      "CONTEXT_TOO_LARGE",
      "INVALID_STATE",
      "TRANSPORT_ERROR",
      "AGENT_ERROR",
      "INTERNAL_ERROR",
    ),
    message: text,
    recoverable: flag,
    details: optional(jsonObject),
    related_to: optional(id),
  }),
};
