// Makes text from others safe to show: invisible characters escaped, length bounded. Lengths are
// bytes of UTF-8, as everywhere in the protocol.

/** The longest reason, comment, name or other short text, in bytes: about a screenful. */
export const MAX_LINE_BYTES = 4 * 1024;

/** Lines that one budget has room for. */
const MAX_BUDGET_LINES = 10_000;

/**
 * Characters that cannot be seen or look like something else: controls, format and bidi controls,
 * joiners, fillers, placeholders, variation selectors, tags, and every space except the ASCII one. Line feeds and
 * tabs are not among them, because their effect is visible on every screen.
 */
const INVISIBLE_RANGES: readonly (readonly [number, number])[] = [
  [0x0, 0x8], [0xb, 0x1f], [0x7f, 0xa0], [0xad, 0xad], [0x34f, 0x34f], [0x600, 0x605], [0x61c, 0x61c],
  [0x6dd, 0x6dd], [0x70f, 0x70f], [0x890, 0x890], [0x891, 0x891], [0x8e2, 0x8e2], [0x115f, 0x115f],
  [0x1160, 0x1160], [0x1680, 0x1680], [0x17b4, 0x17b4], [0x17b5, 0x17b5], [0x180b, 0x180f],
  [0x2000, 0x200f], [0x2028, 0x202f], [0x205f, 0x206f], [0x2800, 0x2800], [0x3000, 0x3000],
  [0x3164, 0x3164], [0xfe00, 0xfe0f], [0xfeff, 0xfeff], [0xffa0, 0xffa0], [0xfff0, 0xfffc],
  [0x110bd, 0x110bd], [0x110cd, 0x110cd], [0x13430, 0x1343f], [0x16fe4, 0x16fe4], [0x1bca0, 0x1bca3], [0x1d159, 0x1d159], [0x1d173, 0x1d17a],
  [0xe0000, 0xe0fff],
];

const INVISIBLE = new RegExp(`[${INVISIBLE_RANGES.map((range) => range.map(codeEscape).join("-")).join("")}]`, "gu");

function codeEscape(code: number): string {
  return `\\u{${code.toString(16)}}`;
}

/** Something else than what most texts consist of, which is quickly looked for. */
const UNUSUAL = /[^\n\t -~]/;

/** Escapes every invisible character, for example as `\u{202e}`. */
export function escapeInvisible(text: string): string {
  if (!UNUSUAL.test(text)) return text;
  return text.replace(INVISIBLE, (found) => codeEscape(found.codePointAt(0) ?? 0));
}

/** How many characters `escapeInvisible` would escape. */
export function countInvisible(text: string): number {
  if (!UNUSUAL.test(text)) return 0;
  return text.match(INVISIBLE)?.length ?? 0;
}

/** A position in a text, in UTF-16 units and in bytes. */
export interface Place {
  index: number;
  bytes: number;
}

const encoder = new TextEncoder();
const scratch = new Uint8Array(32 * 1024);

/** The length in bytes of UTF-8. */
export function byteLength(text: string): number {
  return placeBefore(text, Number.POSITIVE_INFINITY).bytes;
}

/** The last place between characters that is not after so many bytes. */
export function placeBefore(text: string, maxBytes: number): Place {
  const place = { index: 0, bytes: 0 };
  // The encoder never splits a character; it is given parts, so that a long text needs little memory.
  while (place.index < text.length && place.bytes < maxBytes) {
    const room = Math.min(maxBytes - place.bytes, scratch.length);
    const part = partOf(text, place.index, room);
    const { read, written } = encoder.encodeInto(part, room === scratch.length ? scratch : scratch.subarray(0, room));
    if (read === 0) break;
    place.index += read;
    place.bytes += written;
  }
  return place;
}

/** At most so many units of a text from an index on, without half a pair at the end. */
function partOf(text: string, from: number, length: number): string {
  if (from === 0 && text.length <= length) return text;
  const end = from + length;
  const last = end < text.length ? text.charCodeAt(end - 1) : 0;
  return text.slice(from, last >= 0xd800 && last <= 0xdbff ? end - 1 : end);
}

