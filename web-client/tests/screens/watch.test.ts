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
