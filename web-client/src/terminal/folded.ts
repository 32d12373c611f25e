// The lines of a command's output that the stream shows: the first and the last ones. The whole
// output is read by reference.

import type { OutputStream } from "@protocol";
import type { OutputChunk, OutputData } from "../fold";
import { ansiLines, safeStart } from "./ansi";
import type { AnsiLine } from "./ansi";

export type FoldedLine =
  | { kind: "line"; stream: OutputStream; line: AnsiLine }
  /** Bytes of this stream that never arrived. */
  | { kind: "missing"; stream: OutputStream; bytes: number }
  /** Lines between the first and the last ones. */
  | { kind: "folded" };

export const HEAD_LINES = 6;
export const TAIL_LINES = 14;
const MAX_UNFOLDED_LINES = HEAD_LINES + TAIL_LINES;
/** Characters looked at from either end of a chunk; so few lines never need more. */
const MAX_SCANNED = 16 * 1024;

export function foldedLines(output: OutputData): FoldedLine[] {
  const { lines, isWhole } = headLines(output);
  if (isWhole && lines.length <= MAX_UNFOLDED_LINES) return lines;
  // Between the two parts, something may be missing that nobody kept.
  const before = output.dropped_bytes > 0 ? [] : output.head;
  return [...lines.slice(0, HEAD_LINES), { kind: "folded" }, ...endLines(before, keptEnd(output), TAIL_LINES)];
}

/** The last lines, read from the end, so that it costs the same however long the output is. */
export function lastLines(output: OutputData, count: number): FoldedLine[] {
  return endLines(output.head, keptEnd(output), count);
}

function endLines(head: readonly OutputChunk[], tail: readonly OutputChunk[], count: number): FoldedLine[] {
  const parts: FoldedLine[][] = [];
  let lines = 0;
  for (const chunk of [...head, ...tail].reverse()) {
    const part = chunkLines(chunk, textEnd(chunk.text, count - lines));
    parts.unshift(part);
    lines += part.length;
    if (lines >= count) break;
  }
  return parts.flat().slice(-count);
}

function headLines(output: OutputData): { lines: FoldedLine[]; isWhole: boolean } {
  const lines: FoldedLine[] = [];
  for (const chunks of output.dropped_bytes > 0 ? [output.head] : [output.head, output.tail]) {
    for (const chunk of chunks) {
      const text = textStart(chunk.text, MAX_UNFOLDED_LINES + 1 - lines.length);
      lines.push(...chunkLines(chunk, text));
      if (lines.length > MAX_UNFOLDED_LINES || text.length < chunk.text.length) return { lines, isWhole: false };
    }
  }
  return { lines, isWhole: output.dropped_bytes === 0 };
}

/** The end of the output. If something before it was dropped, it begins anywhere. */
function keptEnd({ tail, dropped_bytes }: OutputData): readonly OutputChunk[] {
  const [first, ...rest] = tail;
  return dropped_bytes === 0 || first === undefined ? tail : [{ ...first, text: fromSafePlace(first.text) }, ...rest];
}

function chunkLines(chunk: OutputChunk, text: string): FoldedLine[] {
  const { stream } = chunk;
  const lines: FoldedLine[] = ansiLines(text).map((line) => ({ kind: "line", stream, line }));
  if (chunk.missing > 0) lines.unshift({ kind: "missing", stream, bytes: chunk.missing });
  return lines;
}

/** The beginning of a text: so many lines, and not much more than is ever shown. */
function textStart(text: string, lines: number): string {
  let end = -1;
  for (let count = 0; count < lines; count += 1) {
    const next = text.indexOf("\n", end + 1);
    if (next === -1) return text.slice(0, MAX_SCANNED);
    end = next;
  }
  return text.slice(0, Math.min(end + 1, MAX_SCANNED));
}

/** A text whose beginning is missing, without what may be the rest of a line or of an escape sequence. */
function fromSafePlace(text: string): string {
  const start = text.search(/\n|\u001b/);
  return start === -1 ? text : text.slice(text[start] === "\n" ? start + 1 : start);
}

function textEnd(text: string, lines: number): string {
  let start = text.endsWith("\n") ? text.length - 1 : text.length;
  for (let count = 0; count < lines && start > 0; count += 1) start = text.lastIndexOf("\n", start - 1);
  return text.slice(safeStart(text, Math.max(start + 1, text.length - MAX_SCANNED, 0)));
}
