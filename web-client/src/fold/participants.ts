// The participants of a session, their roles and presence, and the viewer's own rights.

import type {
  Announce,
  Capability,
  ParticipantId,
  ParticipantKind,
  PresenceStatus,
  PresenceUpdate,
  Role,
  RoleChange,
  SessionConfig,
  SessionLeave,
} from "@protocol";
import { stopAwaiting } from "./conversation";
import { recount, removeFromVotes } from "./gates";
import type { Meta } from "./meta";
import { participantOf, pushLogged } from "./meta";
import type { ViewState } from "./state";
import { truncateLine, truncateOptional } from "./text";
import type { ParticipantView, SelfView, Timestamp } from "./types";

/** Participants kept, including those who left; a session has at most 200 at a time by default. */
export const MAX_PARTICIPANTS = 1000;

const ROLES: Role[] = ["driver", "navigator", "adversary", "observer", "approver", "admin"];
const CAPABILITIES: Capability[] = [
  "prompt",
  "approve",
  "interrupt",
  "fork",
  "add_context",
  "manage_participants",
  "end_session",
  "exec",
];

const ROLE_CAPABILITIES: Record<Role, Capability[]> = {
  driver: ["prompt", "interrupt", "fork", "add_context", "exec"],
  navigator: ["approve", "interrupt", "fork", "add_context"],
  adversary: ["prompt", "approve", "interrupt", "fork", "add_context"],
  observer: [],
  approver: ["approve", "interrupt"],
  admin: CAPABILITIES,
};

/** What the holder of these roles may do. Agents never approve, whatever they hold. */
function capabilitiesOf(kind: ParticipantKind, roles: Role[], explicit: Capability[]): Capability[] {
  const held = new Set([...roles.flatMap((role) => ROLE_CAPABILITIES[role]), ...explicit]);
  if (kind === "agent") held.delete("approve");
  return CAPABILITIES.filter((capability) => held.has(capability));
}

/** Roles in order, without duplicates. */
export function deduplicated(roles: Role[]): Role[] {
  return ROLES.filter((role) => roles.includes(role));
}

/** One person or agent. */
export class Participant implements ParticipantView {
  readonly id: ParticipantId;
  name = "";
  kind: ParticipantKind = "human";
  roles: Role[] = [];
  capabilities: Capability[] = [];
  presence: PresenceStatus = "active";
  executor: ParticipantView["executor"] = null;
  last_active: Timestamp | null = null;
  left = false;
  timed_out = false;
  invited_by?: ParticipantId;
  #invitedBeforeSession = false;
  #explicit: Capability[] = [];
  #version = 0;

  constructor(announce: Announce) {
    this.id = announce.id;
    this.announce(announce);
  }

  /** Grows with each change. */
  get version(): number {
    return this.#version;
  }

  /** Says that something has changed. */
  touch(): void {
    this.#version += 1;
  }

  /** They were invited before the session was created. */
  get invitedBeforeSession(): boolean {
    return this.#invitedBeforeSession;
  }

  /** Takes over what an announcement says. */
  announce(announce: Announce): void {
    this.name = truncateLine(announce.name);
    this.kind = announce.type;
    this.executor = announce.executor ?? null;
    this.left = false;
    this.invited_by = announce.invited_by;
    this.#invitedBeforeSession = announce.invited_before_session === true;
    this.#explicit = announce.capabilities ?? [];
    this.setRoles(announce.roles, undefined);
  }

