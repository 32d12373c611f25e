// What the fold says in English can be found out again, so that a page can say it in its own language.

import { expect, test } from "vitest";
import { noteOf, noteText } from "../../src/fold/notes";
import type { Note } from "../../src/fold/notes";

const NOTES: { [Kind in Note["kind"]]: Extract<Note, { kind: Kind }>[] } = {
  no_such_file: [{ kind: "no_such_file" }],
  not_found: [{ kind: "not_found" }],
  found_times: [{ kind: "found_times", count: 2 }, { kind: "found_times", count: 1 }],
  unchanged: [{ kind: "unchanged", count: 1 }, { kind: "unchanged", count: 30 }],
  edit: [{ kind: "edit", number: 1, total: 3, isEvery: false }, { kind: "edit", number: 3, total: 3, isEvery: true }],
  denied: [{ kind: "denied", what: "connect, open /etc/shadow" }, { kind: "denied", what: "two\nlines" }],
  no_result: [{ kind: "no_result", reason: "" }, { kind: "no_result", reason: "timed out: 5 s" }],
};

test.each(Object.values<Note[]>(NOTES).flat())("$kind: %o", (note) => {
  expect(noteOf(noteText(note))).toEqual(note);
});

test("what the fold does not say is nobody's note", () => {
  expect(noteOf("reads a file that may hold secrets")).toBeNull();
  expect(noteOf("  the text to replace is not in the present content")).toBeNull();
});
