// @vitest-environment happy-dom
// The server's copy of this browser's push subscription follows the browser.

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Api } from "../../src/net/api";
import { fromBase64Url, startPush, stopPush, syncPush } from "../../src/screens/settings/push";
import { channelOfThisBrowser, pushState } from "../../src/state/push_state";
import { TOKEN, fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";

const KEY = "BP-_AQ";

class FakePushManager {
  subscription: FakeSubscription | null = null;
  asked: PushSubscriptionOptionsInit[] = [];

  getSubscription = () => Promise.resolve(this.subscription);

  /** Gives the same subscription for the same key, and refuses a second key, as browsers do. */
  subscribe = (options: PushSubscriptionOptionsInit) => {
    if (this.subscription !== null) {
      const [old, fresh] = [this.subscription.options.applicationServerKey, options.applicationServerKey as Uint8Array];
      const isSame = String(new Uint8Array(old)) === String(fresh);
      return isSame ? Promise.resolve(this.subscription) : Promise.reject(new DOMException("another key", "InvalidStateError"));
    }
    this.asked.push(options);
    this.subscription = new FakeSubscription(this, `https://push.example/${this.asked.length}`, options.applicationServerKey as Uint8Array<ArrayBuffer>);
    return Promise.resolve(this.subscription);
  };
}

class FakeSubscription {
  readonly options: { applicationServerKey: ArrayBuffer };

  constructor(
    private readonly manager: FakePushManager,
    readonly endpoint: string,
    key: Uint8Array<ArrayBuffer>,
  ) {
    this.options = { applicationServerKey: key.slice().buffer };
  }

  toJSON = () => ({ endpoint: this.endpoint, expirationTime: null, keys: { p256dh: "p", auth: "a" } });

  unsubscribe = () => {
    this.manager.subscription = null;
    return Promise.resolve(true);
  };
}

const api = new Api(TOKEN);
let manager: FakePushManager;
let server: FakeServer;

beforeEach(() => {
  localStorage.clear();
  server = fakeServer();
  manager = new FakePushManager();
  vi.stubGlobal("PushManager", FakePushManager);
  vi.stubGlobal("navigator", { userAgent: "Firefox/1 Linux", serviceWorker: { getRegistration: () => Promise.resolve({ pushManager: manager }) } });
  server.on("GET", "/api/push/key", { key: KEY });
  server.on("GET", "/api/notifications", { channels: [{ id: "s/1" }] });
  server.on("POST", "/api/push/subscriptions", { id: "s/1" });
  server.on("DELETE", "/api/push/subscriptions/s%2F1", null, 204);
});

afterEach(() => vi.unstubAllGlobals());

const body = (number: number) => ({ endpoint: `https://push.example/${number}`, keys: { p256dh: "p", auth: "a" }, label: "Firefox on Linux" });

it("subscribes with the server's key, and tells the server", async () => {
  expect(await pushState("ann")).toBe("off");
  await startPush(api, "ann");
  expect(manager.asked).toEqual([{ userVisibleOnly: true, applicationServerKey: fromBase64Url(KEY) }]);
  expect(server.changes).toEqual([{ method: "POST", path: "/api/push/subscriptions", body: body(1) }]);
  expect(await pushState("ann")).toBe("on");
  expect(await pushState("bob")).toBe("off");
});

it("drops a subscription for another key first", async () => {
  await manager.subscribe({ applicationServerKey: fromBase64Url("AAAA") });
  const old = manager.subscription;
  await startPush(api, "ann");
  expect(manager.subscription).not.toBe(old);
  expect(server.changes).toEqual([{ method: "POST", path: "/api/push/subscriptions", body: body(2) }]);
});

it("ends at both sides, also if the server has forgotten it", async () => {
  await startPush(api, "ann");
  server.on("DELETE", "/api/push/subscriptions/s%2F1", { message: "gone" }, 404);
  await stopPush(api);
  expect(manager.subscription).toBe(null);
  expect(await pushState("ann")).toBe("off");
  await stopPush(api);
  expect(server.changes.filter((asked) => asked.method === "DELETE")).toHaveLength(1);
});

it("registers what the browser has changed by itself", async () => {
  await startPush(api, "ann");
  await syncPush(api, "ann");
  expect(server.changes).toHaveLength(1);
  manager.subscription = null;
  await manager.subscribe({ applicationServerKey: fromBase64Url(KEY) });
  server.on("POST", "/api/push/subscriptions", { id: "s2" });
  await syncPush(api, "ann");
  expect(server.changes.slice(1)).toEqual([
    { method: "POST", path: "/api/push/subscriptions", body: body(2) },
    { method: "DELETE", path: "/api/push/subscriptions/s%2F1" },
  ]);
  expect(await pushState("ann")).toBe("on");
});

it("tells the server when the browser has ended it", async () => {
  await startPush(api, "ann");
  manager.subscription = null;
  await syncPush(api, "ann");
  expect(server.changes.at(-1)).toEqual({ method: "DELETE", path: "/api/push/subscriptions/s%2F1" });
  await syncPush(api, "ann");
  expect(server.changes).toHaveLength(2);
});

it("registers again what ended with the token of before", async () => {
  await startPush(api, "ann");
  server.on("GET", "/api/notifications", { channels: [{ id: "of another browser" }] });
  server.on("POST", "/api/push/subscriptions", { id: "s2" });
  await syncPush(api, "ann");
  expect(server.changes.slice(1)).toEqual([{ method: "POST", path: "/api/push/subscriptions", body: body(1) }]);
  expect(channelOfThisBrowser()).toBe("s2");
  server.on("GET", "/api/notifications", { channels: [{ id: "s2" }] });
  await syncPush(api, "ann");
  expect(server.changes).toHaveLength(2);
});

it("is off if the server does not take it any more, so that the open page tells again", async () => {
  await startPush(api, "ann");
  server.on("GET", "/api/notifications", { channels: [] });
  server.on("POST", "/api/push/subscriptions", { message: "the operator does not allow it" }, 403);
  await syncPush(api, "ann");
  expect([await pushState("ann"), manager.subscription, channelOfThisBrowser()]).toEqual(["off", null, null]);
});

it("stays as it is while the server cannot be asked", async () => {
  await startPush(api, "ann");
  server.on("GET", "/api/notifications", { message: "busy" }, 503);
  await expect(syncPush(api, "ann")).rejects.toThrow("busy");
  expect(await pushState("ann")).toBe("on");
});

it("shows nobody the notifications of whoever had the device before", async () => {
  await startPush(api, "ann");
  await syncPush(api, "bob");
  expect(manager.subscription).toBe(null);
  expect(server.changes).toHaveLength(1);
});

it("is not there without a service worker", async () => {
  vi.stubGlobal("navigator", { userAgent: "" });
  expect(await pushState("ann")).toBe("unsupported");
});
