// A list of commands to approve together. Each is voted on as it was listed, or not at all.

import type { GateListItem } from "@protocol";
import { awaitsVoteOf, isSameVersion } from "./order";

export type EntryState =
  | { kind: "listed" }
  | { kind: "sending" }
  | { kind: "approved" }
  | { kind: "refused"; message: string }
  /** Edited, decided or no longer this person's to decide since it was listed. */
  | { kind: "changed" };

export interface Entry {
  item: GateListItem;
  /** The id of its vote, the same if it is sent again. */
  voteId: string;
  state: EntryState;
}

/** Takes off what is not as it was listed. What is on its way stays. */
export function withoutChanged(entries: readonly Entry[], gates: readonly GateListItem[], me: string): Entry[] {
  return entries.map((entry) => {
    const isWaiting = entry.state.kind === "listed" || entry.state.kind === "refused";
    return isWaiting && !isUnchanged(entry.item, gates, me) ? { ...entry, state: { kind: "changed" } } : entry;
  });
}

export function isUnchanged(item: GateListItem, gates: readonly GateListItem[], me: string): boolean {
  return gates.some((gate) => isSameVersion(gate, item) && awaitsVoteOf(gate, me));
}

export function count(entries: readonly Entry[], kind: EntryState["kind"]): number {
  return entries.filter((entry) => entry.state.kind === kind).length;
}
