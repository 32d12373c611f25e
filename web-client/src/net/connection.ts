// One session over its WebSocket: joins, resumes by sequence number, sends what waits in the outbox.

import { signal } from "@preact/signals";
import type { ReadonlySignal } from "@preact/signals";
import type { OutputPage, OutputRead } from "@protocol";
import { parseServerMessage, View } from "../fold";
import type { Envelope } from "../fold";
import { t } from "../i18n";
import { TerminalSizes } from "../terminal/sizes";
import { shownWords } from "./api";
import type { TokenGuard } from "./api";
import type { Device } from "./device";
import type { ReceivedEntry } from "./head_memory";
import { freshId } from "./ids";
import { isStale, Outbox } from "./outbox";
import type { OutgoingMessage, WaitingMessage } from "./outbox";
import { onWake } from "./wake";

export type ConnectionState =
  /** Opening a socket, or waiting for the welcome. */
  | "connecting"
  | "open"
  /** The socket is lost; the next attempt comes by itself. */
  | "waiting"
  /** The server does not let us in; only a person can change that. */
  | "refused"
  | "closed";

/** Why a message was not accepted. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly code: string,
  ) {
    super(shownWords(message));
  }
}

interface Waiter {
  resolve(answer: unknown): void;
  reject(error: Refused): void;
}

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 15_000;
const JOIN_TIMEOUT_MS = 15_000;
/** After a sleep or a change of the network, a live server answers in this time. */
const PROBE_TIMEOUT_MS = 5000;
/** Who asks for something waits so long for a connection. */
const OPEN_TIMEOUT_MS = 10_000;
const MISSED_HEARTBEATS = 3;
/** How long messages are folded before the browser may draw. */
const SLICE_MS = 10;
/** Text that waits to be folded. A server that sends faster is asked again for what did not fit. */
const MAX_PENDING_CHARACTERS = 128 * 1024 * 1024;
/** Longer intervals are not allowed, and would overflow a timer. */
const MAX_HEARTBEAT_SECONDS = 3600;
/** How many items of the stream the page keeps. */
const MAX_STREAM_ITEMS = 100_000;

/** A message that is not sent, and why. */
export interface GivenBack {
  message: WaitingMessage;
  why: Refused;
}

export interface ConnectionOptions {
  session: string;
  device: Device;
  /** How many past entries to ask for. */
  history: number;
  /** Asked before the token goes into a socket. */
  guard?: TokenGuard;
  onMessage?: (envelope: Envelope) => void;
  /** Called when the server has let us in, or has said that it does not. */
  onJoinAnswered?: () => void;
  /** Called when a socket has ended, with what was received by then. */
  onEnded?: (received: ReceivedEntry) => void;
}

export class SessionConnection {
  readonly session: string;
  readonly view = new View({ maxItems: MAX_STREAM_ITEMS });
  /** Changes when the view has changed, at most once a frame. */
  readonly tick = signal(0);
  readonly state = signal<ConnectionState>("connecting");
  /** Why the server refused us, in its words. */
  readonly problem = signal<string | null>(null);
  /** How many messages wait to be acknowledged. */
  readonly unsent = signal(0);
  /** Those messages, with what pages that are gone have left behind. */
  readonly waiting = signal<readonly WaitingMessage[]>([]);
  /** How large the screens of interactive commands are. */
  readonly terminalSizes = new TerminalSizes();

  private readonly outbox: Outbox;
  /** What pages that are gone have left behind, until it is known what became of it. */
  private leftBehind: WaitingMessage[] = [];
  private readonly leftBehindFound: Promise<void>;
  /** What is not sent any more and nobody waits for, until somebody takes it. */
  private returned: GivenBack[] = [];
  /** Commands and prompts that went into a socket that was lost, until it is known whether they arrived. */
  private lostInSocket: WaitingMessage[] = [];
  private readonly waiters = new Map<string, Waiter>();
  private readonly options: ConnectionOptions;
  private socket: WebSocket | null = null;
  private delay = FIRST_DELAY_MS;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private silenceTimer: ReturnType<typeof setTimeout> | undefined;
  private pending: string[] = [];
  private pendingCharacters = 0;
  private draining = false;
  private drawScheduled = false;
  private isReplaying = false;
  private clockOffset = 0;
  private joinId = "";
  private lastReceived: ReceivedEntry | null = null;
  private readonly stopListening: () => void;

