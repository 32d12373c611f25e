// Checks the record in the browser: every entry's hash covers the entry before it, and the server signs the last.

import type { ChainCheckpoint, ChainEntry, ChainPage, SessionHead } from "@protocol";
import { ApiError } from "../../net/api";
import type { Api } from "../../net/api";
import type { SeenHead } from "../../net/head_memory";
import { sessionPath } from "../request";
import { parseEntry } from "./entry";
import type { AuditEntry } from "./entry";
import { parseRawPage } from "./raw_messages";

export type Fault = "changed" | "hidden" | "gap" | "seen" | "signature" | "unsigned" | "short";

export type ChainResult =
  | { kind: "good"; entries: number; byHash: number; signed: SignedUpTo | null; unsigned: number; key: string; seen: number | null }
  | { kind: "bad"; fault: Fault; seq: number }
  /** The server has no such route. */
  | { kind: "no_route"; key: string }
  /** The browser has no cryptography on pages that are not https. */
  | { kind: "no_crypto" };

export interface SignedUpTo {
  seq: number;
  at: string;
  /** Whether the browser could verify the signature itself. */
  isVerified: boolean;
}

/** Entries that the server signs only with what follows them. */
const STREAMED = new Set(["tool.output", "response.chunk", "thinking.chunk"]);
/** The most such entries that a server leaves unsigned. */
const MAX_UNSIGNED = 256;
const PAGE = 1000;
/** How often an answer without entries is asked for again, and after how long. */
const MAX_TRIES = 4;
const PAUSE_MS = 500;

export interface ChainOptions {
  api: Api;
  session: string;
  /** What this device has seen of the record. */
  seen: SeenHead | null;
  signal: AbortSignal;
  onProgress(seq: number, head: number): void;
  /** Between questions that have no answer yet. */
  pauseMs?: number;
}

class BadChain extends Error {
  constructor(
    readonly fault: Fault,
    readonly seq: number,
  ) {
    super(fault);
  }
}

export async function checkChain(options: ChainOptions): Promise<ChainResult> {
  const { api, session, signal } = options;
  const stated = await api.get<SessionHead>(sessionPath(session, "head"), { signal });
  if (globalThis.crypto?.subtle === undefined) return { kind: "no_crypto" };
  try {
    return await new ChainReader(options, stated).read();
  } catch (error) {
    if (error instanceof BadChain) return { kind: "bad", fault: error.fault, seq: error.seq };
    if (error instanceof ApiError && error.status === 404) return { kind: "no_route", key: stated.key };
    throw error;
  }
}

class ChainReader {
  private seq = 0;
  private hash: Uint8Array = new Uint8Array();
  private byHash = 0;
  /** Entries after the last signature that should have one. */
  private unsigned: number[] = [];
  private signed: SignedUpTo | null = null;
  private signedWith: string | null = null;
  /** How the run of each command stands, by its proposal. */
  private readonly runs = new Map<string, "running" | "discarded" | "ended">();
  /** The grants that could not be checked, by their proposals. */
  private readonly uncheckedGrants = new Map<string, number>();

  constructor(
    private readonly options: ChainOptions,
    private readonly stated: SessionHead,
  ) {}

  async read(): Promise<ChainResult> {
    const { session, signal, onProgress } = this.options;
    this.hash = await genesisHash(session);
    // What is appended meanwhile is left for the next time.
    const end = this.stated.head.seq;
    let tries = 0;
    while (this.seq < end) {
      signal.throwIfAborted();
      const before = this.seq;
      await this.readPage(end);
      onProgress(this.seq, end);
      if (this.seq > before) continue;
      // The end of a log is stated a moment before its last entries are shown.
      if ((tries += 1) === MAX_TRIES) throw new BadChain("short", end);
      await new Promise((resolve) => setTimeout(resolve, this.options.pauseMs ?? PAUSE_MS));
    }
    if (hex(this.hash) !== this.stated.head.hash) throw new BadChain("changed", end);
    await this.checkGrants(end);
    return this.finish();
  }

