// "Why is this destructive?": the rule, the reason, the parts, and what the vote is bound to.

import { t } from "../i18n";
import { Quote, Row, categoryLabel } from "./Facts";
import type { CardModel } from "./model";
import { noteIn } from "./notes";
import { Parts } from "./Parts";

export function Why({ card, isOpen, onToggle }: { card: CardModel; isOpen: boolean; onToggle(): void }) {
  const id = `why-${card.gate}`;
  return (
    <section class="why">
      <button class="plain" aria-expanded={isOpen} aria-controls={id} aria-keyshortcuts="x" onClick={onToggle}>
        {card.category === "destructive" ? t().card.destructiveWhy : t().card.why}
      </button>
      <div id={id} hidden={!isOpen}>
        {isOpen && <Explanation card={card} />}
      </div>
    </section>
  );
}

function Explanation({ card }: { card: CardModel }) {
  const assessment = card.requested.assessment;
  if (assessment === null) return <p>{t().card.noVerdict}</p>;
  return (
    <>
      <dl class="facts">
        <Row label={t().card.verdict}>
          {categoryLabel(card)}, {t().risk[assessment.risk] ?? assessment.risk}
        </Row>
        <Row label={t().card.rule}>
          <Quote text={assessment.rule} code />
        </Row>
        <Row label={t().card.reason}>
          <Quote text={assessment.reason} />
        </Row>
        {(assessment.notes ?? []).map((note) => (
          <Row key={note} label={t().card.notes}>
            <Quote text={noteIn(note)} />
          </Row>
        ))}
        <Row label={t().card.sandbox}>{t().card.profiles[assessment.profile] ?? assessment.profile}</Row>
        <Row label={t().card.policy}>
          <Quote text={assessment.policy} code />
        </Row>
        <Row label={t().card.digest}>
          <Quote text={card.digest} code />
        </Row>
      </dl>
      <Parts parts={assessment.parts ?? []} withReasons />
    </>
  );
}
