import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { runsOf } from "../../src/fold/compact_steps";
import { compare, hunkHeader } from "../../src/fold/diff";
import type { DiffScope } from "../../src/fold/diff";
import { steps } from "../../src/fold/myers";
import { TextBudget } from "../../src/fold/text";
// What `capture_diff` of the crate `similar` 3.2 says about these lists with `Algorithm::Myers`.
import cases from "./diff_cases.json";
import { Random } from "./random_messages";

function runs(old: number[], fresh: number[]): string {
  const range = (start: number, length: number) => `${start}-${start + length}`;
  return runsOf(steps(old, fresh), old, fresh)
    .map((run) => `${run.isEqual ? "=" : "!"}${range(run.old, run.oldLength)}:${range(run.new, run.newLength)}`)
    .join(";");
}

test("lists are compared as in the other clients", () => {
  const numbers = (text: string) => text.split(" ").map(Number);
  for (const [old, fresh, expected] of cases.small as [string, string, string][]) {
    expect(runs(numbers(old), numbers(fresh)), `${old} | ${fresh}`).toBe(expected);
  }
});

test.each(cases.large)("long lists are compared as in the other clients: $seed", (recipe) => {
  const random = new Random(recipe.seed);
  const list = (length: number) => Array.from({ length }, () => random.below(recipe.alphabet));
  const [old, other] = [list(recipe.old), list(recipe.fresh)];
  const shared = "shared" in recipe ? (recipe.shared ?? 0) : 0;
  const fresh =
    shared === 0 ? other : [...other.slice(0, 3), ...old.slice(0, shared), ...other.slice(3), ...old.slice(shared)];
  const found = runs(old, fresh);
  expect(found.split(";").length).toBe(recipe.runs);
  expect(createHash("sha256").update(found).digest("hex")).toBe(recipe.sha256);
});

function hunks(old: string, fresh: string, scope: DiffScope): string[] {
  const budget = new TextBudget(1 << 20);
  const diff = compare(old, fresh, scope, budget);
  expect(budget.cutBytes).toBe(0);
  const marks = { context: " ", added: "+", removed: "-" };
  return diff.hunks.flatMap((hunk) => [
    hunkHeader(hunk),
    ...hunk.lines.map((line) => `${marks[line.kind]}${line.text}${line.no_newline ? "⏚" : ""}`),
  ]);
}

function numbered(from: number, to: number): string {
  return Array.from({ length: to - from }, (_, index) => `${from + index}\n`).join("");
}

test("a change is shown with the lines around it", () => {
  const old = numbered(1, 20);
  const fresh = old.replace("\n10\n", "\nten\nelf\n");
  expect(hunks(old, fresh, "whole file")).toEqual([
    "@@ -7,7 +7,8 @@",
    " 7",
    " 8",
    " 9",
    "-10",
    "+ten",
    "+elf",
    " 11",
    " 12",
    " 13",
  ]);
  expect(hunks(old, old, "whole file")).toEqual([]);
});

test("changes that are far apart are apart", () => {
  const old = numbered(1, 40);
  const fresh = old.replace("\n5\n", "\nfive\n").replace("\n30\n", "\nthirty\n");
  const headers = hunks(old, fresh, "whole file").filter((line) => line.startsWith("@@"));
  expect(headers).toEqual(["@@ -2,7 +2,7 @@", "@@ -27,7 +27,7 @@"]);
});

test("changes of white space and line ends are visible", () => {
  const lines = (old: string, fresh: string) => hunks(old, fresh, "whole file").slice(1);
  expect(lines("a\n", "a \t\n")).toEqual(["-a", "+a·→"]);
  expect(lines("a\n", "a\r\n")).toEqual(["-a", "+a\\u{d}"]);
  expect(lines("a\n", "a")).toEqual(["-a", "+a⏚"]);
  expect(lines("\ta\n", "        a\n")).toEqual(["-→\ta", "+        a"]);
  expect(lines("\ta\n", "\tb\n")).toEqual(["-\ta", "+\tb"]);
  expect(lines("a\u202e\n", "\u001b\n")).toEqual(["-a\\u{202e}", "+\\u{1b}"]);
});

test("a fragment that ends within a line is no change of the line end", () => {
  const lines = (old: string, fresh: string) => hunks(old, fresh, "fragment").slice(1);
  expect(lines("foo(", "bar(")).toEqual(["-foo(", "+bar("]);
  expect(lines("a\nb", "a\nc")).toEqual([" a", "-b", "+c"]);
  expect(lines("a\n", "a")).toEqual(["-a", "+a⏚"]);
  expect(lines("", "a")).toEqual(["+a"]);
});

test("longer texts than are compared line by line are replaced as a whole", () => {
  const diff = compare(numbered(10_000, 18_000), numbered(1, 9001), "whole file", new TextBudget(1 << 20));
  expect([diff.added, diff.removed]).toEqual([9000, 8000]);
});

test("lines without room are counted", () => {
  const budget = new TextBudget(10);
  const diff = compare("", "abcd\n".repeat(5), "whole file", budget);
  expect(diff.added).toBe(5);
  expect(diff.hunks[0]?.lines.length).toBe(2);
  expect(budget.cutBytes).toBeGreaterThanOrEqual(12);
});
