// Draws a panel again when its session has changed, but not for every frame of a busy one.

import { useEffect, useState } from "preact/hooks";
import type { SessionConnection } from "../net/connection";

const INTERVAL_MS = 250;

/**
 * Draws the component again when the view has changed, at most a few times a second. The view is changed in
 * place, so a component below that reads it gets the number as a prop, or it would be taken for unchanged.
 */
export function useSlowTick(connection: SessionConnection): number {
  const [tick, draw] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isFirst = true;
    const stop = connection.tick.subscribe(() => {
      // A signal tells its value to whoever begins to listen; that one is drawn already.
      if (isFirst || timer !== undefined) return;
      timer = setTimeout(() => {
        timer = undefined;
        draw((count) => count + 1);
      }, INTERVAL_MS);
    });
    isFirst = false;
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [connection]);
  return tick;
}
