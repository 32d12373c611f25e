// Tells a person that something waits for them: the title, the badge, the icon, a notification.

import { effect, untracked } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { NotificationEvent } from "@protocol";
import { awaitsVoteOf } from "../card/order";
import { t } from "../i18n";
import { serverNow } from "../net/server_clock";
import { onWake } from "../net/wake";
import { shownLine } from "../ui/shown";
import { announceGate } from "./announcements";
import type { App } from "./app";
import { EVERYTHING, planNotices, seenNotices } from "./notices";
import type { Notice, Wishes } from "./notices";
import { preferences } from "./preferences";
import { route } from "./route";

/** Tells this person what waits for their vote, for as long as the component is on the screen. */
export function useAttention(app: App): void {
  useEffect(() => {
    const attention = new Attention(app);
    return () => attention.stop();
  }, [app]);
}

type ShownNotices = typeof import("./shown_notices");

/** Longer than this and a timer overflows. */
const MAX_TIMER_MS = 3_600_000;

class Attention {
  /** What was told on the page, and what by notifications; `null` before the first look. */
  private announced: ReadonlySet<string> | null = null;
  private notified: ReadonlySet<string> = new Set();
  /** The gates that waited at the last look. */
  private waiting: readonly string[] = [];
  private loadedNotices: Promise<ShownNotices> | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly stops: (() => void)[];

  constructor(private readonly app: App) {
    const look = () => untracked(() => this.look());
    const onHidden = () => look();
    document.addEventListener("visibilitychange", onHidden);
    this.stops = [
      // The look itself reads what it changes, so it says here what it depends on.
      effect(() => {
        void [app.gates.value, app.notificationSettings.value, t()];
        look();
      }),
      onWake(look),
      () => document.removeEventListener("visibilitychange", onHidden),
    ];
  }

  stop(): void {
    clearTimeout(this.timer);
    for (const stop of this.stops) stop();
    this.withNotices((notices) => notices.setInFront(false));
    showCount(0);
  }

  private look(): void {
    clearTimeout(this.timer);
    const { app } = this;
    if (app.gates.value === null) return;
    const mine = app.gates.value.filter((gate) => awaitsVoteOf(gate, app.device.participant));
    showCount(mine.length);
    const now = serverNow();
    const seen = seenNotices(mine, now);
    // Those that waited when the page was opened are on the screen already.
    if (this.announced === null) [this.announced, this.notified] = [seen, seen];
    const page = planNotices(mine, EVERYTHING, this.announced, now);
    this.announced = page.told;
    for (const notice of page.tell) if (!isOnScreen(notice)) announceNotice(notice);
    const wishes = this.wishes();
    const browser = planNotices(mine, wishes, this.notified, now);
    this.notified = browser.told;
    const isInFront = document.visibilityState === "visible";
    if (isInFront) this.notified = new Set([...browser.told, ...seen]);
    const gone = this.waiting.filter((gate) => !mine.some((item) => item.gate === gate));
    this.waiting = mine.map((item) => item.gate);
    this.withNotices(async (notices) => {
      notices.setInFront(isInFront);
      if (isInFront) notices.noteTold(seen);
      else await Promise.all(browser.tell.map((notice) => notices.showNotice(app, notice)));
      if (gone.length > 0) await notices.closeNotices(gone);
    });
    const next = Math.min(page.lookAgain ?? Infinity, browser.lookAgain ?? Infinity);
    if (next < Infinity) this.timer = setTimeout(() => this.look(), Math.min(Math.max(next - now, 0), MAX_TIMER_MS));
  }

  /** Everything, if the server does not say what the person wants. */
  private wishes(): Wishes {
    const settings = this.app.notificationSettings.value;
    if (settings === null) return EVERYTHING;
    return { events: settings.events, sessions: settings.sessions ?? null, quietHours: settings.quiet_hours ?? null };
  }

  /** What shows notifications; `null` if there are to be none. */
  private notices(): Promise<ShownNotices> | null {
    const isWanted = preferences.value.notifyHere && "Notification" in window && Notification.permission === "granted";
    // Fetched before it is needed: a server that has another page by then does not have it any more.
    return isWanted ? (this.loadedNotices ??= import("./shown_notices")) : null;
  }

  private withNotices(act: (notices: ShownNotices) => unknown): void {
    this.notices()?.then(act).catch(() => undefined);
  }
}

/** Its own card says that it was edited, and how long it is still open. */
function isOnScreen({ gate }: Notice): boolean {
  const open = route.value;
  return document.visibilityState === "visible" && open.screen === "gate" && open.session === gate.session && open.gate === gate.gate;
}

function announceNotice({ gate, event }: Notice): void {
  const say: { [key in NotificationEvent]: (category: string, command: string) => string } = {
    opened: t().app.newGate,
    escalated: t().app.escalatedGate,
    closing: t().app.closingGate,
  };
  const { category } = gate.assessment;
  announceGate(say[event], t().category[category] ?? category, shownLine(gate.action));
}

/** Shows how many gates wait for this person's vote. */
function showCount(count: number): void {
  document.title = t().app.title(count);
  setBadge(count);
  setIcon(count);
}

function setBadge(count: number): void {
  const badge = navigator as Partial<Pick<Navigator, "setAppBadge" | "clearAppBadge">>;
  if (count > 0) void badge.setAppBadge?.(count).catch(() => undefined);
  else void badge.clearAppBadge?.().catch(() => undefined);
}

/** Draws the number on the icon of the tab. */
function setIcon(count: number): void {
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (link === null) return;
  if (count === 0) {
    link.href = "/icons/icon.svg";
    return;
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 64;
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  pen.fillStyle = "#c62828";
  pen.beginPath();
  pen.roundRect(0, 0, 64, 64, 14);
  pen.fill();
  pen.fillStyle = "#ffffff";
  pen.font = `bold ${count > 9 ? 34 : 46}px sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(count > 99 ? "99" : String(count), 32, 35);
  link.href = canvas.toDataURL("image/png");
}
