// It buzzes: in the open page, by push with the page closed, by webhook with a link that votes.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { GateListItem, GateNotification } from "@protocol";
import { de as german } from "../../src/i18n/de";
import { en } from "../../src/i18n/en";
import { PushKeys, Receiver, signatureOf } from "./receiver";
import { closeBrowser, Person, PHONE, Stage } from "./stage";

let stage: Stage;
let receiver: Receiver;
const opened: Person[] = [];
const SECRET_COMMAND = "touch very-secret-file";

beforeAll(async () => {
  receiver = await Receiver.start();
  stage = await Stage.start({ settings: { notifications: { trusted_hosts: [receiver.host], vote_links: true } } });
});
afterEach(async () => {
  for (const person of opened.splice(0)) {
    expect(person.complaints).toEqual([]);
    await person.close();
  }
  await stage.stopAgents();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
  receiver.close();
});

async function open(link: string): Promise<Person> {
  const person = await Person.open(link, PHONE);
  opened.push(person);
  return person;
}

/** A person who is in, on a phone that allows notifications. */
async function approver(session: string): Promise<Person> {
  await stage.session(session);
  const person = await open(await stage.person("Ann", ["approver"], session));
  await person.context.grantPermissions(["notifications"], { origin: stage.url });
  await person.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
  await person.page.waitForFunction(async () => (await navigator.serviceWorker.ready).active?.state === "activated" && navigator.serviceWorker.controller !== null);
  return person;
}

async function propose(session: string): Promise<GateListItem> {
  await stage.agent(session, [{ shell: SECRET_COMMAND, purpose: "something to decide" }]);
  return ((await stage.gates(session, 1)) as [GateListItem])[0];
}

function tokenOf(person: Person): Promise<string> {
  return person.page.evaluate(() => (JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token: string }).token);
}

function shown(person: Person): Promise<{ title: string; body: string; tag: string }[]> {
  return person.page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(({ title, body, tag }) => ({ title, body, tag })));
}

/** Presses a notification, as the system does. */
async function press(person: Person, tag: string): Promise<void> {
  const [worker] = person.context.serviceWorkers();
  if (worker === undefined) throw new Error("there is no service worker");
  await worker.evaluate(async (wanted) => {
    const scope = self as unknown as ServiceWorkerGlobalScope;
    const [notification] = await scope.registration.getNotifications({ tag: wanted });
    if (notification === undefined) throw new Error(`no notification ${wanted}`);
    scope.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  }, tag);
}

/** Hands the service worker a push message, as the browser does once it is decrypted. */
async function deliver(person: Person, data: string): Promise<void> {
  const session = await person.context.newCDPSession(person.page);
  const registered = new Promise<string>((resolve) => {
    session.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
      const [first] = registrations;
      if (first !== undefined) resolve(first.registrationId);
    });
  });
  await session.send("ServiceWorker.enable");
  await session.send("ServiceWorker.deliverPushMessage", { origin: stage.url, registrationId: await registered, data });
  await session.detach();
}

/** A browser without a window cannot cover its tabs, so the page is told that it is covered. */
async function setVisible(person: Person, state: DocumentVisibilityState): Promise<void> {
  await person.page.evaluate((to) => {
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => to });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
}

function icon(person: Person): Promise<string> {
  return person.page.evaluate(() => document.querySelector<HTMLLinkElement>('link[rel="icon"]')?.href ?? "");
}

test("an open page in the background shows a notification once, a number in its title and on its icon", async () => {
  const ann = await approver("open");
  expect(await ann.page.title()).toBe("PVP");
  const plain = await icon(ann);
  await setVisible(ann, "hidden");
  const gate = await propose("open");
  await expect.poll(() => shown(ann)).toEqual([{ title: en.worker.titles.opened, body: expect.stringMatching(/^Session open · write, .*proposed by /), tag: `pvp-${gate.gate}` }]);
  expect(JSON.stringify(await shown(ann))).not.toContain("secret");
  expect(await ann.page.title()).toBe("(1) PVP");
  expect(await icon(ann)).toMatch(/^data:image\/png/);
  await press(ann, `pvp-${gate.gate}`);
  await ann.page.getByRole("region", { name: en.card.label("write") }).waitFor();
  await stage.vote(gate);
  await expect.poll(() => ann.page.title()).toBe("PVP");
  expect(await icon(ann)).toBe(plain);
});

test("a page in front announces a gate to screen readers, and shows no notification", async () => {
  const ann = await approver("front");
  await propose("front");
  await ann.page.locator("[aria-live]").getByText(en.app.newGate("write", SECRET_COMMAND)).waitFor();
  expect(await shown(ann)).toEqual([]);
});

