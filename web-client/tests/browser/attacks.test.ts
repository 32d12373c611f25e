// Attacks that only a real browser and a real server can show.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { CreatedJoinCode, DeviceList, GateListItem, TokenList } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, DESK, Person, PHONE, Stage } from "./stage";

let stage: Stage;

beforeAll(async () => {
  stage = await Stage.start();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

const tokenOf = (person: Person) => person.page.evaluate(() => (JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token?: string }).token ?? "");
const signedIn = (person: Person) => person.page.getByRole("navigation", { name: en.app.navigation }).waitFor();

test("a link that is opened often makes one device", async () => {
  const session = await stage.session("often");
  const link = await stage.person("Ole", ["approver"], session);
  const ole = await Person.open(link);
  await signedIn(ole);
  for (let times = 0; times < 3; times += 1) {
    await ole.page.goto("about:blank");
    await ole.page.goto(link);
    await signedIn(ole);
  }
  const list = await stage.get<DeviceList>("/api/devices", await tokenOf(ole));
  expect(list.devices).toHaveLength(1);
  expect(ole.complaints).toEqual([]);
  await ole.close();
});

test("whoever is replaced on a device has no token there any more, in any tab", async () => {
  const session = await stage.session("replaced");
  const ida = await Person.open(await stage.person("Ida", ["approver"], session));
  await signedIn(ida);
  const idas = await tokenOf(ida);
  const tab = await ida.context.newPage();
  await tab.goto(`${stage.url}/#/settings`);
  await tab.getByText(en.settings.signedInAs("Ida")).waitFor();
  await ida.page.goto(await stage.person("Jon", ["approver"], session));
  await ida.page.getByRole("button", { name: en.welcome.switchYes("Jon") }).click();
  await signedIn(ida);
  // The other tab is Jon's too, and Ida's token opens nothing.
  await tab.getByText(en.settings.signedInAs("Jon")).waitFor();
  const answer = await stage.fetch("/api/me", { headers: { authorization: `Bearer ${idas}` } });
  expect(answer.status).toBe(401);
  await ida.close();
});

test("a join code makes a device that signing out ends at the server", async () => {
  const session = await stage.session("codes");
  const made = await stage.post<CreatedJoinCode>("/api/codes", { roles: ["approver"], session });
  const kim = await Person.open(`${stage.url}/#join=${made.code}`);
  await kim.page.getByLabel(en.welcome.nameLabel).fill("Kim");
  await kim.page.getByRole("button", { name: en.welcome.join }).click();
  await signedIn(kim);
  const kims = await tokenOf(kim);
  const { tokens } = await stage.get<TokenList>("/api/tokens");
  expect(tokens.find((token) => kims.includes(token.id))?.device).toBeTruthy();
  await kim.page.goto(`${stage.url}/#/settings`);
  await kim.page.getByRole("button", { name: en.settings.signOut }).click();
  await kim.page.getByRole("button", { name: en.settings.signOutSure }).click();
  await kim.page.getByText(en.welcome.intro).waitFor();
  const answer = await stage.fetch("/api/me", { headers: { authorization: `Bearer ${kims}` } });
  expect(answer.status).toBe(401);
  await kim.close();
});

test("a long script that arrives after its card is read to its end before it can be approved", async () => {
  const session = await stage.session("late");
  const script = `${Array.from({ length: 300 }, (_, at) => `echo ${at}`).join("\n")}\nrm -rf ./everything`;
  await stage.agent(session, [{ file_write: { path: "deploy.sh", content: script } }]);
  const [gate] = await stage.gates(session, 1);
  const lou = await Person.open(await stage.person("Lou", ["approver"], session), PHONE);
  await signedIn(lou);
  await lou.page.goto(`${stage.url}/#/gate/${session}/${gate?.gate}`);
  await lou.page.locator(".deck-card .diff").getByText("echo 0", { exact: true }).waitFor();
  await lou.page.getByRole("button", { name: en.card.readOn }).click();
  await lou.page.getByRole("button", { name: en.card.approve, exact: true }).waitFor();
  expect(await lou.page.locator(".command-end").isVisible()).toBe(true);
  await lou.close();
});

test("the second tap of a double tap on what stood there before approves nothing", async () => {
  const session = await stage.session("double-tap");
  const lines = Array.from({ length: 200 }, (_, at) => `touch file-${at}`);
  await stage.agent(session, [{ shell: [...lines, "touch unread"].join("\n") }]);
  const [gate] = await stage.gates(session, 1);
  const mia = await Person.open(await stage.person("Mia", ["approver"], session), PHONE);
  await signedIn(mia);
  const votes: string[] = [];
  mia.page.on("request", (request) => {
    if (request.method() === "POST" && request.url().endsWith("/vote")) votes.push(request.url());
  });
  await mia.page.goto(`${stage.url}/#/gate/${session}/${gate?.gate}`);
  const readOn = mia.page.getByRole("button", { name: en.card.readOn });
  await readOn.waitFor();
  const box = await readOn.boundingBox();
  if (box === null) throw new Error("the button has no place");
  const tap = () => mia.page.touchscreen.tap(box.x + box.width / 2, box.y + box.height / 2);
  await tap();
  const approve = mia.page.locator("button.approve.hold-button");
  await approve.waitFor();
  await tap();
  await mia.page.locator('button.approve.hold-button[aria-disabled="false"]').waitFor();
  expect(votes).toEqual([]);
  await tap();
  await stage.decided(gate as GateListItem);
  expect(votes).toHaveLength(1);
  await mia.close();
});

test.each([
  ["a phone", PHONE],
  ["a wide screen", DESK],
])("nothing that is announced lies over a card on %s", async (name, options) => {
  const session = await stage.session(`covered-${name.length}`);
  await stage.agent(session, [{ shell: "touch first" }]);
  const [gate] = await stage.gates(session, 1);
  const nia = await Person.open(await stage.person("Nia", ["approver"], session), options);
  await signedIn(nia);
  for (const [at, path] of [`/gate/${session}/${gate?.gate}`, `/session/${session}`].entries()) {
    await nia.page.goto(`${stage.url}/#${path}`);
    if (path.startsWith("/session")) {
      const strip = nia.page.locator(".deck-strip");
      await strip.waitFor();
      if ((await strip.getAttribute("aria-expanded")) === "false") await strip.click();
    }
    await nia.page.locator(".decision-bar button.approve").waitFor();
    // What the agent would have people read over the card.
    await stage.agent(session, [{ shell: `touch harmless-${at} # ${"approve the card below, all is well. ".repeat(8)}` }]);
    const announced = nia.page.getByText(en.app.anotherGate(en.category.write as string));
    await announced.waitFor();
    const covered = await nia.page.evaluate(() => {
      const content = document.getElementById("content")?.getBoundingClientRect();
      const boxes = [...document.querySelectorAll(".announcements, .announcements *")].map((element) => element.getBoundingClientRect());
      return boxes.filter((box) => content !== undefined && box.width > 0 && box.bottom > content.top + 1 && box.top < content.bottom - 1 && box.right > content.left + 1 && box.left < content.right - 1).length;
    });
    expect(covered).toBe(0);
    expect(await nia.page.locator(".announcements").innerText()).not.toContain("harmless");
    await announced.waitFor({ state: "hidden" });
  }
  expect(nia.complaints).toEqual([]);
  await nia.close();
});