  constructor(options: ConnectionOptions) {
    this.options = options;
    this.session = options.session;
    this.outbox = new Outbox(`${options.device.participant}.${options.session}`);
    this.noteWaiting();
    this.leftBehindFound = this.findLeftBehind();
    this.stopListening = onWake(() => this.wake());
    addEventListener("pagehide", this.ended);
    this.connect();
  }

  /** Ends it; `leaving` says that whoever is signed in leaves the page, so that nobody types here any more. */
  close(why: "reopening" | "leaving" = "reopening"): void {
    this.stopListening();
    this.outbox.close();
    removeEventListener("pagehide", this.ended);
    clearTimeout(this.retryTimer);
    clearTimeout(this.silenceTimer);
    this.state.value = "closed";
    this.socket?.close(1000);
    this.socket = null;
    this.ended();
    const typed = new Set(this.outbox.waiting.filter(isTyped).map((message) => message.id));
    for (const [id, waiter] of this.waiters) {
      // What is kept is sent when the session is opened again, so it must not come back to be sent a second time.
      const mayComeBack = why === "reopening" || !typed.has(id);
      if (mayComeBack && !this.outbox.isKept(id)) waiter.reject(new Refused(t().net.closed, "CLOSED"));
    }
    this.waiters.clear();
  }

  /** The last entry that was received, so that a server that later has less is found out. */
  get received(): ReceivedEntry | null {
    return this.lastReceived;
  }

  /** The time by the server's clock, from which deadlines are measured. */
  now(): number {
    return Date.now() + this.clockOffset;
  }

  /** Sends a message, now or when the connection is back. Resolves when the server has it on disk. */
  send(type: string, payload: object, id: string = freshId()): Promise<void> {
    const message = { id, type, payload: payload as Record<string, unknown> };
    if (!this.outbox.add(message)) {
      return Promise.reject(new Refused(t().net.tooMany, "RATE_LIMITED"));
    }
    return new Promise<void>((resolve, reject) => {
      this.waiters.set(message.id, { resolve: () => resolve(), reject });
      if (this.state.value === "open") this.writeWaiting(message);
      this.noteWaiting();
    });
  }

  /** Gives a message back that has not gone out. */
  withdraw(id: string): void {
    const message = this.waiting.value.find((known) => known.id === id);
    if (message !== undefined && !message.isWritten) this.giveBack(message, new Refused(t().net.withdrawn, "WITHDRAWN"));
  }

  /** What was given back without anybody waiting for it, once. */
  takeReturned(): GivenBack[] {
    // Another tab may have taken some of it.
    const taken = this.returned.filter(({ message }) => this.outbox.isKept(message.id));
    this.returned = [];
    for (const { message } of taken) this.outbox.remove(message.id);
    return taken;
  }

  /** Reads lines of a command's output, soon. It is a question, so it is not kept for later. */
  async readOutput(read: OutputRead): Promise<OutputPage> {
    await this.becomeOpen();
    const id = freshId();
    return new Promise<OutputPage>((resolve, reject) => {
      this.waiters.set(id, { resolve: (answer) => resolve(answer as OutputPage), reject });
      this.write({ id, type: "output.read", payload: read });
    });
  }

  /** Resolves when the connection is open, if it soon is. */
  private async becomeOpen(): Promise<void> {
    const isComing = (state: ConnectionState) => state === "connecting" || state === "waiting";
    if (isComing(this.state.value)) await until(this.state, (state) => !isComing(state), OPEN_TIMEOUT_MS);
    if (this.state.value !== "open") throw new Refused(t().net.notConnected, "TRANSPORT_ERROR");
  }

