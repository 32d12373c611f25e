// The session's screen in real browsers: live output, a terminal that is typed into, own commands,
// the whole output, the replay.

import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, PHONE, Stage } from "./stage";
import type { Step } from "./stage";

let stage: Stage;
const people: Person[] = [];
let count = 0;

beforeAll(async () => {
  stage = await Stage.start();
});
afterEach(async () => {
  for (const person of people.splice(0)) {
    // Among them would be everything that the page's policy forbids, such as a style of xterm.js.
    expect(person.complaints).toEqual([]);
    await person.close();
  }
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

async function scene(steps: Step[]): Promise<string> {
  count += 1;
  const session = await stage.session(`stream-${count}`);
  await stage.agent(session, steps);
  return session;
}

async function join(session: string, name = "Ann", options = {}): Promise<Person> {
  const person = await Person.open(await stage.person(name, ["approver", "driver"], session), options);
  people.push(person);
  return person;
}

const button = (person: Person, name: string) => person.page.getByRole("button", { name, exact: true });
const terminal = (person: Person) => person.page.getByRole("group", { name: /^Terminal: / });

async function say(person: Person, text: string): Promise<void> {
  await person.page.getByRole("textbox", { name: en.composer.label }).fill(text);
  await button(person, en.composer.send).click();
}

describe("output", () => {
  test("appears while a command runs, on both screens, with the stream of each line", async () => {
    // It goes on when the file is there, so that what is seen before was seen while it ran.
    const line = "echo first; echo careful >&2; until [ -e go ]; do sleep 0.05; done; echo last";
    const session = await scene([{ shell: `touch x; ${line}`, purpose: "build" }, { say: "built" }]);
    const ann = await join(session);
    const bob = await join(session, "Bob", PHONE);
    await button(ann, en.card.approve).click();
    for (const person of [ann, bob]) {
      await terminal(person).getByText("first").waitFor();
      const rows = await terminal(person).locator(".terminal-row").allTextContents();
      expect(rows).toContain("outfirst");
      expect(rows).toContain("errcareful");
    }
    await say(ann, "!touch go");
    for (const person of [ann, bob]) await person.page.getByText("built").waitFor();
    await ann.page.getByText(en.stream.exit(0), { exact: false }).first().waitFor();
  });

  test("is read whole, searched and saved", async () => {
    const session = await scene([{ shell: "for i in $(seq 1 1200); do echo \"number $i\"; done; echo needle >&2", purpose: "count" }, { say: "counted" }]);
    const ann = await join(session);
    await ann.page.getByText("counted").waitFor();
    await button(ann, en.stream.fullOutput).click();
    const viewer = ann.page.getByRole("dialog");
    await viewer.getByText(en.terminal.range(1, 500, 1201)).waitFor();
    await viewer.getByRole("button", { name: en.terminal.next }).click();
    await viewer.getByText("number 501", { exact: true }).waitFor();
    await viewer.getByRole("button", { name: en.terminal.last }).click();
    await viewer.getByText("number 1200", { exact: true }).waitFor();
    await viewer.getByRole("searchbox").fill("needle");
    await viewer.getByRole("button", { name: en.stream.find }).click();
    await viewer.getByText(en.terminal.found(1)).waitFor();
    const [download] = await Promise.all([ann.page.waitForEvent("download"), viewer.getByRole("button", { name: en.app.download }).click()]);
    expect(readFileSync(await download.path(), "utf8").split("\n").length).toBe(1202);
    await ann.page.keyboard.press("Escape");
    await viewer.waitFor({ state: "detached" });
  });

  test("that asks the terminal to repeat itself for ever holds nothing up", async () => {
    const session = await scene([{ shell: "touch x; printf '\\033[2147483647S\\033[2147483647La\\033[2147483647b'; echo; echo still here; until [ -e go ]; do sleep 0.05; done", purpose: "harm" }, { say: "over" }]);
    const ann = await join(session);
    await button(ann, en.card.approve).click();
    await terminal(ann).getByText("still here").waitFor();
    await say(ann, "!touch go");
    await ann.page.getByText("over", { exact: true }).waitFor();
  });
});

describe("a command that is typed into", () => {
  test("gets the keys of its driver and nothing else, and everybody watches", async () => {
    // The program asks the terminal where its cursor is, and tells what it was answered.
    const question = "printf '\\033[6n\\033[c'; IFS= read -rsn1 -t 1 x; echo \"answer:[$x]\"";
    const session = await scene([{ shell: `bash -c "${question.replaceAll('"', '\\"').replaceAll("$", "\\$")}; cat -v"`, mode: "pty", purpose: "ask" }, { say: "left" }]);
    const ann = await join(session);
    const bob = await join(session, "Bob", PHONE);
    await button(ann, en.card.approve).click();
    await terminal(ann).getByText("answer:[]").waitFor();
    await button(ann, en.terminal.type).click();
    await ann.page.keyboard.type("hé");
    await ann.page.keyboard.press("ArrowUp");
    await ann.page.keyboard.press("Enter");
    for (const person of [ann, bob]) await terminal(person).getByText("hM-CM-)^[[A").first().waitFor();
    expect(await button(bob, en.terminal.type).count()).toBe(0);
    await bob.page.getByText(en.stream.drives("Ann")).waitFor();
    await ann.page.keyboard.press("Control+Shift+Enter");
    expect(await button(ann, en.terminal.type).evaluate((element) => element === document.activeElement)).toBe(true);
    await button(ann, en.terminal.type).click();
    await ann.page.keyboard.press("Control+d");
    await ann.page.getByText("left", { exact: true }).waitFor();
  });
});

describe("what people type", () => {
  test("the result of an own command goes to the agent with the next message", async () => {
    const session = await scene([{ wait: "prompt" }, { say: "I see" }]);
    const ann = await join(session);
    await say(ann, "!echo hello");
    await ann.page.getByText(en.composer.queued(1)).waitFor();
    await ann.page.reload();
    await ann.page.getByText(en.composer.queued(1)).waitFor();
    await say(ann, "look at that");
    await ann.page.getByText("I see").waitFor();
    await ann.page.getByText(en.stream.shellResult("echo hello", en.stream.exit(0))).waitFor();
    expect(await ann.page.getByText(en.composer.queued(1)).count()).toBe(0);
  });

  test("a half-written message survives a reload, and others see only that somebody types", async () => {
    const session = await scene([{ wait: "prompt" }]);
    const ann = await join(session);
    const bob = await join(session, "Bob");
    await ann.page.getByText("Bob", { exact: true }).first().waitFor();
    const field = ann.page.getByRole("textbox", { name: en.composer.label });
    await field.pressSequentially("my secret plan");
    await bob.page.getByText(en.composer.typing("Ann")).waitFor();
    expect(await bob.page.getByText("secret plan").count()).toBe(0);
    await ann.page.reload();
    expect(await field.inputValue()).toBe("my secret plan");
  });
});

test("a session is played again, forwards and backwards", async () => {
  const session = await scene([{ say: "the beginning" }, { shell: "echo printed" }, { say: "the end" }]);
  const ann = await join(session);
  await ann.page.getByText("the end").waitFor();
  await ann.page.getByRole("link", { name: en.session.tabs.replay, exact: true }).click();
  await ann.page.getByRole("combobox", { name: en.replay.speed }).selectOption("32");
  await button(ann, en.replay.play).click();
  await ann.page.getByText("the end").waitFor();
  await ann.page.getByText("printed", { exact: true }).waitFor();
  for (let step = 0; (await ann.page.getByText("the beginning").count()) > 0 && step < 20; step += 1) await button(ann, en.replay.back).click();
  expect(await ann.page.getByText("the end").count()).toBe(0);
  await ann.page.getByRole("slider", { name: en.replay.position }).press("End");
  await ann.page.getByText("the end").waitFor();
});
