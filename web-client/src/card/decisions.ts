// What a person decides on one card: a vote, an edit, a rule.

import type { GateDetails, GateListItem } from "@protocol";
import { t } from "../i18n";
import { preferences } from "../state/preferences";
import { isExactlyEdited } from "./amend";
import { confirmationFor } from "./confirmation";
import { versionOf } from "./model";
import type { CardModel } from "./model";
import { requestedFromOpenGate } from "./requested";
import { useSending } from "./sending";
import type { AllowRule, Ballot, GateSender, SendState } from "./sending";

interface DecisionOptions {
  card: CardModel;
  sender: GateSender;
  /** The person has edited the command, which is now this version. */
  onEdited(version: string): void;
  /** Something has arrived at the server. */
  onSent(): void;
  onAnswer: ((gate: GateDetails) => void) | undefined;
  onDecided: ((vote: "approve" | "reject") => void) | undefined;
}

export interface Decisions {
  state: SendState;
  clear(): void;
  vote(ballot: Ballot): void;
  edit(args: Record<string, unknown>, line: string, thenApprove: boolean): void;
  allow(rules: AllowRule[]): void;
}

/** Everything is sent about the card that was drawn when it was called. */
export function useDecisions({ card, sender, onEdited, onSent, onAnswer, onDecided }: DecisionOptions): Decisions {
  const sending = useSending();
  return {
    state: sending.state,
    clear: sending.clear,
    vote(ballot) {
      const words = ballot.vote === "approve" ? t().card.approved : t().card.denied;
      sending.send(words, async (id) => {
        const gate = await sender.vote(card, ballot, id);
        onSent();
        onAnswer?.(gate);
        onDecided?.(ballot.vote);
      });
    },
    edit(args, line, thenApprove) {
      sending.send(t().card.edited, async (id) => {
        const gate = await sender.amend?.(card, args, id);
        if (gate === undefined) return;
        // Somebody else may have edited it in the meantime, which this person has not looked at.
        const isOurs = gate.open !== undefined && gate.open.amended_by === card.me;
        if (isOurs && gate.open !== undefined) onEdited(versionOf({ ...gate.open, digest: gate.open.assessment.digest }));
        onSent();
        onAnswer?.(gate);
        const edited = thenApprove && gate.open !== undefined ? editedCard(card, gate.open, line) : null;
        if (edited === null) return;
        onAnswer?.(await sender.vote(edited, { vote: "approve", comment: "" }, `${id}-vote`));
        onDecided?.("approve");
      });
    },
    allow(rules) {
      sending.send(t().card.allowed, async (id) => {
        for (const [index, rule] of rules.entries()) await sender.allow?.(card, rule, `${id}-${index}`);
        onSent();
      });
    },
  };
}

/**
 * The card after an edit, to approve at once; `null` if it is anything but what was typed in the place
 * that was shown, or needs more than a tap.
 */
function editedCard(card: CardModel, open: GateListItem, line: string): CardModel | null {
  const requested = requestedFromOpenGate(open, []);
  const isTap = confirmationFor(open.assessment.category, preferences.value) === "tap";
  if (!open.may_vote || !isTap || !isExactlyEdited(card.requested, requested, line)) return null;
  return { ...card, requested, category: open.assessment.category, digest: open.assessment.digest };
}
