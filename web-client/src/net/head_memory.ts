// The highest end of each log that this browser has seen. A server that later offers less, or
// another entry in that place, has lost or rewritten a part of the record, and is called out.

import type { SessionHead } from "@protocol";
import type { Api } from "./api";
import { isObject, load, save } from "./storage";

export interface SeenHead {
  seq: number;
  hash: string;
  key: string;
}

export type RecordProblem =
  | { kind: "shorter"; seen: number; offered: number }
  | { kind: "rewritten"; seq: number }
  | { kind: "other_key" };

export function seenHead(session: string): SeenHead | null {
  return load(`head.${session}`, (value) => {
    if (!isObject(value)) return null;
    const { seq, hash, key } = value;
    if (typeof seq !== "number" || typeof hash !== "string" || typeof key !== "string") return null;
    return { seq, hash, key };
  });
}

/** What an answer says about the record, compared with what was seen before. */
export function compareHeads(seen: SeenHead | null, answer: SessionHead): RecordProblem | null {
  if (seen === null) return null;
  if (answer.head.seq < seen.seq) return { kind: "shorter", seen: seen.seq, offered: answer.head.seq };
  if (answer.entry?.seq !== seen.seq || answer.entry.hash !== seen.hash) return { kind: "rewritten", seq: seen.seq };
  const known = [answer.key, ...answer.earlier_keys];
  return known.includes(seen.key) ? null : { kind: "other_key" };
}

/** Asks the server where the log ends, compares, and remembers it if all is well. */
export async function checkRecord(api: Api, session: string): Promise<RecordProblem | null> {
  const seen = seenHead(session);
  const query = seen === null ? "" : `?at=${seen.seq}`;
  const answer = await api.get<SessionHead>(`/api/sessions/${encodeURIComponent(session)}/head${query}`);
  const problem = compareHeads(seen, answer);
  if (problem === null && answer.head.seq > (seen?.seq ?? 0)) {
    save(`head.${session}`, { seq: answer.head.seq, hash: answer.head.hash, key: answer.key });
  }
  return problem;
}
