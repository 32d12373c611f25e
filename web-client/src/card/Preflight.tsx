// Approving several commands: first every one of them in full, then one vote for each.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Category, GateDetails, GateListItem } from "@protocol";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import { freshId } from "../net/ids";
import { announce, useOpenCard } from "../state/announcements";
import { preferences } from "../state/preferences";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { CardBody } from "./Card";
import { confirmationFor } from "./confirmation";
import { approveLabels, ReadOnButton } from "./DecisionBar";
import { HoldButton, usePress } from "./HoldButton";
import { cardOfGate, drawnVersionOf, versionOf } from "./model";
import type { CardModel } from "./model";
import { worse } from "./order";
import { count, isUnchanged, withoutChanged } from "./preflight_state";
import type { Entry, EntryState } from "./preflight_state";
import { useShown } from "./GateRow";
import { useSeenEnd } from "./seen";
import type { SeenEnd } from "./seen";
import { deviceSender, problemText } from "./sending";
import { mentionedIn, useFacts } from "./session_facts";

export function Preflight({ chosen, onClose }: { chosen: readonly GateListItem[]; onClose(): void }) {
  useOpenCard();
  const app = useApp();
  const me = app.device.participant;
  const gates = app.gates.value ?? [];
  const heading = useRef<HTMLHeadingElement>(null);
  const [entries, setEntries] = useState<Entry[]>(() => chosen.map((item) => ({ item, voteId: freshId(), state: { kind: "listed" } })));
  const cards = useRef(new Map<string, { card: CardModel; end: SeenEnd }>());
  const isLeft = useRef(false);
  useEffect(() => {
    heading.current?.focus();
    return () => void (isLeft.current = true);
  }, []);
  useEffect(() => setEntries((before) => withoutChanged(before, gates, me)), [gates]);

  const listed = entries.filter((entry) => entry.state.kind === "listed" || entry.state.kind === "refused");
  const isSending = count(entries, "sending") > 0;
  const set = (item: GateListItem, state: EntryState) => setEntries((before) => before.map((entry) => (entry.item === item ? { ...entry, state } : entry)));

  async function approveAll() {
    const sender = deviceSender(app.api);
    const earlier = count(entries, "approved");
    for (const entry of listed) set(entry.item, { kind: "sending" });
    let approved = 0;
    let refused = 0;
    for (const entry of listed) {
      // Whoever leaves wants no more of it; what was sent is sent.
      if (isLeft.current) break;
      const card = cards.current.get(entry.item.gate)?.card;
      // The list may have changed between the press and this vote.
      if (card === undefined || !mayApproveHere(card) || card.digest !== entry.item.assessment.digest || !isUnchanged(entry.item, app.gates.value ?? [], me)) {
        set(entry.item, { kind: "changed" });
        continue;
      }
      try {
        await sender.vote(card, { vote: "approve", comment: "" }, entry.voteId);
        set(entry.item, { kind: "approved" });
        approved += 1;
      } catch (error) {
        set(entry.item, { kind: "refused", message: problemText(error) });
        refused += 1;
      }
    }
    announce(t().inbox.preflightDone(earlier + approved, refused), refused > 0 ? "error" : "info");
    if (approved === listed.length && !isLeft.current) onClose();
  }

  const worst = listed.reduce<Category>((category, entry) => worse(category, entry.item.assessment.category), "read");
  const confirmation = confirmationFor(worst, preferences.value);
  const version = listed.map((entry) => versionOf({ session: entry.item.session, gate: entry.item.gate, digest: entry.item.assessment.digest })).join(" ");
  const [readings, setReadings] = useState<ReadonlyMap<string, Reading>>(new Map());
  const readingOf = (entry: Entry) => readings.get(entry.item.gate) ?? "loading";
  const areLoaded = listed.every((entry) => readingOf(entry) !== "loading");
  const unread = areLoaded ? listed.find((entry) => readingOf(entry) === "unread") : undefined;
  const press = usePress(confirmation, `${version} ${areLoaded} ${unread === undefined}`, () => void approveAll());
  const labels = { ...approveLabels(confirmation), idle: confirmation === "hold" ? t().inbox.preflightHold(listed.length) : t().inbox.preflightApprove(listed.length) };
  return (
    <div class="screen preflight">
      <h1 ref={heading} tabIndex={-1}>
        {t().inbox.preflightHeading(listed.length)}
      </h1>
      <p>{t().inbox.preflightIntro}</p>
      <div role="status">{count(entries, "changed") > 0 && <p class="banner">{t().inbox.preflightChanged}</p>}</div>
      <ol class="preflight-list">
        {entries.map((entry, index) => (
          <PreflightEntry
            key={entry.item.gate}
            entry={entry}
            position={t().inbox.position(index + 1, entries.length)}
            onCard={(card, end) => {
              const { gate } = entry.item;
              cards.current.set(gate, { card, end });
              const reading = !mayApproveHere(card) || end.isSeen === null ? "loading" : end.isSeen ? "read" : "unread";
              if (reading !== readingOf(entry)) setReadings((before) => new Map([...before, [gate, reading]]));
            }}
            onRemove={() => setEntries((before) => before.filter((other) => other !== entry))}
          />
        ))}
      </ol>
      <div class="decision-buttons">
        <button onClick={onClose}>
          {t().app.cancel}
        </button>
        {unread === undefined ? (
          <HoldButton handle={press} labels={labels} class="approve" isDisabled={isSending || listed.length === 0 || !areLoaded}>
            <Icon name="check" />
          </HoldButton>
        ) : (
          <ReadOnButton onReadOn={() => cards.current.get(unread.item.gate)?.end.scrollThere()} />
        )}
      </div>
    </div>
  );
}

