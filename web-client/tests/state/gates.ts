// Open gates, as the server lists them.

import type { GateListItem } from "@protocol";
import { gateItem } from "../card/support";

export interface GateFacts {
  gate?: string;
  session?: string;
  digest?: string;
  escalated?: boolean;
  /** Seconds after the beginning of the test's time; `null` for none. */
  deadline?: number | null;
  timeout?: number;
  command?: string;
  mayVote?: boolean;
}

/** The beginning of a test's time. */
export const START = Date.UTC(2026, 10, 18, 10, 0, 0);

export function openGate(facts: GateFacts = {}): GateListItem {
  const { gate = "g1", session = "owl", digest = "d1", escalated = false, deadline = 300, timeout = 300, command = "touch secret", mayVote = true } = facts;
  const item = gateItem({ gate, session, digest, line: command, risk: "medium" });
  const { deadline: _, ...request } = item.request;
  const until = deadline === null ? {} : { deadline: new Date(START + deadline * 1000).toISOString() };
  return { ...item, proposer: "kit", escalated, may_vote: mayVote, request: { ...request, timeout_seconds: timeout, ...until } };
}
