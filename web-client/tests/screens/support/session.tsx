// A signed-in person and a session, without a socket.

import { signal } from "@preact/signals";
import type { ComponentChild } from "preact";
import type { GateListItem, Role, SessionConfig, SessionListItem } from "@protocol";
import type { ParticipantView, ViewData } from "../../../src/fold";
import type { SessionConnection } from "../../../src/net/connection";
import type { RecordProblem } from "../../../src/net/head_memory";
import { Api } from "../../../src/net/api";
import type { App } from "../../../src/state/app";
import { AppContext } from "../../../src/ui/context";
import { Person, settled } from "./person";
import { TOKEN } from "./server";

export interface FakeApp {
  roles: Role[];
  /** The only session of the token. */
  session: string | null;
  gates: GateListItem[] | null;
  sessions: SessionListItem[] | null;
  recordProblems: Map<string, RecordProblem>;
}

export function fakeApp(change: Partial<FakeApp> = {}): App {
  const facts: FakeApp = { roles: ["approver"], session: null, gates: null, sessions: null, recordProblems: new Map(), ...change };
  const app = {
    api: new Api(TOKEN),
    device: { token: TOKEN, participant: "ann", name: "Ann", roles: facts.roles, session: facts.session, expires: null },
    gates: signal(facts.gates),
    sessions: signal(facts.sessions),
    notificationSettings: signal(null),
    reachable: signal(true),
    recordProblems: signal(facts.recordProblems),
    recordNotices: signal(new Map()),
    sessionName: (session: string) => facts.sessions?.find((item) => item.session === session)?.name ?? session,
    stop: () => undefined,
  };
  return app as unknown as App;
}

export interface Sent {
  type: string;
  payload: unknown;
}

export type FakeConnection = SessionConnection & { sent: Sent[] };

/** A connection with this view. Whatever is sent is accepted, unless `refusal` says why not. */
export function fakeConnection(view: Partial<ViewData> = {}, refusal?: string): FakeConnection {
  const sent: Sent[] = [];
  const whole = { people: {}, rules: [], commands: [], head: 0, ended: null, config: CONFIG, me: null, ...view };
  const connection = {
    session: "blue-owl",
    view: whole,
    tick: signal(0),
    state: signal("open"),
    sent,
    now: () => Date.now(),
    send: (type: string, payload: unknown) => {
      sent.push({ type, payload });
      return refusal === undefined ? Promise.resolve() : Promise.reject(new Error(refusal));
    },
  };
  return connection as unknown as FakeConnection;
}

export function human(id: string, name: string, roles: Role[], change: Partial<ParticipantView> = {}): ParticipantView {
  return { id, name, kind: "human", roles, capabilities: [], presence: "active", executor: null, last_active: null, left: false, timed_out: false, ...change };
}

export function people(...list: ParticipantView[]): Record<string, ParticipantView> {
  return Object.fromEntries(list.map((person) => [person.id, person]));
}

export function meAs(roles: Role[], capabilities: string[] = []): ViewData["me"] {
  const may_approve = capabilities.includes("approve");
  return { participant: "ann", roles, capabilities, may_approve, may_exec: false, may_interrupt: false, may_prompt: false } as ViewData["me"];
}

/** Shows a component, and waits for what it asks. */
export async function show(app: App, component: ComponentChild): Promise<Person> {
  const person = new Person(<AppContext.Provider value={app}>{component}</AppContext.Provider>);
  await settled();
  return person;
}

export const CONFIG: SessionConfig = {
  require_approval_for: [],
  default_gate_quorum: { type: "any", count: 1 },
  allow_forks: false,
  max_participants: 10,
  ordering_mode: "total",
  on_participant_timeout: "skip",
  heartbeat_interval_seconds: 30,
  idle_timeout_seconds: 120,
  away_timeout_seconds: 300,
  quorum_by_category: {},
  gate_timeout_seconds: 300,
  on_gate_timeout: "reject",
  shell_exec: "direct",
  four_eyes: false,
  solo: false,
  quorum_independent: true,
  trust_reads: false,
  client_reads: "ask",
  try_unknown: false,
  profile: "none",
  read_roots: [],
};
