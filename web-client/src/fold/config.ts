// The configuration of a session, and what changes make of it.

import type { ConfigChanges, QuorumByCategory, SessionConfig } from "@protocol";
import { flag, jsonObject, listOf, object, oneOf, optional, or, recordOf, smallCount, text } from "./decode";
import type { Decoder } from "./decode";
import { compactJson } from "./json";
import type { JsonObject } from "./json";
import { gateTimeoutAction, profile, quorum, toolCategory } from "./names";
import { byteLength } from "./text";

const quorumByCategory: Decoder<QuorumByCategory> = (value) => {
  const { write, destructive, ...tools } = jsonObject(value);
  const named = object({ write: optional(quorum), destructive: optional(quorum) })({ write, destructive });
  Object.keys(tools).forEach((name) => toolCategory(name));
  return { ...recordOf(quorum)(tools), ...named };
};

/** The settings of a session: how each is checked, and what it is where it is not given. */
const settings = {
  require_approval_for: [listOf(toolCategory), () => []],
  default_gate_quorum: [quorum, () => ({ type: "any", count: 1 })],
  allow_forks: [flag, () => true],
  max_participants: [smallCount, () => 10],
  ordering_mode: [oneOf("causal", "total"), () => "causal"],
  on_participant_timeout: [oneOf("wait", "skip", "pause_session"), () => "skip"],
  heartbeat_interval_seconds: [smallCount, () => 30],
  idle_timeout_seconds: [smallCount, () => 120],
  away_timeout_seconds: [smallCount, () => 300],
  quorum_by_category: [quorumByCategory, () => ({})],
  gate_timeout_seconds: [smallCount, () => 300],
  on_gate_timeout: [gateTimeoutAction, () => "reject"],
  shell_exec: [oneOf("direct", "direct_all", "gated", "off"), () => "direct"],
  four_eyes: [flag, () => false],
  solo: [flag, () => false],
  quorum_independent: [flag, () => true],
  trust_reads: [flag, () => false],
  client_reads: [oneOf("ask", "workspace"), () => "ask"],
  try_unknown: [flag, () => false],
  profile: [profile, () => "none"],
  read_roots: [listOf(text), () => []],
} satisfies { [Name in keyof SessionConfig]: [Decoder<SessionConfig[Name]>, () => SessionConfig[Name]] };

type Setting = [Decoder<unknown>, () => unknown];
const settingList = Object.entries(settings) as [string, Setting][];

/** Settings that this version does not know are kept. */
export const config: Decoder<SessionConfig> = (value) => {
  const decoded: JsonObject = { ...jsonObject(value) };
  for (const [name, [decode, absent]] of settingList) decoded[name] = or(decode, absent)(decoded[name]);
  return decoded as SessionConfig;
};

export const configChanges: Decoder<ConfigChanges> = (value) => {
  const decoded: JsonObject = { ...jsonObject(value) };
  for (const [name, [decode]] of settingList) {
    const change = optional(decode)(decoded[name]);
    if (change === undefined) delete decoded[name];
    else decoded[name] = change;
  }
  return decoded as ConfigChanges;
};

/** The configuration of a session that sets nothing. */
export function defaultConfig(): SessionConfig {
  return config({});
}

/** Whether a setting is one of this version. */
function isKnownSetting(name: string): boolean {
  return Object.hasOwn(settings, name);
}

/** Bytes kept of settings that this version does not know. */
const MAX_UNKNOWN_BYTES = 64 * 1024;

/** The configuration with the changes applied. */
export function withChanges(config: SessionConfig, changes: ConfigChanges): SessionConfig {
  const changed: JsonObject = { ...config, ...changes };
  const unknown = Object.keys(changed).filter((name) => !isKnownSetting(name));
  const bytes = unknown.reduce((sum, name) => sum + byteLength(name) + byteLength(compactJson(changed[name])), 0);
  if (bytes > MAX_UNKNOWN_BYTES) for (const name of unknown) delete changed[name];
  return changed as SessionConfig;
}
