// Everything that the screens share: who we are, the sessions, the open gates, the connections.

import { signal } from "@preact/signals";
import type { GateList, GateListItem, SessionList, SessionListItem } from "@protocol";
import { Api, ApiError } from "../net/api";
import { SessionConnection } from "../net/connection";
import type { Device } from "../net/device";
import { checkRecord, isProblem, rememberReceived } from "../net/head_memory";
import type { ReceivedEntry, RecordNotice, RecordProblem } from "../net/head_memory";
import { ServerGuard } from "../net/server_key";
import { onWake } from "../net/wake";
import type { NotificationSettings } from "../screens/settings/types";

/** Sockets kept open at a time. A token may have sixteen, and a person several devices and tabs. */
const MAX_CONNECTIONS = 5;
const HISTORY_ENTRIES = 500;
const WATCH_SECONDS = 25;
const ASK_TIMEOUT_MS = (WATCH_SECONDS + 20) * 1000;
/** After an answer, changes are collected for so long before they are asked for. */
const COLLECT_MS = 250;
/** How often a tab asks that may not wait for changes. */
const BEHIND_MS = 10_000;
const MAX_RETRY_MS = 15_000;
const RECORD_CHECK_MS = 60_000;
/** After a sleep, a server that can be reached says in this time which gates are open. */
const PROBE_TIMEOUT_MS = 5000;

export class App {
  readonly api: Api;
  /** Open gates of all sessions; `null` before the first answer. */
  readonly gates = signal<GateListItem[] | null>(null);
  readonly sessions = signal<SessionListItem[] | null>(null);
  /** How this person wants to be notified; `null` if the server has not said so. */
  readonly notificationSettings = signal<NotificationSettings | null>(null);
  /** Whether the server answered the last question. */
  readonly reachable = signal(true);
  /** What is wrong with the record of a session, by its id. */
  readonly recordProblems = signal<ReadonlyMap<string, RecordProblem>>(new Map());
  /** What a person should know of the record of a session once, by its id. */
  readonly recordNotices = signal<ReadonlyMap<string, RecordNotice>>(new Map());
  /** The connections, those used last at the end. */
  private readonly connections = new Map<string, SessionConnection>();
  private readonly guard: ServerGuard;
  private readonly stopping = new AbortController();
  /** Whether to ask for the notification settings. */
  private mayHaveSettings = true;
  /** Whether this is the one tab that waits for changes although nobody looks at it. */
  private isWatcher = false;
  private readonly recordTimer: ReturnType<typeof setInterval>;

  constructor(
    readonly device: Device,
    /** Called when the server no longer accepts the device's token. */
    private readonly onLoggedOut: () => void,
    /** Called when another server answers at this address. Nothing was sent to it. */
    onOtherServer: () => void = () => undefined,
  ) {
    this.guard = new ServerGuard(device.server ?? null, onOtherServer);
    this.api = new Api(device.token, this.guard);
    this.volunteer();
    void this.watchGates();
    this.recordTimer = setInterval(() => void this.checkOpenRecords(), RECORD_CHECK_MS);
  }

