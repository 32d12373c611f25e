// Hostile text, foreign pages and stolen links.

import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CreatedDeviceCode, DeviceList, TokenList } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, Stage } from "./stage";

let stage: Stage;

beforeAll(async () => {
  stage = await Stage.start();
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

describe("text is only text", () => {
  test("a command, its output and an answer full of markup and control characters do nothing", async () => {
    const session = await stage.session("hostile");
    const line = "printf '<img src=x onerror=alert(1)>\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033[6n\\n' > out.txt # \u202etxt.exe\u2066<script>alert(2)</script>";
    const answer = "<script>alert(3)</script> [run](javascript:alert(4)) ![x](http://127.0.0.1:9/x.png) <b onclick=alert(5)>bold</b> \u202eevil";
    await stage.agent(session, [{ say: answer }, { shell: line, purpose: "<h1>trust me</h1>\u200b" }, { shell: "cat out.txt" }, { say: "end" }]);
    const ann = await Person.open(await stage.person("Ann", ["approver"], session));
    const dialogs: string[] = [];
    ann.page.on("dialog", (dialog) => {
      dialogs.push(dialog.message());
      void dialog.dismiss();
    });
    const requests: string[] = [];
    ann.page.on("request", (request) => requests.push(request.url()));
    const card = ann.page.getByRole("region", { name: en.card.label("write") });
    await card.getByText("\\u{202e}", { exact: false }).first().waitFor();
    await card.getByText("<h1>trust me</h1>", { exact: false }).first().waitFor();
    await ann.page.getByRole("button", { name: en.card.approve, exact: true }).click();
    await ann.page.getByText("end", { exact: true }).first().waitFor();
    expect(dialogs).toEqual([]);
    expect(await ann.page.title()).not.toContain("owned");
    expect(await ann.page.locator("main script, main img[src^='x'], main [onclick]").count()).toBe(0);
    expect(await ann.page.locator("a[href^='javascript:']").count()).toBe(0);
    expect(requests.filter((url) => !url.startsWith(stage.url) && !url.startsWith("data:") && !url.startsWith("blob:"))).toEqual([]);
    expect(ann.complaints).toEqual([]);
    await ann.close();
  });
});

describe("links and tokens", () => {
  test("what the history of a browser keeps of a link is worth nothing", async () => {
    const session = await stage.session("links");
    const { token, participant } = await stage.invite({ name: "Lea", roles: ["approver"], session });
    const { link } = await stage.post<CreatedDeviceCode>("/api/device-codes", {}, token);
    expect(link).not.toContain(token);
    const code = /#device=([^&]+)/.exec(link)?.[1] ?? "";
    const profile = mkdtempSync(join(stage.directory, "profile-"));
    const lea = await Person.openWithProfile(profile, "about:blank");
    const urls: string[] = [];
    lea.page.on("request", (request) => urls.push(`${request.url()} ${request.headers()["referer"] ?? ""}`));
    await lea.page.goto(link);
    await lea.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    expect(lea.page.url()).not.toContain(code);
    expect(urls.filter((url) => url.includes(code) || url.includes(token))).toEqual([]);
    const kept = await lea.page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
    expect(kept).not.toContain(token);
    expect(kept).toContain(participant);
    expect(lea.complaints).toEqual([]);
    await lea.close();
    // Chromium writes it down whatever a page does about it.
    const history = readdirSync(join(profile, "Default")).filter((name) => name.startsWith("History"));
    expect(history.some((name) => readFileSync(join(profile, "Default", name)).includes(code))).toBe(true);
    const thief = await Person.open(link);
    await thief.page.getByRole("alert").filter({ hasText: "works once" }).waitFor();
    expect(await thief.page.getByRole("navigation", { name: en.app.navigation }).count()).toBe(0);
    await thief.close();
  });

  test("a link for another person asks first, and leaves no device behind if one stays", async () => {
    const session = await stage.session("stays");
    const lea = await Person.open(await stage.person("Lea", ["approver"], session));
    await lea.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    const { token } = await stage.invite({ name: "Mallory", roles: ["approver"], session });
    const { link } = await stage.post<CreatedDeviceCode>("/api/device-codes", {}, token);
    await lea.page.goto(link);
    await lea.page.getByRole("button", { name: en.welcome.switchNo("Lea") }).click();
    await lea.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    await expect.poll(async () => (await stage.get<DeviceList>("/api/devices", token)).devices).toEqual([]);
    await lea.close();
  });

  test("a device that is revoked is signed out at once, and the link still works elsewhere", async () => {
    const session = await stage.session("revoked");
    const link = await stage.person("Rob", ["approver"], session);
    const [one, two] = [await Person.open(link), await Person.open(link)];
    for (const person of [one, two]) await person.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    const device = await one.page.evaluate(() => JSON.parse(localStorage.getItem("pvp.device") ?? "{}") as { token: string });
    const tokens = await stage.get<TokenList>("/api/tokens");
    const mine = tokens.tokens.find((item) => device.token.includes(item.id));
    const answer = await stage.fetch(`/api/tokens/${mine?.id}`, { method: "DELETE", headers: stage.adminHeaders() });
    expect(answer.status).toBe(204);
    await one.page.getByText(en.net.signedOut).waitFor();
    await two.page.reload();
    await two.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    for (const person of [one, two]) await person.close();
  });

  test("another person's link asks before it signs somebody out", async () => {
    const session = await stage.session("switch");
    const sue = await Person.open(await stage.person("Sue", ["approver"], session));
    await sue.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    await sue.page.goto(await stage.person("Tom", ["approver"], session));
    await sue.page.getByRole("button", { name: en.welcome.switchNo("Sue") }).click();
    await sue.page.getByRole("navigation", { name: en.app.navigation }).waitFor();
    const kept = await sue.page.evaluate(() => localStorage.getItem("pvp.device"));
    expect(kept).toContain("Sue");
    await sue.close();
  });
});

describe("other origins", () => {
  test("a foreign page can neither frame the page nor open its socket nor read its API", async () => {
    const evil = createServer((_, response) => {
      response.setHeader("content-type", "text/html");
      response.end(`<iframe src="${stage.url}/"></iframe>`);
    });
    await new Promise<void>((resolve) => evil.listen(0, "127.0.0.1", resolve));
    const address = evil.address() as AddressInfo;
    const victim = await Person.open(`http://127.0.0.1:${address.port}/`);
    const frame = victim.page.frames()[1];
    // What the browser shows in the place of a page that refuses to be framed.
    expect(frame?.url()).toBe("chrome-error://chromewebdata/");
    const socket = await victim.page.evaluate(
      (url) =>
        new Promise<string>((resolve) => {
          const socket = new WebSocket(`${url.replace("http", "ws")}/ws`);
          socket.onopen = () => resolve("open");
          socket.onerror = () => resolve("refused");
        }),
      stage.url,
    );
    expect(socket).toBe("refused");
    const read = await victim.page.evaluate((url) => fetch(`${url}/api/gates`).then(() => "read", () => "refused"), stage.url);
    expect(read).toBe("refused");
    await victim.close();
    evil.close();
  });

  test("every file of the page carries the policy, and the page loads nothing inline", async () => {
    const page = await stage.fetch("/", { headers: { accept: "text/html" } });
    const policy = page.headers.get("content-security-policy") ?? "";
    for (const rule of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "base-uri 'none'"]) {
      expect(policy).toContain(rule);
    }
    expect(policy).not.toMatch(/unsafe|\*|http:/);
    expect(page.headers.get("referrer-policy")).toBe("no-referrer");
    expect(page.headers.get("x-frame-options")).toBe("DENY");
    expect(page.headers.get("set-cookie")).toBeNull();
    const html = await page.text();
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|\son\w+=|<style|\sstyle=/);
  });
});
