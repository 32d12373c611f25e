// What the service worker shows, opens and keeps.

import { describe, expect, it } from "vitest";
import { workerTexts as german } from "../../src/i18n/de";
import { workerTexts as texts } from "../../src/i18n/en";
import { isReplaced, mayKeep, pageTimeout, planFor } from "../../src/sw/caching";
import { addressOf, countOpen, notificationFor } from "../../src/sw/push_message";

const setting = { texts, locale: "en-GB", now: Date.parse("2026-11-18T10:00:00Z") };

/** What the worker has no words for, so that the server's are shown. */
const payload = {
  event: "opened",
  session: "blue-owl",
  session_name: "Deploy",
  gate: "01890-gate",
  category: "destructive",
  title: "Deploy: destructive",
  body: "kit proposes a command",
  url: "/#session=blue-owl&gate=01890-gate",
  tag: "gate-1",
};

describe("a push", () => {
  it("becomes a notification that opens its card", () => {
    expect(notificationFor(payload, setting)).toEqual({
      title: "Deploy: destructive",
      options: {
        body: "kit proposes a command",
        icon: "/icons/icon-192.png",
        badge: "/icons/badge-96.png",
        tag: "pvp-01890-gate",
        data: { url: "/#/gate/blue-owl/01890-gate", isOpen: true },
        renotify: true,
        silent: false,
        requireInteraction: false,
      },
    });
  });

  it("about a closed card replaces the notification without a sound", () => {
    const { options } = notificationFor({ ...payload, event: "closed" }, setting);
    expect(options).toMatchObject({ tag: "pvp-01890-gate", silent: true, renotify: false });
  });

  it("that is a test opens no card", () => {
    const { options } = notificationFor({ ...payload, event: "test" }, setting);
    expect(options).toMatchObject({ tag: "pvp-test", data: { url: "/", isOpen: false } });
  });

  it("that is about to close stays until it is touched", () => {
    expect(notificationFor({ ...payload, event: "closing" }, setting).options.requireInteraction).toBe(true);
  });

  it.each([
    ["nothing", undefined],
    ["null", null],
    ["a list", [payload]],
    ["a text", "opened"],
    ["an unknown event", { ...payload, event: "run" }],
    ["an event of the prototype", { ...payload, event: "toString" }],
    ["no title", { ...payload, title: "" }],
    ["a title that is no text", { ...payload, title: ["x"] }],
    ["a title of invisible characters", { ...payload, title: "\u202e\u200b" }],
  ])("with %s still shows something, and opens only the page", (_, bad) => {
    expect(notificationFor(bad, setting)).toEqual({
      title: texts.unreadable,
      options: { body: texts.unreadableBody, icon: "/icons/icon-192.png", badge: "/icons/badge-96.png", tag: "pvp", data: { url: "/" } },
    });
  });

  it("shows one bounded line, in reading order", () => {
    const { title, options } = notificationFor({ ...payload, title: "a\u202eb\nc", body: "💣".repeat(5000) }, setting);
    expect(title).toBe("a b · c");
    expect([...(options.body ?? "")]).toHaveLength(400);
    expect(options.body?.endsWith("💣…")).toBe(true);
  });
});

describe("the words of a push", () => {
  const known = { ...payload, risk: "high", deadline: "2026-11-18T10:05:00Z" };
  const shown = (change: object, words: typeof setting = setting) => {
    const { title, options } = notificationFor({ ...known, ...change }, words);
    return [title, options.body];
  };
  const time = (at: string) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }).format(new Date(at));

  it("are the page's, in its language", () => {
    const until = time("2026-11-18T10:05:00Z");
    expect(shown({})).toEqual(["A destructive command waits for your vote", `Session Deploy (blue-owl) · destructive, high risk · until ${until}`]);
    const deutsch = { ...setting, texts: german, locale: "de-DE" };
    expect(shown({}, deutsch)).toEqual(["Ein destruktiver Befehl wartet auf deine Stimme", `Sitzung Deploy (blue-owl) · destruktiv, hohes Risiko · bis ${until}`]);
    expect(shown({ event: "closed" }, deutsch)).toEqual(["Ein destruktiver Befehl wurde entschieden", "Sitzung Deploy (blue-owl)"]);
    expect(shown({ event: "test" }, deutsch)).toEqual([german.test, german.testBody]);
  });

  it("have the command if the person wants it, and the day if that is not today", () => {
    expect(shown({ command: "rm -rf build", deadline: null, session_name: undefined })).toEqual([
      "A destructive command waits for your vote",
      "Session blue-owl · destructive, high risk · rm -rf build",
    ]);
    expect(shown({ deadline: "2026-11-21T12:05:00Z" })[1]).toMatch(/ · until 21 Nov,? /);
  });

  it.each([
    ["category", { category: "toString" }],
    ["risk", { risk: "none at all" }],
    ["risk that is no text", { risk: { toString: "x" } }],
    ["session", { session: "../../x" }],
  ])("are the server's for an unknown %s", (_, change) => {
    expect(shown(change)).toEqual([payload.title, payload.body]);
  });

  it("can hide nothing and turn nothing round", () => {
    expect(shown({ session_name: "a\u202eb\n\u200bc", command: "x".repeat(1000) })[1]).toMatch(/^Session a b ·  c \(blue-owl\) · .*x…$/);
  });
});

