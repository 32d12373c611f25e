// The screen of a command: xterm.js reads the output and keeps its cells, we draw them. Because
// xterm.js itself draws nothing here and nobody listens to what it would send, output cannot set a
// title, fill a clipboard, make a link, or type an answer into the command.

import type { IMarker, Terminal } from "@xterm/xterm";
import type { OutputStream, TerminalSize } from "@protocol";
import type { Output, OutputChunk } from "../fold";
import { byteLength } from "../fold/text";
import { CLEAR, OutputFilter } from "./filter";
import type { KeyModes } from "./keys";

type Library = typeof import("@xterm/xterm");

let library: Promise<Library> | null = null;

/** Loads xterm.js when the first screen is needed. */
export function loadLibrary(): Promise<Library> {
  library ??= import("@xterm/xterm").catch((error: unknown) => {
    library = null;
    throw error;
  });
  return library;
}

/** Lines above the screen that are kept; the whole output is read by reference. */
const SCROLLBACK_LINES = 2000;
/** Streams that alternate quickly make many marks; older ones are forgotten. */
const MAX_MARKS = 512;
const MOST_COLUMNS = 500;
const MOST_ROWS = 300;
/** Sequences that are repeated as often as they say, by the letter that ends them. More often than
    there are rows or columns changes nothing, and would take hours. */
const REPEATED_BY_ROWS = ["L", "M", "S", "T"];
const REPEATED_BY_COLUMNS = ["I", "Z", "b"];
/** Between pieces of this size the browser may draw, however long one takes. */
const PIECE_CHARACTERS = 2048;
/** A few characters may touch every cell, so on a larger screen pieces are smaller. */
const PIECE_CELLS = PIECE_CHARACTERS * 80 * 24;
const LEAST_PIECE_CHARACTERS = 64;
/** Output that waits to be drawn; what comes meanwhile is left out, and the end is drawn. */
const MAX_PENDING_CHARACTERS = 512 * 1024;
/** What commands get that nobody has told a size. */
export const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

interface StreamMark {
  marker: IMarker;
  stream: OutputStream;
}

export class TerminalScreen {
  readonly terminal: Terminal;
  /** Whether a program draws on it, as opposed to one that writes line after line. */
  readonly isInteractive: boolean;
  isCursorShown = true;
  /** How much of the output has been written, and how far that is in each stream. */
  private position = 0;
  private ends = { stdout: 0, stderr: 0 };
  private marks: StreamMark[] = [];
  private lastStream: OutputStream | null = null;
  private isMidLine = false;
  /** Characters that are not drawn yet. */
  private pending = 0;
  /** The output that was fed last, of which there may be more. */
  private latest: Output | null = null;
  private readonly watchers = new Set<() => void>();
  private readonly gapText: (bytes: number) => string;
  private filter: OutputFilter;

  constructor(library: Library, options: { size: TerminalSize; isInteractive: boolean; gapText(bytes: number): string }) {
    this.isInteractive = options.isInteractive;
    this.gapText = options.gapText;
    this.filter = this.freshFilter();
    const { columns, rows } = withinBounds(options.size);
    this.terminal = new library.Terminal({
      cols: columns,
      rows,
      scrollback: SCROLLBACK_LINES,
      // Without a terminal driver nobody turns a line feed into a new line.
      convertEol: !options.isInteractive,
      disableStdin: true,
      logLevel: "off",
    });
    this.watchCursor();
    this.boundRepetition();
    // A test pattern for screens, which costs as much as filling all of it.
    this.terminal.parser.registerEscHandler({ intermediates: "#", final: "8" }, () => true);
    this.terminal.onWriteParsed(() => {
      for (const watcher of this.watchers) watcher();
    });
  }

  /** Calls back when the screen has changed; returns how to stop that. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Writes what is new of the output. */
  feed(output: Output): void {
    // The output of a command that ran after a trial starts again.
    if (output.received < this.position) this.reset();
    this.latest = output;
    if (output.received === this.position || this.pending > MAX_PENDING_CHARACTERS) return;
    const { chunks } = output.since(this.position);
    this.position = output.received;
    for (const chunk of chunks) this.write(chunk);
  }

  resize(size: TerminalSize): void {
    const { columns, rows } = withinBounds(size);
    if (columns === this.terminal.cols && rows === this.terminal.rows) return;
    this.terminal.resize(columns, rows);
    for (const watcher of this.watchers) watcher();
  }

