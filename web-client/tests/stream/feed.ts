// A session without a server: a connection whose messages a test or a bench writes itself.

import { signal } from "@preact/signals";
import type { OutputPage, OutputRead } from "@protocol";
import { parseServerMessage, View } from "../../src/fold";
import { Refused } from "../../src/net/connection";
import type { ConnectionState, GivenBack, SessionConnection } from "../../src/net/connection";
import type { WaitingMessage } from "../../src/net/outbox";
import { TerminalSizes } from "../../src/terminal/sizes";

const SESSION = "feed";
const START = Date.parse("2026-01-01T00:00:00Z");

export interface Sent {
  id: string;
  type: string;
  payload: Record<string, unknown>;
}

interface Pending {
  resolve(): void;
  reject(error: Refused): void;
}

export interface Delivery {
  sender?: string;
  id?: string;
  ref?: string;
  /** Milliseconds after the beginning. */
  at?: number;
  isEphemeral?: boolean;
}

export class Feed {
  readonly session = SESSION;
  readonly view = new View({ maxItems: 100_000 });
  readonly tick = signal(0);
  readonly state = signal<ConnectionState>("open");
  readonly problem = signal<string | null>(null);
  readonly unsent = signal(0);
  readonly waiting = signal<readonly WaitingMessage[]>([]);
  /** What the connection gives back at the next change. */
  returned: GivenBack[] = [];
  readonly terminalSizes = new TerminalSizes();
  readonly sent: Sent[] = [];
  /** Every message that was delivered, as the HTTP API would list it. */
  readonly log: Record<string, unknown>[] = [];
  pages: (read: OutputRead) => Promise<OutputPage> = () => Promise.reject(new Refused("no output", "INVALID_STATE"));
  private readonly pending = new Map<string, Pending>();
  private seq = 0;
  private time = START;

  /** As the parts of the page take it. */
  get connection(): SessionConnection {
    return this as unknown as SessionConnection;
  }

  withdraw: (id: string) => void = () => undefined;

  takeReturned(): GivenBack[] {
    return this.returned.splice(0);
  }

  now(): number {
    return this.time;
  }

  send(type: string, payload: object, id = `sent-${this.sent.length + 1}`): Promise<void> {
    this.sent.push({ id, type, payload: payload as Record<string, unknown> });
    this.unsent.value += 1;
    return new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
  }

  sendNow(type: string, payload: object): boolean {
    if (this.state.value !== "open") return false;
    this.sent.push({ id: `now-${this.sent.length + 1}`, type, payload: payload as Record<string, unknown> });
    return true;
  }

  readOutput(read: OutputRead): Promise<OutputPage> {
    return this.pages(read);
  }

  /** The server accepts or refuses what was sent. */
  async answer(id: string, refusal?: string): Promise<void> {
    const waiter = this.pending.get(id);
    this.pending.delete(id);
    this.unsent.value -= 1;
    if (refusal === undefined) waiter?.resolve();
    else waiter?.reject(new Refused(refusal, "INVALID_STATE"));
    await Promise.resolve();
  }

  /** The last message of a type that was sent. */
  last(type: string): Sent | undefined {
    return this.sent.findLast((message) => message.type === type);
  }

  deliver(type: string, payload: object, options: Delivery = {}): string {
    if (options.at !== undefined) this.time = START + options.at;
    const isLogged = options.isEphemeral !== true && type !== "session.welcome";
    if (isLogged) this.seq += 1;
    const id = options.id ?? `m${this.seq}`;
    const message = {
      v: 1,
      id,
      ts: new Date(this.time).toISOString(),
      session: SESSION,
      sender: options.sender ?? "system",
      type,
      payload,
      ...(options.ref === undefined ? {} : { ref: options.ref }),
      ...(isLogged ? { seq: this.seq } : {}),
    };
    if (isLogged) this.log.push(message);
    const envelope = parseServerMessage(JSON.stringify(message));
    if (envelope === null || envelope.type === "unknown") throw new Error(`not a message: ${JSON.stringify(message)}`);
    this.view.fold(envelope);
    this.terminalSizes.note(envelope);
    return id;
  }

  draw(): void {
    this.tick.value += 1;
  }