it("the badge counts gates that are open, and neither decided ones nor tests", () => {
  const data = (event: string) => notificationFor({ ...payload, event }, setting).options.data as unknown;
  const shown = ["opened", "escalated", "closing", "closed", "test"].map((event) => ({ data: data(event) }));
  expect(countOpen([...shown, { data: notificationFor(null, setting).options.data }, { data: null }])).toBe(3);
});

describe("a click", () => {
  it.each([
    [{ url: "/#vote=AbC-123_x" }, "/#vote=AbC-123_x"],
    [{ url: "/#/gate/a/b" }, "/#/gate/a/b"],
    [{ session: "a", gate: "b" }, "/#/gate/a/b"],
    [{ url: "/#session=a&gate=b" }, "/#/gate/a/b"],
    [{ url: "https://evil.example/#/gate/a/b" }, "/"],
    [{ url: "//evil.example/#vote=a" }, "/"],
    [{ url: "javascript:alert(1)" }, "/"],
    [{ url: "/#token=stolen" }, "/"],
    [{ url: "/#session=a&gate=b&token=stolen" }, "/"],
    [{ url: "/api/sessions" }, "/"],
    [{ session: "../../x", gate: "b" }, "/"],
    [null, "/"],
    ["text", "/"],
  ])("on %j opens %s", (data, address) => {
    expect(addressOf(data)).toBe(address);
  });
});

describe("the cache", () => {
  const origin = "https://pvp.example";
  const shell = ["/", "/assets/page-abcdefgh.js", "/icons/icon.svg"];
  const assets = ["/assets/page-abcdefgh.js", "/assets/terminal-Zk3_9a0B.js"];
  const plan = (path: string, change: object = {}) =>
    planFor({ method: "GET", mode: "cors", url: new URL(path, origin).href, hasAuthorization: false, ...change }, origin, shell, assets);

  it("asks the server for the page first, and keeps files whose name is their content", () => {
    expect(plan("/", { mode: "navigate" })).toBe("page");
    expect(plan("/assets/page-abcdefgh.js")).toBe("asset");
    expect(plan("/assets/terminal-Zk3_9a0B.js")).toBe("asset");
    expect(plan("/icons/icon.svg")).toBe("file");
  });

  it.each([
    ["/api/gates", {}],
    ["/api/sessions/a/messages", { mode: "navigate" }],
    ["/assets/page-abcdefgh.js", { hasAuthorization: true }],
    ["/assets/page-abcdefgh.js", { method: "POST" }],
    ["/assets/page-abcdefgh.js?token=x", {}],
    ["/assets/../api/me", {}],
    ["/assets/page.js", {}],
    // Another program on the port, built with the same tools.
    ["/assets/index-DkP3x9Qa.js", {}],
    ["https://evil.example/assets/page-abcdefgh.js", {}],
    ["/", {}],
    ["/sw.js", {}],
    ["/metrics", {}],
  ])("leaves %s %j alone", (path, change) => {
    expect(plan(path, change)).toBe("leave");
  });

  it.each([
    ["localhost", null, false],
    ["pvp.localhost", null, false],
    ["127.0.0.1", null, false],
    ["127.8.0.1", null, false],
    ["[::1]", null, false],
    ["pvp.example", 5000, true],
    ["127.0.0.1.example", 5000, true],
    ["localhost.example", 5000, true],
  ])("at %s waits %s ms for the page, and takes the place of a proxy's error: %s", (hostname, timeout, replaces) => {
    expect([pageTimeout(hostname), isReplaced(hostname, 502), isReplaced(hostname, 200)]).toEqual([timeout, replaces, false]);
  });

  it("keeps only whole answers that are for everyone", () => {
    const good = { ok: true, type: "basic", redirected: false, cacheControl: "public, max-age=31536000, immutable" };
    expect(mayKeep(good)).toBe(true);
    for (const bad of [{ ok: false }, { type: "opaque" }, { redirected: true }, { cacheControl: "no-store" }, { cacheControl: "private" }]) {
      expect(mayKeep({ ...good, ...bad }), JSON.stringify(bad)).toBe(false);
    }
  });
});
