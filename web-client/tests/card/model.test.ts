// @vitest-environment happy-dom
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Action, FileContent, GateListItem } from "@protocol";
import { canEdit, editableText, editedArguments, hasInexactNumber } from "../../src/card/amend";
import { parsePrefix } from "../../src/card/allow_rule";
import { pairedRows, unifiedRows } from "../../src/card/diff_rows";
import { pieces } from "../../src/card/highlight";
import { cardOfGate, cardOfView } from "../../src/card/model";
import { awaitsVoteOf, gateAfter, sortGates } from "../../src/card/order";
import { displayNames } from "../../src/card/session_facts";
import type { SessionFacts } from "../../src/card/session_facts";
import { escapeInvisible } from "../../src/fold";
import type { GateCard, ParticipantView, RequestedAction, View, ViewData } from "../../src/fold";
import { actionFromArguments } from "../../src/fold/action";
import { parseJson } from "../../src/fold/json";
import { gateItem, openDetails } from "./support";

const STORIES = join(import.meta.dirname, "../../../tests/transcripts");

interface Told {
  type: string;
  id: string;
  payload: Record<string, unknown>;
}

interface Story {
  name: string;
  view: ViewData;
  told: Told[];
}

/** The stories that end with open gates. */
const stories: Story[] = readdirSync(STORIES)
  .filter((file) => file.endsWith(".view.json"))
  .map((file) => {
    const name = file.replace(".view.json", "");
    const lines = readFileSync(join(STORIES, `${name}.told.jsonl`), "utf8").trim().split("\n");
    return {
      name,
      view: JSON.parse(readFileSync(join(STORIES, file), "utf8")) as ViewData,
      told: lines.map((line) => parseJson(line) as Told),
    };
  })
  .filter((story) => story.view.gates.length > 0);

const gates = stories.flatMap((story) => story.view.gates.map((gate) => [`${story.name}: ${gate.shown}`, story, gate] as const));

/** The view of a golden file, with the one question that a card asks it. */
function viewOf(data: ViewData): View {
  const proposal = (id: string) => data.commands.find((command) => command.id === id);
  return { ...data, proposal } as unknown as View;
}

/** The gate as `GET /api/gates` would list it, made from the messages of the story. */
function listed(story: Story, card: GateCard): { item: GateListItem; contents: FileContent[] } | null {
  const welcomed = story.told.flatMap((message) => (message.payload.gates as GateListItem[] | undefined) ?? []).findLast((gate) => gate.gate === card.gate);
  const proposed = story.told.find((message) => message.id === card.proposal);
  const amended = story.told.findLast((message) => message.type === "gate.amend" && message.payload.gate === card.gate);
  const args = (amended ?? proposed)?.payload.arguments as Record<string, unknown> | undefined;
  const tool = (proposed?.payload.tool_name as string | undefined) ?? "shell";
  const action = args === undefined ? (welcomed?.action ?? ownCommand(proposed)) : (actionFromArguments(tool, args) as Action);
  if (action === null) return null;
  const { gate, proposal, digest, category, quorum, voters, on_timeout, received, required, awaited, escalated } = card;
  const base = gateItem();
  return {
    contents: (proposed?.payload.file_contents as FileContent[] | undefined) ?? [],
    item: {
      ...base,
      session: story.view.session ?? "",
      gate,
      action,
      assessment: card.assessment!,
      proposer: card.proposer ?? "",
      description: card.purpose,
      approvals: Object.values(card.votes),
      request: { ...base.request, action_ref: proposal, digest, category, quorum, voters, on_timeout, ...(card.deadline === null ? {} : { deadline: card.deadline }) },
      received,
      required,
      awaited,
      escalated,
      not_counted: card.not_counted ?? {},
      may_vote: card.standing === "may_vote" || card.standing === "approved",
      ...(card.edited_by === null ? {} : { amended_by: card.edited_by }),
      ...(card.degree === undefined ? {} : { degree: card.degree }),
      ...(card.client === undefined ? {} : { origin: card.client }),
    },
  };
}

function ownCommand(message: Told | undefined): Action | null {
  if (message?.type !== "shell.exec") return null;
  const { command, timeout_seconds, cwd } = message.payload as { command: string; timeout_seconds?: number; cwd?: string };
  return { command: { form: "login_shell", line: command }, mode: "normal", ...(timeout_seconds === undefined ? {} : { timeout_seconds }), ...(cwd === undefined ? {} : { cwd }) };
}

