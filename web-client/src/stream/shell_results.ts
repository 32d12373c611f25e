// A prompt begins with the results of the person's own commands, as blocks for the agent. People
// read them as one line each.

import { isObject } from "../net/storage";

export interface ShownResult {
  command: string;
  exit: number | null;
  /** The block's content, laid out. */
  json: string;
}

const BLOCK = /^<shell_result>(\{[^\n]*\})<\/shell_result>\n/;

export function splitShellResults(prompt: string): { results: ShownResult[]; text: string } {
  const results: ShownResult[] = [];
  let text = prompt;
  for (let found = BLOCK.exec(text); found !== null; found = BLOCK.exec(text)) {
    const result = parseResult(found[1] ?? "");
    if (result === null) break;
    results.push(result);
    text = text.slice(found[0].length);
  }
  return { results, text };
}

function parseResult(json: string): ShownResult | null {
  let block: unknown;
  try {
    block = JSON.parse(json);
  } catch {
    return null;
  }
  if (!isObject(block) || typeof block.command_preview !== "string") return null;
  const exit = typeof block.exit_code === "number" ? block.exit_code : null;
  return { command: block.command_preview, exit, json: JSON.stringify(block, null, 2) };
}
