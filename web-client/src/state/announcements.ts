// Short messages: shown for a moment, and read out by screen readers once.

import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";

export interface Announcement {
  id: number;
  text: string;
  tone: "info" | "error";
  /** Whether it has words of an agent. */
  isQuoting: boolean;
}

const SHOWN_MS = 6000;
let next = 1;

export const announcements = signal<Announcement[]>([]);

/** How many cards on the screen can be decided. Messages are then shown beside them, never over them. */
export const openCards = signal(0);

export function announce(text: string, tone: Announcement["tone"] = "info", isQuoting = false): void {
  const announcement = { id: next++, text: escapeInvisible(text), tone, isQuoting };
  announcements.value = [...announcements.value.slice(-3), announcement];
  setTimeout(() => dismiss(announcement.id), SHOWN_MS);
}

/** Tells of a gate. Whoever decides another one reads no words of an agent but those on its card. */
export function announceGate(say: (category: string, command: string) => string, category: string, command: string): void {
  if (openCards.value > 0) announce(t().app.anotherGate(category));
  else announce(say(category, command), "info", true);
}

export function dismiss(id: number): void {
  announcements.value = announcements.value.filter((announcement) => announcement.id !== id);
}

/** Says that a card which can be decided is on the screen. */
export function useOpenCard(): void {
  useLayoutEffect(() => {
    openCards.value += 1;
    announcements.value = announcements.value.filter((announcement) => !announcement.isQuoting);
    return () => {
      openCards.value -= 1;
    };
  }, []);
}
