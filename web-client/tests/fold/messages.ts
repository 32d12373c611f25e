// Envelopes for tests, made as the server makes them.

import { parseServerMessage } from "../../src/fold";
import type { Envelope, View } from "../../src/fold";

export const DIGEST = "0".repeat(64);
export const AT = "2026-01-01T00:00:00.000Z";

let ids = 0;

interface Frame {
  id?: string;
  ref?: string;
  seq?: number | null;
  ts?: string;
  session?: string;
}

/** The next message of the log of a view, unless the frame says otherwise. */
export function message(view: View, sender: string, type: string, payload: object, frame: Frame = {}): Envelope {
  ids += 1;
  const { seq = view.head + 1, ...rest } = frame;
  const logged = seq === null ? {} : { seq };
  const text = JSON.stringify({ v: 1, id: `m${ids}`, ts: AT, session: "s", sender, type, payload, ...logged, ...rest });
  const envelope = parseServerMessage(text);
  if (envelope === null || envelope.type !== type) throw new Error(`not a message: ${text}`);
  return envelope;
}

export function fold(view: View, sender: string, type: string, payload: object, frame: Frame = {}): string {
  const envelope = message(view, sender, type, payload, frame);
  view.fold(envelope);
  return envelope.id;
}

export function person(id: string, roles: string[], more: object = {}): object {
  return { id, name: id.toUpperCase(), type: "human", roles, transport: "websocket", ...more };
}

export function agent(id: string, more: object = {}): object {
  return { id, name: id, type: "agent", roles: [], transport: "websocket", ...more };
}

export function assessment(category: string, digest = DIGEST): object {
  return { category, risk: "low", rule: "r", reason: "why", profile: "none", digest, policy: "p" };
}

export function proposal(command: string, more: object = {}): object {
  return {
    tool_name: "shell",
    arguments: { full_command: command },
    agent: "bot",
    description: "because",
    requires_approval: false,
    category: "shell_execute",
    assessment: assessment("write"),
    ...more,
  };
}

export function gateRequest(proposalId: string, more: object = {}): object {
  return {
    action_type: "tool",
    action_ref: proposalId,
    quorum: { type: "any", count: 1 },
    timeout_seconds: 0,
    message: "m",
    category: "write",
    digest: DIGEST,
    on_timeout: "reject",
    voters: ["ann", "ben"],
    ...more,
  };
}

export function welcome(me: string, people: object[], more: object = {}): object {
  return {
    participant: me,
    roles: ["admin"],
    capabilities: ["prompt", "approve", "interrupt", "fork", "add_context", "manage_participants", "end_session", "exec"],
    config: {},
    head: 0,
    people: people.map((participant) => ({ ...participant, presence: "active" })),
    gates: [],
    running: [],
    limits: {
      message_bytes: 1,
      json_depth: 1,
      messages_per_second: 1,
      message_burst: 1,
      participants: 1,
      open_proposals: 1,
      open_gates: 1,
      context_bytes: 1,
      proposals: 1,
    },
    extensions: {
      supports_shell_exec: true,
      supports_amend: true,
      supports_allow_rules: true,
      supports_resume: true,
      supports_output_read: true,
      supports_forks: false,
    },
    server: "pvp",
    ...more,
  };
}

export function grant(proposalId: string, action: object, more: object = {}): object {
  return {
    tool_proposal: proposalId,
    approved_by: [],
    grant: {
      id: `grant-${proposalId}`,
      executor: "bot",
      digest: DIGEST,
      profile: "none",
      action,
      limits: { timeout_ms: 1, output_bytes: 1 },
      expires_at: AT,
      cleared_by: "direct",
      ...more,
    },
  };
}

export function output(proposalId: string, stream: string, text: string, more: object = {}): object {
  return { tool_proposal: proposalId, stream, text, complete: false, ...more };
}
