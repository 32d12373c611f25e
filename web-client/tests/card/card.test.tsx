// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Card } from "../../src/card/Card";
import { canEdit } from "../../src/card/amend";
import { resolutionOf } from "../../src/card/Decided";
import { cardOfGate } from "../../src/card/model";
import { deviceSender } from "../../src/card/sending";
import { displayNames } from "../../src/card/session_facts";
import type { SessionFacts } from "../../src/card/session_facts";
import { ApiError } from "../../src/net/api";
import { observeServerDate } from "../../src/net/server_clock";
import { second } from "../../src/state/clock";
import { setLanguage } from "../../src/i18n";
import { setPreference } from "../../src/state/preferences";
import { all, change, choose, click, closedDetails, DIGEST, FakeApp, gateItem, get, has, key, NOW, openDetails, OTHER_DIGEST, pass, pointer, reachEnd, screen, SESSION, settle, setUp, show, text, type, unmount } from "./support";
import type { GateDetails, GateListItem } from "@protocol";

const facts: SessionFacts = {
  me: "bob",
  kind: "human",
  roles: ["approver"],
  names: displayNames(SESSION.people),
  config: SESSION.config,
  executor: (id) => SESSION.people.find((person) => person.id === id)?.executor ?? null,
};

let app: FakeApp;
let decided: string[];

beforeEach(() => {
  setUp();
  app = new FakeApp();
  decided = [];
  app.onPost = () => ({ ack: {}, gate: openDetails(gateItem()) });
  setPreference("confirmWrite", "tap");
  setPreference("confirmDestructive", "hold");
});

afterEach(() => {
  unmount();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function showCard(item: GateListItem, more: Partial<Parameters<typeof Card>[0]> = {}, details: GateDetails | null = null): void {
  show(
    <Card card={cardOfGate(item, details ?? openDetails(item), facts)} sender={deviceSender(app.api as never)} onDecided={(vote) => decided.push(vote)} takesFocus {...more} />,
  );
}

const focusedCard = () => document.querySelector<HTMLElement>("section.card") as HTMLElement;

describe("voting", () => {
  test("a vote carries the digest that was on the screen", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Approve"));
    expect(app.posts()).toEqual([
      { method: "POST", path: "/api/sessions/shop/gates/g1/vote", body: { vote: "approve", digest: DIGEST, id: expect.any(String) } },
    ]);
    expect(decided).toEqual(["approve"]);
  });

  test("a comment goes with the approval", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Comment…"));
    await type(get("textbox", "Comment (optional)"), " after lunch ");
    await settle();
    await click(get("button", "Approve"));
    expect(app.posts()[0]?.body).toMatchObject({ vote: "approve", comment: "after lunch" });
  });

  test("denying needs a reason: a phrase to tap, or free text", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Deny"));
    expect((get("button", "Deny with this reason") as HTMLButtonElement).disabled).toBe(true);
    await click(get("button", "Too risky"));
    expect((get("textbox", /Why not/) as HTMLTextAreaElement).value).toBe("Too risky");
    await type(get("textbox", /Why not/), "Too risky at night");
    await click(get("button", "Deny with this reason"));
    submit();
    await pass(0);
    expect(app.posts()[0]?.body).toMatchObject({ vote: "reject", reason: "Too risky at night", digest: DIGEST });
    expect(decided).toEqual(["reject"]);
  });

  test("what has just appeared under a finger does not take its press", async () => {
    showCard(gateItem());
    await pass(100);
    await click(get("button", "Approve"));
    expect(app.posts()).toEqual([]);
    await settle();
    await click(get("button", "Approve"));
    expect(app.posts()).toHaveLength(1);
  });

  test("a refusal is shown in the server's words", async () => {
    app.onPost = () => {
      throw new ApiError(409, "the command was edited; look again");
    };
    showCard(gateItem());
    await settle();
    await click(get("button", "Approve"));
    expect(get("alert").textContent).toBe("the command was edited; look again");
    expect(has("button", "Try again")).toBe(false);
    expect(decided).toEqual([]);
  });

  test("trying again after a lost connection sends the same vote with the same id", async () => {
    app.onPost = () => {
      throw new ApiError(0, "fetch failed");
    };
    showCard(gateItem());
    await settle();
    await click(get("button", "Approve"));
    expect(get("alert").textContent).toContain("could not be reached");
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem()) });
    await click(get("button", "Try again"));
    const [first, second] = app.posts();
    expect(second).toEqual(first);
    expect(decided).toEqual(["approve"]);
  });

  test("pressing twice while the vote is on its way sends one vote", async () => {
    let answer = (_: unknown) => {};
    app.onPost = () => new Promise((resolve) => (answer = resolve));
    showCard(gateItem());
    await settle();
    const button = get("button", "Approve");
    await click(button);
    await click(button);
    expect(app.posts()).toHaveLength(1);
    await change(() => answer({ ack: {}, gate: openDetails(gateItem()) }));
    expect(decided).toEqual(["approve"]);
  });

  test("who may not vote reads why and has no buttons", async () => {
    showCard(gateItem({ rest: { may_vote: false, proposer: "bob" } }));
    await settle();
    expect(text()).toContain("You proposed this, so somebody else has to decide.");
    expect(has("button", /Approve|Deny/)).toBe(false);
  });

  test("who has approved may still deny", async () => {
    const approvals = [{ participant: "bob", at: "2026-01-01T12:00:00.000Z" }];
    showCard(gateItem({ rest: { approvals, received: 1, required: 2 } }));
    await settle();
    expect(text()).toContain("You approved; you may still deny.");
    expect(has("button", "Approve")).toBe(false);
    expect(has("button", "Deny")).toBe(true);
  });

  test("a long command is read to its end before it can be approved", async () => {
    screen.isEndVisible = false;
    showCard(gateItem({ line: "echo 1\n".repeat(500) }));
    await settle();
    expect(has("button", "Approve")).toBe(false);
    await click(get("button", "Read on to approve"));
    await key(focusedCard(), "keydown", "a");
    expect(app.posts()).toEqual([]);
    // Denying needs no reading to the end.
    expect(has("button", "Deny")).toBe(true);
    await reachEnd();
    expect(has("button", "Read on to approve")).toBe(false);
    await settle();
    await click(get("button", "Approve"));
    expect(app.posts()).toHaveLength(1);
  });

  test("a command that cannot be shown whole cannot be approved", async () => {
    showCard(gateItem({ line: "x".repeat(300 * 1024) }));
    await settle();
    expect(text()).toContain("too long to be shown in full");
    expect(has("button", /Approve/)).toBe(false);
    expect(has("button", "Edit")).toBe(false);
  });

  test("a card that waits for the rest of it cannot be approved", async () => {
    const files = [{ path: "run.sh", sha256: "00".repeat(32), bytes: 3 }];
    const item = gateItem({ line: "./run.sh", rest: { action: { command: { form: "shell", line: "./run.sh" }, mode: "normal", files } } });
    show(<Card card={cardOfGate(item, null, facts)} sender={deviceSender(app.api as never)} />);
    await settle();
    expect((get("button", "Approve") as HTMLButtonElement).disabled).toBe(true);
    await click(get("button", "Approve"));
    await key(focusedCard(), "keydown", "a");
    expect(app.posts()).toEqual([]);
    showCard(item, {}, openDetails(item));
    await settle();
    await click(get("button", "Approve"));
    expect(app.posts()).toHaveLength(1);
  });
});