function factsOf(view: ViewData): SessionFacts {
  return {
    me: view.me?.participant ?? null,
    kind: "human",
    roles: view.me?.roles ?? [],
    names: displayNames(Object.values(view.people)),
    config: view.config,
    executor: (id) => (view.people[id] as ParticipantView | undefined)?.executor ?? null,
  };
}

/** What only the proposal says, and a list of gates does not. */
function withoutStated(requested: RequestedAction): unknown {
  const { command, shown, hidden, cut_bytes, form, argv, tool, call, cwd, env, mode, timeout_seconds, driver, secrets, files, purpose, assessment, prefix, edited_by, proposer } = requested;
  const plainCall = call === undefined ? undefined : { ...call, stated_category: null };
  return JSON.parse(JSON.stringify({ command, shown, hidden, cut_bytes, form, argv, tool, call: plainCall, cwd, env, mode, timeout_seconds, driver, secrets, files, purpose, assessment, prefix, edited_by, proposer }));
}

describe("the gates of the golden transcripts", () => {
  test("there are many", () => expect(gates.length).toBeGreaterThan(15));

  test.each(gates)("%s", (_, story, golden) => {
    const fromView = cardOfView(golden, viewOf(story.view));
    expect(fromView).toMatchObject({ gate: golden.gate, digest: golden.digest, standing: golden.standing, received: golden.received, required: golden.required });
    expect(fromView.deadline).toBe(golden.deadline === null ? null : Date.parse(golden.deadline));

    const made = listed(story, golden);
    expect(made).not.toBeNull();
    const { item, contents } = made!;
    const card = cardOfGate(item, openDetails(item, { file_contents: contents }), factsOf(story.view));
    expect(withoutStated(card.requested)).toEqual(withoutStated(golden));
    expect(card.standing).toBe(golden.standing);
    expect(card.prefixOffer).toBe(golden.allow_prefix);
    // Who runs a person's own command is not in the list of gates.
    if (golden.form !== "login_shell") expect(card.directory).toBe(fromView.directory);
    expect(card.atDeadline).toBe(fromView.atDeadline);
    expect([...card.names]).toEqual([...fromView.names]);
  });

  test("an edit shows what was before, from the view as from the API", () => {
    const story = stories.find(({ name }) => name === "an_edit_voids_the_votes")!;
    const card = cardOfView(story.view.gates[0]!, viewOf(story.view));
    expect(card.earlier).toEqual([
      { shown: "rm -rf build cache", category: "destructive", voidVotes: ["bob"], editedBy: "cat", editedAt: "2026-01-01T00:00:02.000Z", reason: "keep the cache" },
    ]);
  });

  test("the pieces of every command are the whole command, escaped", () => {
    for (const [, , gate] of gates) {
      const shown = pieces(gate.command, gate.assessment?.parts ?? []).map((piece) => piece.text).join("");
      expect(shown).toBe(escapeInvisible(gate.command));
    }
  });
});

describe("the parts of a command", () => {
  const part = (start: number, end: number, category: "read" | "destructive") => ({ start, end, text: "", category, rule: "", reason: "" });

  test("spans are counted in bytes, and the innermost part wins", () => {
    const found = pieces("é $(rm x) 🦀 ls", [part(0, 10, "read"), part(5, 9, "destructive"), part(16, 18, "read")]);
    expect(found.map(({ text, category }) => [text, category])).toEqual([
      ["é $(", "read"],
      ["rm x", "destructive"],
      [")", "read"],
      [" 🦀 ", null],
      ["ls", "read"],
    ]);
  });

  test("spans that fit no characters hide nothing", () => {
    const line = "é ls\u202e";
    for (const spans of [[part(1, 3, "read"), part(0, 99, "read")], [part(5, 2, "read"), part(-1, 1, "read")], [part(0, 0, "read"), part(0, 0, "read")]]) {
      expect(pieces(line, spans).map((piece) => piece.text).join("")).toBe("é ls\\u{202e}");
    }
  });

  test("a text that looks like an escape is told from a real one", () => {
    const found = pieces("\\u{202e}\u202e", []);
    expect(found.map(({ text, isEscaped }) => [text, isEscaped])).toEqual([
      ["\\u{202e}", false],
      ["\\u{202e}", true],
    ]);
  });
});