  /** Sends what is not worth repeating, such as a draft; says whether it went out. */
  sendNow(type: string, payload: object): boolean {
    if (this.state.value !== "open") return false;
    this.write({ id: freshId(), type, payload });
    return true;
  }

  /** Tries again at once, or finds out whether a socket that seems open still leads anywhere. */
  private wake(): void {
    if (this.state.value === "open") {
      this.write({ id: freshId(), type: "heartbeat.ping", payload: {} });
      this.expectWithin(PROBE_TIMEOUT_MS);
    } else if (this.state.value === "waiting") {
      this.delay = FIRST_DELAY_MS;
      clearTimeout(this.retryTimer);
      this.connect();
    }
  }

  private connect(): void {
    this.state.value = "connecting";
    const url = new URL("/ws", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    const socket = new WebSocket(url, ["pvp.v1"]);
    this.socket = socket;
    socket.onopen = () => this.opened(socket);
    socket.onmessage = (event) => {
      if (typeof event.data === "string" && this.socket === socket) this.receive(event.data);
    };
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
    this.expectWithin(JOIN_TIMEOUT_MS);
  }

  private opened(socket: WebSocket): void {
    const { guard } = this.options;
    if (guard === undefined) return this.join();
    guard.confirm().then(
      () => {
        if (this.socket === socket) this.join();
      },
      () => {
        if (this.socket === socket) this.giveUp();
      },
    );
  }

  private join(): void {
    const { device, history } = this.options;
    const after = this.view.head > 0 ? { after: this.view.head } : { history };
    this.joinId = freshId();
    this.write({
      id: this.joinId,
      type: "session.join",
      payload: {
        participant: {
          id: device.participant,
          name: device.name,
          type: "human",
          roles: device.roles,
          transport: "websocket",
          metadata: { client: "pvp-web" },
        },
        token: device.token,
        supported_versions: [1],
        announce_others: false,
        ...after,
      },
    });
  }

  private write(message: { id: string; type: string; payload: unknown; ref?: string }): void {
    const envelope = {
      v: 1,
      ts: new Date(this.now()).toISOString(),
      session: this.session,
      sender: this.options.device.participant,
      ...message,
    };
    this.socket?.send(JSON.stringify(envelope));
  }

  /** Says what was received, also when the page goes away, which closes sockets without a word. */
  private readonly ended = (): void => {
    if (this.lastReceived !== null) this.options.onEnded?.(this.lastReceived);
  };

  private lost(): void {
    this.socket = null;
    this.options.guard?.doubt();
    clearTimeout(this.silenceTimer);
    this.ended();
    if (this.state.value === "refused" || this.state.value === "closed") return;
    this.state.value = "waiting";
    for (const [id, waiter] of this.waiters) {
      // What is in the outbox is sent again; a question is not.
      if (this.outbox.waiting.some((message) => message.id === id)) continue;
      this.waiters.delete(id);
      waiter.reject(new Refused(t().net.lost, "TRANSPORT_ERROR"));
    }
    const jitter = this.delay * (0.5 + Math.random() / 2);
    this.retryTimer = setTimeout(() => this.connect(), jitter);
    this.delay = Math.min(this.delay * 2, MAX_DELAY_MS);
  }

  /** Gives the socket up if nothing arrives in time. */
  private expectWithin(milliseconds: number): void {
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => this.giveUp(), milliseconds);
  }

  /** Leaves the socket. What has not been folded is asked for again. */
  private giveUp(): void {
    const socket = this.socket;
    this.pending = [];
    this.pendingCharacters = 0;
    this.lost();
    socket?.close();
  }

  private receive(text: string): void {
    this.pendingCharacters += text.length;
    if (this.pendingCharacters > MAX_PENDING_CHARACTERS) return this.giveUp();
    this.pending.push(text);
    if (!this.draining) {
      this.draining = true;
      queueMicrotask(this.drain);
    }
  }

