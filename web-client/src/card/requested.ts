// The action of a gate that the API describes, as people read it.

import type { FileContent, GateListItem, OpenGate } from "@protocol";
import { escapeInvisible, requestedAtGate } from "../fold";
import type { RequestedAction } from "../fold";
import { compactJson } from "../fold/json";
import { byteLength } from "../fold/text";

/** Comparing long files takes a while, so it is done once for each answer of the server. */
const known = new WeakMap<OpenGate, { contents: readonly FileContent[]; requested: RequestedAction }>();

/** A command that the list has only a part of counts as cut, so that it cannot be decided from there. */
export function requestedFromOpenGate(open: OpenGate & Pick<GateListItem, "cut_bytes">, contents: FileContent[]): RequestedAction {
  const before = known.get(open);
  if (before !== undefined && (before.contents === contents || (before.contents.length === 0 && contents.length === 0))) return before.requested;
  const read = requestedAtGate(open, contents) ?? unreadable(open);
  const requested = open.cut_bytes === undefined ? read : { ...read, cut_bytes: read.cut_bytes + open.cut_bytes };
  known.set(open, { contents, requested });
  return requested;
}

/** A gate in a form that this page does not know. It is shown as it came, and cannot be approved here. */
function unreadable(open: OpenGate): RequestedAction {
  const command = compactJson(open.action);
  return {
    proposer: open.proposer,
    command,
    shown: escapeInvisible(command),
    hidden: 0,
    cut_bytes: byteLength(command),
    form: "shell",
    argv: [],
    tool: null,
    cwd: null,
    env: {},
    mode: "normal",
    timeout_seconds: null,
    driver: null,
    purpose: open.description,
    assessment: null,
    prefix: [],
    edited_by: open.amended_by ?? null,
  };
}
