// @vitest-environment happy-dom
// One entry that cannot be drawn, whatever an agent put into it, takes nothing else along.

import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { actionHeadline, parseServerMessage, View } from "../../src/fold";
import { en } from "../../src/i18n/en";
import { AuditPanel } from "../../src/screens/AuditPanel";
import { HistoryPanel } from "../../src/screens/HistoryPanel";
import { parseEntry, proposalsOf, summaryOf, toolsOf } from "../../src/screens/audit/entry";
import { Stream } from "../../src/stream/Stream";
import type { StreamSource } from "../../src/stream/source";
import { ScreenPool } from "../../src/terminal/pool";
import { TerminalSizes } from "../../src/terminal/sizes";
import { Boundary } from "../../src/ui/Boundary";
import { Random, randomSequence } from "../fold/random_messages";
import { ChainedLog } from "./support/chained_log";
import { fakeServer } from "./support/server";
import { fakeApp, fakeConnection, human, people, show } from "./support/session";

/** Stands for whatever nobody expected: a time that the entries cannot be drawn with. */
const UNDRAWABLE = "2001-02-03T04:05:06.000Z";
vi.mock("../../src/ui/format", async (original) => {
  const format = await original<typeof import("../../src/ui/format")>();
  const failing = (write: (at: never) => string) => (at: never) => {
    if (at !== null && new Date(at).getTime() === Date.parse("2001-02-03T04:05:06.000Z")) throw new Error("this time cannot be drawn");
    return write(at);
  };
  return { ...format, timeOfDay: failing(format.timeOfDay), dateAndTime: failing(format.dateAndTime) };
});
vi.mock("../../src/stream/shell_results", async (original) => {
  const results = await original<typeof import("../../src/stream/shell_results")>();
  const splitShellResults = (text: string) => {
    if (text === "second") throw new Error("this prompt cannot be drawn");
    return results.splitShellResults(text);
  };
  return { ...results, splitShellResults };
});

const PATH = "/api/sessions/blue-owl";
let logged: ReturnType<typeof vi.spyOn>;

beforeEach(() => {
  logged = vi.spyOn(console, "error").mockImplementation(() => undefined);
});

afterEach(() => vi.restoreAllMocks());

/** Throws for as long as this is set. */
const isBroken = signal(true);
function Fragile({ name }: { name: string }) {
  if (isBroken.value && name === "bad") throw new Error("cannot be drawn");
  return <p>{name} is drawn</p>;
}

describe("what throws while it is drawn", () => {
  beforeEach(() => {
    isBroken.value = true;
  });

  it("is replaced by words, while the entries around it stay, and the error is logged", async () => {
    const person = await show(
      fakeApp(),
      <ul>
        {["one", "bad", "two"].map((name) => (
          <Boundary key={name} kind="entry" of={name} as="li">
            <Fragile name={name} />
          </Boundary>
        ))}
      </ul>,
    );
    expect(person.text).toContain(`one is drawn${en.app.entryFailed}two is drawn`);
    expect(person.root.querySelectorAll("ul > li")).toHaveLength(1);
    expect(logged).toHaveBeenCalledWith(expect.objectContaining({ message: "cannot be drawn" }));
    person.leave();
  });

  it("is tried again when it changes, and a screen when it is asked to", async () => {
    const person = await show(
      fakeApp(),
      <Boundary kind="screen" of="inbox">
        <Fragile name="bad" />
      </Boundary>,
    );
    expect(person.find("alert").textContent).toContain(en.app.screenFailed);
    isBroken.value = false;
    await person.press(en.app.retry);
    expect(person.text).toContain("bad is drawn");
    person.leave();

    isBroken.value = true;
    const version = signal(1);
    const Versioned = () => (
      <Boundary kind="entry" of={version.value}>
        <Fragile name="bad" />
      </Boundary>
    );
    const other = await show(fakeApp(), <Versioned />);
    expect(other.text).toContain(en.app.entryFailed);
    isBroken.value = false;
    expect(other.text).toContain(en.app.entryFailed);
    version.value = 2;
    await other.sees("bad is drawn");
    other.leave();
  });
});

/** What an agent may put where a text is expected. */
const ODD: readonly unknown[] = [null, 0, true, "", "\u202e", [], {}, [null], [[[]]], { toString: 1 }, [{ toString: 1 }], { valueOf: 1, toString: null }, "x".repeat(600)];
const FIELDS = ["command", "args", "full_command", "path", "content", "edits", "old_string", "new_string", "prefix", "grant", "result", "arguments", "reason", "__proto__", "constructor", "toString"];
const TOOLS = ["shell", "file_write", "file_edit", "Edit", "MultiEdit", "apply_patch", "npm_install", "mcp__a__b", "mytool", "toString", "__proto__"];

function oddObject(random: Random, depth = 0): Record<string, unknown> {
  const object: Record<string, unknown> = {};
  for (let fields = random.below(6); fields >= 0; fields -= 1) {
    const value = depth < 2 && random.isOneIn(4) ? oddObject(random, depth + 1) : random.isOneIn(8) ? random.value() : random.pick(ODD);
    const field = random.pick(random.isOneIn(2) ? FIELDS.slice(0, 3) : FIELDS);
    Object.defineProperty(object, field, { value, enumerable: true, configurable: true, writable: true });
  }
  return object;
}

