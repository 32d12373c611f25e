// Tells a session that somebody is there: reading and typing send nothing by themselves.

import { useEffect } from "preact/hooks";
import type { SessionConnection } from "../net/connection";

const INTERVAL_MS = 20_000;

export function usePresence(connection: SessionConnection): void {
  useEffect(() => {
    let told = 0;
    const onActivity = () => {
      const { view } = connection;
      const me = view.me?.participant;
      // The others already see whoever is active.
      if (me === undefined || view.people[me]?.presence === "active" || Date.now() - told < INTERVAL_MS) return;
      told = Date.now();
      connection.sendNow("presence.update", { participant: me, status: "active", last_active: new Date(connection.now()).toISOString() });
    };
    const kinds = ["pointerdown", "keydown", "wheel"] as const;
    for (const kind of kinds) addEventListener(kind, onActivity, { passive: true, capture: true });
    return () => {
      for (const kind of kinds) removeEventListener(kind, onActivity, { capture: true });
    };
  }, [connection]);
}