  private async readPage(end: number): Promise<void> {
    const { api, session, signal } = this.options;
    const query = `?after=${this.seq}&limit=${Math.min(PAGE, end - this.seq)}`;
    const chain = await api.get<ChainPage>(sessionPath(session, `chain${query}`), { signal });
    const page = parseRawPage(await api.text(sessionPath(session, `messages${query}`)));
    const bodies = new Map(page.messages.map((message) => [seqOf(message), message]));
    for (const entry of chain.entries) {
      if (entry.seq > end || entry.seq > page.next) break;
      await this.addEntry(entry, bodies.get(entry.seq));
    }
    if (chain.checkpoint != null) await this.addCheckpoint(chain.checkpoint, chain.entries);
  }

  private async addEntry(entry: ChainEntry, body: string | undefined): Promise<void> {
    if (entry.seq !== this.seq + 1) throw new BadChain("gap", this.seq + 1);
    const stated = unhex(entry.hash, 32);
    if (stated === null) throw new BadChain("changed", entry.seq);
    const message = body === undefined ? null : parseEntry(body);
    if (body === undefined) this.addUnseen(entry);
    else if (entry.meta == null) this.addUnchecked(entry, message);
    else if (hex(await chainHash(this.hash, entry.meta, body)) !== entry.hash) throw new BadChain("changed", entry.seq);
    if (message !== null) this.noteRun(message);
    const { seen } = this.options;
    if (seen !== null && seen.seq === entry.seq && seen.hash !== entry.hash) throw new BadChain("seen", entry.seq);
    if (message !== null && !STREAMED.has(message.type)) this.unsigned.push(entry.seq);
    this.seq = entry.seq;
    this.hash = stated;
  }

  /** An entry whose message the server does not show to this person. It keeps the rest back too. */
  private addUnseen(entry: ChainEntry): void {
    if (entry.meta != null) throw new BadChain("hidden", entry.seq);
    this.byHash += 1;
  }

  /** A message that is shown, but cannot be checked: only the grant of a run that has not ended. */
  private addUnchecked(entry: ChainEntry, message: AuditEntry | null): void {
    const proposal = message?.type === "tool.execute" ? message.payload.tool_proposal : null;
    if (typeof proposal !== "string") throw new BadChain("hidden", entry.seq);
    this.byHash += 1;
    this.uncheckedGrants.set(proposal, Math.min(entry.seq, this.uncheckedGrants.get(proposal) ?? entry.seq));
  }

  /** Keeps whether the run of each command has ended. */
  private noteRun({ type, payload }: AuditEntry): void {
    const { tool_proposal: proposal } = payload;
    if (typeof proposal !== "string") return;
    if (type === "tool.execute") this.runs.set(proposal, "running");
    else if (type === "tool.discard") this.runs.set(proposal, "discarded");
    else if (type === "tool.result" && payload.more_output !== true) this.runs.set(proposal, "ended");
  }

  /**
   * The server shows how a grant is to be checked once its run has ended. What is in the record that
   * was read had happened before the server was asked, so for a run that ended there is no excuse.
   */
  private async checkGrants(end: number): Promise<void> {
    for (const [proposal, seq] of this.uncheckedGrants) {
      const run = this.runs.get(proposal);
      if (run === "ended" || (run === "discarded" && !(await this.isGrantedAgain(proposal, end)))) throw new BadChain("hidden", seq);
    }
  }

  /** Whether a command whose trial was discarded was granted again while the record was read. */
  private async isGrantedAgain(proposal: string, end: number): Promise<boolean> {
    const { api, session } = this.options;
    const page = parseRawPage(await api.text(sessionPath(session, `messages?after=${end}&limit=${PAGE}`)));
    return page.messages.some((text) => {
      const message = parseEntry(text);
      return message?.type === "tool.execute" && message.payload.tool_proposal === proposal;
    });
  }

