// Folds a welcome: merges the session's current state with what the view already knows.

import type { MessageId, Participant as ListedParticipant, OpenGate, RunningCommand, SessionWelcome } from "@protocol";
import { Card } from "./card";
import { closeProposal, pushProposal } from "./commands";
import { emptyRecord } from "./decode";
import { MAX_CARDS, recount } from "./gates";
import { insertParticipant, isAbsence, Participant, selfView } from "./participants";
import type { OwnLimits } from "./participants";
import { boundedApproval, Proposal, runOfWelcome } from "./proposal";
import { requestAtGate, requestOfRunning, withTrial } from "./requested_action";
import { setRules, setSecrets } from "./shared";
import type { ViewState } from "./state";
import { truncateLine, truncateOptional } from "./text";
import type { RequestedAction } from "./types";

export function foldWelcome(state: ViewState, welcome: SessionWelcome): void {
  // An older welcome says nothing that the view does not know better.
  if (welcome.head < Math.max(state.head, state.welcomeHead)) return;
  state.welcomeHead = welcome.head;
  state.name = truncateOptional(welcome.name);
  state.config = welcome.config;
  state.limits = welcome.limits;
  state.extensions = welcome.extensions;
  state.server = truncateLine(welcome.server);
  state.drafts = emptyRecord();
  foldParticipants(state, welcome);
  foldOpenGates(state, welcome.gates);
  for (const running of welcome.running) foldRunning(state, running);
  setRules(state, welcome.rules ?? []);
  setSecrets(state, welcome.secrets ?? []);
  closeMissing(state, welcome);
  const me = state.people[welcome.participant];
  state.ownLimits = me === undefined ? null : ownLimits(welcome, me);
  state.me = me === undefined ? null : selfView(me, state.config, state.ownLimits);
  state.paused = truncateOptional(welcome.paused);
  recount(state);
}

/** Replaces the participants; known ones whom the welcome does not list have left. */
function foldParticipants(state: ViewState, welcome: SessionWelcome): void {
  const gone = new Set(Object.keys(state.people));
  for (const listed of welcome.people) {
    gone.delete(listed.id);
    const known = state.people[listed.id];
    known?.announce(listed);
    const participant = known ?? new Participant(listed);
    participant.presence = listed.presence;
    participant.timed_out = seemsTimedOut(welcome, listed);
    insertParticipant(state, participant);
  }
  for (const id of gone) state.people[id]?.leave();
}

/**
 * Whether a participant has timed out, as far as a welcome shows. A paused session names those it
 * waits for; otherwise a participant who is away or disconnected is assumed to have timed out.
 */
function seemsTimedOut(welcome: SessionWelcome, participant: ListedParticipant): boolean {
  if (welcome.config.on_participant_timeout !== "pause_session") return isAbsence(participant.presence);
  return (welcome.paused ?? "").split(" and ").includes(participant.id);
}

function foldOpenGates(state: ViewState, open: OpenGate[]): void {
  const known = new Map(state.gates.map((card) => [card.gate, card]));
  state.gates = open.slice(0, MAX_CARDS).map((gate) => cardOf(gate, known.get(gate.gate)));
  for (const card of state.gates) markWaiting(state, card);
}

/** The card of an open gate, with details that only the earlier card of the same gate has. */
function cardOf(open: OpenGate, before: Card | undefined): Card {
  const isSame = before !== undefined && before.digest === open.request.digest;
  const card = new Card(open.gate, open.request, isSame ? before.requested : requestOfGate(open));
  card.opened_at = before?.opened_at ?? null;
  for (const approval of open.approvals) card.addVote(boundedApproval(approval));
  card.escalated = open.escalated;
  return card;
}

function requestOfGate(open: OpenGate): RequestedAction {
  const requested = requestAtGate(open as Parameters<typeof requestAtGate>[0]);
  const { trial } = open.request;
  return trial === undefined ? requested : withTrial(requested, trial);
}

function markWaiting(state: ViewState, card: Card): void {
  const proposal = proposalOrInsert(state, card.proposal, () => card.requested);
  proposal.requested = card.requested;
  proposal.gate = card.gate;
  proposal.state = "waiting";
}

function foldRunning(state: ViewState, running: RunningCommand): void {
  const proposal = proposalOrInsert(state, running.tool_proposal, () => requestOfRunning(running));
  proposal.state = "running";
  proposal.run ??= runOfWelcome(running);
  proposal.touch();
}

/** A command that the welcome mentions, inserted if it is not known yet. */
function proposalOrInsert(state: ViewState, id: MessageId, requested: () => RequestedAction): Proposal {
  const known = state.commandsById.get(id);
  if (known !== undefined) return known;
  const proposal = new Proposal(id, "agent", requested());
  pushProposal(state, proposal);
  return proposal;
}

/** Ends commands that neither wait nor run. The history that follows may show how they ended. */
function closeMissing(state: ViewState, welcome: SessionWelcome): void {
  const open = new Set([
    ...welcome.gates.map((gate) => gate.request.action_ref),
    ...welcome.running.map((running) => running.tool_proposal),
  ]);
  const missing = state.commands.filter((proposal) => !proposal.isOver && !open.has(proposal.id));
  for (const proposal of missing) closeProposal(state, proposal, "over");
}

/** What this client's token allows; null if the participant may do no more with another. */
function ownLimits(welcome: SessionWelcome, me: Participant): OwnLimits | null {
  const { roles, capabilities } = welcome;
  const hasAllRoles = me.roles.every((role) => roles.includes(role));
  const hasAll = hasAllRoles && me.capabilities.every((capability) => capabilities.includes(capability));
  return hasAll ? null : { roles, capabilities };
}
