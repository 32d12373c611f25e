// A part of the log that grows in both directions as a person reads.

import type { Api } from "../../net/api";
import { sessionPath } from "../request";
import { parseEntry } from "./entry";
import type { AuditEntry } from "./entry";
import { parseRawPage } from "./raw_messages";

export interface LogWindow {
  /** Oldest first. */
  entries: AuditEntry[];
  /** The first and the last number that was asked for, whether or not the reader may see it. */
  first: number;
  last: number;
}

const PAGE = 500;

/** The newest entries. */
export async function readNewest(api: Api, session: string, head: number): Promise<LogWindow> {
  const first = Math.max(1, head - PAGE + 1);
  return readRange(api, session, first, head);
}

export async function addOlder(api: Api, session: string, window: LogWindow): Promise<LogWindow> {
  const older = await readRange(api, session, Math.max(1, window.first - PAGE), window.first - 1);
  return { entries: [...older.entries, ...window.entries], first: older.first, last: window.last };
}

/** How much one search reads at most, so that a filter that finds nothing does not fill a phone's memory. */
const SEARCHED_PAGES = 20;

/** Older entries, page by page, until one of them is wanted. */
export async function searchOlder(api: Api, session: string, window: LogWindow, options: SearchOptions): Promise<LogWindow> {
  const found = options.count(window);
  let searched = window;
  for (let page = 0; page < SEARCHED_PAGES && searched.first > 1; page += 1) {
    options.signal.throwIfAborted();
    searched = await addOlder(api, session, searched);
    if (options.count(searched) > found) break;
    options.onProgress(searched.first);
  }
  return searched;
}

export interface SearchOptions {
  /** How many entries are wanted. */
  count(window: LogWindow): number;
  signal: AbortSignal;
  onProgress(first: number): void;
}

export async function addNewer(api: Api, session: string, window: LogWindow, head: number): Promise<LogWindow> {
  // After a long sleep only the newest are read, so that the window has no hole in it.
  if (head - window.last > PAGE) return readNewest(api, session, head);
  const newer = await readRange(api, session, window.last + 1, head);
  return { entries: [...window.entries, ...newer.entries], first: window.first, last: newer.last };
}

async function readRange(api: Api, session: string, first: number, last: number): Promise<LogWindow> {
  const entries: AuditEntry[] = [];
  let after = first - 1;
  while (after < last) {
    const page = parseRawPage(await api.text(sessionPath(session, `messages?after=${after}&limit=${last - after}`)));
    for (const raw of page.messages) {
      const entry = parseEntry(raw);
      if (entry !== null && entry.seq <= last) entries.push(entry);
    }
    if (page.next <= after) break;
    after = page.next;
  }
  return { entries, first, last };
}
