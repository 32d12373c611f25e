// @vitest-environment happy-dom
// A session is opened again, to read all of it or after a restore, while something that was typed is on its way.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { recall } from "../../src/composer/memory";
import { ComposerModel } from "../../src/composer/model";
import { en } from "../../src/i18n/en";
import { forgetDevice } from "../../src/net/device";
import type { Device } from "../../src/net/device";
import { SessionConnection } from "../../src/net/connection";
import { announcements } from "../../src/state/announcements";
import { agent, person, welcome } from "../fold/messages";
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
  readonly sent: Frame[] = [];

  constructor() {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Frame);
  }

  close(): void {
    // The page does not wait for the other end.
  }

  say(type: string, payload: object, more: object = {}): void {
    this.onmessage?.({ data: JSON.stringify({ v: 1, id: `m${Math.random()}`, ts: new Date().toISOString(), session: "s", sender: "system", type, payload, ...more }) });
  }
}

const device: Device = { token: "t", participant: "ann", name: "Ann", roles: ["approver"], session: null, expires: null };
const connections: SessionConnection[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  announcements.value = [];
  FakeSocket.all = [];
  vi.stubGlobal("WebSocket", FakeSocket);
});

afterEach(() => {
  for (const connection of connections.splice(0)) connection.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function open(): { connection: SessionConnection; composer: ComposerModel } {
  const connection = new SessionConnection({ session: "s", device, history: 10 });
  connections.push(connection);
  return { connection, composer: new ComposerModel(connection, "ann") };
}

async function letIn(): Promise<FakeSocket> {
  const socket = FakeSocket.all.at(-1) as FakeSocket;
  socket.onopen?.();
  const executor = { profiles: ["read"], shell_exec: true, working_directory: "/work" };
  const limits = { message_bytes: 1_048_576, json_depth: 64, messages_per_second: 200, message_burst: 1000, participants: 200, open_proposals: 32, open_gates: 100, context_bytes: 8_388_608, proposals: 100_000 };
  socket.say("session.welcome", welcome("ann", [person("ann", ["admin"]), agent("bot", { executor })], { head: 0, config: CONFIG, limits }));
  await vi.advanceTimersByTimeAsync(0);
  return socket;
}

const typed = (socket: FakeSocket) => socket.sent.filter((message) => message.type === "prompt.submit" || message.type === "shell.exec");

test.each(["build it", "!touch once"])("%j is sent once, and is not given back as well", async (text) => {
  const before = open();
  await letIn();
  before.composer.setText(text);
  before.composer.submit();
  before.connection.close();
  await vi.advanceTimersByTimeAsync(0);
  const after = open();
  const socket = await letIn();
  after.composer.onViewChanged();
  const [sent, ...others] = typed(socket);
  expect([after.composer.text.value, announcements.value.filter(({ tone }) => tone === "error"), others]).toEqual(["", [], []]);
  expect(sent).toBeDefined();
  socket.say("error", { code: "INVALID_STATE", message: "no", recoverable: true, related_to: sent?.id });
  await vi.advanceTimersByTimeAsync(0);
  after.composer.onViewChanged();
  expect(after.composer.text.value).toBe(text);
});

test("what cannot be kept comes back at once", async () => {
  const refuse = () => {
    throw new DOMException("full", "QuotaExceededError");
  };
  vi.stubGlobal("localStorage", { getItem: () => null, setItem: refuse, removeItem: () => undefined });
  const { connection, composer } = open();
  await letIn();
  composer.setText("build it");
  composer.submit();
  connection.close();
  await vi.advanceTimersByTimeAsync(0);
  expect([composer.text.value, composer.problem.value]).toEqual(["build it", en.composer.notSent(en.net.closed)]);
});

test.each([
  ["here", (connection: SessionConnection) => (connection.close("leaving"), forgetDevice(device))],
  ["in another tab", (connection: SessionConnection) => (forgetDevice(device), connection.close("leaving"))],
])("signing out %s leaves nothing of it behind", async (_, signOut) => {
  localStorage.setItem("pvp.device", JSON.stringify(device));
  const { connection, composer } = open();
  await letIn();
  composer.setText("the key is under the mat");
  composer.submit();
  signOut(connection);
  await vi.advanceTimersByTimeAsync(0);
  expect(Object.keys(localStorage)).toEqual([]);
  expect(recall("ann.s").history).toEqual([]);
});
