// The notifications that the system shows for the page, which outlive it.

import { forget } from "./storage";

/** Under which it is kept what was told. */
export const NOTICES = "notices";

const TAG_PREFIX = "pvp-";

/** One notification for each gate, the same whether the page or a push shows it. */
export function noticeTag(gate: string): string {
  return TAG_PREFIX + gate;
}

/** Those that are on the screen of the system. */
export async function shownNotices(): Promise<Notification[]> {
  const registration = await navigator.serviceWorker?.getRegistration();
  return (await registration?.getNotifications()) ?? [];
}

/** Takes all of them away, and forgets what was told: they were for whoever was signed in. */
export async function dropNotices(): Promise<void> {
  forget(NOTICES);
  for (const notice of await shownNotices()) if (notice.tag.startsWith(TAG_PREFIX)) notice.close();
}
