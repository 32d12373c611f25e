// Every word on the screen comes from the texts of a language, and every text is on some screen.

import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { en, laterTexts } from "../../src/i18n/en";
import { isNode, lineOf, parseSource, sourceFiles, walk } from "./source";
import type { Node, SourceFile } from "./source";

/** Attributes that people see or hear. */
const SPOKEN = new Set(["aria-label", "aria-description", "aria-valuetext", "aria-roledescription", "title", "placeholder", "alt", "label"]);

/** Names, which are the same in every language, and signs without words. */
const SAME_EVERYWHERE = new Set(["PVP"]);

const hasWords = (text: unknown): boolean => typeof text === "string" && /\p{L}/u.test(text) && !SAME_EVERYWHERE.has(text.trim());

/** The words that stand in the source itself. */
function wordsIn(file: SourceFile): string[] {
  const found: string[] = [];
  const note = (node: Node, text: unknown) => found.push(`${file.path}:${lineOf(file, node)}: ${String(text).trim()}`);
  const spoken = (value: unknown) => {
    if (isNode(value)) for (const part of literalsOf(value)) if (hasWords(part.text)) note(part.node, part.text);
  };
  walk(file.tree, (node) => {
    if (node.type === "JSXText" && hasWords(node.value)) note(node, node.value);
    if (node.type === "JSXAttribute" && SPOKEN.has(String((node.name as Node).name))) spoken(node.value);
    if (node.type === "JSXElement" || node.type === "JSXFragment") {
      for (const child of node.children as Node[]) if (child.type === "JSXExpressionContainer") spoken(child);
    }
  });
  return found;
}

/** The texts that an expression may be. */
function literalsOf(node: Node): { node: Node; text: unknown }[] {
  switch (node.type) {
    case "Literal":
      return [{ node, text: node.value }];
    case "TemplateLiteral":
      return (node.quasis as Node[]).map((quasi) => ({ node, text: (quasi.value as { cooked: string }).cooked }));
    case "JSXExpressionContainer":
      return literalsOf(node.expression as Node);
    case "ConditionalExpression":
      return [node.consequent, node.alternate].flatMap((branch) => literalsOf(branch as Node));
    case "LogicalExpression":
    case "BinaryExpression":
      return [node.left, node.right].flatMap((side) => (["===", "!==", "in"].includes(String(node.operator)) ? [] : literalsOf(side as Node)));
    default:
      return [];
  }
}

type Leaf = string | ((...values: unknown[]) => string);

/** The paths of the texts that are used, such as `card.votes`; a group that is used as a whole stands for all in it. */
function usedIn({ tree }: SourceFile): string[] {
  const aliases = new Map<string, string[]>();
  const used: string[] = [];
  // Twice, because a name for a group may stand below where it is used.
  for (const isFirst of [true, false]) {
    walk(tree, (node, parent) => {
      const path = pathOf(node, aliases);
      if (path === null) return;
      if (parent?.type === "VariableDeclarator" && parent.init === node) {
        const id = parent.id as Node;
        if (id.type === "Identifier" && isFirst) aliases.set(String(id.name), [...(aliases.get(String(id.name)) ?? []), ...path]);
        if (id.type === "Identifier") return false;
        if (id.type === "ObjectPattern") {
          for (const property of id.properties as Node[]) for (const prefix of path) used.push(within(prefix, String((property.key as Node | undefined)?.name)));
          return false;
        }
      }
      if (isName(node) && parent !== null && !isRead(node, parent)) return;
      used.push(...path);
      return false;
    });
  }
  return used;
}

const isName = (node: Node): boolean => node.type === "Identifier";
const within = (prefix: string, key: string): string => (prefix === "" ? key : `${prefix}.${key}`);

/** Whether a name stands where its value is meant, and not for a key or a new name. */
function isRead(node: Node, parent: Node): boolean {
  if (parent.type === "VariableDeclarator") return parent.init === node;
  if (parent.type === "MemberExpression") return parent.object === node;
  return parent.type !== "Property" || parent.value === node;
}

