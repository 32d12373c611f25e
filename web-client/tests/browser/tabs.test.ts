// Many tabs of one person: a browser opens only so many connections to a server.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, Stage } from "./stage";

/** More than a browser opens connections to one server. */
const TABS = 8;

let stage: Stage;

beforeAll(async () => {
  stage = await Stage.start();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

async function openBehind(person: Person): Promise<Page> {
  const page = await person.context.newPage();
  // A browser without a window shows all of its tabs at once.
  await page.addInitScript(() => Object.defineProperty(Document.prototype, "visibilityState", { configurable: true, get: () => "hidden" }));
  await page.goto(`${stage.url}/#/`);
  await page.getByText(en.inbox.empty).waitFor();
  return page;
}

test("tabs in the background leave a connection for what somebody does in front, and hear of a gate all the same", async () => {
  const session = await stage.session("tabs");
  const ann = await Person.open(await stage.person("Ann", ["approver"], session));
  await ann.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
  const waited: string[] = [];
  ann.context.on("requestfinished", (request) => {
    if (request.url().includes("wait=")) waited.push(request.url());
  });
  const pages: Page[] = [];
  for (let tab = 0; tab < TABS; tab += 1) pages.push(await openBehind(ann));
  waited.length = 0;
  expect(await ann.page.evaluate(async () => (await fetch("/health", { cache: "no-store" })).status)).toBe(200);
  // Had all of them been waiting for a change, one would have had to end first.
  expect(waited).toEqual([]);
  await stage.agent(session, [{ shell: "touch a" }]);
  for (const page of pages) await expect.poll(() => page.title(), { timeout: 60_000 }).toBe("(1) PVP");
  await ann.close();
});
