// A command's output: its beginning and its end, with stdout and stderr in the order received.

import type { OutputStream } from "@protocol";
import { byteLength, detached, placeAfter, placeBefore } from "./text";
import type { OutputChunk, OutputData, StreamTotal } from "./types";

/** Bytes kept from the beginning of a command's output, where the first error tends to be. */
export const OUTPUT_HEAD_BYTES = 32 * 1024;

/** Bytes kept from its end: more than a person scrolls back to. The rest is read by reference. */
export const OUTPUT_TAIL_BYTES = 96 * 1024;

/** Chunks in either part; streams that alternate byte by byte make one chunk per byte. */
export const MAX_OUTPUT_CHUNKS = 2048;

/** The size from which on text of a chunk is kept in a piece of its own. */
const PIECE_BYTES = 4 * 1024;

/** Some text of a chunk. Adding to the end and cutting off the beginning touch one piece each. */
interface Piece extends OutputChunk {
  bytes: number;
  /** Whether a chunk begins here; otherwise the piece continues the one before. */
  startsChunk: boolean;
  /** Bytes of output that were received before this text. */
  position: number;
}

/** What was printed since some position. */
export interface OutputSince {
  chunks: OutputChunk[];
  /** Bytes directly before the chunks that were printed since then, and are not kept. */
  lost: number;
}

/** The output of a command, as much of it as is kept. */
export class Output implements OutputData {
  readonly stdout: StreamTotal = { bytes: 0, lines: 0, missing: 0, complete: false };
  readonly stderr: StreamTotal = { bytes: 0, lines: 0, missing: 0, complete: false };
  dropped_bytes = 0;
  /** Bytes of text received of both streams, including those that are not kept. */
  received = 0;
  readonly #isMidLine = { stdout: false, stderr: false };
  readonly #head = new PieceList();
  readonly #tail = new PieceList();

  /** The beginning of the output. */
  get head(): OutputChunk[] {
    return this.#head.chunks();
  }

  /** The end of the output. */
  get tail(): OutputChunk[] {
    return this.#tail.chunks();
  }

  toJSON(): OutputData {
    const { stdout, stderr, head, dropped_bytes, tail } = this;
    return { stdout, stderr, head, dropped_bytes, tail };
  }

  /**
   * What was printed after `position`, which is what `received` was at some time. A screen that draws
   * output asks with the position that it has drawn, so that nothing is drawn twice.
   */
  since(position: number): OutputSince {
    const inTail = this.#tail.after(position);
    const from = this.#tail.start ?? this.received;
    const inHead = position < from ? this.#head.after(position) : [];
    const first = inHead[0]?.position ?? inTail[0]?.position ?? this.received;
    const chunks = [...inHead, ...inTail].map(({ stream, offset, missing, text }) => ({ stream, offset, missing, text }));
    return { chunks, lost: Math.max(0, first - position) };
  }

  markComplete(stream: OutputStream): void {
    this[stream].complete = true;
  }

  /**
   * Adds text at an offset of its stream; without an offset, it continues where the stream stopped.
   * Text that was received before is dropped.
   */
  append(stream: OutputStream, givenOffset: number | undefined, text: string): void {
    const total = this[stream];
    const offset = givenOffset ?? total.bytes;
    const known = placeAfter(text, total.bytes - offset);
    if (known.index === text.length) return;
    const fresh = known.index === 0 ? text : text.slice(known.index);
    const start = offset + known.bytes;
    const missing = Math.max(0, start - total.bytes);
    const bytes = byteLength(fresh);
    total.missing = saturated(total.missing + missing);
    total.bytes = saturated(start + bytes);
    this.#countLines(stream, fresh);
    this.#push({ stream, offset: start, missing, text: fresh, bytes, startsChunk: true, position: this.received });
    this.received += bytes;
  }

  #countLines(stream: OutputStream, text: string): void {
    let ends = 0;
    for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) ends += 1;
    const isOpen = !text.endsWith("\n");
    this[stream].lines += ends + (isOpen ? 1 : 0) - (this.#isMidLine[stream] ? 1 : 0);
    this.#isMidLine[stream] = isOpen;
  }

  #push(piece: Piece): void {
    const isAtHead = this.#tail.isEmpty && this.dropped_bytes === 0 && this.#head.chunkCount < MAX_OUTPUT_CHUNKS;
    const room = isAtHead ? OUTPUT_HEAD_BYTES - this.#head.bytes : 0;
    const cut = piece.bytes <= room ? { index: piece.text.length, bytes: piece.bytes } : placeBefore(piece.text, room);
    const isWhole = cut.index === piece.text.length;
    const first = isWhole ? piece.text : detached(piece.text.slice(0, cut.index));
    if (cut.bytes > 0) this.#head.add({ ...piece, text: first, bytes: cut.bytes });
    if (isWhole) return;
    this.#tail.add(cut.bytes === 0 ? piece : rest(piece, cut.index, cut.bytes));
    this.dropped_bytes = saturated(this.dropped_bytes + this.#tail.trim());
  }
}

