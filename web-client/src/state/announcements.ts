// Short messages: shown for a moment, and read out by screen readers once.

import { signal } from "@preact/signals";

export interface Announcement {
  id: number;
  text: string;
  tone: "info" | "error";
}

const SHOWN_MS = 6000;
let next = 1;

export const announcements = signal<Announcement[]>([]);

export function announce(text: string, tone: Announcement["tone"] = "info"): void {
  const announcement = { id: next++, text, tone };
  announcements.value = [...announcements.value.slice(-3), announcement];
  setTimeout(() => dismiss(announcement.id), SHOWN_MS);
}

export function dismiss(id: number): void {
  announcements.value = announcements.value.filter((announcement) => announcement.id !== id);
}
