// A log with a real chain and a real key, as a server keeps it.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import type { KeyObject } from "node:crypto";
import type { ChainPage } from "@protocol";

export interface LogEntry {
  seq: number;
  meta: string;
  body: string;
  hash: string;
  /** Whether the reader may see it. */
  isVisible: boolean;
}

const SESSION = "blue-owl";

export class ChainedLog {
  readonly entries: LogEntry[] = [];
  readonly key: string;
  /** The entries that have a signature. */
  readonly signed = new Map<number, ChainPage["checkpoint"]>();
  private readonly secret: KeyObject;

  constructor() {
    const pair = generateKeyPairSync("ed25519");
    this.secret = pair.privateKey;
    this.key = (pair.publicKey.export({ format: "der", type: "spki" }) as Buffer).subarray(-32).toString("hex");
  }

  add(type: string, payload: object, options: { meta?: string; isVisible?: boolean; sign?: boolean; sender?: string } = {}): LogEntry {
    const seq = this.entries.length + 1;
    const ts = "2026-11-18T10:00:00.000Z";
    const body = JSON.stringify({ v: 1, id: `m-${seq}`, ts, session: SESSION, sender: options.sender ?? "ann", type, payload, seq });
    const meta = options.meta ?? "";
    const before = this.entries.at(-1)?.hash ?? hash(Buffer.from(`pvp.genesis.v1\0${SESSION}`));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(Buffer.byteLength(meta)));
    const entry = { seq, meta, body, hash: hash(Buffer.from("pvp.entry.v1\0"), Buffer.from(before, "hex"), length, Buffer.from(meta), Buffer.from(body)), isVisible: options.isVisible ?? true };
    this.entries.push(entry);
    if (options.sign ?? true) this.sign(entry.seq);
    return entry;
  }

  sign(seq: number, snapshot?: string): void {
    const entry = this.entries[seq - 1] as LogEntry;
    const at = "2026-11-18T10:00:01.250Z";
    const number = (value: number) => {
      const bytes = Buffer.alloc(8);
      bytes.writeBigInt64LE(BigInt(value));
      return bytes;
    };
    const context = snapshot === undefined ? "pvp.checkpoint.v1\0" : "pvp.checkpoint.v2\0";
    const parts = [Buffer.from(context), number(SESSION.length), Buffer.from(SESSION), number(seq), Buffer.from(entry.hash, "hex"), number(Date.parse(at)), Buffer.from(snapshot ?? "", "hex")];
    const signature = sign(null, Buffer.concat(parts), this.secret).toString("hex");
    this.signed.set(seq, { seq, hash: entry.hash, at, key: this.key, signature, ...(snapshot === undefined ? {} : { snapshot }) });
  }

  get head() {
    const { seq, hash } = this.entries.at(-1) as LogEntry;
    return { session: SESSION, head: { seq, hash }, key: this.key, earlier_keys: [], now: "2026-11-18T11:00:00Z" };
  }

  chain(after: number, limit: number): ChainPage {
    const entries = this.entries.filter((entry) => entry.seq > after && entry.seq <= after + limit);
    const next = entries.at(-1)?.seq ?? after;
    const checkpoint = [...this.signed.values()].filter((known) => known !== undefined && known.seq <= next).at(-1);
    const shown = entries.map(({ seq, hash, meta, isVisible }) => (isVisible ? { seq, hash, meta } : { seq, hash }));
    return { entries: shown, next, head: this.entries.length, ...(checkpoint === undefined ? {} : { checkpoint }) };
  }

  /** A page of messages, as the server writes it. */
  messages(after: number, limit: number): string {
    const entries = this.entries.filter((entry) => entry.seq > after && entry.seq <= after + limit);
    const bodies = entries.filter((entry) => entry.isVisible).map((entry) => entry.body);
    return `{"messages":[${bodies.join(",")}],"next":${entries.at(-1)?.seq ?? after},"head":${this.entries.length}}`;
  }
}

function hash(...parts: Buffer[]): string {
  return createHash("sha256").update(Buffer.concat(parts)).digest("hex");
}