describe("confirming what is destructive", () => {
  const item = () => gateItem({ line: "rm -rf build", category: "destructive" });

  test("a tap does nothing, a held press approves", async () => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await pointer(button, "pointerdown");
    await pass(400);
    await pointer(button, "pointerup");
    await click(button);
    await pass(2000);
    expect(app.posts()).toEqual([]);
    await pointer(button, "pointerdown");
    expect(get("button", "Keep holding…")).toBe(button);
    await pass(1000);
    expect(app.posts()).toHaveLength(1);
    expect(app.posts()[0]?.body).toMatchObject({ vote: "approve", digest: DIGEST });
  });

  test.each(["pointercancel", "pointerleave", "pointerup"])("%s ends a held press", async (end) => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await pointer(button, "pointerdown");
    await pass(900);
    await pointer(button, end);
    await pass(2000);
    expect(app.posts()).toEqual([]);
  });

  test("a finger that slides off the button ends the press", async () => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    button.getBoundingClientRect = () => ({ left: 0, top: 0, right: 100, bottom: 50, width: 100, height: 50 }) as DOMRect;
    await pointer(button, "pointerdown", { clientX: 50, clientY: 25 });
    await pointer(button, "pointermove", { clientX: 55, clientY: 30 });
    await pass(500);
    await pointer(button, "pointermove", { clientX: 50, clientY: 80 });
    await pass(2000);
    expect(app.posts()).toEqual([]);
  });

  test("a second finger and a page that goes out of sight end the press", async () => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await pointer(button, "pointerdown");
    await pointer(document.body, "pointerdown", { isPrimary: false });
    await pass(2000);
    await pointer(button, "pointerdown");
    await change(() => document.dispatchEvent(new Event("visibilitychange")));
    await pass(2000);
    expect(app.posts()).toEqual([]);
  });

  test("other mouse buttons do nothing", async () => {
    showCard(item());
    await settle();
    await pointer(get("button", "Hold to approve"), "pointerdown", { button: 2 });
    await pass(2000);
    expect(app.posts()).toEqual([]);
  });

  test.each(["Enter", " "])("with the keyboard, %j is held or pressed twice", async (name) => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await key(button, "keydown", name);
    await pass(200);
    await key(button, "keyup", name);
    expect(get("button", "Tap again to approve")).toBe(button);
    expect(app.posts()).toEqual([]);
    await pass(400);
    await key(button, "keydown", name);
    await key(button, "keyup", name);
    expect(app.posts()).toHaveLength(1);
  });

  test("a key that is held approves once", async () => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await key(button, "keydown", "Enter");
    for (let index = 0; index < 30; index += 1) {
      await pass(50);
      await key(button, "keydown", "Enter", { repeat: true });
    }
    expect(app.posts()).toHaveLength(1);
  });

  test("a double tap is no second tap, and a first tap is forgotten", async () => {
    setPreference("confirmDestructive", "second_tap");
    showCard(item());
    await settle();
    const button = get("button", "Approve");
    await click(button);
    await pass(100);
    await click(button);
    expect(app.posts()).toEqual([]);
    await pass(6000);
    await click(button);
    expect(app.posts()).toEqual([]);
    await pass(500);
    await click(get("button", "Tap again to approve"));
    expect(app.posts()).toHaveLength(1);
  });

  test("a screen reader presses twice", async () => {
    showCard(item());
    await settle();
    const button = get("button", "Hold to approve");
    await change(() => button.click());
    expect(all("status").map((status) => status.textContent)).toContain("Tap again to approve");
    await pass(1000);
    await change(() => button.click());
    expect(app.posts()).toHaveLength(1);
  });

  test("what is confirmed for one command does not count for another", async () => {
    setPreference("confirmDestructive", "second_tap");
    showCard(item());
    await settle();
    await click(get("button", "Approve"));
    showCard(gateItem({ line: "rm -rf /srv", category: "destructive", digest: OTHER_DIGEST, rest: { amended_by: "ann" } }));
    await pass(700);
    await click(get("button", "I have looked at it"));
    await settle();
    expect(has("button", "Tap again to approve")).toBe(false);
    await click(get("button", "Approve"));
    expect(app.posts()).toEqual([]);
    await pass(500);
    await click(get("button", "Tap again to approve"));
    expect(app.posts()).toHaveLength(1);
  });
});