  /** The viewer `ann` and an agent `bot` are there. */
  begin(roles: string[] = ["admin", "driver"], capabilities: string[] = ["prompt", "approve", "interrupt", "exec"]): this {
    this.deliver("session.welcome", welcome(roles, capabilities));
    this.deliver("session.create", { name: "blue owl", config: CONFIG }, { sender: "ann" });
    this.deliver("participant.announce", { id: "ann", name: "Ann", type: "human", roles, transport: "websocket" }, { sender: "ann" });
    const executor = { profiles: ["read"], shell_exec: true, working_directory: "/work" };
    this.deliver("participant.announce", { id: "bot", name: "Bot", type: "agent", roles: [], transport: "websocket", executor }, { sender: "bot" });
    this.draw();
    return this;
  }

  /** An agent proposes a read, which runs at once. */
  runCommand(id: string, line: string, options: { mode?: string; driver?: string } = {}): void {
    const { mode = "normal", driver } = options;
    const assessment = { category: "read", risk: "safe", rule: "read.ls", reason: "lists files", profile: "read", digest: DIGEST, policy: DIGEST };
    const propose = { tool_name: "shell", arguments: { full_command: line, mode, driver }, agent: "bot", risk_level: "safe", description: "look", requires_approval: false, category: "shell_execute", assessment };
    this.deliver("tool.propose", propose, { id, sender: "bot" });
    const action = { command: { form: "shell", line }, mode, ...(driver === undefined ? {} : { driver }) };
    const grant = { id: `${id}-grant`, executor: "bot", action, digest: DIGEST, expires_at: "2026-01-01T01:00:00.000Z", cleared_by: "read", ...(driver === undefined ? {} : { driver }) };
    this.deliver("tool.execute", { tool_proposal: id, approved_by: [], grant }, { ref: id });
  }

  print(id: string, text: string, stream: "stdout" | "stderr" = "stdout"): void {
    this.deliver("tool.output", { tool_proposal: id, stream, text, complete: false }, { sender: "bot" });
  }

  finish(id: string, exitCode = 0): void {
    const result = { exitCode, stdout: "", stderr: "" };
    this.deliver("tool.result", { tool_proposal: id, success: exitCode === 0, result, duration_ms: 120, outcome: "known", output_ref: id }, { sender: "bot" });
  }

  /** The agent says something, in pieces. */
  say(text: string, options: { isOpen?: boolean; id?: string } = {}): string {
    const id = this.deliver("response.start", { agent: "bot", prompt_ref: "m1" }, { sender: "bot", ...(options.id === undefined ? {} : { id: options.id }) });
    this.deliver("response.chunk", { text }, { sender: "bot", ref: id });
    if (options.isOpen !== true) this.deliver("response.end", { finish_reason: "complete" }, { sender: "bot", ref: id });
    return id;
  }
}

/** Fills a stream with entries of every height. */
export function fillStream(feed: Feed, entries: number): void {
  for (let number = 0; number < entries; number += 1) {
    if (number % 10 === 0) feed.say(`Answer **${number}**\n\n- one\n- two\n\n\`\`\`\ncode ${number}\n\`\`\``);
    else if (number % 10 === 5) feed.deliver("prompt.submit", { content: `Question ${number}`, target_agent: "bot", contributors: ["ann"], context_keys: [] }, { sender: "ann" });
    else feed.deliver("context.update", { key: `note-${number}`, new_content: "x", reason: "because" }, { sender: "ann" });
  }
}

const DIGEST = "bb20b62a9cb630d09848db412a55f09012905908f9124d9f0af3f796e31ad142";

const CONFIG = {
  require_approval_for: [],
  default_gate_quorum: { type: "any", count: 1 },
  allow_forks: true,
  max_participants: 10,
  ordering_mode: "causal",
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

function welcome(roles: string[], capabilities: string[]): object {
  return {
    participant: "ann",
    roles,
    capabilities,
    name: "blue owl",
    config: CONFIG,
    head: 0,
    people: [{ id: "ann", name: "Ann", type: "human", roles, transport: "websocket", presence: "active" }],
    gates: [],
    running: [],
    limits: { message_bytes: 1_048_576, json_depth: 64, messages_per_second: 200, message_burst: 1000, participants: 200, open_proposals: 32, open_gates: 100, context_bytes: 8_388_608, proposals: 100_000 },
    extensions: { supports_shell_exec: true, supports_amend: true, supports_allow_rules: true, supports_resume: true, supports_output_read: true, supports_forks: false },
    server: "pvp",
  };
}
