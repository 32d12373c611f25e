// The panels of a session and the service worker, with a real server: what a person changes is changed there.

import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { MessagePage, SessionDetails } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, PHONE, Stage } from "./stage";

let stage: Stage;
const opened: Person[] = [];

beforeAll(async () => {
  stage = await Stage.start();
});
afterEach(async () => {
  for (const person of opened.splice(0)) await person.close();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

async function open(link: string): Promise<Person> {
  const person = await Person.open(link, PHONE);
  opened.push(person);
  await person.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
  return person;
}

async function goTo(person: Person, hash: string): Promise<void> {
  await person.page.evaluate((to) => {
    location.hash = to;
  }, hash);
}

test("an admin changes the roles of somebody", async () => {
  await stage.session("roles");
  const ann = await open(await stage.person("Ann", ["admin"], "roles"));
  const bob = await open(await stage.person("Bob", ["observer"], "roles"));
  await goTo(bob, "#/session/roles/people");
  await bob.page.getByText(en.people.onlyAdmins).waitFor();
  await goTo(ann, "#/session/roles/people");
  await ann.page.getByRole("button", { name: en.people.change("Bob") }).click();
  await ann.page.getByRole("checkbox", { name: /^approver/ }).check();
  await ann.page.getByRole("button", { name: en.people.save }).click();
  await ann.page.getByText(en.people.changed("Bob", "approver, observer")).waitFor();
  const details = await stage.get<SessionDetails>("/api/sessions/roles");
  expect(details.people.find((one) => one.name === "Bob")?.roles).toEqual(["observer", "approver"]);
  expect([...ann.complaints, ...bob.complaints]).toEqual([]);
});

test("a rule is revoked, and the record of all of it is saved as it was logged", async () => {
  await stage.session("rules");
  const ann = await open(await stage.person("Ann", ["approver"], "rules"));
  const token = await ann.page.evaluate(() => (JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token: string }).token);
  const expires_at = new Date(Date.now() + 3_600_000).toISOString();
  await stage.post("/api/sessions/rules/messages", { type: "policy.allow", payload: { prefix: ["cargo", "test"], expires_at } }, token);
  await goTo(ann, "#/session/rules/rules");
  await ann.page.getByRole("button", { name: en.rules.revokeRule("cargo test") }).click();
  await ann.page.getByRole("button", { name: en.share.sure }).click();
  await ann.page.getByText(en.rules.empty).waitFor();
  expect((await stage.get<SessionDetails>("/api/sessions/rules")).rules ?? []).toEqual([]);
  await goTo(ann, "#/session/rules/audit");
  const saving = ann.page.waitForEvent("download");
  await ann.page.getByRole("button", { name: en.audit.download }).click();
  const lines = readFileSync(await (await saving).path(), "utf8").trim().split("\n");
  const page = await stage.get<MessagePage>("/api/sessions/rules/messages?limit=1000", token);
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(page.messages);
  expect(ann.complaints).toEqual([]);
});

test("a record is whole until somebody changes a word of it", async () => {
  await stage.session("record");
  const ann = await open(await stage.person("Ann", ["approver"], "record"));
  const token = await ann.page.evaluate(() => (JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token: string }).token);
  await stage.post("/api/sessions/record/messages", { type: "policy.allow", payload: { prefix: ["ls"], expires_at: new Date(Date.now() + 3_600_000).toISOString(), reason: "harmless" } }, token);
  await goTo(ann, "#/session/record/audit");
  await ann.page.getByRole("button", { name: en.audit.check }).click();
  await ann.page.getByText(/^Whole: \d+ entries follow/).waitFor();
  await ann.page.getByText(/signature of .* covers everything/).waitFor();
  // Whoever changes a message on its way, or in the database, cannot change its hash with it.
  await ann.page.route("**/api/sessions/record/messages?**", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replace("harmless", "homeless") });
  });
  await ann.page.getByRole("button", { name: en.audit.checkAgain }).click();
  await ann.page.getByText(/does not follow from the one before it/).waitFor();
  expect(ann.complaints).toEqual([]);
});

test("a device is signed out from another one", async () => {
  await stage.session("devices");
  const link = await stage.person("Ann", ["approver"], "devices");
  const phone = await open(link);
  const tablet = await open(link);
  await goTo(phone, "#/settings");
  await phone.page.getByRole("button", { name: /^Sign out Chrome/ }).click();
  await phone.page.getByRole("button", { name: en.devices.sure }).click();
  await tablet.page.getByText(en.net.signedOut).waitFor();
  await goTo(phone, "#/sessions");
  await phone.page.getByRole("link", { name: /devices/ }).waitFor();
});

test("the page opens without a server, and a pushed notification opens its card", async () => {
  await stage.session("offline");
  const ann = await open(await stage.person("Ann", ["approver"], "offline"));
  await ann.context.grantPermissions(["notifications"]);
  await ann.page.waitForFunction(async () => (await navigator.serviceWorker.ready).active?.state === "activated" && navigator.serviceWorker.controller !== null);
  const push = { event: "opened", session: "offline", gate: "g-1", category: "write", title: "Offline: write", body: "bot proposes", url: "/#session=offline&gate=g-1", tag: "t" };
  const shown = () => ann.page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map((one) => [one.title, one.tag]).sort());
  await deliver(ann, JSON.stringify(push));
  await expect.poll(shown).toEqual([["Offline: write", "pvp-g-1"]]);
  await deliver(ann, "not what was agreed");
  await expect.poll(shown).toEqual([["Offline: write", "pvp-g-1"], [en.worker.unreadable, "pvp"]]);
  const worker = ann.context.serviceWorkers()[0];
  await worker?.evaluate(async () => {
    const scope = self as unknown as ServiceWorkerGlobalScope;
    const notification = (await scope.registration.getNotifications({ tag: "pvp-g-1" }))[0] as Notification;
    scope.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  });
  await expect.poll(() => new URL(ann.page.url()).hash).toBe("#/gate/offline/g-1");
  await stage.killServer();
  await ann.page.goto(`${stage.url}/`);
  await ann.page.getByText(en.app.reconnecting).waitFor();
  const kept = await ann.page.evaluate(async () => {
    const all: string[] = [];
    for (const name of await caches.keys()) all.push(...(await (await caches.open(name)).keys()).map((request) => new URL(request.url).pathname));
    return all;
  });
  // The language that the page uses is kept there for the worker, too.
  expect(kept).toContain("/");
  expect(kept.filter((path) => !/^\/($|assets\/|icons\/|manifest\.webmanifest$|language$)/.test(path))).toEqual([]);
  await stage.startServer();
  await expect.poll(() => ann.page.getByText(en.app.reconnecting).count(), { timeout: 30_000 }).toBe(0);
});

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
