// The lines of a change as rows of a table, in one column or side by side.

import type { DiffHunk, DiffLine } from "../fold";

export interface NumberedLine {
  /** `null` if its place in the file is not known. */
  number: number | null;
  line: DiffLine;
}

export interface UnifiedRow {
  old: number | null;
  new: number | null;
  line: DiffLine;
}

/** A line on each side; `null` where the other side has one more. */
export interface PairedRow {
  left: NumberedLine | null;
  right: NumberedLine | null;
}

export function unifiedRows(hunk: DiffHunk): UnifiedRow[] {
  const count = counters(hunk);
  return hunk.lines.map((line) => ({
    old: line.kind === "added" ? null : count.old(),
    new: line.kind === "removed" ? null : count.new(),
    line,
  }));
}

/** What was removed stands beside what was added in its place. */
export function pairedRows(hunk: DiffHunk): PairedRow[] {
  const count = counters(hunk);
  const rows: PairedRow[] = [];
  let removed: NumberedLine[] = [];
  let added: NumberedLine[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      rows.push({ left: removed[index] ?? null, right: added[index] ?? null });
    }
    removed = [];
    added = [];
  };
  for (const line of hunk.lines) {
    switch (line.kind) {
      case "removed":
        // What is removed after something was added belongs to the next change.
        if (added.length > 0) flush();
        removed.push({ number: count.old(), line });
        break;
      case "added":
        added.push({ number: count.new(), line });
        break;
      case "context":
        flush();
        rows.push({ left: { number: count.old(), line }, right: { number: count.new(), line } });
        break;
    }
  }
  flush();
  return rows;
}

function counters(hunk: DiffHunk): { old: () => number | null; new: () => number | null } {
  const counter = (start: number | null) => {
    let next = start;
    return () => (next === null ? null : next++);
  };
  return { old: counter(hunk.old_start), new: counter(hunk.new_start) };
}
