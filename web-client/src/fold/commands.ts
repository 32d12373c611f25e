// Folds the messages about commands: proposals, grants, output, results and cancels.

import type {
  MessageId,
  ShellExec,
  ToolCancel,
  ToolDiscard,
  ToolExecute,
  ToolOutput,
  ToolPropose,
  ToolResult,
} from "@protocol";
import { actionFromArguments, bareAction } from "./action";
import type { CheckedAction } from "./action";
import { attempt } from "./envelope";
import { findCard, versionAt } from "./gates";
import type { Meta } from "./meta";
import { participantOf, pushBounded, pushLogged } from "./meta";
import { historyEntry, isAfter, Proposal, runOfGrant } from "./proposal";
import { isLong, requestOf, requestOfGrant, shortened, trialText, withGrantedAction, withProposal } from "./requested_action";
import type { ViewState } from "./state";
import { truncateLine, truncateOptional } from "./text";
import type { CommandOrigin, ProposalState, RequestedAction } from "./types";
import { LoggedVersion, versionOf } from "./version";

/** Commands kept with their output; the oldest that have ended are dropped first. */
export const MAX_PROPOSALS = 300;

/** Ended commands kept as one line of history. */
export const MAX_HISTORY = 1000;

/** The purpose shown for a person's own command. */
const OWN_COMMAND_PURPOSE = "a person's own command";

export function foldPropose(state: ViewState, meta: Meta, propose: ToolPropose): void {
  const action = attempt(() => actionFromArguments(propose.tool_name, propose.arguments), null);
  if (action === null) return;
  const requested = requestOf({ ...propose, proposer: propose.agent }, action);
  recordProposal(state, meta, "agent", requested);
  pushLogged(state, meta, { kind: "proposed", proposal: meta.id, ...versionOf(requested) });
}

export function foldShellExec(state: ViewState, meta: Meta, exec: ShellExec): void {
  const proposer = participantOf(meta);
  if (proposer === null) return;
  const { cwd, timeout_seconds, secrets = [], assessment } = exec;
  const action = { ...bareAction({ form: "login_shell", line: exec.command }), cwd, timeout_seconds, secrets };
  const requested = requestOf({ proposer, assessment, description: OWN_COMMAND_PURPOSE }, action);
  recordProposal(state, meta, "person", requested);
  pushLogged(state, meta, { kind: "executed", proposal: meta.id, ...versionOf(requested) });
}

/** Records a command. If a welcome already described it, only adds what the welcome left out. */
function recordProposal(state: ViewState, meta: Meta, origin: CommandOrigin, requested: RequestedAction): void {
  const known = state.commandsById.get(meta.id);
  const proposal = known ?? new Proposal(meta.id, origin, requested);
  proposal.seq = meta.seq;
  proposal.at = meta.at;
  proposal.origin = origin;
  proposal.logged = new LoggedVersion(versionOf(requested));
  if (known === undefined) {
    pushProposal(state, proposal);
    if (requested.assessment?.category === "blocked") closeProposal(state, proposal, "blocked");
    return;
  }
  known.requested = known.assessment === null ? requested : withProposal(known.requested, requested);
  const card = findCard(state, meta.id);
  if (card !== undefined) card.requested = known.requested;
  // Moved to the end, so that the list is in log order.
  state.commands.splice(state.commands.lastIndexOf(known), 1);
  state.commands.push(known);
}

export function pushProposal(state: ViewState, proposal: Proposal): void {
  state.commands.push(proposal);
  state.commandsById.set(proposal.id, proposal);
  if (state.commands.length <= MAX_PROPOSALS) return;
  const over = state.commands.findIndex((command) => command.isOver);
  const [dropped] = state.commands.splice(Math.max(over, 0), 1);
  if (dropped !== undefined) state.commandsById.delete(dropped.id);
}

/** Ends a command and adds it to the history. */
export function closeProposal(state: ViewState, proposal: Proposal, end: ProposalState): void {
  proposal.advanceTo(end);
  const { requested } = proposal;
  if (requested.call !== undefined || isLong(requested)) proposal.requested = shortened(requested);
  const entry = historyEntry(proposal);
  if (state.inHistory.has(proposal.id)) {
    state.history[state.history.findLastIndex((known) => known.proposal === proposal.id)] = entry;
    return;
  }
  const oldest = state.history[0];
  if (state.history.length >= MAX_HISTORY && oldest !== undefined) state.inHistory.delete(oldest.proposal);
  state.inHistory.add(proposal.id);
  pushBounded(state.history, entry, MAX_HISTORY);
}

export function foldExecute(state: ViewState, meta: Meta, execute: ToolExecute): void {
  const action = execute.grant.action as CheckedAction;
  const proposal = state.commandsById.get(execute.tool_proposal) ?? pushGranted(state, execute.tool_proposal, action);
  const isGranted = proposal.run !== null && proposal.run.grant !== null;
  if (isGranted || isAfter(proposal.state, "over")) return;
  proposal.run = runOfGrant(execute, meta.at);
  proposal.requested = withGrantedAction(proposal.requested, action);
  proposal.advanceTo("running");
}

/** Records a command from its grant, because the proposal was before the messages received. */
function pushGranted(state: ViewState, id: MessageId, action: CheckedAction): Proposal {
  const requested = requestOfGrant(action);
  const proposal = new Proposal(id, requested.form === "login_shell" ? "person" : "agent", requested);
  pushProposal(state, proposal);
  return proposal;
}

export function foldOutput(state: ViewState, output: ToolOutput): void {
  const proposal = state.commandsById.get(output.tool_proposal);
  if (proposal === undefined || (proposal.state !== "running" && proposal.state !== "over")) return;
  proposal.output.append(output.stream, output.offset, output.text);
  if (output.complete) proposal.output.markComplete(output.stream);
  proposal.touch();
}

export function foldResult(state: ViewState, meta: Meta, result: ToolResult): void {
  const proposal = state.commandsById.get(result.tool_proposal);
  if (proposal === undefined || isAfter(proposal.state, "over")) return;
  // What it returned so far is in the output already.
  if (result.more_output === true) return;
  proposal.recordResult(result, meta.at);
  closeProposal(state, proposal, "finished");
}

/** A trial that was discarded leaves the command as if it had not been granted. */
export function foldDiscard(state: ViewState, meta: Meta, discard: ToolDiscard): void {
  const id = discard.tool_proposal;
  const why = truncateLine(trialText(discard.trial));
  pushLogged(state, meta, { kind: "trial_discarded", proposal: id, ...versionAt(state, id), why });
  const proposal = state.commandsById.get(id);
  if (proposal?.state !== "running" || proposal.run?.cleared_by !== "tried") return;
  proposal.run = null;
  proposal.state = "judged";
  proposal.touch();
}

/** A cancel is only a request: the gate closes a waiting command, the result a running one. */
export function foldCancel(state: ViewState, meta: Meta, cancel: ToolCancel): void {
  const reason = truncateOptional(cancel.reason);
  const id = cancel.tool_proposal;
  pushLogged(state, meta, { kind: "cancel_asked", proposal: id, ...versionAt(state, id), reason });
  const proposal = state.commandsById.get(id);
  if (proposal === undefined) return;
  proposal.cancel = { by: meta.sender, at: meta.at, reason };
  proposal.touch();
}