  /** The connection of a session, opened if there is none. */
  connection(session: string, history: number = HISTORY_ENTRIES): SessionConnection {
    const open = this.connections.get(session);
    if (open !== undefined) {
      this.connections.delete(session);
      this.connections.set(session, open);
      return open;
    }
    const onJoinAnswered = () => void this.checkRecord(session);
    const onEnded = (received: ReceivedEntry) => rememberReceived(session, received);
    const connection = new SessionConnection({ session, device: this.device, history, guard: this.guard, onJoinAnswered, onEnded });
    this.connections.set(session, connection);
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

  private async loadNotificationSettings(): Promise<void> {
    try {
      const settings = await this.api.get<NotificationSettings>("/api/notifications", { signal: this.stopping.signal });
      // Somebody may have saved others meanwhile.
      this.notificationSettings.value ??= settings;
      this.mayHaveSettings = false;
    } catch (error) {
      // A server that was not reached is asked again; one that has none is not.
      this.mayHaveSettings = error instanceof ApiError && error.status === 0;
    }
  }

  stop(): void {
    this.stopping.abort();
    clearInterval(this.recordTimer);
    for (const connection of this.connections.values()) connection.close("leaving");
    this.connections.clear();
  }

  /**
   * Whether a question may wait for a change. A browser opens six connections to a server, and with as many tabs
   * that wait, nothing else would get through: those that nobody looks at leave the waiting to one of them.
   */
  private get mayWait(): boolean {
    return this.isWatcher || document.visibilityState === "visible";
  }

  /** Becomes the tab that waits for all, once no other one is. Without https there are no locks, and none is. */
  private volunteer(): void {
    const { signal } = this.stopping;
    const watch = () => {
      this.isWatcher = true;
      return new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    };
    void navigator.locks?.request(`pvp.watch.${this.device.participant}`, { signal }, watch).catch(() => undefined);
  }

  /** Asks for the open gates for as long as the page is open; an answer comes when they change. */
  private async watchGates(): Promise<void> {
    let version: number | null = null;
    let delay = 500;
    let asking = new AbortController();
    // The answer to a question that was asked before a sleep may never come.
    const stopListening = onWake(() => asking.abort());
    const onHidden = () => {
      if (!this.mayWait) asking.abort();
    };
    document.addEventListener("visibilitychange", onHidden);
    this.stopping.signal.addEventListener("abort", () => {
      stopListening();
      document.removeEventListener("visibilitychange", onHidden);
    });
    while (!this.stopping.signal.aborted) {
      const isWoken = asking.signal.aborted;
      asking = new AbortController();
      try {
        const list = await this.askGates(isWoken || !this.mayWait ? null : version, asking.signal, isWoken ? PROBE_TIMEOUT_MS : ASK_TIMEOUT_MS);
        this.gates.value = list.gates;
        this.reachable.value = true;
        version = list.version;
        if (this.mayHaveSettings) await this.loadNotificationSettings();
        delay = 500;
        await this.nameNewSessions(list.gates);
        await pause(this.mayWait ? COLLECT_MS : BEHIND_MS);
      } catch (error) {
        if (error instanceof ApiError && error.isLoggedOut) return this.onLoggedOut();
        if (this.stopping.signal.aborted) return;
        if (asking.signal.aborted) continue;
        this.reachable.value = false;
        // A restarted server counts its versions from the beginning.
        version = null;
        await pause(delay * (0.5 + Math.random() / 2));
        delay = Math.min(delay * 2, MAX_RETRY_MS);
      }
    }
  }

  /** Waits for a change since this version, if there is one. */
  private askGates(version: number | null, asking: AbortSignal, timeoutMs: number): Promise<GateList> {
    const query = version === null ? "" : `?after=${version}&wait=${WATCH_SECONDS}`;
    const signal = AbortSignal.any([this.stopping.signal, asking]);
    return this.api.get<GateList>(`/api/gates${query}`, { signal, timeoutMs, exactNumbers: true });
  }

  private async nameNewSessions(gates: GateListItem[]): Promise<void> {
    const known = new Set(this.sessions.value?.map((item) => item.session));
    if (this.sessions.value === null || gates.some((gate) => !known.has(gate.session))) await this.loadSessions();
  }

  private async checkOpenRecords(): Promise<void> {
    for (const session of this.connections.keys()) await this.checkRecord(session);
  }

  private async checkRecord(session: string): Promise<void> {
    const connection = this.connections.get(session);
    const received = connection?.received ?? null;
    try {
      const finding = await checkRecord(this.api, session, received);
      if (this.stopping.signal.aborted) return;
      const problem = finding !== null && isProblem(finding) ? finding : null;
      this.recordProblems.value = withEntry(this.recordProblems.value, session, problem);
      if (finding === null || isProblem(finding)) return;
      this.recordNotices.value = withEntry(this.recordNotices.value, session, finding);
      // What is on the screen is of the log as it was, and new entries repeat its numbers.
      if (connection !== undefined && received !== null && this.connections.get(session) === connection) this.reopen(session, HISTORY_ENTRIES);
    } catch {
      // Not reachable now; the next round asks again.
    }
  }

  /** The person has read it. */
  dismissNotice(session: string): void {
    this.recordNotices.value = withEntry(this.recordNotices.value, session, null);
  }
}

function withEntry<T>(map: ReadonlyMap<string, T>, key: string, value: T | null): ReadonlyMap<string, T> {
  const others = [...map].filter(([known]) => known !== key);
  return new Map(value === null ? others : [...others, [key, value]]);
}

/** Waits, or less if the page is looked at again or the network is back. */
function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      stopListening();
      resolve();
    };
    const stopListening = onWake(done);
    const timer = setTimeout(done, milliseconds);
  });
}
