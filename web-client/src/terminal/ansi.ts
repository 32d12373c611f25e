// A command's output as lines of coloured text, for output that nobody types into. Colours are
// kept, carriage returns write over the line as they do in a terminal, and every other escape
// sequence is dropped, so that no output can do anything but be read.

import { escapeInvisible } from "../fold";
import type { Colour } from "./colours";

export interface Style {
  colour: Colour;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strike: boolean;
  reverse: boolean;
}

export interface Span {
  text: string;
  style: Style;
}

export type AnsiLine = Span[];

/** Longer lines are cut; the whole output can be downloaded. */
export const MAX_LINE_CHARACTERS = 4096;
const TAB_COLUMNS = 8;

export const PLAIN: Style = { colour: null, bold: false, dim: false, italic: false, underline: false, strike: false, reverse: false };

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/;

/** The lines of a text. Its last line counts only if there is something in it. */
export function ansiLines(text: string): AnsiLine[] {
  // Most output has neither colours nor controls.
  if (!CONTROL.test(text)) return plainLines(text);
  const writer = new LineWriter();
  const source = new Source(text);
  while (!source.isAtEnd) readNext(source, writer);
  return writer.finish(text.endsWith("\n"));
}

function plainLines(text: string): AnsiLine[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => [{ text: escapeInvisible(cutLine(expandTabs(line))), style: PLAIN }]);
}

function cutLine(line: string): string {
  if (line.length <= MAX_LINE_CHARACTERS) return line;
  return `${[...line.slice(0, 2 * MAX_LINE_CHARACTERS)].slice(0, MAX_LINE_CHARACTERS).join("")}…`;
}

function expandTabs(line: string): string {
  if (!line.includes("\t")) return line;
  let expanded = "";
  for (const piece of line.split(/(\t)/)) {
    expanded += piece === "\t" ? " ".repeat(TAB_COLUMNS - (expanded.length % TAB_COLUMNS)) : piece;
    if (expanded.length > 2 * MAX_LINE_CHARACTERS) break;
  }
  return expanded;
}

class Source {
  constructor(
    private readonly text: string,
    private at = 0,
  ) {}

  get position(): number {
    return this.at;
  }

  get isAtEnd(): boolean {
    return this.at >= this.text.length;
  }

  /** The next character, whole even if it takes two units. */
  next(): string {
    const code = this.text.codePointAt(this.at) ?? 0;
    const character = String.fromCodePoint(code);
    this.at += character.length;
    return character;
  }

  /** Takes what a sticky pattern matches here. */
  take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found !== null) this.at += found[0].length;
    return found;
  }
}

const TEXT = /[^\u0000-\u001f\u007f-\u009f]+/y;
/** Parameters, intermediates and the final byte of a control sequence. */
const CONTROL_SEQUENCE = /\[([0-9:;<=>?]{0,256})([ -/]{0,16})([@-~])/y;
/** Operating system commands, device control strings and the like. One that never ends must not
    hide what follows, so it is given up after a line or so many characters. */
const STRING_SEQUENCE = /[\]PX^_][^\u0007\u001b\u009c\n]{0,4096}(?:\u0007|\u001b\\|\u009c)?/y;
const OTHER_SEQUENCE = /[ -/]{0,16}[0-~]/y;
/** Characters that one of these has at most. */
const LONGEST_SEQUENCE = 4100;

function readNext(source: Source, writer: LineWriter): void {
  const run = source.take(TEXT);
  if (run !== null) return writer.write(run[0]);
  const character = source.next();
  if (character === "\u001b") return readEscape(source, writer);
  writer.control(character);
}

function readEscape(source: Source, writer: LineWriter): void {
  const sequence = source.take(CONTROL_SEQUENCE);
  if (sequence !== null) {
    const [, parameters = "", intermediates = "", final = ""] = sequence;
    if (intermediates === "" && /^[0-9:;]*$/.test(parameters)) writer.sequence(final, parameters);
    return;
  }
  if (source.take(STRING_SEQUENCE) === null && source.take(OTHER_SEQUENCE) === null) writer.write("\u001b");
}

