// The notifications that the page itself shows while nobody looks at it. However many tabs are open,
// a person is told once, and not at all of what one of them shows.

import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { load, save } from "../net/storage";
import { NOTICES, noticeTag, shownNotices } from "../net/notifications";
import { serverNow } from "../net/server_clock";
import { noticeText } from "../sw/notice_text";
import { locale } from "../ui/format";
import { shownLine } from "../ui/shown";
import type { App } from "./app";
import { keyOf } from "./notices";
import type { Notice } from "./notices";
import { isPushedHere } from "./push_state";

/** Held, together with others, by each tab that somebody looks at. */
const FRONT_LOCK = "pvp.front";
/** Held by the tab that tells something at the moment. */
const TELLING_LOCK = "pvp.notice";
/** What was told of gates that are decided is forgotten one day. */
const MAX_TOLD = 500;

let leaveFront: (() => void) | null = null;

/** Says to the other tabs whether somebody looks at this one. */
export function setInFront(isInFront: boolean): void {
  if (!isInFront) {
    leaveFront?.();
    leaveFront = null;
  } else if (leaveFront === null) {
    const left = new Promise<void>((resolve) => (leaveFront = resolve));
    void navigator.locks?.request(FRONT_LOCK, { mode: "shared" }, () => left).catch(() => undefined);
  }
}

async function isInFrontSomewhere(): Promise<boolean> {
  const held = (await navigator.locks?.query())?.held ?? [];
  return held.some((lock) => lock.name === FRONT_LOCK);
}

function told(): string[] {
  return load(NOTICES, (value) => (Array.isArray(value) ? value.filter((key) => typeof key === "string") : null)) ?? [];
}

/** Notes what was told or seen, so that no other tab tells it. */
export function noteTold(keys: Iterable<string>): void {
  const known = told();
  const fresh = [...keys].filter((key) => !known.includes(key));
  if (fresh.length > 0) save(NOTICES, [...known, ...fresh].slice(-MAX_TOLD));
}

/** Shows a notification, unless another tab has told it or shows it. */
export async function showNotice(app: App, notice: Notice): Promise<void> {
  const settings = app.notificationSettings.value;
  // The push says the same, on this very device.
  if (await isPushedHere(app.device.participant, settings?.channels ?? [])) return;
  const show = () => showOnce(app, notice);
  await (navigator.locks?.request(TELLING_LOCK, show) ?? show());
}

async function showOnce(app: App, { gate, event }: Notice): Promise<void> {
  const key = keyOf(gate, event);
  if (told().includes(key)) return;
  if (await isInFrontSomewhere()) return noteTold([key]);
  const { category, risk } = gate.assessment;
  const facts = {
    event,
    session: gate.session,
    sessionName: escapeInvisible(app.sessionName(gate.session)),
    category,
    risk,
    proposer: escapeInvisible(gate.proposer),
    deadline: gate.request.deadline ?? null,
    command: app.notificationSettings.value?.show_command === true ? shownLine(gate.action) : null,
  };
  const words = noticeText(facts, t().worker, locale(), serverNow());
  if (words === null) return;
  const options: NotificationOptions & { renotify: boolean } = {
    body: words.body,
    tag: noticeTag(gate.gate),
    data: { session: gate.session, gate: gate.gate, isOpen: true },
    icon: "/icons/icon-192.png",
    badge: "/icons/badge-96.png",
    renotify: true,
    requireInteraction: event === "closing",
  };
  const worker = await navigator.serviceWorker?.ready;
  await worker?.showNotification(words.title, options);
  noteTold([key]);
}

/** Takes away the notifications of gates that wait for this person no more, whoever has shown them. */
export async function closeNotices(gates: readonly string[]): Promise<void> {
  const tags = new Set(gates.map(noticeTag));
  // One that says how it was decided stays.
  for (const notice of await shownNotices()) if (tags.has(notice.tag) && saysOpen(notice)) notice.close();
}

function saysOpen({ data }: Notification): boolean {
  return (data as { isOpen?: unknown } | null)?.isOpen === true;
}
