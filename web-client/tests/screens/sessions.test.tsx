// @vitest-environment happy-dom
import { beforeEach, expect, it } from "vitest";
import type { SessionListItem } from "@protocol";
import { Sessions } from "../../src/ui/Sessions";
import { settled } from "./support/person";
import { fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";
import { fakeApp, show } from "./support/session";

const item = (session: string, change: Partial<SessionListItem> = {}): SessionListItem => ({
  session,
  created_at: "2026-11-18T10:00:00Z",
  updated_at: new Date(Date.now() - 5 * 60_000).toISOString(),
  head: 10,
  open_gates: 0,
  ended: false,
  ...change,
});

let server: FakeServer;

beforeEach(() => {
  server = fakeServer();
});

it("lists sessions with what waits in them, and links to each", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("blue-owl", { name: "Deploy", open_gates: 2 }), item("s/2")], more: false });
  const person = await show(fakeApp(), <Sessions />);
  expect(person.all("link").map((link) => [link.getAttribute("href"), link.textContent])).toEqual([
    ["#/session/blue-owl", "Deploy2 open gatesblue-owlactive 5 min. ago"],
    ["#/session/s%2F2", "s/2active 5 min. ago"],
  ]);
  expect(person.complaints()).toEqual([]);
  person.leave();
});

it("counts open gates as the inbox knows them", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("blue-owl", { open_gates: 5 })], more: false });
  const gates = [{ session: "blue-owl", gate: "g" }] as never;
  const person = await show(fakeApp({ gates }), <Sessions />);
  expect(person.text).toContain("1 open gate");
  person.leave();
});

it("finds a session by its name or id, and pages with `before`", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("a", { name: "Nightly Build" }), item("b")], more: true });
  server.on("GET", "/api/sessions?limit=50&ended=false&before=b", { sessions: [item("c", { name: "Build docs" })], more: false });
  const person = await show(fakeApp(), <Sessions />);
  await person.type("searchbox", "Search sessions", "build");
  expect(person.all("link")).toHaveLength(1);
  expect(person.text).toContain("Searched the newest 2 sessions.");
  await person.press("Show more");
  expect(person.all("link")).toHaveLength(2);
  await person.type("searchbox", "Search sessions", "nothing like it");
  expect(person.text).toContain("No session matches.");
  person.leave();
});

it("shows those that have ended", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [], more: false });
  server.on("GET", "/api/sessions?limit=50&ended=true", { sessions: [item("old", { ended: true })], more: false });
  server.on("GET", "/api/sessions?limit=50", { sessions: [item("old", { ended: true }), item("new")], more: false });
  const person = await show(fakeApp(), <Sessions />);
  expect(person.text).toContain("There is no session that you may open.");
  await person.tick("radio", "Ended");
  expect(person.find("link").textContent).toContain("ended");
  await person.tick("radio", "All");
  expect(person.all("link")).toHaveLength(2);
  person.leave();
});

it("says what went wrong, and tries again", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { message: "the log cannot be read", code: "INTERNAL_ERROR" }, 503);
  const person = await show(fakeApp(), <Sessions />);
  expect(person.find("alert").textContent).toContain("the log cannot be read");
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("a")], more: false });
  await person.press("Try again");
  expect(person.has("alert")).toBe(false);
  expect(person.all("link")).toHaveLength(1);
  person.leave();
});

it("asks again when a gate waits in a session that it does not know", async () => {
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("a")], more: false });
  const app = fakeApp({ gates: [] });
  const person = await show(app, <Sessions />);
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("b"), item("a")], more: false });
  app.gates.value = [{ session: "b", gate: "g" }] as never;
  await settled();
  expect(person.all("link")).toHaveLength(2);
  person.leave();
});

it("shows names inertly", async () => {
  const name = "<img src=x onerror=alert(1)>\u202Egpj";
  server.on("GET", "/api/sessions?limit=50&ended=false", { sessions: [item("a", { name })], more: false });
  const person = await show(fakeApp(), <Sessions />);
  expect(person.root.querySelector("img")).toBe(null);
  expect(person.text).not.toContain("\u202E");
  person.leave();
});
