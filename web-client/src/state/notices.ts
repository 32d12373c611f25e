// Decides what a person is told about open gates, and when to look again. Pure; the rules are those
// of `server/src/notifier/plan.rs`.

import type { GateListItem, NotificationEvent, QuietHours } from "@protocol";

/** What somebody wants to be told, and when not. */
export interface Wishes {
  events: readonly NotificationEvent[];
  /** `null` means all. */
  sessions: readonly string[] | null;
  quietHours: QuietHours | null;
}

export const EVERYTHING: Wishes = { events: ["opened", "escalated", "closing"], sessions: null, quietHours: null };

export interface Notice {
  gate: GateListItem;
  event: NotificationEvent;
}

export interface NoticePlan {
  tell: Notice[];
  /** What has been told of the gates that are open, with what is told now. */
  told: ReadonlySet<string>;
  /** In milliseconds, as `now` is. */
  lookAgain: number | null;
}

/** How long before its deadline a gate counts as closing; the server's own default. */
const CLOSING_SECONDS = 60;
const MINUTE_MS = 60_000;
/** Quiet hours may end sooner than the clock on the wall says, when it is put forward. */
const MAX_QUIET_LOOK_MS = 15 * MINUTE_MS;

/** Plans what is told of the gates that somebody may vote on and has not. */
export function planNotices(gates: readonly GateListItem[], wishes: Wishes, told: ReadonlySet<string>, now: number): NoticePlan {
  const quietUntil = wishes.quietHours === null ? null : quietEnd(wishes.quietHours, now);
  const tell: Notice[] = [];
  const looks: number[] = [];
  for (const gate of gates) {
    if (wishes.sessions !== null && !wishes.sessions.includes(gate.session)) continue;
    // Whoever is told that a gate is closing need not be told that it opened.
    const event = dueEvents(gate, now).find((due) => wishes.events.includes(due));
    const isDue = event !== undefined && !told.has(keyOf(gate, event));
    if (isDue && quietUntil !== null) looks.push(quietUntil);
    else if (isDue) tell.push({ gate, event });
    const closing = closingAt(gate);
    if (closing !== null && closing > now && wishes.events.includes("closing")) looks.push(closing);
  }
  const isOpen = new Set(gates.flatMap((gate) => EVERYTHING.events.map((event) => keyOf(gate, event))));
  const kept = [...told].filter((key) => isOpen.has(key));
  return {
    tell,
    told: new Set([...kept, ...tell.map(({ gate, event }) => keyOf(gate, event))]),
    lookAgain: looks.length === 0 ? null : Math.min(...looks),
  };
}

/** What there is to know of these gates by now, for somebody who has seen them. */
export function seenNotices(gates: readonly GateListItem[], now: number): ReadonlySet<string> {
  return new Set(gates.flatMap((gate) => dueEvents(gate, now).map((event) => keyOf(gate, event))));
}

/** The latest first. */
function dueEvents(gate: GateListItem, now: number): NotificationEvent[] {
  const deadline = deadlineOf(gate);
  if (deadline !== null && deadline <= now) return [];
  const closing = closingAt(gate);
  const phase = gate.escalated ? "escalated" : "opened";
  return closing !== null && closing <= now ? ["closing", phase] : [phase];
}

function deadlineOf(gate: GateListItem): number | null {
  const deadline = Date.parse(gate.request.deadline ?? "");
  return Number.isNaN(deadline) ? null : deadline;
}

/** A gate that is open only briefly counts as closing in the second half of its time. */
function closingAt(gate: GateListItem): number | null {
  const deadline = deadlineOf(gate);
  const lead = Math.min(CLOSING_SECONDS, Math.floor((gate.request.timeout_seconds ?? 0) / 2));
  return deadline === null ? null : deadline - lead * 1000;
}

/** An edit makes it another command, and an escalation gives it another deadline. */
export function keyOf(gate: GateListItem, event: NotificationEvent): string {
  return JSON.stringify([gate.session, gate.gate, gate.assessment.digest, gate.escalated, event]);
}

/** When to look whether it is still quiet; `null` if it is not quiet. */
function quietEnd({ from, to, time_zone }: QuietHours, now: number): number | null {
  const start = minuteOfDay(from);
  const end = minuteOfDay(to);
  const time = localMinute(now, time_zone);
  if (start === null || end === null || time === null) return null;
  const isQuiet = start < end ? start <= time && time < end : time >= start || time < end;
  if (!isQuiet) return null;
  const left = (((end - time + 1440) % 1440) || 1440) * MINUTE_MS - (now % MINUTE_MS);
  return now + Math.min(left, MAX_QUIET_LOOK_MS);
}

function minuteOfDay(text: string): number | null {
  const found = /^(\d\d):(\d\d)$/.exec(text);
  return found === null ? null : Number(found[1]) * 60 + Number(found[2]);
}

function localMinute(now: number, timeZone: string): number | null {
  try {
    const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
    return minuteOfDay(clock.format(now));
  } catch {
    // This browser does not know the zone.
    return null;
  }
}
