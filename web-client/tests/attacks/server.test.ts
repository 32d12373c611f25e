// @vitest-environment happy-dom
// A server that lies, floods or never ends.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SessionConnection } from "../../src/net/connection";
import type { Device } from "../../src/net/device";

class FakeSocket {
  static all: FakeSocket[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  isClosed = false;
  constructor() {
    FakeSocket.all.push(this);
  }
  send(): void {}
  close(): void {
    this.isClosed = true;
  }
}

const device: Device = { token: "t", participant: "ann", name: "Ann", roles: ["approver"], session: null, expires: null };
let connection: SessionConnection;

beforeEach(() => {
  vi.useFakeTimers();
  FakeSocket.all = [];
  vi.stubGlobal("WebSocket", FakeSocket);
  connection = new SessionConnection({ session: "s", device, history: 10 });
});

afterEach(() => {
  connection.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("more than can be read is given up, and asked for again from where reading ended", async () => {
  const socket = FakeSocket.all[0] as FakeSocket;
  socket.onopen?.();
  const huge = "x".repeat(16 * 1024 * 1024);
  for (let times = 0; times < 20 && !socket.isClosed; times += 1) socket.onmessage?.({ data: huge });
  expect(socket.isClosed).toBe(true);
  expect(connection.state.value).toBe("waiting");
  await vi.advanceTimersByTimeAsync(1000);
  expect(FakeSocket.all).toHaveLength(2);
});

test("what is not a message changes nothing", async () => {
  const socket = FakeSocket.all[0] as FakeSocket;
  socket.onopen?.();
  const frame = { v: 1, id: "m1", ts: "2026-01-01T00:00:00.000Z", session: "s", sender: "system" };
  const end = { type: "session.end", payload: { reason: "", final_state: "completed" } };
  const refusal = { type: "error", payload: { code: "UNAUTHORIZED", message: "out", recoverable: false } };
  const lies = [
    "null",
    "{",
    "[".repeat(100_000),
    JSON.stringify({ ...frame, type: "session.welcome", payload: {} }),
    JSON.stringify({ ...frame, type: "session.ack", payload: { id: 7 } }),
    JSON.stringify({ ...frame, type: "__proto__", payload: {} }),
    JSON.stringify({ ...frame, ...end, session: "other" }),
    JSON.stringify({ ...frame, ...refusal, sender: "mallory" }),
  ];
  for (const data of [...lies, new ArrayBuffer(8)]) socket.onmessage?.({ data });
  await vi.advanceTimersByTimeAsync(100);
  expect(connection.state.value).toBe("connecting");
  expect(connection.problem.value).toBe(null);
  expect(connection.view.me).toBe(null);
  expect(connection.view.ended).toBe(null);
});

test("a welcome that never comes is not waited for", async () => {
  (FakeSocket.all[0] as FakeSocket).onopen?.();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(FakeSocket.all.length).toBeGreaterThan(1);
  expect(FakeSocket.all[0]?.isClosed).toBe(true);
});
