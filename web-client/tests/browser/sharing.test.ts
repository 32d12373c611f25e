// Inviting others from the page by link, code and QR code, and taking it back.

import jsQR from "jsqr";
import { PNG } from "pngjs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { TokenList } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, PHONE, Stage } from "./stage";

let stage: Stage;
let ann: Person;
const opened: Person[] = [];

beforeAll(async () => {
  stage = await Stage.start();
  await stage.session("night");
  const { token } = await stage.invite({ name: "Ann", roles: ["admin", "approver"] });
  ann = await Person.open(`${stage.url}/#token=${token}&session=night`);
  await navigation(ann).waitFor();
  await ann.page.goto(`${stage.url}/#/session/night/share`);
});
afterEach(async () => {
  for (const person of opened.splice(0)) await person.close();
});
afterAll(async () => {
  expect(ann.complaints).toEqual([]);
  await ann.close();
  await closeBrowser();
  await stage.close();
});

function navigation(person: Person) {
  return person.page.getByRole("navigation", { name: en.app.navigation });
}

async function open(link: string): Promise<Person> {
  const person = await Person.open(link, PHONE);
  opened.push(person);
  return person;
}

/** What a phone's camera reads from the QR code on the screen. */
async function scan(person: Person): Promise<string> {
  const picture = person.page.getByRole("img", { name: en.share.qr });
  await picture.waitFor();
  const png = PNG.sync.read(await picture.screenshot());
  const read = jsQR(new Uint8ClampedArray(png.data), png.width, png.height);
  if (read === null) throw new Error("the QR code cannot be read");
  return read.data;
}

async function joinByCode(link: string, name: string): Promise<Person> {
  const person = await open(link);
  await person.page.getByRole("textbox", { name: en.welcome.nameLabel }).fill(name);
  await person.page.getByRole("button", { name: en.welcome.join }).click();
  return person;
}

function tokenOf(person: Person): Promise<string> {
  return person.page.evaluate(() => (JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token: string }).token);
}

/** The status that the server answers to a request with somebody's token. */
async function answer(person: Person, path: string, body: object): Promise<number> {
  const headers = { authorization: `Bearer ${await tokenOf(person)}`, "content-type": "application/json" };
  return (await stage.fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).status;
}

