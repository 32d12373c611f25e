// Quorum rules: how many of whom must approve a gate, and the count of their approvals.

import type { ParticipantId, QuorumRule, Role } from "@protocol";

/** The people who decide a gate, at the time of counting. */
export interface Approvers {
  /** Everyone whose approval counts, and their roles: people who may approve, but not the proposer. */
  eligible: Map<ParticipantId, Role[]>;
  /** Those who could approve when the gate opened and who still count for it. */
  electorate: Set<ParticipantId>;
  /**
   * Who invited whom during the session, also of those who do not vote; empty if approvals need not
   * be independent.
   */
  invitedBy: Map<ParticipantId, ParticipantId>;
  /** Whom the proposal speaks for: the proposer, or who invited the agent that proposed it. */
  owner: ParticipantId | null;
}

/** The current state of a vote. */
export interface Tally {
  received: number;
  required: number;
  /** Whether the gate has passed. */
  passed: boolean;
  /** Named people whose approval is still needed; empty if any voter will do. */
  awaited: ParticipantId[];
  /** Whose approvals count. */
  counted: Set<ParticipantId>;
}

type Approved = ReadonlySet<ParticipantId>;

/**
 * Whoever keeps this participant's approval from counting as that of one more person: the owner of
 * the proposal or somebody else who approved, if they invited them or whoever did; null if nobody.
 */
function dependence(id: ParticipantId, approvers: Approvers, approved: Approved): ParticipantId | null {
  let inviter = approvers.invitedBy.get(id);
  // A chain of invitations is no longer than the list of them, unless it is a circle.
  for (let step = 0; step < approvers.invitedBy.size && inviter !== undefined; step += 1) {
    const counts = approved.has(inviter) && approvers.eligible.has(inviter);
    if (inviter !== id && (counts || approvers.owner === inviter)) return inviter;
    inviter = approvers.invitedBy.get(inviter);
  }
  return null;
}

/**
 * Counts approvals against a rule. Only eligible people count. Those who joined after the gate opened
 * count too, but never raise the number required. Where a number of people decide, whoever depends on
 * another of them does not count as one more.
 */
export function tally(rule: QuorumRule, approvers: Approvers, approved: Approved): Tally {
  const eligible = [...approved].filter((id) => approvers.eligible.has(id));
  const isIndependent = (id: ParticipantId) => dependence(id, approvers, approved) === null;
  const counted = needsIndependence(rule, approvers) ? eligible.filter(isIndependent) : eligible;
  switch (rule.type) {
    case "any":
      return atLeast(counted, Math.max(rule.count, 1));
    case "role": {
      const holders = counted.filter((id) => approvers.eligible.get(id)?.includes(rule.role));
      return atLeast(holders, Math.max(rule.count, 1));
    }
    case "majority":
      return atLeast(counted, majorityOf(approvers));
    // Whoever must approve cannot be replaced by others whom somebody invited.
    case "all":
      return eachOf(approvers.electorate, counted);
    case "specific":
      return eachOf(new Set(rule.participants), counted);
  }
}

function majorityOf(approvers: Approvers): number {
  return Math.floor(approvers.electorate.size / 2) + 1;
}

/** Whether a rule asks for several people, so that one must not count as two. */
function needsIndependence(rule: QuorumRule, approvers: Approvers): boolean {
  switch (rule.type) {
    case "any":
    case "role":
      return rule.count > 1;
    case "majority":
      return majorityOf(approvers) > 1;
    case "all":
    case "specific":
      return false;
  }
}

function atLeast(counted: ParticipantId[], required: number): Tally {
  const received = counted.length;
  return { received, required, passed: received > 0 && received >= required, awaited: [], counted: new Set(counted) };
}

function eachOf(requiredVoters: ReadonlySet<ParticipantId>, counted: ParticipantId[]): Tally {
  if (requiredVoters.size === 0) return atLeast(counted, 1);
  const given = new Set(counted);
  const awaited = [...requiredVoters].filter((id) => !given.has(id)).sort();
  const received = requiredVoters.size - awaited.length;
  return { received, required: requiredVoters.size, passed: awaited.length === 0, awaited, counted: given };
}

/**
 * Who keeps the approval of an eligible person from counting as that of one more person; null if it
 * counts, or if nobody does.
 */
export function notCountedBecauseOf(
  id: ParticipantId,
  rule: QuorumRule,
  approvers: Approvers,
  approved: Approved,
): ParticipantId | null {
  const isExcluded = rule.type === "role" && approvers.eligible.get(id)?.includes(rule.role) !== true;
  if (!isExcluded && !needsIndependence(rule, approvers)) return null;
  return dependence(id, approvers, approved);
}

/** The quorum in words. */
export function quorumWords(rule: QuorumRule): string {
  switch (rule.type) {
    case "any":
      return rule.count === 1 ? "one approval" : `${rule.count} approvals`;
    case "all":
      return "everyone who may approve";
    case "role": {
      if (rule.count !== 1) return `${rule.count} approvals by ${rule.role}s`;
      const article = /^[ao]/.test(rule.role) ? "an" : "a";
      return `one approval by ${article} ${rule.role}`;
    }
    case "specific":
      return `approval by ${rule.participants.join(" and ")}`;
    case "majority":
      return "more than half of those who may approve";
  }
}
