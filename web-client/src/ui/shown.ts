// A command as people read it, where only the action is at hand and not the whole card.

import type { Action } from "@protocol";
import { actionHeadline, escapeInvisible } from "../fold";

/** The whole command, or the line by which people recognise a tool call, with what an eye would not see written out. */
export function shownCommand(action: Action): string {
  return escapeInvisible(actionHeadline(action));
}

/** Characters of a line that is read out or shown for a moment. */
const MAX_LINE = 160;

/** The beginning of a command, for where it is told in passing and not decided. */
export function shownLine(action: Action): string {
  const shown = shownCommand(action);
  const line = [...(shown.split("\n")[0] ?? "")].slice(0, MAX_LINE).join("");
  return line.length < shown.length ? `${line}…` : line;
}
