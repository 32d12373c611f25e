// Times as they are on the wire, in one form, so that they compare as texts.

import type { Timestamp } from "./types";

/** Where a message does not say when it was sent. */
export const EPOCH: Timestamp = "1970-01-01T00:00:00.000Z";

/** The last time with a four-digit year. */
const MAX_MS = 253_402_300_799_999;

const RFC_3339 = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

let lastParsed = EPOCH;

/** The time as `2026-01-31T12:00:00.000Z`; null if the text is no time since 1970. */
export function parseTimestamp(text: string): Timestamp | null {
  // Messages come in bursts, and a burst often has one time.
  if (text === lastParsed) return text;
  const milliseconds = parseMilliseconds(text);
  if (milliseconds === null || milliseconds < 0) return null;
  lastParsed = new Date(Math.min(milliseconds, MAX_MS)).toISOString();
  return lastParsed;
}

function parseMilliseconds(text: string): number | null {
  const found = RFC_3339.exec(text);
  if (found === null) return null;
  const [, day, minutes, seconds, fraction = "", sign, offsetHours = "0", offsetMinutes = "0"] = found;
  const second = seconds === "60" ? "59" : seconds;
  const base = Date.parse(`${day}T${minutes}:${second}.${fraction.slice(0, 3).padEnd(3, "0")}Z`);
  // A day that the month does not have would become a day of the next month.
  if (Number.isNaN(base) || new Date(base).toISOString().slice(0, 10) !== day) return null;
  const offset = (Number(offsetHours) * 60 + Number(offsetMinutes)) * 60_000;
  return sign === "-" ? base + offset : base - offset;
}

/** Milliseconds from one time to a later one; zero if it is not later. */
export function millisecondsUntil(time: Timestamp, now: Timestamp): number {
  return Math.max(0, Date.parse(time) - Date.parse(now));
}