describe("a card that changes", () => {
  test("an edit by somebody else must be looked at, and a held press is dropped", async () => {
    showCard(gateItem({ line: "rm -r build", category: "destructive" }));
    await settle();
    await pointer(get("button", "Hold to approve"), "pointerdown");
    await pass(500);
    showCard(gateItem({ line: "rm -r /srv", category: "destructive", digest: OTHER_DIGEST, rest: { amended_by: "ann" } }));
    await pass(3000);
    expect(app.posts()).toEqual([]);
    expect(get("alert").textContent).toContain("Ann has edited the command. Look at it again");
    expect(has("button", /approve|Deny/i)).toBe(false);
    await key(focusedCard(), "keydown", "a");
    await pass(3000);
    expect(app.posts()).toEqual([]);
    await click(get("button", "I have looked at it"));
    await settle();
    await pointer(get("button", "Hold to approve"), "pointerdown");
    await pass(1000);
    expect(app.posts()[0]?.body).toMatchObject({ digest: OTHER_DIGEST });
  });

  test("a reason that was being typed for another command is dropped", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Deny"));
    await type(get("textbox", /Why not/), "no builds");
    showCard(gateItem({ line: "ls", digest: OTHER_DIGEST, rest: { amended_by: "ann" } }));
    await pass(0);
    expect(has("textbox")).toBe(false);
    await click(get("button", "I have looked at it"));
    expect(has("textbox")).toBe(false);
  });

  test("a card that was decided is dead and says who decided, how and when", async () => {
    const item = gateItem();
    showCard(item);
    await settle();
    await click(get("button", "Deny"));
    const resolution = resolutionOf({ gate: "g1", tool_proposal: "p", outcome: "rejected", how: "rejection", at: "2026-01-01T12:00:05.000Z", by: "ann", reason: "not <b>now</b>" });
    showCard(item, { resolution });
    const at = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(new Date("2026-01-01T12:00:05.000Z"));
    expect(get("status").textContent).toContain(`Denied by Ann at ${at}`);
    expect(get("status").textContent).toContain("not <b>now</b>");
    expect(all("button").filter((button) => button.textContent !== "Why?")).toEqual([]);
    await key(focusedCard(), "keydown", "a");
    await key(focusedCard(), "keydown", "r");
    await pass(3000);
    expect(app.posts()).toEqual([]);
    expect(has("textbox")).toBe(false);
  });

  test.each([
    [{ outcome: "approved", how: "quorum", approvals: [{ participant: "ann", at: "2026-01-01T12:00:05.000Z" }, { participant: "bob", at: "2026-01-01T12:00:05.000Z" }] }, "Approved by Ann and Bob at"],
    [{ outcome: "approved", how: "quorum", by: "ann", rule: "r1" }, "Approved by an allow rule of Ann at"],
    [{ outcome: "approved", how: "clock" }, "Approved by the clock, at the deadline at"],
    [{ outcome: "timed_out", how: "deadline" }, "Timed out at the deadline at"],
    [{ outcome: "cancelled", how: "cancel", by: "bot" }, "Withdrawn by Bot at"],
    [{ outcome: "cancelled", how: "proposer_left" }, "Withdrawn because the agent left at"],
  ] as const)("how it was decided: %j", (how, words) => {
    const item = gateItem();
    showCard(item, { resolution: resolutionOf({ ...closedDetails(item).resolution!, ...how, approvals: [...("approvals" in how ? how.approvals : [])] }) });
    expect(get("status").textContent).toContain(words);
  });

  test("a closed card whose decision is not known yet is dead at once", () => {
    showCard(gateItem(), { resolution: null });
    expect(get("status").textContent).toBe("This card is closed.");
    expect(has("button", /Approve|Deny/)).toBe(false);
  });
});

