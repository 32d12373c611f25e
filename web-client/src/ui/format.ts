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

/** The language of the page, as the person's country writes it. */
export function locale(): string {
  const { lang } = document.documentElement;
  return navigator.languages.find((language) => language.split("-")[0] === lang) ?? lang;
}

/** Making a formatter takes longer than everything else that an entry of the stream draws. */
const formatters = new Map<Intl.DateTimeFormatOptions, { language: string; formatter: Intl.DateTimeFormat }>();

function formatted(at: string | null, options: Intl.DateTimeFormatOptions): string {
  if (at === null) return "";
  const language = locale();
  const known = formatters.get(options);
  const formatter = known?.language === language ? known.formatter : new Intl.DateTimeFormat(language, options);
  formatters.set(options, { language, formatter });
  const time = Date.parse(at);
  return Number.isNaN(time) ? at : formatter.format(time);
}

const TIME: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const DATE_AND_TIME: Intl.DateTimeFormatOptions = { dateStyle: "medium", timeStyle: "short" };
const DAY: Intl.DateTimeFormatOptions = { weekday: "long", year: "numeric", month: "long", day: "numeric" };

export function timeOfDay(at: string | null): string {
  return formatted(at, TIME);
}

export function dateAndTime(at: string | null): string {
  return formatted(at, DATE_AND_TIME);
}

export function dayOf(at: string): string {
  return formatted(at, DAY);
}

export function names(list: readonly string[]): string {
  return new Intl.ListFormat(locale(), { type: "conjunction" }).format(list);
}