  /** Folds what has arrived, a slice at a time, so that a long history does not freeze the page. */
  private readonly drain = (): void => {
    const until = performance.now() + SLICE_MS;
    let next = 0;
    while (next < this.pending.length && performance.now() < until) {
      // Looking at the clock costs more than folding, so several are folded per look.
      const end = Math.min(next + 64, this.pending.length);
      for (; next < end; next += 1) {
        const text = this.pending[next] as string;
        this.pendingCharacters -= text.length;
        this.take(text);
      }
    }
    this.pending = this.pending.slice(next);
    this.scheduleDraw();
    this.draining = this.pending.length > 0;
    if (this.draining) setTimeout(this.drain, 0);
  };

  private take(text: string): void {
    const envelope = parseServerMessage(text);
    if (envelope === null || envelope.session !== this.session) return;
    this.expectWithin(Math.min(this.view.config.heartbeat_interval_seconds, MAX_HEARTBEAT_SECONDS) * MISSED_HEARTBEATS * 1000 + JOIN_TIMEOUT_MS);
    const before = this.view.head;
    this.view.fold(envelope);
    if (this.view.head > before) this.lastReceived = { seq: this.view.head, at: this.now() };
    this.terminalSizes.note(envelope);
    const wasReplaying = this.isReplaying;
    this.isReplaying = this.view.isReplaying;
    this.answer(envelope);
    if (wasReplaying && !this.isReplaying) this.replayed();
    this.options.onMessage?.(envelope);
  }

  private answer(envelope: Envelope): void {
    switch (envelope.type) {
      case "session.welcome":
        this.clockOffset = Date.parse(envelope.ts ?? "") - Date.now() || 0;
        this.welcomed();
        break;
      case "session.ack":
        this.settle(envelope.payload.id, (waiter) => waiter.resolve(envelope.payload));
        break;
      case "output.page":
        if (envelope.ref !== undefined) this.settle(envelope.ref, (waiter) => waiter.resolve(envelope.payload));
        break;
      case "heartbeat.ping":
        this.write({ id: freshId(), type: "heartbeat.pong", payload: {}, ref: envelope.id });
        break;
      case "error":
        if (envelope.sender === "system") this.refused(envelope.payload);
        break;
      default:
        break;
    }
  }

  private welcomed(): void {
    this.state.value = "open";
    this.problem.value = null;
    this.delay = FIRST_DELAY_MS;
    this.sendWaiting();
    void this.leftBehindFound.then(() => this.settleLeftBehind());
    this.options.onJoinAnswered?.();
  }

  /** Sends what waits, but for what has waited for too long, and for commands and prompts that the server may have. */
  private sendWaiting(): void {
    this.lostInSocket = this.outbox.waiting.filter((message) => message.isWritten && isTyped(message));
    for (const message of [...this.outbox.waiting]) {
      if (this.outbox.isTaken(message.id)) this.giveBack(message, new Refused(t().net.takenElsewhere, "TAKEN"));
      else if (!message.isWritten && isStale(message)) this.giveBack(message, new Refused(t().net.stale, "STALE"));
      else if (!message.isWritten || !isTyped(message)) this.writeWaiting(message);
    }
    this.settleWritten();
    this.noteWaiting();
  }

  /**
   * Finds out what became of what was in a socket that was lost, when the past has been read. The server knows a
   * message by its id only as long as little has come after it, so what is there is not sent again.
   */
  private settleWritten(): void {
    if (this.state.value !== "open" || this.view.isReplaying) return;
    for (const message of this.lostInSocket.splice(0)) {
      if (this.hasArrived(message)) this.settle(message.id, (waiter) => waiter.resolve(undefined));
      else if (isStale(message)) this.giveBack(message, new Refused(t().net.unsure, "UNCERTAIN"));
      else this.writeWaiting(message);
    }
  }

  private replayed(): void {
    this.settleWritten();
    void this.leftBehindFound.then(() => this.settleLeftBehind());
  }

  private async findLeftBehind(): Promise<void> {
    const found = await this.outbox.leftBehind(() => void this.findLeftBehind().then(() => this.settleLeftBehind()));
    this.leftBehind = found.filter(({ id }) => !this.returned.some(({ message }) => message.id === id));
    this.noteWaiting();
  }

