// Deciding in real browsers: what a person does, and what then happens on the agent's machine.

import { existsSync, readFileSync } from "node:fs";
import { join as pathOf } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { CommandPage } from "@protocol";
import type { Locator } from "playwright-core";
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
    expect(person.complaints).toEqual([]);
    await person.close();
  }
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

async function setScene(steps: Step[], config: object = {}) {
  count += 1;
  const session = await stage.session(`deciding-${count}`, config);
  const agent = await stage.agent(session, steps);
  return { session, agent };
}

async function join(session: string, name = "Ann", options = {}): Promise<Person> {
  const link = await stage.person(name, ["approver", "driver"], session);
  const person = await Person.open(link, options);
  people.push(person);
  return person;
}

/** Opens the card of a command from the inbox. */
async function openCard(person: Person, command: string): Promise<void> {
  await inboxLink(person).click();
  await row(person, command).click();
}

const inboxLink = (person: Person) => person.page.getByRole("navigation", { name: en.app.navigation }).getByRole("link", { name: new RegExp(en.app.inbox) });
const row = (person: Person, command: string) => person.page.getByRole("listitem").getByRole("link").filter({ hasText: command });
const card = (person: Person, category: string) => person.page.getByRole("region", { name: en.card.label(category) });
const button = (person: Person, name: string) => person.page.getByRole("button", { name, exact: true });

/** Waits until the last command of a session ended so. */
async function outcome(session: string, status: string): Promise<CommandPage["commands"][number]> {
  for (let after = 0; ; ) {
    const page = await stage.get<CommandPage>(`/api/sessions/${session}/history?limit=1`);
    const last = page.commands[0];
    if (last?.status === status) return last;
    const next = await stage.get<{ next: number }>(`/api/sessions/${session}/messages?after=${after}&limit=1000&wait=30`);
    after = next.next;
  }
}

