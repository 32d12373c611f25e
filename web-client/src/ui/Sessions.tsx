// The sessions that a person may open, newest first.

import { useEffect, useState } from "preact/hooks";
import type { SessionList, SessionListItem } from "@protocol";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { Choice, LoadProblem, ago } from "../screens/parts";
import { useAction, useLoaded } from "../screens/request";
import { routeHash } from "../state/route";
import type { App } from "../state/app";
import { useApp } from "./context";
import { dateAndTime } from "./format";

type Which = "open" | "ended" | "all";

const PAGE = 50;

export function Sessions() {
  const app = useApp();
  const [which, setWhich] = useState<Which>("open");
  const [search, setSearch] = useState("");
  const list = useLoaded(which, () => app.api.get<SessionList>(pathOf(which, null)));
  const action = useAction();
  const sessions = list.value?.sessions ?? [];
  useEffect(() => {
    const known = new Set(sessions.map((item) => item.session));
    const isNew = (app.gates.value ?? []).some((gate) => !known.has(gate.session));
    // A gate in a session that is not in the list means that somebody has just made that session.
    if (isNew && which !== "ended" && list.value !== null && !list.value.more && !list.busy) list.reload();
  }, [app.gates.value]);

  const showMore = () =>
    action.run(async () => {
      const last = sessions.at(-1);
      if (last === undefined || list.value === null) return;
      const next = await app.api.get<SessionList>(pathOf(which, last.session));
      list.set({ sessions: [...sessions, ...next.sessions], more: next.more });
    });

  const found = sessions.filter((item) => matches(item, search));
  return (
    <div class="screen">
      <h1>{t().list.heading}</h1>
      <label>
        {t().list.search}
        <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
      </label>
      <Choice<Which>
        legend={t().list.which}
        name="which-sessions"
        value={which}
        options={[
          ["open", t().list.open],
          ["ended", t().list.ended],
          ["all", t().list.all],
        ]}
        onChange={setWhich}
      />
      <LoadProblem problem={list.problem} onRetry={list.reload} />
      {list.value === null && list.busy && <p class="center">{t().app.loading}</p>}
      {list.value !== null && found.length === 0 && <p class="center">{sessions.length === 0 ? t().list.empty : t().list.noMatch}</p>}
      <ul class="rows">
        {found.map((item) => (
          <SessionRow key={item.session} item={item} openGates={openGates(app, item)} />
        ))}
      </ul>
      {search !== "" && list.value?.more === true && <p class="quiet">{t().list.searched(sessions.length)}</p>}
      {list.value?.more === true && (
        <button class="wide" disabled={action.busy} onClick={showMore}>
          {t().app.more}
        </button>
      )}
    </div>
  );
}

function SessionRow({ item, openGates }: { item: SessionListItem; openGates: number }) {
  const name = item.name ?? item.session;
  return (
    <li>
      <a class="panel session-row" href={routeHash({ screen: "session", session: item.session, tab: "stream" })}>
        <span class="row">
          <strong class="grow">{escapeInvisible(name)}</strong>
          {openGates > 0 && <span class="tag bad">{t().session.openGates(openGates)}</span>}
          {item.ended && <span class="tag">{t().session.endedShort}</span>}
        </span>
        <span class="row quiet small">
          {item.name != null && <span class="mono">{item.session}</span>}
          <time dateTime={item.updated_at} title={dateAndTime(item.updated_at)}>
            {t().list.active(ago(item.updated_at))}
          </time>
        </span>
      </a>
    </li>
  );
}

function pathOf(which: Which, before: string | null): string {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (which !== "all") query.set("ended", String(which === "ended"));
  if (before !== null) query.set("before", before);
  return `/api/sessions?${query}`;
}

/** The inbox knows at once what the list knows from when it was loaded. */
function openGates(app: App, item: SessionListItem): number {
  const gates = app.gates.value;
  return gates === null ? item.open_gates : gates.filter((gate) => gate.session === item.session).length;
}

function matches(item: SessionListItem, search: string): boolean {
  const text = `${item.name ?? ""} ${item.session}`.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
