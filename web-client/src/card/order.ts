// Which gate is looked at first.

import type { Category, GateListItem, Risk } from "@protocol";

const CATEGORIES: readonly Category[] = ["read", "write", "destructive", "blocked"];
const RISKS: readonly Risk[] = ["safe", "low", "medium", "high", "critical"];

/** Whether the gate waits for this person's vote; whoever has approved waits for others. */
export function awaitsVoteOf(gate: GateListItem, participant: string): boolean {
  return gate.may_vote && !gate.approvals.some((approval) => approval.participant === participant);
}

/** What decides the order. */
export interface Rank {
  category: Category;
  risk: Risk | null;
  gate: string;
}

/** The worst first, and of equals the newest. */
export function compareRanks(a: Rank, b: Rank): number {
  return (
    CATEGORIES.indexOf(b.category) - CATEGORIES.indexOf(a.category) ||
    severity(b.risk) - severity(a.risk) ||
    // The server makes the ids of gates, and they begin with the time.
    (a.gate < b.gate ? 1 : a.gate > b.gate ? -1 : 0)
  );
}

function severity(risk: Risk | null): number {
  return risk === null ? -1 : RISKS.indexOf(risk);
}

export function compareGates(a: GateListItem, b: GateListItem): number {
  const rank = ({ gate, assessment: { category, risk } }: GateListItem) => ({ gate, category, risk });
  return compareRanks(rank(a), rank(b));
}

export interface SortedGates {
  /** Those that wait for this person's vote. */
  mine: GateListItem[];
  others: GateListItem[];
}

export function sortGates(gates: readonly GateListItem[], participant: string): SortedGates {
  const sorted = [...gates].sort(compareGates);
  return {
    mine: sorted.filter((gate) => awaitsVoteOf(gate, participant)),
    others: sorted.filter((gate) => !awaitsVoteOf(gate, participant)),
  };
}

/** The gate to go to from this one: the next that waits for this person, else the first. */
export function gateAfter(gates: readonly GateListItem[], participant: string, current: GateListItem | null): GateListItem | null {
  const waiting = sortGates(gates, participant).mine.filter((gate) => current === null || !isSame(gate, current));
  const later = current === null ? undefined : waiting.find((gate) => compareGates(gate, current) > 0);
  return later ?? waiting[0] ?? null;
}

export function isSame(a: GateListItem, b: GateListItem): boolean {
  return a.session === b.session && a.gate === b.gate;
}

/** Whether these are the same gate and the same command. */
export function isSameVersion(a: GateListItem, b: GateListItem): boolean {
  return isSame(a, b) && a.assessment.digest === b.assessment.digest;
}

/** The more severe of two categories. */
export function worse(a: Category, b: Category): Category {
  return CATEGORIES.indexOf(a) >= CATEGORIES.indexOf(b) ? a : b;
}
