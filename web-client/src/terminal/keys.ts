// What a terminal sends for a key. Only these functions make input for a command, from what a
// person pressed or pasted: what a program asks the terminal about itself is never answered.

export interface KeyPress {
  key: string;
  ctrlKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
  metaKey: boolean;
}

export interface KeyModes {
  /** Arrow keys are sent in the form that full-screen programs ask for. */
  applicationCursor: boolean;
  bracketedPaste: boolean;
}

const ESC = "\u001b";

/** Cursor keys, by the letter that ends their sequence. */
const CURSOR: { [key: string]: string } = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

/** Keys whose sequence ends with a tilde, by their number. */
const NUMBERED: { [key: string]: number } = {
  Insert: 2,
  Delete: 3,
  PageUp: 5,
  PageDown: 6,
  F5: 15,
  F6: 17,
  F7: 18,
  F8: 19,
  F9: 20,
  F10: 21,
  F11: 23,
  F12: 24,
};

const FUNCTION: { [key: string]: string } = { F1: "P", F2: "Q", F3: "R", F4: "S" };

/** Leaves the terminal, so that nobody is caught in it without a mouse. */
export function isLeaveKey(press: KeyPress): boolean {
  return press.ctrlKey && press.shiftKey && (press.key === "Escape" || press.key === "Enter");
}

/** The characters for a key; null if the key types a character or means nothing to a terminal. */
export function encodeKey(press: KeyPress, modes: KeyModes): string | null {
  // Shortcuts of the browser and of the system stay theirs.
  if (press.metaKey) return null;
  return namedKey(press, modes) ?? characterKey(press);
}

function namedKey(press: KeyPress, modes: KeyModes): string | null {
  const { key } = press;
  const modifiers = modifierNumber(press);
  const letter = CURSOR[key];
  if (letter !== undefined) {
    if (modifiers > 1) return `${ESC}[1;${modifiers}${letter}`;
    return `${ESC}${modes.applicationCursor ? "O" : "["}${letter}`;
  }
  const number = NUMBERED[key];
  if (number !== undefined) return modifiers > 1 ? `${ESC}[${number};${modifiers}~` : `${ESC}[${number}~`;
  const ending = FUNCTION[key];
  if (ending !== undefined) return modifiers > 1 ? `${ESC}[1;${modifiers}${ending}` : `${ESC}O${ending}`;
  return editingKey(press);
}

function editingKey(press: KeyPress): string | null {
  const alt = press.altKey ? ESC : "";
  switch (press.key) {
    case "Enter":
      return `${alt}\r`;
    case "Tab":
      return press.shiftKey ? `${ESC}[Z` : `${alt}\t`;
    case "Backspace":
      return `${alt}${press.ctrlKey ? "\b" : "\u007f"}`;
    case "Escape":
      return `${alt}${ESC}`;
    default:
      return null;
  }
}

function characterKey(press: KeyPress): string | null {
  if ([...press.key].length !== 1) return null;
  if (press.ctrlKey && press.altKey) {
    // On many keyboards this types a third character on the key.
    return null;
  }
  if (press.ctrlKey) return controlCharacter(press.key);
  // Plain characters come as text, also from an input method or a touch keyboard.
  return press.altKey ? `${ESC}${press.key}` : null;
}

/** The control character of a key, such as 3 for `c`. */
export function controlCharacter(key: string): string | null {
  if (key === " ") return "\u0000";
  if (key === "?" || key === "8") return "\u007f";
  const code = key.toUpperCase().charCodeAt(0);
  return key.length === 1 && code >= 0x40 && code <= 0x5f ? String.fromCharCode(code - 0x40) : null;
}

function modifierNumber(press: KeyPress): number {
  return 1 + (press.shiftKey ? 1 : 0) + (press.altKey ? 2 : 0) + (press.ctrlKey ? 4 : 0);
}

/** What a pasted text sends. Without escape characters, no text can end the paste early. */
export function encodePaste(text: string, modes: KeyModes): string {
  const typed = text.replace(/\r\n|\n/g, "\r").replaceAll(ESC, "");
  return modes.bracketedPaste ? `${ESC}[200~${typed}${ESC}[201~` : typed;
}

/** A message takes at most 64 KiB, and a character at most four bytes. */
const MAX_CHARACTERS = 16 * 1024;

/** Long input in pieces that a message can carry, without splitting a character. */
export function pieces(data: string): string[] {
  if (data.length <= MAX_CHARACTERS) return [data];
  const found: string[] = [];
  for (let at = 0; at < data.length; ) {
    let end = Math.min(at + MAX_CHARACTERS, data.length);
    const last = data.charCodeAt(end - 1);
    if (end < data.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    found.push(data.slice(at, end));
    at = end;
  }
  return found;
}
