// The server's clock, as the answers of the server tell it. Deadlines are set by that clock, and a
// phone's own may be minutes off.

/** Answers are dated to the second, so smaller differences are no news. */
const NOTICEABLE_MS = 1000;

let offset = 0;

/** Takes the `Date` of an answer that has just arrived. */
export function observeServerDate(date: string | null, receivedAt: number = Date.now()): void {
  const stated = Date.parse(date ?? "");
  if (Number.isNaN(stated)) return;
  // The date is cut to the second, so on average it is half a second old.
  const difference = stated + 500 - receivedAt;
  if (Math.abs(difference - offset) > NOTICEABLE_MS) offset = difference;
}

/** The time by the server's clock, in milliseconds. */
export function serverNow(now: number = Date.now()): number {
  return now + offset;
}
