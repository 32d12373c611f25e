// @vitest-environment happy-dom
// However fast the gates change, the page asks for them at a bounded rate, one question at a time.

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { App } from "../../src/state/app";

beforeEach(() => vi.useFakeTimers());

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("collects changes before it asks again", async () => {
  let [asked, open, most] = [0, 0, 0];
  vi.stubGlobal("fetch", async (path: string) => {
    if (!path.startsWith("/api/gates")) return Response.json({ sessions: [] });
    asked += 1;
    open += 1;
    most = Math.max(most, open);
    await new Promise((resolve) => setTimeout(resolve, 1));
    open -= 1;
    // Something has changed at once, every time.
    return Response.json({ gates: [], version: asked });
  });
  const device = { token: "t", participant: "ann", name: "Ann", roles: ["approver" as const], session: null, expires: null };
  const app = new App(device, () => undefined);
  await vi.advanceTimersByTimeAsync(10_000);
  app.stop();
  expect(asked).toBeGreaterThan(10);
  expect(asked).toBeLessThanOrEqual(41);
  expect(most).toBe(1);
});

/** The locks of a browser in which another tab holds one until it is closed. */
class FakeLocks {
  private release: () => void = () => undefined;
  private readonly free: Promise<void>;

  constructor(isHeldElsewhere: boolean) {
    this.free = isHeldElsewhere ? new Promise((resolve) => (this.release = resolve)) : Promise.resolve();
  }

  request(_name: string, _options: LockOptions, act: () => Promise<void>): Promise<void> {
    return this.free.then(act);
  }

  closeOther(): void {
    this.release();
  }
}

it("waits for changes in front, and in the background in one tab alone", async () => {
  let visibility: DocumentVisibilityState = "visible";
  Object.defineProperty(document, "visibilityState", { configurable: true, get: () => visibility });
  const setVisible = (state: DocumentVisibilityState) => {
    visibility = state;
    document.dispatchEvent(new Event("visibilitychange"));
  };
  const locks = new FakeLocks(true);
  vi.stubGlobal("navigator", { ...navigator, onLine: true, locks });
  let waiting = 0;
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string, { signal }: RequestInit) => {
    if (!path.startsWith("/api/gates")) return Promise.resolve(Response.json({ sessions: [] }));
    asked.push(path);
    if (!path.includes("wait=")) return Promise.resolve(Response.json({ gates: [], version: 1 }));
    waiting += 1;
    return new Promise((_, reject) => {
      signal?.addEventListener("abort", () => {
        waiting -= 1;
        reject(new DOMException("aborted", "AbortError"));
      });
    });
  });
  const device = { token: "t", participant: "ann", name: "Ann", roles: ["approver" as const], session: null, expires: null };
  const app = new App(device, () => undefined);
  await vi.advanceTimersByTimeAsync(1000);
  expect(waiting).toBe(1);
  setVisible("hidden");
  await vi.advanceTimersByTimeAsync(0);
  expect(waiting).toBe(0);
  asked.length = 0;
  await vi.advanceTimersByTimeAsync(60_000);
  expect([waiting, new Set(asked), asked.length]).toEqual([0, new Set(["/api/gates"]), 6]);
  setVisible("visible");
  await vi.advanceTimersByTimeAsync(1000);
  expect(waiting).toBe(1);
  setVisible("hidden");
  await vi.advanceTimersByTimeAsync(1000);
  locks.closeOther();
  await vi.advanceTimersByTimeAsync(20_000);
  expect([waiting, app.reachable.value]).toEqual([1, true]);
  app.stop();
  await vi.advanceTimersByTimeAsync(0);
  expect(waiting).toBe(0);
});
