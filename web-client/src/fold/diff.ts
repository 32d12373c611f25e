// Compares two texts line by line, in a bounded amount of work and without a clock, so that the
// same texts give the same result anywhere.

import { runsOf } from "./compact_steps";
import type { Run } from "./compact_steps";
import { steps } from "./myers";
import type { TextBudget } from "./text";
import type { DiffHunk, DiffLine, DiffLineKind } from "./types";

/** Unchanged lines shown around a change. */
const CONTEXT_LINES = 3;

/**
 * Lines that are compared one by one, between what both texts begin and end with. Longer texts are
 * shown as replaced as a whole, which is true as well.
 */
const MAX_COMPARED_LINES = 4000;

/**
 * What the compared texts are. In whole files, whether the last line ends with a line feed matters;
 * that a part of a file does not end with one says nothing.
 */
export type DiffScope = "whole file" | "fragment";

/** The hunks of a comparison, and how many lines they add and remove. */
export interface LineDiff {
  hunks: DiffHunk[];
  added: number;
  removed: number;
  /** Lines that are in both texts. */
  unchanged: number;
}

/** Compares two texts. What the budget has no room for is counted there. */
export function compare(old: string, fresh: string, scope: DiffScope, budget: TextBudget): LineDiff {
  const [oldLines, newLines] = [linesOf(old), linesOf(fresh)];
  const runs = editScript(oldLines, newLines);
  const changes = runs.filter((run) => !run.isEqual);
  const added = changes.reduce((sum, run) => sum + run.newLength, 0);
  const removed = changes.reduce((sum, run) => sum + run.oldLength, 0);
  const endsDiffer = old !== "" && fresh !== "" && old.endsWith("\n") !== fresh.endsWith("\n");
  const isWhole = scope === "whole file";
  const renderer = new HunkRenderer(oldLines, newLines, isWhole || endsDiffer, budget);
  // All of a fragment is an argument of the call, so nothing of it is left out.
  const context = isWhole ? CONTEXT_LINES : Math.max(oldLines.length, newLines.length);
  const groups = grouped(runs, context).filter((group) => group.some((run) => !run.isEqual));
  const hunks = groups.map((group) => renderer.hunk(group)).filter((hunk) => hunk.lines.length > 0);
  return { hunks, added, removed, unchanged: newLines.length - added };
}

/** The lines of a text, each with its line feed. */
function linesOf(text: string): string[] {
  const lines: string[] = [];
  for (let from = 0; from < text.length; ) {
    const feed = text.indexOf("\n", from);
    const end = feed === -1 ? text.length : feed + 1;
    lines.push(text.slice(from, end));
    from = end;
  }
  return lines;
}

/** How the old lines become the new ones. */
function editScript(oldLines: string[], newLines: string[]): Run[] {
  const numbers = new Map<string, number>();
  const numbered = (line: string) => {
    const number = numbers.get(line) ?? numbers.size;
    numbers.set(line, number);
    return number;
  };
  const [old, fresh] = [Int32Array.from(oldLines, numbered), Int32Array.from(newLines, numbered)];
  const shorter = Math.min(old.length, fresh.length);
  let prefix = 0;
  while (prefix < shorter && old[prefix] === fresh[prefix]) prefix += 1;
  let suffix = 0;
  while (suffix < shorter - prefix && old[old.length - 1 - suffix] === fresh[fresh.length - 1 - suffix]) suffix += 1;
  const equal = (oldStart: number, newStart: number, length: number): Run[] =>
    length === 0 ? [] : [{ isEqual: true, old: oldStart, oldLength: length, new: newStart, newLength: length }];
  const changed = changedLines(old.subarray(prefix, old.length - suffix), fresh.subarray(prefix, fresh.length - suffix));
  return [
    ...equal(0, 0, prefix),
    ...changed.map((run) => ({ ...run, old: run.old + prefix, new: run.new + prefix })),
    ...equal(old.length - suffix, fresh.length - suffix, suffix),
  ];
}

/** How the lines between the common beginning and the common end change. */
function changedLines(old: Int32Array, fresh: Int32Array): Run[] {
  if (old.length === 0 && fresh.length === 0) return [];
  const isSimple = old.length === 0 || fresh.length === 0 || Math.max(old.length, fresh.length) > MAX_COMPARED_LINES;
  if (isSimple) return [{ isEqual: false, old: 0, oldLength: old.length, new: 0, newLength: fresh.length }];
  return runsOf(steps(old, fresh), old, fresh);
}

