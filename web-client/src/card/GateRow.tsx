// A gate as one entry of a list: enough to recognise it, not to decide it.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { GateListItem } from "@protocol";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import { routeHash } from "../state/route";
import { useApp } from "../ui/context";
import { CategoryTag } from "./Facts";
import { requestedFromOpenGate } from "./requested";
import { mentionedIn, useFacts } from "./session_facts";
import { TimeLeft } from "./Votes";

/** The line by which people recognise a command. */
export function useShown(item: GateListItem): string {
  return useMemo(() => requestedFromOpenGate(item, []).shown, [item]);
}

function RowText({ item, shown }: { item: GateListItem; shown: string }) {
  const app = useApp();
  const facts = useFacts(app, item.session, mentionedIn(item));
  const { category, sensitive_read, risk } = item.assessment;
  const deadline = item.request.deadline === undefined ? null : Date.parse(item.request.deadline);
  return (
    <>
      <span class="row-top">
        <CategoryTag card={{ category, isSensitiveRead: category === "write" && (sensitive_read ?? false) }} />
        <span class={`risk ${risk}`}>{t().risk[risk] ?? risk}</span>
        <TimeLeft deadline={deadline} />
      </span>
      <code class="row-command" dir="ltr">
        {shown}
      </code>
      <span class="row-bottom quiet small">
        <bdi>{t().inbox.from(facts.names.get(item.proposer) ?? escapeInvisible(item.proposer))}</bdi>
        <bdi>{t().inbox.in(escapeInvisible(app.sessionName(item.session)))}</bdi>
        <span>{t().card.voted(item.received, item.required)}</span>
      </span>
    </>
  );
}

export function GateLink({ item, isCurrent = false }: { item: GateListItem; isCurrent?: boolean }) {
  const shown = useShown(item);
  return (
    <li>
      <a
        class={`gate-row ${item.assessment.category}`}
        href={routeHash({ screen: "gate", session: item.session, gate: item.gate })}
        aria-current={isCurrent ? "true" : undefined}
      >
        <RowText item={item} shown={shown} />
      </a>
    </li>
  );
}

export function GateChoice({ item, isChosen, onChoose }: { item: GateListItem; isChosen: boolean; onChoose(isChosen: boolean): void }) {
  const shown = useShown(item);
  return (
    <li>
      <label class={`gate-row choice ${item.assessment.category}`}>
        <input type="checkbox" checked={isChosen} aria-label={t().inbox.selectOne(shown)} onChange={(event) => onChoose(event.currentTarget.checked)} />
        <span class="row-text">
          <RowText item={item} shown={shown} />
        </span>
      </label>
    </li>
  );
}

/** A list in which j and k move between the entries. */
export function GateList({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <ul class="gate-list" aria-label={label} onKeyDown={moveFocus}>
      {children}
    </ul>
  );
}

function moveFocus(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const step = event.key === "j" ? 1 : event.key === "k" ? -1 : 0;
  if (step === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const entries = [...event.currentTarget.querySelectorAll<HTMLElement>("a, input")];
  const index = entries.findIndex((entry) => entry === document.activeElement);
  entries[Math.max(0, Math.min(entries.length - 1, index + step))]?.focus();
  event.preventDefault();
}
