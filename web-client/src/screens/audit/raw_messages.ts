// Cuts the messages out of a page as the server sent it, byte for byte, because hashes cover the bytes.

import { t } from "../../i18n";

export interface RawPage {
  /** Each message as it is in the log. */
  messages: string[];
  next: number;
  head: number;
}

export function parseRawPage(text: string): RawPage {
  const page = JSON.parse(text) as { messages: unknown[]; next: number; head: number };
  const messages = itemsOf(text, "messages");
  if (messages.length !== page.messages.length) throw new Error(t().app.unreadable);
  return { messages, next: page.next, head: page.head };
}

/** The items of a list that is a field of the outermost object, as they are written. */
function itemsOf(text: string, field: string): string[] {
  const items: string[] = [];
  let depth = 0;
  let start = -1;
  let isInList = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') {
      const end = endOfString(text, at);
      if (depth === 1 && text.slice(at + 1, end) === field && /^\s*:\s*\[/.test(text.slice(end + 1, end + 64))) isInList = true;
      at = end;
    } else if (character === "{" || character === "[") {
      depth += 1;
      if (isInList && depth === 3) start = at;
    } else if (character === "}" || character === "]") {
      depth -= 1;
      if (isInList && depth === 2) items.push(text.slice(start, at + 1));
      if (isInList && depth === 1) return items;
    }
  }
  return items;
}

/** Where the string that begins here ends. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at;
  }
  return text.length;
}
