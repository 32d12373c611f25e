// The last end of each log that this browser has seen. A server that later offers less, or another
// entry in that place, has lost or rewritten a part of the record, and is called out, unless its
// operator has declared a restore since. A server is known by its key, and what was seen outlives
// the token that it was seen with: the rules are those of `client/src/record.rs`.

import type { SessionHead } from "@protocol";
import type { Api } from "./api";
import { forget, isObject, keysWith, load, save } from "./storage";

/** Where a log ended when it was last seen. */
export interface SeenHead {
  seq: number;
  hash: string;
  /** The server's key. */
  key: string;
  /** The server's clock at that time, in milliseconds; 0 if an older page kept it without. */
  at: number;
  /** What was received after that, if the server could not be asked for its hash any more. */
  received?: ReceivedEntry;
}

/** The last entry that an open connection has received, and when by the server's clock. */
export interface ReceivedEntry {
  seq: number;
  at: number;
}

export type RecordProblem = { kind: "shorter"; seen: number; offered: number } | { kind: "rewritten"; seq: number };

/** What a person should know, although it is no sign that somebody tampered. */
export type RecordNotice = { kind: "restored"; at: string; seen: number } | { kind: "other_key" };

export type RecordFinding = RecordProblem | RecordNotice;

export function isProblem(finding: RecordFinding): finding is RecordProblem {
  return finding.kind === "shorter" || finding.kind === "rewritten";
}

/** Sessions that are remembered; above this, those that were not seen for longest are forgotten. */
const MAX_SESSIONS = 500;
/** Servers that are remembered for one session. */
const MAX_SERVERS = 8;
const PREFIX = "head.";

/** What this browser has seen last of a session's log. */
export function seenHead(session: string): SeenHead | null {
  return latest(loadHeads(session));
}

function loadHeads(session: string): SeenHead[] {
  // An older page kept one head, without its time.
  return load(PREFIX + session, (value) => (Array.isArray(value) ? value : [value]).map(parseHead).filter((head) => head !== null)) ?? [];
}

function parseHead(value: unknown): SeenHead | null {
  if (!isObject(value)) return null;
  const { seq, hash, key, at } = value;
  if (typeof seq !== "number" || typeof hash !== "string" || typeof key !== "string") return null;
  const received = parseReceived(value.received);
  return { seq, hash, key, at: typeof at === "number" ? at : 0, ...(received === null ? {} : { received }) };
}

function parseReceived(value: unknown): ReceivedEntry | null {
  if (!isObject(value) || typeof value.seq !== "number" || typeof value.at !== "number") return null;
  return { seq: value.seq, at: value.at };
}

function latest(heads: readonly SeenHead[]): SeenHead | null {
  return heads.reduce<SeenHead | null>((best, head) => (best === null || head.at >= best.at ? head : best), null);
}

/** What is remembered of the log of this server, which may have had another key. */
function knownOf(heads: readonly SeenHead[], answer: SessionHead): SeenHead | null {
  return latest(heads.filter((head) => isOfServer(head, answer)));
}

function isOfServer(head: SeenHead, answer: SessionHead): boolean {
  return head.key === answer.key || answer.earlier_keys.includes(head.key);
}

/** What is odd about the log that a server offers, compared with what was seen and received of it. */
export function compareHeads(seen: SeenHead, answer: SessionHead, received: ReceivedEntry | null = null): RecordProblem | RecordNotice | null {
  const { head, entry } = answer;
  const isSame = entry?.seq === seen.seq && entry.hash === seen.hash;
  const wrong = [
    ...(head.seq < seen.seq || !isSame ? [seen] : []),
    ...[seen.received, received].filter((entry) => entry != null).filter((entry) => head.seq < entry.seq),
  ];
  if (wrong.length === 0) return null;
  const most = Math.max(...wrong.map(({ seq }) => seq));
  const restoredAt = Date.parse(answer.restored_at ?? "");
  // A restore excuses only what was seen before it.
  if (wrong.every(({ at }) => restoredAt > at)) return { kind: "restored", at: answer.restored_at ?? "", seen: most };
  return head.seq < most ? { kind: "shorter", seen: most, offered: head.seq } : { kind: "rewritten", seq: seen.seq };
}

/**
 * Asks the server where the log ends, compares, and remembers it unless it is less or other.
 * `received` says what has been received by now.
 */
export async function checkRecord(api: Api, session: string, received: ReceivedEntry | null = null): Promise<RecordFinding | null> {
  const heads = loadHeads(session);
  const newest = latest(heads);
  let answer = await askHead(api, session, newest);
  const known = knownOf(heads, answer);
  if (known !== null && known !== newest) answer = await askHead(api, session, known);
  const finding = known === null ? otherServer(heads) : compareHeads(known, answer, received);
  if (finding === null || !isProblem(finding)) remember(session, answer, known);
  return finding;
}

/** Remembers what was received, when the connection ends and the server may be another one by the next time. */
export function rememberReceived(session: string, received: ReceivedEntry): void {
  const heads = loadHeads(session);
  const newest = latest(heads);
  if (newest === null || received.seq <= Math.max(newest.seq, newest.received?.seq ?? 0)) return;
  // What a restore has taken away is not missed again.
  if (received.at <= newest.at) return;
  save(PREFIX + session, [...heads.filter((head) => head !== newest), { ...newest, received }]);
}

function askHead(api: Api, session: string, seen: SeenHead | null): Promise<SessionHead> {
  const query = seen === null ? "" : `?at=${seen.seq}`;
  return api.get<SessionHead>(`/api/sessions/${encodeURIComponent(session)}/head${query}`);
}

/** Another server has been seen at this address. */
function otherServer(heads: readonly SeenHead[]): RecordNotice | null {
  return heads.length === 0 ? null : { kind: "other_key" };
}

/** Puts the head in the place of what was remembered of the same server, with which it was compared. */
function remember(session: string, answer: SessionHead, compared: SeenHead | null): void {
  const { seq, hash } = answer.head;
  const at = Date.parse(answer.now);
  const heads = loadHeads(session);
  const known = knownOf(heads, answer);
  // Another tab may have seen more meanwhile.
  if (known !== null && known.at !== compared?.at && known.seq >= seq) return;
  const others = heads.filter((head) => !isOfServer(head, answer)).sort((a, b) => a.at - b.at);
  if (heads.length === 0) forgetOldest();
  save(PREFIX + session, [...others.slice(1 - MAX_SERVERS), { seq, hash, key: answer.key, at }]);
}

/** Makes room for one more session. */
function forgetOldest(): void {
  const keys = keysWith(PREFIX);
  if (keys.length < MAX_SESSIONS) return;
  const seenAt = (key: string) => seenHead(key.slice(PREFIX.length))?.at ?? 0;
  const oldest = keys.map((key) => [seenAt(key), key] as const).sort(([a], [b]) => a - b);
  for (const [, key] of oldest.slice(0, keys.length + 1 - MAX_SESSIONS)) forget(key);
}
