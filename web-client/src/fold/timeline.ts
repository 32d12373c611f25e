// The timeline: what happened in a session as a person reads it, item by item.

import type { MessageId } from "@protocol";
import { byteLength, cut } from "./text";
import type { Live, Sender, TimelineData, TimelineItem, TruncatedText } from "./types";

/** Items kept unless the view is told otherwise; older ones can be read from the log. */
export const MAX_ITEMS = 2000;

/** Bytes of prompts, thinking and responses kept in total. */
export const MAX_TEXT_BYTES = 8 * 1024 * 1024;

/** Bytes kept of one prompt, thinking block or response. */
export const MAX_ITEM_BYTES = 256 * 1024;

/** Which of an agent's two text streams. */
export type AgentTextKind = "thinking" | "response";

/** The item of an agent's text. */
export type AgentText = Extract<TimelineItem, { kind: AgentTextKind }>;

/** One item. Its version is no field, so that it is not among what is copied or written. */
class VersionedItem {
  readonly #version: number;

  constructor(item: TimelineItem, version: number) {
    Object.assign(this, item);
    this.#version = version;
  }

  get version(): number {
    return this.#version;
  }
}

function versioned(item: TimelineItem, version: number): Live<TimelineItem> {
  return new VersionedItem(item, version) as unknown as Live<TimelineItem>;
}

/** Places of open texts, oldest first, among those of some that are not open any more. */
interface OpenPlaces {
  places: number[];
  /** How many of them are open. */
  count: number;
}

/** The beginning of a text, as much as one item keeps. */
export function truncatedText(text: string): TruncatedText {
  const { kept, cutBytes } = cut(text, MAX_ITEM_BYTES);
  return { text: kept, cut_bytes: cutBytes };
}

/**
 * What happened in a session, as much of it as is kept.
 *
 * An item never changes: one that grows or closes is replaced by another object with the same id and
 * a higher version. `dropped + index` names the place of an item for as long as it is kept.
 */
export class Timeline implements TimelineData {
  /** Items that are kept, behind `#start` places of items that are not. */
  readonly #items: Live<TimelineItem>[] = [];
  /** The bytes of text of each. */
  readonly #sizes: number[] = [];
  #start = 0;
  #textBytes = 0;
  #dropped = 0;
  /** The place of the newest item with an id. Places count from the first item there ever was. */
  readonly #newest = new Map<MessageId, number>();
  /** The open agent texts by kind and sender, and by their id as well. */
  readonly #open = new Map<string, OpenPlaces>();

  constructor(
    private readonly maxItems: number,
    private readonly maxTextBytes: number,
  ) {}

  /** Oldest first. */
  get items(): Live<TimelineItem>[] {
    this.#compact();
    return this.#items;
  }

  /** The number of older items that are not kept. */
  get dropped(): number {
    return this.#dropped;
  }

  /** The number of items that are kept. */
  get length(): number {
    return this.#items.length - this.#start;
  }

  toJSON(): TimelineData {
    return { items: this.items, dropped: this.dropped };
  }

  push(item: TimelineItem): void {
    const place = this.#dropped + this.length;
    const size = textSize(item);
    this.#items.push(versioned(item, 0));
    this.#sizes.push(size);
    this.#textBytes += size;
    this.#newest.set(item.id, place);
    const kind = openKind(item);
    for (const key of kind === null ? [] : openKeys(kind, item.who, item.id)) {
      const open = this.#open.get(key) ?? { places: [], count: 0 };
      open.places.push(place);
      open.count += 1;
      this.#open.set(key, open);
    }
    this.#trim();
  }

  /** The newest item with this id. */
  newest(id: MessageId): Live<TimelineItem> | undefined {
    const place = this.#newest.get(id);
    return place === undefined ? undefined : this.#at(place);
  }

  /** Appends to the sender's open text of this kind; false if there is none. */
  append(kind: AgentTextKind, sender: Sender, id: MessageId | null, text: string): boolean {
    const place = this.#openPlace(kind, sender, id);
    if (place === null) return false;
    const item = this.#at(place) as AgentText;
    const size = this.#sizes[this.#index(place)] as number;
    const room = item.cut_bytes === 0 ? MAX_ITEM_BYTES - size : 0;
    const { kept, cutBytes } = cut(text, room);
    const bytes = byteLength(kept);
    this.#replace(place, { ...item, text: item.text + kept, cut_bytes: item.cut_bytes + cutBytes });
    this.#sizes[this.#index(place)] = size + bytes;
    this.#textBytes += bytes;
    this.#trim();
    return true;
  }