describe("one person decides", () => {
  test("opening the link is enough to see the command, approve it and watch its output", async () => {
    const { session, agent } = await setScene([{ shell: "echo eggs >> notes.txt && cat notes.txt", purpose: "add eggs" }]);
    await stage.gates(session, 1);
    const ann = await join(session);
    await card(ann, "write").getByText("echo eggs >> notes.txt && cat notes.txt").first().waitFor();
    await button(ann, en.card.approve).click();
    const done = await outcome(session, "finished");
    expect(done.result?.exit_code).toBe(0);
    expect(readFileSync(pathOf(agent.workspace, "notes.txt"), "utf8")).toBe("eggs\n");
    await ann.page.getByText("eggs", { exact: true }).first().waitFor();
    await card(ann, "write").waitFor({ state: "detached" });
  });

  test("the agent reads the reason of a denial", async () => {
    const steps: Step[] = [
      { shell: "rm -rf old", purpose: "tidy up" },
      { when: "rejected", say: "I keep it: {reason}" },
    ];
    const { session } = await setScene(steps);
    await stage.gates(session, 1);
    const ann = await join(session);
    await button(ann, en.card.reject).click();
    await button(ann, en.card.reasons[1] as string).click();
    await ann.page.getByRole("textbox", { name: en.card.reasonLabel }).fill("we need them");
    await button(ann, en.card.sendReject).click();
    await ann.page.getByText("I keep it: we need them").waitFor();
    expect((await outcome(session, "rejected")).resolution?.reason).toBe("we need them");
  });

  test("the agent reads a phrase that was only tapped", async () => {
    const steps: Step[] = [
      { shell: "rm -rf old", purpose: "tidy up" },
      { when: "rejected", say: "I keep it: {reason}" },
    ];
    const { session } = await setScene(steps);
    await stage.gates(session, 1);
    const ann = await join(session);
    const phrase = en.card.reasons[1] as string;
    await button(ann, en.card.reject).click();
    await button(ann, phrase).click();
    await button(ann, en.card.sendReject).click();
    await ann.page.getByText(`I keep it: ${phrase}`).waitFor();
    expect((await outcome(session, "rejected")).resolution?.reason).toBe(phrase);
  });

  test("an edited command runs as it was edited, after a vote on the edit", async () => {
    const { session, agent } = await setScene([{ shell: "touch wrong.txt" }], { solo: true });
    await stage.gates(session, 1);
    const ann = await join(session);
    await button(ann, en.card.edit).click();
    await ann.page.getByRole("textbox", { name: en.card.editLabel }).fill("touch right.txt");
    await button(ann, en.card.sendEdit).click();
    const bob = await join(session, "Bob");
    await card(bob, "write").getByText("touch right.txt").first().waitFor();
    await button(bob, en.card.approve).click();
    await outcome(session, "finished");
    expect(existsSync(pathOf(agent.workspace, "right.txt"))).toBe(true);
    expect(existsSync(pathOf(agent.workspace, "wrong.txt"))).toBe(false);
  });

  test("an allowed prefix lets the next such command run unasked", async () => {
    const { session } = await setScene([{ shell: "mkdir one" }, { shell: "mkdir two" }, { say: "both made" }]);
    await stage.gates(session, 1);
    const ann = await join(session);
    await button(ann, en.card.allowPrefix).click();
    await ann.page.getByRole("textbox", { name: en.card.prefixLabel }).fill("mkdir");
    await button(ann, en.card.sendPrefix).click();
    await ann.page.getByText("both made").waitFor();
  });

  test("several are approved after a list that shows each whole command", async () => {
    const steps: Step[] = [
      { shell: "touch a", together: true },
      { shell: "touch b", together: true },
      { shell: "touch c" },
      { say: "all done" },
    ];
    const { session, agent } = await setScene(steps);
    await stage.gates(session, 3);
    const ann = await join(session);
    await inboxLink(ann).click();
    await button(ann, en.inbox.select).click();
    for (const command of ["touch a", "touch b"]) await ann.page.getByRole("checkbox", { name: en.inbox.selectOne(command) }).check();
    await button(ann, en.inbox.approveSelected(2)).click();
    const list = ann.page.locator("main");
    await list.getByRole("heading", { name: en.inbox.preflightHeading(2) }).waitFor();
    for (const command of ["touch a", "touch b"]) await list.getByText(command, { exact: true }).first().scrollIntoViewIfNeeded();
    expect(await list.getByText("touch c", { exact: true }).count()).toBe(0);
    await list.getByRole("button", { name: en.inbox.preflightApprove(2) }).click();
    await stage.gates(session, 1);
    await openCard(ann, "touch c");
    await button(ann, en.card.approve).click();
    await ann.page.getByText(en.inbox.allDone).or(ann.page.getByText(en.inbox.empty)).first().waitFor();
    await outcome(session, "finished");
    for (const file of ["a", "b", "c"]) expect(existsSync(pathOf(agent.workspace, file)), file).toBe(true);
  });

  test("on a phone, a tap approves nothing destructive, and a held press does", async () => {
    const { session, agent } = await setScene([{ shell: "mkdir -p old" }, { shell: "rm -rf old" }], { quorum_by_category: {} });
    await stage.gates(session, 1);
    const ann = await join(session, "Ann", PHONE);
    await openCard(ann, "mkdir -p old");
    await button(ann, en.card.approve).tap();
    await openCard(ann, "rm -rf old");
    await card(ann, "destructive").waitFor();
    const approve = ann.page.getByRole("button", { name: en.card.approveHold });
    await approve.tap();
    expect((await stage.gates(session, 1))[0]?.received).toBe(0);
    const box = await approve.boundingBox();
    const deny = await button(ann, en.card.reject).boundingBox();
    if (box === null || deny === null) throw new Error("the buttons are not on the screen");
    expect(deny.height).toBe(box.height);
    expect(Math.abs(deny.width - box.width)).toBeLessThan(2);
    expect(box.y + box.height).toBeLessThanOrEqual(740);
    await ann.page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await ann.page.mouse.down();
    await stage.gates(session, 0);
    await ann.page.mouse.up();
    await outcome(session, "finished");
    expect(existsSync(pathOf(agent.workspace, "old"))).toBe(false);
  });

  test("all of it works with the keyboard alone", async () => {
    const { session } = await setScene([{ shell: "touch one" }, { shell: "touch two" }, { when: "rejected", say: "no: {reason}" }]);
    await stage.gates(session, 1);
    const ann = await join(session);
    await focusWithTab(ann, inboxLink(ann));
    await ann.page.keyboard.press("Enter");
    await ann.page.getByRole("heading", { name: en.inbox.heading }).waitFor();
    await focusWithTab(ann, row(ann, "touch one"));
    await ann.page.keyboard.press("Enter");
    await card(ann, "write").getByText("touch one").first().waitFor();
    await button(ann, en.card.approve).click({ trial: true });
    await focusWithTab(ann, button(ann, en.card.approve));
    await ann.page.keyboard.press("Enter");
    await stage.gates(session, 0);
    await stage.gates(session, 1);
    await ann.page.goto(`${stage.url}/#/`);
    await focusWithTab(ann, row(ann, "touch two"));
    await ann.page.keyboard.press("Enter");
    await card(ann, "write").getByText("touch two").first().waitFor();
    await focusWithTab(ann, button(ann, en.card.reject));
    await ann.page.keyboard.press("Enter");
    await focusWithTab(ann, ann.page.getByRole("textbox", { name: en.card.reasonLabel }));
    await ann.page.keyboard.type("by keyboard");
    await focusWithTab(ann, button(ann, en.card.sendReject));
    await ann.page.keyboard.press("Enter");
    expect((await outcome(session, "rejected")).resolution?.reason).toBe("by keyboard");
  });
});

