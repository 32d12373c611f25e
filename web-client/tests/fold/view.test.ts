import { expect, test } from "vitest";
import { amendArguments, mayVote, parseServerMessage, requestedAtGate, View } from "../../src/fold";
import type { Card, Envelope } from "../../src/fold";
import { agent, assessment, AT, DIGEST, fold, gateRequest, grant, message, output, person, proposal, welcome } from "./messages";

const PEOPLE = [person("ann", ["admin"]), person("ben", ["approver"]), person("cy", ["observer"]), agent("bot")];

function viewOf(me: string, more: object = {}): View {
  const view = new View();
  fold(view, "system", "session.welcome", welcome(me, PEOPLE, more), { seq: null });
  return view;
}

function openGate(view: View, command = "touch a", more: object = {}): Card {
  const id = fold(view, "bot", "tool.propose", proposal(command));
  fold(view, "system", "gate.request", gateRequest(id, more));
  const card = view.card(id);
  if (card === undefined) throw new Error("no card");
  return card;
}

test("who may vote, and why not", () => {
  expect(openGate(viewOf("ann")).standing).toBe("may_vote");
  expect(openGate(viewOf("cy")).standing).toBe("not_an_approver");
  expect(openGate(viewOf("bot")).standing).toBe("proposer");
  expect(openGate(viewOf("dan")).standing).toBe("not_here");
  const view = viewOf("ben");
  const card = openGate(view);
  fold(view, "ben", "gate.approve", { gate: card.proposal, approver: "ben" });
  expect(card.standing).toBe("approved");
  expect(mayVote(card.standing)).toBe(true);
  fold(view, "ben", "gate.reject", { gate: card.gate, rejector: "ben", reason: "no" });
  expect(card.standing).toBe("may_vote");
  fold(view, "system", "gate.timeout", {
    gate: card.proposal,
    approvals_received: 0,
    approvals_required: 1,
    resolution: "escalated",
    deadline: "2026-01-01T00:01:00.000Z",
  });
  expect(card.standing).toBe("admins_only");
  expect(Date.parse(card.deadline ?? "") - Date.parse(AT)).toBe(60_000);
  expect(mayVote(card.standing)).toBe(false);
});

test("a token that allows less than its owner may do does not vote", () => {
  const view = viewOf("ann", { roles: ["observer"], capabilities: [] });
  expect(view.me?.may_approve).toBe(false);
  expect(openGate(view).standing).toBe("not_an_approver");
});

test("a command that is too long to be shown whole cannot be approved", () => {
  expect(openGate(viewOf("ann"), "x".repeat(300_000)).standing).toBe("not_shown_whole");
});

test("an approval of whom another approver invited is not one more", () => {
  const people = [person("ann", ["admin"]), person("eve", ["approver"], { invited_by: "ann" }), agent("bot")];
  const view = new View();
  fold(view, "system", "session.welcome", welcome("ann", people), { seq: null });
  const card = openGate(view, "touch a", { quorum: { type: "any", count: 2 }, voters: ["ann", "eve"] });
  expect(card.undecided).toEqual(["ann", "eve"]);
  for (const approver of ["ann", "eve"]) fold(view, approver, "gate.approve", { gate: card.gate, approver });
  expect([card.received, card.required]).toEqual([1, 2]);
  expect({ ...card.not_counted }).toEqual({ eve: "ann" });
});

test("an edit voids the votes and binds later ones to the edited command", () => {
  const view = viewOf("ann");
  const card = openGate(view, "touch a");
  fold(view, "ben", "gate.approve", { gate: card.gate, approver: "ben" });
  const digest = "1".repeat(64);
  fold(view, "ann", "gate.amend", {
    gate: card.gate,
    arguments: amendArguments(card, "touch b"),
    digest: DIGEST,
    assessment: assessment("write", digest),
  });
  expect([card.command, card.digest, card.received, card.edited_by]).toEqual(["touch b", digest, 0, "ann"]);
  expect(view.proposal(card.proposal)?.earlier).toEqual([
    {
      shown: "touch a",
      category: "write",
      sensitive_read: false,
      digest: DIGEST,
      void_votes: ["ben"],
      edited_by: "ann",
      edited_at: AT,
      reason: null,
    },
  ]);
});

test("a command is found by its gate and by its own id", () => {
  const view = viewOf("ann");
  const card = openGate(view);
  fold(view, "bot", "tool.propose", proposal("ls"), { id: "p2" });
  expect(view.proposalAtGate(card.gate)?.id).toBe(card.proposal);
  expect(view.proposalAtGate(card.proposal)?.id).toBe(card.proposal);
  expect(view.proposalAtGate("p2")?.id).toBe("p2");
  expect(view.proposalAtGate("g2")).toBeUndefined();
  expect(view.proposalsOf("bot").map((it) => it.id)).toEqual([card.proposal, "p2"]);
});

test("the past ends at the head of the welcome", () => {
  const view = viewOf("ann", { head: 2 });
  expect(view.isReplaying).toBe(true);
  expect(view.knownHead).toBe(2);
  fold(view, "bot", "tool.propose", proposal("ls"));
  expect(view.isReplaying).toBe(true);
  fold(view, "bot", "tool.propose", proposal("ls"), { seq: 3 });
  expect(view.isReplaying).toBe(false);
  expect([view.isHistory(2), view.isHistory(3), view.isHistory(null)]).toEqual([true, false, false]);
});

