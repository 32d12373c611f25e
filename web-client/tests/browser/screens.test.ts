// Every screen, in light, dark, high contrast and on a phone, in both languages: no serious finding of axe,
// nothing wider than the screen. With SCREENSHOTS=DIR a picture of each is kept there.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AxeResults } from "axe-core";
import type { BrowserContextOptions, Page } from "playwright-core";
import type { GateListItem } from "@protocol";
import { de } from "../../src/i18n/de";
import { en } from "../../src/i18n/en";
import type { Strings } from "../../src/i18n";
import { keepPicture } from "./picture";
import { closeBrowser, DESK, Person, PHONE, Stage } from "./stage";
import type { Step } from "./stage";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PICTURES = process.env.SCREENSHOTS;

const CONFIG = "[server]\nport = 8080\nworkers = 2\n\n[limits]\nupload = \"10 MB\"\n";
const STORY: Step[] = [
  { think: "The limits are in shop.toml. I look at the tree first." },
  { say: "I will look around first, then raise the upload limit.\n\n1. read `shop.toml`\n2. change **one** line\n3. run the tests" },
  { shell: "printf 'milk\\nbread\\n' | tee notes.txt", purpose: "begin the list" },
  { shell: "cat notes.txt", purpose: "read the list" },
  { file_write: { path: "shop.toml", content: CONFIG }, purpose: "start from the defaults" },
  { shell: "rm -rf old-notes && git status", purpose: "delete notes that nobody needs", together: true },
  { file_edit: { path: "shop.toml", old_text: "upload = \"10 MB\"", new_text: "upload = \"64 MB\"\ntimeout = 30" }, purpose: "customers send large pictures", together: true },
  { shell: "npm install left-pad", purpose: "the build needs it" },
];
const OPEN = 3;

let stage: Stage;
let link: string;
let gates: GateListItem[];
/** A gate that was decided before anybody looked. */
let decided: GateListItem;
let empty: string;
let ended: string;

