// Every gate of every session: those that wait for this person first, the worst and newest on top.

import { useEffect, useState } from "preact/hooks";
import type { GateListItem } from "@protocol";
import { GateChoice, GateLink, GateList } from "../card/GateRow";
import { sortGates } from "../card/order";
import { Preflight } from "../card/Preflight";
import { t } from "../i18n";
import { Boundary } from "./Boundary";
import { Capped } from "./Capped";
import { useApp } from "./context";

/** Entries drawn at once, and chosen at once: an agent may ask for more than anybody reads. */
const DRAWN = 100;

export function Inbox() {
  const app = useApp();
  const [chosen, setChosen] = useState<ReadonlySet<string> | null>(null);
  const [preflight, setPreflight] = useState<GateListItem[] | null>(null);
  const gates = app.gates.value;
  const { mine, others } = sortGates(gates ?? [], app.device.participant);
  // What is decided meanwhile is no longer chosen.
  useEffect(() => {
    setChosen((before) => before && new Set([...before].filter((gate) => mine.some((item) => item.gate === gate))));
  }, [gates]);
  if (gates === null) return <p class="center">{t().app.loading}</p>;
  if (preflight !== null) {
    return (
      <Preflight
        chosen={preflight}
        onClose={() => {
          setPreflight(null);
          setChosen(null);
        }}
      />
    );
  }
  const picked = mine.filter((item) => chosen?.has(item.gate));
  return (
    <div class="screen inbox">
      <div class="row">
        <h1 class="grow">{t().inbox.heading}</h1>
        {mine.length > 1 && (
          <button class="plain" aria-pressed={chosen !== null} onClick={() => setChosen(chosen === null ? new Set() : null)}>
            {chosen === null ? t().inbox.select : t().app.cancel}
          </button>
        )}
      </div>
      {mine.length === 0 && <Empty />}
      {mine.length > 0 && (
        <Capped items={mine} size={DRAWN}>
          {(shown) => (
            <GateList label={t().inbox.heading}>
              {shown.map((item) => (
                <Boundary key={item.gate} kind="entry" of={item} as="li">
                  {chosen === null ? (
                    <GateLink item={item} />
                  ) : (
                    <GateChoice item={item} isChosen={chosen.has(item.gate)} onChoose={(isChosen) => setChosen(toggled(chosen, item.gate, isChosen))} />
                  )}
                </Boundary>
              ))}
            </GateList>
          )}
        </Capped>
      )}
      {chosen !== null && (
        <div class="decision-bar">
          <div class="decision-buttons">
            <button onClick={() => setChosen(new Set(mine.slice(0, DRAWN).map((item) => item.gate)))}>{t().inbox.selectAll}</button>
            <button class="primary" disabled={picked.length === 0} onClick={() => setPreflight(picked)}>
              {t().inbox.approveSelected(picked.length)}
            </button>
          </div>
        </div>
      )}
      {others.length > 0 && (
        <section class="stack">
          <h2>{t().inbox.othersHeading}</h2>
          <Capped items={others} size={DRAWN}>
            {(shown) => (
              <GateList label={t().inbox.othersHeading}>
                {shown.map((item) => (
                  <Boundary key={item.gate} kind="entry" of={item} as="li">
                    <GateLink item={item} />
                  </Boundary>
                ))}
              </GateList>
            )}
          </Capped>
        </section>
      )}
    </div>
  );
}

function Empty() {
  return (
    <div class="center">
      <p>{t().inbox.empty}</p>
      <p class="small">{t().inbox.emptyHint}</p>
    </div>
  );
}

function toggled(chosen: ReadonlySet<string>, gate: string, isChosen: boolean): Set<string> {
  const others = [...chosen].filter((other) => other !== gate);
  return new Set(isChosen ? [...others, gate] : others);
}
