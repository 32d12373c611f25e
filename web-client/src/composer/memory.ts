// What the composer keeps in this browser, so that a reload loses nothing that was typed.

import { forget, isObject, load, save } from "../net/storage";

/** How many sent texts can be recalled. */
const MAX_HISTORY = 50;
/** Longer ones are not worth the room. */
const MAX_HISTORY_TEXT = 10_000;
const MAX_LIST = 64;

/** A command of the person's own whose result is awaited. */
export interface ShellRun {
  id: string;
  sendsResult: boolean;
}

/** A text that was sent and is not acknowledged. */
export interface SentText {
  id: string;
  text: string;
}

export interface ComposerMemory {
  text: string;
  history: string[];
  /** The agent that prompts go to, if one was chosen. */
  target: string | null;
  runs: ShellRun[];
  /** Finished commands whose results go with the next prompt, by id. */
  queued: string[];
  sent: SentText[];
}

export function emptyMemory(): ComposerMemory {
  return { text: "", history: [], target: null, runs: [], queued: [], sent: [] };
}

export function recall(key: string): ComposerMemory {
  return load(`composer.${key}`, parse) ?? emptyMemory();
}

/**
 * Keeps what this page has changed since `base`, which is what it read or kept last. Another tab may have
 * kept more meanwhile, and that stays.
 */
export function keepChanges(key: string, base: ComposerMemory, memory: ComposerMemory): void {
  keep(key, merged(base, memory, recall(key)));
}

function merged(base: ComposerMemory, mine: ComposerMemory, kept: ComposerMemory): ComposerMemory {
  const byId = <T extends { id: string }>(pick: (memory: ComposerMemory) => T[]) => mergedList(pick(base), pick(mine), pick(kept), (item) => item.id);
  const whole = (text: string) => text;
  return {
    text: mine.text === base.text ? kept.text : mine.text,
    target: mine.target === base.target ? kept.target : mine.target,
    history: mergedList(base.history, mine.history, kept.history, whole).slice(-MAX_HISTORY),
    runs: byId((memory) => memory.runs),
    queued: mergedList(base.queued, mine.queued, kept.queued, whole),
    sent: byId((memory) => memory.sent),
  };
}

/** What is kept, without what was taken out here, and with what was put in here at its end. */
function mergedList<T>(base: readonly T[], mine: readonly T[], kept: readonly T[], idOf: (item: T) => string): T[] {
  // Nobody else has changed it, so that its order is the one that was made here.
  if (kept.map(idOf).join("\n") === base.map(idOf).join("\n")) return [...mine];
  const ids = (list: readonly T[]) => new Set(list.map(idOf));
  const [before, now] = [ids(base), ids(mine)];
  const left = kept.filter((item) => now.has(idOf(item)) || !before.has(idOf(item)));
  const known = ids(left);
  const added = mine.filter((item) => !before.has(idOf(item)) && !known.has(idOf(item)));
  return [...left, ...added].slice(-MAX_LIST);
}

function keep(key: string, memory: ComposerMemory): void {
  const isEmpty = memory.text === "" && memory.target === null && [memory.history, memory.runs, memory.queued, memory.sent].every((list) => list.length === 0);
  if (isEmpty) forget(`composer.${key}`);
  else save(`composer.${key}`, memory);
}

/** The history with a text at its end, where it is found first. */
export function remembered(history: readonly string[], text: string): string[] {
  if (text.length > MAX_HISTORY_TEXT) return [...history];
  return [...history.filter((known) => known !== text), text].slice(-MAX_HISTORY);
}

function parse(value: unknown): ComposerMemory | null {
  if (!isObject(value)) return null;
  const isText = (item: unknown): item is string => typeof item === "string";
  const list = (field: unknown) => (Array.isArray(field) ? (field as unknown[]).slice(-MAX_LIST) : []);
  const { text, target } = value;
  const runs = list(value.runs).filter((run): run is ShellRun => isObject(run) && isText(run.id) && typeof run.sendsResult === "boolean");
  const sent = list(value.sent).filter((item): item is SentText => isObject(item) && isText(item.id) && isText(item.text));
  return {
    text: isText(text) ? text : "",
    history: list(value.history).filter(isText),
    target: isText(target) ? target : null,
    runs,
    queued: list(value.queued).filter(isText),
    sent,
  };
}
