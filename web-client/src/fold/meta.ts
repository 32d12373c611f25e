// The parts of the envelope that folding a message needs.

import type { MessageId, ParticipantId } from "@protocol";
import type { ViewState } from "./state";
import type { Sender, TimelineEvent, TimelineItem, Timestamp } from "./types";

export interface Meta {
  id: MessageId;
  /** When the server stamped it. */
  at: Timestamp;
  /** Its sequence number in the log; null if it is ephemeral. */
  seq: number | null;
  sender: Sender;
  /** The message that it refers to, if any. */
  reference: MessageId | null;
  /** Whether the last welcome already includes its effects. */
  isHistory: boolean;
}

/** The participant who sent a message; null for the server itself. */
export function participantOf({ sender }: Meta): ParticipantId | null {
  return sender === "system" ? null : sender;
}

/** Adds an item to the timeline if the message is logged. */
export function pushLogged(state: ViewState, meta: Meta, event: TimelineEvent): void {
  if (meta.seq !== null) pushItem(state, meta, event);
}

/** Adds an item to the timeline. */
export function pushItem(state: ViewState, meta: Meta, event: TimelineEvent): void {
  const { id, seq, at, sender } = meta;
  state.stream.push({ id, seq, at, who: sender, ...event } as TimelineItem);
}

/** Appends an item to a bounded list, dropping the oldest if it is full. */
export function pushBounded<T>(list: T[], item: T, max: number): void {
  list.push(item);
  if (list.length > max) list.shift();
}
