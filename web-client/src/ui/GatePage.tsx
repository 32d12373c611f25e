// One card at a time: decide, and the next one comes.

import { useEffect, useMemo } from "preact/hooks";
import type { CommandRecord, GateDetails, GateListItem } from "@protocol";
import { Card } from "../card/Card";
import { Decided, resolutionOf } from "../card/Decided";
import { CategoryTag, Quote, Row } from "../card/Facts";
import { GateLink, GateList } from "../card/GateRow";
import { cardOfGate } from "../card/model";
import { gateAfter, isSame, sortGates } from "../card/order";
import { deviceSender } from "../card/sending";
import { mentionedIn, useFacts } from "../card/session_facts";
import { useWatchedGate } from "../card/watch";
import type { WatchedGate } from "../card/watch";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { announce } from "../state/announcements";
import { parseRoute, route, routeHash } from "../state/route";
import type { Route } from "../state/route";
import { Boundary } from "./Boundary";
import { useApp } from "./context";
import { dateAndTime } from "./format";
import { Icon } from "./Icon";

/** Entries of the list beside the card; the inbox has all of them. */
const DRAWN = 100;

export function GatePage({ session, gate }: { session: string; gate: string }) {
  const app = useApp();
  const watched = useWatchedGate(app, session, gate);
  const { mine } = sortGates(app.gates.value ?? [], app.device.participant);
  const open = mine.findIndex((item) => watched.item !== null && isSame(item, watched.item));
  const from = Math.max(0, open - DRAWN / 2);
  const others = mine.length - (open === -1 ? 0 : 1);
  useEffect(() => {
    const content = document.getElementById("content");
    if (content !== null) content.scrollTop = 0;
  }, []);
  return (
    <div class="screen full deck">
      <aside class="deck-list">
        <GateList label={t().inbox.heading}>
          {mine.slice(from, from + DRAWN).map((item) => (
            <Boundary key={item.gate} kind="entry" of={item} as="li">
              <GateLink item={item} isCurrent={watched.item !== null && isSame(item, watched.item)} />
            </Boundary>
          ))}
        </GateList>
      </aside>
      <div class="deck-card">
        <h1 class="visually-hidden">{t().inbox.heading}</h1>
        <p class="back-row">
          <a class="back-link" href={routeHash({ screen: "inbox" })}>
            <Icon name="back" />
            {t().app.inbox}
          </a>
          {others > 0 && <span class="quiet small">{t().inbox.moreWait(others)}</span>}
        </p>
        <Content watched={watched} />
      </div>
    </div>
  );
}

function Content({ watched }: { watched: WatchedGate }) {
  if (watched.item !== null) return <WatchedCard watched={watched} item={watched.item} />;
  if (watched.phase === "closed" && watched.details !== null) return <ClosedGate details={watched.details} />;
  if (watched.phase === "missing") return <p class="center">{t().card.noSuch}</p>;
  return (
    <div class="center">
      <p>{watched.problem ?? t().app.loading}</p>
      {watched.problem !== null && <button onClick={watched.reload}>{t().app.retry}</button>}
    </div>
  );
}