test("what the server pushes is sealed, says nothing of the command, and opens the card", async () => {
  const ann = await approver("push");
  const token = await tokenOf(ann);
  const keys = new PushKeys();
  await stage.post("/api/push/subscriptions", { endpoint: `http://${receiver.host}/push`, keys: keys.public }, token);
  await ann.page.goto(`${stage.url}/#/settings`);
  await ann.page.getByRole("listitem").filter({ hasText: en.notify.kinds.push as string }).first().waitFor();
  // The worker speaks the language that the page used last.
  await ann.page.getByRole("combobox", { name: en.settings.language }).selectOption("de");
  await ann.page.getByRole("heading", { name: german.settings.heading, exact: true }).waitFor();
  const gate = await propose("push");
  const received = await receiver.next();
  expect(received.body.includes("secret")).toBe(false);
  expect(received.headers.authorization).toMatch(/^vapid t=/);
  const message = keys.decrypt(received);
  expect(JSON.stringify(message)).not.toContain("secret");
  expect(message).toMatchObject({ event: "opened", session: "push", gate: gate.gate, category: "write", url: `/#session=push&gate=${gate.gate}` });
  await deliver(ann, JSON.stringify(message));
  const { titles } = german.worker;
  await expect.poll(() => shown(ann)).toEqual([{ title: titles.opened, body: expect.stringMatching(/^Sitzung push · schreibend, /), tag: `pvp-${gate.gate}` }]);
  await press(ann, `pvp-${gate.gate}`);
  await ann.page.getByRole("region", { name: german.card.label(german.category.write as string) }).getByText(SECRET_COMMAND).first().waitFor();
  await stage.vote(gate);
  const over = keys.decrypt(await receiver.next());
  expect(over).toMatchObject({ event: "closed", gate: gate.gate });
  await deliver(ann, JSON.stringify(over));
  await expect.poll(async () => (await shown(ann)).map((one) => one.title)).toEqual([titles.closed]);
});

test("a webhook of a person's own is signed, and its link votes once, when told to, and never again", async () => {
  const ann = await approver("hook");
  const secret = await addWebhook(ann);
  const gate = await propose("hook");
  const received = await receiver.next();
  expect(received.headers["webhook-signature"]).toBe(signatureOf(received, secret));
  const message = JSON.parse(received.body.toString()) as GateNotification;
  expect(received.body.toString()).not.toContain("secret");
  expect(message.url).toMatch(/\/#vote=[A-Za-z0-9_-]+$/);

  const stranger = await open(message.url);
  await stranger.page.getByText(en.vote.as("Ann")).waitFor();
  await stranger.page.getByText(SECRET_COMMAND).first().waitFor();
  expect(new URL(stranger.page.url()).hash).toBe("");
  const link = new URL(message.url).hash.replace("#vote=", "");
  for (let scan = 0; scan < 3; scan += 1) expect((await stage.fetch("/api/vote", bearer(link))).status).toBe(200);
  expect((await stage.fetch("/api/gates", bearer(link))).status).toBe(401);
  expect((await stage.gates("hook", 1))[0]?.gate).toBe(gate.gate);
  await stranger.page.getByRole("button", { name: en.card.approve, exact: true }).click();
  await stage.decided(gate);
  expect((await stage.fetch("/api/vote", bearer(link))).ok).toBe(false);
  const late = await open(message.url);
  await late.page.getByText(en.vote.dead).waitFor();
  expect(await late.page.getByRole("button", { name: en.card.approve, exact: true }).count()).toBe(0);
});

function bearer(secret: string): RequestInit {
  return { headers: { authorization: `Bearer ${secret}` } };
}

/** Adds the webhook in the settings and asks for links that vote; answers the secret that is shown once. */
async function addWebhook(person: Person): Promise<string> {
  const { page } = person;
  await page.goto(`${stage.url}/#/settings`);
  await page.getByRole("button", { name: en.notify.add }).click();
  await page.getByRole("combobox", { name: en.notify.kind }).selectOption("webhook");
  await page.getByRole("textbox", { name: en.notify.targets.webhook as string }).fill(`http://${receiver.host}/hook`);
  await page.getByRole("button", { name: en.notify.save, exact: true }).click();
  await page.getByText(en.notify.secretShown).waitFor();
  const secret = await page.locator(".banner code").innerText();
  await page.getByRole("checkbox", { name: en.notify.voteLinks }).check();
  await page.getByRole("button", { name: en.notify.apply, exact: true }).click();
  await page.getByText(en.notify.saved, { exact: true }).waitFor();
  return secret;
}
