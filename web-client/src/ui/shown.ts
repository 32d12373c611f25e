// A command as people read it, where only the action is at hand and not the whole card.

import type { Action } from "@protocol";
import { escapeInvisible } from "../fold";

/** The whole command, with what an eye would not see written out. */
export function shownCommand(action: Action): string {
  return escapeInvisible(commandText(action));
}

function commandText(action: Action): string {
  const command = action.command;
  switch (command.form) {
    case "shell":
    case "login_shell":
      return command.line;
    case "argv":
      return [command.command, ...command.args].map(quoted).join(" ");
    case "tool":
      return `${command.name} ${JSON.stringify(command.arguments, null, 2)}`;
  }
}

function quoted(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