/** The first place between characters that is not before so many bytes; the end if there is none. */
export function placeAfter(text: string, minBytes: number): Place {
  const place = placeBefore(text, minBytes);
  if (place.bytes >= minBytes || place.index === text.length) return place;
  const character = String.fromCodePoint(text.codePointAt(place.index) ?? 0);
  return { index: place.index + character.length, bytes: place.bytes + byteLength(character) };
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}

/** The beginning of a text, at most so many bytes long, without splitting a character. */
export function truncate(text: string, maxBytes: number): string {
  return cut(text, maxBytes).kept;
}

/** The beginning of a text as `truncate` gives it, and how many bytes are cut off. */
export function cut(text: string, maxBytes: number): { kept: string; cutBytes: number } {
  // A unit is at most three bytes, so such a text is certainly short enough.
  if (text.length * 3 <= maxBytes) return { kept: text, cutBytes: 0 };
  const { index } = placeBefore(text, maxBytes);
  if (index === text.length) return { kept: text, cutBytes: 0 };
  return { kept: detached(text.slice(0, index)), cutBytes: byteLength(text.slice(index)) };
}

/** The same text in memory of its own. A slice would keep the whole text that it was cut from. */
export function detached(slice: string): string {
  return ` ${slice}`.slice(1);
}

/** Truncates a short text from someone. */
export function truncateLine(text: string): string {
  return truncate(text, MAX_LINE_BYTES);
}

/** Like `truncateLine`, for a text that may be missing. */
export function truncateOptional(text: string | undefined): string | null {
  return text === undefined ? null : truncateLine(text);
}

/** Room for the text of one action. Counts what is escaped in it, and what does not fit. */
export class TextBudget {
  /** Bytes that did not fit. */
  cutBytes = 0;
  /** Invisible characters that were escaped. */
  hidden = 0;
  private linesLeft = MAX_BUDGET_LINES;

  constructor(private bytesLeft: number) {}

  /** As much of a text as fits, with invisible characters escaped. */
  take(text: string): string {
    const { kept, cutBytes } = cut(text, this.bytesLeft);
    this.bytesLeft -= byteLength(kept);
    this.cutBytes += cutBytes;
    this.hidden += countInvisible(kept);
    return escapeInvisible(kept);
  }

  /** A line with invisible characters escaped; null if there is no room for all of it. */
  takeLine(line: string): string | null {
    // One byte for the line feed, so that empty lines need room too.
    const needed = byteLength(line) + 1;
    if (needed > this.bytesLeft || this.linesLeft === 0) {
      this.cutBytes += needed;
      this.linesLeft = 0;
      return null;
    }
    this.linesLeft -= 1;
    this.bytesLeft -= 1;
    return this.take(line);
  }
}

/** The characters that Unicode calls white space; what `String.trim` removes differs a little. */
const WHITE_SPACE = /\p{White_Space}/u;

/** The text without white space at its ends. */
export function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && WHITE_SPACE.test(text.charAt(start))) start += 1;
  while (end > start && WHITE_SPACE.test(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** Orders texts by their characters, as their bytes in UTF-8 are ordered. */
export function compareText(a: string, b: string): number {
  const shorter = Math.min(a.length, b.length);
  for (let at = 0; at < shorter; at += 1) {
    const [left, right] = [a.charCodeAt(at), b.charCodeAt(at)];
    if (left === right) continue;
    // Pairs stand for characters beyond all others, but their halves have middling numbers.
    if (isSurrogate(left) !== isSurrogate(right)) return isSurrogate(left) ? 1 : -1;
    return left - right;
  }
  return a.length - b.length;
}

/** `1 line` or `2 lines`. */
export function pluralize(count: number, one: string): string {
  return count === 1 ? `1 ${one}` : `${count} ${one}s`;
}
