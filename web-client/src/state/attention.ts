// Tells a person that something waits for them: the title, the badge, the icon, a notification.

import { useEffect, useRef } from "preact/hooks";
import type { GateListItem } from "@protocol";
import { t } from "../i18n";
import { shownCommand } from "../ui/shown";
import type { App } from "./app";
import { announce } from "./announcements";
import { preferences } from "./preferences";

/** Keeps title, badge and icon equal to the number of gates that wait for this person's vote. */
export function useAttention(app: App): void {
  const known = useRef<Set<string> | null>(null);
  const gates = app.gates.value;
  useEffect(() => {
    if (gates === null) return;
    const mine = gates.filter((gate) => gate.may_vote);
    document.title = t().app.title(mine.length);
    setBadge(mine.length);
    setIcon(mine.length);
    const ids = new Set(mine.map(versionOf));
    const before = known.current;
    known.current = ids;
    // Those that waited when the page was opened are on the screen already.
    if (before === null) return;
    for (const gate of mine) if (!before.has(versionOf(gate))) tell(app, gate);
  }, [gates]);
}

/** An edited command is another one to decide on. */
function versionOf(gate: GateListItem): string {
  return `${gate.gate}@${gate.assessment.digest}`;
}

function tell(app: App, gate: GateListItem): void {
  announce(t().app.newGate(t().category[gate.assessment.category] ?? gate.assessment.category, shownCommand(gate.action)));
  const isWanted = preferences.value.notifyHere && document.visibilityState === "hidden";
  if (!isWanted || !("Notification" in window) || Notification.permission !== "granted") return;
  const title = `${app.sessionName(gate.session)}: ${t().category[gate.assessment.category]}`;
  const data = { session: gate.session, gate: gate.gate };
  const options = { body: shownCommand(gate.action), tag: `pvp-${gate.gate}`, data, icon: "/icons/icon-192.png" };
  navigator.serviceWorker?.ready.then((worker) => worker.showNotification(title, options)).catch(() => undefined);
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
