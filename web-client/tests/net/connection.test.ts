// @vitest-environment happy-dom
// Sleep and changes of the network: a socket that leads nowhere is found out soon.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { SessionConnection } from "../../src/net/connection";
import type { Refused } from "../../src/net/connection";
import type { Device } from "../../src/net/device";
import { welcome } from "../fold/messages";
import { CONFIG } from "../screens/support/session";

interface Frame {
  id: string;
  type: string;
  payload: Record<string, unknown>;
}

class FakeSocket {
  static all: FakeSocket[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  isClosed = false;
  readonly sent: Frame[] = [];
  constructor() {
    FakeSocket.all.push(this);
  }
  send(text: string): void {
    this.sent.push(JSON.parse(text) as Frame);
  }
  close(): void {
    this.isClosed = true;
  }
  say(type: string, payload: object, more: object = {}): void {
    this.onmessage?.({ data: JSON.stringify({ v: 1, id: `m${Math.random()}`, ts: new Date().toISOString(), session: "s", sender: "system", type, payload, ...more }) });
  }
}

const device: Device = { token: "t", participant: "ann", name: "Ann", roles: ["approver"], session: null, expires: null };
const answered = vi.fn();
const ended = vi.fn();
let connection: SessionConnection;

beforeEach(() => {
  vi.useFakeTimers();
  vi.clearAllMocks();
  localStorage.clear();
  FakeSocket.all = [];
  vi.stubGlobal("WebSocket", FakeSocket);
  connection = new SessionConnection({ session: "s", device, history: 10, onJoinAnswered: answered, onEnded: ended });
});

afterEach(() => {
  connection.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function socket(): FakeSocket {
  return FakeSocket.all.at(-1) as FakeSocket;
}

async function letIn(head: number): Promise<void> {
  // Between two attempts, nobody is there to be let in.
  if (connection.state.value === "waiting") dispatchEvent(new Event("online"));
  socket().onopen?.();
  socket().say("session.welcome", welcome("ann", [], { head, config: CONFIG }));
  await vi.advanceTimersByTimeAsync(0);
  expect(connection.state.value).toBe("open");
}

function becomeVisible(): void {
  document.dispatchEvent(new Event("visibilitychange"));
}

const WAKES: [string, () => void][] = [
  ["the network is back", () => dispatchEvent(new Event("online"))],
  ["the page is looked at again", becomeVisible],
  ["the page is taken out of the browser's memory", () => dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }))],
];

test.each(WAKES)("when %s, a socket that does not answer is left within seconds", async (_, wake) => {
  await letIn(0);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(connection.state.value).toBe("open");
  wake();
  expect(socket().sent.at(-1)?.type).toBe("heartbeat.ping");
  await vi.advanceTimersByTimeAsync(5000);
  expect(FakeSocket.all[0]?.isClosed).toBe(true);
  await vi.advanceTimersByTimeAsync(1000);
  expect(FakeSocket.all).toHaveLength(2);
});

test("a socket that answers is kept, and given the usual patience again", async () => {
  await letIn(0);
  becomeVisible();
  const ping = socket().sent.at(-1) as Frame;
  await vi.advanceTimersByTimeAsync(4000);
  socket().say("heartbeat.pong", {}, { ref: ping.id });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(connection.state.value).toBe("open");
  expect(FakeSocket.all).toHaveLength(1);
});

test("a connection that was lost is tried again at once", async () => {
  await letIn(0);
  socket().onclose?.();
  expect(connection.state.value).toBe("waiting");
  dispatchEvent(new Event("online"));
  expect(FakeSocket.all).toHaveLength(2);
  // A second event does not open a second socket.
  becomeVisible();
  expect(FakeSocket.all).toHaveLength(2);
});

test("a connection that was closed here hears no more of it", async () => {
  await letIn(0);
  const stopped = vi.spyOn(globalThis, "removeEventListener");
  connection.close();
  expect(stopped.mock.calls.map(([type]) => type)).toEqual(["online", "pageshow", "pagehide"]);
  dispatchEvent(new Event("online"));
  becomeVisible();
  expect(FakeSocket.all).toHaveLength(1);
});