/** Which texts an expression names: `t()`, a name for a group of them, or a field of either. */
function pathOf(node: Node, aliases: ReadonlyMap<string, string[]>): string[] | null {
  if (node.type === "CallExpression" && isName(node.callee as Node) && (node.callee as Node).name === "t") return [""];
  if (isName(node)) return aliases.get(String(node.name)) ?? null;
  if (node.type !== "MemberExpression") return null;
  const object = pathOf(node.object as Node, aliases);
  if (object === null || node.computed === true) return object;
  const key = String((node.property as Node).name);
  // Beyond a text, such as `.length` of it, and beyond a list of texts, it is still that text.
  return object.map((path) => (isGroup(path) ? within(path, key) : path));
}

function isGroup(path: string): boolean {
  const value = path.split(".").reduce<unknown>((group, key) => (key === "" ? group : (group as Record<string, unknown> | undefined)?.[key]), en);
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function leaves(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [path];
  return Object.entries(value as Record<string, Leaf>).flatMap(([key, inner]) => leaves(inner, within(path, key)));
}

/** A file with all that it loads, but for the screens whose texts come with them. */
function loadedWith(path: string, loaded = new Map<string, SourceFile>()): Map<string, SourceFile> {
  const file = files.find((other) => other.path === path || other.path === `${path}.ts` || other.path === `${path}.tsx`);
  if (file === undefined || loaded.has(file.path)) return loaded;
  loaded.set(file.path, file);
  walk(file.tree, (node) => {
    if (node.type === "CallExpression" && (node.callee as Node).name === "laterWithTexts") return false;
    const source = node.source as Node | null | undefined;
    if (isNode(source) && typeof source.value === "string" && source.value.startsWith(".")) loadedWith(join(dirname(file.path), source.value), loaded);
  });
  return loaded;
}

const files = sourceFiles();

describe("the words of the page", () => {
  it("stand in the texts of a language, not between the elements", () => {
    expect(files.length).toBeGreaterThan(100);
    expect(files.flatMap(wordsIn)).toEqual([]);
  });

  it("are found wherever they may stand", () => {
    const hidden = '<p title="one" class="not">two {x ? "three" : `four ${y}`} {x === "not" && <b aria-label={"five"}>{x + " six"}</b>} · {t().not}</p>';
    const found = wordsIn(parseSource("a.tsx", `const a = ${hidden};`)).map((text) => text.split(": ")[1]);
    expect(found.sort()).toEqual(["five", "four", "one", "six", "three", "two"]);
  });

  it("are all on some screen", () => {
    const used = new Set(files.flatMap(usedIn));
    const isUsed = (path: string) => [...path.split(".").keys()].some((end) => used.has(path.split(".").slice(0, end + 1).join(".")));
    // The service worker has no screen.
    const unused = leaves(en).filter((path) => !isUsed(path) && !path.startsWith("worker."));
    expect(unused).toEqual([]);
  });

  it("are loaded before they are on the screen", () => {
    const loaded = loadedWith("main");
    expect([...loaded.keys()]).toEqual(expect.arrayContaining(["card/Card.tsx", "stream/SessionScreen.tsx", "stream/markdown.tsx", "terminal/screen.ts"]));
    expect([...loaded.keys()].filter((path) => path.endsWith("Panel.tsx") && path !== "card/FormPanel.tsx")).toEqual([]);
    const early = [...loaded.values()].flatMap((file) => usedIn(file).map((path) => `${file.path}: ${path}`));
    expect(early.filter((use) => Object.hasOwn(laterTexts, use.split(": ")[1]?.split(".")[0] ?? ""))).toEqual([]);
  });

  it("that are used are told from those that are not", () => {
    const source = 'const words = t().session.record; f(words.shorter, t().card.forms[x]); const { stdout } = t().stream; g(t().app.title(1).length, { other_key: 1 });';
    expect(new Set(usedIn(parseSource("a.ts", source)))).toEqual(new Set(["session.record.shorter", "card.forms", "stream.stdout", "app.title"]));
  });
});