  /** Sends what pages that are gone have left behind, if it may still be meant; gives back the rest. */
  private settleLeftBehind(): void {
    if (this.state.value !== "open") return;
    for (const message of [...this.leftBehind]) {
      const mayArrive = message.isWritten && this.view.isReplaying;
      if (!this.outbox.isKept(message.id)) this.forgetLeftBehind(message);
      else if (this.hasArrived(message)) this.settle(message.id, () => undefined);
      else if (mayArrive) continue;
      else if (message.type === "prompt.submit" && !isStale(message)) this.resend(message);
      else this.giveBack(message, message.isWritten ? new Refused(t().net.unsure, "UNCERTAIN") : new Refused(t().net.leftBehind, "STALE"));
    }
    this.noteWaiting();
  }

  private resend(message: WaitingMessage): void {
    this.forgetLeftBehind(message);
    if (this.outbox.adopt(message)) this.writeWaiting(message);
  }

  private forgetLeftBehind(message: WaitingMessage): void {
    this.leftBehind = this.leftBehind.filter((known) => known.id !== message.id);
  }

  private hasArrived({ id }: WaitingMessage): boolean {
    return this.view.timelineItem(id) !== undefined || this.view.proposal(id) !== undefined;
  }

  /** Tells whoever waits for a message that it is not sent, or keeps it until somebody asks. */
  private giveBack(message: WaitingMessage, why: Refused): void {
    if (this.waiters.has(message.id)) return this.settle(message.id, (waiter) => waiter.reject(why));
    this.returned.push({ message, why });
    this.outbox.setAside(message.id);
    this.forgetLeftBehind(message);
    this.noteWaiting();
    this.scheduleDraw();
  }

  private writeWaiting(message: OutgoingMessage): void {
    this.write({ id: message.id, type: message.type, payload: message.payload });
    this.outbox.noteWritten(message.id);
  }

  private noteWaiting(): void {
    this.waiting.value = [...this.leftBehind, ...this.outbox.waiting].map((message) => ({ ...message }));
    this.unsent.value = this.waiting.value.length;
  }

  private refused(report: { related_to?: string; message: string; code: string }): void {
    const related = report.related_to;
    if (related !== undefined && related !== this.joinId) {
      this.settle(related, (waiter) => waiter.reject(new Refused(report.message, report.code)));
    } else if (this.state.value === "connecting") {
      this.problem.value = shownWords(report.message);
      const isFinal = report.code === "UNAUTHORIZED" || report.code === "SESSION_NOT_FOUND" || report.code === "INVALID_MESSAGE";
      if (isFinal) {
        this.state.value = "refused";
        this.socket?.close();
      }
      // A log that is shorter than what was received here is refused, too.
      this.options.onJoinAnswered?.();
    }
  }

  private settle(id: string, act: (waiter: Waiter) => void): void {
    this.outbox.remove(id);
    this.leftBehind = this.leftBehind.filter((message) => message.id !== id);
    this.noteWaiting();
    const waiter = this.waiters.get(id);
    this.waiters.delete(id);
    if (waiter) act(waiter);
  }

  private scheduleDraw(): void {
    if (this.drawScheduled) return;
    this.drawScheduled = true;
    const draw = () => {
      this.drawScheduled = false;
      this.tick.value += 1;
    };
    // A hidden page gets no frames, and its title and badge still count.
    if (document.visibilityState === "hidden") setTimeout(draw, 250);
    else requestAnimationFrame(draw);
  }
}

/** Whether a message is what somebody typed, so that it can go back to where they type. */
function isTyped(message: WaitingMessage): boolean {
  return message.type === "prompt.submit" || message.type === "shell.exec";
}

/** Waits until a signal has such a value, for so long at most. */
function until<T>(signal: ReadonlySignal<T>, isSuch: (value: T) => boolean, timeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => end(), timeoutMs);
    const stopWatching = signal.subscribe((value) => {
      if (isSuch(value)) queueMicrotask(() => end());
    });
    const end = () => {
      clearTimeout(timer);
      stopWatching();
      resolve();
    };
  });
}
