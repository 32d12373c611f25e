// @vitest-environment happy-dom
// The title, the badge and the notifications of the open page.

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { en } from "../../src/i18n/en";
import { forgetDevice } from "../../src/net/device";
import { observeServerDate } from "../../src/net/server_clock";
import { announcements } from "../../src/state/announcements";
import type { App } from "../../src/state/app";
import { useAttention } from "../../src/state/attention";
import { fakeApp } from "../screens/support/session";
import { openGate, START } from "./gates";

const badge = { setAppBadge: vi.fn(() => Promise.resolve()), clearAppBadge: vi.fn(() => Promise.resolve()) };
/** Those that the system shows. */
let notifications: { tag: string; data?: unknown; close(): void }[];
const showNotification = vi.fn((_title: string, { tag = "", data }: NotificationOptions) => {
  const close = () => (notifications = notifications.filter((shown) => shown.tag !== tag));
  close();
  notifications.push({ tag, data, close });
  return Promise.resolve();
});
const SETTINGS = { events: ["opened", "escalated", "closing"] as const, sessions: null, quiet_hours: null, show_command: false, vote_links: false, channels: [], kinds: [] };

let app: App;
let subscription: object | null;
let visibility: DocumentVisibilityState;
let locks: FakeLocks;

beforeEach(() => {
  vi.useFakeTimers({ now: START });
  vi.clearAllMocks();
  localStorage.clear();
  announcements.value = [];
  subscription = null;
  visibility = "hidden";
  notifications = [];
  locks = new FakeLocks();
  Object.defineProperty(document, "visibilityState", { configurable: true, get: () => visibility });
  const registration = { showNotification, getNotifications: () => Promise.resolve(notifications), pushManager: { getSubscription: () => Promise.resolve(subscription) } };
  const serviceWorker = { ready: Promise.resolve(registration), getRegistration: () => Promise.resolve(registration) };
  vi.stubGlobal("navigator", { ...badge, languages: ["en-GB"], language: "en-GB", serviceWorker, locks });
  vi.stubGlobal("Notification", { permission: "granted" });
  vi.stubGlobal("PushManager", class {});
  app = fakeApp({ gates: [], sessions: [{ session: "owl", name: "night\u202eowl" }] as never });
  app.notificationSettings.value = { ...SETTINGS, events: [...SETTINGS.events] };
  observeServerDate(new Date(START - 500).toUTCString(), START - 500);
  void act(() => render(<Attentive app={app} />, document.body));
});

