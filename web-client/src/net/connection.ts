// One session over its WebSocket: joins, resumes by sequence number, sends what waits in the outbox.

import { signal } from "@preact/signals";
import type { OutputPage, OutputRead } from "@protocol";
import { parseServerMessage, View } from "../fold";
import type { Envelope } from "../fold";
import type { Device } from "./device";
import { freshId } from "./ids";
import { Outbox } from "./outbox";

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
    super(message);
  }
}

interface Waiter {
  resolve(answer: unknown): void;
  reject(error: Refused): void;
}

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 15_000;
const JOIN_TIMEOUT_MS = 15_000;
const MISSED_HEARTBEATS = 3;
/** How long messages are folded before the browser may draw. */
const SLICE_MS = 10;
/** How many items of the stream the page keeps. */
const MAX_STREAM_ITEMS = 100_000;

export interface ConnectionOptions {
  session: string;
  device: Device;
  /** How many past entries to ask for. */
  history: number;
  onMessage?: (envelope: Envelope) => void;
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

  private readonly outbox: Outbox;
  private readonly waiters = new Map<string, Waiter>();
  private readonly options: ConnectionOptions;
  private socket: WebSocket | null = null;
  private delay = FIRST_DELAY_MS;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private silenceTimer: ReturnType<typeof setTimeout> | undefined;
  private pending: string[] = [];
  private draining = false;
  private drawScheduled = false;
  private clockOffset = 0;
  private joinId = "";

  constructor(options: ConnectionOptions) {
    this.options = options;
    this.session = options.session;
    this.outbox = new Outbox(`${options.device.participant}.${options.session}`);
    this.unsent.value = this.outbox.waiting.length;
    addEventListener("online", this.wake);
    document.addEventListener("visibilitychange", this.wake);
    this.connect();
  }

  close(): void {
    removeEventListener("online", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
    clearTimeout(this.retryTimer);
    clearTimeout(this.silenceTimer);
    this.state.value = "closed";
    this.socket?.close(1000);
    this.socket = null;
    for (const waiter of this.waiters.values()) waiter.reject(new Refused("the session was closed here", "CLOSED"));
    this.waiters.clear();
  }

  /** The time by the server's clock, from which deadlines are measured. */
  now(): number {
    return Date.now() + this.clockOffset;
  }

  /** Sends a message, now or when the connection is back. Resolves when the server has it on disk. */
  send(type: string, payload: object): Promise<void> {
    const message = { id: freshId(), type, payload: payload as Record<string, unknown> };
    if (!this.outbox.add(message)) {
      return Promise.reject(new Refused("too many messages wait to be sent", "RATE_LIMITED"));
    }
    this.unsent.value = this.outbox.waiting.length;
    return new Promise<void>((resolve, reject) => {
      this.waiters.set(message.id, { resolve: () => resolve(), reject });
      if (this.state.value === "open") this.write(message);
    });
  }

  /** Reads lines of a command's output. It is a question, so it is not kept for later. */
  readOutput(read: OutputRead): Promise<OutputPage> {
    if (this.state.value !== "open") return Promise.reject(new Refused("not connected", "TRANSPORT_ERROR"));
    const id = freshId();
    return new Promise<OutputPage>((resolve, reject) => {
      this.waiters.set(id, { resolve: (answer) => resolve(answer as OutputPage), reject });
      this.write({ id, type: "output.read", payload: read });
    });
  }

  /** Sends what is not worth repeating, such as a draft; says whether it went out. */
  sendNow(type: string, payload: object): boolean {
    if (this.state.value !== "open") return false;
    this.write({ id: freshId(), type, payload });
    return true;
  }

  private readonly wake = (): void => {
    if (document.visibilityState === "hidden" || this.state.value !== "waiting") return;
    this.delay = FIRST_DELAY_MS;
    clearTimeout(this.retryTimer);
    this.connect();
  };

  private connect(): void {
    this.state.value = "connecting";
    const url = new URL("/ws", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    const socket = new WebSocket(url, ["pvp.v1"]);
    this.socket = socket;
    socket.onopen = () => this.join();
    socket.onmessage = (event) => {
      if (typeof event.data === "string" && this.socket === socket) this.receive(event.data);
    };
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
    this.expectWithin(JOIN_TIMEOUT_MS);
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

  private lost(): void {
    this.socket = null;
    clearTimeout(this.silenceTimer);
    if (this.state.value === "refused" || this.state.value === "closed") return;
    this.state.value = "waiting";
    for (const [id, waiter] of this.waiters) {
      // What is in the outbox is sent again; a question is not.
      if (this.outbox.waiting.some((message) => message.id === id)) continue;
      this.waiters.delete(id);
      waiter.reject(new Refused("the connection was lost", "TRANSPORT_ERROR"));
    }
    const jitter = this.delay * (0.5 + Math.random() / 2);
    this.retryTimer = setTimeout(() => this.connect(), jitter);
    this.delay = Math.min(this.delay * 2, MAX_DELAY_MS);
  }

  /** Gives the socket up if nothing arrives in time. */
  private expectWithin(milliseconds: number): void {
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => {
      const socket = this.socket;
      this.lost();
      socket?.close();
    }, milliseconds);
  }

  private receive(text: string): void {
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
      for (; next < end; next += 1) this.take(this.pending[next] as string);
    }
    this.pending = this.pending.slice(next);
    this.scheduleDraw();
    this.draining = this.pending.length > 0;
    if (this.draining) setTimeout(this.drain, 0);
  };

  private take(text: string): void {
    const envelope = parseServerMessage(text);
    if (envelope === null || envelope.session !== this.session) return;
    this.expectWithin(this.view.config.heartbeat_interval_seconds * MISSED_HEARTBEATS * 1000 + JOIN_TIMEOUT_MS);
    this.view.fold(envelope);
    this.answer(envelope);
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
    for (const message of this.outbox.waiting) this.write(message);
  }

  private refused(report: { related_to?: string; message: string; code: string }): void {
    const related = report.related_to;
    if (related !== undefined && related !== this.joinId) {
      this.settle(related, (waiter) => waiter.reject(new Refused(report.message, report.code)));
    } else if (this.state.value === "connecting") {
      this.problem.value = report.message;
      const isFinal = report.code === "UNAUTHORIZED" || report.code === "SESSION_NOT_FOUND" || report.code === "INVALID_MESSAGE";
      if (isFinal) {
        this.state.value = "refused";
        this.socket?.close();
      }
    }
  }

  private settle(id: string, act: (waiter: Waiter) => void): void {
    this.outbox.remove(id);
    this.unsent.value = this.outbox.waiting.length;
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
