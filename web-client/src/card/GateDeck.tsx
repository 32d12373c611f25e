// The gates of one session below its stream: one line that is always there, and the card behind it.

import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import type { View } from "../fold";
import type { SessionConnection } from "../net/connection";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { Card } from "./Card";
import { resolutionOf } from "./Decided";
import type { Resolution } from "./Decided";
import { useDetails } from "./details";
import { CategoryTag } from "./Facts";
import { useMedia } from "./media";
import { cardOfView } from "./model";
import type { CardModel } from "./model";
import { compareRanks } from "./order";
import { deviceSender } from "./sending";
import { TimeLeft } from "./Votes";

/** There is room for the stream and an open card. */
const ROOMY = "(min-width: 48rem) and (min-height: 40rem)";

/** A decided card that nobody uses stays for so long, because a finger may be on its way to it. */
const DECIDED_MS = 5000;

export function GateDeck({ connection }: { connection: SessionConnection }) {
  void connection.tick.value;
  const { view } = connection;
  const isRoomy = useMedia(ROOMY);
  const [chosen, setOpen] = useState<boolean | null>(null);
  const [selected, setSelected] = useState<string | null>(null);
  const last = useRef<CardModel | null>(null);
  const section = useRef<HTMLElement>(null);
  const cards = sortedCards(view);
  const isUsed = section.current?.contains(document.activeElement) ?? false;
  const isOpen = chosen ?? isRoomy;
  const [over, setOver] = useState<string | null>(null);
  const isKept = isUsed || (isOpen && over !== last.current?.gate);
  const shown = shownCard(view, cards, selected, isKept ? last.current : null);
  last.current = shown?.card ?? null;
  const decided = shown !== null && shown.resolution !== undefined ? shown.card.gate : null;
  useEffect(() => {
    if (decided === null) return;
    const timer = setTimeout(() => setOver(decided), DECIDED_MS);
    return () => clearTimeout(timer);
  }, [decided]);
  const pinned = isOpen ? (shown?.card.gate ?? null) : selected;
  // What is being looked at stays, whatever else opens.
  useEffect(() => setSelected(pinned), [pinned]);
  if (shown === null) return null;
  const { card, resolution } = shown;
  const goTo = (next: CardModel | undefined) => setSelected(next?.gate ?? null);
  return (
    <section ref={section} class="gate-deck" aria-label={t().session.openGates(cards.length)}>
      <button
        class={`deck-strip ${card.category}`}
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <span class="row-top">
          <CategoryTag card={card} />
          {cards.length > 1 && <span class="small">{t().session.openGates(cards.length)}</span>}
          <TimeLeft deadline={resolution === undefined ? card.deadline : null} />
        </span>
        <code class="deck-command" dir="ltr">
          {card.requested.shown.split("\n")[0]}
        </code>
        <Icon name={isOpen ? "down" : "next"} />
      </button>
      {isOpen && (
        <div class="card-scroll">
          <DeckCard
            key={card.gate}
            card={card}
            view={view}
            resolution={resolution}
            takesFocus={chosen === true}
            onDecided={() => {
              // Whoever has gone to another card while the vote was on its way stays there.
              if (last.current?.gate === card.gate) goTo(cards.find((other) => other.gate !== card.gate && other.standing === "may_vote"));
            }}
            onMove={(step) => goTo(cards[cards.findIndex((other) => other.gate === card.gate) + step] ?? card)}
          />
          {resolution !== undefined && (
            <button class="wide" onClick={() => goTo(cards[0])}>
              {cards.length > 0 ? t().inbox.next : t().app.close}
            </button>
          )}
        </div>
      )}
    </section>
  );
}

interface DeckCardProps {
  card: CardModel;
  view: View;
  resolution: Resolution | null | undefined;
  takesFocus: boolean;
  onDecided(): void;
  onMove(step: 1 | -1): void;
}

function DeckCard({ card: told, view, resolution, takesFocus, onDecided, onMove }: DeckCardProps) {
  const app = useApp();
  const open = view.gates.find((gate) => gate.gate === told.gate);
  const { details, problem, reload } = useDetails(app, told, open !== undefined && !told.isComplete);
  const last = useRef(told);
  // A card that is decided stays as it was.
  if (open !== undefined) last.current = details === null ? told : cardOfView(open, view, details);
  return (
    <>
      <Card card={last.current} sender={deviceSender(app.api)} {...(resolution === undefined ? {} : { resolution })} takesFocus={takesFocus} onDecided={onDecided} onMove={onMove} />
      {problem !== null && open !== undefined && (
        <div class="stack">
          <p class="problem">{problem}</p>
          <button onClick={reload}>{t().app.retry}</button>
        </div>
      )}
    </>
  );
}

/** Those that wait for the viewer first, the worst on top. */
function sortedCards(view: View): CardModel[] {
  const cards = view.gates.map((gate) => cardOfView(gate, view)).sort(compareRanks);
  const waits = (card: CardModel) => card.standing === "may_vote";
  return [...cards.filter(waits), ...cards.filter((card) => !waits(card))];
}

interface ShownCard {
  card: CardModel;
  /** Absent while it is open. */
  resolution?: Resolution | null;
}

/** The selected card. Once it is decided, it stays for whoever is using it, until they go on. */
function shownCard(view: View, cards: readonly CardModel[], selected: string | null, last: CardModel | null): ShownCard | null {
  const open = cards.find((card) => card.gate === selected);
  if (open !== undefined) return { card: open };
  if (selected !== null && last?.gate === selected) {
    const closed = view.resolved.findLast((card) => card.gate === selected);
    return { card: last, resolution: closed === undefined ? null : resolutionOf(closed) };
  }
  const first = cards[0];
  return first === undefined ? null : { card: first };
}
