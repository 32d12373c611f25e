// Who has voted, who is awaited, how long it waits and what happens then.

import type { QuorumRule } from "@protocol";
import { t } from "../i18n";
import { serverNow } from "../net/server_clock";
import { second } from "../state/clock";
import { dateAndTime, duration, names, timeOfDay } from "../ui/format";
import { Quote, Row } from "./Facts";
import { nameOf } from "./model";
import type { CardModel, EarlierCard } from "./model";

export function Votes({ card }: { card: CardModel }) {
  const quorum = quorumText(card, card.quorum);
  return (
    <dl class="facts">
      <Row label={t().card.votes}>
        <strong>{t().card.voted(card.received, card.required)}</strong>
        {quorum !== null && <span> · {quorum}</span>}
        <p>{awaitedText(card)}</p>
        {card.votes.length > 0 && (
          <ul class="votes">
            {card.votes.map((vote) => (
              <li key={vote.participant}>
                <span aria-hidden="true">✓ </span>
                {t().card.votedAt(whoText(card, vote.participant), timeOfDay(vote.at))}
                {vote.comment !== undefined && (
                  <>
                    {": "}
                    <Quote text={vote.comment} />
                  </>
                )}
                <InvitedBy card={card} participant={vote.participant} />
              </li>
            ))}
          </ul>
        )}
      </Row>
      <Row label={t().card.deadline}>
        <Deadline card={card} />
      </Row>
    </dl>
  );
}

/** A name, and whether it is the reader's own. */
export function whoText(card: Pick<CardModel, "names" | "me">, id: string): string {
  return id === card.me ? t().card.you(nameOf(card, id)) : nameOf(card, id);
}

function awaitedText(card: CardModel): string {
  const list = (ids: readonly string[]) => names(ids.map((id) => whoText(card, id)));
  if (card.awaited.length > 0) return t().card.awaited(list(card.awaited));
  if (card.received >= card.required) return "";
  return card.undecided.length > 0 ? t().card.mayVote(list(card.undecided)) : t().card.nobody;
}

function InvitedBy({ card, participant }: { card: CardModel; participant: string }) {
  const keeper = card.notCounted[participant];
  if (keeper !== undefined) return <p class="careful">{t().card.notCounted(nameOf(card, participant), nameOf(card, keeper))}</p>;
  const inviter = card.invitedBy[participant];
  return inviter === undefined ? null : <p class="quiet small">{t().card.invitedBy(nameOf(card, inviter))}</p>;
}

/** The quorum in words; `null` where the numbers say it all. */
function quorumText(card: CardModel, quorum: QuorumRule): string | null {
  switch (quorum.type) {
    case "any":
      return null;
    case "all":
      return t().card.quorumAll;
    case "majority":
      return t().card.quorumMajority;
    case "role":
      return t().card.quorumRole(t().roles[quorum.role] ?? quorum.role);
    case "specific":
      return t().card.quorumSpecific(names(quorum.participants.map((id) => nameOf(card, id))));
  }
}

/** Below this it is shown as urgent. */
const URGENT_MS = 60_000;

export function Deadline({ card }: { card: Pick<CardModel, "deadline" | "atDeadline" | "escalated"> }) {
  const left = card.deadline === null ? null : card.deadline - serverNow(second.value);
  return (
    <span class={left !== null && left < URGENT_MS ? "deadline urgent" : "deadline"} role="timer">
      {deadlineText(left, card.atDeadline)}
      {card.escalated && <span class="careful"> {t().card.escalated}</span>}
    </span>
  );
}

function deadlineText(left: number | null, then: CardModel["atDeadline"]): string {
  if (left === null) return t().card.never;
  if (left <= 0) return t().card.overdue;
  return `${t().card.left(duration(left))}, ${t().atDeadline[then] ?? then}`;
}

/** Votes so far and the time that is left, in a line: on a phone the rest is below the fold. */
export function Standing({ card }: { card: Pick<CardModel, "received" | "required" | "deadline"> }) {
  return (
    <p class="standing">
      <strong title={t().card.voted(card.received, card.required)}>{t().card.inShort(card.received, card.required)}</strong>
      {card.deadline !== null && (
        <>
          {" · "}
          <TimeLeft deadline={card.deadline} />
        </>
      )}
    </p>
  );
}

/** The time that is left, for a line of the list. */
export function TimeLeft({ deadline }: { deadline: number | null }) {
  if (deadline === null) return null;
  const left = deadline - serverNow(second.value);
  return <span class={left < URGENT_MS ? "time-left urgent" : "time-left"}>{duration(left)}</span>;
}

/** What was edited, oldest first. */
export function Earlier({ card }: { card: CardModel }) {
  const editor = card.requested.edited_by;
  if (editor === null && card.earlier.length === 0) return null;
  return (
    <section class="earlier-versions">
      {editor !== null && <p class="careful">{t().card.editedBy(nameOf(card, editor))}</p>}
      {card.earlier.length > 0 && (
        <details>
          <summary>{t().card.earlier}</summary>
          <ol>
            {card.earlier.map((version, index) => (
              <EarlierVersion key={index} card={card} version={version} />
            ))}
          </ol>
        </details>
      )}
    </section>
  );
}

function EarlierVersion({ card, version }: { card: CardModel; version: EarlierCard }) {
  return (
    <li>
      <pre class="command old" dir="ltr">
        {version.shown === "" ? t().card.earlierUnknown : version.shown}
      </pre>
      <p class="small">
        {t().card.replacedBy(version.editedBy === null ? t().card.someone : nameOf(card, version.editedBy), dateAndTime(version.editedAt))}
        {version.reason !== null && (
          <>
            {": "}
            <Quote text={version.reason} />
          </>
        )}
      </p>
      {version.voidVotes.length > 0 && <p class="small">{t().card.voidVotes(names(version.voidVotes.map((id) => nameOf(card, id))))}</p>}
    </li>
  );
}
