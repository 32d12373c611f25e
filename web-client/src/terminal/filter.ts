// Takes out of a command's output what the screen has no use for and a terminal would keep: commands
// to the operating system and the terminal (titles, links, clipboards, images), however they are
// written. xterm.js keeps every link until its line scrolls out, and the text of each until it ends.

/** Starts the screen again from nothing. */
export const CLEAR = "\u001bc";

/** Ends a sequence that was begun, and draws nothing. */
const CANCEL = "\u0018";

/** A string that is not ended is given up after so many characters, or at the end of its line. */
const MAX_STRING_CHARACTERS = 4096;

/** Where text stops being only text: an escape, or a string that begins with one character. */
const BEGINS = /[\u001b\u0090\u0098\u009d-\u009f]/g;
/** What a string ends with; characters that no terminal expects in one end it too. */
const ENDS = /[\u0007\u0018\u001a\u001b\u0080-\u009f]/g;
const ENDS_OR_LINE = /[\n\u0007\u0018\u001a\u001b\u0080-\u009f]/g;

type State =
  | "text"
  /** After an escape, which is written once it is known that no string follows. */
  | "escape"
  | "string";

export class OutputFilter {
  private state: State = "text";
  /** Characters of the string so far. */
  private length = 0;

  /** With `isStrict`, nobody is kept from reading on by a string that does not end. */
  constructor(private readonly isStrict: boolean) {}

  /** The part of the output that the screen gets. What begins in one text may end in a later one. */
  pass(text: string): string {
    const kept: string[] = [];
    let at = 0;
    while (at < text.length) at = this.step(text, at, kept);
    const passed = kept.join("");
    // Nothing from before the last new beginning is left on the screen, and beginning again is slow.
    const clear = passed.lastIndexOf(CLEAR);
    return clear > 0 ? passed.slice(clear) : passed;
  }

  private step(text: string, at: number, kept: string[]): number {
    switch (this.state) {
      case "text":
        return this.readText(text, at, kept);
      case "escape":
        return this.readEscape(text, at, kept);
      case "string":
        return this.readString(text, at);
    }
  }

  private readText(text: string, at: number, kept: string[]): number {
    const end = find(BEGINS, text, at);
    if (end > at) kept.push(text.slice(at, end));
    if (end === text.length) return end;
    if (text[end] === "\u001b") this.state = "escape";
    else this.begin(kept);
    return end + 1;
  }

  private readEscape(text: string, at: number, kept: string[]): number {
    const character = text.charAt(at);
    if ("]PX^_".includes(character)) this.begin(kept);
    // Controls act within a sequence, which goes on behind them.
    else if (character < " " && !"\u0018\u001a\u001b".includes(character)) kept.push(character);
    else if (character !== "\u007f" && character !== "\u001b") {
      kept.push("\u001b");
      this.state = "text";
      // It may be the beginning of something itself.
      return at;
    }
    return at + 1;
  }

  private begin(kept: string[]): void {
    // The terminal would give up a sequence before it here.
    kept.push(CANCEL);
    this.state = "string";
    this.length = 0;
  }

  private readString(text: string, at: number): number {
    const room = this.isStrict ? at + MAX_STRING_CHARACTERS - this.length : text.length;
    const end = Math.min(find(this.isStrict ? ENDS_OR_LINE : ENDS, text, at), room);
    this.length += end - at;
    if (end === text.length) return end;
    this.state = "text";
    // These are a part of it; what else ends it is read as usual.
    return "\u0007\u0018\u001a\u009c".includes(text.charAt(end)) ? end + 1 : end;
  }
}

/** The position of the first match from a position on, or the end of the text. */
function find(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  return pattern.exec(text)?.index ?? text.length;
}
