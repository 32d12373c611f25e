// A gate card: everything a person needs to decide a gate, and whether they may vote.

import type {
  Approval,
  Category,
  GateRequest,
  GateTimeoutAction,
  MessageId,
  ParticipantId,
  QuorumRule,
  SessionConfig,
} from "@protocol";
import { emptyRecord } from "./decode";
import { mayVoteInGeneral } from "./participants";
import type { Participant } from "./participants";
import { setRequested } from "./proposal";
import { notCountedBecauseOf, quorumWords, tally } from "./quorum";
import type { Approvers } from "./quorum";
import { truncateLine } from "./text";
import type { Digest, GateCard, PrefixOffer, RequestedAction, SelfView, Timestamp, VoteEligibility } from "./types";

/** Everything outside a card that its tally depends on. */
export interface TallyContext {
  people: Record<ParticipantId, Participant>;
  /** Those of them who may vote in general. */
  voters: Participant[];
  /** Who invited whom during the session; empty if approvals need not be independent. */
  invitedBy: Map<ParticipantId, ParticipantId>;
  config: SessionConfig;
  me: SelfView | null;
  /** Whether one approval of the viewer is enough for a write, which an allow rule needs. */
  mayAllowAlone: boolean;
}

/** Gathers what tallies depend on, once for all cards. */
export function tallyContext(
  people: Record<ParticipantId, Participant>,
  config: SessionConfig,
  me: SelfView | null,
): TallyContext {
  const everyone = Object.values(people);
  const invitedBy = new Map<ParticipantId, ParticipantId>();
  for (const { id, invited_by, invitedBeforeSession } of config.quorum_independent ? everyone : []) {
    if (invited_by !== undefined && !invitedBeforeSession) invitedBy.set(id, invited_by);
  }
  const voters = everyone.filter(mayVoteInGeneral);
  return { people, voters, invitedBy, config, me, mayAllowAlone: me !== null && isEnough(me.participant, voters, config) };
}

/** Whether one approval of this participant is enough for a write. */
function isEnough(participant: ParticipantId, voters: Participant[], config: SessionConfig): boolean {
  const quorum = config.quorum_by_category.write ?? config.default_gate_quorum;
  const eligible = new Map(voters.map((voter) => [voter.id, voter.roles]));
  const approvers = { eligible, electorate: new Set(eligible.keys()), invitedBy: new Map(), owner: null };
  return tally(quorum, approvers, new Set([participant])).passed;
}

// The fields of the request are set by `setRequested`.
export interface Card extends RequestedAction {}

/** An open gate. */
export class Card implements GateCard {
  readonly proposal: MessageId;
  opened_at: Timestamp | null = null;
  category: Category;
  digest: Digest;
  message: string;
  quorum: QuorumRule;
  quorum_words = "";
  votes = emptyRecord<Approval>();
  voters: ParticipantId[];
  received = 0;
  required = 0;
  not_counted?: Record<ParticipantId, ParticipantId>;
  awaited: ParticipantId[] = [];
  undecided: ParticipantId[] = [];
  standing: VoteEligibility = "not_here";
  allow_prefix: PrefixOffer = "not_possible";
  deadline: Timestamp | null;
  on_timeout: GateTimeoutAction;
  at_deadline = "";
  escalated = false;
  #requested: RequestedAction;
  #version = 0;