describe("the record", () => {
  it("has a line for every entry, whatever is in it", () => {
    const random = new Random(31);
    for (let round = 0; round < 1000; round += 1) {
      const type = random.pick(["tool.propose", "gate.amend", "tool.execute", "policy.allow", "tool.result", "context.add"]);
      const tool_name = random.pick(TOOLS);
      const payload = random.isOneIn(2) ? { tool_name, arguments: oddObject(random) } : { ...oddObject(random), grant: { action: oddObject(random) } };
      const entry = parseEntry(JSON.stringify({ seq: 1, id: "m", ts: "2026-01-01T00:00:00Z", sender: "kit", type, payload }));
      if (entry === null) throw new Error("an entry is an object with a number");
      expect(typeof summaryOf(entry)).toBe("string");
      proposalsOf([entry]);
      toolsOf([entry]);
      if (payload.arguments !== undefined) actionHeadline({ command: { form: "tool", name: tool_name, arguments: payload.arguments }, mode: "normal" });
    }
  });

  it("opens with a proposal in it whose arguments are no words", async () => {
    const server = fakeServer();
    const log = new ChainedLog();
    log.add("tool.propose", { tool_name: "mytool", arguments: { command: "x", args: [{ toString: 1 }] } }, { sender: "kit" });
    log.add("context.add", { key: "k", prefix: [{ toString: 1 }], grant: { action: { command: 7 } } });
    log.add("prompt.submit", { content: "go on" });
    server.on("GET", `${PATH}/messages?after=0&limit=3`, log.messages(0, 3));
    const connection = fakeConnection({ people: people(human("ann", "Ann", [])), head: 3 });
    const person = await show(fakeApp(), <AuditPanel connection={connection} />);
    expect(person.text).toContain('mytool {"args":[{"toString":1}],"command":"x"}');
    expect(person.text).toContain("go on");
    expect(person.text).not.toContain(en.app.entryFailed);
    person.leave();
  });

  it("shows the others when one entry cannot be drawn", async () => {
    const server = fakeServer();
    const log = new ChainedLog();
    log.add("prompt.submit", { content: "first" });
    log.add("prompt.submit", { content: "second" });
    server.on("GET", `${PATH}/messages?after=0&limit=2`, log.messages(0, 2).replace("2026-11-18T10:00:00.000Z", UNDRAWABLE));
    const connection = fakeConnection({ head: 2 });
    const person = await show(fakeApp(), <AuditPanel connection={connection} />);
    expect(person.text).toContain("second");
    expect(person.text).not.toContain("first");
    expect(person.text).toContain(en.app.entryFailed);
    person.leave();
  });
});

it("the history shows the other commands when one cannot be drawn", async () => {
  const server = fakeServer();
  const record = (id: string, at: string) => ({ tool_proposal: id, short_id: id, seq: 1, at, proposer: "kit", command: `run ${id}`, category: "write", risk: "low", rule: "r", description: "", status: "waiting", approvals: [] });
  server.on("GET", `${PATH}/history?limit=50`, { commands: [record("one", UNDRAWABLE), record("two", "2026-01-01T00:00:00Z")] });
  const person = await show(fakeApp(), <HistoryPanel connection={fakeConnection()} />);
  expect(person.text).toContain("run two");
  expect(person.text).not.toContain("run one");
  expect(person.text).toContain(en.app.entryFailed);
  person.leave();
});

describe("the stream", () => {
  beforeEach(() => {
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(4000);
    vi.spyOn(HTMLElement.prototype, "getBoundingClientRect").mockReturnValue({ height: 40, width: 300 } as DOMRect);
  });

  function sourceOf(view: View): StreamSource {
    const readOutput = () => Promise.reject(new Error("no output here"));
    return { view, tick: signal(0), now: () => Date.now(), screens: new ScreenPool(), sizes: new TerminalSizes(), readOutput, live: null, unfolded: new Set() };
  }

  it.each([1, 2])("draws every entry of random messages: %i", async (seed) => {
    const random = new Random(seed * 104_729);
    for (let round = 0; round < 6; round += 1) {
      const view = new View();
      for (const message of randomSequence(random, { length: 80, garbledOneIn: 1 + random.below(4) })) {
        if (message.type === "tool.propose" && random.isOneIn(2)) message.payload = { ...(message.payload as object), arguments: oddObject(random) as never };
        const envelope = parseServerMessage(JSON.stringify(message));
        if (envelope !== null) view.fold(envelope);
      }
      const person = await show(fakeApp(), <Stream source={sourceOf(view)} />);
      expect(person.root.querySelectorAll(".virtual-item").length).toBeGreaterThan(0);
      expect(person.text).not.toContain(en.app.entryFailed);
      person.leave();
    }
  });

  it("shows the others when one entry cannot be drawn", async () => {
    const view = new View();
    for (const [at, content] of ["first", "second", "third"].entries()) {
      const payload = { content, target_agent: "kit", contributors: ["ann"], context_keys: [] };
      const prompt = parseServerMessage(JSON.stringify({ v: 1, id: `m-${at}`, ts: "2026-01-01T00:00:00.000Z", session: "s", sender: "ann", seq: at + 1, type: "prompt.submit", payload }));
      if (prompt !== null) view.fold(prompt);
    }
    const person = await show(fakeApp(), <Stream source={sourceOf(view)} />);
    expect(person.text).toContain("first");
    expect(person.text).not.toContain("second");
    expect(person.text).toContain("third");
    expect(person.text).toContain(en.app.entryFailed);
    person.leave();
  });
});
