// The frame of the signed-in page: navigation, the open screen, what is wrong, what just happened.

import { useEffect } from "preact/hooks";
import { awaitsVoteOf } from "../card/order";
import { t } from "../i18n";
import { announcements, dismiss, openCards } from "../state/announcements";
import { channelOfThisBrowser } from "../state/push_state";
import { route, routeHash } from "../state/route";
import type { Route } from "../state/route";
import type { App } from "../state/app";
import { useAttention } from "../state/attention";
import { Boundary } from "./Boundary";
import { useApp } from "./context";
import { GatePage } from "./GatePage";
import { Icon } from "./Icon";
import { Inbox } from "./Inbox";
import { later, laterWithTexts } from "./later";

export const SessionScreen = later(async () => (await import("../stream/SessionScreen")).SessionScreen);
const Sessions = laterWithTexts(async () => (await import("./Sessions")).Sessions);
const Settings = laterWithTexts(async () => (await import("./Settings")).Settings);

export function Frame() {
  const app = useApp();
  const waiting = (app.gates.value ?? []).filter((gate) => awaitsVoteOf(gate, app.device.participant)).length;
  useAttention(app);
  useEffect(() => void syncPush(app).catch(() => undefined), [app]);
  const open = route.value;
  useEffect(() => {
    const content = document.getElementById("content");
    // A card that has taken the focus keeps it.
    if (content !== null && !content.contains(document.activeElement)) content.focus({ preventScroll: true });
  }, [open.screen]);
  return (
    <div class="frame">
      <a class="skip" href="#content" onClick={focusContent}>
        {t().app.skip}
      </a>
      <nav class="bar" aria-label={t().app.navigation}>
        <NavLink to={{ screen: "inbox" }} icon="inbox" label={t().app.inbox} count={waiting} isOpen={open.screen === "inbox" || open.screen === "gate"} />
        <NavLink to={{ screen: "sessions" }} icon="list" label={t().app.sessions} isOpen={open.screen === "sessions" || open.screen === "session"} />
        <NavLink to={{ screen: "settings" }} icon="gear" label={t().app.settings} isOpen={open.screen === "settings"} />
      </nav>
      <div class="status" role="status">
        {!app.reachable.value && <p class="banner">{navigator.onLine ? t().app.reconnecting : t().app.offline}</p>}
        {app.device.isForVisit && <p class="banner">{t().app.forVisit}</p>}
      </div>
      <main id="content" tabIndex={-1}>
        <Boundary kind="screen" of={routeHash(open)}>
          <Screen open={open} />
        </Boundary>
      </main>
      <Announcements />
    </div>
  );
}

/** Without push there is nothing to bring up to date, nor any code to load for it. */
async function syncPush(app: App): Promise<void> {
  if (channelOfThisBrowser() === null) return;
  const push = await import("../screens/settings/push");
  await push.syncPush(app.api, app.device.participant);
}

function focusContent(event: Event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function NavLink(props: { to: Route; icon: "inbox" | "list" | "gear"; label: string; count?: number; isOpen: boolean }) {
  return (
    <a href={routeHash(props.to)} aria-current={props.isOpen ? "page" : undefined}>
      <Icon name={props.icon} />
      <span>{props.label}</span>
      {props.count !== undefined && props.count > 0 && <span class="count">{props.count}</span>}
    </a>
  );
}

function Screen({ open }: { open: Route }) {
  switch (open.screen) {
    case "inbox":
      return <Inbox />;
    case "gate":
      return <GatePage key={`${open.session}/${open.gate}`} session={open.session} gate={open.gate} />;
    case "sessions":
      return <Sessions />;
    case "session":
      return <SessionScreen key={open.session} session={open.session} tab={open.tab} />;
    case "settings":
      return <Settings />;
  }
}

function Announcements() {
  return (
    <div class={openCards.value > 0 ? "announcements beside" : "announcements"} aria-live="polite">
      {announcements.value.map((announcement) => (
        <p key={announcement.id} class={`announcement ${announcement.tone}`}>
          <span>{announcement.text}</span>
          <button class="plain" onClick={() => dismiss(announcement.id)} aria-label={t().app.close}>
            <Icon name="cross" />
          </button>
        </p>
      ))}
    </div>
  );
}
