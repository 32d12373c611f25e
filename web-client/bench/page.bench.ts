// Figures of the page, measured in a real browser against a real server: `make bench-page`.
// BENCH_SECONDS sets how long output runs (20 unless given; an hour is 3600).

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, test } from "vitest";
import type { CDPSession } from "playwright-core";
import type { GateListItem } from "@protocol";
import { en } from "../src/i18n/en";
import { closeBrowser, DESK, Person, PHONE, PROGRAM, Stage } from "../tests/browser/stage";

const SECONDS = Number(process.env.BENCH_SECONDS ?? 20);
const figures: string[] = [];
let stage: Stage;

beforeAll(async () => {
  stage = await Stage.start({
    settings: {
      messages_per_second: 1_000_000,
      message_burst: 1_000_000,
      // Nothing ends the output but the command itself.
      write_output_bytes: 1024 ** 3,
      slow_timeout_seconds: 86_400,
      session_log_bytes: 64 * 1024 ** 3,
    },
  });
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
  process.stdout.write(`\nthe page, measured:\n${figures.map((figure) => `  ${figure}\n`).join("")}`);
});

function report(what: string, value: string, bar: string): void {
  figures.push(`${what.padEnd(58)} ${value.padStart(12)}   bar: ${bar}`);
}

const LINES_PER_SECOND = 5000;
/** Longer output comes from several commands, one after the other, so that none of them prints more than it may. */
const COMMAND_SECONDS = 300;
const BATCHES_PER_SECOND = 20;

/** A shell line that prints numbered lines for so long, from this second of the whole output on. */
function output(from: number, seconds: number): string {
  const batch = LINES_PER_SECOND / BATCHES_PER_SECOND;
  const first = from * BATCHES_PER_SECOND;
  const last = first + seconds * BATCHES_PER_SECOND - 1;
  const line = "line %.0f of the build: compiling module and checking its types";
  return `touch begun; for i in $(seq ${first} ${last}); do seq -f "${line}" $((i * ${batch} + 1)) $(((i + 1) * ${batch})); sleep ${1 / BATCHES_PER_SECOND}; done`;
}

interface Opened {
  bytes: number;
  /** Milliseconds from the start of the navigation until it was there. */
  first: number;
  again: number;
}

/** Opens a link on a phone whose processor is slowed four times, twice, and waits for an element each time. */
async function opened(link: string, locale: string, selector: string): Promise<Opened> {
  const person = await Person.open("about:blank", { ...PHONE, locale });
  const devtools = await person.context.newCDPSession(person.page);
  await devtools.send("Network.enable");
  await devtools.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  let bytes = 0;
  devtools.on("Network.loadingFinished", (event) => {
    bytes += event.encodedDataLength;
  });
  await person.page.addInitScript((wanted) => {
    const watch = new MutationObserver(() => {
      if (document.querySelector(wanted) === null) return;
      watch.disconnect();
      (window as unknown as { shownAt: number }).shownAt = performance.now();
    });
    watch.observe(document, { childList: true, subtree: true });
  }, selector);
  const shownAt = async () => {
    await person.page.waitForFunction(() => "shownAt" in window);
    return person.page.evaluate(() => (window as unknown as { shownAt: number }).shownAt);
  };
  await person.page.goto(link);
  const first = await shownAt();
  await person.page.waitForLoadState("load");
  const received = bytes;
  await person.page.reload();
  const again = await shownAt();
  await person.close();
  return { bytes: received, first, again };
}

