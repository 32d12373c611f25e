// The views of a command through its whole life: assessed, waiting, running, ended.

import type { AllowedBy, Approval, GateResolve, MessageId, OutputStream, ToolExecute, ToolResult } from "@protocol";
import { attempt } from "./envelope";
import { ExactNumber, isObject, prettyJson } from "./json";
import type { JsonObject } from "./json";
import { Output } from "./output";
import { resultBody } from "./payloads";
import { truncateLine, truncateOptional } from "./text";
import type {
  CancelRequestView,
  CommandHistoryEntry,
  CommandOrigin,
  CommandVersion,
  Digest,
  EarlierVersion,
  ProposalState,
  ProposalView,
  RequestedAction,
  ResolutionView,
  RunResultView,
  RunView,
  Timestamp,
} from "./types";
import { LoggedVersion, UNKNOWN_VERSION, versionOf } from "./version";

/** Approvals kept for one decision. */
const MAX_APPROVALS = 200;

/** Words kept of an allow rule; the server accepts at most 32. */
export const MAX_RULE_WORDS = 32;

/** Earlier versions kept of one command: the first, and the latest of the others. */
const MAX_EARLIER_VERSIONS = 10;

/** The states in chronological order. A command never goes back, except from a discarded trial. */
const STATES: ProposalState[] = [
  "judged",
  "waiting",
  "approved",
  "running",
  "over",
  "blocked",
  "rejected",
  "timed_out",
  "cancelled",
  "finished",
];

const OVER: ReadonlySet<ProposalState> = new Set(STATES.slice(STATES.indexOf("over")));

/** Whether one state comes after another. */
export function isAfter(state: ProposalState, other: ProposalState): boolean {
  return STATES.indexOf(state) > STATES.indexOf(other);
}

/** Whether a command in this state has ended. */
export function isOver(state: ProposalState): boolean {
  return OVER.has(state);
}

/** Puts all that is known of a request on a command or a card, which has it among its own fields. */
export function setRequested(target: RequestedAction, requested: RequestedAction): void {
  target.proposer = requested.proposer;
  target.command = requested.command;
  target.shown = requested.shown;
  target.hidden = requested.hidden;
  target.cut_bytes = requested.cut_bytes;
  target.form = requested.form;
  target.argv = requested.argv;
  target.tool = requested.tool;
  target.call = requested.call;
  target.cwd = requested.cwd;
  target.env = requested.env;
  target.mode = requested.mode;
  target.timeout_seconds = requested.timeout_seconds;
  target.driver = requested.driver;
  target.secrets = requested.secrets;
  target.files = requested.files;
  target.file_contents = requested.file_contents;
  target.purpose = requested.purpose;
  target.assessment = requested.assessment;
  target.prefix = requested.prefix;
  target.edited_by = requested.edited_by;
  target.degree = requested.degree;
  target.client = requested.client;
}

// The fields of the request are set by `setRequested`.
export interface Proposal extends RequestedAction {}

/** One command, in any state. */
export class Proposal implements ProposalView {
  seq: number | null = null;
  at: Timestamp | null = null;
  state: ProposalState = "judged";
  gate: MessageId | null = null;
  resolution: ResolutionView | null = null;
  run: RunView | null = null;
  cancel: CancelRequestView | null = null;
  readonly output = new Output();
  finish: RunResultView | null = null;
  earlier?: EarlierVersion[];
  #requested: RequestedAction;
  #logged = new LoggedVersion();
  #version = 0;

  constructor(
    readonly id: MessageId,
    public origin: CommandOrigin,
    requested: RequestedAction,
  ) {
    this.#requested = requested;
    setRequested(this, requested);
  }

  /** Grows with each change. */
  get version(): number {
    return this.#version;
  }

  /** Says that something has changed. */
  touch(): void {
    this.#version += 1;
  }

  get requested(): RequestedAction {
    return this.#requested;
  }

  set requested(requested: RequestedAction) {
    this.#requested = requested;
    setRequested(this, requested);
    this.touch();
  }

  /** The command as of the last message folded. */
  get logged(): LoggedVersion {
    return this.#logged;
  }

  set logged(logged: LoggedVersion) {
    this.#logged = logged;
  }

  /** Whether it has ended. */
  get isOver(): boolean {
    return isOver(this.state);
  }

  /** Whether it has been granted and has not ended. */
  get isRunning(): boolean {
    return this.state === "running";
  }

  /** Moves on to a state, unless the command is already past it. */
  advanceTo(state: ProposalState): void {
    if (isAfter(state, this.state)) this.state = state;
    this.touch();
  }