test("no token goes into a socket before the server is known, and the next one is asked again", async () => {
  connection.close();
  const guard = { confirm: vi.fn(async () => undefined as void), doubt: vi.fn() };
  connection = new SessionConnection({ session: "s", device, history: 10, guard });
  guard.confirm.mockRejectedValueOnce(new Error("another server"));
  socket().onopen?.();
  await vi.advanceTimersByTimeAsync(0);
  expect([socket().sent, socket().isClosed, connection.state.value]).toEqual([[], true, "waiting"]);
  expect(guard.doubt).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1000);
  socket().onopen?.();
  await vi.advanceTimersByTimeAsync(0);
  expect([FakeSocket.all.length, guard.confirm.mock.calls.length, socket().sent.map(({ type }) => type)]).toEqual([3, 2, ["session.join"]]);
});

test("every welcome says that the record can be looked at, and what was received up to then", async () => {
  await letIn(1);
  expect(answered).toHaveBeenCalledTimes(1);
  expect(connection.received).toBe(null);
  socket().say("prompt.submit", { content: "hello" }, { seq: 1, sender: "bob" });
  await vi.advanceTimersByTimeAsync(0);
  expect(connection.received).toMatchObject({ seq: 1 });
  socket().onclose?.();
  await vi.advanceTimersByTimeAsync(1000);
  await letIn(1);
  expect(answered).toHaveBeenCalledTimes(2);
});

test("what was received is told when a socket ends, the page goes away and the connection is closed", async () => {
  await letIn(1);
  dispatchEvent(new Event("pagehide"));
  expect(ended).not.toHaveBeenCalled();
  socket().say("prompt.submit", { content: "hello" }, { seq: 1, sender: "bob" });
  await vi.advanceTimersByTimeAsync(0);
  const ways = [() => dispatchEvent(new Event("pagehide")), () => socket().onclose?.(), () => connection.close()];
  for (const [index, end] of ways.entries()) {
    end();
    expect(ended).toHaveBeenCalledTimes(index + 1);
    expect(ended).toHaveBeenLastCalledWith(expect.objectContaining({ seq: 1 }));
  }
});

test("a refusal to go on from what was received says so as well, and is tried again", async () => {
  socket().onopen?.();
  const refusal = { code: "INVALID_STATE", message: "`after` is beyond the log", recoverable: true, related_to: socket().sent[0]?.id };
  socket().say("error", refusal);
  await vi.advanceTimersByTimeAsync(0);
  expect(answered).toHaveBeenCalledTimes(1);
  expect(connection.state.value).toBe("connecting");
  socket().onclose?.();
  await vi.advanceTimersByTimeAsync(1000);
  expect(FakeSocket.all).toHaveLength(2);
});