test.each(["en-GB", "de-DE"])("bytes before the terminal, and how soon a slow phone shows something (%s)", async (locale) => {
  const session = await stage.session(`first-${locale.toLowerCase()}`);
  await stage.agent(session, [{ shell: "touch a", purpose: "the first card" }]);
  const [gate] = await stage.gates(session, 1);
  const invite = (name: string) => stage.person(name, ["approver", "driver"], session);
  const card = await opened(`${await invite("Ann")}&gate=${gate?.gate}`, locale, "section.card .decision-bar");
  const stream = await opened(await invite("Bob"), locale, ".gate-deck .deck-strip");
  for (const [what, { bytes, first, again }] of [["link to a card", card], ["invitation", stream]] as const) {
    report(`${what}, ${locale}: received, compressed`, `${(bytes / 1024).toFixed(1)} KiB`, "120 KiB");
    report(`${what}, ${locale}: shown after, CPU slowed 4 times`, `${Math.round(first)} ms`, "1000 ms");
    report(`${what}, ${locale}: opened again, shown after`, `${Math.round(again)} ms`, "1000 ms");
  }
});

/** Counts frames, and those that came late, until the returned function is called. */
async function countFrames(person: Person): Promise<() => Promise<{ perSecond: number; late: number; worst: number }>> {
  await person.page.evaluate(() => {
    const counted = { frames: 0, late: 0, worst: 0, begun: performance.now(), last: performance.now(), running: true };
    (window as unknown as { counted: typeof counted }).counted = counted;
    const frame = (now: number) => {
      const gap = now - counted.last;
      counted.last = now;
      counted.frames += 1;
      counted.worst = Math.max(counted.worst, gap);
      if (gap > 25) counted.late += 1;
      if (counted.running) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  return () =>
    person.page.evaluate(() => {
      const counted = (window as unknown as { counted: { frames: number; late: number; worst: number; begun: number; running: boolean } }).counted;
      counted.running = false;
      const seconds = (performance.now() - counted.begun) / 1000;
      return { perSecond: counted.frames / seconds, late: counted.late / counted.frames, worst: counted.worst };
    });
}

async function heapMegabytes(devtools: CDPSession): Promise<number> {
  await devtools.send("HeapProfiler.collectGarbage");
  const { metrics } = await devtools.send("Performance.getMetrics");
  return (metrics.find((metric) => metric.name === "JSHeapUsedSize")?.value ?? 0) / 1e6;
}

/** What all processes that draw pages take of the memory, in megabytes; only one page is open. */
async function processMegabytes(person: Person): Promise<number> {
  const browser = person.context.browser();
  if (browser === null) throw new Error("there is no browser");
  const devtools = await browser.newBrowserCDPSession();
  const { processInfo } = await devtools.send("SystemInfo.getProcessInfo");
  await devtools.detach();
  const renderers = processInfo.filter((process) => process.type === "renderer");
  if (renderers.length === 0) throw new Error("no process draws the page");
  const kilobytes = renderers.map(({ id }) => Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, "utf8"))?.[1]));
  return kilobytes.reduce((sum, size) => sum + size, 0) / 1000;
}

/** The number of the newest line on the screen. */
function lastLine(person: Person): Promise<number> {
  return person.page.evaluate(() => {
    const shown = document.querySelector(".stream")?.textContent ?? "";
    return Math.max(0, ...[...shown.matchAll(/line (\d+) of the build/g)].map((match) => Number(match[1])));
  });
}

/** Starts each command when it asks, until all of them were started. */
async function approve(session: string, commands: number): Promise<void> {
  for (let started = 0; started < commands; started += 1) {
    const [gate] = (await stage.gates(session, 1)) as [GateListItem];
    await stage.vote(gate);
    await stage.decided(gate);
  }
}

const SAMPLES = Math.max(4, Math.min(60, Math.floor(SECONDS / 60)));

