// What a pushed message makes the phone show. Nothing in it is trusted: it came through somebody else's servers.

import { noticeText } from "./notice_text";
import type { NoticeText, NoticeTexts } from "./notice_text";

export interface WorkerTexts extends NoticeTexts {
  /** Answered where there is neither a network nor a kept page. */
  offline: string;
  test: string;
  testBody: string;
  /** Shown if a message cannot be read, because a browser punishes pushes that show nothing. */
  unreadable: string;
  unreadableBody: string;
  /** Shown if the browser made a new subscription, which only the open page can register. */
  renewed: string;
  renewedBody: string;
}

export interface ShownNotification {
  title: string;
  options: NotificationOptions & { renotify?: boolean };
}

const EVENTS: readonly string[] = ["opened", "escalated", "closing", "more_wait", "closed", "test"];
const MAX_TITLE = 120;
const MAX_BODY = 400;
const ICON = "/icons/icon-192.png";
/** White on nothing, because phones draw only its outline. */
const BADGE = "/icons/badge-96.png";

/** The same form that `net/link.ts` accepts. */
const ID = /^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$/;
const VOTE_LINK = /^\/#vote=[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$/;

/** The language of what is shown, and the time of it. */
export interface Setting {
  texts: WorkerTexts;
  locale: string;
  now: number;
}

/** The notification for a payload; one that says so if the payload has not the agreed shape. */
export function notificationFor(payload: unknown, setting: Setting): ShownNotification {
  const message = fields(payload);
  const event = EVENTS.find((known) => known === message.event);
  if (event === undefined) return unreadable(setting.texts);
  const words = wordsFor(event, message, setting);
  const title = text(words.title, MAX_TITLE);
  if (title === "") return unreadable(setting.texts);
  const isOver = event === "closed";
  const isTest = event === "test";
  return {
    title,
    options: {
      body: text(words.body, MAX_BODY),
      icon: ICON,
      badge: BADGE,
      tag: isTest ? "pvp-test" : tagOf(message),
      data: { url: isTest ? "/" : addressOf(message), isOpen: !isOver && !isTest },
      // A card that was decided replaces its notification without another buzz.
      renotify: !isOver,
      silent: isOver,
      requireInteraction: event === "closing",
    },
  };
}

/** In the language of the page if the worker knows what happened, otherwise as the server wrote it. */
function wordsFor(event: string, message: Record<string, unknown>, { texts, locale, now }: Setting): Partial<Record<keyof NoticeText, unknown>> {
  if (event === "test") return { title: texts.test, body: texts.testBody };
  const { session, category, risk } = message;
  if (!isId(session) || typeof category !== "string" || typeof risk !== "string") return message;
  const optional = (field: unknown) => (typeof field === "string" ? field : null);
  const facts = {
    event,
    session,
    sessionName: optional(message.session_name),
    category,
    risk,
    proposer: null,
    deadline: optional(message.deadline),
    command: optional(message.command),
  };
  return noticeText(facts, texts, locale, now) ?? message;
}

/** How many of the notifications that are shown tell of a gate that is still open. */
export function countOpen(shown: readonly { data: unknown }[]): number {
  return shown.filter(({ data }) => fields(data).isOpen === true).length;
}

function unreadable(texts: WorkerTexts): ShownNotification {
  const options = { body: texts.unreadableBody, icon: ICON, badge: BADGE, tag: "pvp", data: { url: "/" } };
  return { title: texts.unreadable, options };
}

export function renewedNotification(texts: WorkerTexts): ShownNotification {
  const options = { body: texts.renewedBody, icon: ICON, badge: BADGE, tag: "pvp-renewed", data: { url: "/" } };
  return { title: texts.renewed, options };
}

/** The page of this server that a click opens; never another origin, whatever the data says. */
export function addressOf(data: unknown): string {
  const { url, session, gate } = fields(data);
  if (typeof url === "string" && VOTE_LINK.test(url)) return url;
  if (isId(session) && isId(gate)) return gateAddress(session, gate);
  if (typeof url !== "string") return "/";
  if (/^\/#\/gate\/[^/?#]{1,600}\/[^/?#]{1,600}$/.test(url)) return url;
  const named = /^\/#session=([^&]+)&gate=([^&]+)$/.exec(url);
  return isId(named?.[1]) && isId(named?.[2]) ? gateAddress(named[1], named[2]) : "/";
}

function gateAddress(session: string, gate: string): string {
  return `/#/gate/${encodeURIComponent(session)}/${encodeURIComponent(gate)}`;
}

/** One notification per card, the same whether the page or a push shows it. */
function tagOf(message: Record<string, unknown>): string {
  if (isId(message.gate)) return `pvp-${message.gate}`;
  return isId(message.tag) ? message.tag : "pvp";
}

function isId(value: unknown): value is string {
  return typeof value === "string" && ID.test(value);
}

function fields(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** One line of visible text: lines are joined, and what turns the reading order round or cannot be seen is left out. */
function text(value: unknown, length: number): string {
  if (typeof value !== "string") return "";
  const visible = value.trim().replace(/\n+/g, " · ").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  const letters = [...visible];
  return letters.length <= length ? visible : `${letters.slice(0, length - 1).join("")}…`;
}
