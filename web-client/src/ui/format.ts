// Times, durations and sizes as people read them.

import { t } from "../i18n";

/** A duration, such as `4:31` or `2 h 5 min`. */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return t().time.seconds(seconds);
  if (seconds < 3600) return t().time.minutes(Math.floor(seconds / 60), seconds % 60);
  if (seconds < 2 * 86_400) return t().time.hours(Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60));
  return t().time.days(Math.round(seconds / 86_400));
}

/** How long a command ran, with a fraction if it was short. */
export function runTime(milliseconds: number): string {
  return milliseconds < 10_000 ? `${(milliseconds / 1000).toFixed(milliseconds < 1000 ? 2 : 1)} s` : duration(milliseconds);
}

export function timeOfDay(at: string | null): string {
  if (at === null) return "";
  return new Intl.DateTimeFormat(document.documentElement.lang, { hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(new Date(at));
}

export function dateAndTime(at: string | null): string {
  if (at === null) return "";
  return new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" }).format(new Date(at));
}

export function names(list: readonly string[]): string {
  return new Intl.ListFormat(document.documentElement.lang, { type: "conjunction" }).format(list);
}