function WatchedCard({ watched, item }: { watched: WatchedGate; item: GateListItem }) {
  const app = useApp();
  const me = app.device.participant;
  const resolve = watched.details?.resolution;
  const facts = useFacts(app, item.session, mentionedIn(item, resolve));
  const card = cardOfGate(item, watched.openDetails, facts);
  const sender = useMemo(() => deviceSender(app.api), [app]);
  const { mine } = sortGates(app.gates.value ?? [], me);
  const index = mine.findIndex((other) => isSame(other, item));
  const move = (step: 1 | -1) => {
    const next = index === -1 ? mine[0] : mine[index + step];
    if (next !== undefined && !isSame(next, item)) show(next);
  };
  const goOn = () => {
    const next = gateAfter(app.gates.value ?? [], me, item);
    if (next !== null) return show(next);
    announce(t().inbox.allDone);
    replaceRoute({ screen: "inbox" });
  };
  const isClosed = watched.phase === "closed";
  return (
    <>
      <Card
        card={card}
        sender={sender}
        {...(isClosed ? { resolution: resolve === undefined ? null : resolutionOf(resolve) } : {})}
        takesFocus
        onAnswer={watched.accept}
        onDecided={(vote) => {
          announce(vote === "approve" ? t().card.approved : t().card.denied);
          if (isOpenHere(item)) goOn();
        }}
        onMove={move}
      >
        <p class="quiet small">
          <a href={routeHash({ screen: "session", session: item.session, tab: "stream" })}>
            <bdi>{escapeInvisible(app.sessionName(item.session))}</bdi>
          </a>
          {" · "}
          <code>{item.short_id}</code>
          {index !== -1 && ` · ${t().inbox.position(index + 1, mine.length)}`}
        </p>
      </Card>
      {watched.problem !== null && (
        <div class="stack">
          <p class="problem">{watched.problem}</p>
          <button onClick={watched.reload}>{t().app.retry}</button>
        </div>
      )}
      {(isClosed || card.standing !== "may_vote") && mine.length > 0 && (
        <button class="primary wide" onClick={goOn}>
          {t().inbox.next}
          <Icon name="next" />
        </button>
      )}
    </>
  );
}

/** A gate that was closed before the page was opened. */
function ClosedGate({ details }: { details: GateDetails }) {
  const app = useApp();
  const mentioned = [details.command?.proposer, details.resolution?.by, ...(details.resolution?.approvals ?? []).map((approval) => approval.participant)];
  const facts = useFacts(app, details.session, mentioned.filter((id) => id !== undefined));
  const resolution = details.resolution === undefined ? null : resolutionOf(details.resolution);
  return (
    <section class="card dead" tabIndex={-1}>
      <header class="card-head">
        <h2>{t().card.closed}</h2>
        <p class="quiet small">
          <a href={routeHash({ screen: "session", session: details.session, tab: "stream" })}>
            <bdi>{escapeInvisible(app.sessionName(details.session))}</bdi>
          </a>
          {" · "}
          <code>{details.short_id}</code>
        </p>
      </header>
      <Decided resolution={resolution} who={facts} />
      {details.command !== undefined && <Recorded record={details.command} nameOf={(id) => facts.names.get(id) ?? id} />}
    </section>
  );
}

function Recorded({ record, nameOf }: { record: CommandRecord; nameOf(id: string): string }) {
  return (
    <>
      <pre class="command" dir="ltr">
        {escapeInvisible(record.command)}
      </pre>
      <dl class="facts">
        <Row label={t().card.verdict}>
          <CategoryTag card={{ category: record.category, isSensitiveRead: record.sensitive_read ?? false }} /> {t().risk[record.risk] ?? record.risk}{" "}
          <Quote text={`[${record.rule}]`} code />
        </Row>
        <Row label={t().card.agent}>
          <Quote text={nameOf(record.proposer)} />
        </Row>
        {record.description !== "" && (
          <Row label={t().card.purpose}>
            <Quote text={record.description} />
          </Row>
        )}
        {record.cwd !== undefined && (
          <Row label={t().card.directory}>
            <Quote text={record.cwd} code />
          </Row>
        )}
        <Row label={t().card.proposedAt}>{dateAndTime(record.at)}</Row>
        {record.edited_by !== undefined && <Row label={t().card.edit}>{t().card.editedBy(nameOf(record.edited_by))}</Row>}
      </dl>
    </>
  );
}

/** Whoever has gone elsewhere while the vote was on its way stays there. */
function isOpenHere(item: GateListItem): boolean {
  const open = parseRoute(location.hash);
  return open.screen === "gate" && open.session === item.session && open.gate === item.gate;
}

function show(item: GateListItem): void {
  replaceRoute({ screen: "gate", session: item.session, gate: item.gate });
}

/** The way back leads to the inbox, not through every card. */
function replaceRoute(to: Route): void {
  history.replaceState(null, "", routeHash(to));
  route.value = to;
}
