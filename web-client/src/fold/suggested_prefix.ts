// The prefix that an allow rule for commands like this one could use.

import type { Assessment } from "@protocol";
import type { CheckedAction } from "./action";

/** Words in a suggested prefix: a command, its subcommand and that one's object. */
const MAX_PREFIX_WORDS = 3;

const MAX_WORD_LENGTH = 64;

/** A line that a shell passes on unchanged, but for the blanks between its words. */
const UNQUOTED = /^[A-Za-z0-9 _.+/:,@%-]*$/;
const BARE_NAME = /^[A-Za-z0-9_.+-]+$/;
const SUBCOMMAND = /^[A-Za-z][A-Za-z0-9_:-]*$/;

/**
 * A prefix that an allow rule could use: a bare command name and the subcommands after it. Empty if
 * no rule could ever cover the command, or if splitting it into words takes a shell.
 */
export function suggestedPrefix(action: CheckedAction, assessment: Assessment | undefined): string[] {
  const isPlainWrite = assessment?.category === "write" && assessment.runs_given_code !== true;
  if (!isPlainWrite || Object.keys(action.env).length > 0 || action.mode === "pty") return [];
  const [command, ...rest] = wordsOf(action).filter((word) => word !== "");
  if (command === undefined || !isShort(command) || !BARE_NAME.test(command)) return [];
  const end = rest.findIndex((word) => !isShort(word) || !SUBCOMMAND.test(word));
  return [command, ...(end === -1 ? rest : rest.slice(0, end))].slice(0, MAX_PREFIX_WORDS);
}

function isShort(word: string): boolean {
  return word.length <= MAX_WORD_LENGTH;
}

function wordsOf({ command }: CheckedAction): string[] {
  switch (command.form) {
    case "shell":
      return UNQUOTED.test(command.line) ? command.line.split(" ") : [];
    case "argv":
      return [command.command, ...command.args];
    case "login_shell":
    case "tool":
      return [];
  }
}
