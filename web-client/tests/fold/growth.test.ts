// Folding costs as much for the last message as for the first, however many there are.

import { expect, test } from "vitest";
import { View } from "../../src/fold";
import type { Envelope } from "../../src/fold";
import { agent, grant, message, output, person, proposal, welcome } from "./messages";
import { countWork } from "./work";

const SMALL = 1000;
const LARGE = 4 * SMALL;

/** So many times the work, at most, for four times as many messages; sixteen would be quadratic. */
const MOST = 6;

interface Flood {
  /** What is folded first. */
  begin: (view: View) => Envelope[];
  next: (view: View, number: number) => Envelope;
}

function workOf(flood: Flood, size: number): number {
  // As many items are kept as are folded, so a step that looks at all of them would show.
  const view = new View({ maxItems: size });
  for (const envelope of flood.begin(view)) view.fold(envelope);
  const isLogged = flood.next(view, 0).seq !== undefined;
  const envelopes = Array.from({ length: 2 * size }, (_, number) => {
    const envelope = flood.next(view, number);
    return isLogged ? { ...envelope, seq: number + 1000 } : envelope;
  });
  // The first half fills the view, and the second drops an old item for each new one.
  for (const envelope of envelopes.slice(0, size)) view.fold(envelope);
  return countWork(() => {
    for (const envelope of envelopes.slice(size)) view.fold(envelope);
  });
}

function expectLinear(flood: Flood): void {
  const small = workOf(flood, SMALL);
  expect(small).toBeGreaterThan(SMALL);
  expect(workOf(flood, LARGE) / small).toBeLessThan(MOST);
}

const people = [person("ann", ["admin"]), person("ben", ["approver"]), agent("bot")];
const begin = (view: View) => [message(view, "system", "session.welcome", welcome("ann", people), { seq: null })];

/** A command that runs. */
function running(view: View): Envelope[] {
  return [
    ...begin(view),
    message(view, "bot", "tool.propose", proposal("make"), { id: "run", seq: 1 }),
    message(view, "system", "tool.execute", grant("run", { command: { form: "shell", line: "make" } }), { seq: 2 }),
  ];
}

/** Messages that differ only in their ids are made of one, because making them takes longest. */
function repeated(make: (view: View) => Envelope): Flood {
  let template: Envelope | undefined;
  return {
    begin,
    next: (view, number) => {
      template ??= make(view);
      return { ...template, id: `n${number}` };
    },
  };
}

test("prompts", () => {
  const prompt = { content: "hello", target_agent: "bot", contributors: [], context_keys: [] };
  expectLinear(repeated((view) => message(view, "ann", "prompt.submit", prompt)));
});

test("answers that never end", () => {
  expectLinear(repeated((view) => message(view, "bot", "response.start", { agent: "bot", prompt_ref: "p" })));
});

test("pieces of answers whose beginning was never received", () => {
  const flood = repeated((view) => message(view, "bot", "response.chunk", { text: "x" }));
  expectLinear({ ...flood, next: (view, number) => ({ ...flood.next(view, number), ref: `start-${number}` }) });
});

test("pieces of one answer", () => {
  const flood = repeated((view) => message(view, "bot", "response.chunk", { text: "some words " }, { ref: "start" }));
  const start = (view: View) => message(view, "bot", "response.start", { agent: "bot", prompt_ref: "p" }, { id: "start" });
  expectLinear({ ...flood, begin: (view) => [...begin(view), start(view)] });
});

test("output of one command", () => {
  const flood = repeated((view) => message(view, "bot", "tool.output", output("run", "stdout", "a line of output\n".repeat(8))));
  expectLinear({ ...flood, begin: running });
});

test("output of two streams in turns", () => {
  const made = ["stdout", "stderr"].map((stream) => message(new View(), "bot", "tool.output", output("run", stream, "x")));
  expectLinear({ begin: running, next: (_, number) => made[number % 2] as Envelope });
});

test("commands", () => {
  expectLinear(repeated((view) => message(view, "bot", "tool.propose", proposal("make"))));
});

test("commands that are blocked at once", () => {
  const blocked = { category: "blocked", risk: "critical", rule: "r", reason: "", profile: "none", digest: "0".repeat(64), policy: "" };
  expectLinear(repeated((view) => message(view, "bot", "tool.propose", proposal("make", { assessment: blocked }))));
});

test("presence of participants", () => {
  const presence = { participant: "ben", status: "away", last_active: "2026-01-01T00:00:00.000Z" };
  expectLinear(repeated((view) => message(view, "system", "presence.update", presence)));
});

test("a long history is folded with what it keeps in sight", () => {
  const flood = repeated((view) => message(view, "ann", "session.leave", { reason: "bye", connection_lost: true }));
  // A screen reads the items now and then while they arrive.
  const reading = (size: number) => {
    const view = new View({ maxItems: 5000 });
    let seen = 0;
    for (let number = 0; number < size; number += 1) {
      view.fold({ ...flood.next(view, number), seq: number + 1 });
      if (number % 64 === 0) seen += view.stream.items.length;
    }
    return { seen, view };
  };
  const { view } = reading(20_000);
  expect([view.stream.length, view.stream.dropped]).toEqual([5000, 15_000]);
  expect(view.stream.items.map((item) => item.seq).slice(0, 2)).toEqual([15_001, 15_002]);
});
