// Draws the cells of a screen as text in the document, only the rows that are seen, and of these
// only what has changed. Being text, it can be selected, searched and read out.

import type { IBufferCell, IBufferLine } from "@xterm/xterm";
import { escapeInvisible } from "../fold";
import { BACKGROUND, css, FOREGROUND, indexedColour, readable } from "./colours";
import type { Rgb } from "./colours";
import type { TerminalScreen } from "./screen";

/** Cells that look alike, one after the other. */
export interface Run {
  text: string;
  classes: string;
  colour: string;
  background: string;
}

export interface Labels {
  stdout: string;
  stderr: string;
}

export class ScreenPainter {
  private rows: { element: HTMLElement; drawn: string }[] = [];

  constructor(
    private readonly screen: TerminalScreen,
    private readonly container: HTMLElement,
    /** The words in the margin; none on a screen that a program draws on. */
    private readonly labels: Labels | null,
  ) {}

  /** How many rows there are to scroll through. Those below the last written one are only empty
      room, unless a program may still draw on them. */
  rowCount(isRunning: boolean): number {
    const buffer = this.screen.terminal.buffer.active;
    if (!this.screen.isInteractive) return buffer.baseY + lastRow(this.screen) + 1;
    let count = buffer.length;
    while (!isRunning && count > 1 && buffer.getLine(count - 1)?.translateToString(true) === "") count -= 1;
    return count;
  }

  /** Draws the rows from one up to another. */
  paint(from: number, to: number, withCursor: boolean): void {
    const buffer = this.screen.terminal.buffer.active;
    const cursorRow = withCursor && this.screen.isCursorShown ? buffer.baseY + buffer.cursorY : -1;
    this.ensureRows(to - from);
    for (let row = from; row < to; row += 1) {
      const line = buffer.getLine(row);
      const runs = line === undefined ? [] : lineRuns(line, this.screen.terminal.cols, row === cursorRow ? buffer.cursorX : -1);
      this.paintRow(row - from, runs, this.labelOf(row, line));
    }
  }

  private labelOf(row: number, line: IBufferLine | undefined): string {
    if (this.labels === null || line === undefined) return "";
    return line.isWrapped ? " " : this.labels[this.screen.streamAt(row)];
  }

  private ensureRows(count: number): void {
    while (this.rows.length < count) {
      const element = document.createElement("div");
      element.className = "terminal-row";
      this.container.append(element);
      this.rows.push({ element, drawn: "" });
    }
    for (const row of this.rows.splice(count)) row.element.remove();
  }

  private paintRow(place: number, runs: Run[], label: string): void {
    const row = this.rows[place];
    const drawn = `${label}\n${runs.map((run) => `${run.classes};${run.colour};${run.background};${run.text}`).join("\n")}`;
    if (row === undefined || row.drawn === drawn) return;
    row.drawn = drawn;
    const spans = runs.map(spanOf);
    if (this.labels !== null) spans.unshift(labelSpan(label, label === this.labels.stderr));
    row.element.replaceChildren(...spans);
  }
}

function spanOf(run: Run): HTMLElement | Text {
  if (run.classes === "" && run.colour === "" && run.background === "") return document.createTextNode(run.text);
  const span = document.createElement("span");
  if (run.classes !== "") span.className = run.classes;
  // Set one by one, which the page's policy allows, unlike a style attribute.
  if (run.colour !== "") span.style.color = run.colour;
  if (run.background !== "") span.style.backgroundColor = run.background;
  span.textContent = run.text;
  return span;
}

function labelSpan(label: string, isError: boolean): HTMLElement {
  const span = document.createElement("span");
  span.className = isError ? "margin err" : "margin";
  span.textContent = label;
  return span;
}

/** The last row of the screen with something on it. */
function lastRow(screen: TerminalScreen): number {
  const { active } = screen.terminal.buffer;
  let row = Math.min(active.cursorY, screen.terminal.rows - 1);
  if (active.cursorX === 0 && row > 0) row -= 1;
  return row;
}

