// A card: everything a person needs to decide a gate. It is made of what the API tells about a gate,
// or of a session's view, and looks the same either way.

import type {
  Approval,
  Category,
  EarlierCommand,
  ExecutorInfo,
  GateDetails,
  GateListItem,
  GateTimeoutAction,
  QuorumRule,
  Risk,
} from "@protocol";
import { deadlineAction, escapeInvisible } from "../fold";
import type { EarlierVersion, GateCard, PrefixOffer, RequestedAction, View, VoteEligibility } from "../fold";
import { canEdit } from "./amend";
import { requestedFromOpenGate } from "./requested";
import type { SessionFacts } from "./session_facts";
import { factsOfView } from "./session_facts";
import { prefixOffer, standingOf } from "./standing";

export interface CardModel {
  session: string;
  gate: string;
  proposal: string;
  /** What exactly is decided on; every vote carries the one that was on the screen. */
  digest: string;
  requested: RequestedAction;
  category: Category;
  /** It only reads, and waits because of what it reads. */
  isSensitiveRead: boolean;
  risk: Risk | null;
  /** The participant who looks at the card; `null` if that is unknown. */
  me: string | null;
  /** The names to show, by id. */
  names: ReadonlyMap<string, string>;
  /** Where it runs; `null` if nobody has said. */
  directory: string | null;
  /** The command that wraps everything the executor runs. */
  runner: string[];
  quorum: QuorumRule;
  votes: Approval[];
  received: number;
  required: number;
  /** Named people whose approval is still needed. */
  awaited: string[];
  /** Who could still approve. */
  undecided: string[];
  /** Approvals that do not count as those of one more person, and who keeps them from it. */
  notCounted: { [id: string]: string };
  invitedBy: { [id: string]: string };
  standing: VoteEligibility;
  prefixOffer: PrefixOffer;
  /** Whether the command can be edited here. */
  isEditable: boolean;
  /** By the server's clock, in milliseconds; `null` if it waits for ever. */
  deadline: number | null;
  /** What happens at the deadline. */
  atDeadline: GateTimeoutAction;
  escalated: boolean;
  earlier: EarlierCard[];
  /** Whether everything that the card shows has arrived. */
  isComplete: boolean;
}

/** A version that an edit has replaced. */
export interface EarlierCard {
  shown: string;
  category: Category | null;
  voidVotes: string[];
  editedBy: string | null;
  editedAt: string;
  reason: string | null;
}

/** The card of a gate as the API lists it, with the rest of it once that has arrived. */
export function cardOfGate(listed: GateListItem, details: GateDetails | null, facts: SessionFacts): CardModel {
  const current = details?.open?.assessment.digest === listed.assessment.digest ? details : null;
  const contents = current?.file_contents ?? [];
  // Of a large command, the list has only the beginning.
  const whole = listed.cut_bytes === undefined ? null : (current?.open ?? null);
  const item = whole === null ? listed : withAll(listed, whole);
  const requested = requestedFromOpenGate(whole ?? listed, contents);
  const executor = item.executor ?? facts.executor(item.proposer);
  return {
    ...verdict(requested, item.assessment.category),
    session: item.session,
    gate: item.gate,
    proposal: item.request.action_ref,
    digest: item.assessment.digest,
    me: facts.me,
    names: facts.names,
    directory: requested.cwd ?? executor?.working_directory ?? null,
    runner: executor?.runner ?? [],
    quorum: item.request.quorum,
    votes: item.approvals,
    received: item.received,
    required: item.required,
    awaited: item.awaited,
    undecided: undecided(item, facts.me),
    notCounted: item.not_counted ?? {},
    invitedBy: item.invited_by ?? {},
    standing: standingOf(item, requested, facts),
    prefixOffer: prefixOffer(item, requested, facts),
    isEditable: isEditable(requested, executor),
    deadline: milliseconds(item.request.deadline ?? null),
    atDeadline: deadlineAction({ on_timeout: item.request.on_timeout, category: item.assessment.category, escalated: item.escalated }),
    escalated: item.escalated,
    earlier: (current?.command?.earlier ?? []).map(earlierCommand),
    isComplete: item.cut_bytes === undefined && (current !== null || !hasDetails(requested)),
  };
}

/** The gate as the list has it, with what was cut off. */
function withAll({ cut_bytes: _, ...listed }: GateListItem, whole: GateListItem): GateListItem {
  const { action, assessment, description, cut_bytes } = whole;
  return { ...listed, action, assessment, description, request: { ...listed.request, message: whole.request.message }, ...(cut_bytes === undefined ? {} : { cut_bytes }) };
}

