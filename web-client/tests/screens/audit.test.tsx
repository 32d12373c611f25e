// @vitest-environment happy-dom
import { beforeEach, expect, it, vi } from "vitest";
import { AuditPanel } from "../../src/screens/AuditPanel";
import { summaryOf } from "../../src/screens/audit/entry";
import { indented } from "../../src/screens/audit/indented";
import { fileName } from "../../src/screens/audit/download";
import { announcements } from "../../src/state/announcements";
import { ChainedLog } from "./support/chained_log";
import { fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";
import { fakeApp, fakeConnection, human, people, show } from "./support/session";
import type { FakeConnection } from "./support/session";

const PATH = "/api/sessions/blue-owl";
const everyone = people(human("ann", "Ann", []), human("kit", "Kit", [], { kind: "agent" }));
let server: FakeServer;
let log: ChainedLog;

beforeEach(() => {
  server = fakeServer();
  log = new ChainedLog();
  log.add("session.create", { name: "Deploy" });
  log.add("tool.propose", { arguments: { command: "rm -rf build\u202E" }, tool_name: "shell" }, { sender: "kit" });
  log.add("gate.request", { action_ref: "m-2", message: "needs a vote" }, { sender: "system" });
  log.add("gate.approve", { gate: "m-3", approver: "ann", comment: "fine" });
  log.add("tool.output", { tool_proposal: "m-2", text: "removed" }, { sender: "kit" });
  log.add("tool.propose", { arguments: { command: "ls" }, tool_name: "shell" }, { sender: "kit" });
  localStorage.clear();
});

function serve(after: number, limit: number): void {
  server.on("GET", `${PATH}/messages?after=${after}&limit=${limit}`, log.messages(after, limit));
}

const opened = (): FakeConnection => fakeConnection({ people: everyone, head: log.entries.length });
/** The numbers of the entries that are shown. */
const shown = (root: HTMLElement) => [...root.querySelectorAll("summary .mono")].map((element) => Number(element.textContent));

it("shows the newest entries first, without streamed text", async () => {
  serve(0, 6);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  expect(shown(person.root)).toEqual([6, 4, 3, 2, 1]);
  expect(person.text).toMatch(/Anngate\.approve.*fine.*the servergate\.request.*needs a vote/);
  expect(person.text).toContain("5 of 6 loaded entries");
  expect(person.text).not.toContain("\u202E");
  await person.tick("checkbox", "Show streamed text too");
  expect(person.text).toContain("6 of 6 loaded entries");
  expect(person.complaints()).toEqual([]);
  person.leave();
});

it("filters by person, by type and by proposal", async () => {
  serve(0, 6);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.choose("Person", "Ann");
  expect(person.text).toContain("2 of 6");
  await person.choose("Type", "gate.approve");
  expect(person.text).toContain("1 of 6");
  await person.choose("Person", "anyone");
  await person.choose("Type", "decisions");
  expect(person.text).toContain("4 of 6");
  await person.choose("Type", "any type");
  await person.type("searchbox", "Proposal", "M-2");
  expect(shown(person.root)).toEqual([4, 3, 2]);
  await person.press("Clear the filters");
  expect(person.text).toContain("5 of 6");
  await person.unfold(/gate\.approve/);
  await person.press("Show only proposal m-2");
  expect(shown(person.root)).toEqual([4, 3, 2]);
  person.leave();
});

it("shows an entry as it was logged, inert", async () => {
  serve(0, 6);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.unfold(/rm -rf/);
  const raw = person.root.querySelector("pre.raw-output")?.textContent ?? "";
  expect(raw).toContain('"sender": "kit"');
  expect(raw).not.toContain("\u202E");
  person.leave();
});

it("pages backwards, and takes in what is new", async () => {
  for (let more = 0; more < 700; more += 1) log.add("prompt.submit", { content: `prompt ${more}` });
  serve(206, 500);
  serve(0, 206);
  const connection = opened();
  const person = await show(fakeApp(), <AuditPanel connection={connection} />);
  expect(person.text).toContain("500 of 500 loaded entries");
  await person.press("Load older entries");
  expect(person.text).toContain("705 of 706 loaded entries");
  expect(person.has("button", "Load older entries")).toBe(false);
  log.add("prompt.submit", { content: "the newest" });
  serve(706, 1);
  connection.view.head = 707;
  connection.tick.value += 1;
  await vi.waitFor(() => person.find("button", "Load 1 new entry"));
  await person.press("Load 1 new entry");
  expect(person.text).toContain("the newest");
  person.leave();
});

it("searches older entries while a filter finds nothing", async () => {
  for (let more = 0; more < 1200; more += 1) log.add("prompt.submit", { content: `prompt ${more}` });
  serve(706, 500);
  serve(206, 500);
  serve(0, 206);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.choose("Type", "decisions");
  expect(person.text).toContain("None of the 500 loaded entries matches.");
  await person.press("Search older entries");
  await person.sees("4 of 1206 loaded entries");
  expect(person.has("button", "Search older entries")).toBe(false);
  person.leave();
});

it("a search for what is not there ends, and can be gone on with", async () => {
  for (let more = 0; more < 12_000; more += 1) log.add("prompt.submit", { content: "x" });
  for (let after = 11_506; after > 500; after -= 500) serve(after, 500);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.type("searchbox", "Proposal", "nothing");
  await person.press("Search older entries");
  await person.sees("None of the 10500 loaded entries matches.");
  expect(person.has("button", "Search older entries")).toBe(true);
  person.leave();
});

it("checks the record, and says that it is whole", async () => {
  serve(0, 6);
  server.on("GET", `${PATH}/head`, log.head);
  server.on("GET", `${PATH}/chain?after=0&limit=6`, log.chain(0, 6));
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  expect(person.text).toContain("Not checked yet.");
  await person.press("Check the record");
  await person.sees("Whole: 6 entries follow from one another without a gap.");
  expect(person.text).toContain("covers everything up to entry 6");
  expect(person.text).toContain(log.key);
  person.leave();
});

it("says so if the record was changed, or was another one before", async () => {
  serve(0, 6);
  server.on("GET", `${PATH}/head`, log.head);
  const chain = log.chain(0, 6);
  Object.assign(chain.entries[3] ?? {}, { meta: "{}" });
  server.on("GET", `${PATH}/chain?after=0&limit=6`, chain);
  const recordProblems = new Map([["blue-owl", { kind: "shorter", seen: 90, offered: 6 } as const]]);
  const person = await show(fakeApp({ recordProblems }), <AuditPanel connection={opened()} />);
  expect(person.find("alert").textContent).toContain("entry 90 was there, and now it ends at 6");
  await person.press("Check the record");
  await person.sees("Entry 4 does not follow from the one before it: the record was changed.");
  expect(person.text).not.toContain("Whole");
  person.leave();
});

it("saves every message byte for byte", async () => {
  serve(0, 6);
  server.on("GET", `${PATH}/messages?after=0&limit=1000`, log.messages(0, 1000));
  const saved: Blob[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    saved.push(blob as Blob);
    return "blob:x";
  });
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.press("Download all messages (JSONL)");
  expect(await saved[0]?.text()).toBe(log.entries.map((entry) => `${entry.body}\n`).join(""));
  expect(announcements.value.at(-1)?.text).toBe("Saved 6 messages.");
  expect(person.has("button", /archive/)).toBe(false);
  person.leave();
  vi.restoreAllMocks();
});

