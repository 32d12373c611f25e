// The arguments of a tool call as readable text: names and values, one below the other.

import { compactJson, ExactNumber, isObject, sortedFields } from "./json";
import type { JsonObject } from "./json";
import { byteLength, trim } from "./text";
import type { TextBudget } from "./text";
import type { ArgumentView } from "./types";

/** Arguments and items listed. */
const MAX_ARGUMENTS = 2000;

/** The depth to which nested values are listed; deeper ones are shown as JSON. */
const MAX_DEPTH = 6;

/** Lists arguments in the order of their keys. */
export function listArguments(args: JsonObject, budget: TextBudget): ArgumentView[] {
  const lister = new ArgumentLister(budget);
  for (const [key, value] of sortedFields(args)) lister.add(0, keyName(key), value);
  return lister.listed;
}

class ArgumentLister {
  readonly listed: ArgumentView[] = [];

  constructor(private readonly budget: TextBudget) {}

  add(depth: number, name: string, value: unknown): void {
    if (this.listed.length >= MAX_ARGUMENTS) {
      this.budget.cutBytes += byteLength(name) + byteLength(compactJson(value));
      return;
    }
    const isNested = Array.isArray(value) || isObject(value);
    if (isNested && depth >= MAX_DEPTH) this.budget.hidden += countEscapedControls(value);
    const text = valueText(value, depth);
    this.listed.push({ depth, name: this.budget.take(name), value: this.budget.take(text) });
    if (text === "") this.addItems(depth + 1, value);
  }

  private addItems(depth: number, value: unknown): void {
    if (Array.isArray(value)) value.forEach((item, index) => this.add(depth, `[${index}]`, item));
    else if (isObject(value)) for (const [key, field] of sortedFields(value)) this.add(depth, keyName(key), field);
  }
}

/** The value as text; empty if its items follow. */
function valueText(value: unknown, depth: number): string {
  if (typeof value === "string") return isPlain(value) ? value : quoted(value);
  const isEmpty = Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0;
  const isListed = (Array.isArray(value) || isObject(value)) && !isEmpty && depth < MAX_DEPTH;
  return isListed ? "" : compactJson(value);
}

/** A key as it is if it is a plain word, else quoted, so that no key can pass for anything else. */
function keyName(key: string): string {
  if (/^[A-Za-z0-9_][A-Za-z0-9_.$-]*$/.test(key)) return key;
  return quoted(key).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

/** A text in quotation marks. Whatever is invisible in it is left for the budget to escape. */
function quoted(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** How many invisible characters the JSON of a value escapes by itself, unseen by the budget. */
function countEscapedControls(value: unknown): number {
  if (typeof value === "string") return value.match(/[\0-\x08\x0b-\x1f]/g)?.length ?? 0;
  const parts = Array.isArray(value) ? value : isObject(value) ? Object.entries(value).flat() : [];
  return parts.reduce((sum: number, part) => sum + countEscapedControls(part), 0);
}

const NUMBER = /^[+-]?(?:inf|infinity|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)$/i;

/**
 * Whether a text is shown as it is: it cannot be mistaken for another kind of value, and nothing at
 * its ends is invisible.
 */
function isPlain(text: string): boolean {
  const isTrimmed = trim(text) === text || text.includes("\n");
  const looksLikeJson = /^(?:[{["]|$|null$|true$|false$)/.test(text) || NUMBER.test(text);
  return isTrimmed && !looksLikeJson;
}

/** A JSON number as it was sent; null for anything else. */
export function numberText(value: unknown): string | null {
  if (value instanceof ExactNumber) return value.text;
  return typeof value === "number" ? String(value) : null;
}
