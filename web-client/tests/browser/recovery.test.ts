// Sleep, reloads, crashes and restores: nothing is lost, and a record that shrank is called out.

import { cpSync, rmSync } from "node:fs";
import { join as pathOf } from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import type { MessagePage } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, Stage } from "./stage";

let stage: Stage;
let ann: Person;

beforeEach(async () => {
  stage = await Stage.start();
  await stage.session("night");
  ann = await Person.open(await stage.person("Ann", ["driver", "approver"], "night"));
  await ann.page.getByRole("textbox", { name: en.composer.label }).waitFor();
});
afterEach(async () => {
  expect(ann.complaints).toEqual([]);
  await ann.close();
  await stage.close();
});
afterAll(closeBrowser);

async function prompts(): Promise<string[]> {
  const page = await stage.get<MessagePage>("/api/sessions/night/messages?limit=1000");
  return page.messages.filter((message) => message.type === "prompt.submit").map((message) => String((message.payload as { content: string }).content));
}

async function say(text: string): Promise<void> {
  await ann.page.getByRole("textbox", { name: en.composer.label }).fill(text);
  await ann.page.getByRole("button", { name: en.composer.send, exact: true }).click();
}

describe("what was there is there again", () => {
  test("a reload resumes without the link, and with everything that was said", async () => {
    await stage.agent("night", [{ say: "hello from the agent" }]);
    await ann.page.getByText("hello from the agent").waitFor();
    expect(ann.page.url()).not.toContain("token");
    await ann.page.reload();
    await ann.page.getByText("hello from the agent").waitFor();
  });

  test("a server that is killed and started again is found, and what was typed meanwhile is sent once", async () => {
    await stage.agent("night", [{ wait: "prompt" }, { say: "heard you" }]);
    await ann.page.getByText("bot").first().waitFor();
    await stage.killServer();
    await ann.page.getByText(en.app.reconnecting).first().waitFor();
    await say("typed while it was down");
    await ann.page.getByText(en.app.unsent(1)).waitFor();
    await ann.page.reload({ waitUntil: "commit" }).catch(() => undefined);
    await stage.startServer();
    await ann.page.goto(`${stage.url}/#/session/night`);
    await ann.page.getByText("typed while it was down").first().waitFor();
    await ann.page.getByText("heard you").waitFor();
    expect(await prompts()).toEqual(["typed while it was down"]);
  });

  test("a gate that was open before a crash is decided after it", async () => {
    await stage.agent("night", [{ shell: "touch survived" }, { say: "went on" }]);
    await stage.gates("night", 1);
    await ann.page.getByRole("button", { name: en.card.approve, exact: true }).waitFor();
    await stage.killServer();
    await stage.startServer();
    await stage.gates("night", 1);
    await ann.page.getByRole("button", { name: en.card.approve, exact: true }).click();
    await ann.page.getByText("went on").waitFor();
  });
});

describe("a record that is another one than before", () => {
  const directory = (name: string) => pathOf(stage.directory, name);

  async function backUp(): Promise<void> {
    await stage.stopServer();
    cpSync(directory("data"), directory("backup"), { recursive: true });
    await stage.startServer();
  }

  /** Puts the backup in the place of what has been recorded since; the server stays down. */
  async function putBack(): Promise<void> {
    await stage.stopAgents();
    await stage.stopServer();
    rmSync(directory("data"), { recursive: true });
    cpSync(directory("backup"), directory("data"), { recursive: true });
  }

  /** Lets something happen that this person sees, and that the backup does not have. */
  async function goOn(person: Person): Promise<void> {
    await stage.agent("night", [{ say: "this will be forgotten" }]);
    await person.page.getByText("this will be forgotten").waitFor();
  }

  const warning = (person: Person) => person.page.getByRole("alert").filter({ hasText: /The server's record is shorter than what this device has seen/ });
  const notice = (person: Person) => person.page.getByText(/The operator has declared that the record was restored from a backup/);

  test("is called out if it is shorter, at once and after a reload", async () => {
    await backUp();
    await goOn(ann);
    await putBack();
    await stage.startServer();
    await warning(ann).first().waitFor();
    await ann.page.reload();
    await warning(ann).first().waitFor();
  });

  test("is called out also to somebody whose token it does not know", async () => {
    await backUp();
    const bea = await Person.open(await stage.person("Bea", ["driver", "approver"], "night"));
    await goOn(bea);
    await bea.page.waitForFunction(() => localStorage.getItem("pvp.head.night") !== null);
    await putBack();
    await stage.startServer();
    await bea.page.getByText(en.net.signedOut).waitFor();
    await bea.page.goto(await stage.person("Bea", ["driver", "approver"], "night"));
    await warning(bea).first().waitFor();
    expect(bea.complaints).toEqual([]);
    await bea.close();
  });

  test("is told of once if the operator has declared the restore, and the session goes on from there", async () => {
    await backUp();
    await goOn(ann);
    await putBack();
    await stage.maintain("restored");
    await stage.startServer();
    await notice(ann).waitFor();
    await ann.page.getByText("this will be forgotten").waitFor({ state: "detached" });
    await stage.agent("night", [{ wait: "prompt" }, { say: "heard you" }]);
    await ann.page.getByText("bot").first().waitFor();
    await say("after the restore");
    await ann.page.getByText("after the restore").first().waitFor();
    expect(await prompts()).toEqual(["after the restore"]);
    expect(await warning(ann).count()).toBe(0);
    const head = ann.page.waitForResponse((response) => response.url().includes("/head"));
    await ann.page.reload();
    await (await head).finished();
    await ann.page.getByText("after the restore").first().waitFor();
    expect([await notice(ann).count(), await warning(ann).count()]).toEqual([0, 0]);
  });
});
