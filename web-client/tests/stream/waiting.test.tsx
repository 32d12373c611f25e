// @vitest-environment happy-dom
// What waits to be sent, as the composer lists it.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Composer } from "../../src/composer/Composer";
import { de } from "../../src/i18n/de";
import { setLanguage } from "../../src/i18n";
import { en } from "../../src/i18n/en";
import type { WaitingMessage } from "../../src/net/outbox";
import { Person } from "../screens/support/person";
import { Feed } from "./feed";

let feed: Feed;
let person: Person;

const waiting = (id: string, type: string, payload: Record<string, unknown>, isWritten = false): WaitingMessage => ({ id, type, payload, at: 0, isWritten, page: "p" });

beforeEach(() => {
  localStorage.clear();
  feed = new Feed().begin();
  feed.waiting.value = [
    waiting("c1", "shell.exec", { command: "touch late\u202efile" }),
    waiting("p1", "prompt.submit", { content: "build it" }, true),
    waiting("v1", "vote.cast", {}),
  ];
  feed.unsent.value = 3;
  feed.state.value = "waiting";
});

afterEach(() => {
  person.leave();
  return setLanguage("en");
});

test.each([
  ["en", en],
  ["de", de],
] as const)("each message can be withdrawn that is not on its way (%s)", async (language, words) => {
  await setLanguage(language);
  feed.withdraw = vi.fn();
  person = new Person(<Composer connection={feed.connection} participant="ann" />);
  const list = person.root.querySelector(".composer-unsent") as HTMLElement;
  expect(list.getAttribute("aria-label")).toBe(words.composer.waitingName);
  const rows = [...list.querySelectorAll("li")].map((row) => [row.querySelector(".mono")?.textContent, row.querySelector("button")?.getAttribute("aria-label") ?? null]);
  expect(rows).toEqual([
    ["!touch late\\u{202e}file", words.composer.withdrawName("!touch late\\u{202e}file")],
    ["build it", null],
    [words.composer.waitingOther, words.composer.withdrawName(words.composer.waitingOther)],
  ]);
  list.querySelector("button")?.click();
  expect(feed.withdraw).toHaveBeenCalledWith("c1");
});