describe("editing", () => {
  test("an edit sends all arguments with the new line, and the digest that was shown", async () => {
    const item = gateItem({ rest: { action: { command: { form: "shell", line: "make build" }, cwd: "/srv/shop", env: { CI: "1" }, mode: "slow", timeout_seconds: 600, secrets: ["KEY"] } } });
    app.onPost = () => ({ ack: {}, gate: openDetails(gateItem({ digest: OTHER_DIGEST })) });
    showCard(item);
    await settle();
    await click(get("button", "Edit"));
    const field = get("textbox", /command as it should run/);
    expect((field as HTMLTextAreaElement).value).toBe("make build");
    await type(field, "make test");
    submit();
    await pass(0);
    expect(app.posts()).toEqual([
      {
        method: "POST",
        path: "/api/sessions/shop/gates/g1/amend",
        body: {
          arguments: { full_command: "make test", cwd: "/srv/shop", env: { CI: "1" }, mode: "slow", timeout: 600, secrets: ["KEY"] },
          digest: DIGEST,
          id: expect.any(String),
        },
      },
    ]);
    expect(decided).toEqual([]);
  });

  test("one's own edit needs no second look, and is approved with its own digest", async () => {
    const edited = gateItem({ line: "make test", digest: OTHER_DIGEST, rest: { amended_by: "bob" } });
    app.onPost = (call) => ({ ack: {}, gate: call.path.endsWith("/amend") ? openDetails(edited) : closedDetails(edited) });
    showCard(gateItem(), { onAnswer: (gate) => gate.open && showCard(gate.open) });
    await settle();
    await click(get("button", "Edit"));
    await type(get("textbox", /command as it should run/), "make test");
    await click(get("button", "Save and approve"));
    await pass(0);
    expect(app.posts().map((call) => [call.path.split("/").at(-1), call.body.digest])).toEqual([
      ["amend", DIGEST],
      ["vote", OTHER_DIGEST],
    ]);
    expect(has("button", "I have looked at it")).toBe(false);
    expect(decided).toEqual(["approve"]);
  });

  test.each([
    ["another line than was typed", gateItem({ line: "make test; rm -rf ~", digest: OTHER_DIGEST })],
    ["another directory", gateItem({ line: "make test", digest: OTHER_DIGEST, rest: { action: { command: { form: "shell", line: "make test" }, cwd: "/", mode: "normal" } } })],
    ["a destructive command", gateItem({ line: "make test", category: "destructive", digest: OTHER_DIGEST })],
    ["a command that one may not vote on", gateItem({ line: "make test", digest: OTHER_DIGEST, rest: { may_vote: false } })],
  ])("save and approve does not approve %s", async (_, edited) => {
    app.onPost = () => ({ ack: {}, gate: openDetails(edited) });
    showCard(gateItem());
    await settle();
    await click(get("button", "Edit"));
    await type(get("textbox", /command as it should run/), "make test");
    await click(get("button", "Save and approve"));
    await pass(0);
    expect(app.posts().map((call) => call.path.split("/").at(-1))).toEqual(["amend"]);
    expect(decided).toEqual([]);
  });

  test("what is destructive is never approved with the edit", async () => {
    showCard(gateItem({ category: "destructive" }));
    await settle();
    await click(get("button", "Edit"));
    expect(has("button", "Save and approve")).toBe(false);
    expect(has("button", "Save the edit")).toBe(true);
  });

  test("invisible characters in the field are written out below it", async () => {
    showCard(gateItem({ line: "echo \u202e txt" }));
    await settle();
    await click(get("button", "Edit"));
    expect(text()).toContain("With invisible characters written out:");
    expect(document.querySelector("form pre")?.textContent).toBe("echo \\u{202e} txt");
  });

  test("an empty or unchanged command is not sent", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Edit"));
    submit();
    await pass(0);
    expect(get("alert").textContent).toBe("Nothing is changed.");
    await type(get("textbox", /command as it should run/), "  ");
    submit();
    await pass(0);
    expect(get("alert").textContent).toContain("cannot be empty");
    expect(app.posts()).toEqual([]);
  });

  test.each(["\r", "\0", "\ud800"])("a command with %j, which a text field would change, is not edited here", async (character) => {
    showCard(gateItem({ line: `touch a # note${character}touch b` }));
    await settle();
    expect(has("button", "Edit")).toBe(false);
    expect(text()).toContain("so it cannot be edited here");
    expect(canEdit({ ...cardOfGate(gateItem(), null, facts).requested, command: `touch a${character}` })).toBe(false);
    expect(canEdit(cardOfGate(gateItem({ line: "touch a\n\ttouch 🦀" }), null, facts).requested)).toBe(true);
  });

  test("an edit of a command that was not read to its end is not approved at once", async () => {
    screen.isEndVisible = false;
    showCard(gateItem({ line: "echo 1\n".repeat(500) }));
    await settle();
    await click(get("button", "Edit"));
    expect(has("button", "Save and approve")).toBe(false);
    await reachEnd();
    expect(has("button", "Save and approve")).toBe(true);
  });

  test("a tool call is edited as JSON", async () => {
    const item = gateItem({ rest: { action: { command: { form: "tool", name: "deploy", arguments: { env: "prod", count: 2 } }, mode: "normal" } } });
    app.onPost = () => ({ ack: {}, gate: openDetails(item) });
    showCard(item);
    await settle();
    await click(get("button", "Edit"));
    const field = get("textbox", /arguments as JSON/) as HTMLTextAreaElement;
    expect(JSON.parse(field.value)).toEqual({ env: "prod", count: 2 });
    await type(field, '{"env": "prod", "count": 9007199254740993}');
    submit();
    await pass(0);
    expect(get("alert").textContent).toContain("more digits");
    await type(field, '{"env": "test"');
    submit();
    await pass(0);
    expect(get("alert").textContent).toBe("This is not JSON.");
    await type(field, '{"env": "test"}');
    submit();
    await pass(0);
    expect(app.posts()[0]?.body).toMatchObject({ arguments: { env: "test" }, digest: DIGEST });
    expect(has("button", "Save and approve")).toBe(false);
  });

  test.each([
    ["an executor that takes no edits", { ...facts, executor: () => ({ profiles: [], shell_exec: true, edits: false }) }, gateItem()],
    ["a person's own command", facts, gateItem({ rest: { action: { command: { form: "login_shell", line: "make" }, mode: "normal" } } })],
  ] as const)("no edit is offered for %s", async (_, known, item) => {
    show(<Card card={cardOfGate(item, openDetails(item), known as SessionFacts)} sender={deviceSender(app.api as never)} />);
    await settle();
    expect(has("button", "Edit")).toBe(false);
  });
});

