// Where a stream comes from: a session that goes on, or a recording of one.

import type { ReadonlySignal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { OutputPage, OutputRead } from "@protocol";
import type { View } from "../fold";
import type { SessionConnection } from "../net/connection";
import type { ScreenPool } from "../terminal/pool";
import type { TerminalSizes } from "../terminal/sizes";

export interface StreamSource {
  view: View;
  /** Changes when the view has changed. */
  tick: ReadonlySignal<number>;
  /** The time by the server's clock; in a replay, the time that is shown. */
  now(): number;
  screens: ScreenPool;
  sizes: TerminalSizes;
  readOutput(read: OutputRead): Promise<OutputPage>;
  /** The session, to act in it; null in a replay, where nothing can be done. */
  live: SessionConnection | null;
  /** Texts that somebody unfolded; they stay so when they leave the screen and come back. */
  unfolded: Set<string>;
}

/**
 * Objects of a view are changed in place. A component that gets one gets its version beside it, or
 * it would look unchanged and not be drawn again.
 */
export interface Versioned {
  version: number;
}

export const SourceContext = createContext<StreamSource | null>(null);

export function useSource(): StreamSource {
  const source = useContext(SourceContext);
  if (source === null) throw new Error("this component needs a stream");
  return source;
}
