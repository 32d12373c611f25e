// Whether the end of a command was on the screen: nobody approves what they have not scrolled to.

import { useEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

export interface SeenEnd {
  /** Goes on the element behind the command. */
  marker: RefObject<HTMLSpanElement>;
  /** `null` before the browser has said. */
  isSeen: boolean | null;
  scrollThere(): void;
}

/** What of the screen the buttons leave free. Where they cover most of it, some of that counts. */
function visibleArea(element: HTMLElement): IntersectionObserverInit {
  const root = element.closest<HTMLElement>(".card-scroll, #content");
  const height = root?.clientHeight ?? innerHeight;
  const bar = element.closest(".card")?.querySelector<HTMLElement>(".decision-bar");
  return { root, rootMargin: `0px 0px -${Math.min(bar?.offsetHeight ?? 0, Math.round(height * 0.4))}px 0px` };
}

/** `version` names what is to be read, `covered` what stands before it. */
export function useSeenEnd(version: string, covered: string | null): SeenEnd {
  const marker = useRef<HTMLSpanElement>(null);
  const [seen, setSeen] = useState<{ version: string; isSeen: boolean } | null>(null);
  useEffect(() => {
    const element = marker.current;
    if (element === null) return;
    const observer = new IntersectionObserver((entries) => {
      const isSeen = entries.some((entry) => entry.isIntersecting);
      setSeen((before) => (before?.version === version && before.isSeen ? before : { version, isSeen }));
    }, visibleArea(element));
    observer.observe(element);
    return () => observer.disconnect();
  }, [version, covered]);
  return {
    marker,
    isSeen: seen?.version === version ? seen.isSeen : null,
    scrollThere: () => marker.current?.scrollIntoView({ block: "center" }),
  };
}
