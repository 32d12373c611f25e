// What cards need to know of a session besides the gate: names, executors, settings.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ExecutorInfo, GateListItem, GateResolve, ParticipantKind, Role, SessionConfig, SessionDetails } from "@protocol";
import type { View } from "../fold";
import type { Api } from "../net/api";
import type { App } from "../state/app";
import { displayNames, namesIn } from "../ui/names";

export { displayNames };

export interface SessionFacts {
  /** The participant who looks; `null` if that is unknown. */
  me: string | null;
  kind: ParticipantKind;
  roles: readonly Role[];
  names: ReadonlyMap<string, string>;
  /** The session's settings; `null` before they have arrived. */
  config: SessionConfig | null;
  executor(participant: string): ExecutorInfo | null;
}

export function factsOfView(view: View): SessionFacts {
  return {
    me: view.me?.participant ?? null,
    kind: "human",
    roles: view.me?.roles ?? [],
    names: namesIn(view),
    config: view.config,
    executor: (id) => view.people[id]?.executor ?? null,
  };
}

/** What is known without having asked the server. */
export function bareFacts(me: { id: string; name: string; roles: readonly Role[] }): SessionFacts {
  return { me: me.id, kind: "human", roles: me.roles, names: displayNames([me]), config: null, executor: () => null };
}

function factsOfDetails(app: App, details: SessionDetails): SessionFacts {
  const { participant, name, roles } = app.device;
  const byId = new Map(details.people.map((person) => [person.id, person]));
  const mine = byId.get(participant);
  const people = mine === undefined ? [...details.people, { id: participant, name }] : details.people;
  return {
    me: participant,
    kind: mine?.type ?? "human",
    roles: mine?.roles ?? roles,
    names: displayNames(people),
    config: details.config,
    executor: (id) => byId.get(id)?.executor ?? null,
  };
}

/** Not more often than this, however many people come and go. */
const RELOAD_MS = 3000;
/** Sessions whose facts are kept. */
const MAX_SESSIONS = 100;

/** The facts of all sessions that cards were shown of. */
export class FactsStore {
  private readonly details = signal<ReadonlyMap<string, SessionDetails>>(new Map());
  private readonly asked = new Map<string, number>();
  private readonly waiting = new Set<string>();

  constructor(private readonly api: Pick<Api, "get">) {}

  get(session: string): SessionDetails | null {
    return this.details.value.get(session) ?? null;
  }

  /** Asks the server, a little later if it was asked just now. */
  load(session: string): void {
    if (this.waiting.has(session)) return;
    const soonest = (this.asked.get(session) ?? -Infinity) + RELOAD_MS;
    this.waiting.add(session);
    setTimeout(() => void this.ask(session), Math.max(0, soonest - Date.now()));
  }

  private async ask(session: string): Promise<void> {
    this.waiting.delete(session);
    this.asked.set(session, Date.now());
    try {
      const details = await this.api.get<SessionDetails>(`/api/sessions/${encodeURIComponent(session)}`);
      const kept = [...this.details.value].filter(([id]) => id !== session).slice(-(MAX_SESSIONS - 1));
      this.details.value = new Map([...kept, [session, details]]);
    } catch {
      // Cards show ids where names are missing; the next card asks again.
    }
  }
}

const stores = new WeakMap<App, FactsStore>();

export function factsStore(app: App): FactsStore {
  const known = stores.get(app);
  if (known !== undefined) return known;
  const store = new FactsStore(app.api);
  stores.set(app, store);
  return store;
}

/** Everyone whom a gate and its decision name. */
export function mentionedIn(item: GateListItem, resolution?: GateResolve): string[] {
  const approvals = [...item.approvals, ...(resolution?.approvals ?? [])];
  const single = [item.proposer, item.amended_by, resolution?.by].filter((id) => id !== undefined);
  return [...new Set([...single, ...item.request.voters, ...approvals.map((approval) => approval.participant), ...item.awaited])];
}

/** The facts of a session, asked for if they are missing or do not know one of these people. */
export function useFacts(app: App, session: string, mentioned: readonly string[]): SessionFacts {
  const store = factsStore(app);
  const details = store.get(session);
  const facts = details === null ? null : factsOfDetails(app, details);
  const isKnown = facts !== null && mentioned.every((id) => facts.names.has(id));
  useEffect(() => {
    if (!isKnown) store.load(session);
  }, [session, isKnown, mentioned.join(" ")]);
  const { participant, name, roles } = app.device;
  return facts ?? bareFacts({ id: participant, name, roles });
}
