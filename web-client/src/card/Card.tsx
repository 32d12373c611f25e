// One gate as a card: the command, everything about it, and the decision.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Category, GateDetails } from "@protocol";
import { t } from "../i18n";
import { useOpenCard } from "../state/announcements";
import { preferences } from "../state/preferences";
import { Command } from "./Command";
import { confirmationFor } from "./confirmation";
import { Decided } from "./Decided";
import type { Resolution } from "./Decided";
import { useDecisions } from "./decisions";
import { DecisionBar, offeredPanels } from "./DecisionBar";
import type { Panel } from "./DecisionBar";
import { Scripts, Surroundings, Verdict, categoryLabel } from "./Facts";
import { usePress } from "./HoldButton";
import { cardKey } from "./keys";
import type { CardKey } from "./keys";
import { KeysHelp } from "./KeysHelp";
import { drawnVersionOf, nameOf, versionOf } from "./model";
import type { CardModel } from "./model";
import { Parts } from "./Parts";
import { useSeenEnd } from "./seen";
import type { GateSender } from "./sending";
import { Earlier, Standing, Votes } from "./Votes";
import { Why } from "./Why";

export interface CardProps {
  card: CardModel;
  sender: GateSender;
  /** How it was decided; `null` if it is closed and that is not known yet; absent while it is open. */
  resolution?: Resolution | null;
  /** Where it comes from and which of how many it is, beside the heading. */
  children?: ComponentChildren;
  /** Whether it takes the focus when it appears. */
  takesFocus?: boolean;
  /** The gate as the server has it after a vote or an edit. */
  onAnswer?(gate: GateDetails): void;
  /** The person has voted, and the server has the vote. */
  onDecided?(vote: "approve" | "reject"): void;
  onMove?(step: 1 | -1): void;
}

export function Card(props: CardProps) {
  const { card, resolution, takesFocus = false } = props;
  const section = useRef<HTMLElement>(null);
  const [isWhyOpen, setWhyOpen] = useState(false);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const keys = useRef<CardKeys>({});
  useEffect(() => {
    // A card is longer than the screen, and is read from its top.
    if (takesFocus) section.current?.focus({ preventScroll: true });
  }, []);
  const act = (key: CardKey, isRepeat: boolean) => {
    if (key === "why") setWhyOpen(!isWhyOpen);
    else if (key === "help") setHelpOpen(true);
    else if (key === "next") props.onMove?.(1);
    else if (key === "previous") props.onMove?.(-1);
    else keys.current.down?.(key, isRepeat);
  };
  const heading = `card-${card.gate}`;
  return (
    <section
      ref={section}
      class={`card ${card.category}${resolution === undefined ? "" : " dead"}`}
      tabIndex={-1}
      aria-labelledby={heading}
      onKeyDown={(event) => {
        const key = cardKey(event);
        if (key === null) return;
        event.preventDefault();
        act(key, event.repeat);
      }}
      onKeyUp={(event) => {
        if (event.key === "a") keys.current.approveUp?.();
      }}
    >
      <header class="card-head">
        <h2 id={heading}>{t().card.label(categoryLabel(card))}</h2>
        {props.children}
        {resolution === undefined && <Standing card={card} />}
      </header>
      {resolution === undefined ? (
        <OpenCard {...props} isWhyOpen={isWhyOpen} onWhy={() => setWhyOpen(!isWhyOpen)} keys={keys.current} />
      ) : (
        <>
          <Decided resolution={resolution} who={card} />
          <CardBody card={{ ...card, isComplete: true }} />
        </>
      )}
      {isHelpOpen && <KeysHelp onClose={() => setHelpOpen(false)} />}
    </section>
  );
}

/** Everything on a card but the decision; also for lists. */
export function CardBody({ card, children }: { card: CardModel; children?: ComponentChildren }) {
  return (
    <>
      {card.isComplete ? (
        <>
          <Command requested={card.requested} />
          <Scripts requested={card.requested} />
        </>
      ) : (
        <p class="center">{t().app.loading}</p>
      )}
      {children}
      <Verdict card={card} />
      <Surroundings card={card} />
      <Earlier card={card} />
      <WorstParts card={card} />
      <Votes card={card} />
    </>
  );
}

/** A long program must not push the votes off the screen; the explanation lists all parts. */
const MAX_PARTS = 6;

