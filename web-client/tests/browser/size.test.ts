// How much a phone receives before somebody can decide, or see what goes on.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { GateListItem } from "@protocol";
import { closeBrowser, Person, PHONE, Stage } from "./stage";
import type { Step } from "./stage";

const MOST_BYTES = 120 * 1024;
const LANGUAGES = ["en-GB", "de-DE"];

let stage: Stage;

beforeAll(async () => {
  stage = await Stage.start();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

interface Received {
  bytes: number;
  files: string[];
}

/** Opens a link, and tells what arrived until all of this was there. */
async function receivedFor(link: string, locale: string, shown: string[]): Promise<Received> {
  const person = await Person.open("about:blank", { ...PHONE, locale });
  const devtools = await person.context.newCDPSession(person.page);
  await devtools.send("Network.enable");
  const received: Received = { bytes: 0, files: [] };
  devtools.on("Network.responseReceived", ({ response }) => received.files.push(new URL(response.url).pathname));
  devtools.on("Network.loadingFinished", ({ encodedDataLength }) => {
    received.bytes += encodedDataLength;
  });
  await person.page.goto(link);
  for (const selector of shown) await person.page.locator(selector).first().waitFor();
  await person.page.waitForLoadState("load");
  expect(person.complaints).toEqual([]);
  await person.close();
  return received;
}

function expectSmall({ bytes, files }: Received): void {
  expect(files.some((path) => /^\/assets\/page-.*\.js$/.test(path))).toBe(true);
  expect(bytes).toBeGreaterThan(30 * 1024);
  expect(bytes, `${(bytes / 1024).toFixed(1)} KiB`).toBeLessThanOrEqual(MOST_BYTES);
}

test.each(LANGUAGES)("the first card needs at most 120 KiB, and nothing of the stream (%s)", async (locale) => {
  const session = await stage.session(`card-${locale.toLowerCase()}`);
  await stage.agent(session, [{ shell: "touch a", purpose: "the first card" }]);
  const [gate] = await stage.gates(session, 1);
  const link = `${await stage.person("Ann", ["approver"], session)}&gate=${gate?.gate}`;
  const received = await receivedFor(link, locale, ["section.card .decision-bar"]);
  expect(received.files.filter((path) => /xterm|qrcode|SessionScreen/.test(path))).toEqual([]);
  expectSmall(received);
});

const NOT_YET = /xterm|qrcode|use_screen|(Audit|History|People|Rules|Share)Panel|Replay/;

/** The link of somebody who comes to a session in which a command has ended and another one waits. */
async function invitation(session: string, steps: Step[]): Promise<string> {
  await stage.session(session);
  await stage.agent(session, [...steps, { shell: "echo milk >> list.txt && cat list.txt" }, { shell: "touch a" }]);
  const [first] = (await stage.gates(session, 1)) as [GateListItem];
  await stage.vote(first);
  await stage.decided(first);
  await stage.gates(session, 1);
  return stage.person("Ann", ["approver", "driver"], session);
}

const STREAM = [".run .printed", ".gate-deck .deck-strip", ".composer textarea"];

test.each(LANGUAGES)("an invitation needs at most 120 KiB to show a session, and nothing of the terminal (%s)", async (locale) => {
  const received = await receivedFor(await invitation(`stream-${locale.toLowerCase()}`, []), locale, STREAM);
  expect(received.files.filter((path) => NOT_YET.test(path) || path.includes("markdown"))).toEqual([]);
  expect(received.files.some((path) => path.includes("SessionScreen"))).toBe(true);
  expectSmall(received);
});

test("what an agent has said is there before the code that reads its Markdown", async () => {
  const person = await Person.open("about:blank", { ...PHONE, serviceWorkers: "block" });
  let letPass: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => {
    void person.page.route("**/assets/markdown-*.js", async (route) => {
      resolve();
      await new Promise<void>((pass) => (letPass = pass));
      await route.continue();
    });
  });
  // The page counts as loaded only once that file is there.
  await person.page.goto(await invitation("answer", [{ say: "I look **around** first." }]), { waitUntil: "commit" });
  await asked;
  await person.page.getByText("I look **around** first.").waitFor();
  letPass();
  await person.page.locator(".response strong").waitFor();
  expect(person.complaints).toEqual([]);
  await person.close();
});
