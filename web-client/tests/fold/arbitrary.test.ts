// Whatever arrives, in whatever order, a view neither throws nor grows without bound.

import { expect, test } from "vitest";
import { parseServerMessage, readServerMessage, View } from "../../src/fold";
import type { Envelope } from "../../src/fold";
import { MAX_HISTORY, MAX_PROPOSALS } from "../../src/fold/commands";
import { MAX_CARDS } from "../../src/fold/gates";
import { MAX_PARTICIPANTS } from "../../src/fold/participants";
import { MAX_ITEM_BYTES, MAX_ITEMS } from "../../src/fold/timeline";
import { agent, assessment, AT, fold, gateRequest, grant, message, output, person, proposal, welcome } from "./messages";
import { Random, randomSequence, stories } from "./random_messages";

/** The size of a view as JSON, in characters. Most of it is output. */
const MAX_VIEW_LENGTH = 64 * 1024 * 1024;

function expectBounded(view: View): void {
  const sizes = {
    stream: [view.stream.items.length, MAX_ITEMS],
    commands: [view.commands.length, MAX_PROPOSALS],
    history: [view.history.length, MAX_HISTORY],
    gates: [view.gates.length, MAX_CARDS],
    resolved: [view.resolved.length, 100],
    rules: [view.rules.length, 200],
    people: [Object.keys(view.people).length, MAX_PARTICIPANTS],
    drafts: [Object.keys(view.drafts).length, 200],
    secrets: [Object.keys(view.secrets).length, 200],
    context: [Object.keys(view.context).length, 2000],
    interrupts: [view.interrupts.length, 256],
  };
  for (const [name, [size = 0, most = 0]] of Object.entries(sizes)) expect(size, name).toBeLessThanOrEqual(most);
  expect([view.peopleCount, view.contextCount]).toEqual([sizes.people[0], sizes.context[0]]);
  expect([view.commandsById.size, view.inHistory.size]).toEqual([sizes.commands[0], sizes.history[0]]);
}

test.each([1, 2, 3, 4, 5, 6])("no sequence of messages breaks a view: %i", (seed) => {
  const random = new Random(seed * 7919);
  for (let round = 0; round < 40; round += 1) {
    const length = 10 + random.below(200);
    const messages = randomSequence(random, { length, garbledOneIn: 1 + random.below(6) });
    const view = new View();
    const envelopes = messages.map((message) => parseServerMessage(JSON.stringify(message)));
    for (const envelope of envelopes) if (envelope !== null) view.fold(envelope);
    expectBounded(view);
    for (const card of view.gates) expect(view.proposal(card.proposal), "a card has its command").toBeDefined();
    const before = view.snapshot();
    for (const envelope of envelopes) if (envelope?.seq !== undefined) view.fold(envelope);
    expect(view.snapshot()).toEqual(before);
  }
});

test("no text breaks the parser", () => {
  const random = new Random(99);
  for (const line of stories.flat().map((message) => JSON.stringify(message))) {
    const end = random.below(line.length);
    expect(parseServerMessage(line.slice(0, end)), "a message that is cut off").toBeNull();
    const at = random.below(line.length);
    const garbled = line.slice(0, at) + random.pick(["\ud83e", '"', "\\", "{", "]", ",", "\0", "é", "1.0"]) + line.slice(at + 1);
    const envelope = parseServerMessage(garbled);
    if (envelope !== null) new View().fold(envelope);
  }
  for (const text of ["", "null", "[]", "7", '"x"', "{}", '{"v":1}', "[".repeat(100_000), "\ufeff{}"]) {
    expect(parseServerMessage(text), text.slice(0, 20)).toBeNull();
  }
});

test("no value breaks the check of a message", () => {
  const random = new Random(4);
  for (let round = 0; round < 2000; round += 1) {
    const message = structuredClone(random.pick(random.pick(stories)));
    message[random.pick(Object.keys(message))] = random.value();
    const envelope = readServerMessage(message);
    if (envelope !== null) new View().fold(envelope);
  }
  for (const value of [undefined, null, 1, "x", [], () => 1, Symbol("x"), 1n, new Date()]) {
    expect(readServerMessage(value)).toBeNull();
  }
});

test("another version of the protocol, or an id in another form, is no message", () => {
  const message = { v: 1, id: "a", ts: AT, session: "s", sender: "ann", type: "heartbeat.ping", payload: {} };
  expect(readServerMessage(message)?.type).toBe("heartbeat.ping");
  for (const wrong of [{ v: 2 }, { id: "" }, { id: "-a" }, { id: "x".repeat(129) }, { sender: "é" }, { seq: -1 }, { seq: 1.5 }, { payload: [] }, { ts: "now" }]) {
    expect(readServerMessage({ ...message, ...wrong }), JSON.stringify(wrong)).toBeNull();
  }
  expect(readServerMessage({ ...message, type: "constructor" })?.type).toBe("unknown");
  expect(readServerMessage({ ...message, ts: undefined })?.ts).toBe("1970-01-01T00:00:00.000Z");
});

test("a flood of small messages stays bounded", () => {
  const view = new View();
  const all = stories.flat();
  for (let round = 1; round < 15_000; round += 1) {
    const told = all[round % all.length] as { [key: string]: object | number | undefined };
    const id = `m${round - (round % 7)}`;
    const payload: object = { ...(told.payload as object), tool_proposal: id, action_ref: id, key: `key ${round}` };
    const seq = told.seq === undefined ? undefined : view.head + 1;
    const envelope = readServerMessage({ ...told, id, session: "s", seq, payload });
    if (envelope !== null) view.fold(envelope);
  }
  expectBounded(view);
  expect(view.stream.dropped).toBeGreaterThan(0);
  expect(JSON.stringify(view.snapshot()).length).toBeLessThan(8 * 1024 * 1024);
}, 60_000);

