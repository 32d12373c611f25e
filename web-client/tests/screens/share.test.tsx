// @vitest-environment happy-dom
import qrcode from "qrcode-generator";
import { beforeEach, expect, it, vi } from "vitest";
import { SharePanel } from "../../src/screens/SharePanel";
import { modulesOf } from "../../src/screens/share/QrCode";
import { reachableLink } from "../../src/screens/share/MadeInvitation";
import { fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";
import { fakeApp, fakeConnection, human, people, show } from "./support/session";

// As the server writes it: what is not there is null.
const token = (id: string, name: string, change: object = {}) => ({
  id,
  participant: name.toLowerCase(),
  name,
  kind: "human",
  roles: ["approver"],
  session: null,
  created: "2026-11-18T10:00:00Z",
  expires: null,
  revoked: null,
  last_used: null,
  state: "valid",
  ...change,
});

let server: FakeServer;

beforeEach(() => {
  server = fakeServer();
  server.on("GET", "/api/tokens", { tokens: [], codes: [] });
});

const connection = () => fakeConnection({ people: people(human("ann", "Ann", ["admin"]), human("bob", "Bob", ["admin"]), human("eve", "Eve", ["admin"], { left: true })) });

it("tells others who can invite, and asks the server nothing", async () => {
  const person = await show(fakeApp({ roles: ["approver"] }), <SharePanel connection={connection()} />);
  expect(person.text).toContain("Only admins invite people.");
  expect(person.text).toContain("Ask Ann and Bob.");
  expect(person.has("button")).toBe(false);
  expect(server.asked).toEqual([]);
  person.leave();
});

it("names an admin who comes later", async () => {
  const here = fakeConnection({});
  const person = await show(fakeApp({ roles: ["approver"] }), <SharePanel connection={here} />);
  expect(person.text).toContain("No admin is here.");
  Object.assign(here.view.people, people(human("bob", "Bob", ["admin"])));
  here.tick.value += 1;
  await person.sees("Ask Bob.");
  person.leave();
});

it("makes a link with role, session and expiry, and shows it once as text and QR code", async () => {
  const link = "https://pvp.example/#token=pvp_secret&session=blue-owl";
  server.on("POST", "/api/invites", { token: "pvp_secret", link, participant: "kim", roles: ["approver"], expires: "2026-11-19T10:00:00Z" }, 201);
  const page = "https://pvp.example/#device=7QK2M-R8T4X-0B6FJ-ZN3WG&session=blue-owl";
  server.on("POST", "/api/device-codes", { link: page, expires: "2026-11-18T11:00:00Z" }, 201, "pvp_secret");
  const person = await show(fakeApp({ roles: ["admin"] }), <SharePanel connection={connection()} />);
  await person.tick("radio", "A link for one person");
  expect(person.find("button", "Make the link")).toHaveProperty("disabled", true);
  await person.type("textbox", "Name, as others see it", " Kim ");
  await person.press("Make the link");
  expect(server.changes).toEqual([
    { method: "POST", path: "/api/invites", body: { name: "Kim", kind: "human", capabilities: [], roles: ["approver"], session: "blue-owl", expires_seconds: 86_400 } },
    { method: "POST", path: "/api/device-codes", body: { session: "blue-owl" } },
  ]);
  expect(person.find("textbox", "For a browser: works once, within an hour")).toHaveProperty("value", page);
  expect(person.find("textbox", "For a terminal (pvp login): works until it is revoked")).toHaveProperty("value", link);
  expect(document.activeElement?.textContent).toBe("The link for Kim");
  const { path } = await modulesOf(page);
  await vi.waitFor(() => expect(person.find("img", "QR code of the link").querySelector("path")?.getAttribute("d")).toBe(path));
  expect(person.complaints()).toEqual([]);
  await person.press("Done");
  expect(person.root.innerHTML).not.toContain("pvp_secret");
  person.leave();
});

it("makes a link for an agent, which opens no page", async () => {
  const link = "https://pvp.example/#token=pvp_secret&session=blue-owl";
  server.on("POST", "/api/invites", { token: "pvp_secret", link, participant: "bot", roles: ["approver"], expires: null }, 201);
  const person = await show(fakeApp({ roles: ["admin"] }), <SharePanel connection={connection()} />);
  await person.tick("radio", "A link for one person");
  await person.type("textbox", "Name, as others see it", "bot");
  await person.choose("For", "an agent on another machine");
  await person.press("Make the link");
  expect(server.changes.map((change) => change.path)).toEqual(["/api/invites"]);
  expect(person.find("textbox", "Link")).toHaveProperty("value", link);
  person.leave();
});

it("makes a read-only link for every session that never expires", async () => {
  server.on("POST", "/api/invites", { token: "t", link: "https://pvp.example/#token=t", participant: "kim", roles: ["observer"], expires: null }, 201);
  // Without one for a browser, the link is still good.
  server.on("POST", "/api/device-codes", { code: "LIMIT", message: "too many" }, 429, "t");
  const person = await show(fakeApp({ roles: ["admin"] }), <SharePanel connection={connection()} />);
  await person.tick("radio", "A link for one person");
  await person.type("textbox", "Name, as others see it", "Kim");
  await person.choose("What they may do", "Only watch (read-only)");
  await person.tick("radio", "Every session on this server");
  await person.choose("Expires", "never");
  await person.press("Make the link");
  expect(server.changes[0]?.body).toEqual({ name: "Kim", kind: "human", capabilities: [], roles: ["observer"] });
  expect(person.find("textbox", "Link")).toHaveProperty("value", "https://pvp.example/#token=t");
  expect(person.text).toContain("Valid until it is revoked.");
  person.leave();
});

it("makes a join code, never for an admin", async () => {
  const code = "7QK2M-R8T4X-0B6FJ-ZN3WG";
  server.on("POST", "/api/codes", { id: "c1", code, link: `https://pvp.example/#join=${code}`, roles: ["approver"], session: "blue-owl", expires: "2026-11-18T11:00:00Z" }, 201);
  const person = await show(fakeApp({ roles: ["admin"] }), <SharePanel connection={connection()} />);
  expect([...(person.find("combobox", "What they may do") as HTMLSelectElement).options].map((option) => option.value)).not.toContain("admin");
  await person.tick("radio", "A link for one person");
  await person.choose("What they may do", "Everything, as an admin");
  expect(person.text).toContain("Whoever has the link is an admin.");
  await person.tick("radio", "A join code, which works once");
  expect([...(person.find("combobox", "What they may do") as HTMLSelectElement).options].map((option) => option.value)).not.toContain("admin");
  await person.press("Make the code");
  expect(server.changes).toEqual([{ method: "POST", path: "/api/codes", body: { code_seconds: 3600, roles: ["approver"], session: "blue-owl", expires_seconds: 86_400 } }]);
  expect(person.find("textbox", "Code")).toHaveProperty("value", code);
  person.leave();
});

it("invites only to the session that an admin is bound to, who revokes nothing", async () => {
  server.on("GET", "/api/tokens", { tokens: [token("1", "Kim", { session: "blue-owl" })], codes: [] });
  const person = await show(fakeApp({ roles: ["admin"], session: "blue-owl" }), <SharePanel connection={connection()} />);
  expect(person.has("radio", "Every session on this server")).toBe(false);
  expect(person.has("button", /Revoke/)).toBe(false);
  expect(person.text).toContain("so you cannot revoke links");
  person.leave();
});

it("lists what opens this session, and revokes after asking once more", async () => {
  const tokens = [token("1", "Kim"), token("2", "Lee", { session: "blue-owl" }), token("3", "Max", { session: "other" }), token("4", "Old", { state: "revoked" })];
  const codes = [{ id: "c1", roles: ["approver"], session: null, created: "2026-11-18T10:00:00Z", expires: "2026-11-18T11:00:00Z" }];
  server.on("GET", "/api/tokens", { tokens, codes });
  server.on("DELETE", "/api/tokens/2", null, 204);
  const person = await show(fakeApp({ roles: ["admin"] }), <SharePanel connection={connection()} />);
  const names = () => person.all("button", /^Revoke/).map((button) => button.getAttribute("aria-label"));
  expect(names()).toEqual(["Revoke the link of Lee", "Revoke the link of Kim", "Revoke the code c1"]);
  await person.tick("checkbox", "Show expired and revoked ones");
  expect(person.text).toContain("Old");
  await person.press("Revoke the link of Lee");
  expect(server.changes).toEqual([]);
  server.on("GET", "/api/tokens", { tokens: [token("1", "Kim")], codes: [] });
  await person.press("Really revoke?");
  expect(server.changes).toEqual([{ method: "DELETE", path: "/api/tokens/2" }]);
  expect(names()).toEqual(["Revoke the link of Kim"]);
  person.leave();
});

it("draws exactly the modules of the code", async () => {
  const text = "https://pvp.example/#token=pvp_9e22816a890768ff_327357306e15bfd61e81090c90f84c6146de2c314fdba2f4619b00205e8e1e5f&session=blue-owl";
  const code = qrcode(0, "M");
  code.addData(text, "Byte");
  code.make();
  const { size, path } = await modulesOf(text);
  const dark = new Set<string>();
  for (const [, x, y, length] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-\d+z/g)) {
    for (let at = 0; at < Number(length); at += 1) dark.add(`${Number(x) + at - 4},${Number(y) - 4}`);
  }
  expect(size).toBe(code.getModuleCount());
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) expect(dark.has(`${column},${row}`), `${column},${row}`).toBe(code.isDark(row, column));
  }
});

it("links to where others reach the server", () => {
  const link = "http://127.0.0.1:3000/#token=t&session=s";
  expect(reachableLink(link, "https://pvp.example")).toBe("https://pvp.example/#token=t&session=s");
  expect(reachableLink(link, "http://localhost:5173")).toBe(link);
  expect(reachableLink("https://public.example/#token=t", "http://192.168.1.5:3000")).toBe("https://public.example/#token=t");
});
