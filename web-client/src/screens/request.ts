// Asking the server for something, for as long as the component that asks is on the screen.

import { useEffect, useState } from "preact/hooks";
import { t } from "../i18n";
import { announce } from "../state/announcements";
import { messageOf } from "../ui/message";

export interface Loaded<T> {
  /** The last answer; `null` before the first. */
  value: T | null;
  /** Why there is no newer answer. */
  problem: unknown;
  busy: boolean;
  reload(): void;
  set(value: T): void;
}

/** Loads when the component appears and whenever `key` changes; an answer that comes too late is dropped. */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [round, setRound] = useState(0);
  const [state, setState] = useState<{ value: T | null; problem: unknown; busy: boolean }>({ value: null, problem: null, busy: true });
  useEffect(() => {
    const stopping = new AbortController();
    const settle = (change: { value?: T; problem: unknown }) => {
      if (!stopping.signal.aborted) setState((before) => ({ ...before, ...change, busy: false }));
    };
    setState((before) => ({ ...before, problem: null, busy: true }));
    load(stopping.signal).then(
      (value) => settle({ value, problem: null }),
      (problem: unknown) => settle({ problem }),
    );
    return () => stopping.abort();
  }, [key, round]);
  return {
    ...state,
    reload: () => setRound((before) => before + 1),
    set: (value) => setState({ value, problem: null, busy: false }),
  };
}

/** Does something a person asked for: `busy` meanwhile, and what went wrong is told once. */
export function useAction(): { busy: boolean; run(action: () => Promise<void>): void } {
  const [busy, setBusy] = useState(false);
  const run = (action: () => Promise<void>) => {
    setBusy(true);
    action()
      .catch((error: unknown) => announce(t().app.failed(messageOf(error)), "error"))
      .finally(() => setBusy(false));
  };
  return { busy, run };
}

/** The path of something that belongs to a session. */
export function sessionPath(session: string, rest: string): string {
  return `/api/sessions/${encodeURIComponent(session)}/${rest}`;
}