/** Changes with at most so many unchanged lines around them; those near each other are together. */
function grouped(runs: Run[], context: number): Run[][] {
  const groups: Run[][] = [[]];
  runs.forEach((run, index) => {
    const group = groups.at(-1) as Run[];
    if (!run.isEqual) {
      group.push(run);
      return;
    }
    const isFirst = index === 0;
    const isLast = index === runs.length - 1;
    const end = isLast ? Math.min(run.newLength, context) : run.newLength;
    const from = isFirst ? Math.max(0, run.newLength - context) : 0;
    if (isFirst || isLast || run.newLength <= context * 2) {
      group.push(part(run, isFirst ? from : 0, isFirst && isLast ? run.newLength : end));
      return;
    }
    group.push(part(run, 0, context));
    groups.push([part(run, run.newLength - context, run.newLength)]);
  });
  return groups;
}

/** The part of an equal run from one of its lines to another. */
function part(run: Run, from: number, to: number): Run {
  return { ...run, old: run.old + from, new: run.new + from, oldLength: to - from, newLength: to - from };
}

/** Makes the lines of hunks fit to be shown. */
class HunkRenderer {
  constructor(
    private readonly old: string[],
    private readonly fresh: string[],
    private readonly marksNewline: boolean,
    private readonly budget: TextBudget,
  ) {}

  hunk(runs: Run[]): DiffHunk {
    const marksTabs = this.hasWhitespaceChanges(runs);
    const lines: DiffLine[] = [];
    for (const run of runs) {
      if (run.isEqual) {
        this.push(lines, "context", this.newLines(run), false);
        continue;
      }
      this.push(lines, "removed", this.oldLines(run), marksTabs);
      this.push(lines, "added", this.newLines(run), marksTabs);
    }
    const oldLength = runs.reduce((sum, run) => sum + run.oldLength, 0);
    const newLength = runs.reduce((sum, run) => sum + run.newLength, 0);
    // As in other diffs, an empty range is named by the line before it.
    const first = (start: number | undefined, length: number) => (start ?? 0) + (length === 0 ? 0 : 1);
    return { old_start: first(runs[0]?.old, oldLength), new_start: first(runs[0]?.new, newLength), lines };
  }

  private oldLines(run: Run): string[] {
    return this.old.slice(run.old, run.old + run.oldLength);
  }

  private newLines(run: Run): string[] {
    return this.fresh.slice(run.new, run.new + run.newLength);
  }

  /** Whether lines differ in nothing but white space, so that tabs must be told from spaces. */
  private hasWhitespaceChanges(runs: Run[]): boolean {
    const words = (line: string) => line.replaceAll(/\p{White_Space}+/gu, "");
    const changes = runs.filter((run) => !run.isEqual);
    const removed = new Set(changes.flatMap((run) => this.oldLines(run)).map(words));
    return changes.some((run) => this.newLines(run).some((line) => removed.has(words(line))));
  }

  private push(lines: DiffLine[], kind: DiffLineKind, texts: string[], marksTabs: boolean): void {
    for (const text of texts) {
      const endsLine = text.endsWith("\n");
      const taken = this.budget.takeLine(endsLine ? text.slice(0, -1) : text);
      if (taken === null) continue;
      const shown = kind === "context" ? taken : markBlanks(taken, marksTabs);
      lines.push({ kind, text: shown, no_newline: this.marksNewline && !endsLine ? true : undefined });
    }
  }
}

/** Makes white space at the end of a line visible, and with `allTabs` every tab. */
function markBlanks(line: string, allTabs: boolean): string {
  let end = line.length;
  while (end > 0 && " \t".includes(line.charAt(end - 1))) end -= 1;
  const words = line.slice(0, end);
  const blanks = line.slice(end).replaceAll(" ", "·").replaceAll("\t", "→");
  return (allTabs ? words.replaceAll("\t", "→\t") : words) + blanks;
}

/** The line above a hunk, in the form that diff programs use. */
export function hunkHeader(hunk: DiffHunk): string {
  const count = (other: DiffLineKind) => hunk.lines.filter((line) => line.kind !== other).length;
  const { old_start: from, new_start: to } = hunk;
  const place = from === null || to === null ? [] : [`-${from},${count("added")} +${to},${count("removed")}`];
  const parts = [...place, ...(hunk.title === undefined ? [] : [hunk.title])];
  return parts.length === 0 ? "@@" : `@@ ${parts.join(", ")} @@`;
}