  /** Replaces the sender's open text of this kind by what `end` makes of it, which closes it. */
  close(kind: AgentTextKind, sender: Sender, id: MessageId | null, end: (item: AgentText) => AgentText): void {
    const place = this.#openPlace(kind, sender, id);
    if (place !== null) this.#close(place, end);
  }

  #close(place: number, end: (item: AgentText) => AgentText): void {
    const item = this.#at(place) as AgentText;
    this.#replace(place, { ...end(item), open: false });
    this.#forgetOpen(item.kind, item);
  }

  /** Closes the open texts of a sender who left. */
  closeAllOf(sender: Sender): void {
    for (const kind of ["thinking", "response"] satisfies AgentTextKind[]) {
      for (let place = this.#openPlace(kind, sender, null); place !== null; place = this.#openPlace(kind, sender, null)) {
        this.#close(place, (item) => item);
      }
    }
  }

  /** The place of the sender's open text: the one with this id, or the latest if there is no id. */
  #openPlace(kind: AgentTextKind, sender: Sender, id: MessageId | null): number | null {
    const places = this.#open.get(openKey(kind, sender, id))?.places ?? [];
    while (places.length > 0 && !this.#isOpen(places.at(-1) as number)) places.pop();
    return places.at(-1) ?? null;
  }

  #isOpen(place: number): boolean {
    const item = place < this.#dropped ? undefined : this.#at(place);
    return item !== undefined && openKind(item) !== null;
  }

  #replace(place: number, item: TimelineItem): void {
    const before = this.#at(place);
    this.#items[this.#index(place)] = versioned(item, (before?.version ?? 0) + 1);
  }

  #index(place: number): number {
    return place - this.#dropped + this.#start;
  }

  #at(place: number): Live<TimelineItem> | undefined {
    return this.#items[this.#index(place)];
  }

  #trim(): void {
    while (this.length > this.maxItems || (this.#textBytes > this.maxTextBytes && this.length > 1)) this.#dropOldest();
    // Moving the rest is rare enough to cost little for each item that is dropped.
    if (this.#start > 1024 && this.#start > this.length) this.#compact();
  }

  #dropOldest(): void {
    const item = this.#items[this.#start] as TimelineItem;
    this.#textBytes -= this.#sizes[this.#start] as number;
    if (this.#newest.get(item.id) === this.#dropped) this.#newest.delete(item.id);
    const kind = openKind(item);
    this.#start += 1;
    this.#dropped += 1;
    if (kind !== null) this.#forgetOpen(kind, item);
  }

  /** Forgets a text that was closed or dropped, and never opens again. */
  #forgetOpen(kind: AgentTextKind, { who, id }: TimelineItem): void {
    for (const key of openKeys(kind, who, id)) {
      const open = this.#open.get(key);
      if (open === undefined) continue;
      open.count -= 1;
      // Lists are cleaned when most of their places are stale, which costs little for each of them.
      if (open.count <= 0) this.#open.delete(key);
      else if (open.places.length > 2 * open.count + 16) open.places = open.places.filter((place) => this.#isOpen(place));
    }
  }

  #compact(): void {
    if (this.#start === 0) return;
    this.#items.splice(0, this.#start);
    this.#sizes.splice(0, this.#start);
    this.#start = 0;
  }
}

function openKind(item: TimelineItem): AgentTextKind | null {
  return (item.kind === "thinking" || item.kind === "response") && item.open ? item.kind : null;
}

function openKey(kind: AgentTextKind, sender: Sender, id: MessageId | null): string {
  return id === null ? `${kind} ${sender}` : `${kind} ${sender} ${id}`;
}

function openKeys(kind: AgentTextKind, sender: Sender, id: MessageId): string[] {
  return [openKey(kind, sender, null), openKey(kind, sender, id)];
}

/** Bytes of the texts that have no bounded length. */
function textSize(item: TimelineItem): number {
  switch (item.kind) {
    case "prompt":
    case "prompt_amended":
    case "thinking":
    case "response":
      return byteLength(item.text);
    default:
      return 0;
  }
}
