// The names that the protocol has for kinds and states, and the forms of a quorum.

import { id, listOf, object, oneOf, or, smallCount } from "./decode";

export const role = oneOf("driver", "navigator", "adversary", "observer", "approver", "admin");
export const capability = oneOf(
  "prompt",
  "approve",
  "interrupt",
  "fork",
  "add_context",
  "manage_participants",
  "end_session",
  "exec",
);
export const kind = oneOf("human", "agent");
export const presenceStatus = oneOf("active", "idle", "away", "disconnected");
export const category = oneOf("read", "write", "destructive", "blocked");
export const risk = oneOf("safe", "low", "medium", "high", "critical");
export const profile = oneOf("none", "read", "read_net", "workspace");
export const toolCategories = [
  "file_read",
  "file_write",
  "file_delete",
  "shell_execute",
  "network_request",
  "deploy",
  "database",
  "secret_access",
  "external_api",
  "all",
] as const;
export const toolCategory = oneOf(...toolCategories);
export const gateTimeoutAction = oneOf("reject", "escalate", "auto_approve");
export const outputStream = oneOf("stdout", "stderr");
export const degree = oneOf("executed", "held", "hooked");
export const clearedBy = oneOf("read", "quorum", "clock", "allow_rule", "direct", "tried");
export const runBy = or(oneOf("executor", "client"), () => "executor" as const);
export const runMode = oneOf("normal", "slow", "background", "pty");
export const resolutionCause = oneOf("quorum", "rejection", "deadline", "clock", "cancel", "proposer_left", "session_ended");
export const transport = oneOf("websocket", "mcp", "http", "stdio");

const quorumForms = {
  any: object({ type: oneOf("any"), count: smallCount }),
  all: object({ type: oneOf("all") }),
  role: object({ type: oneOf("role"), role, count: smallCount }),
  specific: object({ type: oneOf("specific"), participants: listOf(id) }),
  majority: object({ type: oneOf("majority") }),
};
const quorumType = object({ type: oneOf("any", "all", "role", "specific", "majority") });
export const quorum = (value: unknown) => quorumForms[quorumType(value).type](value);
