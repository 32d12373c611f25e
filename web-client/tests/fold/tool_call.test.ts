// What people see of tool calls: the truth about what is executed, all of it, and in bounds.

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { callOfSummary, hunkHeader } from "../../src/fold";
import type { ToolCallView } from "../../src/fold";
import { actionFromArguments } from "../../src/fold/action";
import { listArguments } from "../../src/fold/arguments";
import { headlineOf } from "../../src/fold/headline";
import { parseJson } from "../../src/fold/json";
import type { JsonObject } from "../../src/fold/json";
import { amendArguments, requestOf } from "../../src/fold/requested_action";
import { suggestedPrefix } from "../../src/fold/suggested_prefix";
import { TextBudget } from "../../src/fold/text";
import { MAX_COMMAND_BYTES, toolCallOf } from "../../src/fold/tool_call";
import { assessment } from "./messages";

function call(tool: string, args: JsonObject, contents: [string, string][] = []): ToolCallView {
  const files = contents.map(([path, text]) => ({ path, text }));
  const found = toolCallOf(actionFromArguments(tool, args), files, "file_write");
  if (found === undefined) throw new Error("not a tool call");
  return found;
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function linesOf(found: ToolCallView, kind: string): string[] {
  const lines = found.change?.hunks.flatMap((hunk) => hunk.lines) ?? [];
  return lines.filter((line) => line.kind === kind).map((line) => line.text);
}

function listed(args: JsonObject): string[] {
  const budget = new TextBudget(1 << 16);
  return listArguments(args, budget).map((it) => `${" ".repeat(it.depth)}${it.name} ${it.value}`);
}

test("nested values are listed below their name", () => {
  const args = {
    title: "It breaks",
    labels: ["bug", 7],
    meta: { deep: { on: true, off: null } },
    none: [],
    empty: {},
    body: "one\ntwo",
  };
  expect(listed(args)).toEqual([
    "body one\ntwo",
    "empty {}",
    "labels ",
    " [0] bug",
    " [1] 7",
    "meta ",
    " deep ",
    "  off null",
    "  on true",
    "none []",
    "title It breaks",
  ]);
});

test("texts that look like something else are quoted", () => {
  const args = { a: "7", b: "true", c: "", d: " x", e: "[]", f: '"q"', "+ g": 1, "[0]": 2 };
  expect(listed(args)).toEqual([
    '"+ g" 1',
    '"[0]" 2',
    'a "7"',
    'b "true"',
    'c ""',
    'd " x"',
    'e "[]"',
    'f "\\"q\\""',
  ]);
});

test("numbers are shown with all their digits", () => {
  const args = parseJson('{"amount": 9007199254740993, "rate": 1.0}') as JsonObject;
  expect(listed(args)).toEqual(["amount 9007199254740993", "rate 1.0"]);
  expect(call("pay", args).headline).toBe("pay 9007199254740993");
});

test("what is nested deeply is shown as JSON", () => {
  let value: JsonObject = { end: 1 };
  for (let depth = 0; depth < 20; depth += 1) value = { a: value };
  const lines = listed(value);
  expect(lines.length).toBe(7);
  expect(lines[6]).toContain('{"end":1}');
});

test("arguments without room are counted", () => {
  const budget = new TextBudget(1 << 20);
  const many = Array.from({ length: 2010 }, (_, index) => index);
  expect(listArguments({ many }, budget).length).toBe(2000);
  expect(budget.cutBytes).toBeGreaterThanOrEqual(11 * 4);
});

test("a field called __proto__ is shown like any other", () => {
  const args = parseJson('{"__proto__": {"admin": true}, "x": 1}') as JsonObject;
  expect(listed(args)).toEqual(["__proto__ ", " admin true", "x 1"]);
  expect(listed({}).length).toBe(0);
});

test("calls are named as people know them", () => {
  for (const [tool, args, expected] of [
    ["npm_install", { packages: ["left-pad", "is-odd"] }, "npm install left-pad is-odd"],
    ["npm", { command: "run", script: "build" }, "npm run build"],
    ["mcp__github__create_issue", { title: "x" }, "mcp github · create_issue"],
    ["fetch", { method: "GET", url: "https://a.example" }, "fetch https://a.example"],
    ["deploy", { count: 3 }, "deploy 3"],
    ["deploy", { deep: { a: 1 } }, "deploy"],
    ["deploy", {}, "deploy"],
  ] as [string, JsonObject, string][]) {
    expect(headlineOf(tool, args, null)).toBe(expected);
  }
});

test("a headline is one short line of visible characters", () => {
  const long = "é".repeat(500);
  for (const args of [{ name: "one\ntwo" }, { name: "a\u202eb\tc\u001b[2K" }, { name: long }, { other: long }]) {
    const text = headlineOf("to\u200bol\nx", args, null);
    expect(text).not.toMatch(/[\n\t\u202e\u001b\u200b]/);
    expect(text.length).toBeLessThan(300);
  }
  expect(headlineOf("t", { name: "one\ntwo" }, null)).toBe("t one…");
});

test("an edit is the old text and the new one", () => {
  for (const [tool, path, old, fresh] of [
    ["file_edit", "path", "old_text", "new_text"],
    ["Edit", "file_path", "old_string", "new_string"],
    ["edit_file", "file", "oldText", "newText"],
    ["str_replace", "filename", "old_str", "new_str"],
  ] as const) {
    const found = call(tool, { [path]: "src/main.rs", [old]: "a\nb\n", [fresh]: "a\nc\nd\n" });
    expect(found.headline).toBe(`${tool} src/main.rs (+2 −1)`);
    expect(linesOf(found, "added")).toEqual(["c", "d"]);
    expect(linesOf(found, "removed")).toEqual(["b"]);
    expect(linesOf(found, "context")).toEqual(["a"]);
    expect(found.arguments).toEqual([]);
  }
});

test("several edits are shown one by one", () => {
  const edits = [
    { old_string: "a", new_string: "b" },
    { old_string: "c", new_string: "", replace_all: true },
  ];
  const found = call("MultiEdit", { file_path: "x", edits });
  expect(found.headline).toBe("MultiEdit x (+1 −2)");
  expect(found.change?.hunks.map(hunkHeader)).toEqual(["@@ edit 1 of 2 @@", "@@ edit 2 of 2, every occurrence @@"]);
});

test("an edit is placed where the bound content has it", () => {
  const old = "one\ntwo\nthree\ntwo\n";
  const edit = (text: string) => {
    const files = [{ path: "x", sha256: hash(old), bytes: 18 }];
    return call("file_edit", { path: "x", old_text: text, new_text: "2\n", files }, [["x", old]]).change;
  };
  expect(edit("three\n")?.hunks.map(hunkHeader)).toEqual(["@@ -3,1 +3,1 @@"]);
  expect(edit("two\n")?.notes).toEqual(["the text to replace is in the present content 2 times"]);
  expect(edit("four\n")?.notes).toEqual(["the text to replace is not in the present content"]);
});

test("a write is compared with the content that the call binds, and with no other", () => {
  const old = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
  const content = old.replace("two", "2");
  const files = [{ path: "notes.txt", sha256: hash(old), bytes: old.length }];
  const found = call("file_write", { path: "./notes.txt", content, files }, [["notes.txt", old]]);
  expect(found.headline).toBe("file_write ./notes.txt (+1 −1)");
  expect(found.change?.basis).toBe("present_content");
  expect(found.change?.notes).toEqual(["2 unchanged lines not shown"]);
  const forged: [string, string][][] = [[["notes.txt", "harmless\n"]], [["other.txt", old]], []];
  for (const contents of forged) {
    expect(call("file_write", { path: "./notes.txt", content, files }, contents).change?.basis).toBe("unknown");
  }
});

test("two arguments that could mean the same leave all to the list of arguments", () => {
  const found = call("file_write", { path: "a", file_path: "b", content: "x" });
  expect(found.change).toBeNull();
  expect(found.arguments.map((argument) => argument.name)).toEqual(["content", "file_path", "path"]);
});

test("a call is read from the line that describes it", () => {
  expect(callOfSummary("fetch", 'fetch {"url":"x y"}')?.headline).toBe("fetch x y");
  for (const [tool, summary] of [
    ["fetch", "fetch [1]"],
    ["fetch", "fetch"],
    ["fetch", "other {}"],
    ["shell", 'shell {"full_command":"ls"}'],
  ] as const) {
    expect(callOfSummary(tool, summary), summary).toBeUndefined();
  }
});

function prefix(line: string, more: object = {}): string {
  const action = actionFromArguments("shell", { full_command: line });
  return suggestedPrefix(action, { ...assessment("write"), ...more } as never).join(" ");
}

test("a prefix is the command and its subcommands", () => {
  for (const [line, expected] of [
    ["npm run build -- --watch", "npm run build"],
    ["git commit -m x", "git commit"],
    ["make", "make"],
    ["mkdir -p a/b", "mkdir"],
    ["touch notes.txt", "touch"],
    ["docker compose up web", "docker compose up"],
  ] as const) {
    expect(prefix(line)).toBe(expected);
  }
});

test("no prefix is suggested for a line that a shell would change, or that no rule covers", () => {
  for (const line of ["npm i && rm x", "make\nrm x", "echo $HOME", "make 'a b'", "A=b make", "./run", "", "make\u00a0x"]) {
    expect(prefix(line), line).toBe("");
  }
  expect(prefix("make", { category: "destructive" })).toBe("");
  expect(prefix("sh x.sh", { runs_given_code: true })).toBe("");
  expect(suggestedPrefix(actionFromArguments("shell", { full_command: "make" }), undefined)).toEqual([]);
});

test("a command that is too long is cut and counts the lost bytes", () => {
  const action = actionFromArguments("shell", { full_command: "é".repeat(MAX_COMMAND_BYTES) });
  const requested = requestOf({ proposer: "bot", description: "" }, action);
  expect(new TextEncoder().encode(requested.command).length).toBe(MAX_COMMAND_BYTES);
  expect(requested.cut_bytes).toBe(MAX_COMMAND_BYTES);
});

test("an edit keeps everything but the line", () => {
  const action = actionFromArguments("shell", {
    command: "ls",
    args: ["a b"],
    cwd: "/w",
    env: { A: "b" },
    mode: "slow",
    timeout: 7,
    secrets: ["KEY"],
    files: [{ path: "ls", sha256: "0".repeat(64), bytes: 3 }, { path: "make" }],
  });
  const requested = requestOf({ proposer: "bot", description: "" }, action);
  expect(requested.argv).toEqual(["ls", "a b"]);
  const args = JSON.parse(JSON.stringify(amendArguments(requested, "ls -l")));
  expect(actionFromArguments("shell", args)).toEqual({ ...action, command: { form: "shell", line: "ls -l" } });
  const tool = requestOf({ proposer: "bot", description: "" }, actionFromArguments("fetch", {}));
  expect(amendArguments(tool, "x")).toBeNull();
});