describe("allowing", () => {
  test("a prefix can be changed, and expires", async () => {
    app.onPost = () => ({ id: "x", seq: 9 });
    showCard(gateItem({ line: "npm run build -- --watch" }));
    await settle();
    await click(get("button", "Always allow…"));
    const field = get("textbox", /begin with/) as HTMLInputElement;
    expect(field.value).toBe("npm run build");
    expect(text()).toContain("The rule is also your vote on this command");
    await settle();
    await type(field, "npm run; rm");
    submit();
    await pass(0);
    expect(get("alert").textContent).toContain("characters that a shell interprets");
    await type(field, " npm  run ");
    await choose(get("combobox", "For how long"), "8");
    await click(get("button", "Allow"));
    expect(app.posts()).toEqual([
      {
        method: "POST",
        path: "/api/sessions/shop/messages",
        body: {
          id: expect.any(String),
          type: "policy.allow",
          payload: { prefix: ["npm", "run"], directory: "/srv/shop", expires_at: expect.stringMatching(/^2026-01-01T19:59:5/) },
        },
      },
    ]);
  });

  test("a rule may hold in every directory", async () => {
    app.onPost = () => ({ id: "x", seq: 9 });
    showCard(gateItem());
    await settle();
    await click(get("button", "Always allow…"));
    await choose(get("combobox", "Where"), "*");
    await settle();
    await click(get("button", "Allow"));
    expect(app.posts()[0]?.body.payload).toMatchObject({ directory: "*" });
  });

  test.each([
    ["a destructive command", gateItem({ category: "destructive" }), facts],
    ["a program that runs what it is given", gateItem({ assessment: { runs_given_code: true } }), facts],
    ["a chain of commands", gateItem({ line: "make && rm x" }), facts],
    ["a session in which two must approve", gateItem(), { ...facts, config: { ...SESSION.config, default_gate_quorum: { type: "any", count: 2 } } }],
    ["a session that always asks", gateItem(), { ...facts, config: { ...SESSION.config, require_approval_for: ["all"] } }],
    ["an observer", gateItem({ rest: { may_vote: false } }), { ...facts, roles: ["observer"] }],
  ] as const)("no rule is offered for %s", async (_, item, known) => {
    show(<Card card={cardOfGate(item, openDetails(item), known as SessionFacts)} sender={deviceSender(app.api as never)} />);
    await settle();
    expect(has("button", "Always allow…")).toBe(false);
  });

  test("reading below a directory is allowed where only that is missing", async () => {
    app.onPost = () => ({ id: "x", seq: 9 });
    showCard(gateItem({ line: "cat /data/sets/a", assessment: { needed_read_roots: ["/data/sets"], sensitive_read: true } }));
    await settle();
    await click(get("button", "Allow reading…"));
    await settle();
    await type(get("textbox", /Directories/), "/data/sets\ndata");
    submit();
    await pass(0);
    expect(get("alert").textContent).toContain('"data" is not an absolute path.');
    await type(get("textbox", /Directories/), "/data/sets\n/data/more");
    await click(get("button", "Allow"));
    expect(app.posts().map((call) => (call.body.payload as { read_root: string }).read_root)).toEqual(["/data/sets", "/data/more"]);
  });
});