describe("what is typed without a connection", () => {
  const sentTypes = () => socket().sent.map((message) => message.type).filter((type) => type !== "session.join");
  const submit = (type: string, id: string) => {
    const payload = type === "shell.exec" ? { command: "touch late-file" } : { content: "build it", target_agent: "bot", contributors: ["ann"], context_keys: [] };
    return connection.send(type, payload, id).then(
      () => "sent",
      (error: Refused) => error.code,
    );
  };
  /** The page is closed and opened again: its modules start anew, and know nothing of what was before. */
  async function openAgain(): Promise<void> {
    connection.close();
    vi.resetModules();
    await (await import("../../src/i18n")).setLanguage("en");
    const { SessionConnection: Fresh } = await import("../../src/net/connection");
    connection = new Fresh({ session: "s", device, history: 10 }) as unknown as SessionConnection;
    await vi.advanceTimersByTimeAsync(0);
  }

  test("is sent when the connection is back soon", async () => {
    const outcome = submit("shell.exec", "c1");
    await vi.advanceTimersByTimeAsync(10_000);
    await letIn(0);
    expect(sentTypes()).toEqual(["shell.exec"]);
    socket().say("session.ack", { id: "c1", seq: 1 });
    await vi.advanceTimersByTimeAsync(0);
    expect([await outcome, connection.unsent.value, Object.keys(localStorage)]).toEqual(["sent", 0, []]);
  });

  test.each(["shell.exec", "prompt.submit", "vote.cast"])("comes back after a minute, if it is a %s", async (type) => {
    const outcome = submit(type, "c1");
    await vi.advanceTimersByTimeAsync(61_000);
    await letIn(0);
    expect([await outcome, sentTypes(), connection.unsent.value]).toEqual(["STALE", [], 0]);
  });

  test.each([true, false])("and went into a socket that was lost, is looked for before it is sent again (there: %s)", async (isThere) => {
    await letIn(0);
    const outcome = submit("shell.exec", "c1");
    socket().onclose?.();
    await vi.advanceTimersByTimeAsync(1000);
    socket().onopen?.();
    socket().say("session.welcome", welcome("ann", [], { head: 1, config: CONFIG }));
    await vi.advanceTimersByTimeAsync(0);
    // A server that has taken in much since may not know by the id that it has the command already.
    expect(sentTypes()).toEqual([]);
    if (isThere) socket().say("shell.exec", { command: "touch late-file", executor: "bot", origin: "ui_bang" }, { seq: 1, id: "c1", sender: "ann" });
    else socket().say("prompt.submit", { content: "hello" }, { seq: 1, sender: "bob" });
    await vi.advanceTimersByTimeAsync(0);
    expect(sentTypes()).toEqual(isThere ? [] : ["shell.exec"]);
    if (!isThere) socket().say("session.ack", { id: "c1", seq: 2 });
    await vi.advanceTimersByTimeAsync(0);
    expect([await outcome, connection.unsent.value, Object.keys(localStorage)]).toEqual(["sent", 0, []]);
  });

  test("can be withdrawn", async () => {
    const outcome = submit("shell.exec", "c1");
    expect(connection.waiting.value).toMatchObject([{ id: "c1", isWritten: false }]);
    connection.withdraw("c1");
    await letIn(0);
    expect([await outcome, sentTypes(), connection.waiting.value]).toEqual(["WITHDRAWN", [], []]);
  });

  test("does not run when the page is opened again, but comes back", async () => {
    void submit("shell.exec", "c1");
    void submit("prompt.submit", "p1");
    await openAgain();
    expect(connection.waiting.value.map(({ id }) => id)).toEqual(["c1", "p1"]);
    await letIn(0);
    expect(sentTypes()).toEqual(["prompt.submit"]);
    expect(connection.takeReturned()).toMatchObject([{ message: { id: "c1", payload: { command: "touch late-file" } }, why: { code: "STALE" } }]);
    expect(Object.keys(localStorage)).toEqual(["pvp.outbox.ann.s/p1"]);
  });

  test("a prompt comes back, too, if the page is opened again much later", async () => {
    void submit("prompt.submit", "p1");
    vi.setSystemTime(Date.now() + 120_000);
    await openAgain();
    await letIn(0);
    expect(sentTypes()).toEqual([]);
    expect(connection.takeReturned()).toMatchObject([{ message: { id: "p1" } }]);
    expect([connection.takeReturned(), Object.keys(localStorage)]).toEqual([[], []]);
  });

  test.each([true, false])("and may have been sent, is looked for in the stream first (there: %s)", async (isThere) => {
    await letIn(0);
    void submit("shell.exec", "c1");
    await openAgain();
    socket().onopen?.();
    socket().say("session.welcome", welcome("ann", [], { head: 1, config: CONFIG }));
    await vi.advanceTimersByTimeAsync(0);
    expect(connection.takeReturned()).toEqual([]);
    if (isThere) socket().say("shell.exec", { command: "touch late-file", executor: "bot", origin: "ui_bang" }, { seq: 1, id: "c1", sender: "ann" });
    else socket().say("prompt.submit", { content: "hello" }, { seq: 1, sender: "bob" });
    await vi.advanceTimersByTimeAsync(0);
    expect(connection.takeReturned().map(({ why }) => why.code)).toEqual(isThere ? [] : ["UNCERTAIN"]);
    expect([sentTypes(), connection.waiting.value, Object.keys(localStorage)]).toEqual([[], [], []]);
  });

  test.each([true, false])("a prompt that may have been sent is looked for before it is sent again (there: %s)", async (isThere) => {
    await letIn(0);
    void submit("prompt.submit", "p1");
    await openAgain();
    socket().onopen?.();
    socket().say("session.welcome", welcome("ann", [], { head: 1, config: CONFIG }));
    await vi.advanceTimersByTimeAsync(0);
    expect(sentTypes()).toEqual([]);
    const prompt = { content: "build it", target_agent: "bot", contributors: ["ann"], context_keys: [] };
    socket().say("prompt.submit", prompt, { seq: 1, sender: "ann", id: isThere ? "p1" : "p0" });
    await vi.advanceTimersByTimeAsync(0);
    expect([sentTypes(), connection.takeReturned()]).toEqual([isThere ? [] : ["prompt.submit"], []]);
  });

  test("waits for its own tab while that is open, and two tabs keep what both of them hold", async () => {
    const locks = new FakeLocks();
    vi.stubGlobal("navigator", { ...navigator, locks });
    connection.close();
    const tab = async () => {
      vi.resetModules();
      await (await import("../../src/i18n")).setLanguage("en");
      return new (await import("../../src/net/connection")).SessionConnection({ session: "s", device, history: 10 }) as unknown as SessionConnection;
    };
    const first = await tab();
    const second = await tab();
    void first.send("shell.exec", { command: "one" }, "c1").catch(() => undefined);
    void second.send("prompt.submit", { content: "two" }, "p2").catch(() => undefined);
    expect(Object.keys(localStorage).sort()).toEqual(["pvp.outbox.ann.s/c1", "pvp.outbox.ann.s/p2"]);
    connection = await tab();
    await vi.advanceTimersByTimeAsync(0);
    await letIn(0);
    expect([connection.waiting.value, connection.takeReturned(), sentTypes()]).toEqual([[], [], []]);
    for (const open of [first, second]) open.close();
    locks.closePages(2);
    await vi.advanceTimersByTimeAsync(0);
    expect([connection.takeReturned().map(({ message }) => message.id), sentTypes()]).toEqual([["c1"], ["prompt.submit"]]);
  });
});