test("names and ids of others are never taken for properties", () => {
  const view = viewOf("ann");
  expect(view.displayName("constructor")).toBe("constructor");
  expect(view.people["toString"]).toBeUndefined();
  fold(view, "system", "participant.announce", person("constructor", ["approver"]));
  expect(view.displayName("constructor")).toBe("CONSTRUCTOR");
  fold(view, "ann", "context.add", { key: "__proto__", content_type: "text", content: "é" });
  expect(Object.keys(view.context)).toEqual(["__proto__"]);
  expect(({} as Record<string, unknown>).bytes).toBeUndefined();
  expect(view.snapshot().people.constructor).toMatchObject({ id: "constructor" });
});

test("messages of another session, and messages that were folded, are ignored", () => {
  const view = viewOf("ann");
  openGate(view);
  const before = view.snapshot();
  view.fold(message(view, "bot", "tool.propose", proposal("ls"), { session: "other" }));
  view.fold(message(view, "bot", "tool.propose", proposal("ls"), { seq: 1 }));
  expect(view.snapshot()).toEqual(before);
});

test("what changes says so, and what does not change does not", () => {
  const view = viewOf("ann");
  const [first, second] = [openGate(view), openGate(view, "touch b")];
  const [one, other] = [view.proposal(first.proposal), view.proposal(second.proposal)];
  const versions = () => [first.version, second.version, one?.version, other?.version];
  const before = versions();
  fold(view, "ben", "gate.approve", { gate: first.gate, approver: "ben" });
  const after = versions();
  expect(after[0]).toBeGreaterThan(before[0] ?? 0);
  expect(after[1]).toBe(before[1]);
  expect(view.card(first.gate)).toBe(first);
  fold(view, "system", "presence.update", { participant: "cy", status: "idle", last_active: AT });
  expect(versions().slice(0, 2), "nobody's vote changed").toEqual(after.slice(0, 2));
  fold(view, "system", "tool.execute", grant(second.proposal, { command: { form: "shell", line: "touch b" } }));
  const granted = versions();
  expect(granted[3]).toBeGreaterThan(after[3] ?? 0);
  expect(granted[2]).toBe(after[2]);
  fold(view, "bot", "tool.output", output(second.proposal, "stdout", "hello"));
  expect(versions()[3]).toBeGreaterThan(granted[3] ?? 0);
  const { ann } = view.people;
  const seen = ann?.version ?? 0;
  fold(view, "system", "participant.role_change", {
    participant: "ann",
    old_roles: ["admin"],
    new_roles: ["driver"],
    changed_by: "ben",
  });
  expect(view.people.ann).toBe(ann);
  expect(ann?.version).toBeGreaterThan(seen);
});

test("an item that grows is another object with the same place, and the others stay", () => {
  const view = viewOf("ann");
  const prompt = fold(view, "ann", "prompt.submit", { content: "hi", target_agent: "bot", contributors: [], context_keys: [] });
  const start = fold(view, "bot", "response.start", { agent: "bot", prompt_ref: prompt });
  const [first, before] = view.stream.items;
  fold(view, "bot", "response.chunk", { text: "é" }, { ref: start });
  const [same, after] = view.stream.items;
  expect(same).toBe(first);
  expect(after).not.toBe(before);
  expect(after?.version).toBeGreaterThan(before?.version ?? 0);
  expect(after).toMatchObject({ id: start, text: "é", open: true });
  expect(before).toMatchObject({ text: "" });
  fold(view, "bot", "response.end", { finish_reason: "complete" }, { ref: start });
  expect(view.timelineItem(start)).toMatchObject({ text: "é", open: false, finish_reason: "complete" });
});

test("a message of an unknown type, or of an unknown form, moves the head and nothing else", () => {
  const view = viewOf("ann");
  openGate(view);
  const before = view.snapshot();
  for (const [type, payload] of [
    ["gate.shake", { gate: "x" }],
    ["gate.resolve", { gate: "x", outcome: "shrugged" }],
  ] as const) {
    const text = JSON.stringify({ v: 1, id: "x", ts: AT, session: "s", sender: "system", type, payload, seq: view.head + 1 });
    view.fold(parse(text));
  }
  expect(view.head).toBe(before.head + 2);
  expect({ ...view.snapshot(), head: before.head }).toEqual(before);
});

test("a gate of the API is described as a card is", () => {
  const view = viewOf("ann");
  const card = openGate(view, "rm \u202ex", { trial: { denied: ["write x"] } });
  const requested = requestedAtGate({
    gate: card.gate,
    request: { ...gateRequest(card.proposal), trial: { denied: ["write x"] } } as never,
    action: { command: { form: "shell", line: "rm \u202ex" }, mode: "normal" },
    assessment: assessment("write") as never,
    proposer: "bot",
    description: "because",
    approvals: [],
    escalated: false,
  });
  expect(requested).toEqual(card.requested);
  expect(requested?.shown).toBe("rm \\u{202e}x");
  expect(requestedAtGate({} as never)).toBeNull();
});

test("the items kept can be more than by default", () => {
  const view = new View({ maxItems: 5000 });
  for (let round = 0; round < 6000; round += 1) fold(view, "ann", "session.leave", { reason: `${round}` });
  expect([view.stream.length, view.stream.items.length, view.stream.dropped]).toEqual([5000, 5000, 1000]);
  expect(view.stream.items[0]).toMatchObject({ reason: "1000" });
  expect(view.stream.items.at(-1)).toMatchObject({ reason: "5999" });
});

function parse(text: string): Envelope {
  const envelope = parseServerMessage(text);
  if (envelope?.type !== "unknown") throw new Error(`known: ${text}`);
  return envelope;
}