test("a phone joins by the QR code of a join code, once, with its role and no more", async () => {
  await ann.page.getByRole("button", { name: en.share.createCode }).click();
  const link = await scan(ann);
  expect(new URL(link).origin).toBe(stage.url);
  expect(new URL(link).hash).toMatch(/^#join=[0-9A-Z-]{23}$/);
  const phone = await joinByCode(link, "Phil");
  await navigation(phone).waitFor();
  expect(new URL(phone.page.url()).hash).not.toContain("join");
  await phone.page.goto(`${stage.url}/#/session/night/share`);
  await phone.page.getByText(en.share.onlyAdmins).waitFor();
  const invitation = { name: "Eve", roles: ["admin"], session: "night", kind: "human", capabilities: [] };
  expect(await answer(phone, "/api/invites", invitation)).toBe(403);
  expect(await answer(phone, "/api/sessions", { session: "other" })).toBe(403);
  const thief = await joinByCode(link, "Eve");
  await thief.page.getByRole("alert").waitFor();
  expect(await navigation(thief).count()).toBe(0);
  expect(phone.complaints).toEqual([]);
  await ann.page.getByRole("button", { name: en.share.done }).click();
});

test("whoever has a read-only link sees the card and cannot vote, until the link is revoked", async () => {
  await stage.agent("night", [{ shell: "touch a", purpose: "something to decide" }]);
  const [gate] = await stage.gates("night", 1);
  await ann.page.getByRole("radio", { name: en.share.byLink }).check();
  await ann.page.getByRole("textbox", { name: en.share.name }).fill("Vera");
  await ann.page.getByRole("combobox", { name: en.share.what }).selectOption({ label: en.share.roles.observer as string });
  await ann.page.getByRole("button", { name: en.share.create, exact: true }).click();
  const link = await scan(ann);
  await ann.page.getByRole("button", { name: en.share.done }).click();
  const vera = await open(link);
  await navigation(vera).waitFor();
  await vera.page.goto(`${stage.url}/#/gate/night/${gate?.gate}`);
  await vera.page.getByText("touch a").first().waitFor();
  expect(await vera.page.getByRole("button", { name: en.card.approve, exact: true }).count()).toBe(0);
  const vote = { vote: "approve", digest: gate?.assessment.digest };
  expect(await answer(vera, `/api/sessions/night/gates/${gate?.gate}/vote`, vote)).toBe(403);
  await revoke("Vera");
  await vera.page.getByText(en.net.signedOut).waitFor();
  const late = await open(link);
  await late.page.getByRole("alert").waitFor();
  expect(await navigation(late).count()).toBe(0);
});

test("a code that was taken back lets nobody in", async () => {
  await ann.page.reload();
  await ann.page.getByRole("button", { name: en.share.createCode }).click();
  const link = await scan(ann);
  await ann.page.getByRole("button", { name: en.share.done }).click();
  const [code] = (await stage.get<TokenList>("/api/tokens")).codes;
  await ann.page.getByRole("button", { name: en.share.revokeCode(code?.id ?? "") }).click();
  await ann.page.getByRole("button", { name: en.share.sure }).click();
  await ann.page.getByText(en.share.revoked(code?.id ?? "")).waitFor();
  const late = await joinByCode(link, "Late");
  await late.page.getByRole("alert").waitFor();
  expect(await navigation(late).count()).toBe(0);
});

/** Revokes whatever the list has of somebody: the link, and the devices that it made. */
async function revoke(name: string): Promise<void> {
  await ann.page.reload();
  const buttons = ann.page.getByRole("button", { name: en.share.revokeWhat(name) });
  await buttons.first().waitFor();
  while ((await buttons.count()) > 0) {
    const before = await buttons.count();
    await buttons.first().click();
    await ann.page.getByRole("button", { name: en.share.sure }).click();
    await expect.poll(() => buttons.count()).toBeLessThan(before);
  }
}

test("the QR code that a terminal prints opens the page of whoever is invited, once", async () => {
  const printed = await stage.command(["invite", "--name", "Tim", "--role", "approver", "--session", "night", "--qr", "--data", `${stage.directory}/data`]);
  const link = readBlocks(printed);
  expect(link.startsWith(`${stage.url}/#device=`)).toBe(true);
  expect(printed).toContain(`browser      ${link} `);
  const tim = await open(link);
  await navigation(tim).waitFor();
  await tim.page.getByRole("feed").waitFor();
  const second = await open(link);
  await second.page.getByRole("alert").waitFor();
  expect(await navigation(second).count()).toBe(0);
});

/** What a camera reads from a QR code that is drawn in blocks of two modules above each other, light on dark. */
function readBlocks(printed: string): string {
  const rows = printed.split("\n").filter((line) => /^ +[█▀▄ ]+$/.test(line));
  const light: { [block: string]: [boolean, boolean] } = { "█": [true, true], "▀": [true, false], "▄": [false, true], " ": [false, false] };
  const [scale, width] = [4, Math.max(...rows.map((row) => row.length))];
  const pixels = new Uint8ClampedArray(width * scale * rows.length * 2 * scale * 4);
  pixels.fill(255);
  rows.forEach((row, line) =>
    [...row.padEnd(width)].forEach((block, column) =>
      (light[block] ?? [false, false]).forEach((isLight, half) => {
        for (let y = 0; y < scale; y += 1)
          for (let x = 0; x < scale; x += 1) {
            const at = (((line * 2 + half) * scale + y) * width * scale + column * scale + x) * 4;
            pixels.fill(isLight ? 255 : 0, at, at + 3);
          }
      }),
    ),
  );
  const read = jsQR(pixels, width * scale, rows.length * 2 * scale);
  if (read === null) throw new Error(`the QR code cannot be read:\n${printed}`);
  return read.data;
}
