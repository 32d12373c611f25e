// The page over HTTPS, with a certificate that the server makes itself.

import { request } from "node:https";
import type { TLSSocket } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { en } from "../../src/i18n/en";
import { browserArguments, closeBrowser, Person, PHONE, Stage } from "./stage";

let stage: Stage;

beforeAll(async () => {
  // Only this test's own requests, to its own server, go through it.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  stage = await Stage.start({ arguments: ["--tls-self-signed"] });
  // A person who has installed the certificate; service workers ask for that.
  const key = Buffer.from(new URLSearchParams(stage.pin).get("fp") ?? "", "base64url");
  browserArguments.push(`--ignore-certificate-errors-spki-list=${key.toString("base64")}`);
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
  delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
});

test("over HTTPS one approves, and sees the output live", async () => {
  expect(stage.url).toMatch(/^https:\/\//);
  await stage.session("sealed");
  const shell = "for i in $(seq 400); do echo line-$i; sleep 0.05; done";
  await stage.agent("sealed", [{ shell: `touch begun; ${shell}`, purpose: "something that takes a while", mode: "slow" }]);
  await stage.gates("sealed", 1);
  const ann = await Person.open(await stage.person("Ann", ["approver"], "sealed"), PHONE);
  const sockets: string[] = [];
  ann.page.on("websocket", (socket) => sockets.push(socket.url()));
  await ann.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
  await ann.page.goto(`${stage.url}/#/`);
  await ann.page.getByRole("link", { name: /touch begun/ }).click();
  await ann.page.getByRole("button", { name: en.card.approve, exact: true }).click();
  await ann.page.goto(`${stage.url}/#/session/sealed`);
  const number = async () => Number(/line-(\d+)(?![^]*line-)/.exec(await ann.page.getByRole("feed").innerText())?.[1] ?? 0);
  await expect.poll(number, { timeout: 30_000 }).toBeGreaterThan(0);
  const seen = await number();
  await expect.poll(number, { timeout: 30_000 }).toBeGreaterThan(seen);
  expect(sockets.every((url) => url.startsWith("wss://"))).toBe(true);
  expect(sockets.length).toBeGreaterThan(0);
  expect(await ann.page.evaluate(() => isSecureContext)).toBe(true);
  expect(ann.complaints).toEqual([]);
  await ann.close();
});

test("where the certificate is trusted, the service worker is there and opens the page without a network", async () => {
  await stage.session("trusted");
  const ann = await Person.open(await stage.person("Ann", ["approver"], "trusted"), PHONE);
  await ann.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
  await ann.page.waitForFunction(async () => (await navigator.serviceWorker.ready).active?.state === "activated" && navigator.serviceWorker.controller !== null);
  await ann.context.setOffline(true);
  await ann.page.reload();
  await ann.page.getByText(en.app.offline).waitFor();
  expect(ann.complaints).toEqual([]);
  await ann.close();
});

test("old versions of TLS are refused", async () => {
  const asked = (options: object) =>
    new Promise<string | null>((resolve, reject) => {
      const sent = request(stage.url, { rejectUnauthorized: false, ...options }, (response) => {
        resolve((response.socket as TLSSocket).getProtocol());
        response.resume();
      });
      sent.once("error", reject).end();
    });
  expect(await asked({})).toBe("TLSv1.3");
  await expect(asked({ minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" })).rejects.toThrow(/alert|protocol/);
});
