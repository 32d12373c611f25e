// Questions that screens ask about what a view holds.

import type { Action, Category, FileContent, GateListItem, OpenGate } from "@protocol";
import { commandSummary } from "./action";
import { listOf } from "./decode";
import { attempt } from "./envelope";
import { action as actionDecoder, fileContent, openGate } from "./payloads";
import { requestAtGate, withTrial } from "./requested_action";
import { millisecondsUntil } from "./time";
import { toolCallOf } from "./tool_call";
import type { ProposalView, RequestedAction, Timestamp } from "./types";

export { deadlineAction, mayVote } from "./card";
export { hunkHeader } from "./diff";
export { hasCapability, isExecutor, isPresentAgent, mayVoteInGeneral } from "./participants";
export { isOver } from "./proposal";
export { quorumWords } from "./quorum";
export { amendArguments } from "./requested_action";
export { callOfSummary } from "./tool_call";
export { isVersionOf } from "./version";

/** Milliseconds that a command has been running, or ran; null if it was not granted. */
export function elapsedMs(proposal: Pick<ProposalView, "run" | "finish">, now: Timestamp): number | null {
  if (proposal.finish !== null) return proposal.finish.duration_ms;
  return proposal.run === null ? null : millisecondsUntil(now, proposal.run.started_at);
}

/** The category as people read it: a read that needs approval is a `write` to machines. */
export function categoryLabel(category: Category, sensitiveRead: boolean | undefined): Category | "sensitive read" {
  return category === "write" && sensitiveRead === true ? "sensitive read" : category;
}

/** The directories that an allow rule could let a command read; empty if more than that needs a vote. */
export function neededReadRoots(requested: Pick<RequestedAction, "assessment">): string[] {
  return requested.assessment?.needed_read_roots ?? [];
}

/**
 * What the command at a gate is, as a card shows it, from what the HTTP API says about the gate; null
 * if that is malformed. Contents are used only if the command binds them by their hash.
 */
export function requestedAtGate(
  gate: GateListItem | OpenGate,
  contents: FileContent[] = [],
): RequestedAction | null {
  const open = attempt(openGate, gate);
  const checked = attempt(listOf(fileContent), contents);
  if (open === null || checked === null) return null;
  const requested = requestAtGate(open, checked);
  return open.request.trial === undefined ? requested : withTrial(requested, open.request.trial);
}

/** One line by which people recognise an action: a call's headline, else the command, not escaped. */
export function actionHeadline(action: Action): string {
  const checked = attempt(actionDecoder, action);
  if (checked === null) return "";
  return toolCallOf(checked, [], null)?.headline ?? commandSummary(checked.command);
}
