// @vitest-environment happy-dom
// What this browser remembers of each record, and what it makes of a server that offers another one.

import { beforeEach, describe, expect, it } from "vitest";
import type { SessionHead } from "@protocol";
import { Api } from "../../src/net/api";
import { forgetDevice } from "../../src/net/device";
import { checkRecord, compareHeads, rememberReceived, seenHead } from "../../src/net/head_memory";
import type { SeenHead } from "../../src/net/head_memory";
import { keysWith } from "../../src/net/storage";
import { fakeServer, TOKEN } from "../screens/support/server";
import type { FakeServer } from "../screens/support/server";

const api = new Api(TOKEN);
const minute = (count: number) => new Date(Date.UTC(2026, 10, 18, 10, count)).toISOString();
const hash = (seq: number, log: string) => `${log}-${seq}`;

interface Offer {
  seq: number;
  /** Which log it is: another one has other hashes. */
  log?: string;
  key?: string;
  earlier?: string[];
  restored?: number;
  now?: number;
}

let server: FakeServer;

beforeEach(() => {
  localStorage.clear();
  server = fakeServer();
});

function answer({ seq, log = "a", key = "k1", earlier = [], restored, now = 1 }: Offer, at?: number): SessionHead {
  return {
    session: "owl",
    head: { seq, hash: hash(seq, log) },
    ...(at === undefined || at > seq ? {} : { entry: { seq: at, hash: hash(at, log) } }),
    key,
    earlier_keys: earlier,
    ...(restored === undefined ? {} : { restored_at: minute(restored) }),
    now: minute(now),
  };
}

/** Checks against a server that offers this, whatever it is asked. */
function check(offer: Offer, received: { seq: number; at: number } | null = null, session = "owl") {
  server.on("GET", `/api/sessions/${session}/head`, answer(offer));
  for (let at = 1; at <= 20; at += 1) server.on("GET", `/api/sessions/${session}/head?at=${at}`, answer(offer, at));
  return checkRecord(api, session, received);
}

const at = (count: number) => Date.parse(minute(count));

