// Folds the messages about gates: cards open, collect votes, are amended, and close.

import type { GateAmend, GateRequest, GateResolve, GateTimeout, MessageId, ParticipantId } from "@protocol";
import { Card, tallyContext } from "./card";
import { closeProposal } from "./commands";
import type { Meta } from "./meta";
import { participantOf, pushBounded, pushLogged } from "./meta";
import { resolutionView } from "./proposal";
import type { Proposal } from "./proposal";
import { withEdit, withTrial } from "./requested_action";
import type { ViewState } from "./state";
import { truncateLine, truncateOptional } from "./text";
import type { ClosedGateCard, CommandVersion, Digest, ProposalState, ResolutionView } from "./types";
import { UNKNOWN_VERSION, versionOf } from "./version";

/** Open cards; a session has at most 100 unless its server allows more. */
export const MAX_CARDS = 256;

/** Closed cards kept, so that everyone can see who decided and how. */
const MAX_CLOSED_CARDS = 100;

/** The open card with this gate id or proposal id. */
export function findCard(state: ViewState, id: MessageId): Card | undefined {
  return state.gates.find((card) => card.hasId(id));
}

/** The command that waits or waited at this gate; the id of the command itself is as good. */
export function proposalAtGate(state: ViewState, id: MessageId): Proposal | undefined {
  return state.commands.findLast((proposal) => proposal.gate === id) ?? state.commandsById.get(id);
}

/** The version of a command that a message of the log is about. `voted` is what a vote names. */
export function versionAt(state: ViewState, id: MessageId, voted?: Digest): CommandVersion {
  return state.commandsById.get(id)?.versionAt(voted) ?? UNKNOWN_VERSION;
}

/** Recomputes tallies after participants or settings changed, of all cards or of one. */
export function recount(state: ViewState, id?: MessageId): void {
  const cards = id === undefined ? state.gates : state.gates.filter((card) => card.hasId(id));
  if (cards.length === 0) return;
  const context = tallyContext(state.people, state.config, state.me);
  for (const card of cards) card.recount(context);
}

/**
 * Removes a participant who left or lost the right to vote from every open gate. They stay removed
 * even if the right comes back.
 */
export function removeFromVotes(state: ViewState, participant: ParticipantId): void {
  for (const proposal of state.commands) proposal.logged.removeVote(participant);
  for (const card of state.gates) {
    card.removeVoter(participant);
    card.removeVote(participant);
  }
}

export function foldGateRequest(state: ViewState, meta: Meta, request: GateRequest): void {
  const proposal = state.commandsById.get(request.action_ref);
  if (proposal === undefined) return;
  proposal.gate = meta.id;
  proposal.advanceTo("waiting");
  if (request.trial !== undefined) proposal.requested = withTrial(proposal.requested, request.trial);
  const known = findCard(state, meta.id);
  if (meta.isHistory) {
    if (known !== undefined) known.opened_at = meta.at;
    known?.touch();
    return;
  }
  if (proposal.state !== "waiting" || state.gates.length >= MAX_CARDS || known !== undefined) return;
  const card = new Card(meta.id, request, proposal.requested);
  card.opened_at = meta.at;
  state.gates.push(card);
  recount(state, meta.id);
}

export interface GateVote {
  /** The gate or the proposal. */
  id: MessageId;
  digest?: Digest;
}

export function foldApproval(
  state: ViewState,
  meta: Meta,
  vote: GateVote & { approver: ParticipantId; comment?: string },
): void {
  const comment = truncateOptional(vote.comment);
  const proposal = proposalAtGate(state, vote.id);
  proposal?.logged.addVote(vote.approver);
  const id = proposal?.id ?? vote.id;
  pushLogged(state, meta, { kind: "approved", proposal: id, ...versionAt(state, id, vote.digest), comment });
  const card = meta.isHistory ? undefined : findCard(state, vote.id);
  if (card === undefined) return;
  card.addVote({ participant: vote.approver, at: meta.at, comment: comment ?? undefined });
  recount(state, vote.id);
}

/** One rejection is enough to close the gate; the `gate.resolve` that follows closes the card. */
export function foldRejection(
  state: ViewState,
  meta: Meta,
  vote: GateVote & { reason: string; suggestion?: string },
): void {
  const id = proposalAtGate(state, vote.id)?.id ?? vote.id;
  const suggestion = truncateOptional(vote.suggestion);
  const rejection = { reason: truncateLine(vote.reason), suggestion };
  pushLogged(state, meta, { kind: "rejected", proposal: id, ...versionAt(state, id, vote.digest), ...rejection });
  const by = participantOf(meta);
  const card = meta.isHistory || by === null ? undefined : findCard(state, vote.id);
  if (card === undefined || by === null) return;
  card.removeVote(by);
  recount(state, vote.id);
}

