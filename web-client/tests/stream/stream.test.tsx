// @vitest-environment happy-dom

import { render } from "preact";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { en } from "../../src/i18n/en";
import type { StreamSource } from "../../src/stream/source";
import { Scroller } from "../../src/stream/scroller";
import { splitShellResults } from "../../src/stream/shell_results";
import { Stream } from "../../src/stream/Stream";
import { ScreenPool } from "../../src/terminal/pool";
import { Feed, fillStream } from "./feed";

let root: HTMLElement;

beforeEach(() => {
  document.documentElement.lang = "en";
  // There is no layout here: every item is as high as another, and the window shows ten.
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
  vi.spyOn(HTMLElement.prototype, "getBoundingClientRect").mockReturnValue({ height: 40, width: 300 } as DOMRect);
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  render(null, root);
  root.remove();
  vi.restoreAllMocks();
});

function sourceOf(feed: Feed, isLive = true): StreamSource {
  return {
    view: feed.view,
    tick: feed.tick,
    now: () => feed.now(),
    screens: new ScreenPool(),
    sizes: feed.terminalSizes,
    readOutput: (read) => feed.readOutput(read),
    live: isLive ? feed.connection : null,
    unfolded: new Set(),
  };
}

function show(feed: Feed, isLive = true): void {
  render(<Stream source={sourceOf(feed, isLive)} />, root);
}

/** Draws what has changed. */
async function draw(feed: Feed): Promise<void> {
  feed.draw();
  await Promise.resolve();
}

const texts = () => [...root.querySelectorAll(".entry")].map((entry) => entry.textContent ?? "");
const last = () => texts().at(-1) ?? "";

describe("the stream", () => {
  test("has in the document only what is seen, of a hundred thousand entries", () => {
    const feed = new Feed().begin();
    fillStream(feed, 100_000);
    show(feed);
    expect(feed.view.stream.items.length).toBe(100_000);
    expect(root.querySelectorAll(".virtual-item").length).toBeLessThan(80);
    expect(root.querySelector("[data-entries]")?.getAttribute("data-entries")).toBe("100003");
    const posinset = Number(root.querySelector(".virtual-item:last-child")?.getAttribute("aria-posinset"));
    expect(posinset).toBe(100_003);
  });

  test("grows with an answer while it is written", async () => {
    const feed = new Feed().begin();
    const id = feed.say("It is **do", { isOpen: true });
    show(feed);
    expect(last()).toContain("It is **do");
    // Reading Markdown is loaded with the first answer.
    await import("../../src/stream/markdown");
    await draw(feed);
    feed.deliver("response.chunk", { text: "ne**" }, { sender: "bot", ref: id });
    await draw(feed);
    expect(last()).toContain("It is done");
    expect(root.querySelector(".response strong")?.textContent).toBe("done");
  });

  test("keeps thinking folded until somebody opens it", async () => {
    const feed = new Feed().begin();
    const id = feed.deliver("thinking.start", { agent: "bot", prompt_ref: "m1", visible_to: "all" }, { sender: "bot" });
    feed.deliver("thinking.chunk", { text: "secret plan" }, { sender: "bot", ref: id });
    feed.deliver("thinking.end", { duration_ms: 1500, summary: "planned" }, { sender: "bot", ref: id });
    show(feed);
    expect(last()).toContain(en.stream.thought("1.5 s"));
    expect(last()).not.toContain("secret plan");
    const details = root.querySelector<HTMLDetailsElement>("details.folded");
    if (details === null) throw new Error("there is nothing to open");
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
    await draw(feed);
    expect(last()).toContain("secret plan");
  });

  test("shows a command, what it prints and how it ends", async () => {
    const feed = new Feed().begin();
    feed.runCommand("p1", "ls \u202e-la");
    show(feed);
    expect(last()).toContain("ls \\u{202e}-la");
    feed.print("p1", "README.md\n");
    feed.print("p1", "oops\n", "stderr");
    await draw(feed);
    feed.finish("p1", 2);
    await draw(feed);
    const rows = [...root.querySelectorAll(".printed .output-row")].map((row) => row.textContent);
    expect(rows).toEqual(["outREADME.md", "erroops"]);
    expect(root.querySelector(".state.bad")?.textContent).toContain(en.stream.exit(2));
  });

  test("offers to stop a command to those who may, and never in a replay", async () => {
    const feed = new Feed().begin();
    feed.runCommand("p1", "sleep 100");
    show(feed);
    const stop = () => [...root.querySelectorAll("button")].find((button) => button.textContent === en.stream.stop);
    stop()?.click();
    expect(feed.last("tool.cancel")?.payload).toEqual({ tool_proposal: "p1" });
    render(null, root);
    show(feed, false);
    expect(stop()).toBeUndefined();
    render(null, root);
    const watcher = new Feed().begin(["observer"], []);
    watcher.runCommand("p1", "sleep 100");
    show(watcher);
    expect(stop()).toBeUndefined();
  });

  test("text of others makes no element of its own", () => {
    const feed = new Feed().begin();
    const hostile = "<img src=x onerror=alert(1)>\u202e";
    feed.deliver("prompt.submit", { content: hostile, target_agent: "bot", contributors: [], context_keys: [] }, { sender: "ann" });
    feed.deliver("context.add", { key: hostile, content_type: "text", content: "x" }, { sender: "ann" });
    feed.deliver("participant.announce", { id: "eve", name: hostile, type: "human", roles: ["observer"], transport: "websocket" }, { sender: "eve" });
    feed.deliver("session.end", { reason: hostile, final_state: "completed" }, { sender: "ann" });
    feed.say(hostile);
    feed.runCommand("p1", hostile);
    feed.print("p1", `${hostile}\n`);
    feed.finish("p1");
    show(feed);
    expect(root.querySelector("img, script, [onerror]")).toBeNull();
    expect(root.textContent).not.toContain("\u202e");
    expect(texts().filter((text) => text.includes("<img src=x onerror=alert(1)>\\u{202e}")).length).toBeGreaterThanOrEqual(6);
  });

  test("the results that go before a prompt are one line each, and broken ones are text", () => {
    const block = '<shell_result>{"command_preview":"ls","exit_code":0,"stdout":"\\u003cb\\u003e"}</shell_result>\n';
    const { results, text } = splitShellResults(`${block}${block}look`);
    expect(results.map((result) => [result.command, result.exit])).toEqual([
      ["ls", 0],
      ["ls", 0],
    ]);
    expect(text).toBe("look");
    const broken = "<shell_result>{not json}</shell_result>\nlook";
    expect(splitShellResults(broken)).toEqual({ results: [], text: broken });
  });
});

