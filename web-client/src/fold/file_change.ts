// The change of a file that a tool call makes, as far as its arguments tell it.
//
// An argument means something here only if the tool is named like one that takes it, and if no
// second argument could mean the same: otherwise people would read one text, and the tool might use
// another.

import type { BoundFile, FileContent } from "@protocol";
import { hasContent } from "./action";
import { compare } from "./diff";
import type { LineDiff } from "./diff";
import { MAX_PATH_BYTES } from "./headline";
import { isObject } from "./json";
import type { JsonObject } from "./json";
import { noteText } from "./notes";
import { byteLength, countInvisible, escapeInvisible, trim, truncateLine } from "./text";
import type { TextBudget } from "./text";
import type { ChangeBasis, DiffHunk, FileChangeView } from "./types";

const PATH_KEYS = ["path", "file_path", "filename", "file"];
const CONTENT_KEYS = ["content", "contents", "text", "new_content", "file_text"];
const OLD_KEYS = ["old_text", "old_string", "oldText", "old_str"];
const NEW_KEYS = ["new_text", "new_string", "newText", "new_str"];

/** Words in the names of tools that write a file as a whole. */
const WRITE_WORDS = ["write", "create", "save", "overwrite"];

/** Words in the names of tools that replace parts of a file. */
const EDIT_WORDS = ["edit", "multiedit", "replace", "update", "modify"];

/** Words in the names of tools that keep what is in a file, or do something else with the text. */
const OTHER_WORDS = ["append", "prepend", "insert", "delete", "move", "rename"];

/** Arguments that may say that a file keeps its content. */
const ADDING_KEYS = ["append", "mode", "insert_line", "offset", "position"];

/** A change, and the arguments that it shows completely. */
export interface FoundChange {
  change: FileChangeView;
  shownKeys: string[];
  /** The path verbatim. */
  rawPath: string;
}

/** The change that a call makes; null if its arguments do not tell. */
export function findChange(
  tool: string,
  args: JsonObject,
  files: BoundFile[],
  contents: FileContent[],
  budget: TextBudget,
): FoundChange | null {
  const words = nameWords(tool);
  const has = (known: string[]) => words.some((word) => known.includes(word));
  if (has(OTHER_WORDS)) return null;
  const finder = new ChangeFinder(args, files, contents, budget);
  if (has(["notebook"]) && has(EDIT_WORDS)) return finder.notebookCell();
  if (has(EDIT_WORDS)) return finder.edits() ?? finder.edit();
  return has(WRITE_WORDS) ? finder.write() : null;
}

/** The words of a tool's name, in lower case: `NotebookEdit` and `notebook_edit` have the same. */
function nameWords(tool: string): string[] {
  const words = [""];
  let afterLower = false;
  for (const character of Array.from(tool.slice(0, 400)).slice(0, 200)) {
    const isWordCharacter = /[\p{Alphabetic}\p{N}]/u.test(character);
    if (!isWordCharacter || (/\p{Uppercase}/u.test(character) && afterLower)) words.push("");
    afterLower = /\p{Lowercase}/u.test(character);
    if (isWordCharacter) words[words.length - 1] += character.toLowerCase();
  }
  return words.filter((word) => word !== "");
}

interface NamedText {
  key: string;
  text: string;
}

/** The only one of these arguments that is given, if it is a text. */
function onlyText(args: JsonObject, keys: string[]): NamedText | null {
  const [key, ...others] = keys.filter((name) => Object.hasOwn(args, name));
  if (key === undefined || others.length > 0) return null;
  const text = args[key];
  return typeof text === "string" ? { key, text } : null;
}

/** What is known of a file before the call. */
type OldContent = { basis: "present_content"; text: string } | { basis: "new_file" | "unknown"; text: "" };

class ChangeFinder {
  constructor(
    private readonly args: JsonObject,
    private readonly files: BoundFile[],
    private readonly contents: FileContent[],
    private readonly budget: TextBudget,
  ) {}

  /** A file written as a whole. */
  write(): FoundChange | null {
    const path = onlyText(this.args, PATH_KEYS);
    const content = onlyText(this.args, CONTENT_KEYS);
    if (path === null || content === null || this.addsToFile()) return null;
    const old = this.oldContent(path.text);
    const diff = compare(old.text, content.text, "whole file", this.budget);
    return this.found(path, old.basis, diff, [content.key], unchangedNote(diff));
  }

  /** Whether an argument says that the file keeps its content. */
  private addsToFile(): boolean {
    return ADDING_KEYS.some((key) => {
      const value = this.args[key];
      if (typeof value === "string") return value === "a" || value.toLowerCase().includes("append");
      return value === true || (typeof value === "object" && value !== null) || typeof value === "number";
    });
  }

  /** One text replaced by another. */
  edit(): FoundChange | null {
    const path = onlyText(this.args, PATH_KEYS);
    const old = onlyText(this.args, OLD_KEYS);
    const replacement = onlyText(this.args, NEW_KEYS);
    if (path === null || old === null || replacement === null || old.text === replacement.text) return null;
    const diff = compare(old.text, replacement.text, "fragment", this.budget);
    const { note, line } = this.replacedText(path.text, old.text);
    const hunks = diff.hunks.map((hunk) => placed(hunk, line));
    return this.found(path, "replaced_text", { ...diff, hunks }, [old.key, replacement.key], note);
  }