  get keyModes(): KeyModes {
    const { applicationCursorKeysMode, bracketedPasteMode } = this.terminal.modes;
    return { applicationCursor: applicationCursorKeysMode, bracketedPaste: bracketedPasteMode };
  }

  /** The stream that wrote a line of the buffer. */
  streamAt(line: number): OutputStream {
    for (let at = this.marks.length - 1; at >= 0; at -= 1) {
      const mark = this.marks[at] as StreamMark;
      if (mark.marker.line <= line) return mark.stream;
    }
    return this.marks[0]?.stream ?? "stdout";
  }

  dispose(): void {
    this.watchers.clear();
    this.latest = null;
    this.terminal.dispose();
  }

  private reset(): void {
    this.position = 0;
    this.ends = { stdout: 0, stderr: 0 };
    this.lastStream = null;
    this.isMidLine = false;
    this.filter = this.freshFilter();
    // In its turn behind what is still to be drawn.
    this.terminal.write(CLEAR, () => {
      this.marks = [];
      this.isCursorShown = true;
    });
  }

  private write({ stream, offset, text }: OutputChunk): void {
    if (!this.isInteractive && stream !== this.lastStream) this.switchTo(stream);
    const gap = offset - this.ends[stream];
    if (gap > 0) this.writeGap(gap);
    this.ends[stream] = offset + byteLength(text);
    const shown = this.filter.pass(text);
    const piece = this.pieceLength();
    for (let at = 0; at < shown.length; at += piece) this.draw(shown.slice(at, at + piece));
    this.isMidLine = !text.endsWith("\n");
  }

  private pieceLength(): number {
    const { cols, rows } = this.terminal;
    return Math.max(LEAST_PIECE_CHARACTERS, Math.min(PIECE_CHARACTERS, Math.floor(PIECE_CELLS / (cols * rows))));
  }

  /** What a program draws on a screen is read by nobody else, so it may send what it likes. */
  private freshFilter(): OutputFilter {
    return new OutputFilter(!this.isInteractive);
  }

  private draw(text: string): void {
    this.pending += text.length;
    this.terminal.write(text, () => {
      this.pending -= text.length;
      // What was left out while too much was waiting.
      if (this.pending === 0 && this.latest !== null) this.feed(this.latest);
    });
  }

  private writeGap(bytes: number): void {
    this.filter = this.freshFilter();
    // What a program drew on a screen of which a part is missing would only mislead.
    if (this.isInteractive) this.terminal.write(CLEAR);
    else {
      this.terminal.write(`${this.isMidLine ? "\n" : ""}\u001b[0;2m${this.gapText(bytes)}\u001b[0m\n`);
      this.isMidLine = false;
    }
  }

  /** Begins a line of another stream, and marks it once everything before it is on the screen. */
  private switchTo(stream: OutputStream): void {
    this.lastStream = stream;
    // What one stream has begun is not ended by the other.
    this.filter = this.freshFilter();
    this.terminal.write(this.isMidLine ? "\n" : "", () => {
      this.marks = this.marks.filter((mark) => !mark.marker.isDisposed).slice(-MAX_MARKS);
      const marker = this.terminal.registerMarker(0);
      if (marker !== undefined) this.marks.push({ marker, stream });
    });
  }

  private boundRepetition(): void {
    const bound = (finals: string[], most: () => number) => {
      for (const final of finals) this.terminal.parser.registerCsiHandler({ final }, ([times]) => typeof times === "number" && times > most());
    };
    bound(REPEATED_BY_ROWS, () => this.terminal.rows);
    bound(REPEATED_BY_COLUMNS, () => this.terminal.cols);
  }

  /** Only the parser knows whether a program hides the cursor. */
  private watchCursor(): void {
    for (const [final, isShown] of [
      ["h", true],
      ["l", false],
    ] as const) {
      this.terminal.parser.registerCsiHandler({ prefix: "?", final }, (parameters) => {
        if (parameters.includes(25)) this.isCursorShown = isShown;
        return false;
      });
    }
    this.terminal.parser.registerEscHandler({ final: "c" }, () => {
      this.isCursorShown = true;
      return false;
    });
  }
}

function withinBounds(size: TerminalSize): TerminalSize {
  const between = (value: number, most: number) => Math.max(2, Math.min(most, Math.floor(value) || 2));
  return { columns: between(size.columns, MOST_COLUMNS), rows: between(size.rows, MOST_ROWS) };
}