describe("keys", () => {
  test("the keys of a card open its forms and explain it", async () => {
    showCard(gateItem({ line: "npm install" }));
    await settle();
    expect(document.activeElement).toBe(focusedCard());
    await key(focusedCard(), "keydown", "x");
    expect(text()).toContain("Digest");
    await key(focusedCard(), "keydown", "r");
    expect(has("textbox", /Why not/)).toBe(true);
    await key(get("textbox", /Why not/), "keydown", "Escape");
    expect(has("textbox", /Why not/)).toBe(false);
    await key(focusedCard(), "keydown", "e");
    expect(has("textbox", /command as it should run/)).toBe(true);
    await key(get("textbox"), "keydown", "Escape");
    await key(focusedCard(), "keydown", "P", { shiftKey: true });
    expect(has("textbox", /begin with/)).toBe(true);
  });

  test("a approves, once, also if it is held", async () => {
    showCard(gateItem());
    await settle();
    await key(focusedCard(), "keydown", "a");
    await key(focusedCard(), "keydown", "a", { repeat: true });
    expect(app.posts()).toHaveLength(1);
  });

  test("a is held or pressed twice for what is destructive", async () => {
    showCard(gateItem({ category: "destructive" }));
    await settle();
    await key(focusedCard(), "keydown", "a");
    await key(focusedCard(), "keyup", "a");
    await pass(500);
    expect(app.posts()).toEqual([]);
    await key(focusedCard(), "keydown", "a");
    await key(focusedCard(), "keyup", "a");
    expect(app.posts()).toHaveLength(1);
  });

  test("no key decides while somebody types, nor with a modifier", async () => {
    showCard(gateItem());
    await settle();
    await click(get("button", "Comment…"));
    await key(get("textbox"), "keydown", "a");
    await key(get("textbox"), "keydown", "r");
    await key(focusedCard(), "keydown", "a", { ctrlKey: true });
    await key(focusedCard(), "keydown", "a", { metaKey: true });
    expect(app.posts()).toEqual([]);
    expect(has("textbox", /Why not/)).toBe(false);
  });

  test("j and k go to the next card and back", async () => {
    const steps: number[] = [];
    showCard(gateItem(), { onMove: (step) => steps.push(step) });
    await key(focusedCard(), "keydown", "j");
    await key(focusedCard(), "keydown", "k");
    expect(steps).toEqual([1, -1]);
  });
});

