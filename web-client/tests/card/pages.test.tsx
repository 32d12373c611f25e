// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { ExecutorInfo, GateListItem } from "@protocol";
import { useRoute } from "./route_probe";
import { announcements } from "../../src/state/announcements";
import { ApiError } from "../../src/net/api";
import { parseFragment } from "../../src/net/link";
import { setPreference } from "../../src/state/preferences";
import { go, route } from "../../src/state/route";
import { GatePage } from "../../src/ui/GatePage";
import { Inbox } from "../../src/ui/Inbox";
import { VotePage } from "../../src/ui/VotePage";
import { all, change, click, closedDetails, DIGEST, FakeApp, gateItem, get, has, key, openDetails, OTHER_DIGEST, pass, pointer, reachEnd, screen, SESSION, settle, setUp, show, text, type, unmount } from "./support";

let app: FakeApp;

beforeEach(() => {
  setUp();
  app = new FakeApp();
  setPreference("confirmWrite", "tap");
  setPreference("confirmDestructive", "hold");
  announcements.value = [];
  go({ screen: "inbox" });
});

afterEach(() => {
  unmount();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** The page as the frame shows it: the screen that the address names. */
function Page() {
  const open = useRoute();
  return open.screen === "gate" ? <GatePage key={`${open.session}/${open.gate}`} session={open.session} gate={open.gate} /> : <Inbox />;
}

async function open(...gates: Parameters<typeof gateItem>[0][]): Promise<void> {
  app.gates.value = gates.map((gate) => gateItem(gate));
  show(<Page />, app);
  await pass(0);
}

const rows = (list: string) => [...get("list", list).querySelectorAll(".row-command")].map((row) => row.textContent);

describe("the inbox", () => {
  test("the worst and newest that I may vote on is on top, others' below", async () => {
    await open(
      { gate: "019a-1", line: "make one" },
      { gate: "019a-2", line: "rm -r x", category: "destructive" },
      { gate: "019a-3", line: "make three" },
      { gate: "019a-4", line: "rm -r y", category: "destructive", rest: { may_vote: false } },
    );
    expect(rows("Waiting for a decision")).toEqual(["rm -r x", "make three", "make one"]);
    expect(rows("Waiting for others")).toEqual(["rm -r y"]);
    expect(text()).toContain("from Bot");
    expect(text()).toContain("in The shop");
  });

  test("it says when nothing waits, and fills by itself", async () => {
    await open();
    expect(text()).toContain("Nothing waits for a decision.");
    await change(() => (app.gates.value = [gateItem()]));
    expect(rows("Waiting for a decision")).toEqual(["make build"]);
  });

  test("j and k move between the entries", async () => {
    await open({ gate: "019a-1" }, { gate: "019a-2" });
    const [first, second] = all("link");
    first?.focus();
    await key(first as HTMLElement, "keydown", "j");
    expect(document.activeElement).toBe(second);
    await key(second as HTMLElement, "keydown", "k");
    expect(document.activeElement).toBe(first);
  });

  test("hostile commands are text in the list, too", async () => {
    await open({ line: "ls \u202e<img src=x>" });
    expect(rows("Waiting for a decision")).toEqual(["ls \\u{202e}<img src=x>"]);
    expect(document.querySelector("img")).toBeNull();
  });
});

describe("deciding one after the other", () => {
  test("after a decision the next card comes, has the focus, and is read out", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-2" }));
    await settle();
    expect(text()).toContain("1 of 2");
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-2" })) });
    await click(get("button", "Approve"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-2/vote"]);
    expect(route.value).toEqual({ screen: "gate", session: "shop", gate: "019a-1" });
    expect(get("group", "Command").textContent).toBe("make one");
    expect(document.activeElement).toBe(document.querySelector("section.card"));
    expect(document.activeElement?.getAttribute("aria-labelledby")).toBe(get("heading", "Decision: write").id);
    expect(announcements.value.map((announcement) => announcement.text)).toEqual(["You approved"]);
    // The finger that approved the first card approves nothing by lifting and falling again.
    await click(get("button", "Approve"));
    expect(app.posts()).toHaveLength(1);
  });

  test("after the last one the inbox says that all is decided", async () => {
    await open({ gate: "019a-1" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-1" })) });
    await click(get("button", "Approve"));
    await pass(0);
    expect(route.value).toEqual({ screen: "inbox" });
    expect(announcements.value.map((announcement) => announcement.text)).toContain("All decided.");
  });

  test("a card that somebody else decides goes dead at once, stays, and says who", async () => {
    await open({ gate: "019a-1" }, { gate: "019a-2", line: "make two" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    app.details.set("019a-1", closedDetails(gateItem({ gate: "019a-1" }), { outcome: "rejected", how: "rejection", by: "ann", reason: "no" }));
    await change(() => (app.gates.value = [gateItem({ gate: "019a-2", line: "make two" })]));
    expect(get("status", /Denied by Ann/)).toBeTruthy();
    expect(has("button", /Approve|Deny/)).toBe(false);
    expect(get("group", "Command").textContent).toBe("make build");
    expect(route.value).toEqual({ screen: "gate", session: "shop", gate: "019a-1" });
    await click(get("button", "Next"));
    expect(get("group", "Command").textContent).toBe("make two");
  });

  test("a card is dead even while the server cannot say who decided", async () => {
    await open({ gate: "019a-1" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    app.details.delete("019a-1");
    await change(() => (app.gates.value = []));
    expect(text()).toContain("This card is closed.");
    expect(has("button", /Approve|Deny/)).toBe(false);
  });

  test("an older list does not bring a decided card back", async () => {
    const item = gateItem({ gate: "019a-1" });
    await open({ gate: "019a-1" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    app.details.set("019a-1", closedDetails(item, { by: "ann", outcome: "rejected", how: "rejection" }));
    await change(() => (app.gates.value = []));
    await change(() => (app.gates.value = [item]));
    await settle();
    expect(get("status", /Denied by Ann/)).toBeTruthy();
    expect(has("button", /Approve|Deny/)).toBe(false);
  });

  test("one's own edit is not taken for the old command by a list that is older", async () => {
    const edited = gateItem({ gate: "019a-1", line: "make test", digest: OTHER_DIGEST, rest: { amended_by: "bob" } });
    await open({ gate: "019a-1" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    app.onPost = () => ({ ack: {}, gate: openDetails(edited) });
    await click(get("button", "Edit"));
    await type(get("textbox", /command as it should run/), "make test");
    document.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
    await pass(0);
    app.details.set("019a-1", openDetails(edited));
    expect(get("group", "Command").textContent).toBe("make test");
    await change(() => (app.gates.value = [gateItem({ gate: "019a-1" })]));
    expect(get("group", "Command").textContent).toBe("make test");
    await change(() => (app.gates.value = [edited]));
    await settle();
    expect(has("button", "I have looked at it")).toBe(false);
    await click(get("button", "Approve"));
    expect(app.posts().at(-1)?.body).toMatchObject({ vote: "approve", digest: OTHER_DIGEST });
  });

  test("a gate that was decided before is shown with its decision", async () => {
    const item = gateItem({ gate: "019a-9" });
    const record = { command: "rm \u202ex", category: "destructive", risk: "high", rule: "files.rm", proposer: "bot", description: "tidy", at: "2026-01-01T11:00:00.000Z" };
    app.details.set("019a-9", { ...closedDetails(item, { by: "ann", outcome: "rejected", how: "rejection", reason: "no" }), command: record as never });
    await open();
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-9" }));
    await pass(10);
    expect(get("status").textContent).toContain("Denied by Ann");
    expect(text()).toContain("rm \\u{202e}x");
    expect(has("button", /Approve|Deny/)).toBe(false);
  });

  test("somebody who joined while the card was open gets a name", async () => {
    await open({ gate: "019a-1" });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    SESSION.people.push({ id: "eve-7", name: "Eve", type: "human", roles: ["approver"], transport: "websocket", presence: "active" });
    await change(() => (app.gates.value = [gateItem({ gate: "019a-1", rest: { approvals: [{ participant: "eve-7", at: "2026-01-01T12:00:01.000Z" }], received: 1, required: 2 } })]));
    expect(text()).toContain("eve-7, ");
    await pass(3000);
    expect(text()).toContain("Eve, ");
    SESSION.people.pop();
  });

  test("a gate that does not exist is said to be missing", async () => {
    await open();
    await change(() => go({ screen: "gate", session: "shop", gate: "nothing" }));
    expect(text()).toContain("There is no such card, or you may not see it.");
  });
});

describe("where a command runs", () => {
  const executor: ExecutorInfo = { profiles: ["read"], shell_exec: true, working_directory: "/srv/production", runner: ["ssh", "production"] };
  const rest: Partial<GateListItem> = { executor, action: { command: { form: "shell", line: "make one" }, mode: "normal" } };

  test("is what the gate says, and not what was known of the session before", async () => {
    await open({ gate: "019a-1", rest });
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    expect(text()).toContain("/srv/production");
    expect(text()).toContain("ssh production");
    expect(text()).not.toContain("/srv/shop");
  });

  test("is on the card of a vote link, too", async () => {
    const item = gateItem({ gate: "019a-1", rest });
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify({ gate: openDetails(item), participant: "bob", name: "Bob" })));
    show(<VotePage secret="s" onLeave={() => undefined} />);
    await settle();
    expect(text()).toContain("/srv/production");
    expect(text()).toContain("ssh production");
  });
});

describe("several at once", () => {
  async function preflight(): Promise<void> {
    await click(get("button", "Select several"));
    await click(get("button", "Select all"));
    await click(get("button", /^Review/));
    await settle();
  }

  test("every whole command is shown first, then each gets its own vote with its own digest", async () => {
    const long = `echo ${"x".repeat(3000)}`;
    await open({ gate: "019a-1", line: long }, { gate: "019a-2", line: "make two", digest: OTHER_DIGEST });
    await preflight();
    expect(all("group", "Command").map((command) => command.textContent)).toEqual(["make two", long]);
    expect(app.posts()).toEqual([]);
    app.onPost = (call) => ({ ack: {}, gate: closedDetails(gateItem({ gate: call.path.split("/")[5] as string })) });
    await click(get("button", "Approve all 2"));
    await pass(0);
    expect(app.posts().map((call) => [call.path, call.body.vote, call.body.digest])).toEqual([
      ["/api/sessions/shop/gates/019a-2/vote", "approve", OTHER_DIGEST],
      ["/api/sessions/shop/gates/019a-1/vote", "approve", DIGEST],
    ]);
    expect(announcements.value.map((announcement) => announcement.text)).toEqual(["Approved 2."]);
    expect(has("heading", "Waiting for a decision")).toBe(true);
  });

  test("only what was selected is listed, and one can be left out again", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" }, { gate: "019a-3", line: "make three" });
    await click(get("button", "Select several"));
    await change(() => get("checkbox", "Select: make one").click());
    await change(() => get("checkbox", "Select: make three").click());
    await click(get("button", "Review 2 commands to approve"));
    await settle();
    expect(all("group", "Command").map((command) => command.textContent)).toEqual(["make three", "make one"]);
    await click(get("button", "Leave out: make three"));
    await settle();
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-1" })) });
    await click(get("button", "Approve it"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-1/vote"]);
  });

  test("what was edited or decided meanwhile is taken off, said, and not voted on", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" }, { gate: "019a-3", line: "make three" });
    await preflight();
    await change(() => (app.gates.value = [gateItem({ gate: "019a-1", line: "make one" }), gateItem({ gate: "019a-2", line: "rm -rf /srv", digest: OTHER_DIGEST })]));
    await settle();
    expect(all("status").map((status) => status.textContent)).toContain("Some of these were edited or decided meanwhile. They were taken off the list.");
    expect(all("group", "Command").map((command) => command.textContent)).toEqual(["make one"]);
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-1" })) });
    await click(get("button", "Approve it"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-1/vote"]);
  });

  test("what changes between two votes gets none", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" });
    await preflight();
    app.onPost = () => {
      app.gates.value = [gateItem({ gate: "019a-1", line: "rm -rf /", digest: OTHER_DIGEST })];
      return { ack: {}, gate: closedDetails(gateItem({ gate: "019a-2" })) };
    };
    await click(get("button", "Approve all 2"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-2/vote"]);
    expect(text()).toContain("Edited or decided meanwhile; not voted on.");
  });

  test.each([
    ["Cancel", () => click(get("button", "Cancel"))],
    ["going elsewhere", () => change(() => go({ screen: "gate", session: "shop", gate: "019a-3" }))],
  ])("%s stops what has not been voted on yet", async (_, leave) => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" }, { gate: "019a-3", line: "make three" });
    await preflight();
    let answer: () => void = () => undefined;
    app.onPost = () => new Promise((resolve) => (answer = () => resolve({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-3" })) })));
    await click(get("button", "Approve all 3"));
    await leave();
    await change(() => answer());
    await settle();
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-3/vote"]);
    expect(announcements.value.map((announcement) => announcement.text)).toEqual(["Approved 1."]);
  });

  test("one destructive command makes the whole list need a held press", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "rm -r two", category: "destructive" });
    await preflight();
    const button = get("button", "Hold to approve all 2");
    await click(button);
    await pass(3000);
    expect(app.posts()).toEqual([]);
    app.onPost = (call) => ({ ack: {}, gate: closedDetails(gateItem({ gate: call.path.split("/")[5] as string })) });
    await pointer(button, "pointerdown");
    await pass(1000);
    expect(app.posts()).toHaveLength(2);
  });

  test("a held press is dropped when the list changes under it", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "rm -r two", category: "destructive" });
    await preflight();
    await pointer(get("button", "Hold to approve all 2"), "pointerdown");
    await pass(500);
    await change(() => (app.gates.value = [gateItem({ gate: "019a-2", line: "rm -r two", category: "destructive" })]));
    await pass(3000);
    expect(app.posts()).toEqual([]);
  });

  test("a refusal stands at its command, the others are approved", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "make two" });
    await preflight();
    app.onPost = (call) => {
      if (call.path.includes("019a-2")) throw new ApiError(403, "you may not vote on this");
      return { ack: {}, gate: closedDetails(gateItem({ gate: "019a-1" })) };
    };
    await click(get("button", "Approve all 2"));
    await pass(0);
    expect(get("alert").textContent).toBe("you may not vote on this");
    expect(announcements.value.map((announcement) => announcement.text)).toEqual(["Approved 1, 1 not accepted."]);
  });

  test("what cannot be shown whole keeps the list from being approved until it is left out", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: `echo ${"x".repeat(300 * 1024)}` });
    await preflight();
    expect(text()).toContain("too long to be shown in full");
    expect((get("button", "Approve all 2") as HTMLButtonElement).disabled).toBe(true);
    await click(get("button", /^Leave out: echo/));
    await settle();
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-1" })) });
    await click(get("button", "Approve it"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-1/vote"]);
  });

  test("a list is not approved before the end of every command was on the screen", async () => {
    await open({ gate: "019a-1", line: "make one" }, { gate: "019a-2", line: "echo 1\n".repeat(500) });
    screen.isEndVisible = false;
    await preflight();
    expect(has("button", "Approve all 2")).toBe(false);
    await click(get("button", "Read on to approve"));
    await click(get("button", "Leave out: make one"));
    expect([has("button", "Approve it"), app.posts()]).toEqual([false, []]);
    await reachEnd();
    app.onPost = () => ({ ack: {}, gate: closedDetails(gateItem({ gate: "019a-2" })) });
    // The tap that read on was not meant for it.
    await click(get("button", "Approve it"));
    expect(app.posts()).toEqual([]);
    await settle();
    await click(get("button", "Approve it"));
    await pass(0);
    expect(app.posts().map((call) => call.path)).toEqual(["/api/sessions/shop/gates/019a-2/vote"]);
  });

  test("a list is not approved before all of every command has arrived", async () => {
    const files = [{ path: "notes.txt", sha256: "00".repeat(32), bytes: 3 }];
    const write = gateItem({ gate: "019a-1", rest: { action: { command: { form: "tool", name: "file_write", arguments: { path: "notes.txt", content: "x" } }, mode: "normal", files } } });
    app.gates.value = [write, gateItem({ gate: "019a-2" })];
    show(<Page />, app);
    await pass(0);
    app.details.set("019a-1", openDetails(gateItem({ gate: "019a-1", digest: OTHER_DIGEST })));
    await preflight();
    expect((get("button", "Approve all 2") as HTMLButtonElement).disabled).toBe(true);
  });
});

describe("a vote link", () => {
  const answers = { get: (_: string): unknown => null, post: (_: unknown): unknown => null };
  let calls: { method: string; path: string; authorization: string | null; body: unknown }[];

  beforeEach(() => {
    calls = [];
    vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
      const method = init.method ?? "GET";
      const body: unknown = init.body === null ? null : JSON.parse(String(init.body));
      calls.push({ method, path, authorization: new Headers(init.headers).get("authorization"), body });
      try {
        const answer = method === "GET" ? answers.get(path) : answers.post(body);
        return new Response(JSON.stringify(answer), { status: 200 });
      } catch (error) {
        const { status, message } = error as ApiError;
        return new Response(JSON.stringify({ message }), { status });
      }
    });
    answers.get = () => ({ gate: openDetails(gateItem()), participant: "bob", name: "Bob", session_name: "The shop" });
  });

  test("the address gives the secret, and opening votes on nothing", async () => {
    expect(parseFragment("#vote=pvpv_abc-DEF")).toEqual({ token: null, code: null, device: null, session: null, gate: null, vote: "pvpv_abc-DEF" });
    show(<VotePage secret="pvpv_abc" onLeave={() => undefined} />);
    await settle();
    expect(get("group", "Command").textContent).toBe("make build");
    expect(text()).toContain("You decide as Bob in The shop");
    await pass(60_000);
    expect(calls.every((call) => call.method === "GET" && call.path === "/api/vote" && call.authorization === "Bearer pvpv_abc")).toBe(true);
    // A link is for one vote: nothing else is offered.
    expect(has("button", /Edit|Always allow|Allow reading/)).toBe(false);
  });

  test("a press votes, with the digest that was shown", async () => {
    answers.post = () => ({ ack: {}, gate: closedDetails(gateItem(), { approvals: [{ participant: "bob", at: "2026-01-01T12:00:05.000Z" }] }) });
    show(<VotePage secret="pvpv_abc" onLeave={() => undefined} />);
    await settle();
    // The card came with the answer, and takes a press a moment later.
    await settle();
    await click(get("button", "Approve"));
    await pass(0);
    expect(calls.at(-1)).toEqual({ method: "POST", path: "/api/vote", authorization: "Bearer pvpv_abc", body: { vote: "approve", digest: DIGEST, id: expect.any(String) } });
    expect(get("status", /Approved by Bob/)).toBeTruthy();
    expect(has("button", /Approve|Deny/)).toBe(false);
  });

  test("a link that is dead says so, in the server's words", async () => {
    answers.get = () => {
      throw new ApiError(401, "this vote link has ended");
    };
    show(<VotePage secret="pvpv_abc" onLeave={() => undefined} />);
    await pass(0);
    expect(get("alert").textContent).toContain("This link no longer works.");
    expect(get("alert").textContent).toContain("this vote link has ended");
    const asked = calls.length;
    await pass(60_000);
    expect(calls).toHaveLength(asked);
  });

  test("a card whose gate closes while it is open goes dead", async () => {
    show(<VotePage secret="pvpv_abc" onLeave={() => undefined} />);
    await settle();
    answers.get = () => {
      throw new ApiError(404, "the gate is closed");
    };
    await pass(5000);
    expect(has("button", /Approve|Deny/)).toBe(false);
    expect(text()).toContain("This card is closed.");
    expect(get("group", "Command").textContent).toBe("make build");
  });
});

describe("a command of which the list has only the beginning", () => {
  const LINE = `touch ${"x".repeat(5000)}`;
  /** As the list has it, and as its own address has it. */
  const [cut, whole] = [gateItem({ gate: "019a-1", line: `${LINE.slice(0, 100)}…`, rest: { cut_bytes: 4900 } }), gateItem({ gate: "019a-1", line: LINE })];
  const mayApprove = () => all("button", /^(Approve|Hold)/).filter((button) => !(button as HTMLButtonElement).disabled && button.getAttribute("aria-disabled") !== "true");

  async function openCut(isLoaded: boolean): Promise<void> {
    app.gates.value = [cut, gateItem({ gate: "019a-2", line: "make two" })];
    app.details.set("019a-1", openDetails(isLoaded ? whole : cut));
    show(<Page />, app);
    await pass(0);
  }

  test("is loaded whole when its card is opened, and approved as it was shown", async () => {
    await openCut(true);
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    expect(get("group", "Command").textContent).toBe(LINE);
    app.onPost = () => ({ ack: {}, gate: closedDetails(whole) });
    await click(get("button", "Approve"));
    await pass(0);
    expect(app.posts().map((call) => call.body.digest)).toEqual([DIGEST]);
  });

  test("is neither shown nor approved nor edited if the rest does not arrive", async () => {
    await openCut(false);
    await change(() => go({ screen: "gate", session: "shop", gate: "019a-1" }));
    await settle();
    expect(has("group", "Command")).toBe(false);
    expect(mayApprove()).toEqual([]);
    expect(has("button", "Edit")).toBe(false);
    expect(has("button", "Always allow…")).toBe(false);
    await key(document.querySelector("section.card") as HTMLElement, "keydown", "a");
    await pass(0);
    expect(app.posts()).toEqual([]);
  });

  test.each([true, false])("is approved with others only if all of it is there: %s", async (isLoaded) => {
    await openCut(isLoaded);
    await click(get("button", "Select several"));
    await click(get("button", "Select all"));
    await click(get("button", /^Review/));
    await settle();
    expect(all("group", "Command").some((command) => command.textContent === LINE)).toBe(isLoaded);
    app.onPost = (call) => ({ ack: {}, gate: closedDetails(gateItem({ gate: call.path.split("/")[5] as string })) });
    await click(get("button", "Approve all 2"));
    await pass(0);
    expect(app.posts().length).toBe(isLoaded ? 2 : 0);
  });
});

test("a gate that the list does not have is asked for once at a time, however often the list changes", async () => {
  app.gates.value = [];
  const answers: (() => void)[] = [];
  const get = app.api.get;
  app.api.get = async (path) => {
    if (path.includes("/gates/")) await new Promise<void>((resolve) => answers.push(resolve));
    return get(path);
  };
  app.details.set("019a-9", openDetails(gateItem({ gate: "019a-9", line: "make nine" })));
  go({ screen: "gate", session: "shop", gate: "019a-9" });
  show(<Page />, app);
  await pass(0);
  for (let more = 0; more < 20; more += 1) {
    await change(() => (app.gates.value = [gateItem({ gate: `019a-${100 + more}` })]));
    await pass(0);
  }
  expect(answers.length).toBe(1);
  answers[0]?.();
  await pass(0);
  expect(text()).toContain("make nine");
  expect(answers.length).toBe(2);
});