  /** A list of texts, each replaced by another, one after the other. */
  edits(): FoundChange | null {
    const path = onlyText(this.args, PATH_KEYS);
    const list = this.args.edits;
    if (path === null || !Array.isArray(list)) return null;
    const edits = list.map(replacementOf);
    const all: LineDiff = { hunks: [], added: 0, removed: 0, unchanged: 0 };
    if (edits.includes(null)) return null;
    edits.forEach((edit, index) => {
      if (edit === null) return;
      const diff = compare(edit.old, edit.new, "fragment", this.budget);
      const title = noteText({ kind: "edit", number: index + 1, total: edits.length, isEvery: edit.every });
      all.hunks.push(...diff.hunks.map((hunk) => ({ ...placed(hunk, null), title })));
      all.added += diff.added;
      all.removed += diff.removed;
    });
    return this.found(path, "replaced_text", all, ["edits"], null);
  }

  /** The source of a notebook's cell. */
  notebookCell(): FoundChange | null {
    const path = onlyText(this.args, ["notebook_path", ...PATH_KEYS]);
    const source = onlyText(this.args, ["new_source"]);
    if (path === null || source === null || this.args.edit_mode === "delete") return null;
    const diff = compare("", source.text, "fragment", this.budget);
    return this.found(path, "notebook_cell", diff, [source.key], null);
  }

  private found(
    path: NamedText,
    basis: ChangeBasis,
    diff: LineDiff,
    shownKeys: string[],
    note: string | null,
  ): FoundChange {
    // A path that the headline has no room for is listed with the other arguments.
    const isOneLine = !/[\n\t]/.test(path.text) && trim(path.text) === path.text;
    if (isOneLine && byteLength(path.text) <= MAX_PATH_BYTES) {
      shownKeys.push(path.key);
      this.budget.hidden += countInvisible(path.text);
    }
    const rawPath = truncateLine(path.text);
    const { added, removed, hunks } = diff;
    const notes = note === null ? undefined : [note];
    return { change: { path: escapeInvisible(rawPath), basis, added, removed, hunks, notes }, shownKeys, rawPath };
  }

  /** The content that the call binds for this path; unknown if it binds none, or more than one. */
  private oldContent(path: string): OldContent {
    const [file, ...others] = this.files.filter((bound) => plainPath(bound.path) === plainPath(path));
    if (file === undefined || others.length > 0) return { basis: "unknown", text: "" };
    if (file.sha256 === undefined) return { basis: "new_file", text: "" };
    const content = this.contents.find((candidate) => hasContent(file, candidate));
    return content ? { basis: "present_content", text: content.text } : { basis: "unknown", text: "" };
  }

  /** What is known about the text to replace, and the number of its first line. */
  private replacedText(path: string, old: string): { note: string | null; line: number | null } {
    const present = this.oldContent(path);
    if (present.basis === "new_file") return { note: noteText({ kind: "no_such_file" }), line: null };
    if (present.basis === "unknown" || old === "") return { note: null, line: null };
    const [before = "", ...others] = present.text.split(old);
    if (others.length === 0) return { note: noteText({ kind: "not_found" }), line: null };
    if (others.length === 1) return { note: null, line: before.split("\n").length };
    return { note: noteText({ kind: "found_times", count: others.length }), line: null };
  }
}

/** Says how many lines of a file stay and are not shown; null if all are shown. */
function unchangedNote(diff: LineDiff): string | null {
  const lines = diff.hunks.flatMap((hunk) => hunk.lines);
  const leftOut = diff.unchanged - lines.filter((line) => line.kind === "context").length;
  return leftOut > 0 ? noteText({ kind: "unchanged", count: leftOut }) : null;
}

/** A part of a file at its place in the file, if that is known. */
function placed(hunk: DiffHunk, line: number | null): DiffHunk {
  const place = (start: number | null) => (start === null || line === null ? null : start + line - 1);
  return { ...hunk, old_start: place(hunk.old_start), new_start: place(hunk.new_start) };
}

function plainPath(path: string): string {
  return path.startsWith("./") ? path.slice(2) : path;
}

/** An edit that consists of nothing but an old text, another new one, and whether it is for all. */
function replacementOf(edit: unknown): { old: string; new: string; every: boolean } | null {
  if (!isObject(edit)) return null;
  const old = onlyText(edit, OLD_KEYS);
  const replacement = onlyText(edit, NEW_KEYS);
  const hasEvery = Object.hasOwn(edit, "replace_all");
  if (old === null || replacement === null || (hasEvery && typeof edit.replace_all !== "boolean")) return null;
  const known = 2 + (hasEvery ? 1 : 0);
  if (Object.keys(edit).length !== known || old.text === replacement.text) return null;
  return { old: old.text, new: replacement.text, every: edit.replace_all === true };
}
