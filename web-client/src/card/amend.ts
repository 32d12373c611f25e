// What an edit sends: all arguments of the call, of which the person changed some.

import { amendArguments } from "../fold";
import type { RequestedAction } from "../fold";
import { isObject } from "../net/storage";

/** What a person edits: the command line, or the arguments of a tool call as JSON. */
export function editableText(requested: RequestedAction): string {
  if (requested.form !== "tool") return requested.command;
  return JSON.stringify(sentArguments(requested), null, 2);
}

/** Whether this browser can carry the text without changing it. */
export function canEdit(requested: RequestedAction): boolean {
  if (requested.form === "login_shell" || requested.cut_bytes > 0 || hasUneditableCharacter(requested)) return false;
  return requested.form !== "tool" || !hasInexactNumber(sentJson(requested));
}

/** Characters that a text field drops or makes into others: it knows one end of a line, the line feed. */
const UNEDITABLE = /[\r\0]|\p{Surrogate}/u;

/** Whether the text has a character that a text field would change, so that an edit changed more than was typed. */
export function hasUneditableCharacter(requested: RequestedAction): boolean {
  return UNEDITABLE.test(editableText(requested));
}

export type EditProblem = "empty" | "unchanged" | "not_json" | "not_an_object" | "inexact_number";

export type Edit = { arguments: Record<string, unknown> } | { problem: EditProblem };

/** The arguments of the edited call. */
export function editedArguments(requested: RequestedAction, text: string): Edit {
  if (text.trim() === "") return { problem: "empty" };
  if (text === editableText(requested)) return { problem: "unchanged" };
  return requested.form === "tool" ? toolArguments(text) : { arguments: amendArguments(requested, text) ?? {} };
}

function toolArguments(text: string): Edit {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return { problem: "not_json" };
  }
  if (!isObject(parsed)) return { problem: "not_an_object" };
  // Such a number would be sent as another one than the person reads.
  if (hasInexactNumber(text)) return { problem: "inexact_number" };
  return { arguments: parsed };
}

/** The arguments of a tool call, which its command line has as JSON after its name. */
function sentArguments(requested: RequestedAction): unknown {
  try {
    return JSON.parse(sentJson(requested));
  } catch {
    return {};
  }
}

function sentJson(requested: RequestedAction): string {
  return requested.command.slice((requested.tool ?? "").length + 1);
}

/** Whether JSON has a number that this browser would change by reading it. */
export function hasInexactNumber(json: string): boolean {
  const withoutTexts = json.replace(/"(?:\\.|[^"\\])*"/g, '""');
  const numbers = withoutTexts.match(/-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g) ?? [];
  return numbers.some((number) => canonical(number) !== canonical(String(Number(number))));
}

/** Digits and exponent of a number, the same however it is written. */
function canonical(number: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(number) ?? [];
  const digits = whole + fraction;
  const trimmed = digits.replace(/^0+/, "").replace(/0+$/, "");
  if (trimmed === "") return "0";
  const trailing = digits.length - digits.replace(/0+$/, "").length;
  return `${sign}${trimmed}e${Number(exponent) - fraction.length + trailing}`;
}

/** Whether a command is what was typed, and the same as before in everything else. */
export function isExactlyEdited(before: RequestedAction, after: RequestedAction, line: string): boolean {
  return after.form === "shell" && after.command === line && after.cut_bytes === 0 && surroundings(before) === surroundings(after);
}

function surroundings(requested: RequestedAction): string {
  const { cwd, env, mode, timeout_seconds, driver, secrets = [], files = [] } = requested;
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([cwd, sorted, mode, timeout_seconds, driver, secrets, files.map((file) => [file.path, file.sha256, file.bytes])]);
}
