// @vitest-environment happy-dom
// Names and words of others that want to be taken for something else.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { offeredReadRoots } from "../../src/card/AllowForm";
import { Card } from "../../src/card/Card";
import { cardOfGate } from "../../src/card/model";
import { bareFacts } from "../../src/card/session_facts";
import { ComposerModel } from "../../src/composer/model";
import { View } from "../../src/fold";
import { ApiError } from "../../src/net/api";
import { Refused } from "../../src/net/connection";
import type { SessionConnection } from "../../src/net/connection";
import { announce, announcements } from "../../src/state/announcements";
import { nameOf } from "../../src/stream/parts";
import { displayNames, namesIn } from "../../src/ui/names";
import { gateItem, setUp, show, settle, text, unmount, click, get } from "../card/support";

beforeEach(setUp);
afterEach(() => {
  unmount();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a name", () => {
  const shown = (...names: string[]) => [...displayNames(names.map((name, at) => ({ id: `p-${at}`, name }))).values()];

  test.each([
    ["another script", "Alice", "\u0410lic\u0435"],
    ["a capital I for an l", "Alice", "AIice"],
    ["a digit", "Bob", "B0b"],
    ["two letters for one", "Tom", "Torn"],
    ["a mark above a letter", "Ann", "A\u0307nn"],
    ["a wide form", "Ann", "\uff21\uff4e\uff4e"],
    ["other blanks", "Ann Lee", "Ann_ Lee"],
    ["an end that is cut off", `${"x".repeat(60)}1`, `${"x".repeat(60)}2`],
  ])("that looks like another one by %s is shown with its id, and so is the other", (_, one, two) => {
    const [first, second] = shown(one, two);
    expect(first).toMatch(/ \(p-0\)$/);
    expect(second).toMatch(/ \(p-1\)$/);
  });

  test.each(["system", "Server", "the server", "PVP", "S\u0443stem", "Ann (ann-1)", "Ann (you)"])("%s, which could be the page's own word, is shown with its id", (name) => {
    expect(shown(name)[0]).toMatch(/ \(p-0\)$/);
  });

  test("of somebody who looks like nobody else is shown as it is", () => {
    expect(shown("Ann", "Björn", "Ольга", "田中")).toEqual(["Ann", "Björn", "Ольга", "田中"]);
  });

  test("is told apart in the stream too, as soon as somebody takes it", async () => {
    const view = new View();
    const people = view.people as unknown as Record<string, { id: string; name: string }>;
    people["ann-1"] = { id: "ann-1", name: "Ann" };
    expect(nameOf(view, "ann-1")).toBe("Ann");
    await Promise.resolve();
    people["eve-2"] = { id: "eve-2", name: "\u0410nn" };
    expect(nameOf(view, "ann-1")).toBe("Ann (ann-1)");
    await Promise.resolve();
    (people["eve-2"] as { name: string }).name = "Eve";
    expect(namesIn(view).get("eve-2")).toBe("Eve");
    expect(nameOf(view, "\u202e")).toBe("\\u{202e}");
  });

  test("that two agents have reaches neither of them by itself", () => {
    const sent: string[] = [];
    const agents = [
      { id: "bot-1", name: "bot" },
      { id: "bot-2", name: "bot" },
    ];
    const view = { agents: () => agents, me: { participant: "ann", may_prompt: true }, limits: null };
    const connection = { session: "s", view, send: (_: string, payload: { target_agent: string }) => (sent.push(payload.target_agent), Promise.resolve()) };
    const model = new ComposerModel(connection as unknown as SessionConnection, "ann");
    model.setText("@bot hello");
    model.submit();
    expect(sent).toEqual([]);
    expect(model.problem.value).toContain("@bot-1, @bot-2");
    model.setText("@bot-2 hello");
    model.submit();
    expect(sent).toEqual(["bot-2"]);
  });
});

describe("words", () => {
  test("of a server's refusal are inert and bounded", () => {
    for (const error of [new ApiError(403, "no \u202eevil\u200b"), new Refused("no \u202eevil\u200b", "UNAUTHORIZED")]) {
      expect(error.message).toBe("no \\u{202e}evil\\u{200b}");
    }
    expect(new ApiError(500, "x".repeat(1_000_000)).message.length).toBeLessThan(10_000);
  });

  test("that are announced are inert", () => {
    announce("Ann\u202e");
    expect(announcements.value.at(-1)?.text).toBe("Ann\\u{202e}");
  });
});

describe("a rule", () => {
  const me = bareFacts({ id: "bob", name: "Bob", roles: ["approver"] });
  const sender = { vote: async () => Promise.reject(new Error()), allow: async () => undefined };

  test("offers no directory whose name hides another one behind line feeds or invisible characters", () => {
    const roots = ["/srv/data", "/tmp/x\n\n\n\n/", "/etc\u200b", "/etc ", "/a\tb"];
    const card = cardOfGate(gateItem({ assessment: { needed_read_roots: roots } }), null, me);
    expect(offeredReadRoots(card)).toEqual(["/srv/data"]);
  });

  test("shows the directory that it is for as the card does", async () => {
    const facts = { ...me, config: { require_approval_for: [], default_gate_quorum: { type: "any", count: 1 }, quorum_by_category: {} } as never };
    const item = gateItem({ rest: { action: { command: { form: "shell", line: "make build" }, cwd: "/srv/\u202egnp", mode: "normal" } } });
    show(<Card card={cardOfGate(item, null, facts)} sender={sender} />);
    await settle();
    await click(get("button", "Always allow…"));
    expect(document.querySelector("option")?.textContent).toBe("/srv/\\u{202e}gnp");
    expect(text()).not.toContain("\u202e");
  });
});
