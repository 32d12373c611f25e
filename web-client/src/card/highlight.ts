// The command in pieces: which piece has which verdict, and which was invisible.

import type { Category, PartAssessment } from "@protocol";
import { escapeInvisible } from "../fold";

export interface Piece {
  text: string;
  /** The verdict of the part that this piece belongs to. */
  category: Category | null;
  /** The text stands for a character that one would not see. */
  isEscaped: boolean;
}

/** The whole command, as text that can be shown. Joined, the pieces are the escaped command. */
export function pieces(command: string, parts: readonly PartAssessment[]): Piece[] {
  const spans = parts.length < 2 ? [] : characterSpans(command, parts);
  const cuts = [0, command.length, ...spans.flatMap((span) => [span.start, span.end])];
  const edges = [...new Set(cuts)].sort((a, b) => a - b);
  return edges.slice(1).flatMap((end, index) => {
    const start = edges[index] ?? 0;
    return escapedPieces(command.slice(start, end), categoryAt(spans, start, end));
  });
}

interface Span {
  start: number;
  end: number;
  category: Category;
}

/** The innermost part that covers a piece says what it does. */
function categoryAt(spans: readonly Span[], start: number, end: number): Category | null {
  let inner: Span | null = null;
  for (const span of spans) {
    const covers = span.start <= start && end <= span.end;
    if (covers && (inner === null || span.end - span.start < inner.end - inner.start)) inner = span;
  }
  return inner?.category ?? null;
}

/** The parts by characters: the server counts the bytes of UTF-8. A span that fits no characters is left out. */
function characterSpans(command: string, parts: readonly PartAssessment[]): Span[] {
  const wanted = new Set(parts.flatMap((part) => [part.start, part.end]));
  const indexes = new Map<number, number>();
  let byte = 0;
  let index = 0;
  for (const character of command) {
    if (wanted.has(byte)) indexes.set(byte, index);
    byte += utf8Length(character);
    index += character.length;
  }
  indexes.set(byte, index);
  return parts.flatMap((part) => {
    const [start, end] = [indexes.get(part.start), indexes.get(part.end)];
    return start !== undefined && end !== undefined && start < end ? [{ start, end, category: part.category }] : [];
  });
}

function utf8Length(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  return code < 0x10000 ? 3 : 4;
}

function escapedPieces(text: string, category: Category | null): Piece[] {
  if (escapeInvisible(text) === text) return text === "" ? [] : [{ text, category, isEscaped: false }];
  const found: Piece[] = [];
  for (const character of text) {
    const shown = escapeInvisible(character);
    const isEscaped = shown !== character;
    const last = found.at(-1);
    if (last !== undefined && last.isEscaped === isEscaped) last.text += shown;
    else found.push({ text: shown, category, isEscaped });
  }
  return found;
}