afterEach(() => {
  void act(() => render(null, document.body));
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function Attentive({ app: shown }: { app: App }) {
  useAttention(shown);
  return null;
}

async function change(what: () => void): Promise<void> {
  await act(what);
  await vi.dynamicImportSettled();
  await vi.advanceTimersByTimeAsync(0);
}

/** The locks of a browser, in which other tabs of the page hold some. */
class FakeLocks {
  readonly others: string[] = [];
  private readonly held: string[] = [];
  private last: Promise<unknown> = Promise.resolve();

  request(name: string, ...rest: unknown[]): Promise<unknown> {
    const act = rest.at(-1) as () => Promise<unknown>;
    const run = async () => {
      this.held.push(name);
      await act().finally(() => this.held.splice(this.held.indexOf(name), 1));
    };
    const isShared = (rest[0] as LockOptions).mode === "shared";
    const running = isShared ? run() : this.last.then(run);
    if (!isShared) this.last = running;
    return running;
  }

  query = () => Promise.resolve({ held: [...this.held, ...this.others].map((name) => ({ name })) });
}

function shown(): { title: string; body: string }[] {
  return showNotification.mock.calls.map(([title, options]) => ({ title, body: options.body ?? "" }));
}

async function setVisible(state: DocumentVisibilityState): Promise<void> {
  await change(() => {
    visibility = state;
    document.dispatchEvent(new Event("visibilitychange"));
  });
}

test("the title and the badge count what waits, and are cleared with the screen", async () => {
  await change(() => (app.gates.value = [openGate({ gate: "a" }), openGate({ gate: "b" }), openGate({ gate: "c", mayVote: false })]));
  expect(document.title).toBe("(2) PVP");
  expect(badge.setAppBadge).toHaveBeenLastCalledWith(2);
  vi.clearAllMocks();
  await act(() => render(null, document.body));
  expect(document.title).toBe("PVP");
  expect(badge.clearAppBadge).toHaveBeenCalledTimes(1);
  await change(() => (app.gates.value = [openGate()]));
  expect(document.title).toBe("PVP");
  await vi.advanceTimersByTimeAsync(600_000);
  expect(showNotification).not.toHaveBeenCalled();
});

test("a gate is told of when it opens, when it goes to the admins and when its time is short, without its command", async () => {
  await change(() => (app.gates.value = [openGate()]));
  await change(() => (app.gates.value = [openGate()]));
  expect(shown().map(({ title }) => title)).toEqual([en.worker.titles.opened]);
  await vi.advanceTimersByTimeAsync(240_000);
  expect(shown().map(({ title }) => title)).toEqual([en.worker.titles.opened, en.worker.titles.closing]);
  await change(() => (app.gates.value = [openGate({ escalated: true, deadline: 900 })]));
  expect(shown().at(-1)?.title).toBe(en.worker.titles.escalated);
  expect(shown()).toHaveLength(3);
  expect(JSON.stringify(showNotification.mock.calls)).not.toContain("secret");
  expect(showNotification).toHaveBeenLastCalledWith(expect.anything(), expect.objectContaining({ tag: "pvp-g1", data: { session: "owl", gate: "g1", isOpen: true } }));
});

test("what the name of a session hides is visible in a notification", async () => {
  await change(() => (app.gates.value = [openGate()]));
  expect(shown()[0]?.body).toMatch(/^Session night\\u\{202e\}owl \(owl\) · write, medium risk · proposed by kit · until /);
});

test("the settings are followed: events, sessions, quiet hours, and whether the command is shown", async () => {
  const settings = { ...SETTINGS, events: [...SETTINGS.events] };
  await change(() => (app.notificationSettings.value = { ...settings, sessions: ["fox"] }));
  await change(() => (app.gates.value = [openGate({ gate: "a" })]));
  await change(() => (app.notificationSettings.value = { ...settings, events: ["closing"] }));
  await change(() => (app.notificationSettings.value = { ...settings, quiet_hours: { from: "00:00", to: "10:02", time_zone: "UTC" } }));
  expect(shown()).toEqual([]);
  // The quiet hours end.
  await vi.advanceTimersByTimeAsync(120_000);
  expect(shown().map(({ title }) => title)).toEqual([en.worker.titles.opened]);
  await change(() => (app.notificationSettings.value = { ...settings, show_command: true }));
  await change(() => (app.gates.value = [openGate({ gate: "b" })]));
  expect(shown().at(-1)?.body).toContain("touch secret");
});

test("with push on in this browser the page shows nothing, unless that way is turned off", async () => {
  localStorage.setItem("pvp.push", JSON.stringify({ id: "c1", endpoint: "https://push.example/1", participant: "ann" }));
  subscription = { endpoint: "https://push.example/1" };
  await change(() => (app.gates.value = [openGate({ gate: "a" })]));
  expect(shown()).toEqual([]);
  const channel = { id: "c1", kind: "push" as const, label: "", target: "", enabled: false };
  await change(() => (app.notificationSettings.value = { ...SETTINGS, events: [...SETTINGS.events], channels: [channel] }));
  await change(() => (app.gates.value = [openGate({ gate: "b" })]));
  expect(shown()).toHaveLength(1);
});

test("what was seen in front is not told again when the quiet hours end", async () => {
  await change(() => (app.notificationSettings.value = { ...SETTINGS, events: ["opened"], quiet_hours: { from: "00:00", to: "10:02", time_zone: "UTC" } }));
  await change(() => (app.gates.value = [openGate({ gate: "unseen" })]));
  await setVisible("visible");
  await setVisible("hidden");
  await change(() => (app.gates.value = [openGate({ gate: "unseen" }), openGate({ gate: "later" })]));
  await vi.advanceTimersByTimeAsync(120_000);
  expect(showNotification.mock.calls.map(([, options]) => options.tag)).toEqual(["pvp-later"]);
});

test("what was seen in front is not told again in the background", async () => {
  await setVisible("visible");
  await change(() => (app.gates.value = [openGate()]));
  expect(announcements.value.map(({ text }) => text)).toEqual([en.app.newGate("write", "touch secret")]);
  await setVisible("hidden");
  expect(shown()).toEqual([]);
  await vi.advanceTimersByTimeAsync(240_000);
  expect(shown().map(({ title }) => title)).toEqual([en.worker.titles.closing]);
});

test("of two tabs in the background one tells, and a tab in front is enough for both", async () => {
  const second = document.body.appendChild(document.createElement("div"));
  const other = fakeApp({ gates: [] });
  other.notificationSettings.value = app.notificationSettings.value;
  await act(() => render(<Attentive app={other} />, second));
  const open = (...gates: string[]) => change(() => (app.gates.value = other.gates.value = gates.map((gate) => openGate({ gate }))));
  await open("a");
  expect(notifications.map(({ tag }) => tag)).toEqual(["pvp-a"]);
  expect(showNotification).toHaveBeenCalledTimes(1);
  locks.others.push("pvp.front");
  await open("a", "b");
  expect(showNotification).toHaveBeenCalledTimes(1);
  locks.others.pop();
  await open("a", "b", "c");
  expect(notifications.map(({ tag }) => tag)).toEqual(["pvp-a", "pvp-c"]);
  expect(showNotification).toHaveBeenCalledTimes(2);
  await act(() => render(null, second));
});

test("whoever looks at the page says so to the other tabs", async () => {
  const held = async () => (await locks.query()).held.map(({ name }) => name);
  expect(await held()).toEqual([]);
  await setVisible("visible");
  expect(await held()).toEqual(["pvp.front"]);
  await setVisible("visible");
  expect(await held()).toEqual(["pvp.front"]);
  await setVisible("hidden");
  expect(await held()).toEqual([]);
  await setVisible("visible");
  await act(() => render(null, document.body));
  await vi.advanceTimersByTimeAsync(0);
  expect(await held()).toEqual([]);
});

test("a notification goes with what it tells of: once the gate is decided, voted on or nobody is signed in", async () => {
  await change(() => (app.gates.value = ["a", "b", "c", "d"].map((gate) => openGate({ gate }))));
  expect(notifications.map(({ tag }) => tag)).toEqual(["pvp-a", "pvp-b", "pvp-c", "pvp-d"]);
  await showNotification("decided, as a push says", { tag: "pvp-d", data: { isOpen: false } });
  await change(() => (app.gates.value = [openGate({ gate: "b", mayVote: false }), openGate({ gate: "c" }), openGate({ gate: "d", mayVote: false })]));
  expect(notifications.map(({ tag }) => tag)).toEqual(["pvp-c", "pvp-d"]);
  notifications.push({ tag: "of another page", close: () => undefined });
  forgetDevice({ token: "t", participant: "ann" });
  await vi.advanceTimersByTimeAsync(0);
  expect(notifications.map(({ tag }) => tag)).toEqual(["of another page"]);
  expect(localStorage.getItem("pvp.notices")).toBe(null);
});