test("participants are bounded, and those who left are dropped first", () => {
  const view = new View();
  for (let number = 0; number < 1500; number += 1) {
    fold(view, `p${number}`, "participant.announce", person(`p${number}`, ["approver"]));
    fold(view, `p${number}`, "prompt.draft", { content: "x", contributors: [] }, { seq: null });
    if (number % 3 > 0) fold(view, `p${number}`, "session.leave", {});
  }
  expect(Object.keys(view.people).length).toBe(MAX_PARTICIPANTS);
  expect(view.present().length).toBe(500);
  expectBounded(view);
});

test("a flood of large texts stays bounded", () => {
  const view = new View();
  const large = "é".repeat(150_000);
  const body = { tool_proposal: "x", success: false, duration_ms: 1, error: large, signal: large };
  const about = [
    message(view, "bot", "tool.propose", proposal(large, { description: large })),
    message(view, "system", "tool.execute", grant("x", { command: { form: "shell", line: large } })),
    message(view, "bot", "tool.output", output("x", "stdout", large)),
    message(view, "bot", "tool.output", output("x", "stderr", large)),
    message(view, "bot", "tool.result", body),
  ];
  const others = [
    message(view, "ann", "prompt.submit", { content: large, target_agent: "bot", contributors: [], context_keys: [large] }),
    message(view, "bot", "thinking.start", { agent: "bot", prompt_ref: "x", visible_to: "all" }),
    message(view, "bot", "thinking.chunk", { text: large }),
    message(view, "bot", "thinking.end", { summary: large }),
    message(view, "ann", "session.end", { reason: large, final_state: "aborted" }),
    message(view, "system", "error", { code: "TIMEOUT", message: large, recoverable: true }),
    message(view, "ann", "policy.allow", { prefix: [large], expires_at: AT, reason: large }),
  ];
  const next = (template: Envelope, payload: object, id: string) =>
    view.fold({ ...template, id, seq: view.head + 1, payload: { ...template.payload, ...payload } } as Envelope);
  for (let number = 0; number < MAX_PROPOSALS + 10; number += 1) {
    for (const template of about) next(template, { tool_proposal: `p${number}` }, `p${number}`);
    if (number % 6 === 0) for (const template of others) next(template, {}, `o${view.head}`);
    if (number % 30 > 0) continue;
    fold(view, "ann", "session.config_update", { changes: { [`x${number}`]: large }, reason: large });
    fold(view, "ann", "context.add", { key: `${number}${large}`, content_type: "text", content: large });
    fold(view, "ann", "secret.share", { key: `${number}${large}`, scope: [], value_ref: large });
  }
  expectBounded(view);
  expect(view.commands.length).toBe(MAX_PROPOSALS);
  expect(view.commands.every((command) => command.state === "finished" && command.output.dropped_bytes > 0)).toBe(true);
  expect(JSON.stringify(view.snapshot()).length).toBeLessThan(MAX_VIEW_LENGTH);
}, 60_000);

test("the texts of the timeline are bounded together and one by one", () => {
  const view = new View();
  const text = "é".repeat(200_000);
  for (let number = 0; number < 80; number += 1) {
    fold(view, "ann", "prompt.submit", { content: text, target_agent: "bot", contributors: [], context_keys: [] });
  }
  expect(view.stream.items[0]).toMatchObject({ cut_bytes: 400_000 - MAX_ITEM_BYTES });
  expect(view.stream.length).toBe((8 * 1024 * 1024) / MAX_ITEM_BYTES);
  expect(view.stream.dropped).toBe(80 - view.stream.length);
});

test("notes of trials, versions and votes of one command stay bounded", () => {
  const view = new View();
  const people = [person("ann", ["admin"]), agent("bot")];
  fold(view, "system", "session.welcome", welcome("ann", people), { seq: null });
  const id = fold(view, "bot", "tool.propose", proposal("touch a"));
  for (let number = 0; number < 2000; number += 1) {
    fold(view, "system", "gate.request", gateRequest(id, { trial: { denied: [`write ${number}`] } }), { id: "g" });
    fold(view, `p${number}`, "gate.approve", { gate: "g", approver: `p${number}` });
    if (number % 50 > 0 || number > 1500) continue;
    const edit = { arguments: { full_command: `touch ${number}` }, digest: "0".repeat(64) };
    fold(view, "ann", "gate.amend", { gate: "g", ...edit, assessment: assessment("write", `${number % 9}`.repeat(64)) });
  }
  const command = view.proposal(id);
  expect(command?.earlier?.length).toBe(10);
  expect(command?.assessment?.notes?.length ?? 0).toBeLessThan(200);
  expect(command?.logged.approvedBy.length).toBeLessThanOrEqual(1000);
});

test("settings that are not known stay bounded", () => {
  const view = new View();
  for (let number = 0; number < 500; number += 1) {
    fold(view, "ann", "session.config_update", { changes: { [`later_${number}`]: "x".repeat(2000), solo: true }, reason: "" });
  }
  expect(JSON.stringify(view.config).length).toBeLessThan(100_000);
  expect(view.config.solo).toBe(true);
});