/** Characters that fonts for terminals draw in exactly one column. */
function isPlain(symbol: string): boolean {
  const code = symbol.charCodeAt(0);
  return symbol.length === 1 && (code < 0x250 || (code >= 0x2500 && code < 0x25a0));
}

/** The cells of a line, joined where they look alike. */
export function lineRuns(line: IBufferLine, columns: number, cursorColumn: number): Run[] {
  const runs: Run[] = [];
  let cell: IBufferCell | undefined;
  let isRunPlain = false;
  for (let column = 0; column < columns; column += 1) {
    cell = line.getCell(column, cell);
    if (cell === undefined) break;
    const width = cell.getWidth();
    // The second half of a wide character.
    if (width === 0) continue;
    const symbol = visible(cell.getChars());
    const plain = isPlain(symbol) && width === 1;
    const run = styled(cell, symbol, { plain, width, hasCursor: column === cursorColumn });
    const last = runs.at(-1);
    if (last !== undefined && plain && isRunPlain && sameLook(last, run)) last.text += symbol;
    else runs.push(run);
    isRunPlain = plain;
  }
  return trimmed(runs);
}

/** A cell's text, or a sign that something is there which an eye would not see. */
function visible(characters: string): string {
  if (characters === "") return " ";
  if (characters.length === 1 && characters >= " " && characters <= "~") return characters;
  // These only choose between drawings of the same character.
  const symbol = characters.replace(/[\ufe00-\ufe0f\u200d]/g, "");
  return symbol === "" || escapeInvisible(symbol) !== symbol ? "\ufffd" : symbol;
}

function styled(cell: IBufferCell, text: string, look: { plain: boolean; width: number; hasCursor: boolean }): Run {
  const classes: string[] = [];
  if (!look.plain) classes.push(look.width === 2 ? "wide" : "narrow");
  if (cell.isBold() !== 0) classes.push("bold");
  if (cell.isItalic() !== 0) classes.push("italic");
  if (cell.isUnderline() !== 0) classes.push("underline");
  if (cell.isStrikethrough() !== 0) classes.push("strike");
  if (look.hasCursor) classes.push("cursor");
  return { text, classes: classes.join(" "), ...colours(cell) };
}

function colours(cell: IBufferCell): { colour: string; background: string } {
  const isReversed = cell.isInverse() !== 0;
  if (cell.isFgDefault() && cell.isBgDefault() && !isReversed) return { colour: "", background: "" };
  const own = cell.isFgDefault() ? FOREGROUND : rgb(cell.isFgRGB(), brightened(cell));
  const behind = cell.isBgDefault() ? BACKGROUND : rgb(cell.isBgRGB(), cell.getBgColor());
  const [front, back] = isReversed ? [behind, own] : [own, behind];
  return { colour: css(readable(front, back)), background: back === BACKGROUND ? "" : css(back) };
}

/** Bold text in one of the first eight colours is bright, as programs expect. */
function brightened(cell: IBufferCell): number {
  const colour = cell.getFgColor();
  return cell.isFgPalette() && cell.isBold() !== 0 && colour < 8 ? colour + 8 : colour;
}

function rgb(isRgb: boolean, colour: number): Rgb {
  return isRgb ? [(colour >> 16) & 255, (colour >> 8) & 255, colour & 255] : indexedColour(colour);
}

function sameLook(one: Run, other: Run): boolean {
  return one.classes === other.classes && one.colour === other.colour && one.background === other.background;
}

/** Without the empty cells at the end. */
function trimmed(runs: Run[]): Run[] {
  const last = runs.at(-1);
  if (last !== undefined && last.classes === "" && last.background === "") {
    last.text = last.text.trimEnd();
    if (last.text === "") runs.pop();
  }
  return runs;
}