/** The position from which on a text can be read: behind the sequence that it would begin inside of. */
export function safeStart(text: string, from: number): number {
  if (from <= 0 || from >= text.length) return from;
  // Sequences are shorter than this.
  const escape = text.lastIndexOf("\u001b", from - 1);
  if (escape === -1 || from - escape > LONGEST_SEQUENCE) return from;
  const source = new Source(text, escape + 1);
  if (source.take(CONTROL_SEQUENCE) === null && source.take(STRING_SEQUENCE) === null) source.take(OTHER_SEQUENCE);
  return Math.max(from, source.position);
}

interface Cell {
  symbol: string;
  style: Style;
}

class LineWriter {
  private readonly lines: AnsiLine[] = [];
  private cells: Cell[] = [];
  private column = 0;
  private isCut = false;
  private style = PLAIN;

  write(text: string): void {
    for (const symbol of text) this.put(symbol);
  }

  control(character: string): void {
    switch (character) {
      case "\n":
        return this.endLine();
      case "\r":
        this.column = 0;
        return;
      case "\b":
        this.column = Math.max(0, this.column - 1);
        return;
      case "\t":
        for (let spaces = TAB_COLUMNS - (this.column % TAB_COLUMNS); spaces > 0; spaces -= 1) this.put(" ");
        return;
      default:
        this.put(character);
    }
  }

  sequence(final: string, parameters: string): void {
    if (final === "m") this.style = styleAfter(this.style, parameters);
    else if (final === "K") this.erase(parameters);
  }

  finish(isEnded: boolean): AnsiLine[] {
    if (!isEnded || this.cells.length > 0) this.endLine();
    return this.lines;
  }

  private put(symbol: string): void {
    if (this.column >= MAX_LINE_CHARACTERS) {
      this.isCut = true;
      return;
    }
    while (this.cells.length < this.column) this.cells.push({ symbol: " ", style: PLAIN });
    this.cells[this.column] = { symbol, style: this.style };
    this.column += 1;
  }

  /** Erases a part of the line, as progress bars do. */
  private erase(what: string): void {
    if (what === "" || what === "0") this.cells.length = Math.min(this.cells.length, this.column);
    else if (what === "1") for (let column = 0; column <= this.column && column < this.cells.length; column += 1) this.cells[column] = { symbol: " ", style: PLAIN };
    else if (what === "2") this.cells = [];
  }

  private endLine(): void {
    const spans: Span[] = [];
    for (const { symbol, style } of this.cells) {
      const last = spans.at(-1);
      if (last !== undefined && last.style === style) last.text += symbol;
      else spans.push({ text: symbol, style });
    }
    for (const span of spans) span.text = escapeInvisible(span.text);
    if (this.isCut) spans.push({ text: "…", style: PLAIN });
    this.lines.push(spans);
    this.cells = [];
    this.column = 0;
    this.isCut = false;
  }
}

function styleAfter(style: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((word) => (word === "" ? 0 : Number.parseInt(word, 10)));
  let next = style;
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = extendedColour(codes, at + 1);
      at += used;
      // Backgrounds are ignored, so that no text can hide in its own colour.
      if (code === 38 && colour !== null) next = { ...next, colour };
    } else next = afterCode(next, code);
  }
  return next;
}

function afterCode(style: Style, code: number): Style {
  if (code >= 30 && code <= 37) return { ...style, colour: code - 30 };
  if (code >= 90 && code <= 97) return { ...style, colour: code - 90 + 8 };
  switch (code) {
    case 0:
      return PLAIN;
    case 1:
      return { ...style, bold: true };
    case 2:
      return { ...style, dim: true };
    case 3:
      return { ...style, italic: true };
    case 4:
      return { ...style, underline: true };
    case 7:
      return { ...style, reverse: true };
    case 9:
      return { ...style, strike: true };
    case 22:
      return { ...style, bold: false, dim: false };
    case 23:
      return { ...style, italic: false };
    case 24:
      return { ...style, underline: false };
    case 27:
      return { ...style, reverse: false };
    case 29:
      return { ...style, strike: false };
    case 39:
      return { ...style, colour: null };
    default:
      return style;
  }
}

/** The colour of `38;5;n` or `38;2;r;g;b`, and how many codes it took. */
function extendedColour(codes: number[], at: number): [Colour, number] {
  const byte = (place: number) => Math.min(255, Math.max(0, codes[place] ?? 0));
  if (codes[at] === 5) return [byte(at + 1), 2];
  if (codes[at] === 2) return [[byte(at + 1), byte(at + 2), byte(at + 3)], 4];
  return [null, 1];
}