  /** Takes over roles, and capabilities beyond them if they are given. */
  setRoles(roles: Role[], explicit: Capability[] | undefined): void {
    this.roles = deduplicated(roles);
    this.#explicit = explicit ?? this.#explicit;
    this.capabilities = capabilitiesOf(this.kind, this.roles, this.#explicit);
    this.touch();
  }

  leave(): void {
    this.left = true;
    this.timed_out = false;
    this.presence = "disconnected";
    this.touch();
  }

  wasActive(at: Timestamp): void {
    if (this.last_active !== null && this.last_active >= at) return;
    this.last_active = at;
    this.touch();
  }
}

/** Whether a participant is in the session and has this capability. */
export function hasCapability(participant: ParticipantView, capability: Capability): boolean {
  return !participant.left && participant.capabilities.includes(capability);
}

/** Whether a participant may vote on others' proposals. */
export function mayVoteInGeneral(participant: ParticipantView): boolean {
  return participant.kind === "human" && hasCapability(participant, "approve");
}

/** Whether this is an agent that has not left. */
export function isPresentAgent(participant: ParticipantView): boolean {
  return participant.kind === "agent" && !participant.left;
}

/** Whether a participant runs commands that people send with `shell.exec`. */
export function isExecutor(participant: ParticipantView): boolean {
  return isPresentAgent(participant) && participant.executor?.shell_exec === true;
}

/** Whether presence in the log means that a participant does not count for decisions. */
export function isAbsence(status: PresenceStatus): boolean {
  return status === "away" || status === "disconnected";
}

/** What this client's token allows, where that is less than what its participant may do. */
export interface OwnLimits {
  roles: Role[];
  capabilities: Capability[];
}

/** The viewer's own participant and rights, with only those that this client's token gives. */
export function selfView(participant: Participant, config: SessionConfig, limits: OwnLimits | null): SelfView {
  const isAllowed = (capability: Capability) => limits === null || limits.capabilities.includes(capability);
  const may = (capability: Capability) => hasCapability(participant, capability) && isAllowed(capability);
  const execIsOn = config.shell_exec !== "off";
  return {
    participant: participant.id,
    roles: participant.roles.filter((role) => limits === null || limits.roles.includes(role)),
    capabilities: participant.capabilities.filter(isAllowed),
    may_approve: mayVoteInGeneral(participant) && isAllowed("approve"),
    may_exec: participant.kind === "human" && execIsOn && may("exec"),
    may_interrupt: may("interrupt"),
    may_prompt: may("prompt"),
  };
}

/** The absent participants that pause the session, joined by "and"; null if it is not paused. */
function pauseReason(state: ViewState): string | null {
  if (state.config.on_participant_timeout !== "pause_session") return null;
  const isRequired = (it: Participant) => !it.left && (it.kind === "agent" || it.capabilities.length > 0);
  const away = Object.values(state.people).filter((it) => it.timed_out && isRequired(it));
  const ids = away.map((it) => it.id).sort();
  return ids.length === 0 ? null : ids.join(" and ");
}

/** Recomputes what follows from the participants and the configuration. */
export function recomputeDerived(state: ViewState): void {
  state.paused = pauseReason(state);
  const me = state.me === null ? undefined : state.people[state.me.participant];
  if (me !== undefined) state.me = selfView(me, state.config, state.ownLimits);
  recount(state);
}

/** Puts a participant in the list, and forgets another if it is full. */
export function insertParticipant(state: ViewState, participant: Participant): void {
  if (state.people[participant.id] === undefined) {
    state.people[participant.id] = participant;
    state.peopleCount += 1;
  }
  if (!mayVoteInGeneral(participant)) removeFromVotes(state, participant.id);
  if (state.peopleCount > MAX_PARTICIPANTS) forgetAnother(state, participant.id);
}

function forgetAnother(state: ViewState, id: ParticipantId): void {
  const others = Object.keys(state.people)
    .filter((other) => other !== id)
    .sort();
  const forgotten = others.find((other) => state.people[other]?.left === true) ?? others[0];
  if (forgotten === undefined) return;
  delete state.people[forgotten];
  state.peopleCount -= 1;
}

export function foldAnnounce(state: ViewState, meta: Meta, announce: Announce): void {
  const { name, type, roles } = announce;
  const joined = { name: truncateLine(name), participant_kind: type, roles: deduplicated(roles) };
  pushLogged(state, meta, { kind: "joined", ...joined });
  if (meta.isHistory) return;
  const known = state.people[announce.id];
  // The server reports it when someone who timed out is active again.
  if (known?.left === true) known.presence = "active";
  known?.announce(announce);
  insertParticipant(state, known ?? new Participant(announce));
  recomputeDerived(state);
}

export function foldLeave(state: ViewState, meta: Meta, leave: SessionLeave): void {
  pushLogged(state, meta, { kind: "left", reason: truncateOptional(leave.reason) });
  const by = participantOf(meta);
  if (by === null) return;
  const participant = meta.isHistory ? undefined : state.people[by];
  if (leave.connection_lost === true) {
    // They are still a member, and their votes count.
    if (participant !== undefined) participant.presence = "disconnected";
    participant?.touch();
    return;
  }
  state.stream.closeAllOf(meta.sender);
  stopAwaiting(state, by, () => true);
  delete state.drafts[by];
  for (const proposal of state.commands) proposal.logged.removeVote(by);
  if (meta.isHistory) return;
  participant?.leave();
  removeFromVotes(state, by);
  recomputeDerived(state);
}

export function foldRoleChange(state: ViewState, meta: Meta, change: RoleChange): void {
  pushLogged(state, meta, {
    kind: "roles_changed",
    participant: change.participant,
    old_roles: deduplicated(change.old_roles),
    new_roles: deduplicated(change.new_roles),
    reason: truncateOptional(change.reason),
  });
  const participant = meta.isHistory ? undefined : state.people[change.participant];
  if (participant === undefined) return;
  participant.setRoles(change.new_roles, change.capabilities);
  if (!mayVoteInGeneral(participant)) {
    removeFromVotes(state, participant.id);
  } else if (change.votes_void === true) {
    for (const proposal of state.commands) proposal.logged.removeVote(participant.id);
    for (const card of state.gates) card.removeVote(participant.id);
  }
  recomputeDerived(state);
}

/** A logged presence update counts for decisions; an ephemeral one is only displayed. */
export function foldPresence(state: ViewState, meta: Meta, presence: PresenceUpdate): void {
  const { participant: id, status, last_active } = presence;
  const isLogged = meta.seq !== null;
  pushLogged(state, meta, { kind: "attendance", participant: id, status });
  const participant = state.people[id];
  if (participant === undefined) return;
  participant.wasActive(last_active);
  // The last logged update is exact, so this is right for history as well.
  if (isLogged) participant.timed_out = isAbsence(status);
  if (!meta.isHistory && !participant.left) participant.presence = status;
  participant.touch();
  if (isLogged && !meta.isHistory) recomputeDerived(state);
  else if (isLogged) recount(state);
}
