// Allowing commands that begin like this one, or reading below a directory, for a time.

import { useState } from "preact/hooks";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import type { Confirmation } from "../state/preferences";
import { parseDirectories, parsePrefix } from "./allow_rule";
import type { CardLock } from "./DecisionBar";
import { FormPanel, FormProblem } from "./FormPanel";
import { HoldButton, usePress } from "./HoldButton";
import type { PressHandle } from "./HoldButton";
import type { CardModel } from "./model";
import type { AllowRule } from "./sending";

interface AllowFormProps {
  card: CardModel;
  isBusy: boolean;
  onAllow(rules: AllowRule[]): void;
  onCancel(): void;
}

/** A rule that is also the vote on this command is given as a vote is. */
interface AllowVoteProps {
  lock: CardLock;
  confirmation: Confirmation;
  onReadOn(): void;
}

const ANYWHERE = "*";

export function AllowForm({ card, isBusy, onAllow, onCancel, ...vote }: AllowFormProps & AllowVoteProps) {
  const isVote = card.prefixOffer === "also_approves";
  const lock = isVote ? vote.lock : null;
  const [text, setText] = useState(card.requested.prefix.join(" "));
  const [directory, setDirectory] = useState<string | null>(card.requested.cwd);
  const [hours, setHours] = useState(1);
  const [problem, setProblem] = useState<string | null>(null);
  const submit = () => {
    const parsed = parsePrefix(text);
    if ("problem" in parsed) {
      return setProblem(parsed.problem === "empty" ? t().card.prefixEmpty : t().card.prefixShell(parsed.word));
    }
    setProblem(null);
    onAllow([{ what: { prefix: parsed.words, directory }, hours }]);
  };
  const press = usePress(isVote ? vote.confirmation : "tap", String(lock), submit);
  return (
    <FormPanel label={t().card.allowPrefix} onCancel={onCancel} onSubmit={() => lock === null && enter(press)}>
      <label>
        {t().card.prefixLabel}
        <input
          class="mono"
          dir="ltr"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
        />
      </label>
      <p class="hint">{t().card.prefixHint}</p>
      <label>
        {t().card.prefixWhere}
        <select value={directory ?? ""} onChange={(event) => setDirectory(event.currentTarget.value === "" ? null : event.currentTarget.value)}>
          <option value={card.requested.cwd ?? ""}>{card.directory === null ? t().card.sessionDirectory : escapeInvisible(card.directory)}</option>
          <option value={ANYWHERE}>{t().card.prefixAnywhere}</option>
        </select>
      </label>
      <Hours hours={hours} onHours={setHours} />
      <p class="hint">{card.prefixOffer === "also_approves" ? t().card.prefixAlso : t().card.prefixLater}</p>
      <FormProblem text={problem} />
      {lock === "unread" ? (
        <button type="button" class="wide" onClick={vote.onReadOn}>
          {t().card.readOn}
        </button>
      ) : (
        <AllowButton press={press} isDisabled={isBusy || lock !== null} />
      )}
    </FormPanel>
  );
}

function AllowButton({ press, isDisabled }: { press: PressHandle; isDisabled: boolean }) {
  const isTap = press.confirmation === "tap";
  const labels = { idle: press.confirmation === "hold" ? t().card.allowHold : t().card.sendPrefix, holding: t().card.keepHolding, armed: t().card.allowAgain };
  return <HoldButton handle={press} labels={labels} class={isTap ? "primary wide" : "approve wide"} isDisabled={isDisabled} />;
}

/** Enter in a field. What takes more than a tap is pressed at its button, which the key then reaches. */
function enter(press: PressHandle): void {
  if (press.confirmation === "tap") press.press.click(false);
  else document.activeElement?.closest("form")?.querySelector<HTMLElement>(".hold-button")?.focus();
}

export function AllowReadingForm({ card, isBusy, onAllow, onCancel }: AllowFormProps) {
  const [text, setText] = useState(() => offeredReadRoots(card).join("\n"));
  const [hours, setHours] = useState(1);
  const [problem, setProblem] = useState<string | null>(null);
  const submit = () => {
    const parsed = parseDirectories(text);
    if ("problem" in parsed) {
      return setProblem(parsed.problem === "empty" ? t().card.readRootEmpty : t().card.readRootRelative(parsed.path));
    }
    setProblem(null);
    onAllow(parsed.directories.map((readRoot) => ({ what: { readRoot }, hours })));
  };
  const press = usePress("tap", "", submit);
  return (
    <FormPanel label={t().card.allowReading} onCancel={onCancel} onSubmit={() => enter(press)}>
      <label>
        {t().card.readRootLabel}
        <textarea class="mono" dir="ltr" rows={Math.min(12, text.split("\n").length + 1)} value={text} onInput={(event) => setText(event.currentTarget.value)} autocomplete="off" autocapitalize="off" spellcheck={false} />
      </label>
      <p class="hint">{t().card.readRootHint}</p>
      <Hours hours={hours} onHours={setHours} />
      <FormProblem text={problem} />
      <AllowButton press={press} isDisabled={isBusy} />
    </FormPanel>
  );
}

/** The directories that a rule could open. One whose name has a line feed or an invisible character looks like another. */
export function offeredReadRoots(card: Pick<CardModel, "requested">): string[] {
  const roots = card.requested.assessment?.needed_read_roots ?? [];
  return roots.filter((root) => escapeInvisible(root) === root && !/[\n\t]/.test(root) && root.trim() === root);
}

function Hours({ hours, onHours }: { hours: number; onHours(hours: number): void }) {
  return (
    <label>
      {t().card.prefixFor}
      <select value={String(hours)} onChange={(event) => onHours(Number(event.currentTarget.value))}>
        {Object.entries(t().card.prefixHours).map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}