describe("a record", () => {
  it("that grows is the same, and remembered up to where it was seen last", async () => {
    expect(await check({ seq: 5 })).toBe(null);
    expect(await check({ seq: 9, now: 2 })).toBe(null);
    expect(seenHead("owl")).toEqual({ seq: 9, hash: hash(9, "a"), key: "k1", at: at(2) });
  });

  it("that is shorter or other is called out as often as it is looked at", async () => {
    await check({ seq: 5 });
    for (const now of [2, 3]) expect(await check({ seq: 4, now })).toEqual({ kind: "shorter", seen: 5, offered: 4 });
    for (const now of [4, 5]) expect(await check({ seq: 9, log: "b", now })).toEqual({ kind: "rewritten", seq: 5 });
    expect(await check({ seq: 6, now: 6 })).toBe(null);
  });

  it("that was declared as restored is told of once, and is the one to compare with from then on", async () => {
    await check({ seq: 9, now: 1 });
    const restored = { seq: 4, restored: 2, now: 3 };
    expect(await check(restored)).toEqual({ kind: "restored", at: minute(2), seen: 9 });
    expect(await check({ ...restored, now: 4 })).toBe(null);
    expect(await check({ ...restored, seq: 12, log: "a", now: 5 })).toBe(null);
    expect(await check({ ...restored, seq: 3, now: 6 })).toEqual({ kind: "shorter", seen: 12, offered: 3 });
  });

  it("is not excused by a restore that was declared before it was seen", async () => {
    await check({ seq: 9, now: 3, restored: 2 });
    expect(await check({ seq: 4, now: 4, restored: 2 })).toEqual({ kind: "shorter", seen: 9, offered: 4 });
    expect(await check({ seq: 4, now: 4, restored: 3 })).toEqual({ kind: "shorter", seen: 9, offered: 4 });
    expect(await check({ seq: 12, log: "b", now: 4, restored: 2 })).toEqual({ kind: "rewritten", seq: 9 });
  });

  it("is also held against what was received since it was looked at", async () => {
    await check({ seq: 5, now: 1 });
    expect(await check({ seq: 7, now: 3 }, { seq: 8, at: at(2) })).toEqual({ kind: "shorter", seen: 8, offered: 7 });
    expect(await check({ seq: 8, now: 3 }, { seq: 8, at: at(2) })).toBe(null);
  });

  it("is also held against what was received last, after the page was closed or signed out", async () => {
    await check({ seq: 5, now: 1 });
    rememberReceived("owl", { seq: 8, at: at(2) });
    rememberReceived("owl", { seq: 7, at: at(2) });
    forgetDevice({ token: TOKEN, participant: "ann" });
    for (const now of [3, 4]) expect(await check({ seq: 7, now })).toEqual({ kind: "shorter", seen: 8, offered: 7 });
    expect(await check({ seq: 7, now: 5, restored: 2 })).toEqual({ kind: "shorter", seen: 8, offered: 7 });
    expect(await check({ seq: 7, now: 5, restored: 3 })).toEqual({ kind: "restored", at: minute(3), seen: 8 });
    // A page that still shows the old record is closed.
    rememberReceived("owl", { seq: 8, at: at(2) });
    expect(await check({ seq: 7, now: 6, restored: 3 })).toBe(null);
  });

  it("that was never looked at has nothing to be held against", async () => {
    rememberReceived("owl", { seq: 8, at: at(2) });
    expect(await check({ seq: 5, now: 3 })).toBe(null);
  });

  it("that another tab has found restored does not alarm the tab that still shows the old one", async () => {
    await check({ seq: 5, now: 1 });
    const restored = { seq: 4, restored: 3 };
    await check({ ...restored, now: 4 });
    expect(await check({ ...restored, now: 5 }, { seq: 8, at: at(2) })).toEqual({ kind: "restored", at: minute(3), seen: 8 });
    expect(await check({ ...restored, now: 5 }, { seq: 8, at: at(4) })).toEqual({ kind: "shorter", seen: 8, offered: 4 });
  });

  it("of a server with a new key is known by the keys that it had", async () => {
    await check({ seq: 9 });
    expect(await check({ seq: 4, key: "k2", earlier: ["k1"], now: 2 })).toEqual({ kind: "shorter", seen: 9, offered: 4 });
    expect(await check({ seq: 10, key: "k2", earlier: ["k1"], now: 3 })).toBe(null);
    expect(await check({ seq: 11, key: "k2", now: 4 })).toBe(null);
  });

  it("of another server is not mistaken for one that was cut, nor does it hide one", async () => {
    await check({ seq: 9 });
    expect(await check({ seq: 4, log: "b", key: "k9", now: 2 })).toEqual({ kind: "other_key" });
    expect(await check({ seq: 4, log: "b", key: "k9", now: 3 })).toBe(null);
    expect(await check({ seq: 5, now: 4 })).toEqual({ kind: "shorter", seen: 9, offered: 5 });
    expect(await check({ seq: 9, now: 5 })).toBe(null);
  });

  it("that an older page has remembered, without a time, is compared with", async () => {
    localStorage.setItem("pvp.head.owl", JSON.stringify({ seq: 9, hash: hash(9, "a"), key: "k1" }));
    expect(await check({ seq: 4 })).toEqual({ kind: "shorter", seen: 9, offered: 4 });
    expect(await check({ seq: 4, restored: 1 })).toMatchObject({ kind: "restored" });
  });
});

it("an answer without the entry that was asked for does not count as the same", () => {
  const seen: SeenHead = { seq: 5, hash: hash(5, "a"), key: "k1", at: at(1) };
  expect(compareHeads(seen, answer({ seq: 9 }))).toEqual({ kind: "rewritten", seq: 5 });
  expect(compareHeads(seen, answer({ seq: 9 }, 4))).toEqual({ kind: "rewritten", seq: 5 });
  expect(compareHeads(seen, answer({ seq: 9, restored: 2 }))).toEqual({ kind: "restored", at: minute(2), seen: 5 });
});

it("what was seen outlives the token", async () => {
  await check({ seq: 9 });
  localStorage.setItem("pvp.outbox.ann.owl", "[]");
  forgetDevice({ token: TOKEN, participant: "ann" });
  expect(keysWith("outbox.")).toEqual([]);
  expect(await check({ seq: 4, now: 2 })).toEqual({ kind: "shorter", seen: 9, offered: 4 });
});

it("as many records are remembered as there is room for, those seen last", async () => {
  const heads = (minutes: number) => JSON.stringify([{ seq: 1, hash: "h", key: "k1", at: minutes }]);
  for (let number = 0; number < 502; number += 1) localStorage.setItem(`pvp.head.s${number}`, heads(number));
  await check({ seq: 1 }, null, "fresh");
  expect(keysWith("head.")).toHaveLength(500);
  expect(seenHead("s2")).toBe(null);
  expect(seenHead("s3")).not.toBe(null);
  expect(seenHead("fresh")).not.toBe(null);
});

it("as many servers are remembered for one record as there is room for", async () => {
  for (let number = 0; number < 12; number += 1) await check({ seq: 5, key: `key${number}`, now: number });
  const kept = JSON.parse(localStorage.getItem("pvp.head.owl") ?? "[]") as SeenHead[];
  expect(kept.map((head) => head.key)).toEqual(["key4", "key5", "key6", "key7", "key8", "key9", "key10", "key11"]);
});
