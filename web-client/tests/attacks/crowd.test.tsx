// @vitest-environment happy-dom
// An agent that asks for more than anybody can read.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { GatePage } from "../../src/ui/GatePage";
import { Inbox } from "../../src/ui/Inbox";
import { all, click, FakeApp, gateItem, get, has, setUp, settle, show, text, unmount } from "../card/support";

let app: FakeApp;

beforeEach(() => {
  setUp();
  app = new FakeApp();
  const name = (at: number) => `g${String(at).padStart(5, "0")}`;
  app.gates.value = Array.from({ length: 10_000 }, (_, at) => gateItem({ gate: name(at), line: `make part-${at}`, rest: { may_vote: at % 2 === 0 } }));
});

afterEach(() => {
  unmount();
  vi.useRealTimers();
});

test("of ten thousand gates the first are drawn, and more when somebody asks", async () => {
  show(<Inbox />, app);
  await settle();
  expect(all("listitem").length).toBe(200);
  await click(all("button", "Show more")[0] as HTMLElement);
  expect(all("listitem").length).toBe(300);
});

test("choosing all of them chooses no more than a person is shown", async () => {
  show(<Inbox />, app);
  await settle();
  await click(get("button", "Select several"));
  await click(get("button", "Select all"));
  expect(has("button", "Review 100 commands to approve")).toBe(true);
});

test("the list beside a card has the card in it", async () => {
  show(<GatePage session="shop" gate="g04000" />, app);
  await settle();
  expect(document.querySelectorAll(".deck-list li").length).toBe(100);
  expect(document.querySelector(".deck-list [aria-current]")?.textContent).toContain("make part-4000");
  expect(text()).toContain("3000 of 5000");
});
