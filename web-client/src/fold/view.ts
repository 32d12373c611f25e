// What one participant sees of a session, folded from the messages they receive.

import type { ErrorReport, MessageId, ParticipantId, SessionConfigUpdate, SessionCreate, SessionEnd } from "@protocol";
import type { Card } from "./card";
import {
  foldCancel,
  foldDiscard,
  foldExecute,
  foldOutput,
  foldPropose,
  foldResult,
  foldShellExec,
} from "./commands";
import { withChanges } from "./config";
import {
  foldAcknowledge,
  foldDraft,
  foldInterrupt,
  foldPrompt,
  foldPromptAmend,
  foldResponseEnd,
  foldTextChunk,
  foldTextStart,
  foldThinkingEnd,
} from "./conversation";
import type { Envelope } from "./envelope";
import {
  findCard,
  foldAmend,
  foldApproval,
  foldGateRequest,
  foldRejection,
  foldResolve,
  foldTimeout,
  proposalAtGate,
} from "./gates";
import { compactJson } from "./json";
import type { Meta } from "./meta";
import { pushItem, pushLogged } from "./meta";
import {
  foldAnnounce,
  foldLeave,
  foldPresence,
  foldRoleChange,
  isPresentAgent,
  recomputeDerived,
} from "./participants";
import type { Participant } from "./participants";
import type { Proposal } from "./proposal";
import {
  foldAllow,
  foldAllowRevoke,
  foldContextAdd,
  foldContextRemove,
  foldContextUpdate,
  foldSecretRevoke,
  foldSecretShare,
} from "./shared";
import { ViewState } from "./state";
import { byteLength, MAX_LINE_BYTES, truncateLine, truncateOptional } from "./text";
import { EPOCH } from "./time";
import type { AllowRuleView, Live, Sender, TimelineItem, Timestamp, ViewData } from "./types";
import { foldWelcome } from "./welcome";

/**
 * What one participant sees of a session.
 *
 * The view is pure: no clock, no I/O, no randomness. The same messages give the same view in every
 * language; the golden transcripts in `tests/transcripts` define the result. Whatever messages
 * arrive, in whatever order and however often, a view has a bounded size and never throws.
 *
 * A welcome states the session's state at its `head`. Messages received after it, up to that head,
 * are history: they fill in the timeline, the list of commands and the details that the welcome
 * leaves out, but they open no card and change no participant.
 *
 * How to draw it: read the fields again after each fold; do not keep them, because lists and records
 * may be changed or replaced.
 * - Participants, cards and commands keep their identity and have a `version` that grows with each
 *   change. A component that gets both (`<Row command={it} version={it.version} />`) can be memoized.
 *   A card is another object after a new welcome.
 * - Items of the timeline, closed cards, history entries, rules, drafts, context, secrets and
 *   interrupts never change: what changes is replaced by another object, so a component that gets one
 *   can be memoized. Items have a `version` too, and keep their place: `stream.dropped` plus index.
 * - `command.output` keeps its identity; its chunks are made when they are asked for. `received` and
 *   `since` tell what was printed since it was drawn last, without a look at the rest.
 */
export class View extends ViewState {
  /** Folds the next message. One that was folded before, or of another session, is ignored. */
  fold(envelope: Envelope): void {
    this.session ??= envelope.session;
    const seq = envelope.seq ?? null;
    const isFolded = seq !== null && seq <= this.head;
    if (isFolded || this.session !== envelope.session) return;
    this.head = seq ?? this.head;
    const meta: Meta = {
      id: envelope.id,
      at: envelope.ts ?? EPOCH,
      seq,
      sender: envelope.sender,
      reference: envelope.ref ?? null,
      isHistory: this.isHistory(seq),
    };
    // Any message shows that its sender is active.
    if (meta.sender !== "system") this.people[meta.sender]?.wasActive(meta.at);
    this.#foldMessage(meta, envelope);
  }

