// The languages say the same things, and all of them.

import { describe, expect, it } from "vitest";
import { de } from "../../src/i18n/de";
import { en } from "../../src/i18n/en";

/** Words that are the same in both languages. */
const SAME = new Set([
  "app.title",
  "card.agent",
  "card.sandbox",
  "card.votedAt",
  "inbox.in",
  "net.anyBrowser",
  "notify.kinds.discord",
  "notify.kinds.ntfy",
  "notify.kinds.push",
  "notify.kinds.slack",
  "notify.kinds.webhook",
  "notify.targets.push",
  "people.changed",
  "people.sandbox",
  "people.shell",
  "rules.directory",
  "share.code",
  "share.link",
  "stream.code",
  "stream.inDirectory",
  "terminal.keyNames.escape",
  "terminal.streams.stderr",
  "terminal.streams.stdout",
  "composer.pause",
  "stream.stderr",
  "stream.stdout",
  "stream.terminal",
  "time.minutes",
  "time.seconds",
  "worker.unreadable",
]);

type Leaf = string | ((...values: unknown[]) => string);

/** Every text by its path, with functions asked for one and for several of something. */
function texts(value: unknown, path = ""): [string, string][] {
  if (typeof value === "string") return [[path, value]];
  if (typeof value === "function") {
    const say = value as (...values: unknown[]) => string;
    return [1, 3].map((count) => [path, say(...Array<number>(say.length).fill(count))]);
  }
  if (typeof value !== "object" || value === null) throw new Error(`${path} is neither a text nor a group of texts`);
  return Object.entries(value as Record<string, Leaf>).flatMap(([key, inner]) => texts(inner, path === "" ? key : `${path}.${key}`));
}

const english = texts(en);
const german = texts(de);

describe("the languages", () => {
  it("have the same texts in the same places", () => {
    expect(german.map(([path]) => path).sort()).toEqual(english.map(([path]) => path).sort());
  });

  it("say something everywhere", () => {
    expect([...english, ...german].filter(([, text]) => text.trim() === "" || text.includes("undefined"))).toEqual([]);
  });

  it("leave nothing untranslated by accident", () => {
    const byPath = new Map(english.map(([path, text]) => [`${path} ${text}`, true]));
    const same = new Set(german.filter(([path, text]) => byPath.has(`${path} ${text}`)).map(([path]) => path));
    expect([...same].filter((path) => !SAME.has(path))).toEqual([]);
    expect([...SAME].filter((path) => !same.has(path))).toEqual([]);
  });

  it("say every value that they are given", () => {
    expect(values(de)).toEqual(values(en));
  });
});

/** Which of its values each function says, by its path. */
function values(value: unknown, path = ""): Record<string, string[]> {
  if (typeof value === "function") {
    const say = value as (...values: unknown[]) => string;
    const marks = Array.from({ length: say.length }, (_, index) => `<${index}>`);
    return { [path]: marks.filter((mark) => say(...marks).includes(mark)) };
  }
  if (typeof value !== "object" || value === null) return {};
  const inner = Object.entries(value).map(([key, part]) => values(part, `${path}.${key}`));
  return Object.assign({}, ...inner) as Record<string, string[]>;
}
