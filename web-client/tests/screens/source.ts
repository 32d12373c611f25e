// The source of the page as syntax trees, for tests of what it says.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAst } from "vite";

export interface Node {
  type: string;
  start: number;
  [field: string]: unknown;
}

export interface SourceFile {
  path: string;
  text: string;
  tree: Node;
}

const SOURCE = fileURLToPath(new URL("../../src/", import.meta.url));

/** Every file of the page but the texts themselves. */
export function sourceFiles(): SourceFile[] {
  const names = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name) && !name.startsWith("i18n"));
  return names.sort().map((path) => parseSource(path, readFileSync(join(SOURCE, path), "utf8")));
}

export function parseSource(path: string, text: string): SourceFile {
  return { path, text, tree: parseAst(text, { lang: path.endsWith("x") ? "tsx" : "ts" }) as unknown as Node };
}

export function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && typeof (value as Node).type === "string";
}

/** Calls back for a node and everything in it; where that returns false, not for what is in it. */
export function walk(node: Node, visit: (node: Node, parent: Node | null) => boolean | void, parent: Node | null = null): void {
  if (visit(node, parent) === false) return;
  for (const value of Object.values(node)) {
    for (const inner of Array.isArray(value) ? value : [value]) if (isNode(inner)) walk(inner, visit, node);
  }
}

/** The number of the line, for whoever has to mend it. */
export function lineOf({ text }: SourceFile, { start }: Node): number {
  return text.slice(0, start).split("\n").length;
}
