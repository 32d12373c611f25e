// Sends what a person decided. Every vote and every edit carries the digest that was on the screen,
// and an id of its own, so that trying again never votes twice.

import { useRef, useState } from "preact/hooks";
import type { EditRequest, GateDetails, GateUpdateResponse, PolicyAllow, SessionAck, VoteRequest } from "@protocol";
import { t } from "../i18n";
import { ApiError } from "../net/api";
import type { Api } from "../net/api";
import { freshId } from "../net/ids";
import { serverNow } from "../net/server_clock";
import type { CardModel } from "./model";

export type Ballot = { vote: "approve"; comment: string } | { vote: "reject"; reason: string };

/** What can be sent about a gate. What a link cannot do is missing. */
export interface GateSender {
  vote(card: CardModel, ballot: Ballot, id: string): Promise<GateDetails>;
  amend?(card: CardModel, args: Record<string, unknown>, id: string): Promise<GateDetails>;
  allow?(card: CardModel, rule: AllowRule, id: string): Promise<void>;
}

/** What a rule allows, and for how long. */
export interface AllowRule {
  what: { prefix: string[]; directory: string | null } | { readRoot: string };
  hours: number;
}

/** The answer has the command, which people go on reading. */
const EXACT = { exactNumbers: true };

/** Sends with the token of this device. */
export function deviceSender(api: Pick<Api, "post">): GateSender {
  const gatePath = (card: CardModel) => `${sessionPath(card)}/gates/${encodeURIComponent(card.gate)}`;
  return {
    async vote(card, ballot, id) {
      const answer = await api.post<GateUpdateResponse>(`${gatePath(card)}/vote`, voteRequest(card, ballot, id), EXACT);
      return answer.gate;
    },
    async amend(card, args, id) {
      const request: EditRequest = { arguments: args, digest: card.digest, id };
      const answer = await api.post<GateUpdateResponse>(`${gatePath(card)}/amend`, request, EXACT);
      return answer.gate;
    },
    async allow(card, rule, id) {
      const payload: PolicyAllow = { ...allowed(rule.what), expires_at: expiry(rule.hours) };
      await api.post<SessionAck>(`${sessionPath(card)}/messages`, { id, type: "policy.allow", payload });
    },
  };
}

/** Sends with the secret of a vote link, which is for one gate. */
export function linkSender(api: Pick<Api, "post">): GateSender {
  return {
    async vote(card, ballot, id) {
      const answer = await api.post<GateUpdateResponse>("/api/vote", voteRequest(card, ballot, id), EXACT);
      return answer.gate;
    },
  };
}

/** The server takes a week at most by its own clock, which is known to the second. */
const CLOCK_MARGIN_MS = 5000;

function expiry(hours: number): string {
  return new Date(serverNow() + hours * 3_600_000 - CLOCK_MARGIN_MS).toISOString();
}

function sessionPath(card: CardModel): string {
  return `/api/sessions/${encodeURIComponent(card.session)}`;
}

function voteRequest(card: CardModel, ballot: Ballot, id: string): VoteRequest {
  const { digest } = card;
  if (ballot.vote === "reject") return { vote: "reject", reason: ballot.reason, digest, id };
  return { vote: "approve", digest, id, ...(ballot.comment === "" ? {} : { comment: ballot.comment }) };
}

function allowed(what: AllowRule["what"]): Pick<PolicyAllow, "prefix" | "directory" | "read_root"> {
  if ("readRoot" in what) return { read_root: what.readRoot };
  return { prefix: what.prefix, ...(what.directory === null ? {} : { directory: what.directory }) };
}

export type SendState =
  | { kind: "idle" }
  | { kind: "sending"; what: string }
  /** `retry` is `null` where the server would only refuse it again. */
  | { kind: "failed"; message: string; retry: (() => void) | null }
  | { kind: "sent"; what: string };

export interface Sending {
  state: SendState;
  /** Sends it, and again with the same id if the person asks for that. */
  send(what: string, act: (id: string) => Promise<void>): void;
  clear(): void;
}

/** One thing at a time is on its way. */
export function useSending(): Sending {
  const [state, setState] = useState<SendState>({ kind: "idle" });
  const isBusy = useRef(false);
  const attempt = async (what: string, act: (id: string) => Promise<void>, id: string) => {
    if (isBusy.current) return;
    isBusy.current = true;
    setState({ kind: "sending", what });
    try {
      await act(id);
      setState({ kind: "sent", what });
    } catch (error) {
      const retry = () => void attempt(what, act, id);
      setState({ kind: "failed", message: problemText(error), retry: isWorthRetrying(error) ? retry : null });
    } finally {
      isBusy.current = false;
    }
  };
  return {
    state,
    send: (what, act) => void attempt(what, act, freshId()),
    clear: () => setState({ kind: "idle" }),
  };
}

/** Whether the server may answer otherwise next time: it was not reached, was too slow or too busy. */
function isWorthRetrying(error: unknown): boolean {
  if (!(error instanceof ApiError)) return true;
  return error.status === 0 || error.status === 408 || error.status === 429 || error.status >= 500;
}

/** A refusal in the server's words, or that the server did not answer. */
export function problemText(error: unknown): string {
  if (error instanceof ApiError) return error.status === 0 ? t().card.unreachable : error.message;
  return error instanceof Error ? error.message : String(error);
}
