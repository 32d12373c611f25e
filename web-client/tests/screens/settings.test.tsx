// @vitest-environment happy-dom
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { announcements } from "../../src/state/announcements";
import { preferences } from "../../src/state/preferences";
import { Settings } from "../../src/ui/Settings";
import { fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";
import { fakeApp, show } from "./support/session";

const SETTINGS = {
  channels: [{ id: "c/1", kind: "ntfy", label: "My phone", target: "https://ntfy.sh/…", enabled: true, last_error: "404 Not Found" }],
  events: ["opened"],
  sessions: null,
  quiet_hours: null,
  show_command: false,
  vote_links: false,
  kinds: ["push", "webhook", "ntfy"],
  vote_links_allowed: true,
};
const DEVICES = {
  devices: [
    { id: "d1", name: "Chrome on Linux", created: "2026-11-01T10:00:00Z", last_used: null, this_device: true },
    { id: "d2", name: "Safari on iPhone", created: "2026-11-02T10:00:00Z", last_used: "2026-11-18T10:00:00Z", this_device: false },
  ],
};

let server: FakeServer;

beforeEach(() => {
  localStorage.clear();
  server = fakeServer();
  server.on("GET", "/api/notifications", SETTINGS);
  server.on("GET", "/api/devices", DEVICES);
});

afterEach(() => vi.restoreAllMocks());

const app = () => fakeApp({ sessions: [{ session: "blue-owl", name: "Deploy", created_at: "", updated_at: "", head: 1, open_gates: 0, ended: false }] });

it("names every control", async () => {
  const person = await show(app(), <Settings />);
  expect(person.complaints()).toEqual([]);
  expect(person.all("heading").map((heading) => heading.textContent)).toEqual(["Settings", "Appearance", "Notifications", "On this device", "Other ways", "Devices", "You", "About"]);
  person.leave();
});

it("keeps what is chosen for this device", async () => {
  const person = await show(app(), <Settings />);
  await person.choose("Theme", "High contrast");
  await person.choose("Commands that write", "A held press");
  await person.choose("Destructive commands", "A second tap");
  expect(preferences.value).toMatchObject({ theme: "contrast", confirmWrite: "hold", confirmDestructive: "second_tap" });
  expect(JSON.parse(localStorage.getItem("pvp.preferences") ?? "")).toMatchObject({ theme: "contrast" });
  expect([...(person.find("combobox", "Destructive commands") as HTMLSelectElement).options].map((option) => option.value)).not.toContain("tap");
  person.leave();
});

it("saves exactly what was chosen about notifications", async () => {
  const person = await show(app(), <Settings />);
  expect(person.find("button", "Save")).toHaveProperty("disabled", true);
  await person.tick("checkbox", "its deadline is near");
  await person.tick("radio", "Only these");
  await person.tick("checkbox", "Deploy");
  await person.tick("checkbox", "No notifications at night");
  await person.type("textbox", "From", "21:30");
  await person.choose("Time zone", "Europe/Berlin");
  await person.tick("checkbox", /^Show the command/);
  const body = {
    events: ["opened", "closing"],
    sessions: ["blue-owl"],
    quiet_hours: { from: "21:30", to: "07:00", time_zone: "Europe/Berlin" },
    show_command: true,
    vote_links: false,
  };
  server.on("PUT", "/api/notifications", { ...SETTINGS, ...body });
  await person.press("Save");
  expect(server.changes).toEqual([{ method: "PUT", path: "/api/notifications", body }]);
  expect(person.find("button", "Save")).toHaveProperty("disabled", true);
  person.leave();
});

it("does not list this browser as another way", async () => {
  localStorage.setItem("pvp.push", JSON.stringify({ id: "p1", endpoint: "https://push.example/1", participant: "ann" }));
  const push = (id: string, label: string) => ({ id, kind: "push", label, target: "push.example", enabled: true });
  server.on("GET", "/api/notifications", { ...SETTINGS, channels: [push("p1", "Here"), push("p2", "My tablet")] });
  const person = await show(app(), <Settings />);
  expect(person.text).toContain("My tablet");
  expect(person.text).not.toContain("Here");
  person.leave();
});

it("offers no push where the server sends none", async () => {
  const text = "This browser cannot receive notifications while the page is closed.";
  const offered = await show(app(), <Settings />);
  expect(offered.text).toContain(text);
  offered.leave();
  server.on("GET", "/api/notifications", { ...SETTINGS, kinds: ["webhook"] });
  const without = await show(app(), <Settings />);
  expect(without.text).not.toContain(text);
  without.leave();
});

it("offers no vote links where the operator forbids them", async () => {
  server.on("GET", "/api/notifications", { ...SETTINGS, vote_links_allowed: false });
  const person = await show(app(), <Settings />);
  expect(person.has("checkbox", /^Add a link to vote with/)).toBe(false);
  person.leave();
});

it("adds a webhook, and shows its key once", async () => {
  server.on("POST", "/api/notifications/channels", { id: "c2", kind: "webhook", label: "Webhook", target: "https://hooks.example/…", enabled: true, secret: "s3cret" });
  const person = await show(app(), <Settings />);
  await person.press("Add a way");
  expect([...(person.find("combobox", "Kind") as HTMLSelectElement).options].map((option) => option.value)).toEqual(["webhook", "ntfy"]);
  await person.type("textbox", "Address (https://…)", " https://hooks.example/x ");
  await person.press("Add");
  expect(server.changes).toEqual([{ method: "POST", path: "/api/notifications/channels", body: { kind: "webhook", label: "Webhook", target: "https://hooks.example/x" } }]);
  expect(person.text).toContain("s3cret");
  await person.press("Done");
  expect(person.text).not.toContain("s3cret");
  person.leave();
});

it("sends an access token only with ntfy", async () => {
  server.on("POST", "/api/notifications/channels", { id: "c2", kind: "ntfy", label: "Phone", target: "https://ntfy.sh/…", enabled: true });
  const person = await show(app(), <Settings />);
  await person.press("Add a way");
  await person.choose("Kind", "ntfy");
  await person.type("textbox", /^Topic address/, "https://ntfy.sh/pvp");
  await person.type("textbox", "Access token (optional)", "tk_1");
  await person.type("textbox", "Name for the list", "Phone");
  await person.press("Add");
  expect(server.changes[0]?.body).toEqual({ kind: "ntfy", label: "Phone", target: "https://ntfy.sh/pvp", secret: "tk_1" });
  await person.press("Add a way");
  await person.choose("Kind", "ntfy");
  await person.type("textbox", "Access token (optional)", "tk_2");
  await person.choose("Kind", "Webhook");
  await person.type("textbox", /^Address/, "https://hooks.example");
  await person.press("Add");
  expect(server.changes[1]?.body).toEqual({ kind: "webhook", label: "Webhook", target: "https://hooks.example" });
  person.leave();
});

it("tests, switches off and removes a way", async () => {
  const path = "/api/notifications/channels/c%2F1";
  server.on("POST", `${path}/test`, { delivered: false, error: "404 Not Found" });
  server.on("PATCH", path, SETTINGS.channels[0]);
  server.on("DELETE", path, null, 204);
  const person = await show(app(), <Settings />);
  expect(person.text).toContain("last error: 404 Not Found");
  await person.press("Send a test to My phone");
  expect(announcements.value.at(-1)).toMatchObject({ tone: "error", text: "last error: 404 Not Found" });
  await person.tick("checkbox", "Send to My phone");
  await person.press("Remove My phone");
  await person.press("Really remove?");
  expect(server.changes).toEqual([
    { method: "POST", path: `${path}/test`, body: {} },
    { method: "PATCH", path, body: { enabled: false } },
    { method: "DELETE", path },
  ]);
  person.leave();
});

it("signs another device out, and never offers it for this one", async () => {
  server.on("DELETE", "/api/devices/d2", null, 204);
  const person = await show(app(), <Settings />);
  expect(person.all("button", /^Sign out /).map((button) => button.getAttribute("aria-label"))).toEqual(["Sign out Safari on iPhone", "Sign out on this device"]);
  await person.press("Sign out Safari on iPhone");
  await person.press("Really sign it out?");
  expect(server.changes).toEqual([{ method: "DELETE", path: "/api/devices/d2" }]);
  person.leave();
});

it("ends the token at the server when signing out here, and forgets it", async () => {
  server.on("DELETE", "/api/devices/d1", null, 204);
  const replace = vi.spyOn(location, "replace").mockImplementation(() => undefined);
  vi.spyOn(location, "reload").mockImplementation(() => undefined);
  localStorage.setItem("pvp.device", "{}");
  localStorage.setItem("pvp.head.blue-owl", "[]");
  localStorage.setItem("pvp.outbox.ann.blue-owl", "[]");
  const person = await show(app(), <Settings />);
  await person.press("Sign out on this device");
  expect(localStorage.getItem("pvp.device")).toBe("{}");
  await person.press("Really sign out?");
  expect(server.changes).toEqual([{ method: "DELETE", path: "/api/devices/d1" }]);
  expect(localStorage.getItem("pvp.device")).toBe(null);
  expect(localStorage.getItem("pvp.outbox.ann.blue-owl")).toBe(null);
  // What was seen of the records outlives the token.
  expect(localStorage.getItem("pvp.head.blue-owl")).toBe("[]");
  expect(replace).toHaveBeenCalledWith("/");
  person.leave();
});

it("asks before it signs out, and takes no second half of a double click for the answer", async () => {
  server.on("DELETE", "/api/devices/d1", null, 204);
  const person = await show(app(), <Settings />);
  await person.press("Sign out on this device");
  await act(() => person.find("button", "Really sign out?").click());
  expect(server.changes).toEqual([]);
  expect(person.has("button", "Really sign out?")).toBe(true);
  person.leave();
});

it("stays signed in if the server cannot end the token", async () => {
  server.on("DELETE", "/api/devices/d1", { message: "the disk is full" }, 503);
  localStorage.setItem("pvp.device", "{}");
  const person = await show(app(), <Settings />);
  await person.press("Sign out on this device");
  await person.press("Really sign out?");
  expect(localStorage.getItem("pvp.device")).toBe("{}");
  expect(announcements.value.at(-1)).toMatchObject({ tone: "error", text: "That did not work: the disk is full" });
  person.leave();
});

it("says what a server does not offer", async () => {
  server.on("GET", "/api/notifications", { message: "no such route" }, 404);
  server.on("GET", "/api/devices", { message: "no such route" }, 404);
  const person = await show(app(), <Settings />);
  expect(person.text.match(/This server does not offer this\./g)).toHaveLength(2);
  expect(person.has("button", "Try again")).toBe(false);
  person.leave();
});
