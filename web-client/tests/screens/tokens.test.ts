// Every text can be read on every background that it stands on, in every theme.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

type Theme = Record<string, string>;

/** The custom properties of each block of the file, by its selector and media query. */
function themes(css: string): Map<string, Theme> {
  const found = new Map<string, Theme>();
  let media = "";
  let selector = "";
  for (const line of css.replace(/\/\*[\s\S]*?\*\//g, "").split("\n")) {
    const text = line.trim();
    if (text.startsWith("@media")) media = text.replace(/\s*\{$/, " ");
    else if (text.endsWith("{")) found.set((selector = media + text.replace(/\s*\{$/, "")), {});
    else if (text === "}" && !line.startsWith(" ")) media = "";
    const property = /^(--[\w-]+|color-scheme):\s*(.+);$/.exec(text);
    const theme = found.get(selector);
    if (property !== null && theme !== undefined) theme[property[1] as string] = property[2] as string;
  }
  return found;
}

function luminance(colour: string): number {
  const match = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/.exec(colour);
  if (match === null) throw new Error(`${colour} is not #rrggbb`);
  const [red, green, blue] = match.slice(1).map((part) => {
    const value = parseInt(part, 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const GROUNDS = ["--bg", "--bg-raised", "--bg-sunken"];
const TEXTS = ["--text", "--text-quiet", "--accent", "--read", "--write", "--destructive", "--blocked", "--ok", "--danger"];
const SOFT = ["accent", "read", "write", "destructive", "blocked", "ok"].map((name) => [`--${name}`, `--${name}-soft`] as const);

const all = themes(readFileSync(new URL("../../src/style/tokens.css", import.meta.url), "utf8"));
const named = (part: string) => [...all].filter(([selector]) => selector.includes(part)).map(([, theme]) => theme);

describe("the themes", () => {
  it("has a light, a dark and two contrast themes", () => {
    expect(all.size).toBe(6);
  });

  it.each([...all.keys()])("%s: texts meet WCAG AA", (selector) => {
    const theme = all.get(selector) as Theme;
    const colour = (name: string) => theme[name] ?? "missing";
    const pairs: (readonly [string, string])[] = [
      ...TEXTS.flatMap((text) => GROUNDS.map((ground) => [text, ground] as const)),
      ...SOFT,
      ...SOFT.map(([, soft]) => ["--text", soft] as const),
      ["--accent-text", "--accent"],
      ["--danger-text", "--danger"],
    ];
    const weak = pairs.filter(([text, ground]) => contrast(colour(text), colour(ground)) < 4.5);
    expect(weak).toEqual([]);
    const edges = GROUNDS.flatMap((ground) => [["--border-strong", ground] as const, ["--focus", ground] as const]);
    expect(edges.filter(([edge, ground]) => contrast(colour(edge), colour(ground)) < 3)).toEqual([]);
  });

  it("sets texts of the contrast themes far from their ground", () => {
    const strong = [...named('"contrast"').filter((theme) => theme["--bg"] === "#000000"), ...named("prefers-contrast")];
    expect(strong.length).toBeGreaterThanOrEqual(3);
    for (const theme of strong) {
      for (const text of TEXTS) expect(contrast(theme[text] ?? "", theme["--bg"] ?? "")).toBeGreaterThanOrEqual(7);
    }
  });

  it("is the same whether it was chosen or the system asks for it", () => {
    expect(all.get('@media (prefers-color-scheme: dark) :root:not([data-theme="light"], [data-theme="contrast"])')).toEqual(all.get(':root[data-theme="dark"]'));
    expect(all.get('@media (prefers-contrast: more) and (prefers-color-scheme: dark) :root[data-theme="system"]')).toEqual(all.get(':root[data-theme="contrast"]'));
  });
});
