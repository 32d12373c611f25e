// The frame of the signed-in page: navigation, the open screen, what is wrong, what just happened.

import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import { announcements, dismiss } from "../state/announcements";
import { route, routeHash } from "../state/route";
import type { Route } from "../state/route";
import { useAttention } from "../state/attention";
import { useApp } from "./context";
import { GatePage } from "./GatePage";
import { Icon } from "./Icon";
import { Inbox } from "./Inbox";
import { SessionPage } from "./SessionPage";
import { Sessions } from "./Sessions";
import { Settings } from "./Settings";

export function Frame() {
  const app = useApp();
  const waiting = (app.gates.value ?? []).filter((gate) => gate.may_vote).length;
  useAttention(app);
  const open = route.value;
  useEffect(() => document.getElementById("content")?.focus({ preventScroll: true }), [open.screen]);
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
      </div>
      <main id="content" tabIndex={-1}>
        <Screen open={open} />
      </main>
      <Announcements />
    </div>
  );
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
      return <SessionPage key={open.session} session={open.session} tab={open.tab} />;
    case "settings":
      return <Settings />;
  }
}

function Announcements() {
  return (
    <div class="announcements" aria-live="polite">
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
