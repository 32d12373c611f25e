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
import { approveLabels } from "./DecisionBar";
import { HoldButton, usePress } from "./HoldButton";
import { cardOfGate, versionOf } from "./model";
import type { CardModel } from "./model";
import { worse } from "./order";
import { count, isUnchanged, withoutChanged } from "./preflight_state";
import type { Entry, EntryState } from "./preflight_state";
import { useShown } from "./GateRow";
import { deviceSender, problemText } from "./sending";
import { mentionedIn, useFacts } from "./session_facts";

export function Preflight({ chosen, onClose }: { chosen: readonly GateListItem[]; onClose(): void }) {
  useOpenCard();
  const app = useApp();
  const me = app.device.participant;
  const gates = app.gates.value ?? [];
  const heading = useRef<HTMLHeadingElement>(null);
  const [entries, setEntries] = useState<Entry[]>(() => chosen.map((item) => ({ item, voteId: freshId(), state: { kind: "listed" } })));
  const cards = useRef(new Map<string, CardModel>());
  useEffect(() => heading.current?.focus(), []);
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
      const card = cards.current.get(entry.item.gate);
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
    if (approved === listed.length) onClose();
  }

  const worst = listed.reduce<Category>((category, entry) => worse(category, entry.item.assessment.category), "read");
  const confirmation = confirmationFor(worst, preferences.value);
  const version = listed.map((entry) => versionOf({ session: entry.item.session, gate: entry.item.gate, digest: entry.item.assessment.digest })).join(" ");
  const [isReady, setReady] = useState<ReadonlySet<string>>(new Set());
  const areReady = listed.every((entry) => isReady.has(entry.item.gate));
  const press = usePress(confirmation, `${version} ${areReady ? "whole" : "part"}`, () => void approveAll());
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
            onCard={(card) => {
              cards.current.set(entry.item.gate, card);
              if (mayApproveHere(card) && !isReady.has(entry.item.gate)) setReady((before) => new Set([...before, entry.item.gate]));
            }}
            onRemove={() => setEntries((before) => before.filter((other) => other !== entry))}
          />
        ))}
      </ol>
      <div class="decision-buttons">
        <button onClick={onClose} disabled={isSending}>
          {t().app.cancel}
        </button>
        <HoldButton handle={press} labels={labels} class="approve" isDisabled={isSending || listed.length === 0 || !areReady}>
          <Icon name="check" />
        </HoldButton>
      </div>
    </div>
  );
}

/** Whether all of it is on the screen, and this person's to approve. */
function mayApproveHere(card: CardModel): boolean {
  return card.isComplete && card.standing === "may_vote";
}

interface PreflightEntryProps {
  entry: Entry;
  position: string;
  /** The card as it is on the screen. */
  onCard(card: CardModel): void;
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
  useEffect(() => onCard(card));
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
      <CardBody card={card} />
    </li>
  );
}
