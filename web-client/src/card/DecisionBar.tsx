// The buttons of a card: approve and deny of one size, at the thumb; the rest above them.

import { t } from "../i18n";
import { Icon } from "../ui/Icon";
import type { Confirmation } from "../state/preferences";
import { AllowForm, AllowReadingForm, offeredReadRoots } from "./AllowForm";
import { hasUneditableCharacter } from "./amend";
import type { PressState } from "./confirmation";
import { EditForm } from "./EditForm";
import { FormProblem } from "./FormPanel";
import { HoldButton } from "./HoldButton";
import type { PressHandle } from "./HoldButton";
import { mayVote } from "./model";
import type { CardModel } from "./model";
import { RejectForm } from "./RejectForm";
import type { AllowRule, SendState } from "./sending";

export type Panel = "reject" | "edit" | "allow" | "allow_reading" | "comment";

/** Which of the forms this card has. */
export function offeredPanels(card: CardModel, can: { amend: boolean; allow: boolean }): Panel[] {
  const isVoter = mayVote(card) || card.standing === "editor";
  return [
    ...(mayVote(card) ? (["reject"] as const) : []),
    ...(card.standing === "may_vote" ? (["comment"] as const) : []),
    ...(can.amend && isVoter && card.isEditable ? (["edit"] as const) : []),
    ...(can.allow && card.prefixOffer !== "not_possible" ? (["allow"] as const) : []),
    ...(can.allow && isVoter && offeredReadRoots(card).length > 0 ? (["allow_reading"] as const) : []),
  ];
}

/** What keeps a card from being approved at this moment. */
export type CardLock = "loading" | "unread" | null;

interface DecisionBarProps {
  card: CardModel;
  panels: Panel[];
  panel: Panel | null;
  press: PressHandle;
  sending: SendState;
  comment: string;
  lock: CardLock;
  onPanel(panel: Panel | null): void;
  onComment(comment: string): void;
  onReadOn(): void;
  onReject(reason: string): void;
  onEdit(args: Record<string, unknown>, line: string, thenApprove: boolean): void;
  onAllow(rules: AllowRule[]): void;
}

export function DecisionBar(props: DecisionBarProps) {
  const { card, panel, panels, press, sending } = props;
  const isBusy = sending.kind === "sending";
  const close = () => props.onPanel(null);
  const readOn = () => {
    // The form may stand before what is to be read.
    close();
    props.onReadOn();
  };
  return (
    <div class="decision-bar">
      <SendingState state={sending} />
      {panel === "reject" && <RejectForm isBusy={isBusy} onReject={props.onReject} onCancel={close} />}
      {panel === "edit" && (
        <EditForm
          card={card}
          isBusy={isBusy}
          mayApprove={mayVote(card) && props.lock === null && press.confirmation === "tap" && card.requested.form !== "tool"}
          onEdit={props.onEdit}
          onCancel={close}
        />
      )}
      {panel === "allow" && (
        <AllowForm card={card} isBusy={isBusy} lock={props.lock} confirmation={press.confirmation} onReadOn={readOn} onAllow={props.onAllow} onCancel={close} />
      )}
      {panel === "allow_reading" && <AllowReadingForm card={card} isBusy={isBusy} onAllow={props.onAllow} onCancel={close} />}
      {(panel === null || panel === "comment") && <Buttons {...props} isBusy={isBusy} />}
      {!panels.includes("reject") && <p class="standing">{t().standing[card.standing] ?? card.standing}</p>}
    </div>
  );
}

function Buttons(props: DecisionBarProps & { isBusy: boolean }) {
  const { card, panels, panel, isBusy } = props;
  return (
    <>
      {card.standing === "approved" && <p class="standing">{t().standing.approved}</p>}
      {panel === "comment" && (
        <label>
          {t().card.comment}
          <input value={props.comment} maxLength={2000} onInput={(event) => props.onComment(event.currentTarget.value)} />
        </label>
      )}
      <div class="more-buttons">
        {panels.includes("comment") && panel !== "comment" && <PanelButton opens="comment" label={t().card.addComment} {...props} />}
        {panels.includes("edit") && <PanelButton opens="edit" label={t().card.edit} shortcut="e" {...props} />}
        {panels.includes("allow") && <PanelButton opens="allow" label={t().card.allowPrefix} shortcut="P" {...props} />}
        {panels.includes("allow_reading") && <PanelButton opens="allow_reading" label={t().card.allowReading} shortcut="D" {...props} />}
      </div>
      {panels.includes("reject") && hasUneditableCharacter(card.requested) && <p class="note">{t().card.uneditable}</p>}
      {panels.includes("reject") && (
        <div class="decision-buttons">
          <button class="deny" disabled={isBusy} aria-keyshortcuts="r" onClick={() => props.onPanel("reject")}>
            <Icon name="cross" />
            <span>{t().card.reject}</span>
          </button>
          {card.standing === "may_vote" && <ApproveButton {...props} />}
        </div>
      )}
    </>
  );
}

function PanelButton(props: DecisionBarProps & { isBusy: boolean; opens: Panel; label: string; shortcut?: string }) {
  return (
    <button class="plain" disabled={props.isBusy} aria-keyshortcuts={props.shortcut} onClick={() => props.onPanel(props.opens)}>
      {props.label}
    </button>
  );
}

function ApproveButton({ press, lock, isBusy, onReadOn }: DecisionBarProps & { isBusy: boolean }) {
  if (lock === "unread") return <ReadOnButton onReadOn={onReadOn} />;
  return (
    <HoldButton handle={press} labels={approveLabels(press.confirmation)} class="approve" isDisabled={isBusy || lock !== null} keyShortcut="a">
      <Icon name="check" />
    </HoldButton>
  );
}

/** Stands in the place of Approve until the end of what is approved was on the screen. */
export function ReadOnButton({ onReadOn }: { onReadOn(): void }) {
  return (
    <button class="approve" onClick={onReadOn}>
      <Icon name="down" />
      <span>{t().card.readOn}</span>
    </button>
  );
}

export function approveLabels(confirmation: Confirmation): { [key in PressState]: string } {
  return {
    idle: confirmation === "hold" ? t().card.approveHold : t().card.approve,
    holding: t().card.keepHolding,
    armed: t().card.approveAgain,
  };
}

export function SendingState({ state }: { state: SendState }) {
  switch (state.kind) {
    case "idle":
      return null;
    case "sending":
    case "sent":
      return (
        <p class="sending" role="status">
          {state.kind === "sending" ? t().card.sending(state.what) : state.what}
        </p>
      );
    case "failed":
      return (
        <div class="send-failed">
          <FormProblem text={state.message} />
          {state.retry !== null && (
            <button class="wide" onClick={state.retry}>
              {t().app.retry}
            </button>
          )}
        </div>
      );
  }
}
