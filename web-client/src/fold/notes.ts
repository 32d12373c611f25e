// What the fold says about a change of a file and about a trial. It stands in the view as English
// text, as the notes of the policy do; a page in another language finds out here what it says.

import { pluralize } from "./text";

export type Note =
  | { kind: "no_such_file" }
  | { kind: "not_found" }
  | { kind: "found_times"; count: number }
  | { kind: "unchanged"; count: number }
  | { kind: "edit"; number: number; total: number; isEvery: boolean }
  | { kind: "denied"; what: string }
  | { kind: "no_result"; reason: string };

export function noteText(note: Note): string {
  switch (note.kind) {
    case "no_such_file":
      return "the call binds that there is no such file";
    case "not_found":
      return "the text to replace is not in the present content";
    case "found_times":
      return `the text to replace is in the present content ${pluralize(note.count, "time")}`;
    case "unchanged":
      return `${pluralize(note.count, "unchanged line")} not shown`;
    case "edit":
      return `edit ${note.number} of ${note.total}${note.isEvery ? ", every occurrence" : ""}`;
    case "denied":
      return `tried in the sandbox, which denied: ${note.what}`;
    case "no_result":
      return `tried in the sandbox, without a result${note.reason === "" ? "" : `: ${note.reason}`}`;
  }
}

const FORMS: readonly [RegExp, (groups: Record<string, string | undefined>) => Note][] = [
  [/^the call binds that there is no such file$/, () => ({ kind: "no_such_file" })],
  [/^the text to replace is not in the present content$/, () => ({ kind: "not_found" })],
  [/^the text to replace is in the present content (?<count>\d+) times?$/, ({ count }) => ({ kind: "found_times", count: Number(count) })],
  [/^(?<count>\d+) unchanged lines? not shown$/, ({ count }) => ({ kind: "unchanged", count: Number(count) })],
  [
    /^edit (?<number>\d+) of (?<total>\d+)(?<every>, every occurrence)?$/,
    ({ number, total, every }) => ({ kind: "edit", number: Number(number), total: Number(total), isEvery: every !== undefined }),
  ],
  [/^tried in the sandbox, which denied: (?<what>[^]*)$/, ({ what = "" }) => ({ kind: "denied", what })],
  [/^tried in the sandbox, without a result(?:: (?<reason>[^]+))?$/, ({ reason = "" }) => ({ kind: "no_result", reason })],
];

/** The note that a text is; null if the fold does not say this. */
export function noteOf(text: string): Note | null {
  for (const [form, read] of FORMS) {
    const match = form.exec(text);
    if (match !== null) return read(match.groups ?? {});
  }
  return null;
}