/**
 * The card of a gate in a session's view, which goes on changing while the card that was drawn does
 * not. The view forgets long contents and what it was not told, so those come with the details.
 */
export function cardOfView(card: GateCard & { requested?: RequestedAction }, view: View, details: GateDetails | null = null): CardModel {
  const open = details?.open?.assessment.digest === card.digest ? details.open : null;
  const requested = open === null ? (card.requested ?? card) : requestedFromOpenGate(open, details?.file_contents ?? []);
  const facts = factsOfView(view);
  const executor = open?.executor ?? (card.proposer === null ? null : facts.executor(card.proposer));
  const voters = Object.keys(card.votes);
  const inviters = voters.map((id) => [id, view.people[id]?.invited_by] as const);
  return {
    ...verdict(requested, card.category),
    session: view.session ?? "",
    gate: card.gate,
    proposal: card.proposal,
    digest: card.digest,
    me: facts.me,
    names: facts.names,
    directory: card.cwd ?? executor?.working_directory ?? view.working_directory,
    runner: executor?.runner ?? [],
    quorum: card.quorum,
    votes: Object.values(card.votes),
    received: card.received,
    required: card.required,
    awaited: card.awaited,
    undecided: card.undecided,
    notCounted: card.not_counted ?? {},
    invitedBy: Object.fromEntries(inviters.filter((pair): pair is readonly [string, string] => pair[1] !== undefined)),
    standing: card.standing,
    prefixOffer: card.allow_prefix,
    isEditable: isEditable(requested, executor),
    deadline: milliseconds(card.deadline),
    atDeadline: deadlineAction(card),
    escalated: card.escalated,
    earlier: open === null ? (view.proposal(card.proposal)?.earlier ?? []).map(earlierVersion) : (details?.command?.earlier ?? []).map(earlierCommand),
    // Who runs what a person has typed is not said in the view.
    isComplete: open !== null || !(hasDetails(requested) || requested.form === "login_shell"),
  };
}

/** Whether there is more to a gate than its action says: the contents of bound files, what an edit replaced. */
export function hasDetails(requested: RequestedAction): boolean {
  return (requested.files ?? []).length > 0 || requested.edited_by !== null;
}

/** The name to show for a participant. */
export function nameOf(card: Pick<CardModel, "names">, id: string): string {
  return card.names.get(id) ?? escapeInvisible(id);
}

/** Whether a vote of this person would count. */
export function mayVote(card: CardModel): boolean {
  return card.standing === "may_vote" || card.standing === "approved";
}

/** Names this version of this gate. */
export function versionOf(card: Pick<CardModel, "session" | "gate" | "digest">): string {
  return `${card.session}/${card.gate}@${card.digest}`;
}

/** Names what of a card is on the screen: it is another one when more of the same version has arrived. */
export function drawnVersionOf(card: CardModel): string {
  return `${versionOf(card)} ${card.isComplete ? "whole" : "part"} ${(card.requested.file_contents ?? []).length}`;
}

function verdict(requested: RequestedAction, category: Category) {
  const assessment = requested.assessment;
  return {
    requested,
    category,
    isSensitiveRead: category === "write" && (assessment?.sensitive_read ?? false),
    risk: assessment?.risk ?? null,
  };
}

/** Those who could approve when the gate opened, and whoever looks at it now and may. */
function undecided(item: GateListItem, me: string | null): string[] {
  const voted = new Set(item.approvals.map((approval) => approval.participant));
  const voters = me !== null && item.may_vote ? [...item.request.voters, me] : item.request.voters;
  return [...new Set(voters)].filter((id) => !voted.has(id));
}

function isEditable(requested: RequestedAction, executor: ExecutorInfo | null): boolean {
  return canEdit(requested) && (executor?.edits ?? true);
}

function earlierCommand(earlier: EarlierCommand): EarlierCard {
  return {
    shown: escapeInvisible(earlier.command),
    category: earlier.category,
    voidVotes: (earlier.void_approvals ?? []).map((approval) => approval.participant),
    editedBy: earlier.edited_by,
    editedAt: earlier.edited_at,
    reason: earlier.reason ?? null,
  };
}

function earlierVersion(earlier: EarlierVersion): EarlierCard {
  return {
    shown: earlier.shown,
    category: earlier.category,
    voidVotes: earlier.void_votes,
    editedBy: earlier.edited_by,
    editedAt: earlier.edited_at,
    reason: earlier.reason,
  };
}

function milliseconds(time: string | null): number | null {
  const parsed = Date.parse(time ?? "");
  return Number.isNaN(parsed) ? null : parsed;
}
