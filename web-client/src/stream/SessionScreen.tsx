// One session: who is in it and how it stands, and its tabs.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { GateDeck } from "../card/GateDeck";
import { Composer } from "../composer/Composer";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { RecordNotices } from "../screens/RecordNotices";
import { routeHash, SESSION_TABS } from "../state/route";
import type { SessionTab } from "../state/route";
import type { StreamSource } from "./source";
import { Stream } from "./Stream";
import { ScreenPool } from "../terminal/pool";
import { Boundary } from "../ui/Boundary";
import { useApp } from "../ui/context";
import { laterWithTexts } from "../ui/later";
import { usePresence } from "./presence";
import { SessionHeader } from "./SessionHeader";

const Replay = laterWithTexts(async () => (await import("../replay/Replay")).Replay);
const PeoplePanel = laterWithTexts(async () => (await import("../screens/PeoplePanel")).PeoplePanel);
const HistoryPanel = laterWithTexts(async () => (await import("../screens/HistoryPanel")).HistoryPanel);
const RulesPanel = laterWithTexts(async () => (await import("../screens/RulesPanel")).RulesPanel);
const AuditPanel = laterWithTexts(async () => (await import("../screens/AuditPanel")).AuditPanel);
const SharePanel = laterWithTexts(async () => (await import("../screens/SharePanel")).SharePanel);

/** How many entries are asked for by those who want to read everything. */
const WHOLE_HISTORY = 1_000_000;

export function SessionScreen({ session, tab }: { session: string; tab: SessionTab }) {
  const app = useApp();
  const [round, setRound] = useState(0);
  const connection = useMemo(() => app.connection(session), [app, session, round]);
  usePresence(connection);
  // It was given up for others that were opened meanwhile.
  const isClosed = connection.state.value === "closed";
  useEffect(() => {
    if (isClosed) setRound((before) => before + 1);
  }, [isClosed]);
  const loadAll = () => {
    app.reopen(session, WHOLE_HISTORY);
    setRound(round + 1);
  };
  return (
    <div class="session">
      <SessionHeader connection={connection} />
      <Tabs session={session} open={tab} />
      <Notices connection={connection} />
      <div class="session-body">
        <Boundary kind="screen" of={tab}>
          <Tab tab={tab} connection={connection} onLoadAll={loadAll} />
        </Boundary>
      </div>
    </div>
  );
}

function Tabs({ session, open }: { session: string; open: SessionTab }) {
  const tabs = useRef<HTMLElement>(null);
  // On a phone not all of them fit.
  useEffect(() => tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }), [open]);
  return (
    <nav class="tabs" ref={tabs} aria-label={t().session.tabsLabel}>
      {SESSION_TABS.map((tab) => (
        <a key={tab} href={routeHash({ screen: "session", session, tab })} aria-current={tab === open ? "page" : undefined}>
          {t().session.tabs[tab]}
        </a>
      ))}
    </nav>
  );
}

function Tab({ tab, connection, onLoadAll }: { tab: SessionTab; connection: SessionConnection; onLoadAll(): void }) {
  switch (tab) {
    case "stream":
      return <StreamTab connection={connection} onLoadAll={onLoadAll} />;
    case "replay":
      return <Replay key={connection.session} connection={connection} />;
    case "people":
      return <Panel tab={tab}>{<PeoplePanel connection={connection} />}</Panel>;
    case "history":
      return <Panel tab={tab}>{<HistoryPanel connection={connection} />}</Panel>;
    case "rules":
      return <Panel tab={tab}>{<RulesPanel connection={connection} />}</Panel>;
    case "audit":
      return <Panel tab={tab}>{<AuditPanel connection={connection} />}</Panel>;
    case "share":
      return <Panel tab={tab}>{<SharePanel connection={connection} />}</Panel>;
  }
}

function Panel({ tab, children }: { tab: SessionTab; children: ComponentChildren }) {
  // Somebody without a mouse scrolls it too, also if nothing in it takes the focus.
  return (
    <div class="session-panel" tabIndex={0} role="region" aria-label={t().session.tabs[tab]}>
      {children}
    </div>
  );
}

function StreamTab({ connection, onLoadAll }: { connection: SessionConnection; onLoadAll(): void }) {
  const { device } = useApp();
  const source = useMemo<StreamSource>(
    () => ({
      view: connection.view,
      tick: connection.tick,
      now: () => connection.now(),
      screens: new ScreenPool(),
      sizes: connection.terminalSizes,
      readOutput: (read) => connection.readOutput(read),
      live: connection,
      unfolded: new Set(),
    }),
    [connection],
  );
  useEffect(() => () => source.screens.close(), [source]);
  return (
    <div class="stream-tab">
      <Stream source={source} header={<Earlier connection={connection} tick={connection.tick.value} onLoadAll={onLoadAll} />} />
      <Boundary kind="entry" of={connection.tick.value}>
        <GateDeck connection={connection} />
      </Boundary>
      <Composer connection={connection} participant={device.participant} />
    </div>
  );
}

/** Says that there is more above, and loads it. */
function Earlier({ connection, onLoadAll }: { connection: SessionConnection; tick: number; onLoadAll(): void }) {
  const { items, dropped } = connection.view.stream;
  const isBeginning = items.length === 0 || items[0]?.seq === 1;
  if (isBeginning) return null;
  return (
    <div class="earlier">
      {dropped > 0 ? <p class="quiet">{t().session.dropped(dropped)}</p> : <button onClick={onLoadAll}>{t().session.earlier}</button>}
    </div>
  );
}

/** What everybody in the session has to know. */
function Notices({ connection }: { connection: SessionConnection }) {
  void connection.tick.value;
  const { view } = connection;
  return (
    <div class="notices">
      <RecordNotices session={connection.session} />
      {connection.state.value === "refused" && (
        <p class="problem" role="alert">
          {t().session.refused(escapeInvisible(connection.problem.value ?? ""))}
        </p>
      )}
      {view.ended !== null && <p class="banner">{t().session.ended(escapeInvisible(view.ended.reason))}</p>}
      {view.paused !== null && <p class="banner">{t().session.paused(escapeInvisible(view.paused))}</p>}
    </div>
  );
}
