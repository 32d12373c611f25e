// Messages of the server, checked before anything uses them.

import type { Envelope as ProtocolEnvelope, ServerMessage } from "@protocol";
import { count, id, jsonObject, Malformed, object, optional, text, timestamp } from "./decode";
import type { Decoder } from "./decode";
import { parseJson } from "./json";
import { payloads } from "./payloads";
import { EPOCH } from "./time";

/**
 * A message of the server. One of a type that this version does not know, or whose payload does not
 * have the form of its type, has the type `unknown`; it still counts as received.
 */
export type Envelope = ServerMessage | ProtocolEnvelope<"unknown", Record<string, unknown>>;

/** Characters of one message; a welcome to a crowded session has a few million. */
const MAX_MESSAGE_LENGTH = 64 * 1024 * 1024;

const frame = object({
  v: versionOne,
  id,
  ts: optional(timestamp),
  session: id,
  sender: id,
  type: text,
  payload: jsonObject,
  ref: optional(id),
  seq: optional(count),
});

function versionOne(value: unknown): 1 {
  if (value !== 1) throw new Malformed("another version of the protocol");
  return 1;
}

/** Parses a message of the server; null if the text is none. */
export function parseServerMessage(text: string): Envelope | null {
  if (text.length > MAX_MESSAGE_LENGTH) return null;
  return readServerMessage(parseJson(text));
}

/** Checks a message of the server that is parsed already; null if it is none. */
export function readServerMessage(value: unknown): Envelope | null {
  const envelope = attempt(frame, value);
  if (envelope === null) return null;
  const { type, payload } = envelope;
  const decode = Object.hasOwn(payloads, type) ? (payloads[type as keyof typeof payloads] as Decoder<object>) : null;
  const decoded = decode && attempt(decode, payload);
  const typed = decoded === null ? { type: "unknown", payload } : { type, payload: decoded };
  return { ...envelope, ts: envelope.ts ?? EPOCH, ...typed } as Envelope;
}

/** What a decoder makes of a value; null if the value is malformed. */
export function attempt<T>(decode: Decoder<T>, value: unknown): T | null {
  try {
    return decode(value);
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }
}
