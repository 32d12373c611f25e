// Messages that were typed and that the server has not acknowledged. They survive a reload, and are
// sent again with their old ids, so that none is applied twice. Each is kept under a key of its own,
// so that two tabs of a session do not overwrite each other's.

import { freshId } from "./ids";
import { forget, isObject, keysWith, load, save } from "./storage";

export interface OutgoingMessage {
  id: string;
  type: string;
  payload: Record<string, unknown>;
}

export interface WaitingMessage extends OutgoingMessage {
  /** When it was typed, by this device's clock; 0 if an older page kept it without. */
  at: number;
  /** Whether it went into a socket, so that the server may have it. */
  isWritten: boolean;
  /** The page that it was typed in. */
  page: string;
}

/** More than this and something is wrong; the oldest are not silently dropped, new ones are refused. */
const MAX_MESSAGES = 200;
/** Whoever waits longer for the connection may have changed their mind, or done it elsewhere. */
const MAX_AGE_MS = 60_000;

/** What a reload may repeat. A vote is cast again only by the person who looks at the card. */
const KEPT_TYPES = new Set(["prompt.submit", "prompt.amend", "shell.exec"]);

/** This page, until it is closed or loaded again. */
const PAGE = freshId();
const PAGE_LOCK = "pvp.page.";
// Held for as long as the page is open, which is how other tabs know it. Without https there are no locks.
void navigator.locks?.request(PAGE_LOCK + PAGE, () => new Promise(() => undefined)).catch(() => undefined);

export class Outbox {
  private messages: WaitingMessage[];
  private readonly saved = new Set<string>();
  private readonly watched = new Set<string>();
  private readonly closing = new AbortController();
  private readonly prefix: string;

  constructor(key: string) {
    // No id has a slash, so that no session's messages are taken for those of another.
    this.prefix = `outbox.${key}/`;
    for (const message of load(`outbox.${key}`, parseList) ?? []) save(this.prefix + message.id, message);
    forget(`outbox.${key}`);
    this.messages = this.kept().filter((message) => message.page === PAGE);
    for (const { id } of this.messages) this.saved.add(id);
  }

  get waiting(): readonly WaitingMessage[] {
    return this.messages;
  }

  /** Returns whether there was room. */
  add(message: OutgoingMessage): boolean {
    if (this.messages.length >= MAX_MESSAGES) return false;
    const waiting = { ...message, at: Date.now(), isWritten: false, page: PAGE };
    this.messages.push(waiting);
    this.keep(waiting);
    return true;
  }

  /** Takes out what was acknowledged, refused, withdrawn or given back. */
  remove(id: string): void {
    this.messages = this.messages.filter((message) => message.id !== id);
    forget(this.prefix + id);
  }

  /** Does not send a message any more, but keeps it until it is removed. */
  setAside(id: string): void {
    this.messages = this.messages.filter((message) => message.id !== id);
  }

  /** Whether another tab has dealt with a message of this one, which happens where tabs do not know of each other. */
  isTaken(id: string): boolean {
    return this.saved.has(id) && !this.isKept(id);
  }

  /** Notes that a message is in the socket. */
  noteWritten(id: string): void {
    const message = this.messages.find((known) => known.id === id);
    if (message === undefined || message.isWritten) return;
    message.isWritten = true;
    this.keep(message);
  }

  /**
   * What pages that are gone have left behind, oldest first. `onMore` is called when another one is
   * gone: a page that is loaded again may be there before the one in its place is quite away.
   */
  async leftBehind(onMore: () => void): Promise<WaitingMessage[]> {
    const open = await openPages();
    const others = this.kept().filter((message) => message.page !== PAGE);
    for (const { page } of others) if (open.has(page)) this.watch(page, onMore);
    return others.filter((message) => !open.has(message.page));
  }

  close(): void {
    this.closing.abort();
  }

  /** A page holds its lock for as long as it is open. */
  private watch(page: string, onGone: () => void): void {
    if (this.watched.has(page)) return;
    this.watched.add(page);
    const isGone = () => {
      this.watched.delete(page);
      onGone();
    };
    void navigator.locks?.request(PAGE_LOCK + page, { signal: this.closing.signal }, isGone).catch(() => undefined);
  }

  /** Makes a message that was left behind this page's own; returns whether it was still there. */
  adopt(message: WaitingMessage): boolean {
    if (!this.isKept(message.id)) return false;
    const own = { ...message, page: PAGE };
    this.messages.push(own);
    this.keep(own);
    return true;
  }

  /** Whether no other tab has dealt with a message that was left behind. */
  isKept(id: string): boolean {
    return load(this.prefix + id, parse) !== null;
  }

  private kept(): WaitingMessage[] {
    const found = keysWith(this.prefix).map((key) => load(key, parse));
    return found
      .filter((message) => message !== null)
      .sort((a, b) => a.at - b.at)
      .slice(0, MAX_MESSAGES);
  }

  private keep(message: WaitingMessage): void {
    if (KEPT_TYPES.has(message.type) && save(this.prefix + message.id, message)) this.saved.add(message.id);
  }
}

/** Whether a message has waited for so long that only the person who typed it may send it. */
export function isStale(message: WaitingMessage): boolean {
  const age = Date.now() - message.at;
  // A clock that was set back says nothing about the age.
  return age > MAX_AGE_MS || age < 0;
}

async function openPages(): Promise<ReadonlySet<string>> {
  const held = (await navigator.locks?.query().catch(() => null))?.held ?? [];
  return new Set(held.map((lock) => (lock.name ?? "").slice(PAGE_LOCK.length)));
}

function parse(value: unknown): WaitingMessage | null {
  if (!isObject(value)) return null;
  const { id, type, payload, at, isWritten, page } = value;
  if (typeof id !== "string" || typeof type !== "string" || !KEPT_TYPES.has(type) || !isObject(payload)) return null;
  // What an older page kept may have been sent.
  return { id, type, payload, at: typeof at === "number" ? at : 0, isWritten: isWritten !== false, page: typeof page === "string" ? page : "" };
}

function parseList(value: unknown): WaitingMessage[] | null {
  return Array.isArray(value) ? value.map(parse).filter((message) => message !== null) : null;
}
