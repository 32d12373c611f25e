// One entry of the record: who, what, and which proposal it is about.

import { action as actionDecoder } from "../../fold/payloads";
import { attempt } from "../../fold/envelope";
import { compactJson } from "../../fold/json";
import { t } from "../../i18n";
import { isObject } from "../../net/storage";
import { shownCommand } from "../../ui/shown";

export interface AuditEntry {
  seq: number;
  id: string;
  at: string | null;
  sender: string;
  type: string;
  payload: Record<string, unknown>;
  /** The message as the server logged it. */
  raw: string;
}

/** Text that is cut into many entries; it is read elsewhere. */
export const STREAMED_TYPES: ReadonlySet<string> = new Set(["tool.output", "response.chunk", "thinking.chunk"]);

const DECISIONS: ReadonlySet<string> = new Set([
  "tool.propose",
  "shell.exec",
  "gate.request",
  "gate.approve",
  "gate.reject",
  "gate.amend",
  "gate.timeout",
  "gate.resolve",
  "tool.approve",
  "tool.reject",
  "tool.execute",
  "policy.allow",
  "policy.revoke",
]);

export function parseEntry(raw: string): AuditEntry | null {
  const message: unknown = JSON.parse(raw);
  if (!isObject(message) || typeof message.seq !== "number") return null;
  const text = (field: unknown) => (typeof field === "string" ? field : "");
  return {
    seq: message.seq,
    id: text(message.id),
    at: typeof message.ts === "string" ? message.ts : null,
    sender: text(message.sender),
    type: text(message.type),
    payload: isObject(message.payload) ? message.payload : {},
    raw,
  };
}

export interface AuditFilter {
  sender: string;
  /** A type, `decisions`, or nothing for all. */
  type: string;
  proposal: string;
  streamed: boolean;
}

export const NO_FILTER: AuditFilter = { sender: "", type: "", proposal: "", streamed: false };

/** Whether two filters let the same through; streamed text is no search. */
export function isSame(one: AuditFilter, other: AuditFilter): boolean {
  return one.sender === other.sender && one.type === other.type && one.proposal.trim() === other.proposal.trim();
}

export function filterEntries(entries: readonly AuditEntry[], filter: AuditFilter): AuditEntry[] {
  const proposals = proposalsOf(entries);
  const wanted = filter.proposal.trim().toLowerCase();
  return entries.filter((entry) => {
    if (!filter.streamed && filter.type === "" && STREAMED_TYPES.has(entry.type)) return false;
    if (filter.sender !== "" && entry.sender !== filter.sender) return false;
    if (filter.type === "decisions" ? !DECISIONS.has(entry.type) : filter.type !== "" && entry.type !== filter.type) return false;
    return wanted === "" || (proposals.get(entry.seq) ?? "").toLowerCase().endsWith(wanted);
  });
}

/** The proposal that each entry is about, by the entry's number. */
export function proposalsOf(entries: readonly AuditEntry[]): Map<number, string> {
  const ofGate = new Map<string, string>();
  for (const { type, id, payload } of entries) {
    if (type === "gate.request" && typeof payload.action_ref === "string") ofGate.set(id, payload.action_ref);
  }
  const found = new Map<number, string>();
  for (const entry of entries) {
    const proposal = proposalOf(entry, ofGate);
    if (proposal !== null) found.set(entry.seq, proposal);
  }
  return found;
}

function proposalOf({ type, id, payload }: AuditEntry, ofGate: Map<string, string>): string | null {
  if (type === "tool.propose" || type === "shell.exec") return id;
  for (const field of [payload.tool_proposal, payload.action_ref]) if (typeof field === "string") return field;
  // Votes name the gate by its proposal or by its own id.
  return typeof payload.gate === "string" ? (ofGate.get(payload.gate) ?? payload.gate) : null;
}

/** The tool of each proposal. An edit of one does not repeat it. */
export function toolsOf(entries: readonly AuditEntry[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const { type, id, payload } of entries) if (type === "tool.propose" && typeof payload.tool_name === "string") found.set(id, payload.tool_name);
  return found;
}

/** More characters than a line shows. */
const MAX_SUMMARY = 500;

/** The fields that say most about an entry, the first that is there. */
const TELLING = ["command", "reason", "comment", "message", "content", "text", "description", "name", "key", "status", "amendment", "outcome", "code", "error"];

/** One line of what an entry says. */
export function summaryOf({ payload }: AuditEntry, tool: unknown = payload.tool_name): string {
  const { arguments: args, result, grant } = payload;
  if (isObject(args)) return commandOf(args, tool);
  const granted = isObject(grant) ? attempt(actionDecoder, grant.action) : null;
  if (granted !== null) return shownCommand(granted).slice(0, MAX_SUMMARY);
  if (isObject(result) && typeof result.exitCode === "number") return t().stream.exit(result.exitCode);
  if (isTexts(payload.prefix)) return payload.prefix.join(" ").slice(0, MAX_SUMMARY);
  const told = TELLING.map((field) => payload[field]).filter((value): value is string => typeof value === "string" && value !== "" && value !== "known");
  return told.slice(0, 2).join(" · ").slice(0, MAX_SUMMARY);
}

function commandOf(args: Record<string, unknown>, tool: unknown): string {
  // Other tools take anything as a command.
  const line = tool === "shell" ? shellLine(args) : null;
  return (line ?? `${typeof tool === "string" ? tool : ""} ${compactJson(args)}`.trim()).slice(0, MAX_SUMMARY);
}

/** The line that a shell runs; null if its arguments are not those of a shell. */
function shellLine({ full_command, command, args = [] }: Record<string, unknown>): string | null {
  // If there is a full command, it alone is what runs.
  if (typeof full_command === "string") return full_command;
  return typeof command === "string" && isTexts(args) ? [command, ...args].join(" ") : null;
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