/** The locks of a browser in which pages are closed, the first ones first. */
class FakeLocks {
  private holders: string[] = [];
  private waiting: { name: string; act: () => void }[] = [];

  async request(name: string, ...rest: unknown[]): Promise<void> {
    const act = rest.at(-1) as () => void;
    if (this.holders.includes(name)) this.waiting.push({ name, act });
    else if (rest.length === 1) this.holders.push(name);
    else act();
  }

  async query(): Promise<{ held: { name: string }[] }> {
    return { held: this.holders.map((name) => ({ name })) };
  }

  closePages(count: number): void {
    this.holders = this.holders.slice(count);
    for (const { name, act } of this.waiting) if (!this.holders.includes(name)) act();
  }
}

describe("output that is asked for without a connection", () => {
  const reads = () => socket().sent.filter((frame) => frame.type === "output.read");
  const read = () => connection.readOutput({ ref: "p1", offset: 0, limit: 10 });

  test("is read when the connection is there", async () => {
    const reading = read();
    await vi.advanceTimersByTimeAsync(5000);
    expect(reads()).toEqual([]);
    await letIn(0);
    await vi.advanceTimersByTimeAsync(0);
    const [asked] = reads();
    expect(asked?.payload).toEqual({ ref: "p1", offset: 0, limit: 10 });
    socket().say("output.page", { ref: "p1", lines: [], total_lines: 0, total_bytes: 0, finished: true, cut: false }, { ref: asked?.id });
    await vi.advanceTimersByTimeAsync(0);
    expect(await reading).toMatchObject({ total_lines: 0 });
  });

  test.each<[string, () => unknown]>([
    ["does not come", () => vi.advanceTimersByTimeAsync(10_000)],
    ["is closed", () => connection.close()],
  ])("fails when the connection %s", async (_, happen) => {
    const failed = read().catch((error: Refused) => error.code);
    await happen();
    await vi.advanceTimersByTimeAsync(0);
    expect(await failed).toBe("TRANSPORT_ERROR");
    expect(reads()).toEqual([]);
  });
});
