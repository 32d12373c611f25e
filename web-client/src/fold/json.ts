// JSON as it is sent: numbers keep their digits, and objects are written with sorted keys.

import { compareText } from "./text";

/** A number that JavaScript would not write as it was sent, such as 9007199254740993 or 1.0. */
export class ExactNumber {
  constructor(readonly text: string) {}

  toJSON(): number {
    return Number(this.text);
  }
}

export type JsonObject = Record<string, unknown>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

/** The fields of an object in the order of their keys, whatever order the message has. */
export function sortedFields(object: JsonObject): [string, unknown][] {
  return Object.entries(object).sort(([a], [b]) => compareText(a, b));
}

/** A value on one line. */
export function compactJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(compactJson).join(",")}]`;
  if (!isObject(value)) return scalarJson(value);
  const fields = sortedFields(value).filter(([, field]) => field !== undefined);
  return `{${fields.map(([key, field]) => `${JSON.stringify(key)}:${compactJson(field)}`).join(",")}}`;
}

/** A value on several lines. */
export function prettyJson(value: unknown, indent = ""): string {
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const items = value.map((item) => `${inner}${prettyJson(item, inner)}`);
    return items.length === 0 ? "[]" : `[\n${items.join(",\n")}\n${indent}]`;
  }
  if (!isObject(value)) return scalarJson(value);
  const fields = sortedFields(value).map(([key, field]) => `${inner}${JSON.stringify(key)}: ${prettyJson(field, inner)}`);
  return fields.length === 0 ? "{}" : `{\n${fields.join(",\n")}\n${indent}}`;
}

function scalarJson(value: unknown): string {
  return value instanceof ExactNumber ? value.text : (JSON.stringify(value) ?? "null");
}

/** Levels of nested JSON that a message may have. */
const MAX_DEPTH = 128;

/** A number that `JSON.parse` might not keep as it is written. */
const INEXACT_NUMBER = /\d[.eE]|\d{16}|-0/;

/** A surrogate, or an escape of one: perhaps half a character, which is no valid text. */
const PERHAPS_HALF_A_CHARACTER = /[\ud800-\udfff]|\\u[dD][89a-fA-F]/;

/** Parses JSON; undefined if it is not valid, is nested too deeply, or has half a character. */
export function parseJson(text: string): unknown {
  const shape = scan(text);
  if (shape === "too deep") return undefined;
  try {
    const value: unknown = shape === "exact numbers" ? new ExactParser(text).parse() : JSON.parse(text);
    return PERHAPS_HALF_A_CHARACTER.test(text) && !isWellFormed(value) ? undefined : value;
  } catch {
    return undefined;
  }
}

/** Looks at what is outside of strings, so that a hostile text costs one pass and no stack. */
function scan(text: string): "plain" | "exact numbers" | "too deep" {
  let [depth, at, isInexact] = [0, 0, false];
  while (at < text.length) {
    const quote = text.indexOf('"', at);
    const end = quote === -1 ? text.length : quote;
    for (let position = at; position < end; position += 1) {
      const unit = text.charCodeAt(position) | 0x20;
      if (unit === 0x7b) depth += 1;
      else if (unit === 0x7d) depth -= 1;
      if (depth > MAX_DEPTH) return "too deep";
    }
    isInexact ||= end - at > 1 && INEXACT_NUMBER.test(text.slice(at, end));
    at = quote === -1 ? text.length : endOfString(text, quote + 1);
  }
  return isInexact ? "exact numbers" : "plain";
}

/** The position after a string whose first character is at `from`. */
function endOfString(text: string, from: number): number {
  let at = from;
  for (;;) {
    const quote = text.indexOf('"', at);
    if (quote === -1) return text.length;
    let slashes = 0;
    while (quote - 1 - slashes >= from && text.charCodeAt(quote - 1 - slashes) === 0x5c) slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
    at = quote + 1;
  }
}

function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return !/\p{Surrogate}/u.test(value);
  if (Array.isArray(value)) return value.every(isWellFormed);
  return !isObject(value) || Object.entries(value).every(([key, field]) => isWellFormed(key) && isWellFormed(field));
}

/** Parses JSON like `JSON.parse`, but keeps the digits of numbers that it would change. */
class ExactParser {
  private at = 0;

  constructor(private readonly text: string) {}

  parse(): unknown {
    const value = this.value();
    this.skipBlanks();
    if (this.at < this.text.length) throw new SyntaxError("text after the value");
    return value;
  }

  private value(): unknown {
    this.skipBlanks();
    const first = this.text.charAt(this.at);
    if (first === "{") return this.object();
    if (first === "[") return this.array();
    if (first === '"') return this.string();
    return this.word();
  }

  private object(): JsonObject {
    const object: JsonObject = {};
    for (let more = this.opens("}"); more; more = this.continues("}")) {
      this.skipBlanks();
      const key = this.string();
      this.skipBlanks();
      this.expect(":");
      const value = this.value();
      // A field `__proto__` is a field like any other.
      Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
    }
    return object;
  }

  private array(): unknown[] {
    const items: unknown[] = [];
    for (let more = this.opens("]"); more; more = this.continues("]")) items.push(this.value());
    return items;
  }

  /** Whether an item follows the opening bracket. */
  private opens(close: string): boolean {
    this.at += 1;
    this.skipBlanks();
    if (this.text.charAt(this.at) !== close) return true;
    this.at += 1;
    return false;
  }

  /** Whether another item follows an item. */
  private continues(close: string): boolean {
    this.skipBlanks();
    const found = this.text.charAt(this.at);
    if (found !== close) this.expect(",");
    else this.at += 1;
    return found !== close;
  }

  private expect(character: string): void {
    if (this.text.charAt(this.at) !== character) throw new SyntaxError(`no ${character} at ${this.at}`);
    this.at += 1;
  }

  private string(): string {
    const from = this.at;
    if (this.text.charAt(from) !== '"') throw new SyntaxError(`no string at ${from}`);
    this.at = endOfString(this.text, from + 1);
    return JSON.parse(this.text.slice(from, this.at)) as string;
  }

  /** A number, `true`, `false` or `null`. */
  private word(): unknown {
    const from = this.at;
    while (/[\w.+-]/.test(this.text.charAt(this.at))) this.at += 1;
    const word = this.text.slice(from, this.at);
    const value: unknown = JSON.parse(word);
    return typeof value === "number" && String(value) !== word ? new ExactNumber(word) : value;
  }

  private skipBlanks(): void {
    while (" \t\n\r".includes(this.text.charAt(this.at)) && this.at < this.text.length) this.at += 1;
  }
}
