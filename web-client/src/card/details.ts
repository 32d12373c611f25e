// What the server knows of one version of a gate besides its action: the contents of bound files,
// and what an edit replaced.

import { useEffect, useState } from "preact/hooks";
import type { GateDetails } from "@protocol";
import type { App } from "../state/app";
import { versionOf } from "./model";
import type { CardModel } from "./model";
import { problemText } from "./sending";

export interface LoadedDetails {
  details: GateDetails | null;
  /** Why they could not be loaded. */
  problem: string | null;
  reload(): void;
}

/** Asks once for each version of the card, and again when the server is back or the person says so. */
export function useDetails(app: App, card: CardModel, isNeeded: boolean): LoadedDetails {
  const version = versionOf(card);
  const [answer, setAnswer] = useState<{ version: string; details: GateDetails | null; problem: string | null } | null>(null);
  const [attempt, setAttempt] = useState(0);
  const isReachable = app.reachable.value;
  useEffect(() => {
    if (!isNeeded) return;
    let isStale = false;
    const take = (details: GateDetails | null, problem: string | null) => {
      if (!isStale) setAnswer({ version, details, problem });
    };
    const path = `/api/sessions/${encodeURIComponent(card.session)}/gates/${encodeURIComponent(card.gate)}`;
    app.api.get<GateDetails>(path, { exactNumbers: true }).then(
      (details) => take(details, null),
      (error: unknown) => take(null, problemText(error)),
    );
    return () => {
      isStale = true;
    };
  }, [app, version, isNeeded, isReachable, attempt]);
  const current = answer?.version === version ? answer : null;
  return { details: current?.details ?? null, problem: current?.problem ?? null, reload: () => setAttempt(attempt + 1) };
}
