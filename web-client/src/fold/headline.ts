// One line by which people recognise a tool call.

import { numberText } from "./arguments";
import type { FoundChange } from "./file_change";
import { sortedFields } from "./json";
import type { JsonObject } from "./json";
import { byteLength, escapeInvisible, pluralize, trim, truncate } from "./text";
import type { FileChangeView } from "./types";

/** The longest argument in a headline, in bytes. */
const MAX_WORDS_BYTES = 80;

/** The longest path in a headline, in bytes. */
export const MAX_PATH_BYTES = 200;

/** Programs whose tools are named after their commands, such as `npm_install`. */
const PROGRAMS = [
  "bun",
  "cargo",
  "docker",
  "gem",
  "git",
  "go",
  "kubectl",
  "npm",
  "npx",
  "pip",
  "pnpm",
  "poetry",
  "uv",
  "yarn",
];

/** The arguments of such tools in the order in which one would type them. */
const TYPED_ARGUMENTS = ["command", "subcommand", "script", "package", "packages", "args", "arguments"];

/** The arguments that tell most about a call, the most telling first. */
const TELLING_ARGUMENTS = [
  "command",
  "path",
  "file_path",
  "url",
  "uri",
  "query",
  "title",
  "name",
  "message",
  "key",
  "id",
];

export function headlineOf(tool: string, args: JsonObject, found: FoundChange | null): string {
  const name = toolName(tool);
  if (found !== null) return `${name} ${firstWords(found.rawPath, MAX_PATH_BYTES)} (${sizeText(found.change)})`;
  if (tool.startsWith("mcp__")) return name;
  const typed = typedWords(tool, args);
  if (typed !== null) return typed;
  const words = tellingWords(args);
  return words === null ? name : `${name} ${words}`;
}

/** The name of a tool; the name of an MCP tool says which server has it. */
function toolName(tool: string): string {
  const rest = tool.startsWith("mcp__") ? tool.slice("mcp__".length) : "";
  const at = rest.indexOf("__");
  if (at === -1) return firstWords(tool, MAX_WORDS_BYTES);
  const server = firstWords(rest.slice(0, at), MAX_WORDS_BYTES);
  return `mcp ${server} · ${firstWords(rest.slice(at + 2), MAX_WORDS_BYTES)}`;
}

function sizeText({ basis, added, removed }: FileChangeView): string {
  const lines = pluralize(added, "line");
  switch (basis) {
    case "new_file":
      return added === 0 ? "new, empty" : `new, ${lines}`;
    case "unknown":
      return added === 0 ? "empty" : lines;
    case "notebook_cell":
      return lines;
    case "present_content":
    case "replaced_text":
      return `+${added} −${removed}`;
  }
}

/** The call of a package manager and the like, as one would type it. */
function typedWords(tool: string, args: JsonObject): string | null {
  const [program = ""] = tool.split(/[_-]/, 1);
  if (!PROGRAMS.includes(program)) return null;
  const words = [firstWords(tool.replaceAll(/[_-]/g, " "), MAX_WORDS_BYTES)];
  const typed = TYPED_ARGUMENTS.map((key) => argumentWords(args[key]));
  return [...words, ...typed.filter((word) => word !== null)].join(" ");
}

function tellingWords(args: JsonObject): string | null {
  const values = [...TELLING_ARGUMENTS.map((key) => args[key]), ...sortedFields(args).map(([, value]) => value)];
  for (const value of values) {
    const words = argumentWords(value);
    if (words !== null) return words;
  }
  return null;
}

/** A text, a number, or a list of them, as words; null if it is something else or empty. */
function argumentWords(value: unknown): string | null {
  const scalar = (item: unknown) => (typeof item === "string" ? item : numberText(item));
  const items = Array.isArray(value) ? value.map(scalar) : [scalar(value)];
  if (items.includes(null)) return null;
  const words = firstWords(items.join(" "), MAX_WORDS_BYTES);
  return words === "" ? null : words;
}

/** A text in one line, not longer than so many bytes, with an ellipsis if something is missing. */
function firstWords(text: string, maxBytes: number): string {
  const trimmed = trim(text);
  const [line = ""] = trimmed.split(/\r?\n/, 1);
  const kept = truncate(line, maxBytes);
  const more = byteLength(kept) < byteLength(trimmed) ? "…" : "";
  return escapeInvisible(kept).replaceAll("\t", " ") + more;
}