export function foldAmend(state: ViewState, meta: Meta, amend: GateAmend): void {
  const card = findCard(state, amend.gate);
  const proposal = proposalAtGate(state, amend.gate);
  const { assessment } = amend;
  if (proposal === undefined || proposal.isOver || assessment === undefined) return;
  const requested = withEdit(proposal.requested, participantOf(meta), amend.arguments, assessment);
  if (requested === null) return;
  proposal.requested = requested;
  // A card has all the votes; the messages received may lack some.
  if (card !== undefined && !meta.isHistory) proposal.logged.approvedBy = Object.keys(card.votes).sort();
  const { void_votes, reason, edited_by: _, edited_at: __, ...before } = proposal.logEdit(
    requested,
    amend.digest,
    meta.at,
    truncateOptional(amend.reason),
  );
  const edit = { proposal: proposal.id, ...versionOf(requested), before, void_votes, reason };
  pushLogged(state, meta, { kind: "edited", ...edit });
  if (card === undefined) return;
  // After a welcome, history only adds what the welcome left out about the edited command.
  if (!meta.isHistory) amendCard(card, amend);
  if (!meta.isHistory || card.digest === assessment.digest) card.requested = requested;
  recount(state, amend.gate);
}

/** Takes over what an amendment says. It voids every vote given so far. */
function amendCard(card: Card, amend: GateAmend): void {
  card.category = amend.assessment?.category ?? card.category;
  card.digest = amend.assessment?.digest ?? card.digest;
  card.clearVotes();
  card.escalated = false;
  card.deadline = amend.deadline ?? null;
  card.quorum = amend.quorum ?? card.quorum;
  if (amend.voters !== undefined) card.setVoters(amend.voters);
}

export function foldTimeout(state: ViewState, meta: Meta, timeout: GateTimeout): void {
  const id = proposalAtGate(state, timeout.gate)?.id ?? timeout.gate;
  pushLogged(state, meta, {
    kind: "deadline_passed",
    proposal: id,
    ...versionAt(state, id),
    resolution: timeout.resolution,
    received: timeout.approvals_received,
    required: timeout.approvals_required,
  });
  if (timeout.resolution === "escalated" && !meta.isHistory) escalate(state, timeout);
}

function escalate(state: ViewState, timeout: GateTimeout): void {
  const card = findCard(state, timeout.gate);
  if (card === undefined) return;
  card.escalated = true;
  card.deadline = timeout.deadline ?? null;
  if (timeout.quorum !== undefined && timeout.voters !== undefined) {
    card.quorum = timeout.quorum;
    card.setVoters(timeout.voters);
  }
  card.touch();
  recount(state, timeout.gate);
}

const ENDS = { rejected: "rejected", timed_out: "timed_out", cancelled: "cancelled" } satisfies Record<
  Exclude<GateResolve["outcome"], "approved">,
  ProposalState
>;

export function foldResolve(state: ViewState, meta: Meta, resolve: GateResolve): void {
  const resolution = resolutionView(resolve);
  const { outcome, how, by, reason } = resolution;
  const id = resolve.tool_proposal;
  const end = { outcome, how, by, reason, rule: resolve.rule ?? null };
  pushLogged(state, meta, { kind: "resolved", proposal: id, ...versionAt(state, id), ...end });
  state.gates = state.gates.filter((card) => card.gate !== resolve.gate);
  const proposal = state.commandsById.get(id);
  if (proposal === undefined) return;
  proposal.gate = resolve.gate;
  proposal.resolution = resolution;
  pushBounded(state.resolved, closedCard(proposal, resolution), MAX_CLOSED_CARDS);
  if (outcome === "approved") proposal.advanceTo("approved");
  else closeProposal(state, proposal, ENDS[outcome]);
}

function closedCard(proposal: Proposal, resolution: ResolutionView): ClosedGateCard {
  return {
    gate: proposal.gate ?? proposal.id,
    proposal: proposal.id,
    command: truncateLine(proposal.command),
    shown: truncateLine(proposal.shown),
    category: proposal.assessment?.category ?? null,
    risk: proposal.assessment?.risk ?? null,
    ...resolution,
  };
}
