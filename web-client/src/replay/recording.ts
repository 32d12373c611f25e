// A session's entries, fetched page by page and kept as text until they are played.

import { t } from "../i18n";
import type { Api } from "../net/api";
import { isObject } from "../net/storage";
import { Timeline } from "./timing";

const PAGE = 1000;
/** More than this is not for a browser's memory; `pvp audit show` reads such a session. */
const MAX_ENTRIES = 500_000;
const MAX_CHARACTERS = 200_000_000;

export class Recording {
  readonly timeline = new Timeline();
  /** Whether the session has more entries than are kept here. */
  isCut = false;
  /** Where the log ended when it was last asked. */
  head = 0;
  private readonly texts: string[] = [];
  private characters = 0;
  private next = 0;

  constructor(
    private readonly api: Api,
    private readonly session: string,
  ) {}

  get length(): number {
    return this.texts.length;
  }

  /** The message at a place, as it was received. */
  text(index: number): string | undefined {
    return this.texts[index];
  }

  /** Fetches what is there and not yet here. */
  async load(onProgress: (loaded: number, head: number) => void, signal: AbortSignal): Promise<void> {
    while (!this.isCut) {
      const path = `/api/sessions/${encodeURIComponent(this.session)}/messages?after=${this.next}&limit=${PAGE}`;
      const page = await this.api.get<unknown>(path, { signal, timeoutMs: 60_000 });
      signal.throwIfAborted();
      const before = this.next;
      this.takePage(page);
      onProgress(this.next, this.head);
      if (this.next <= before || this.next >= this.head) return;
    }
  }

  private takePage(page: unknown): void {
    if (!isObject(page) || !Array.isArray(page.messages)) throw new Error(t().app.unreadable);
    for (const message of page.messages) {
      if (isObject(message)) this.add(message);
      if (this.isCut) return;
    }
    if (typeof page.next === "number") this.next = page.next;
    if (typeof page.head === "number") this.head = page.head;
  }

  add(message: Record<string, unknown>): void {
    if (this.texts.length >= MAX_ENTRIES || this.characters >= MAX_CHARACTERS) {
      this.isCut = true;
      return;
    }
    const text = JSON.stringify(message);
    this.texts.push(text);
    this.characters += text.length;
    this.timeline.add(typeof message.ts === "string" ? Date.parse(message.ts) : null);
  }
}