test(`frames and memory while ${LINES_PER_SECOND} lines a second arrive`, async () => {
  const session = await stage.session("busy");
  const starts = Array.from({ length: Math.ceil(SECONDS / COMMAND_SECONDS) }, (_, index) => index * COMMAND_SECONDS);
  const steps = starts.map((from) => ({ shell: output(from, Math.min(COMMAND_SECONDS, SECONDS - from)), purpose: "a loud build", mode: "slow" }));
  await stage.agent(session, steps);
  const person = await Person.open(await stage.person("Ann", ["approver"], session), DESK);
  const devtools = await person.context.newCDPSession(person.page);
  await devtools.send("Performance.enable");
  const approving = approve(session, steps.length);
  await person.page.getByRole("feed").getByText("of the build", { exact: false }).first().waitFor();
  const stop = await countFrames(person);
  const heap: number[] = [];
  const memory: number[] = [];
  let seen = 0;
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    // A little less than the whole, so that output still comes at the last sample.
    await person.page.waitForTimeout((SECONDS * 1000 * 0.8) / SAMPLES);
    const line = await lastLine(person);
    if (line <= seen) throw new Error(`no output has come since line ${seen}: an idle page was measured`);
    seen = line;
    heap.push(await heapMegabytes(devtools));
    memory.push(await processMegabytes(person));
  }
  const frames = await stop();
  await approving;
  report(`frames a second at ${LINES_PER_SECOND} lines/s`, frames.perSecond.toFixed(1), "60");
  report("frames later than 25 ms", `${(frames.late * 100).toFixed(1)} %`, "");
  report(`the newest line that was seen, of ${LINES_PER_SECOND * SECONDS}`, String(seen), "");
  report("heap over the output", thinned(heap), "flat");
  report("memory of the process over the output", thinned(memory), "flat");
  await person.close();
});

/** At most six of the samples, the first and the last among them, in megabytes. */
function thinned(samples: readonly number[]): string {
  const count = Math.min(6, samples.length);
  const shown = Array.from({ length: count }, (_, index) => samples[Math.round((index * (samples.length - 1)) / (count - 1))] ?? 0);
  return `${shown.map((size) => size.toFixed(1)).join(" / ")} MB`;
}

test("100,000 entries of the stream", async () => {
  for (const [session, entries] of [["one", 1_000], ["ten", 10_000], ["hundred", 100_000]] as const) {
    await stage.session(session);
    await fill(session, entries);
    const person = await Person.open(await stage.person("Ann", ["approver", "driver"], session), DESK);
    const devtools = await person.context.newCDPSession(person.page);
    await devtools.send("Performance.enable");
    await person.page.getByText(`note-${entries}`, { exact: false }).first().waitFor();
    const begun = performance.now();
    // A short session is there as a whole.
    if ((await loadedEntries(person)) < entries) await person.page.getByRole("button", { name: en.session.earlier }).click();
    await person.page.waitForFunction((wanted) => Number(document.querySelector("[aria-setsize]")?.getAttribute("aria-setsize") ?? 0) >= wanted, entries, { timeout: 600_000 });
    const loaded = performance.now() - begun;
    const stop = await countFrames(person);
    await person.page.mouse.move(600, 400);
    for (let turn = 0; turn < 40; turn += 1) await person.page.mouse.wheel(0, turn < 20 ? -4000 : 4000);
    const frames = await stop();
    report(`${entries} entries: loaded in`, `${Math.round(loaded)} ms`, "");
    report(`${entries} entries: frames a second while scrolling`, frames.perSecond.toFixed(1), "60");
    report(`${entries} entries: heap`, `${(await heapMegabytes(devtools)).toFixed(1)} MB`, "");
    await person.close();
  }
});

async function loadedEntries(person: Person): Promise<number> {
  return Number(await person.page.locator(".stream").getAttribute("data-entries"));
}

/** Fills a session with entries, over one socket. */
async function fill(session: string, entries: number): Promise<void> {
  const invitation = await stage.invite({ name: "filler", roles: ["driver"], session });
  const child = spawn(PROGRAM, ["connect", "--history", "0"], {
    env: { PATH: process.env.PATH ?? "", HOME: stage.directory, PVP_LINK: `${stage.url}/#token=${invitation.token}&session=${session}` },
    stdio: ["pipe", "ignore", "ignore"],
  });
  for (let number = 1; number <= entries; number += 1) {
    const payload = { key: `note-${number}`, content_type: "text", content: { type: "text", text: "x" } };
    const room = child.stdin.write(`${JSON.stringify({ type: "context.add", payload })}\n`);
    if (!room) await once(child.stdin, "drain");
  }
  child.stdin.end();
  await once(child, "exit");
}
