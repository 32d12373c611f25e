// Saves the messages of a session as a file, one message in a line, as the server logged them.

import type { Api } from "../../net/api";
import { sessionPath } from "../request";
import { parseRawPage } from "./raw_messages";

/** The type of a file with one message in each line. */
export const JSON_LINES = "application/jsonl";

const PAGE = 1000;

export interface DownloadProgress {
  read: number;
  head: number;
}

/** Every message that the reader may see, as parts of a file. */
export async function readAllLines(api: Api, session: string, signal: AbortSignal, onProgress: (progress: DownloadProgress) => void): Promise<{ parts: string[]; count: number }> {
  const parts: string[] = [];
  let after = 0;
  let count = 0;
  let end: number | null = null;
  while (end === null || after < end) {
    signal.throwIfAborted();
    const page = parseRawPage(await api.text(sessionPath(session, `messages?after=${after}&limit=${PAGE}`)));
    // What is said meanwhile is not waited for, or a busy session would never end.
    end ??= page.head;
    if (page.messages.length > 0) parts.push(`${page.messages.join("\n")}\n`);
    count += page.messages.length;
    if (page.next <= after) break;
    after = page.next;
    onProgress({ read: Math.min(after, end), head: end });
  }
  return { parts, count };
}

/** A name for a file that no system misreads. */
export function fileName(session: string, kind: string): string {
  return `pvp-${session.replace(/[^A-Za-z0-9_-]+/g, "_")}-${kind}.jsonl`;
}