  private async addCheckpoint(checkpoint: ChainCheckpoint, entries: ChainEntry[]): Promise<void> {
    const { seq } = checkpoint;
    if (seq > this.seq || (this.signed !== null && seq <= this.signed.seq)) return;
    const entry = entries.find((candidate) => candidate.seq === seq);
    if (entry === undefined) return;
    const isKnown = [this.stated.key, ...this.stated.earlier_keys].includes(checkpoint.key);
    if (entry.hash !== checkpoint.hash || !isKnown) throw new BadChain("signature", seq);
    const verified = await verifyCheckpoint(this.options.session, checkpoint);
    if (verified === false) throw new BadChain("signature", seq);
    this.signed = { seq, at: checkpoint.at, isVerified: verified === true };
    this.signedWith = checkpoint.key;
    this.unsigned = this.unsigned.filter((later) => later > seq);
  }

  private finish(): ChainResult {
    const unsigned = this.seq - (this.signed?.seq ?? 0);
    const [first] = this.unsigned;
    if (first !== undefined) throw new BadChain("unsigned", first);
    if (unsigned >= MAX_UNSIGNED) throw new BadChain("unsigned", (this.signed?.seq ?? 0) + 1);
    // A server that changes its key signs the end of every log again.
    if (this.signed !== null && this.signedWith !== this.stated.key) throw new BadChain("signature", this.signed.seq);
    const { seen } = this.options;
    if (seen !== null && seen.seq > this.seq) throw new BadChain("short", seen.seq);
    return { kind: "good", entries: this.seq, byHash: this.byHash, signed: this.signed, unsigned, key: this.stated.key, seen: seen?.seq ?? null };
  }
}

const encoder = new TextEncoder();

export async function genesisHash(session: string): Promise<Uint8Array> {
  return sha256(encoder.encode(`pvp.genesis.v1\0${session}`));
}

export async function chainHash(before: Uint8Array, meta: string, body: string): Promise<Uint8Array> {
  const metaBytes = encoder.encode(meta);
  return sha256(joined([encoder.encode("pvp.entry.v1\0"), before, littleEndian(metaBytes.length), metaBytes, encoder.encode(body)]));
}

/** Whether the key that it names has signed it; `null` if this browser cannot tell. */
export async function verifyCheckpoint(session: string, checkpoint: ChainCheckpoint): Promise<boolean | null> {
  const key = unhex(checkpoint.key, 32);
  const signature = unhex(checkpoint.signature, 64);
  const message = checkpointMessage(session, checkpoint);
  if (key === null || signature === null || message === null) return false;
  try {
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", imported, signature, message);
  } catch {
    return null;
  }
}

/** What a checkpoint signs, as `server/src/store/checkpoint.rs` writes it. */
function checkpointMessage(session: string, checkpoint: ChainCheckpoint): Uint8Array<ArrayBuffer> | null {
  const hash = unhex(checkpoint.hash, 32);
  const snapshot = checkpoint.snapshot == null ? new Uint8Array() : unhex(checkpoint.snapshot, 32);
  const at = Date.parse(checkpoint.at);
  if (hash === null || snapshot === null || Number.isNaN(at)) return null;
  const context = checkpoint.snapshot == null ? "pvp.checkpoint.v1\0" : "pvp.checkpoint.v2\0";
  const name = encoder.encode(session);
  return joined([encoder.encode(context), littleEndian(name.length), name, littleEndian(checkpoint.seq), hash, littleEndian(at), snapshot]);
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** A number in eight bytes, the lowest first. */
function littleEndian(value: number): Uint8Array {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigInt64(0, BigInt(value), true);
  return new Uint8Array(view.buffer);
}

function joined(parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function unhex(text: string, length: number): Uint8Array<ArrayBuffer> | null {
  if (text.length !== length * 2 || !/^[0-9a-f]*$/.test(text)) return null;
  return Uint8Array.from({ length }, (_, at) => Number.parseInt(text.slice(at * 2, at * 2 + 2), 16));
}

function seqOf(message: string): number {
  const { seq } = JSON.parse(message) as { seq?: number };
  return seq ?? 0;
}