function saturated(number: number): number {
  return Math.min(number, Number.MAX_SAFE_INTEGER);
}

/** What remains of a piece behind so many units and bytes. */
function rest(piece: Piece, index: number, bytes: number): Piece {
  return {
    ...piece,
    text: detached(piece.text.slice(index)),
    bytes: piece.bytes - bytes,
    offset: saturated(piece.offset + bytes),
    missing: 0,
    position: piece.position + bytes,
  };
}

/** Pieces in order, and the chunks that they make. */
class PieceList {
  bytes = 0;
  chunkCount = 0;
  readonly #pieces: Piece[] = [];
  #chunks: OutputChunk[] | null = [];

  get isEmpty(): boolean {
    return this.#pieces.length === 0;
  }

  /** The position of the first text; undefined if there is none. */
  get start(): number | undefined {
    return this.#pieces[0]?.position;
  }

  /** Adds text; it continues the last chunk if that is of the same stream and nothing is missing. */
  add(piece: Piece): void {
    const last = this.#pieces.at(-1);
    const continues = last !== undefined && last.stream === piece.stream && piece.missing === 0;
    this.bytes += piece.bytes;
    this.#chunks = null;
    if (continues && last.bytes < PIECE_BYTES) {
      last.text += piece.text;
      last.bytes += piece.bytes;
      return;
    }
    this.#pieces.push({ ...piece, startsChunk: !continues });
    this.chunkCount += continues ? 0 : 1;
  }

  /** Drops the oldest text until the rest fits the limits; returns how many bytes it drops. */
  trim(): number {
    const before = this.bytes;
    while (this.bytes > OUTPUT_TAIL_BYTES || this.chunkCount > MAX_OUTPUT_CHUNKS) {
      const over = this.bytes - OUTPUT_TAIL_BYTES;
      // Too many chunks but not too many bytes: drop the oldest chunk whole.
      if (over <= 0) this.#dropChunk();
      else this.#dropBytes(over);
    }
    return before - this.bytes;
  }

  #dropChunk(): void {
    do this.#dropPiece();
    while (this.#pieces[0]?.startsChunk === false);
  }

  #dropBytes(over: number): void {
    const first = this.#pieces[0] as Piece;
    const cut = over >= first.bytes ? { index: first.text.length, bytes: first.bytes } : placeAfter(first.text, over);
    if (cut.index < first.text.length) {
      this.#pieces[0] = { ...rest(first, cut.index, cut.bytes), startsChunk: true };
      this.bytes -= cut.bytes;
      return;
    }
    this.#dropPiece();
    const next = this.#pieces[0];
    if (next === undefined || next.startsChunk) return;
    next.startsChunk = true;
    this.chunkCount += 1;
  }

  #dropPiece(): void {
    const dropped = this.#pieces.shift();
    this.bytes -= dropped?.bytes ?? 0;
    this.chunkCount -= dropped?.startsChunk === true ? 1 : 0;
  }

  /** The pieces behind a position. */
  after(position: number): Piece[] {
    const found: Piece[] = [];
    for (let at = this.#pieces.length - 1; at >= 0; at -= 1) {
      const piece = this.#pieces[at] as Piece;
      if (piece.position + piece.bytes <= position) break;
      const known = Math.max(0, position - piece.position);
      found.push(known === 0 ? piece : rest(piece, placeAfter(piece.text, known).index, known));
    }
    return found.reverse();
  }

  /** The chunks that the pieces make. They are made when they are asked for, once per change. */
  chunks(): OutputChunk[] {
    if (this.#chunks !== null) return this.#chunks;
    const chunks: OutputChunk[] = [];
    for (const { startsChunk, stream, offset, missing, text } of this.#pieces) {
      const last = chunks.at(-1);
      if (startsChunk || last === undefined) chunks.push({ stream, offset, missing, text });
      else last.text += text;
    }
    this.#chunks = chunks;
    return chunks;
  }
}
