// Whether somebody may vote on a gate of the API's list, and what an allow rule of theirs would do.
// The server's own answer decides; this only says why.

import type { GateListItem, QuorumRule, Role, SessionConfig } from "@protocol";
import type { PrefixOffer, RequestedAction, VoteEligibility } from "../fold";
import type { SessionFacts } from "./session_facts";

const APPROVING: readonly Role[] = ["navigator", "adversary", "approver", "admin"];

export function standingOf(item: GateListItem, requested: RequestedAction, facts: SessionFacts): VoteEligibility {
  if (item.may_vote) {
    if (requested.cut_bytes > 0) return "not_shown_whole";
    return item.approvals.some((approval) => approval.participant === facts.me) ? "approved" : "may_vote";
  }
  if (facts.kind === "agent") return "agent";
  if (item.proposer === facts.me) return "proposer";
  if (!mayApprove(facts)) return "not_an_approver";
  if (item.escalated && !facts.roles.includes("admin")) return "admins_only";
  if (item.amended_by === facts.me) return "editor";
  return "not_here";
}

export function prefixOffer(item: GateListItem, requested: RequestedAction, facts: SessionFacts): PrefixOffer {
  const { config, me } = facts;
  if (config === null || me === null || requested.prefix.length === 0 || !mayApprove(facts)) return "not_possible";
  // Where a session asks for every tool of a kind, no rule answers.
  if (config.require_approval_for.length > 0 || !mayAllowAlone(config, me, facts.roles)) return "not_possible";
  const hasVoted = item.approvals.some((approval) => approval.participant === me);
  const missing = item.required - item.received;
  const isLast = item.may_vote && !hasVoted && missing <= 1 && item.awaited.every((id) => id === me);
  return isLast ? "also_approves" : "later_only";
}

function mayApprove(facts: SessionFacts): boolean {
  return facts.roles.some((role) => APPROVING.includes(role));
}

/** Whether one approval of this person is enough for a write, which a rule needs. */
function mayAllowAlone(config: SessionConfig, me: string, roles: readonly Role[]): boolean {
  const quorum: QuorumRule = config.quorum_by_category.write ?? config.default_gate_quorum;
  switch (quorum.type) {
    case "any":
      return quorum.count <= 1;
    case "role":
      return quorum.count <= 1 && roles.includes(quorum.role);
    case "specific":
      return quorum.participants.every((id) => id === me);
    // How many they are is not known here; the session's own page offers it where one is enough.
    case "all":
    case "majority":
      return false;
  }
}
