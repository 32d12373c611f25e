// Gives a component the screen of a command for as long as it is drawn, and feeds it.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { Proposal } from "../fold";
import { useSource } from "../stream/source";
import { DEFAULT_SIZE } from "./screen";
import type { TerminalScreen } from "./screen";

/** The screen; null while it is loaded, or if too many others are in use. */
export function useScreen(proposal: Proposal, version: number): TerminalScreen | null {
  const { screens, sizes } = useSource();
  const [screen, setScreen] = useState<TerminalScreen | null>(null);
  const isInteractive = proposal.mode === "pty";
  useEffect(() => {
    let isDone = false;
    let isHeld = false;
    const size = sizes.get(proposal.id) ?? DEFAULT_SIZE;
    screens
      .acquire(proposal.id, { size, isInteractive })
      .then((found) => {
        isHeld = found !== null;
        if (isDone && isHeld) screens.release(proposal.id);
        else setScreen(found);
      })
      // Without the library, the output is drawn from its text.
      .catch(() => setScreen(null));
    return () => {
      isDone = true;
      if (isHeld) screens.release(proposal.id);
    };
  }, [proposal.id]);
  useLayoutEffect(() => {
    // What nobody sees is not worth the work; when it is seen again, the end of it is enough.
    const feed = () => {
      if (screen !== null && document.visibilityState === "visible") screen.feed(proposal.output);
    };
    feed();
    document.addEventListener("visibilitychange", feed);
    return () => document.removeEventListener("visibilitychange", feed);
  }, [screen, version]);
  return screen;
}