  constructor(
    readonly gate: MessageId,
    request: GateRequest,
    requested: RequestedAction,
  ) {
    this.proposal = request.action_ref;
    this.category = request.category;
    this.digest = request.digest;
    this.message = truncateLine(request.message);
    this.quorum = request.quorum;
    this.voters = sorted(request.voters);
    this.deadline = request.deadline ?? null;
    this.on_timeout = request.on_timeout;
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

  /** Whether the id is that of this card's gate or of its proposal. */
  hasId(id: MessageId): boolean {
    return this.gate === id || this.proposal === id;
  }

  setVoters(voters: ParticipantId[]): void {
    this.voters = sorted(voters);
    this.touch();
  }

  addVote(approval: Approval): void {
    this.votes = withoutKey(this.votes, approval.participant);
    this.votes[approval.participant] = approval;
    this.touch();
  }

  removeVote(participant: ParticipantId): void {
    if (this.votes[participant] === undefined) return;
    this.votes = withoutKey(this.votes, participant);
    this.touch();
  }

  clearVotes(): void {
    this.votes = emptyRecord();
    this.touch();
  }

  removeVoter(participant: ParticipantId): void {
    if (!this.voters.includes(participant)) return;
    this.voters = this.voters.filter((id) => id !== participant);
    this.touch();
  }

  /** Recomputes the tally after the card or its context changed. */
  recount(context: TallyContext): void {
    const approvers = this.approvers(context);
    const approved = new Set(Object.keys(this.votes));
    const { received, required, awaited } = tally(this.quorum, approvers, approved);
    const before = [this.received, this.required, this.standing, this.allow_prefix, this.quorum_words, this.at_deadline];
    const lists = [this.awaited, this.undecided, this.not_counted];
    this.received = received;
    this.required = required;
    this.awaited = awaited;
    this.not_counted = this.notCounted(approvers, approved);
    this.undecided = this.undecidedVoters(approvers, approved);
    this.standing = this.voteEligibility(context);
    this.allow_prefix = this.prefixOffer(context, approvers, approved);
    this.quorum_words = quorumWords(this.quorum);
    this.at_deadline = deadlineText(this);
    const after = [received, required, this.standing, this.allow_prefix, this.quorum_words, this.at_deadline];
    const isUnchanged = isSame(before, after) && isSame(lists[0], awaited) && isSame(lists[1], this.undecided);
    if (!isUnchanged || !isSame(lists[2], this.not_counted)) this.touch();
  }

  private prefixOffer(context: TallyContext, approvers: Approvers, approved: Set<ParticipantId>): PrefixOffer {
    const { me, config } = context;
    // Where a session asks for every tool of a kind, no rule answers.
    const isPossible = this.prefix.length > 0 && config.require_approval_for.length === 0;
    if (me === null || !me.may_approve || !isPossible || !context.mayAllowAlone) return "not_possible";
    const voted = new Set([...approved, me.participant]);
    const passes = tally(this.quorum, approvers, voted).passed;
    return passes && approvers.eligible.has(me.participant) ? "also_approves" : "later_only";
  }

  /**
   * The participants whose approval counts, as far as this client knows; the server's own list is
   * decisive.
   */
  private approvers(context: TallyContext): Approvers {
    const { config, invitedBy } = context;
    const skipsAbsent = config.on_participant_timeout === "skip";
    const approvers: Approvers = { eligible: new Map(), electorate: new Set(), invitedBy, owner: this.owner(context) };
    const couldVote = new Set(this.voters);
    for (const participant of context.voters) {
      if (this.ineligibility(participant, config) !== null) continue;
      approvers.eligible.set(participant.id, participant.roles);
      const isAbsent = skipsAbsent && participant.timed_out;
      if (couldVote.has(participant.id) && !isAbsent) approvers.electorate.add(participant.id);
    }
    return approvers;
  }

  /** Whom the proposal speaks for: a person for themselves, an agent for who invited it. */
  private owner(context: TallyContext): ParticipantId | null {
    const proposer = this.proposer === null ? undefined : context.people[this.proposer];
    if (proposer === undefined) return null;
    return proposer.kind === "human" ? proposer.id : (proposer.invited_by ?? null);
  }

  /** Why a participant who may approve in general may not vote on this card; null if they may. */
  private ineligibility(participant: Participant, config: SessionConfig): VoteEligibility | null {
    if (this.proposer === participant.id && !config.solo) return "proposer";
    if (config.four_eyes && this.edited_by === participant.id) return "editor";
    return this.escalated && !participant.roles.includes("admin") ? "admins_only" : null;
  }

  private notCounted(approvers: Approvers, approved: Set<ParticipantId>): Record<string, string> | undefined {
    const found = emptyRecord<ParticipantId>();
    for (const id of approvers.invitedBy.size === 0 ? [] : approved) {
      if (!approvers.eligible.has(id)) continue;
      const because = notCountedBecauseOf(id, this.quorum, approvers, approved);
      if (because !== null) found[id] = because;
    }
    return Object.keys(found).length === 0 ? undefined : found;
  }

  private undecidedVoters(approvers: Approvers, approved: Set<ParticipantId>): ParticipantId[] {
    const { quorum } = this;
    const wouldCount = (id: ParticipantId) => {
      switch (quorum.type) {
        case "any":
        case "majority":
          return true;
        case "all":
          return approvers.electorate.size === 0 || approvers.electorate.has(id);
        case "role":
          return approvers.eligible.get(id)?.includes(quorum.role) === true;
        case "specific":
          return quorum.participants.includes(id);
      }
    };
    const isIndependent = (id: ParticipantId) =>
      approvers.invitedBy.size === 0 || notCountedBecauseOf(id, quorum, approvers, new Set([...approved, id])) === null;
    const undecided = [...approvers.eligible.keys()].filter((id) => !approved.has(id) && wouldCount(id));
    return undecided.filter(isIndependent).sort();
  }

  private voteEligibility(context: TallyContext): VoteEligibility {
    const me = context.me === null ? undefined : context.people[context.me.participant];
    if (me === undefined || me.left) return "not_here";
    if (this.proposer === me.id && !context.config.solo) return "proposer";
    if (me.kind === "agent") return "agent";
    if (!mayVoteInGeneral(me) || context.me?.may_approve !== true) return "not_an_approver";
    const ineligibility = this.ineligibility(me, context.config);
    if (ineligibility !== null) return ineligibility;
    if (this.cut_bytes > 0) return "not_shown_whole";
    return this.votes[me.id] === undefined ? "may_vote" : "approved";
  }
}

/** Whether a vote of the viewer would count. */
export function mayVote(standing: VoteEligibility): boolean {
  return standing === "may_vote" || standing === "approved";
}

function sorted(ids: ParticipantId[]): ParticipantId[] {
  return [...new Set(ids)].sort();
}

function withoutKey<T>(record: Record<string, T>, key: string): Record<string, T> {
  const copy = Object.assign(emptyRecord<T>(), record);
  delete copy[key];
  return copy;
}

/** Whether two lists or two records have the same values. */
function isSame(a: object | undefined, b: object | undefined): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((value, index) => value === b[index]);
  return JSON.stringify(a) === JSON.stringify(b);
}

function deadlineText(card: GateCard): string {
  if (card.deadline === null) return "none";
  switch (deadlineAction(card)) {
    case "escalate":
      return "then it goes to the admins, with a new deadline";
    case "auto_approve":
      return "then it is approved automatically";
    case "reject":
      return "then it is rejected";
  }
}

/**
 * What the deadline of a gate really does: a clock approves nothing destructive, and a gate goes to
 * the admins once.
 */
export function deadlineAction(card: Pick<GateCard, "on_timeout" | "category" | "escalated">): GateTimeoutAction {
  const isHarmful = card.category === "destructive" || card.category === "blocked";
  if (card.on_timeout === "auto_approve" && isHarmful) return "reject";
  return card.on_timeout === "escalate" && card.escalated ? "reject" : card.on_timeout;
}
