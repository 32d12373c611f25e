// The commands that begin with a slash.

import type { InterruptUrgency } from "@protocol";
import { t } from "../i18n";
import type { SessionTab } from "../state/route";

/** What slash commands can do. Each function returns what is wrong, or null. */
export interface SlashHost {
  open(tab: SessionTab): void;
  help(): void;
  interrupt(urgency: InterruptUrgency, message: string): string | null;
  setApprovals(count: number): string | null;
  end(reason: string): string | null;
  setTarget(name: string): string | null;
  drop(): string | null;
  /** Stops or withdraws the latest command that runs or waits. */
  cancel(reason: string): string | null;
}

export interface SlashCommand {
  name: string;
  /** What is typed after it. */
  args: string;
  run(rest: string, host: SlashHost): string | null;
}

const URGENCIES: readonly string[] = ["pause", "stop", "emergency"];

function opens(tab: SessionTab): SlashCommand["run"] {
  return (_rest, host) => {
    host.open(tab);
    return null;
  };
}

export const SLASH_COMMANDS: readonly SlashCommand[] = [
  {
    name: "help",
    args: "",
    run(_rest, host) {
      host.help();
      return null;
    },
  },
  { name: "interrupt", args: "[pause|stop|emergency] [why]", run: interrupt },
  { name: "cancel", args: "[why]", run: (rest, host) => host.cancel(rest) },
  { name: "to", args: "AGENT", run: (rest, host) => host.setTarget(rest.replace(/^@/, "")) },
  { name: "drop", args: "", run: (_rest, host) => host.drop() },
  { name: "people", args: "", run: opens("people") },
  { name: "history", args: "", run: opens("history") },
  { name: "rules", args: "", run: opens("rules") },
  { name: "audit", args: "", run: opens("audit") },
  { name: "replay", args: "", run: opens("replay") },
  { name: "share", args: "", run: opens("share") },
  { name: "approvals", args: "N", run: approvals },
  { name: "end", args: "REASON", run: (rest, host) => (rest === "" ? t().composer.endNeedsReason : host.end(rest)) },
];

function interrupt(rest: string, host: SlashHost): string | null {
  const [first = "", ...others] = rest.split(/\s+/);
  const isUrgency = URGENCIES.includes(first);
  const urgency = isUrgency ? (first as InterruptUrgency) : "pause";
  return host.interrupt(urgency, (isUrgency ? others.join(" ") : rest).trim());
}

function approvals(rest: string, host: SlashHost): string | null {
  if (!/^[1-9]\d?$/.test(rest)) return t().composer.approvalsNumber;
  return host.setApprovals(Number(rest));
}

/** Runs a command; returns what is wrong with it, or null. */
export function runSlash(name: string, rest: string, host: SlashHost): string | null {
  const command = SLASH_COMMANDS.find((known) => known.name === name);
  return command === undefined ? t().composer.unknown(`/${name}`) : command.run(rest, host);
}

/** The commands that what is typed may become. */
export function slashSuggestions(typed: string): SlashCommand[] {
  const found = /^\/([a-z-]*)$/.exec(typed);
  if (found === null) return [];
  return SLASH_COMMANDS.filter((command) => command.name.startsWith(found[1] ?? ""));
}
