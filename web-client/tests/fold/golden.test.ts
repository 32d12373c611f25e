// Folds every golden transcript and compares the view with the one that the Rust client sees.

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parseServerMessage, View } from "../../src/fold";

const directory = fileURLToPath(new URL("../../../tests/transcripts/", import.meta.url));
const names = readdirSync(directory)
  .filter((file) => file.endsWith(".told.jsonl"))
  .map((file) => file.slice(0, -".told.jsonl".length))
  .sort();

function read(file: string): string {
  return readFileSync(`${directory}${file}`, "utf8");
}

function fold(view: View, line: string): void {
  const envelope = parseServerMessage(line);
  expect(envelope, line).not.toBeNull();
  expect(envelope?.type, line).toBe(JSON.parse(line).type);
  if (envelope !== null) view.fold(envelope);
}

test("there are golden transcripts", () => {
  expect(names.length).toBeGreaterThanOrEqual(20);
});

describe.each(names)("%s", (name) => {
  const told = read(`${name}.told.jsonl`).split("\n").filter((line) => line !== "");
  const golden = JSON.parse(read(`${name}.view.json`));

  test("gives the golden view", () => {
    const view = new View();
    for (const line of told) fold(view, line);
    expect(view.snapshot()).toEqual(golden);
    // Every field is there, null where nothing is known.
    expect(fieldNames(view.snapshot())).toEqual(fieldNames(golden));
  });

  test("folding the log again changes nothing", () => {
    const view = new View();
    for (const line of told) fold(view, line);
    for (const line of told.filter((text) => JSON.parse(text).seq !== undefined)) fold(view, line);
    expect(view.snapshot()).toEqual(golden);
  });
});

/** The paths of all fields, which tell an absent field from one that is undefined. */
function fieldNames(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [path];
  return Object.entries(value)
    .flatMap(([key, field]) => fieldNames(field, `${path}.${key}`))
    .sort();
}
