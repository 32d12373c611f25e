// Everything that the screens share: who we are, the sessions, the open gates, the connections.

import { signal } from "@preact/signals";
import type { GateList, GateListItem, SessionList, SessionListItem } from "@protocol";
import { Api, ApiError } from "../net/api";
import { SessionConnection } from "../net/connection";
import type { Device } from "../net/device";
import { checkRecord } from "../net/head_memory";
import type { RecordProblem } from "../net/head_memory";

/** Sockets kept open at a time. A token may have sixteen, and a person several devices and tabs. */
const MAX_CONNECTIONS = 5;
const HISTORY_ENTRIES = 500;
const WATCH_SECONDS = 25;
const MAX_RETRY_MS = 15_000;
const RECORD_CHECK_MS = 60_000;

export class App {
  readonly api: Api;
  /** Open gates of all sessions; `null` before the first answer. */
  readonly gates = signal<GateListItem[] | null>(null);
  readonly sessions = signal<SessionListItem[] | null>(null);
  /** Whether the server answered the last question. */
  readonly reachable = signal(true);
  /** What is wrong with the record of a session, by its id. */
  readonly recordProblems = signal<ReadonlyMap<string, RecordProblem>>(new Map());
  /** The connections, those used last at the end. */
  private readonly connections = new Map<string, SessionConnection>();
  private readonly stopping = new AbortController();

  constructor(
    readonly device: Device,
    /** Called when the server no longer accepts the device's token. */
    private readonly onLoggedOut: () => void,
  ) {
    this.api = new Api(device.token);
    void this.watchGates();
    setInterval(() => void this.checkOpenRecords(), RECORD_CHECK_MS);
  }

  /** The connection of a session, opened if there is none. */
  connection(session: string, history: number = HISTORY_ENTRIES): SessionConnection {
    const open = this.connections.get(session);
    if (open !== undefined) {
      this.connections.delete(session);
      this.connections.set(session, open);
      return open;
    }
    const connection = new SessionConnection({ session, device: this.device, history });
    this.connections.set(session, connection);
    void this.checkRecord(session);
    for (const [oldest, idle] of this.connections) {
      if (this.connections.size <= MAX_CONNECTIONS) break;
      if (idle.unsent.value > 0) continue;
      idle.close();
      this.connections.delete(oldest);
    }
    return connection;
  }

  /** Opens a session again from its beginning, for those who want to read all of it. */
  reopen(session: string, history: number): SessionConnection {
    this.connections.get(session)?.close();
    this.connections.delete(session);
    return this.connection(session, history);
  }

  /** The name to show for a session. */
  sessionName(session: string): string {
    const listed = this.sessions.value?.find((item) => item.session === session);
    return listed?.name ?? session;
  }

  async loadSessions(): Promise<void> {
    const list = await this.api.get<SessionList>("/api/sessions?limit=200");
    this.sessions.value = list.sessions;
  }

  stop(): void {
    this.stopping.abort();
    for (const connection of this.connections.values()) connection.close();
    this.connections.clear();
  }

  /** Asks for the open gates for as long as the page is open; an answer comes when they change. */
  private async watchGates(): Promise<void> {
    let version: number | null = null;
    let delay = 500;
    while (!this.stopping.signal.aborted) {
      try {
        const query: string = version === null ? "" : `?after=${version}&wait=${WATCH_SECONDS}`;
        const options = { signal: this.stopping.signal, timeoutMs: (WATCH_SECONDS + 20) * 1000 };
        const list: GateList = await this.api.get<GateList>(`/api/gates${query}`, options);
        this.gates.value = list.gates;
        this.reachable.value = true;
        version = list.version;
        delay = 500;
        await this.nameNewSessions(list.gates);
      } catch (error) {
        if (error instanceof ApiError && error.isLoggedOut) return this.onLoggedOut();
        if (this.stopping.signal.aborted) return;
        this.reachable.value = false;
        // A restarted server counts its versions from the beginning.
        version = null;
        await pause(delay * (0.5 + Math.random() / 2));
        delay = Math.min(delay * 2, MAX_RETRY_MS);
      }
    }
  }

  private async nameNewSessions(gates: GateListItem[]): Promise<void> {
    const known = new Set(this.sessions.value?.map((item) => item.session));
    if (this.sessions.value === null || gates.some((gate) => !known.has(gate.session))) await this.loadSessions();
  }

  private async checkOpenRecords(): Promise<void> {
    for (const session of this.connections.keys()) await this.checkRecord(session);
  }

  private async checkRecord(session: string): Promise<void> {
    try {
      const problem = await checkRecord(this.api, session);
      if (problem === null) return;
      this.recordProblems.value = new Map(this.recordProblems.value).set(session, problem);
    } catch {
      // Not reachable now; the next round asks again.
    }
  }
}

/** Waits, or less if the page is looked at again or the network is back. */
function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      document.removeEventListener("visibilitychange", onVisible);
      resolve();
    };
    const onVisible = () => {
      if (document.visibilityState === "visible") done();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    document.addEventListener("visibilitychange", onVisible);
  });
}