beforeAll(async () => {
  // Whoever looks at the pictures sees the same directories each time.
  stage = await Stage.start(PICTURES === undefined ? {} : { directory: join(tmpdir(), "pvp-demo") });
  if (PICTURES !== undefined) mkdirSync(PICTURES, { recursive: true });
  const session = await stage.session("night-shift", { quorum_by_category: { destructive: { type: "any", count: 2 } }, gate_timeout_seconds: 3600 }, "Night shift");
  link = await stage.person("Ann", ["admin", "approver", "driver"], session);
  await stage.agent(session, STORY, [], join(stage.directory, "shop"));
  for (let approved = 0; approved < 2; approved += 1) {
    const [gate] = await stage.gates(session, 1);
    await stage.vote(gate as GateListItem);
    await stage.decided(gate as GateListItem);
    decided = gate as GateListItem;
  }
  gates = await stage.gates(session, OPEN);
  ended = await endedSession();
  empty = await stage.person("Eve", ["approver", "driver"], await stage.session("quiet", {}, "Quiet"));
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

/** The link of the admin who has ended a session. */
async function endedSession(): Promise<string> {
  const link = await stage.person("Kim", ["admin", "driver"], await stage.session("day-shift", {}, "Day shift"));
  const kim = await Person.open(link);
  await kim.page.getByRole("textbox", { name: en.composer.label }).fill("/end done for today");
  await kim.page.getByRole("button", { name: en.composer.send }).click();
  await kim.page.getByText(en.session.ended("done for today")).waitFor();
  await kim.close();
  return link;
}

const LOOKS: { [name: string]: BrowserContextOptions } = {
  light: { ...DESK, colorScheme: "light" },
  dark: { ...DESK, colorScheme: "dark" },
  contrast: { ...DESK, contrast: "more" },
  phone: { ...PHONE, colorScheme: "light" },
  "phone-dark": { ...PHONE, colorScheme: "dark" },
  "phone-german": { ...PHONE, colorScheme: "light", locale: "de-DE" },
};

/** A screen by its name, its address, what one does there, and what shows that it is there. */
interface Screen {
  name: string;
  hash: () => string;
  act?: (page: Page, texts: Strings) => Promise<void>;
  shown: (page: Page, texts: Strings) => ReturnType<Page["locator"]>;
  /** Closes what would be on the next screen as well. */
  undo?: (page: Page, texts: Strings) => Promise<void>;
}

/** Goes to the inbox, so that the next card begins with nothing open. */
async function leave(page: Page): Promise<void> {
  await page.evaluate(() => {
    location.hash = "#/";
  });
  await page.locator("section.card").waitFor({ state: "detached" });
}

function panel(name: string, shown: Screen["shown"]): Screen {
  return { name, hash: () => `#/session/night-shift/${name}`, shown };
}

const SCREENS: Screen[] = [
  { name: "inbox", hash: () => "#/", shown: (page) => page.getByText("npm install left-pad") },
  { name: "stream", hash: () => "#/session/night-shift", shown: (page) => page.getByRole("feed").getByText("npm install left-pad") },
  panel("people", (page) => page.getByRole("main").getByText("bot")),
  panel("history", (page) => page.getByText("cat notes.txt")),
  panel("rules", (page, texts) => page.getByRole("heading", { name: texts.rules.heading })),
  panel("audit", (page) => page.locator("main").getByText("session.create").locator("visible=true")),
  {
    ...panel("replay", (page) => page.getByRole("feed").getByText("npm install left-pad")),
    act: (page, texts) => page.getByRole("slider", { name: texts.replay.position }).press("End"),
  },
  panel("share", (page, texts) => page.getByRole("heading", { name: texts.share.tokens })),
  {
    name: "invitation",
    hash: () => "#/session/night-shift/share",
    act: (page, texts) => page.getByRole("button", { name: texts.share.createCode }).click(),
    shown: (page, texts) => page.getByRole("img", { name: texts.share.qr }),
  },
  { name: "sessions", hash: () => "#/sessions", shown: (page) => page.getByText("Night shift") },
  { name: "settings", hash: () => "#/settings", shown: (page, texts) => page.getByRole("heading", { name: texts.settings.heading }) },
  card("card", (gate) => gate.assessment.category === "destructive"),
  {
    ...card("why", (gate) => gate.assessment.category === "destructive"),
    act: (page, texts) => page.getByRole("button", { name: texts.card.destructiveWhy }).click(),
    shown: (page, texts) => page.locator("section.card").getByText(texts.card.digest, { exact: true }),
    undo: leave,
  },
  {
    ...card("edit", (gate) => gate.assessment.category === "destructive"),
    act: (page, texts) => page.getByRole("button", { name: texts.card.edit, exact: true }).click(),
    shown: (page, texts) => page.getByRole("textbox", { name: texts.card.editLabel }),
    undo: leave,
  },
  {
    ...card("always-allow", (gate) => isInstall(gate)),
    act: (page, texts) => page.getByRole("button", { name: texts.card.allowPrefix }).click(),
    shown: (page, texts) => page.getByRole("textbox", { name: texts.card.prefixLabel }),
    undo: leave,
  },
  {
    ...card("comment", (gate) => isInstall(gate)),
    act: (page, texts) => page.getByRole("button", { name: texts.card.addComment }).click(),
    shown: (page, texts) => page.getByRole("textbox", { name: texts.card.comment }),
    undo: leave,
  },
  {
    ...card("keys", (gate) => isInstall(gate)),
    act: async (page) => {
      await page.locator("section.card .decision-bar").waitFor();
      await page.locator("section.card").press("?");
    },
    shown: (page, texts) => page.getByRole("dialog", { name: texts.card.keys }),
    undo: (page) => page.keyboard.press("Escape"),
  },
  {
    name: "decided",
    hash: () => `#/gate/night-shift/${decided.gate}`,
    shown: (page, texts) => page.getByRole("heading", { name: texts.card.closed }),
  },
  {
    name: "output",
    hash: () => "#/session/night-shift",
    act: (page, texts) => page.getByRole("button", { name: texts.stream.fullOutput }).first().click(),
    shown: (page) => page.locator("dialog.viewer .output-row"),
    undo: (page) => page.keyboard.press("Escape"),
  },
  {
    name: "composer-help",
    hash: () => "#/session/night-shift",
    act: async (page, texts) => {
      await page.getByRole("textbox", { name: texts.composer.label }).fill("/help");
      await page.getByRole("button", { name: texts.composer.send }).click();
    },
    shown: (page, texts) => page.getByText(texts.composer.helpHeading),
    undo: (page, texts) => page.locator(".composer-help").getByRole("button", { name: texts.app.close }).click(),
  },
  {
    name: "interrupt",
    hash: () => "#/session/night-shift",
    act: (page, texts) => page.getByRole("button", { name: texts.composer.interrupt }).click(),
    shown: (page, texts) => page.getByRole("button", { name: texts.composer.emergency }),
    undo: (page) => page.keyboard.press("Escape"),
  },
  {
    name: "invitation-link",
    hash: () => "#/session/night-shift/share",
    act: async (page, texts) => {
      await page.getByRole("radio", { name: texts.share.byLink }).check();
      await page.getByRole("textbox", { name: texts.share.name }).fill("Bob");
      await page.getByRole("button", { name: texts.share.create, exact: true }).click();
    },
    shown: (page, texts) => page.getByRole("img", { name: texts.share.qr }),
  },
  {
    ...card("deny", (gate) => gate.assessment.category === "destructive"),
    act: (page, texts) => page.getByRole("button", { name: texts.card.reject, exact: true }).click(),
  },
  card("diff", (gate) => JSON.stringify(gate.action).includes("shop.toml")),
  {
    name: "batch",
    hash: () => "#/",
    act: async (page, texts) => {
      await page.getByRole("button", { name: texts.inbox.select }).click();
      await page.getByRole("button", { name: texts.inbox.selectAll }).click();
      await page.getByRole("button", { name: texts.inbox.approveSelected(OPEN) }).click();
    },
    shown: (page, texts) => page.getByRole("heading", { name: texts.inbox.preflightHeading(OPEN) }),
  },
];

function isInstall(gate: GateListItem): boolean {
  return JSON.stringify(gate.action).includes("left-pad");
}

function card(name: string, isIt: (gate: GateListItem) => boolean): Screen {
  return {
    name,
    hash: () => `#/gate/night-shift/${gates.find(isIt)?.gate}`,
    shown: (page) => page.locator("section.card .decision-bar"),
  };
}

describe.each(Object.entries(LOOKS))("%s", (look, options) => {
  const texts = options.locale === "de-DE" ? de : en;

  test.each(SCREENS.map((screen) => [screen.name, screen] as const))("%s passes axe and fits", async (name, screen) => {
    const person = await signedIn(look, options, texts);
    await person.page.evaluate((hash) => {
      location.hash = hash;
    }, screen.hash());
    await screen.act?.(person.page, texts);
    await screen.shown(person.page, texts).first().waitFor();
    await settle(person, texts);
    await examine(person, look, name);
    await screen.undo?.(person.page, texts);
    expect(person.complaints).toEqual([]);
  });

  test("an ended session passes axe and fits", async () => {
    const person = await Person.open(ended, options);
    await person.page.getByText(texts.session.ended("done for today")).waitFor();
    await settle(person, texts);
    await examine(person, look, "ended");
    await person.close();
  });

  test("an empty inbox passes axe and fits, also without a network", async () => {
    const person = await Person.open(empty, options);
    await person.page.getByRole("navigation", { name: texts.app.navigation }).getByRole("link", { name: texts.app.inbox }).click();
    await person.page.getByText(texts.inbox.empty).waitFor();
    await settle(person, texts);
    await examine(person, look, "inbox-empty");
    await person.context.setOffline(true);
    await person.page.getByText(texts.app.offline).waitFor();
    await settle(person, texts);
    await examine(person, look, "offline");
    await person.close();
  });

  test("welcome passes axe and fits", async () => {
    const person = await Person.open(`${stage.url}/`, options);
    await person.page.getByRole("textbox", { name: texts.welcome.linkLabel }).waitFor();
    await settle(person, texts);
    await examine(person, look, "welcome");
    await person.close();
  });
});

const people = new Map<string, Person>();

/** One browser for each look, which goes from screen to screen. */
async function signedIn(look: string, options: BrowserContextOptions, texts: Strings): Promise<Person> {
  const known = people.get(look);
  if (known !== undefined) return known;
  const person = await Person.open(link, options);
  people.set(look, person);
  await person.page.getByRole("navigation", { name: texts.app.navigation }).waitFor();
  return person;
}

/** Waits until everything is loaded and nothing moves that will ever stop. */
async function settle(person: Person, texts: Strings): Promise<void> {
  await expect.poll(() => person.page.getByText(texts.app.loading, { exact: true }).count()).toBe(0);
  await person.page.evaluate(async () => {
    const finite = document.getAnimations().filter((animation) => animation.effect?.getComputedTiming().endTime !== Infinity);
    await Promise.all([document.fonts.ready, ...finite.map((animation) => animation.finished.catch(() => undefined))]);
  });
}

async function examine(person: Person, look: string, name: string): Promise<void> {
  if (PICTURES !== undefined) keepPicture(join(PICTURES, `${name}-${look}.png`), await person.page.screenshot({ scale: "css" }));
  expect.soft(await person.page.evaluate(tooWide), `${name} does not fit`).toEqual([]);
  await person.page.evaluate(AXE);
  const results = await person.page.evaluate(() => (window as unknown as { axe: { run(options: object): Promise<AxeResults> } }).axe.run({ resultTypes: ["violations"] }));
  const serious = results.violations.filter((finding) => finding.impact === "serious" || finding.impact === "critical");
  const found = serious.map((finding) => `${name}: ${finding.id}: ${finding.nodes.map((node) => node.target.join(" ")).join(", ")}`);
  expect(found).toEqual([]);
}

/** What is wider than the place it has, except where one is meant to scroll sideways or a cut is shown by dots. */
function tooWide(): string[] {
  const sideways = "nav.tabs, pre, textarea, input, select, .diff";
  const { scrollWidth, clientWidth } = document.documentElement;
  const found = scrollWidth > clientWidth ? [`the page is ${scrollWidth} wide`] : [];
  for (const element of document.querySelectorAll<HTMLElement>("#app *")) {
    // What only screen readers see is one pixel wide.
    if (element.clientWidth <= 1 || element.scrollWidth <= element.clientWidth + 1 || element.matches(sideways)) continue;
    const { overflowX, textOverflow } = getComputedStyle(element);
    const isCut = overflowX !== "visible" ? textOverflow !== "ellipsis" : element.matches("button, .tag, a, label, summary");
    if (isCut) found.push(`${element.tagName} ${element.className}: ${element.scrollWidth} in ${element.clientWidth}: ${element.textContent?.slice(0, 40)}`);
  }
  return found;
}
