// A call of a tool other than the shell, as people read it before they decide about it.
//
// What is shown is computed from the arguments, which are what is executed. What the agent says
// about them, such as a diff of its own, is shown apart and as its word.

import type { FileContent, ToolCategory } from "@protocol";
import type { CheckedAction } from "./action";
import { actionFromArguments } from "./action";
import { listArguments } from "./arguments";
import { attempt } from "./envelope";
import { findChange } from "./file_change";
import { headlineOf } from "./headline";
import { isObject, parseJson } from "./json";
import type { JsonObject } from "./json";
import { byteLength, countInvisible, detached, TextBudget } from "./text";
import type { DiffLine, StatedDiff, ToolCallView } from "./types";

/** The longest command that is kept whole, in bytes. Nobody approves what is not shown whole. */
export const MAX_COMMAND_BYTES = 256 * 1024;

/** Arguments in which agents describe a change in their own words. */
const STATED_DIFFS = ["diff", "patch", "unified_diff"];

/**
 * The call of an action; undefined if the action is not a tool call. Contents are used only if the
 * action binds them by their hash.
 */
export function toolCallOf(
  action: CheckedAction,
  contents: FileContent[],
  statedCategory: ToolCategory | null,
): ToolCallView | undefined {
  if (action.command.form !== "tool") return undefined;
  const { name, arguments: args } = action.command;
  // A change may show all of the old text and all of the new one.
  const budget = new TextBudget(2 * MAX_COMMAND_BYTES);
  const found = findChange(name, args, action.files, contents, budget);
  const headline = headlineOf(name, args, found);
  // Everything that the action binds is listed beside the call.
  const shown = [...(found?.shownKeys ?? []), ...(action.files.length > 0 ? ["files"] : [])];
  const rest = Object.fromEntries(Object.entries(args).filter(([key]) => !shown.includes(key)));
  const statedDiffs = takeStatedDiffs(rest, budget);
  const listed = listArguments(rest, budget);
  return {
    headline,
    stated_category: statedCategory,
    change: found?.change ?? null,
    arguments: listed,
    stated_diffs: statedDiffs.length > 0 ? statedDiffs : undefined,
    hidden: budget.hidden + countInvisible(name),
    cut_bytes: budget.cutBytes,
  };
}

function takeStatedDiffs(args: JsonObject, budget: TextBudget): StatedDiff[] {
  const stated: StatedDiff[] = [];
  for (const name of STATED_DIFFS) {
    const text = args[name];
    if (typeof text !== "string") continue;
    stated.push({ name, text: budget.take(text) });
    delete args[name];
  }
  return stated;
}

/** Drops most of a long call that has ended, to save memory. */
export function shortenCall(call: ToolCallView, maxBytes: number): ToolCallView {
  let [left, cut] = [maxBytes, 0];
  const keeps = (text: string): boolean => {
    const bytes = byteLength(text);
    const fits = bytes < left;
    left = fits ? left - bytes - 1 : 0;
    cut += fits ? 0 : bytes;
    return fits;
  };
  const kept = (line: DiffLine) => ({ ...line, text: detached(line.text) });
  const hunks = call.change?.hunks.map((hunk) => ({
    ...hunk,
    lines: hunk.lines.filter((line) => keeps(line.text)).map(kept),
  }));
  const listed = call.arguments.filter((argument) => keeps(argument.value));
  const stated = call.stated_diffs?.filter((diff) => keeps(diff.text)) ?? [];
  return {
    ...call,
    change: call.change && { ...call.change, hunks: (hunks ?? []).filter((hunk) => hunk.lines.length > 0) },
    arguments: listed,
    stated_diffs: stated.length > 0 ? stated : undefined,
    cut_bytes: call.cut_bytes + cut,
  };
}

/**
 * The call that a summary describes, which is the tool's name and its arguments as JSON; undefined if
 * the text is not that.
 */
export function callOfSummary(tool: string, summary: string): ToolCallView | undefined {
  if (tool === "shell" || !summary.startsWith(`${tool} `)) return undefined;
  const args = parseJson(summary.slice(tool.length + 1));
  const action = isObject(args) ? attempt(() => actionFromArguments(tool, args), null) : null;
  return action === null ? undefined : toolCallOf(action, [], null);
}
