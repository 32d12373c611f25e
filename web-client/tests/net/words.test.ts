// @vitest-environment happy-dom
// What goes wrong between the page and the server is said in the person's language.

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { de } from "../../src/i18n/de";
import { en } from "../../src/i18n/en";
import { setLanguage } from "../../src/i18n";
import { Api, ApiError } from "../../src/net/api";
import { deviceName } from "../../src/net/device";
import { messageOf } from "../../src/ui/message";

beforeEach(() => setLanguage("de"));
afterEach(async () => {
  await setLanguage("en");
  vi.unstubAllGlobals();
});

const broken = () => new ReadableStream({ start: (controller) => controller.error(new TypeError("network error")) });

it.each<[string, () => Promise<Response>, string, number]>([
  ["no server", () => Promise.reject(new TypeError("Failed to fetch")), de.net.unreachable, 0],
  ["a server that is too slow", () => Promise.reject(new DOMException("signal timed out", "TimeoutError")), de.net.tooSlow, 0],
  ["an answer that breaks off", () => Promise.resolve(new Response(broken())), de.net.unreachable, 0],
  ["a page of a proxy", () => Promise.resolve(new Response("<html>")), de.net.notJson, 200],
  ["a proxy without a server", () => Promise.resolve(new Response("<html>", { status: 502 })), de.net.status(502), 502],
  ["a refusal", () => Promise.resolve(new Response(JSON.stringify({ message: "the session is full", code: "FULL" }), { status: 409 })), "the session is full", 409],
])("%s", async (_, answer, words, status) => {
  vi.stubGlobal("fetch", answer);
  const api = new Api("t");
  for (const options of [{}, { exactNumbers: true }]) {
    const error: unknown = await api.get("/api/me", options).catch((problem: unknown) => problem);
    expect(error).toBeInstanceOf(ApiError);
    expect([messageOf(error), (error as ApiError).status]).toEqual([words, status]);
  }
});

it("a device is called what people call it", async () => {
  const phone = "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36";
  expect(deviceName(phone)).toBe("Chrome auf Android");
  expect(deviceName("something else")).toBe(de.net.anyBrowser);
  await setLanguage("en");
  expect(deviceName(phone)).toBe(en.net.browserOn("Chrome", "Android"));
});

it("what goes wrong before the words are here is said when they are", async () => {
  vi.resetModules();
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
  const fresh = await import("../../src/net/api");
  const heard: string[] = [];
  const asked = new fresh.Api(null).get("/api/key").catch((error: Error) => heard.push(error.message));
  await new Promise((resolve) => setTimeout(resolve));
  expect(heard).toEqual([]);
  await (await import("../../src/i18n")).setLanguage("de");
  await asked;
  expect(heard).toEqual([de.net.unreachable]);
});