describe("what the card shows", () => {
  test("hostile text is text, with everything invisible written out", () => {
    const line = "echo \u202e<img src=x onerror=alert(1)>\u001b[2K";
    showCard(
      gateItem({
        line,
        assessment: { reason: "<script>1</script>", notes: ["note \u200b<i>"] },
        rest: { description: "\u202eevil <b>bold</b>", action: { command: { form: "shell", line }, cwd: "/tmp/\u2066x", env: { A: "\u202eb" }, mode: "normal" } },
      }),
    );
    const shown = get("group", "Command");
    expect(shown.textContent).toBe("echo \\u{202e}<img src=x onerror=alert(1)>\\u{1b}[2K");
    expect([...shown.querySelectorAll("mark")].map((mark) => mark.textContent)).toEqual(["\\u{202e}", "\\u{1b}"]);
    expect(shown.getAttribute("dir")).toBe("ltr");
    expect(document.querySelector("img, script, b, i")).toBeNull();
    expect(text()).toContain("4 invisible characters made visible");
    expect(text()).toContain("\\u{202e}evil <b>bold</b>");
    expect(text()).toContain("/tmp/\\u{2066}x");
    expect(text()).toContain("A=\\u{202e}b");
    expect(text()).not.toMatch(/[\u0000-\u0008\u001b\u200b-\u200f\u202a-\u202e\u2066-\u2069]/);
  });

  test("the head says how many have voted and how long is left, until it is decided", async () => {
    const item = gateItem({ rest: { received: 1, required: 2 } });
    showCard(item);
    const standing = () => document.querySelector(".card-head .standing")?.textContent;
    expect(standing()).toBe("1 of 2 · 5:00");
    await change(() => (second.value += 8_000));
    expect(standing()).toBe("1 of 2 · 4:52");
    const forEver = gateItem({});
    delete forEver.request.deadline;
    showCard(forEver);
    expect(standing()).toBe("0 of 1");
    showCard(item, { resolution: null });
    expect(standing()).toBeUndefined();
  });

  test("the fold's notes are in the language of the page, the policy's as they came", async () => {
    const item = gateItem({ assessment: { notes: ["tried in the sandbox, which denied: \u202e/etc", "not in git"] } });
    await setLanguage("de");
    try {
      showCard(item);
      expect([...document.querySelectorAll(".verdict .careful")].map((note) => note.textContent)).toEqual(["in der Sandbox versucht, die verweigert hat: \\u{202e}/etc", "not in git"]);
    } finally {
      await setLanguage("en");
    }
  });

  test("people who choose the same name are told apart", () => {
    const names = displayNames([
      { id: "ann-1", name: "Ann" },
      { id: "eve-2", name: " ANN" },
      { id: "bob-3", name: "Bob" },
    ]);
    expect([...names.values()]).toEqual(["Ann (ann-1)", "ANN (eve-2)", "Bob"]);
  });

  test("everything that a decision needs, in order", () => {
    const approvals = [{ participant: "ann", at: "2026-01-01T12:00:00.000Z", comment: "fine" }];
    const parts = [
      { start: 0, end: 9, text: "rm -rf é", category: "destructive", rule: "files.rm", reason: "deletes" },
      { start: 13, end: 15, text: "ls", category: "read", rule: "ls", reason: "lists" },
    ] as const;
    const item = gateItem({
      line: "rm -rf é && ls",
      category: "destructive",
      assessment: { parts: [...parts], notes: ["not in git"] },
      rest: {
        approvals,
        received: 1,
        required: 2,
        degree: "hooked",
        origin: { client: "claude-code", version: "2.0", subagent: "helper", fails_open: true },
        action: { command: { form: "shell", line: "rm -rf é && ls" }, mode: "slow", timeout_seconds: 60, secrets: ["KEY"], files: [{ path: "a.sh", sha256: "00".repeat(32), bytes: 3 }] },
        not_counted: { ann: "kim" },
      },
    });
    showCard(item);
    const words = text().replace(/\s+/g, " ");
    const order = ["rm -rf é && ls", "destructive", "high risk", "runs what the Makefile says", "[make]", "not in git", "/srv/shop", "Bot", "claude-code 2.0", "subagent helper", "keep the shop tidy", "with the client's own shell, long-running, at most 60 s", "what it then runs is the client's word", "if what asks PVP crashes, this client runs the call unasked", "KEY", "a.sh", "Parts", "1 of 2 approvals", "may approve: Bob (you)", "Ann, ", "fine", "Ann's approval does not count beside kim's", "5:00 left, then it is rejected"];
    let at = 0;
    for (const part of order) {
      const found = words.toLowerCase().indexOf(part.toLowerCase(), at);
      expect(found, `${part} after ${words.slice(Math.max(0, at - 60), at)}`).toBeGreaterThanOrEqual(at);
      at = found;
    }
    const marked = [...get("group", "Command").querySelectorAll(".part")].map((part) => [part.className, part.textContent]);
    expect(marked).toEqual([
      ["part destructive", "rm -rf é"],
      ["part read", "ls"],
    ]);
  });

  test("the countdown runs by the server's clock, and says what happens at zero", async () => {
    showCard(gateItem({ rest: { request: { ...gateItem().request, on_timeout: "escalate" } } }));
    const timer = () => get("timer").textContent;
    expect(timer()).toBe("5:00 left, then the admins decide");
    await clockAt(270_000);
    expect(timer()).toBe("30 s left, then the admins decide");
    // This device's clock is four minutes behind the server's.
    observeServerDate(new Date(NOW + 240_000).toUTCString(), NOW);
    await clockAt(40_000);
    expect(timer()).toBe("20 s left, then the admins decide");
    observeServerDate(new Date(NOW).toUTCString(), NOW);
    await clockAt(300_000);
    expect(timer()).toBe("The deadline has passed. The server is closing it.");
    showCard(gateItem({ rest: { request: { ...gateItem().request, deadline: undefined } } as Partial<GateListItem> }));
    expect(timer()).toBe("none: it waits until somebody decides");
  });

  test("the clock never approves what is destructive, and escalates once", () => {
    showCard(gateItem({ category: "destructive", rest: { request: { ...gateItem().request, on_timeout: "auto_approve" } } }));
    expect(get("timer").textContent).toContain("then it is rejected");
    showCard(gateItem({ rest: { escalated: true, request: { ...gateItem().request, on_timeout: "escalate" } } }));
    expect(get("timer").textContent).toContain("then it is rejected");
    expect(get("timer").textContent).toContain("the admins decide");
  });

  test("why: the rule, the reason, every part", async () => {
    const parts = Array.from({ length: 9 }, (_, index) => ({ start: index, end: index + 1, text: `part${index}`, category: index === 4 ? "destructive" : "read", rule: `rule${index}`, reason: `because${index}` }) as const);
    showCard(gateItem({ line: "123456789", category: "destructive", assessment: { parts } }));
    expect(text()).toContain("8 more parts, none more severe");
    const why = get("button", "Why is this destructive?");
    expect(why.getAttribute("aria-expanded")).toBe("false");
    await click(why);
    expect(why.getAttribute("aria-expanded")).toBe("true");
    for (const part of parts) expect(text()).toContain(part.reason);
  });

  test("an edited card says who edited it and what it was", () => {
    const item = gateItem({ rest: { amended_by: "ann" } });
    const earlier = [{ command: "rm -rf \u202ex", category: "destructive", risk: "high", digest: OTHER_DIGEST, edited_by: "ann", edited_at: "2026-01-01T11:59:00.000Z", reason: "too much", void_approvals: [{ participant: "bob", at: "2026-01-01T11:58:00.000Z" }] }] as const;
    showCard(item, {}, openDetails(item, { command: { earlier } as unknown as NonNullable<GateDetails["command"]> }));
    expect(text()).toContain("Edited by Ann; earlier votes are void.");
    expect(text()).toContain("rm -rf \\u{202e}x");
    expect(text()).toContain("too much");
    expect(text()).toContain("Void approvals: Bob");
  });
});

/** Sets the clock of this device, which the page looks at every second. */
function clockAt(milliseconds: number): Promise<void> {
  vi.setSystemTime(NOW + milliseconds);
  return change(() => (second.value = Date.now()));
}

/** Presses the submit button of the open form, as Enter in a field does. */
function submit(): void {
  document.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
}
