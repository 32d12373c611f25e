// One gate as it is at this moment: from the list of all gates, from its own address, and from the
// answers to what was sent.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { GateDetails, GateListItem } from "@protocol";
import { ApiError } from "../net/api";
import type { App } from "../state/app";
import { problemText } from "./sending";

export type GatePhase =
  | "loading"
  | "open"
  /** Not open any more; how it was decided may not be known yet. */
  | "closed"
  /** There is no such gate, or it may not be seen. */
  | "missing";

export interface WatchedGate {
  phase: GatePhase;
  /** The gate as it is, or as it was when it was last open. */
  item: GateListItem | null;
  details: GateDetails | null;
  /** What was known of it besides when it was last open. */
  openDetails: GateDetails | null;
  /** Why the details could not be loaded. */
  problem: string | null;
  /** Takes what the server answered to a vote or an edit. */
  accept(details: GateDetails): void;
  reload(): void;
}

/** An answer that is newer than the list it was given beside. */
interface Answer {
  /** The item of the list at that time. */
  beside: GateListItem | null;
  open: GateListItem | null;
}

export function useWatchedGate(app: App, session: string, gate: string): WatchedGate {
  const [details, setDetails] = useState<GateDetails | null>(null);
  const [problem, setProblem] = useState<{ text: string; isFinal: boolean } | null>(null);
  const answer = useRef<Answer | null>(null);
  const last = useRef<GateListItem | null>(null);
  const lastDetails = useRef<GateDetails | null>(null);
  const listed = findGate(app.gates.value ?? [], session, gate);
  const listedDigest = listed?.assessment.digest ?? null;
  const shownList = useRef(listed);
  shownList.current = listed;

  const asked = useRef(0);
  const taken = useRef(0);
  const take = (fresh: GateDetails, number: number) => {
    // An answer to an older question says less than what is known.
    if (number < taken.current) return;
    taken.current = number;
    answer.current = { beside: shownList.current, open: fresh.open ?? null };
    setProblem(null);
    setDetails(fresh);
  };
  const isAsking = useRef(false);
  const isWanted = useRef(false);
  const reload = useCallback(async () => {
    // However often the list changes, one question is on its way and at most one follows.
    isWanted.current = isAsking.current;
    if (isAsking.current) return;
    isAsking.current = true;
    const number = ++asked.current;
    try {
      const path = `/api/sessions/${encodeURIComponent(session)}/gates/${encodeURIComponent(gate)}`;
      take(await app.api.get<GateDetails>(path, { exactNumbers: true }), number);
    } catch (error) {
      const isFinal = error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
      setProblem({ text: problemText(error), isFinal });
    } finally {
      isAsking.current = false;
      if (isWanted.current) void reload();
    }
  }, [app, session, gate]);

  const isClosed = details !== null && details.status !== "open";
  // Asked again when the gate appears, is edited or goes, and when the server is back. A gate that
  // the list does not have is asked for with every list.
  const list = listed === null ? app.gates.value : null;
  useEffect(() => {
    if (!isClosed) void reload();
  }, [reload, listedDigest, list, app.reachable.value]);

  const item = current(listed, answer.current, details) ?? null;
  if (item !== null) last.current = item;
  if (details?.open !== undefined) lastDetails.current = details;
  return {
    phase: phaseOf(item, details, problem?.isFinal ?? false, last.current),
    item: item ?? last.current,
    details,
    openDetails: lastDetails.current,
    problem: problem?.text ?? null,
    accept: (fresh) => take(fresh, ++asked.current),
    reload: () => void reload(),
  };
}

/** The open gate, if it is open. */
export function current(listed: GateListItem | null, answer: Answer | null, details: GateDetails | null): GateListItem | null {
  // A gate that was closed once stays closed, whatever an older list says.
  if (details !== null && details.status !== "open") return null;
  if (answer === null) return listed;
  const isOlder = listed === answer.beside || (listed !== null && isBefore(listed, answer));
  return isOlder ? answer.open : listed;
}

/** Whether a list still has the command that an edit of ours replaced. */
function isBefore(listed: GateListItem, answer: Answer): boolean {
  const digest = listed.assessment.digest;
  return digest === answer.beside?.assessment.digest && digest !== answer.open?.assessment.digest;
}

function phaseOf(item: GateListItem | null, details: GateDetails | null, isRefused: boolean, last: GateListItem | null): GatePhase {
  if (item !== null) return "open";
  if (details !== null && details.status !== "open") return "closed";
  if (last !== null) return "closed";
  return isRefused ? "missing" : "loading";
}

/** A gate by its id, its proposal's id or its short id. */
export function findGate(gates: readonly GateListItem[], session: string, id: string): GateListItem | null {
  const named = (gate: GateListItem) => gate.gate === id || gate.request.action_ref === id || gate.short_id === id;
  return gates.find((gate) => gate.session === session && named(gate)) ?? null;
}