function WorstParts({ card }: { card: CardModel }) {
  const parts = card.requested.assessment?.parts ?? [];
  if (parts.length < 2) return null;
  if (parts.length <= MAX_PARTS) return <Parts parts={parts} />;
  const order: readonly Category[] = ["blocked", "destructive", "write", "read"];
  const worst = order.find((category) => parts.some((part) => part.category === category));
  const shown = parts.filter((part) => part.category === worst).slice(0, MAX_PARTS);
  return (
    <>
      <Parts parts={shown} />
      <p class="quiet small">{t().card.moreParts(parts.length - shown.length)}</p>
    </>
  );
}

/** What the keys of the card do while it is open. */
interface CardKeys {
  down?(key: "approve" | "reject" | "edit" | "allow" | "allow_reading", isRepeat: boolean): void;
  approveUp?(): void;
}

interface OpenCardProps extends CardProps {
  isWhyOpen: boolean;
  onWhy(): void;
  keys: CardKeys;
}

function OpenCard({ card, sender, onAnswer, onDecided, isWhyOpen, onWhy, keys }: OpenCardProps) {
  useOpenCard();
  const version = versionOf(card);
  const [lookedAt, setLookedAt] = useState(version);
  const [panel, setPanel] = useState<Panel | null>(null);
  const [comment, setComment] = useState("");
  const drawn = drawnVersionOf(card);
  const end = useSeenEnd(drawn, panel);
  const isChanged = lookedAt !== version;
  const decisions = useDecisions({ card, sender, onEdited: setLookedAt, onSent: () => setPanel(null), onAnswer, onDecided });
  const confirmation = confirmationFor(card.category, preferences.value);
  const lock = !card.isComplete || end.isSeen === null ? "loading" : end.isSeen ? null : "unread";
  // Whatever stood where Approve is, a second tap on it is not meant for Approve.
  const place = [drawn, lock, isChanged, panel, card.standing].join(" ");
  const press = usePress(confirmation, place, () => decisions.vote({ vote: "approve", comment: comment.trim() }));

  // What was half done was about another command.
  useEffect(() => {
    if (!isChanged) return;
    setPanel(null);
    setComment("");
    decisions.clear();
  }, [version]);

  const panels = offeredPanels(card, { amend: sender.amend !== undefined, allow: sender.allow !== undefined });
  keys.down = (key, isRepeat) => {
    if (isChanged || decisions.state.kind === "sending") return;
    if (key !== "approve") return panels.includes(key) ? setPanel(key) : undefined;
    if (card.standing !== "may_vote" || (panel !== null && panel !== "comment")) return;
    if (lock === "unread") end.scrollThere();
    else if (lock === null) press.press.keyDown(isRepeat);
  };
  keys.approveUp = () => press.press.keyUp();

  return (
    <>
      <CardBody card={card}>
        <span ref={end.marker} class="command-end" aria-hidden="true" />
      </CardBody>
      <Why card={card} isOpen={isWhyOpen} onToggle={onWhy} />
      {isChanged ? (
        <Changed card={card} onLookedAt={() => setLookedAt(version)} />
      ) : (
        <DecisionBar
          card={card}
          panels={panels}
          panel={panel}
          press={press}
          sending={decisions.state}
          comment={comment}
          lock={lock}
          onPanel={setPanel}
          onComment={setComment}
          onReadOn={end.scrollThere}
          onReject={(reason) => decisions.vote({ vote: "reject", reason })}
          onEdit={decisions.edit}
          onAllow={decisions.allow}
        />
      )}
    </>
  );
}

/** The command is another one than the person has looked at. This stands where the buttons were. */
function Changed({ card, onLookedAt }: { card: CardModel; onLookedAt(): void }) {
  const bar = useRef<HTMLDivElement>(null);
  const editor = card.requested.edited_by;
  useEffect(() => bar.current?.closest(".card")?.scrollIntoView({ block: "start" }), [card.digest]);
  return (
    <div ref={bar} class="decision-bar changed">
      <p role="alert">
        <strong>{t().card.changed(editor === null ? t().card.someone : nameOf(card, editor))}</strong>
      </p>
      <button class="wide" disabled={!card.isComplete} onClick={onLookedAt}>
        {t().card.lookAgain}
      </button>
    </div>
  );
}
