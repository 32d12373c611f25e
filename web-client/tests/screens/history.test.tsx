// @vitest-environment happy-dom
import { beforeEach, expect, it, vi } from "vitest";
import type { CommandRecord } from "@protocol";
import { HistoryPanel } from "../../src/screens/HistoryPanel";
import { fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";
import { fakeApp, fakeConnection, human, people, show } from "./support/session";

const record = (id: string, change: Partial<CommandRecord> = {}): CommandRecord => ({
  tool_proposal: id,
  short_id: id.slice(-6),
  seq: 10,
  at: "2026-11-18T10:00:00Z",
  proposer: "kit",
  command: "make test",
  description: "run the tests",
  category: "write",
  risk: "medium",
  rule: "make",
  status: "finished",
  approvals: [],
  ...change,
});

const connection = () => fakeConnection({ people: people(human("ann", "Ann", []), human("kit", "Kit", [], { kind: "agent" })) });
const first = "/api/sessions/blue-owl/history?limit=50";
let server: FakeServer;

beforeEach(() => {
  server = fakeServer();
});

it("shows commands with their state, and details when one is opened", async () => {
  const finished = record("p-1", {
    approvals: [{ participant: "ann", at: "2026-11-18T10:01:00Z", comment: "go\u200bon" }],
    cleared_by: "quorum",
    executor: "kit",
    edited_by: "ann",
    result: { at: "2026-11-18T10:02:00Z", success: false, exit_code: 2, duration_ms: 1500 },
    earlier: [
      { command: "make all", category: "destructive", risk: "high", digest: "d", edited_by: "ann", edited_at: "2026-11-18T10:00:30Z", reason: "less", void_approvals: [{ participant: "ann", at: "2026-11-18T10:00:20Z" }] },
    ],
  });
  server.on("GET", first, { commands: [finished, record("p-2", { command: "rm -rf /", category: "blocked", status: "blocked" })] });
  const person = await show(fakeApp(), <HistoryPanel connection={connection()} />);
  expect(person.text).toContain("exit 2");
  expect(person.text).toContain("by Kit");
  expect(person.text).toContain("edited by Ann");
  expect(person.text).not.toContain("run the tests");
  await person.unfold(/make test/);
  expect(person.text).toContain("run the tests");
  expect(person.text).toContain("approved by vote");
  expect(person.text).toMatch(/Ann Nov 18, 2026, .* “go.+on”/);
  expect(person.text).not.toContain("\u200b");
  expect(person.text).toContain("1 earlier version");
  expect(person.text).toContain("void approvals: Ann");
  expect(person.complaints()).toEqual([]);
  person.leave();
});

it("asks for exactly what is searched, and pages with `before`", async () => {
  server.on("GET", first, { commands: [record("p-1")] });
  server.on("GET", `${first}&grep=rm+-rf`, { commands: [], next: 41 });
  server.on("GET", `${first}&grep=rm+-rf&status=rejected`, { commands: [record("p-3", { status: "rejected" })], next: 41 });
  server.on("GET", `${first}&grep=rm+-rf&status=rejected&before=41`, { commands: [record("p-2", { status: "rejected" })], next: null });
  const person = await show(fakeApp(), <HistoryPanel connection={connection()} />);
  await person.type("searchbox", "Search commands", "rm -rf");
  await person.press("Search");
  expect(person.text).toContain("No command matches so far; there are older ones.");
  await person.choose("State", "denied");
  await person.press("Show older commands");
  expect(person.all("listitem")).toHaveLength(2);
  expect(person.has("button", "Show older commands")).toBe(false);
  person.leave();
});

it("reads the output line by line, inert", async () => {
  server.on("GET", first, { commands: [record("p/1", { executor: "kit" })] });
  const line = (number: number, text: string) => ({ number, stream: "stdout", text });
  server.on("GET", "/api/sessions/blue-owl/outputs/p%2F1?offset=0&limit=200", { ref: "p/1", lines: [line(0, "<b>one</b>\u001b[31m")], total_lines: 2, next: 1 });
  server.on("GET", "/api/sessions/blue-owl/outputs/p%2F1?offset=1&limit=200", { ref: "p/1", lines: [line(1, "two")], total_lines: 2 });
  const person = await show(fakeApp(), <HistoryPanel connection={connection()} />);
  await person.unfold(/make test/);
  await person.press("Show the output");
  expect(person.text).toContain("1 of 2 lines");
  expect(person.root.querySelector("pre.raw-output b")).toBe(null);
  expect(person.text).not.toContain("\u001b");
  await person.press("Show more lines");
  expect(person.text).toContain("2 of 2 lines");
  expect(person.has("button", "Show more lines")).toBe(false);
  person.leave();
});

it("stands still while it is read, and offers what is new", async () => {
  server.on("GET", first, { commands: [record("p-1")] });
  const here = connection();
  const person = await show(fakeApp(), <HistoryPanel connection={here} />);
  expect(person.has("button", "Look for new commands")).toBe(false);
  here.view.commands = [{ seq: 12 }] as never;
  here.tick.value += 1;
  server.on("GET", first, { commands: [record("p-2", { seq: 12 }), record("p-1")] });
  await vi.waitFor(() => person.find("button", "Look for new commands"));
  await person.press("Look for new commands");
  expect(person.all("listitem")).toHaveLength(2);
  person.leave();
});

it("names somebody who becomes known later", async () => {
  server.on("GET", first, { commands: [record("p-1")] });
  const here = fakeConnection({});
  const person = await show(fakeApp(), <HistoryPanel connection={here} />);
  expect(person.text).toContain("by kit");
  here.view.people = people(human("kit", "Kitty", [])) as never;
  here.tick.value += 1;
  await person.sees("by Kitty");
  person.leave();
});

it("names a call as its card did, with what it binds", async () => {
  const files = [{ path: "notes.txt", bytes: 0 }];
  const call = record("p-1", { tool: "file_write", command: `file_write ${JSON.stringify({ content: "one\ntwo\nthree\n", files, path: "notes.txt" })}` });
  server.on("GET", first, { commands: [call, record("p-2", { tool: "fetch", command: "fetch not json \u202e" })] });
  const person = await show(fakeApp(), <HistoryPanel connection={connection()} />);
  expect(person.text).toContain("file_write notes.txt (new, 3 lines)");
  expect(person.text).toContain("fetch not json \\u{202e}");
  person.leave();
});

it("says that there is nothing", async () => {
  server.on("GET", first, { commands: [] });
  const person = await show(fakeApp(), <HistoryPanel connection={connection()} />);
  expect(person.text).toContain("No command was proposed yet.");
  person.leave();
});