/** Whether all of a command has arrived, and whether its end was on the screen. */
type Reading = "loading" | "unread" | "read";

/** Whether all of it is there, and this person's to approve. */
function mayApproveHere(card: CardModel): boolean {
  return card.isComplete && card.standing === "may_vote";
}

interface PreflightEntryProps {
  entry: Entry;
  position: string;
  /** The card as it is drawn, and whether it was read. */
  onCard(card: CardModel, end: SeenEnd): void;
  onRemove(): void;
}

function PreflightEntry({ entry, position, onCard, onRemove }: PreflightEntryProps) {
  const app = useApp();
  const { item, state } = entry;
  const shown = useShown(item);
  const facts = useFacts(app, item.session, mentionedIn(item));
  const [details, setDetails] = useState<GateDetails | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const path = `/api/sessions/${encodeURIComponent(item.session)}/gates/${encodeURIComponent(item.gate)}`;
    app.api.get<GateDetails>(path, { exactNumbers: true }).then(setDetails, (error: unknown) => setProblem(problemText(error)));
  }, [item]);
  const card = cardOfGate(item, details, facts);
  const end = useSeenEnd(drawnVersionOf(card), null);
  useEffect(() => onCard(card, end));
  if (state.kind === "changed" || state.kind === "approved") {
    return (
      <li class="panel taken-off">
        <code dir="ltr">{shown}</code>
        <p class={state.kind === "changed" ? "careful" : ""}>{state.kind === "changed" ? t().inbox.changedEntry : t().card.approved}</p>
      </li>
    );
  }
  return (
    <li class={`panel card ${card.category}`}>
      <header class="card-head">
        <h2>{position}</h2>
        <bdi class="quiet small">{t().inbox.in(escapeInvisible(app.sessionName(item.session)))}</bdi>
        <button class="plain leave-out" onClick={onRemove} disabled={state.kind === "sending"} aria-label={t().inbox.leaveOut(shown)}>
          <Icon name="cross" />
        </button>
      </header>
      {state.kind === "refused" && (
        <p class="problem" role="alert">
          {state.message}
        </p>
      )}
      {problem !== null && <p class="problem">{problem}</p>}
      {card.standing !== "may_vote" && <p class="problem">{t().standing[card.standing] ?? card.standing}</p>}
      <CardBody card={card}>
        <span ref={end.marker} class="command-end" aria-hidden="true" />
      </CardBody>
    </li>
  );
}
