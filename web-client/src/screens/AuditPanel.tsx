// The record of a session: every message, whether it is whole, and a copy to keep.

import { useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { useApp } from "../ui/context";
import { AuditEntries } from "./audit/AuditEntries";
import { AuditFilters } from "./audit/AuditFilters";
import { Downloads } from "./audit/Downloads";
import { NO_FILTER, filterEntries, isSame } from "./audit/entry";
import { addNewer, addOlder, readNewest, searchOlder } from "./audit/log_window";
import type { LogWindow } from "./audit/log_window";
import { RecordStatus } from "./audit/RecordStatus";
import { LoadProblem } from "./parts";
import { useKnownPeople } from "./people";
import { useAction, useLoaded } from "./request";
import { useSlowTick } from "./slow_tick";

export function AuditPanel({ connection }: { connection: SessionConnection }) {
  const app = useApp();
  const { session } = connection;
  const [filter, setFilter] = useState(NO_FILTER);
  const known = useKnownPeople(connection);
  const isReady = useComputed(() => connection.tick.value >= 0 && connection.view.head > 0).value;
  const log = useLoaded(`${session} ${isReady}`, async () => (isReady ? readNewest(app.api, session, connection.view.head) : null));
  const action = useAction();
  const loaded = log.value;
  const entries = useMemo(() => loaded?.entries ?? [], [loaded]);
  const shown = useMemo(() => filterEntries(entries, filter).reverse(), [entries, filter]);
  const isFiltered = !isSame(filter, NO_FILTER);
  const [searched, setSearched] = useState<number | null>(null);
  const stopping = useRef(new AbortController());
  useEffect(() => () => stopping.current.abort(), []);
  const search = async () => {
    if (loaded === null) return;
    const { signal } = stopping.current;
    const count = (window: LogWindow) => filterEntries(window.entries, filter).length;
    try {
      log.set(await searchOlder(app.api, session, loaded, { count, signal, onProgress: setSearched }));
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      setSearched(null);
    }
  };
  return (
    <div class="screen full">
      <h2>{t().audit.heading}</h2>
      <p class="quiet">{t().audit.intro}</p>
      <RecordStatus connection={connection} />
      <Downloads connection={connection} />
      <AuditFilters connection={connection} known={known} entries={entries} filter={filter} onChange={setFilter} />
      <LoadProblem problem={log.problem} onRetry={log.reload} />
      {loaded === null && log.problem === null && <p class="center">{t().app.loading}</p>}
      {loaded !== null && (
        <section class="stack">
          <h3>{t().audit.entries}</h3>
          <p class="quiet small" role="status">
            {t().audit.shown(shown.length, entries.length)}
          </p>
          <NewEntries
            connection={connection}
            last={loaded.last}
            isBusy={action.busy}
            onLoad={(head) => action.run(async () => log.set(await addNewer(app.api, session, loaded, head)))}
          />
          {shown.length === 0 && <p class="center">{entries.length === 0 ? t().audit.empty : t().audit.noMatch(entries.length)}</p>}
          <AuditEntries connection={connection} known={known} all={entries} shown={shown} onProposal={(proposal) => setFilter({ ...NO_FILTER, proposal })} />
          {loaded.first > 1 && (
            <button class="wide" disabled={action.busy} onClick={() => action.run(isFiltered ? search : async () => log.set(await addOlder(app.api, session, loaded)))}>
              {searched !== null ? t().audit.searching(searched) : isFiltered ? t().audit.searchOlder : t().audit.older}
            </button>
          )}
        </section>
      )}
    </div>
  );
}

/** The list stands still while it is read; a button brings what has come since. */
function NewEntries(props: { connection: SessionConnection; last: number; isBusy: boolean; onLoad(head: number): void }) {
  useSlowTick(props.connection);
  const { head } = props.connection.view;
  if (head <= props.last) return null;
  return (
    <button class="wide" disabled={props.isBusy} onClick={() => props.onLoad(head)}>
      {t().audit.fresh(head - props.last)}
    </button>
  );
}