  /** The version that a message of the log was about. `voted` is the digest that a vote names. */
  versionAt(voted: Digest | undefined): CommandVersion {
    if (this.#logged.command !== null) return this.#logged.command;
    const current = versionOf(this.#requested);
    const isCurrent = voted === undefined ? this.edited_by === null : current.digest === voted;
    return isCurrent ? current : { ...UNKNOWN_VERSION, digest: voted ?? null };
  }

  /** Replaces the logged version with what an edit made of it; returns the version before. */
  logEdit(edited: RequestedAction, editedFrom: Digest, at: Timestamp, reason: string | null): EarlierVersion {
    const logged = this.#logged;
    this.#logged = new LoggedVersion(versionOf(edited));
    const earlier: EarlierVersion = {
      ...(logged.command ?? { ...UNKNOWN_VERSION, digest: editedFrom }),
      void_votes: logged.approvedBy,
      edited_by: edited.edited_by,
      edited_at: at,
      reason,
    };
    const known = this.earlier ?? [];
    if (known.length >= MAX_EARLIER_VERSIONS) known.splice(1, 1);
    this.earlier = [...known, earlier];
    return earlier;
  }

  /** Records the result. A result may carry output of a stream that was never streamed. */
  recordResult(result: ToolResult, at: Timestamp): void {
    this.finish = resultView(result, at);
    const returned = returnedText(result.result);
    for (const stream of ["stdout", "stderr"] satisfies OutputStream[]) {
      if (this.output[stream].bytes === 0) this.output.append(stream, undefined, returned[stream]);
    }
    this.state = "finished";
    this.touch();
  }
}

/** What a command printed, as its result brings it. */
function returnedText(value: unknown): { stdout: string; stderr: string } {
  const body = commandBody(value);
  if (body !== null) return body;
  if (value === undefined) return { stdout: "", stderr: "" };
  return { stdout: typeof value === "string" ? value : prettyJson(value), stderr: "" };
}

/** What a tool returned, if it looks like the result of a command. */
function commandBody(value: unknown): ReturnType<typeof resultBody> | null {
  const looksLikeCommand = isObject(value) && ["exitCode", "stdout", "stderr"].some((name) => Object.hasOwn(value, name));
  return looksLikeCommand ? attempt(resultBody, value) : null;
}

function resultView(result: ToolResult, at: Timestamp): RunResultView {
  const body = commandBody(result.result);
  const places = [body === null ? {} : result.result, result] as JsonObject[];
  const extra = (name: string) => places.find((place) => Object.hasOwn(place, name))?.[name];
  return {
    at,
    success: result.success,
    exit_code: body?.exitCode ?? null,
    signal: scalarText(extra("signal")),
    error: truncateOptional(result.error),
    duration_ms: result.duration_ms,
    outcome_unknown: result.outcome === "unknown",
    not_run: result.outcome === "not_run" || undefined,
    attested: result.attested === true || undefined,
    truncated: isAnyFlagSet(extra("truncated")),
    kill_reason: scalarText(extra("kill_reason")),
    returned_value: (result.result !== undefined && body === null) || undefined,
    output_ref: scalarText((result as JsonObject).output_ref),
  };
}

/** A JSON string or number as text. */
function scalarText(value: unknown): string | null {
  if (typeof value === "string") return truncateLine(value);
  if (value instanceof ExactNumber) return truncateLine(value.text);
  return typeof value === "number" ? String(value) : null;
}

/** Whether a flag, or any of several flags, is set. */
function isAnyFlagSet(value: unknown): boolean {
  return value === true || (isObject(value) && Object.values(value).includes(true));
}

/** How a gate closed. */
export function resolutionView(resolve: GateResolve): ResolutionView {
  return {
    outcome: resolve.outcome,
    how: resolve.how,
    at: resolve.at,
    approvals: boundedApprovals(resolve.approvals ?? []),
    by: resolve.by ?? null,
    reason: truncateOptional(resolve.reason),
    suggestion: truncateOptional(resolve.suggestion),
    rule: resolve.rule,
  };
}

/** A run as its grant describes it. */
export function runOfGrant({ grant }: ToolExecute, at: Timestamp): RunView {
  return {
    executor: grant.executor,
    started_at: at,
    grant: grant.id,
    cleared_by: grant.cleared_by,
    approvals: boundedApprovals(grant.approvals ?? []),
    rule: grant.rule ?? null,
    allowed_by: boundedRule(grant.allowed_by),
    limits: grant.limits ?? null,
    profile: grant.profile ?? null,
    driver: grant.driver ?? null,
  };
}

/** A run as a welcome describes it. */
export function runOfWelcome(running: { executor: string; since: Timestamp }): RunView {
  return {
    executor: running.executor,
    started_at: running.since,
    grant: null,
    cleared_by: null,
    approvals: [],
    rule: null,
    limits: null,
    profile: null,
    driver: null,
  };
}

function boundedApprovals(given: Approval[]): Approval[] {
  return given.slice(0, MAX_APPROVALS).map((approval) => boundedApproval(approval));
}

/** An approval in the size that is kept. */
export function boundedApproval({ participant, at, comment }: Approval): Approval {
  return { participant, at, comment: comment === undefined ? undefined : truncateLine(comment) };
}

function boundedRule(rule: AllowedBy | undefined): AllowedBy | undefined {
  return rule && { participant: rule.participant, prefix: rule.prefix.slice(0, MAX_RULE_WORDS).map(truncateLine) };
}

/** A command that has ended, as one line of history. */
export function historyEntry(proposal: Proposal): CommandHistoryEntry {
  const { run, finish, assessment } = proposal;
  const approvals = run?.approvals ?? proposal.resolution?.approvals ?? [];
  return {
    proposal: proposal.id,
    at: proposal.at,
    origin: proposal.origin,
    proposer: proposal.proposer,
    executor: run?.executor ?? null,
    command: truncateLine(proposal.command),
    shown: truncateLine(proposal.shown),
    category: assessment?.category ?? null,
    sensitive_read: assessment?.sensitive_read === true || undefined,
    rule: assessment?.rule ?? null,
    outcome: proposal.state,
    cleared_by: run?.cleared_by ?? null,
    approvers: approvals.map((approval) => approval.participant),
    allowed_by: run?.allowed_by,
    proposed: proposal.earlier?.[0]?.shown,
    edited_by: proposal.edited_by ?? undefined,
    success: finish?.success ?? null,
    exit_code: finish?.exit_code ?? null,
    duration_ms: finish?.duration_ms ?? null,
    output_ref: finish?.output_ref ?? null,
  };
}
