// @vitest-environment happy-dom

import { describe, expect, test, vi } from "vitest";
import type { Api } from "../../src/net/api";
import { Player } from "../../src/replay/player";
import { Recording } from "../../src/replay/recording";
import { LONGEST_PAUSE_MS, Timeline } from "../../src/replay/timing";
import { Feed } from "./feed";

describe("timing", () => {
  test("pauses are kept up to a limit, and time never goes back", () => {
    const timeline = new Timeline();
    for (const at of [1000, 1500, 1500, 100_000, 99_000, null, Number.NaN, 99_700]) timeline.add(at);
    const offsets = Array.from({ length: timeline.length }, (_, index) => timeline.offset(index));
    expect(offsets).toEqual([0, 500, 500, 2500, 2500, 2500, 2500, 3200]);
    expect(timeline.duration).toBe(1200 + LONGEST_PAUSE_MS);
  });

  test("the entries at a time are those that happened up to it", () => {
    const timeline = new Timeline();
    for (const at of [0, 500, 500, 1000]) timeline.add(at);
    expect([-1, 0, 499, 500, 999, 1000, 5000].map((position) => timeline.countAt(position))).toEqual([0, 1, 1, 3, 3, 4, 4]);
  });
});

/** A server that has these messages. */
function serverOf(messages: Record<string, unknown>[]): Api & { requests: string[] } {
  const requests: string[] = [];
  const get = (path: string) => {
    requests.push(path);
    const query = new URL(path, "http://x").searchParams;
    const [after, limit] = [Number(query.get("after")), Number(query.get("limit"))];
    const page = messages.filter((message) => Number(message.seq) > after).slice(0, limit);
    return Promise.resolve({ messages: page, next: Number(page.at(-1)?.seq ?? after), head: messages.length });
  };
  return { get, requests } as unknown as Api & { requests: string[] };
}

async function recordingOf(feed: Feed): Promise<Recording> {
  const recording = new Recording(serverOf(feed.log), "feed");
  await recording.load(() => undefined, new AbortController().signal);
  return recording;
}

function story(): Feed {
  const feed = new Feed().begin();
  feed.deliver("prompt.submit", { content: "go", target_agent: "bot", contributors: ["ann"], context_keys: [] }, { sender: "ann", at: 1000 });
  feed.runCommand("p1", "ls");
  for (let number = 0; number < 300; number += 1) feed.print("p1", `line ${number}\n`);
  feed.deliver("tool.result", { tool_proposal: "p1", success: true, result: { exitCode: 0, stdout: "", stderr: "" }, duration_ms: 5 }, { sender: "bot", at: 3000 });
  feed.say("done");
  return feed;
}

describe("a recording", () => {
  test("is fetched page by page", async () => {
    const feed = new Feed().begin();
    for (let number = 0; number < 2500; number += 1) feed.deliver("context.remove", { key: `k${number}`, reason: "" }, { sender: "ann" });
    const api = serverOf(feed.log);
    const recording = new Recording(api, "a b");
    const progress: number[] = [];
    await recording.load((loaded) => progress.push(loaded), new AbortController().signal);
    expect(recording.length).toBe(2503);
    expect(progress).toEqual([1000, 2000, 2503]);
    expect(api.requests[0]).toBe("/api/sessions/a%20b/messages?after=0&limit=1000");
    feed.deliver("context.remove", { key: "late", reason: "" }, { sender: "ann" });
    await recording.load(() => undefined, new AbortController().signal);
    expect(recording.length).toBe(2504);
  });

  test("an answer that is none ends it, and one that does not move on does not loop", async () => {
    const odd = { get: () => Promise.resolve({ messages: "no" }) } as unknown as Api;
    await expect(new Recording(odd, "x").load(() => undefined, new AbortController().signal)).rejects.toThrow("could not be read");
    let asked = 0;
    const stuck = { get: () => Promise.resolve({ messages: [], next: 0, head: 10, asked: (asked += 1) }) } as unknown as Api;
    await new Recording(stuck, "x").load(() => undefined, new AbortController().signal);
    expect(asked).toBe(1);
  });
});

const kinds = (player: Player) => player.view.stream.items.map((item) => item.kind);

describe("a player", () => {
  test("shows the stream as it was at a time, forwards and backwards", async () => {
    const player = new Player(await recordingOf(story()));
    expect(kinds(player)).toEqual([]);
    player.seek(0);
    expect(kinds(player)).toEqual(["created", "joined", "joined"]);
    player.seek(1000);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player)).toEqual(["created", "joined", "joined", "prompt", "proposed"]);
    expect(player.view.proposal("p1")?.state).toBe("running");
    player.seek(1e9);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player).at(-1)).toBe("response");
    expect(player.view.proposal("p1")?.state).toBe("finished");
    player.seek(999);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player)).toEqual(["created", "joined", "joined"]);
  });

  test("plays as fast as it was told, and stops at the end", async () => {
    const player = new Player(await recordingOf(story()));
    player.speed.value = 4;
    player.isPlaying.value = true;
    player.advance(100);
    expect(player.position.value).toBe(400);
    player.advance(200);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player).at(-1)).toBe("proposed");
    player.advance(10_000);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect([player.isPlaying.value, player.position.value, kinds(player).at(-1)]).toEqual([false, 3000, "response"]);
  });

  test("steps from item to item", async () => {
    const player = new Player(await recordingOf(story()));
    const seen: (string | undefined)[] = [];
    for (let step = 0; step < 6; step += 1) {
      player.stepForward();
      seen.push(kinds(player).at(-1));
    }
    expect(seen).toEqual(["created", "joined", "joined", "prompt", "proposed", "response"]);
    player.stepBack();
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player).at(-1)).toBe("proposed");
    player.stepBack();
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(kinds(player).at(-1)).toBe("prompt");
    for (let step = 0; step < 10; step += 1) player.stepBack();
    expect([player.count.value, kinds(player)]).toEqual([0, []]);
  });

  test("a long way is gone in slices, and another goal may be chosen on the way", async () => {
    const feed = new Feed().begin();
    for (let number = 0; number < 20_000; number += 1) feed.deliver("context.remove", { key: `k${number}`, reason: "" }, { sender: "ann", at: number });
    const player = new Player(await recordingOf(feed));
    player.seek(1e9);
    expect(player.isSeeking.value).toBe(true);
    player.seek(5);
    await vi.waitFor(() => expect(player.isSeeking.value).toBe(false));
    expect(player.view.stream.items.length).toBe(3 + 6);
  });
});