describe("the order of the inbox", () => {
  const items = [
    gateItem({ gate: "019a-1", category: "write", risk: "low" }),
    gateItem({ gate: "019a-2", category: "destructive", risk: "high" }),
    gateItem({ gate: "019a-3", category: "write", risk: "medium" }),
    gateItem({ gate: "019a-4", category: "destructive", risk: "high" }),
    gateItem({ gate: "019a-5", category: "destructive", rest: { may_vote: false } }),
    gateItem({ gate: "019a-6", category: "destructive", rest: { approvals: [{ participant: "bob", at: "" }] } }),
  ];

  test("mine first, the worst on top, of equals the newest", () => {
    const sorted = sortGates(items, "bob");
    expect(sorted.mine.map((item) => item.gate)).toEqual(["019a-4", "019a-2", "019a-3", "019a-1"]);
    expect(sorted.others.map((item) => item.gate)).toEqual(["019a-6", "019a-5"]);
    expect(items.filter((item) => awaitsVoteOf(item, "ann"))).toHaveLength(5);
  });

  test("after a decision comes the next one, and after the last the first", () => {
    expect(gateAfter(items, "bob", items[1]!)?.gate).toBe("019a-3");
    expect(gateAfter(items, "bob", items[0]!)?.gate).toBe("019a-4");
    expect(gateAfter(items.slice(0, 1), "bob", items[0]!)).toBeNull();
  });
});

describe("edits", () => {
  const tool = (args: string): RequestedAction => ({ ...cardOfGate(gateItem(), null, factsOf(stories[0]!.view)).requested, form: "tool", tool: "t", command: `t ${args}` });

  test("numbers that a browser would change are noticed", () => {
    for (const exact of ["1", "-0.5", "1e3", "1.50", '{"a": "9007199254740993"}', "[9007199254740991, 0, -0]", "0.1"]) expect(hasInexactNumber(exact), exact).toBe(false);
    for (const inexact of ["9007199254740993", "[1, 0.10000000000000000001]", '{"a": -12345678901234567890}', "1e400"]) expect(hasInexactNumber(inexact), inexact).toBe(true);
  });

  test("a call with such a number is not edited here", () => {
    expect(canEdit(tool('{"amount":9007199254740993}'))).toBe(false);
    expect(canEdit(tool('{"amount":1}'))).toBe(true);
  });

  test("a call is edited as readable JSON, and must stay an object", () => {
    expect(editableText(tool('{"a":{"b":1}}'))).toBe('{\n  "a": {\n    "b": 1\n  }\n}');
    expect(editedArguments(tool('{"a":1}'), "[1]")).toEqual({ problem: "not_an_object" });
    expect(editedArguments(tool('{"a":1}'), '{"a": 2}')).toEqual({ arguments: { a: 2 } });
  });

  test("a prefix is plain words", () => {
    expect(parsePrefix("  npm \t run ")).toEqual({ words: ["npm", "run"] });
    expect(parsePrefix(" ")).toEqual({ problem: "empty" });
    for (const bad of ["make; rm", "a|b", "$(x)", "'a b'", "a*", "~/x", "a>b"]) expect(parsePrefix(bad)).toMatchObject({ problem: "shell_characters" });
  });
});

describe("a diff", () => {
  const line = (kind: "context" | "added" | "removed", text: string) => ({ kind, text });
  const hunk = { old_start: 7, new_start: 7, lines: [line("context", "a"), line("removed", "b"), line("removed", "c"), line("added", "d"), line("context", "e"), line("added", "f")] };

  test("lines are numbered on both sides", () => {
    expect(unifiedRows(hunk).map((row) => [row.old, row.new, row.line.text])).toEqual([
      [7, 7, "a"],
      [8, null, "b"],
      [9, null, "c"],
      [null, 8, "d"],
      [10, 9, "e"],
      [null, 10, "f"],
    ]);
  });

  test("side by side, a change stands beside what it replaces", () => {
    expect(pairedRows(hunk).map((row) => [row.left?.line.text ?? null, row.right?.line.text ?? null])).toEqual([
      ["a", "a"],
      ["b", "d"],
      ["c", null],
      ["e", "e"],
      [null, "f"],
    ]);
  });
});
