// Messages that were typed and that the server has not acknowledged. They survive a reload, and are
// sent again with their old ids, so that none is applied twice.

import { forget, isObject, load, save } from "./storage";

export interface OutgoingMessage {
  id: string;
  type: string;
  payload: Record<string, unknown>;
}

/** More than this and something is wrong; the oldest are not silently dropped, new ones are refused. */
const MAX_MESSAGES = 200;

/** What a reload may repeat. A vote is cast again only by the person who looks at the card. */
const KEPT_TYPES = new Set(["prompt.submit", "prompt.amend", "shell.exec"]);

export class Outbox {
  private messages: OutgoingMessage[];

  constructor(private readonly key: string) {
    this.messages = load(`outbox.${key}`, parse) ?? [];
  }

  get waiting(): readonly OutgoingMessage[] {
    return this.messages;
  }

  /** Returns whether there was room. */
  add(message: OutgoingMessage): boolean {
    if (this.messages.length >= MAX_MESSAGES) return false;
    this.messages.push(message);
    this.keep();
    return true;
  }

  /** Takes out what was acknowledged or refused. */
  remove(id: string): void {
    const before = this.messages.length;
    this.messages = this.messages.filter((message) => message.id !== id);
    if (this.messages.length !== before) this.keep();
  }

  private keep(): void {
    const kept = this.messages.filter((message) => KEPT_TYPES.has(message.type));
    if (kept.length === 0) forget(`outbox.${this.key}`);
    else save(`outbox.${this.key}`, kept);
  }
}

function parse(value: unknown): OutgoingMessage[] | null {
  if (!Array.isArray(value)) return null;
  const messages = value.filter(
    (item): item is OutgoingMessage =>
      isObject(item) &&
      typeof item.id === "string" &&
      typeof item.type === "string" &&
      KEPT_TYPES.has(item.type) &&
      isObject(item.payload),
  );
  return messages.slice(0, MAX_MESSAGES);
}
