// Random sequences of messages, made of those in the golden transcripts: mixed, repeated and changed.

import { readdirSync, readFileSync } from "node:fs";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Message = { [key: string]: Json };

const directory = `${import.meta.dirname}/../../../tests/transcripts/`;

/** The messages of each story. */
export const stories: Message[][] = readdirSync(directory)
  .filter((file) => file.endsWith(".told.jsonl"))
  .sort()
  .map((file) => readFileSync(`${directory}${file}`, "utf8").split("\n"))
  .map((lines) => lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Message));

/** Texts that often break something. */
const TEXTS = [
  "",
  " ",
  "é",
  "🦀🦀",
  "a\u202eb\u0000\u001b[2K\r\n",
  "__proto__",
  "constructor",
  "x".repeat(5000),
  "é\n".repeat(3000),
  "\t tab and blank \t",
  "7",
  "null",
  "system",
  "2026-02-30T00:00:00.000Z",
  "2026-01-01T00:00:00+02:00",
  "0".repeat(64),
  "F".repeat(64),
  "session:working_directory",
];

const NUMBERS = [0, 1, -1, 1.5, 2 ** 31, 2 ** 32, 2 ** 53, 1e20, 300];

export class Random {
  constructor(private state: number) {}

  /** A whole number below `limit`. */
  below(limit: number): number {
    // A multiplicative generator modulo a prime, after Lehmer.
    this.state = (this.state * 48_271) % 2_147_483_647;
    return Math.floor((this.state / 2_147_483_647) * limit);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }

  isOneIn(number: number): boolean {
    return this.below(number) === 0;
  }

  value(depth = 0): Json {
    const kinds: (() => Json)[] = [
      () => null,
      () => this.isOneIn(2),
      () => this.pick(NUMBERS),
      () => this.pick(TEXTS),
      () => Array.from({ length: this.below(4) }, () => this.value(depth + 1)),
      () => Object.fromEntries([[this.pick(TEXTS), this.value(depth + 1)]]),
    ];
    return this.pick(depth > 3 ? kinds.slice(0, 4) : kinds)();
  }
}

/** The places in a message, each with what is there. */
function places(value: Json, found: { parent: Json[] | Message; key: string; value: Json }[] = []) {
  if (typeof value !== "object" || value === null) return found;
  for (const [key, field] of Object.entries(value)) {
    found.push({ parent: value as Message, key, value: field });
    places(field, found);
  }
  return found;
}

/** Changes something somewhere in a message. */
function garble(random: Random, message: Message): void {
  const place = random.pick(places(message));
  const parent = place.parent as Message;
  const choice = random.below(4);
  if (choice === 0) delete parent[place.key];
  else if (choice === 1 && typeof place.value === "string") parent[place.key] = place.value + random.pick(TEXTS);
  else if (choice === 2) parent[random.pick(TEXTS)] = random.value();
  else parent[place.key] = random.value();
}

/** Puts a value from elsewhere of the same name in a message, which is then often still valid. */
function transplant(random: Random, message: Message): void {
  const place = random.pick(places(message.payload as Json));
  const donor = places(random.pick(random.pick(stories)) as Json).filter((other) => other.key === place?.key);
  if (place === undefined || donor.length === 0) return;
  (place.parent as Message)[place.key] = structuredClone(random.pick(donor).value);
}

export interface SequenceOptions {
  length: number;
  /** One in so many messages is garbled. */
  garbledOneIn: number;
}

/** A sequence of messages of one session. Its log numbers grow, with repetitions and gaps. */
export function randomSequence(random: Random, { length, garbledOneIn }: SequenceOptions): Message[] {
  const messages: Message[] = [];
  let [story, next, seq] = [random.pick(stories), 0, 0];
  while (messages.length < length) {
    if (random.isOneIn(12) || next >= story.length) [story, next] = [random.pick(stories), random.below(4)];
    const message = structuredClone(story[next % story.length] as Message);
    next += 1;
    if (random.isOneIn(6)) continue;
    message.session = "s";
    if (typeof message.seq === "number" && !random.isOneIn(20)) {
      seq += random.isOneIn(8) ? random.below(4) : 1;
      message.seq = seq;
    }
    const payload = message.payload as Message;
    if (message.type === "session.welcome" && !random.isOneIn(4)) payload.head = Math.max(0, seq + random.below(7) - 3);
    if (random.isOneIn(5)) transplant(random, message);
    if (random.isOneIn(garbledOneIn)) garble(random, message);
    messages.push(message);
  }
  return messages;
}
