// Folds the messages of the conversation with agents: drafts, prompts, thinking, responses and
// interrupts.

import type {
  InterruptAcknowledge,
  InterruptRaise,
  ParticipantId,
  PromptAmend,
  PromptDraft,
  PromptSubmit,
  ResponseEnd,
  ThinkingEnd,
  UsageStats,
} from "@protocol";
import type { Meta } from "./meta";
import { participantOf, pushBounded, pushLogged } from "./meta";
import { isPresentAgent } from "./participants";
import type { ViewState } from "./state";
import { truncate, truncateLine, truncateOptional } from "./text";
import { truncatedText } from "./timeline";
import type { AgentTextKind } from "./timeline";
import type { InterruptView, TimelineEvent } from "./types";

/** Bytes kept of a draft: more than fits on the line that shows it. */
const MAX_DRAFT_BYTES = 16 * 1024;

/** Drafts, one per participant; a session has at most 200 participants by default. */
const MAX_DRAFTS = 200;

/** Unacknowledged interrupts; as many as the server keeps. */
const MAX_INTERRUPTS = 256;

/** Context keys kept of a prompt. */
const MAX_CONTEXT_KEYS = 64;

export function foldDraft(state: ViewState, meta: Meta, draft: PromptDraft): void {
  const by = participantOf(meta);
  if (by === null || by === state.me?.participant) return;
  if (draft.content === "") {
    delete state.drafts[by];
  } else if (state.drafts[by] !== undefined || Object.keys(state.drafts).length < MAX_DRAFTS) {
    const text = truncate(draft.content, MAX_DRAFT_BYTES);
    state.drafts[by] = { text, to: draft.target_agent ?? null, at: meta.at };
  }
}

export function foldPrompt(state: ViewState, meta: Meta, prompt: PromptSubmit): void {
  const by = participantOf(meta);
  if (by !== null) delete state.drafts[by];
  const context_keys = prompt.context_keys.slice(0, MAX_CONTEXT_KEYS).map(truncateLine);
  pushLogged(state, meta, { kind: "prompt", ...truncatedText(prompt.content), to: prompt.target_agent, context_keys });
}

export function foldPromptAmend(state: ViewState, meta: Meta, amend: PromptAmend): void {
  const reason = truncateLine(amend.reason);
  pushLogged(state, meta, { kind: "prompt_amended", prompt: amend.original_prompt, ...truncatedText(amend.amendment), reason });
}

/** Begins an agent's text. */
export function foldTextStart(state: ViewState, meta: Meta, kind: AgentTextKind, prompt: string): void {
  pushLogged(state, meta, textEvent(kind, prompt, ""));
}

/** Continues an agent's text. Where its start was before the messages received, begins one. */
export function foldTextChunk(state: ViewState, meta: Meta, kind: AgentTextKind, text: string): void {
  if (state.stream.append(kind, meta.sender, meta.reference, text)) return;
  const id = meta.reference ?? meta.id;
  if (state.stream.newest(id) === undefined) pushLogged(state, { ...meta, id }, textEvent(kind, null, text));
}

function textEvent(kind: AgentTextKind, prompt: string | null, given: string): TimelineEvent {
  const text = { prompt, ...truncatedText(given), open: true };
  return kind === "thinking"
    ? { kind, ...text, summary: null, duration_ms: null }
    : { kind, ...text, finish_reason: null, usage: null };
}

export function foldThinkingEnd(state: ViewState, meta: Meta, end: ThinkingEnd): void {
  const ended = { summary: truncateOptional(end.summary), duration_ms: end.duration_ms ?? null };
  state.stream.close("thinking", meta.sender, meta.reference, (item) =>
    item.kind === "thinking" ? { ...item, ...ended } : item,
  );
}

export function foldResponseEnd(state: ViewState, meta: Meta, end: ResponseEnd): void {
  const ended = { finish_reason: end.finish_reason, usage: end.usage ? boundedUsage(end.usage) : null };
  state.stream.close("response", meta.sender, meta.reference, (item) =>
    item.kind === "response" ? { ...item, ...ended } : item,
  );
}

function boundedUsage(usage: UsageStats): UsageStats {
  return usage.model === undefined ? usage : { ...usage, model: truncateLine(usage.model) };
}

export function foldInterrupt(state: ViewState, meta: Meta, interrupt: InterruptRaise): void {
  const { urgency } = interrupt;
  const [target, message] = [interrupt.target ?? null, truncateLine(interrupt.message)];
  pushLogged(state, meta, { kind: "interrupted", target, urgency, message });
  const awaited = targetAgents(state, target);
  if (awaited.length === 0) return;
  const open = { interrupt: meta.id, by: meta.sender, at: meta.at, urgency, target, message, awaited };
  pushBounded(state.interrupts, open, MAX_INTERRUPTS);
}

function targetAgents(state: ViewState, target: ParticipantId | null): ParticipantId[] {
  const agents = Object.values(state.people).filter(isPresentAgent);
  const targets = agents.filter((agent) => target === null || agent.id === target);
  return targets.map((agent) => agent.id).sort();
}

export function foldAcknowledge(state: ViewState, meta: Meta, acknowledge: InterruptAcknowledge): void {
  const { interrupt, action_taken, by } = acknowledge;
  const reason = truncateOptional(acknowledge.ignore_reason);
  pushLogged(state, meta, { kind: "acknowledged", interrupt, action_taken, reason });
  const acknowledged = state.interrupts.findIndex((known) => known.interrupt === interrupt);
  stopAwaiting(state, by, (index) => index === acknowledged);
}

/** An agent has acknowledged some interrupts, or has left. Those that await nobody are over. */
export function stopAwaiting(state: ViewState, agent: ParticipantId, which: (index: number) => boolean): void {
  const without = (known: InterruptView) => ({ ...known, awaited: known.awaited.filter((id) => id !== agent) });
  const interrupts = state.interrupts.map((known, index) =>
    which(index) && known.awaited.includes(agent) ? without(known) : known,
  );
  state.interrupts = interrupts.filter((known) => known.awaited.length > 0);
}