describe("where the stream is scrolled to", () => {
  function scrollerOf(count: number): Scroller {
    const scroller = new Scroller();
    scroller.viewport = 100;
    scroller.heights.setRange(0, count, () => 20);
    return scroller;
  }

  test("the end is followed until somebody scrolls up, and again when they are back", () => {
    const scroller = scrollerOf(100);
    expect(scroller.position).toBe(1900);
    scroller.heights.setRange(0, 110, () => 20);
    expect(scroller.position).toBe(2100);
    scroller.scrolledTo(1000);
    scroller.heights.setRange(0, 120, () => 20);
    expect([scroller.isFollowing, scroller.position]).toEqual([false, 1000]);
    scroller.scrolledTo(2298);
    expect(scroller.isFollowing).toBe(true);
  });

  test("what is seen stays in its place when heights above turn out to be others", () => {
    const scroller = scrollerOf(100);
    scroller.scrolledTo(1005);
    scroller.heights.set(3, 300);
    expect(scroller.position).toBe(1285);
    scroller.heights.set(80, 300);
    expect(scroller.position).toBe(1285);
  });

  test("what is seen stays in its place when old entries are dropped, and the beginning is shown if it was dropped itself", () => {
    const scroller = scrollerOf(100);
    scroller.scrolledTo(1005);
    scroller.heights.setRange(30, 100, () => 20);
    expect([scroller.position, scroller.range(0).from]).toEqual([405, 50]);
    scroller.heights.setRange(70, 100, () => 20);
    expect([scroller.position, scroller.range(0).from]).toEqual([0, 70]);
  });

  test("an item is brought into sight from either side", () => {
    const scroller = scrollerOf(100);
    scroller.scrolledTo(1000);
    scroller.reveal(20);
    expect(scroller.position).toBe(400);
    scroller.reveal(30);
    expect(scroller.position).toBe(520);
    scroller.reveal(28);
    expect(scroller.position).toBe(520);
  });
});
