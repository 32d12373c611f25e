// Folds the messages about shared things: context, secrets by name, and allow rules.

import type {
  AllowRuleInfo,
  Content,
  ContentRef,
  ContextAdd,
  ContextRemove,
  ContextUpdate,
  PolicyAllow,
  PolicyRevoke,
  SecretInfo,
  SecretRevoke,
  SecretShare,
} from "@protocol";
import { emptyRecord } from "./decode";
import { compactJson } from "./json";
import type { Meta } from "./meta";
import { participantOf, pushBounded, pushLogged } from "./meta";
import { MAX_RULE_WORDS } from "./proposal";
import type { ViewState } from "./state";
import { byteLength, truncateLine, truncateOptional } from "./text";
import type { AllowRuleView } from "./types";

/** Context keys kept. Their content is not kept, so this is a few hundred kilobytes. */
const MAX_CONTEXT_ITEMS = 2000;

/** Secrets, allow rules, and participants in a secret's scope; a session has at most 200 of each. */
const MAX_SHARED_ITEMS = 200;

/** The context key under which the server publishes where commands run. */
const WORKING_DIRECTORY_KEY = "session:working_directory";

export function foldContextAdd(state: ViewState, meta: Meta, add: ContextAdd): void {
  const bytes = contentSize(add.content, add.content_ref);
  const key = truncateLine(add.key);
  updateWorkingDirectory(state, add.key, add.content);
  const isKnown = state.context[key] !== undefined;
  if (isKnown || state.contextCount < MAX_CONTEXT_ITEMS) {
    state.context[key] = { by: meta.sender, at: meta.at, content_type: add.content_type, bytes };
    state.contextCount += isKnown ? 0 : 1;
  }
  pushLogged(state, meta, { kind: "context_added", key, bytes });
}

function updateWorkingDirectory(state: ViewState, key: string, content: Content | undefined): void {
  if (key === WORKING_DIRECTORY_KEY && typeof content === "string") state.working_directory = truncateLine(content);
}

export function foldContextUpdate(state: ViewState, meta: Meta, update: ContextUpdate): void {
  updateWorkingDirectory(state, update.key, update.new_content);
  const key = truncateLine(update.key);
  const known = state.context[key];
  const isReplaced = update.new_content !== undefined || update.new_content_ref !== undefined;
  const bytes = isReplaced
    ? contentSize(update.new_content, update.new_content_ref)
    : (known?.bytes ?? 0) + byteLength(update.diff ?? "");
  if (known !== undefined) state.context[key] = { ...known, by: meta.sender, at: meta.at, bytes };
  pushLogged(state, meta, { kind: "context_updated", key, bytes, reason: truncateLine(update.reason) });
}

export function foldContextRemove(state: ViewState, meta: Meta, remove: ContextRemove): void {
  const key = truncateLine(remove.key);
  state.contextCount -= state.context[key] === undefined ? 0 : 1;
  delete state.context[key];
  pushLogged(state, meta, { kind: "context_removed", key, reason: truncateLine(remove.reason) });
}

function contentSize(content: Content | undefined, reference: ContentRef | undefined): number {
  if (content === undefined) return reference?.size_bytes ?? 0;
  return byteLength(typeof content === "string" ? content : compactJson(content));
}

export function foldSecretShare(state: ViewState, meta: Meta, share: SecretShare): void {
  const key = truncateLine(share.key);
  const scope = share.scope.slice(0, MAX_SHARED_ITEMS);
  if (state.secrets[key] !== undefined || Object.keys(state.secrets).length < MAX_SHARED_ITEMS) {
    const { expires_at = null, secret_type = null } = share;
    state.secrets[key] = { by: meta.sender, at: meta.at, scope, expires_at, secret_type };
  }
  pushLogged(state, meta, { kind: "secret_shared", key, scope });
}

export function foldSecretRevoke(state: ViewState, meta: Meta, revoke: SecretRevoke): void {
  const key = truncateLine(revoke.key);
  delete state.secrets[key];
  pushLogged(state, meta, { kind: "secret_revoked", key, reason: truncateLine(revoke.reason) });
}

/** Replaces the secrets with those of a welcome, and keeps what it leaves out about them. */
export function setSecrets(state: ViewState, secrets: SecretInfo[]): void {
  const known = state.secrets;
  state.secrets = emptyRecord();
  for (const info of secrets.slice(0, MAX_SHARED_ITEMS)) {
    const key = truncateLine(info.key);
    const { at = null, secret_type = null } = known[key] ?? {};
    delete known[key];
    const scope = info.scope.slice(0, MAX_SHARED_ITEMS);
    state.secrets[key] = { by: info.by, at, scope, expires_at: info.expires_at ?? null, secret_type };
  }
}

/** What a rule allows, in the size that is kept. */
function allowance(rule: PolicyAllow): Pick<AllowRuleView, "prefix" | "read_root" | "directory" | "expires_at" | "reason"> {
  const bounded = (text: string | undefined) => truncateOptional(text) ?? undefined;
  return {
    prefix: (rule.prefix ?? []).slice(0, MAX_RULE_WORDS).map(truncateLine),
    read_root: bounded(rule.read_root),
    directory: bounded(rule.directory),
    expires_at: rule.expires_at,
    reason: truncateOptional(rule.reason),
  };
}

export function foldAllow(state: ViewState, meta: Meta, allow: PolicyAllow): void {
  const allowed = allowance(allow);
  const by = participantOf(meta);
  // For history, the welcome has already listed the rules that still hold.
  if (by !== null && !meta.isHistory) {
    state.rules = state.rules.filter((rule) => rule.expires_at > meta.at);
    pushBounded(state.rules, { rule: meta.id, by, at: meta.at, ...allowed }, MAX_SHARED_ITEMS);
  }
  pushLogged(state, meta, { kind: "allowed", ...allowed });
}

export function foldAllowRevoke(state: ViewState, meta: Meta, revoke: PolicyRevoke): void {
  state.rules = state.rules.filter((rule) => rule.rule !== revoke.rule);
  pushLogged(state, meta, { kind: "allow_revoked", rule: revoke.rule, reason: truncateOptional(revoke.reason) });
}

/** Replaces the rules with those of a welcome. */
export function setRules(state: ViewState, rules: AllowRuleInfo[]): void {
  const view = (info: AllowRuleInfo) => ({ rule: info.rule, by: info.by, at: info.at, ...allowance(info) });
  state.rules = rules.slice(0, MAX_SHARED_ITEMS).map(view);
}