it("offers the signed archive of an ended session to admins of the server only", async () => {
  serve(0, 6);
  const connection = opened();
  connection.view.ended = { by: "ann", at: "2026-11-18T12:00:00Z", reason: "done", final_state: "completed" };
  const admin = await show(fakeApp({ roles: ["admin"] }), <AuditPanel connection={connection} />);
  expect(admin.has("button", "Download the signed archive")).toBe(true);
  admin.leave();
  const bound = await show(fakeApp({ roles: ["admin"], session: "blue-owl" }), <AuditPanel connection={connection} />);
  expect(bound.has("button", "Download the signed archive")).toBe(false);
  bound.leave();
});

it.each([
  [{ arguments: { full_command: "rm -rf x", command: "ls", args: ["-la"] }, tool_name: "shell" }, "rm -rf x"],
  [{ arguments: { command: "ls", args: ["-la"] }, tool_name: "shell" }, "ls -la"],
  [{ arguments: { path: "a.txt" }, tool_name: "file_write" }, 'file_write {"path":"a.txt"}'],
  [{ grant: { action: { command: { form: "shell", line: "make" } } } }, "make"],
  [{ result: { exitCode: 3 }, outcome: "known" }, "exit 3"],
  [{ prefix: ["cargo", "test"] }, "cargo test"],
  [{ reason: "too risky", suggestion: "x" }, "too risky"],
  [{ outcome: "approved", how: "quorum" }, "approved"],
  [{ outcome: "known", duration_ms: 3 }, ""],
  [{}, ""],
])("says what %j is about", (payload, summary) => {
  expect(summaryOf({ seq: 1, id: "m", at: null, sender: "ann", type: "x", payload, raw: "" })).toBe(summary);
});

it("indents what was logged without changing it", () => {
  const json = '{"n":1.0e2,"big":12345678901234567890,"s":"a, {\\"b\\": [1]}","s":"twice","e":{},"l":[ ],"a":[1,{"x":null}]}';
  expect(indented(json)).toBe(
    [
      "{",
      '  "n": 1.0e2,',
      '  "big": 12345678901234567890,',
      '  "s": "a, {\\"b\\": [1]}",',
      '  "s": "twice",',
      '  "e": {},',
      '  "l": [ ],',
      '  "a": [',
      "    1,",
      "    {",
      '      "x": null',
      "    }",
      "  ]",
      "}",
    ].join("\n"),
  );
});

it("does not draw more of an entry than a person reads", async () => {
  log.add("tool.result", { tool_proposal: "m-2", result: { stdout: "x".repeat(200_000) } }, { sender: "kit" });
  serve(0, 7);
  const person = await show(fakeApp(), <AuditPanel connection={opened()} />);
  await person.unfold(/tool\.result/);
  expect(person.root.querySelector("pre.raw-output")?.textContent?.length).toBeLessThanOrEqual(50_000);
  expect(person.text).toMatch(/\(\d+ more characters; the download has them\)/);
  person.leave();
});

it("makes file names that no system misreads", () => {
  expect(fileName("../..\\a b:c", "messages")).toBe("pvp-_a_b_c-messages.jsonl");
});