describe("several people", () => {
  test("two browsers see the same, and a card that another decided is dead at once", async () => {
    // Those who are invited during a session do not count as a person beside who invited them.
    const links = await Promise.all(["Ann", "Bob"].map((name) => stage.person(name, ["approver"], `deciding-${count + 1}`)));
    const config = { quorum_by_category: { destructive: { type: "any", count: 2 } } };
    const { session } = await setScene([{ shell: "rm -rf /tmp/pvp-no-such-directory" }, { say: "that was it" }], config);
    await stage.gates(session, 1);
    people.push(...(await Promise.all(links.map((link) => Person.open(link)))));
    const [ann, bob] = people as [Person, Person];
    for (const person of [ann, bob]) await card(person, "destructive").getByText(en.card.voted(0, 2)).waitFor();
    await hold(ann, en.card.approveHold);
    await card(bob, "destructive").getByText(en.card.voted(1, 2)).waitFor();
    await hold(bob, en.card.approveHold);
    for (const person of [ann, bob]) {
      await card(person, "destructive").waitFor({ state: "detached" });
      await person.page.getByText("that was it").waitFor();
    }
  });

  test("an observer sees the card and has no buttons", async () => {
    const { session } = await setScene([{ shell: "touch x" }]);
    await stage.gates(session, 1);
    const eve = await Person.open(await stage.person("Eve", ["observer"], session));
    people.push(eve);
    await card(eve, "write").getByText("touch x").first().waitFor();
    expect(await button(eve, en.card.approve).count()).toBe(0);
    expect(await button(eve, en.card.reject).count()).toBe(0);
    await eve.page.getByText(en.standing.not_an_approver as string).waitFor();
  });
});

async function hold(person: Person, name: string): Promise<void> {
  await person.page.bringToFront();
  await person.page.getByRole("button", { name }).click({ trial: true });
  const box = await person.page.getByRole("button", { name }).boundingBox();
  if (box === null) throw new Error(`${name} is not on the screen`);
  await person.page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await person.page.mouse.down();
  await person.page.locator(".hold-button[data-state='holding']").waitFor();
  await person.page.locator(".hold-button[data-state='holding']").waitFor({ state: "detached" });
  await person.page.mouse.up();
}

/** Presses Tab until a control has the focus. */
async function focusWithTab(person: Person, control: Locator): Promise<void> {
  for (let presses = 0; presses < 60; presses += 1) {
    await person.page.keyboard.press("Tab");
    if (await control.evaluate((element) => element === document.activeElement)) return;
  }
  throw new Error(`Tab does not reach ${control}`);
}