  #foldMessage(meta: Meta, message: Envelope): void {
    switch (message.type) {
      case "session.welcome":
        return foldWelcome(this, message.payload);
      case "session.create":
        return this.#foldCreate(meta, message.payload);
      case "session.config_update":
        return this.#foldConfig(meta, message.payload);
      case "session.end":
        return this.#foldEnd(meta, message.payload);
      case "session.leave":
        return foldLeave(this, meta, message.payload);
      case "participant.announce":
        return foldAnnounce(this, meta, message.payload);
      case "participant.role_change":
        return foldRoleChange(this, meta, message.payload);
      case "presence.update":
        return foldPresence(this, meta, message.payload);
      case "context.add":
        return foldContextAdd(this, meta, message.payload);
      case "context.update":
        return foldContextUpdate(this, meta, message.payload);
      case "context.remove":
        return foldContextRemove(this, meta, message.payload);
      case "secret.share":
        return foldSecretShare(this, meta, message.payload);
      case "secret.revoke":
        return foldSecretRevoke(this, meta, message.payload);
      case "policy.allow":
        return foldAllow(this, meta, message.payload);
      case "policy.revoke":
        return foldAllowRevoke(this, meta, message.payload);
      case "prompt.draft":
        return foldDraft(this, meta, message.payload);
      case "prompt.submit":
        return foldPrompt(this, meta, message.payload);
      case "prompt.amend":
        return foldPromptAmend(this, meta, message.payload);
      case "thinking.start":
        return foldTextStart(this, meta, "thinking", message.payload.prompt_ref);
      case "thinking.chunk":
        return foldTextChunk(this, meta, "thinking", message.payload.text);
      case "thinking.end":
        return foldThinkingEnd(this, meta, message.payload);
      case "response.start":
        return foldTextStart(this, meta, "response", message.payload.prompt_ref);
      case "response.chunk":
        return foldTextChunk(this, meta, "response", message.payload.text);
      case "response.end":
        return foldResponseEnd(this, meta, message.payload);
      case "interrupt.raise":
        return foldInterrupt(this, meta, message.payload);
      case "interrupt.acknowledge":
        return foldAcknowledge(this, meta, message.payload);
      case "tool.propose":
        return foldPropose(this, meta, message.payload);
      case "shell.exec":
        return foldShellExec(this, meta, message.payload);
      case "gate.request":
        return foldGateRequest(this, meta, message.payload);
      case "tool.approve":
        return foldApproval(this, meta, { ...message.payload, id: message.payload.tool_proposal });
      case "gate.approve":
        return foldApproval(this, meta, { ...message.payload, id: message.payload.gate });
      case "tool.reject":
        return foldRejection(this, meta, { ...message.payload, id: message.payload.tool_proposal });
      case "gate.reject":
        // The server repeats for others in published words what it says as `gate.resolve`.
        if (meta.sender === "system") return;
        return foldRejection(this, meta, { ...message.payload, id: message.payload.gate, suggestion: undefined });
      case "gate.amend":
        return foldAmend(this, meta, message.payload);
      case "gate.timeout":
        return foldTimeout(this, meta, message.payload);
      case "gate.resolve":
        return foldResolve(this, meta, message.payload);
      case "tool.execute":
        return foldExecute(this, meta, message.payload);
      case "tool.output":
        return foldOutput(this, message.payload);
      case "tool.result":
        return foldResult(this, meta, message.payload);
      case "tool.discard":
        return foldDiscard(this, meta, message.payload);
      case "tool.cancel":
        return foldCancel(this, meta, message.payload);
      case "error":
        return this.#foldError(meta, message.payload);
      // Replies to requests of the connection, keystrokes, whose effect shows in the output, that a
      // client is away for a while, which changes nothing for those who vote, and what is unknown.
      case "session.ack":
      case "heartbeat.ping":
      case "heartbeat.pong":
      case "tool.input":
      case "tool.defer":
      case "output.page":
      case "unknown":
        return;
    }
  }

  #foldCreate(meta: Meta, create: SessionCreate): void {
    const name = truncateOptional(create.name);
    if (!meta.isHistory) {
      this.name = name;
      this.config = create.config;
      recomputeDerived(this);
    }
    pushLogged(this, meta, { kind: "created", name });
  }

  #foldConfig(meta: Meta, update: SessionConfigUpdate): void {
    const isTooLong = byteLength(compactJson(update.changes)) > MAX_LINE_BYTES;
    const reason = truncateLine(update.reason);
    pushLogged(this, meta, { kind: "configured", changes: isTooLong ? null : update.changes, reason });
    if (meta.isHistory) return;
    this.config = withChanges(this.config, update.changes);
    recomputeDerived(this);
  }

  #foldEnd(meta: Meta, end: SessionEnd): void {
    const ended = { reason: truncateLine(end.reason), final_state: end.final_state };
    this.ended = { by: meta.sender, at: meta.at, ...ended };
    pushLogged(this, meta, { kind: "ended", ...ended });
  }

  #foldError(meta: Meta, report: ErrorReport): void {
    const { code, recoverable, related_to = null } = report;
    pushItem(this, meta, { kind: "error", code, message: truncateLine(report.message), recoverable, related_to });
  }

  /** The fields as plain JSON, as in the golden transcripts. */
  snapshot(): ViewData {
    const fields: ViewData = {
      session: this.session,
      name: this.name,
      me: this.me,
      config: this.config,
      limits: this.limits,
      extensions: this.extensions,
      server: this.server,
      head: this.head,
      paused: this.paused,
      ended: this.ended,
      working_directory: this.working_directory,
      people: this.people,
      stream: this.stream,
      gates: this.gates,
      commands: this.commands,
      resolved: this.resolved,
      history: this.history,
      rules: this.rules,
      drafts: this.drafts,
      context: this.context,
      secrets: this.secrets,
      interrupts: this.interrupts,
    };
    return JSON.parse(JSON.stringify(fields)) as ViewData;
  }

  /** The last entry that is known to be there, whether it has arrived or not. */
  get knownHead(): number {
    return Math.max(this.head, this.welcomeHead);
  }

  /**
   * Whether messages of the past are still to come: those up to the head that the last welcome named.
   * If the last of them is not for the viewer, this lasts until the next message.
   */
  get isReplaying(): boolean {
    return this.head < this.welcomeHead;
  }

  /** Whether a message is of the past, so that the last welcome already says what became of it. */
  isHistory(seq: number | null): boolean {
    return seq !== null && seq <= this.welcomeHead;
  }

  /** The open card with this gate id or proposal id. */
  card(id: MessageId): Card | undefined {
    return findCard(this, id);
  }

  /** Open cards that wait for the viewer's vote, oldest first. */
  awaitingMyVote(): Card[] {
    return this.gates.filter((card) => card.standing === "may_vote");
  }

  /** The earliest deadline of the open gates; null if there is none. */
  nextDeadline(): Timestamp | null {
    const deadlines = this.gates.map((card) => card.deadline).filter((deadline) => deadline !== null);
    return deadlines.sort()[0] ?? null;
  }

  /** The command with this proposal id. */
  proposal(id: MessageId): Proposal | undefined {
    return this.commandsById.get(id);
  }

  /** The command that waits or waited at this gate; the id of the command itself is as good. */
  proposalAtGate(id: MessageId): Proposal | undefined {
    return proposalAtGate(this, id);
  }

  /** What this participant proposed, or typed as their own command, oldest first. */
  proposalsOf(participant: ParticipantId): Proposal[] {
    return this.commands.filter((proposal) => proposal.proposer === participant);
  }

  /** Running commands, including background ones, oldest first. */
  running(): Proposal[] {
    return this.commands.filter((proposal) => proposal.isRunning);
  }

  /** Participants who have not left, by id. */
  present(): Participant[] {
    const present = Object.values(this.people).filter((participant) => !participant.left);
    return present.sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Agents that have not left, to prompt or to interrupt, by id. */
  agents(): Participant[] {
    return this.present().filter(isPresentAgent);
  }

  /** The newest item of the timeline that was made of this message. */
  timelineItem(message: MessageId): Live<TimelineItem> | undefined {
    return this.stream.newest(message);
  }

  /** The name to show for a participant or the server, or the id if the name is unknown. */
  displayName(id: Sender): string {
    return this.people[id]?.name ?? id;
  }

  /** Whether this participant is the viewer. */
  isMe(participant: ParticipantId): boolean {
    return this.me?.participant === participant;
  }

  /** Allow rules that have not expired. */
  activeRules(now: Timestamp): AllowRuleView[] {
    return this.rules.filter((rule) => rule.expires_at > now);
  }
}
