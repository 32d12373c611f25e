// A requested action: the command as it would run, and its assessment.

import type { Assessment, BoundFile, ClientOrigin, Degree, FileContent, ToolCategory } from "@protocol";
import { actionFromArguments, bareAction, bindsContent, commandSummary, hasContent } from "./action";
import type { CheckedAction, CheckedCommand } from "./action";
import { emptyRecord } from "./decode";
import { attempt } from "./envelope";
import type { JsonObject } from "./json";
import { noteText } from "./notes";
import type { openGate } from "./payloads";
import { suggestedPrefix } from "./suggested_prefix";
import { byteLength, compareText, countInvisible, cut, escapeInvisible, MAX_LINE_BYTES, truncateLine } from "./text";
import { MAX_COMMAND_BYTES, shortenCall, toolCallOf } from "./tool_call";
import type { CommandForm, RequestedAction, ToolCallView } from "./types";

/** Bytes kept of a command that has ended: enough to recognise it. */
export const MAX_CLOSED_COMMAND_BYTES = 8 * 1024;

/** Argv words, environment additions, assessed parts and notes kept, each. */
const MAX_LIST_ITEMS = 128;

/** What a proposal says about an action besides the action itself. */
interface ProposedDetails {
  contents: FileContent[];
  statedCategory: ToolCategory | null;
}

const NO_DETAILS: ProposedDetails = { contents: [], statedCategory: null };

/** What is kept of a request when its action changes. */
type RequestFrame = Pick<RequestedAction, "proposer" | "purpose" | "assessment" | "prefix" | "edited_by" | "degree" | "client">;

const NO_FRAME: RequestFrame = { proposer: null, purpose: "", assessment: null, prefix: [], edited_by: null };

/** What a message says about who asks for an action, and why. */
export interface RequestSource {
  proposer: string;
  assessment?: Assessment;
  description: string;
  degree?: Degree;
  origin?: ClientOrigin;
  amended_by?: string;
  category?: ToolCategory;
  file_contents?: FileContent[];
}

/** An action that somebody asks for. */
export function requestOf(source: RequestSource, action: CheckedAction): RequestedAction {
  const details = { contents: source.file_contents ?? [], statedCategory: source.category ?? null };
  return {
    ...actionView(action, details),
    proposer: source.proposer,
    purpose: truncateLine(source.description),
    assessment: source.assessment === undefined ? null : boundedAssessment(source.assessment),
    prefix: suggestedPrefix(action, source.assessment),
    edited_by: source.amended_by ?? null,
    degree: source.degree,
    client: boundedOrigin(source.origin),
  };
}

/** The action at an open gate, as a welcome or a list of gates describes it. */
export function requestAtGate(open: ReturnType<typeof openGate>, contents: FileContent[] = []): RequestedAction {
  return requestOf({ ...open, file_contents: contents }, open.action);
}

/** A granted action whose proposal was before the messages received. */
export function requestOfGrant(action: CheckedAction): RequestedAction {
  return { ...actionView(action, NO_DETAILS), ...NO_FRAME };
}

/** A running command, of which a welcome gives little more than the command line. */
export function requestOfRunning(running: {
  command: string;
  mode: RequestedAction["mode"];
  degree?: Degree;
  origin?: ClientOrigin;
}): RequestedAction {
  const action = bareAction({ form: "shell", line: running.command });
  const { mode, degree } = running;
  return { ...actionView({ ...action, mode }, NO_DETAILS), ...NO_FRAME, degree, client: boundedOrigin(running.origin) };
}

/** The request with the arguments of an amendment; null if they are not a valid action. */
export function withEdit(
  requested: RequestedAction,
  by: string | null,
  args: JsonObject,
  assessment: Assessment,
): RequestedAction | null {
  const action = attempt(() => actionFromArguments(requested.tool ?? "shell", args), null);
  if (action === null) return null;
  return {
    ...actionView(action, detailsOf(requested)),
    ...frameOf(requested),
    assessment: boundedAssessment(assessment),
    prefix: suggestedPrefix(action, assessment),
    edited_by: by,
  };
}

/** The request with the granted action, which is exactly what runs. */
export function withGrantedAction(requested: RequestedAction, action: CheckedAction): RequestedAction {
  return { ...actionView(action, detailsOf(requested)), ...frameOf(requested) };
}

/**
 * What a welcome told about an action, with what only its proposal says. An edit may have changed
 * the action since.
 */
export function withProposal(requested: RequestedAction, proposed: RequestedAction): RequestedAction {
  const isSame = requested.assessment !== null && requested.assessment.digest === proposed.assessment?.digest;
  const isBound = (content: FileContent) => requested.files?.some((file) => hasContent(file, content)) ?? false;
  const contents = proposed.file_contents?.filter((content) => isSame || isBound(content));
  const stated = proposed.call?.stated_category ?? null;
  const known = requested.call && { ...requested.call, stated_category: stated };
  const call = isSame && proposed.call !== undefined ? proposed.call : known;
  return { ...requested, file_contents: some(contents), shown: call?.headline ?? requested.shown, call };
}

function frameOf({ proposer, purpose, assessment, prefix, edited_by, degree, client }: RequestedAction): RequestFrame {
  return { proposer, purpose, assessment, prefix, edited_by, degree, client };
}

/** What is known about an action and not said by the action itself. */
function detailsOf(requested: RequestedAction): ProposedDetails {
  return { contents: requested.file_contents ?? [], statedCategory: requested.call?.stated_category ?? null };
}

/** Truncates texts and counts the bytes that are lost. */
class Truncation {
  lost = 0;

  truncate(text: string, maxBytes: number): string {
    const { kept, cutBytes } = cut(text, maxBytes);
    this.lost += cutBytes;
    return kept;
  }

  /** The beginning of a list, in which each text is truncated. */
  list(texts: string[]): string[] {
    for (const dropped of texts.slice(MAX_LIST_ITEMS)) this.lost += byteLength(dropped);
    return texts.slice(0, MAX_LIST_ITEMS).map((text) => this.truncate(text, MAX_LINE_BYTES));
  }
}

type ActionView = Omit<RequestedAction, keyof RequestFrame>;

function actionView(action: CheckedAction, details: ProposedDetails): ActionView {
  const truncation = new Truncation();
  const summary = commandSummary(action.command);
  const command = truncation.truncate(summary, MAX_COMMAND_BYTES);
  const call = toolCallOf(action, details.contents, details.statedCategory);
  const isBound = (content: FileContent) => bindsContent(action, content);
  return {
    command,
    shown: call?.headline ?? escapeInvisible(command),
    hidden: countInvisibleIn(action, summary, call),
    form: action.command.form satisfies CommandForm,
    argv: argvOf(action.command, truncation),
    tool: action.command.form === "tool" ? truncateLine(action.command.name) : null,
    call,
    cwd: action.cwd === undefined ? null : truncation.truncate(action.cwd, MAX_LINE_BYTES),
    env: boundedEnv(action.env, truncation),
    mode: action.mode,
    timeout_seconds: action.timeout_seconds ?? null,
    driver: action.driver ?? null,
    secrets: some(truncation.list(action.secrets)),
    files: some(boundedFiles(action.files, truncation)),
    file_contents: some(details.contents.slice(0, MAX_LIST_ITEMS).filter(isBound)),
    // The bytes of a call are the same as those of its summary, so they count once.
    cut_bytes: Math.max(truncation.lost, call?.cut_bytes ?? 0),
  };
}

/** A list, or nothing if it is empty. */
function some<T>(list: T[] | undefined): T[] | undefined {
  return list === undefined || list.length === 0 ? undefined : list;
}

function argvOf(command: CheckedCommand, truncation: Truncation): string[] {
  return command.form === "argv" ? truncation.list([command.command, ...command.args]) : [];
}

function countInvisibleIn(action: CheckedAction, summary: string, call: ToolCallView | undefined): number {
  const texts = [action.cwd ?? "", ...Object.entries(action.env).flat()];
  const beside = texts.reduce((sum, text) => sum + countInvisible(text), 0);
  return beside + (call?.hidden ?? countInvisible(summary));
}

function boundedEnv(env: Record<string, string>, truncation: Truncation): Record<string, string> {
  const additions = Object.entries(env).sort(([a], [b]) => compareText(a, b));
  for (const [, value] of additions.slice(MAX_LIST_ITEMS)) truncation.lost += byteLength(value);
  const kept = emptyRecord<string>();
  for (const [name, value] of additions.slice(0, MAX_LIST_ITEMS)) {
    kept[truncation.truncate(name, MAX_LINE_BYTES)] = truncation.truncate(value, MAX_LINE_BYTES);
  }
  return kept;
}

function boundedFiles(files: BoundFile[], truncation: Truncation): BoundFile[] {
  const paths = truncation.list(files.map((file) => file.path));
  return paths.map((path, index) => ({ ...(files[index] as BoundFile), path }));
}

function boundedOrigin(origin: ClientOrigin | undefined): ClientOrigin | undefined {
  if (origin === undefined) return undefined;
  const bounded = (text: string | undefined) => (text === undefined ? undefined : truncateLine(text));
  return {
    client: truncateLine(origin.client),
    version: bounded(origin.version),
    session: bounded(origin.session),
    call: bounded(origin.call),
    subagent: bounded(origin.subagent),
    fails_open: origin.fails_open === true ? true : undefined,
  };
}

/** The assessment in the size that is kept. */
function boundedAssessment(assessment: Assessment): Assessment {
  const lines = (texts: string[] | undefined) => texts?.slice(0, MAX_LIST_ITEMS).map(truncateLine);
  return {
    ...assessment,
    rule: truncateLine(assessment.rule),
    reason: truncateLine(assessment.reason),
    parts: assessment.parts?.slice(0, MAX_LIST_ITEMS).map((part) => ({
      ...part,
      text: truncateLine(part.text),
      rule: truncateLine(part.rule),
      reason: truncateLine(part.reason),
    })),
    notes: lines(assessment.notes),
    needed_read_roots: lines(assessment.needed_read_roots),
    policy: truncateLine(assessment.policy),
  };
}

/** What came of trying a command in the sandbox, for those who vote. */
export function trialText(trial: { denied?: string[]; reason?: string }): string {
  const denied = trial.denied ?? [];
  if (denied.length > 0) return noteText({ kind: "denied", what: denied.join(", ") });
  return noteText({ kind: "no_result", reason: trial.reason ?? "" });
}

/** The request with a note of what came of a trial. */
export function withTrial(requested: RequestedAction, trial: { denied?: string[]; reason?: string }): RequestedAction {
  const note = truncateLine(trialText(trial));
  const notes = requested.assessment?.notes ?? [];
  if (requested.assessment === null || notes.includes(note) || notes.length > MAX_LIST_ITEMS) return requested;
  return { ...requested, assessment: { ...requested.assessment, notes: [...notes, note] } };
}

/** The request without most of a long command, once that has ended, to save memory. */
export function shortened(requested: RequestedAction): RequestedAction {
  const call = requested.call && shortenCall(requested.call, MAX_CLOSED_COMMAND_BYTES);
  const cutOfCall = (call?.cut_bytes ?? 0) - (requested.call?.cut_bytes ?? 0);
  const short = { ...requested, file_contents: undefined, call, cut_bytes: requested.cut_bytes + cutOfCall };
  const { kept, cutBytes } = cut(requested.command, MAX_CLOSED_COMMAND_BYTES);
  if (cutBytes === 0) return short;
  if (call === undefined) {
    short.cut_bytes += cutBytes;
    short.shown = escapeInvisible(kept);
  }
  return { ...short, command: kept, argv: [] };
}

/** Whether the text of a command is longer than what is kept once it has ended. */
export function isLong(requested: RequestedAction): boolean {
  return cut(requested.command, MAX_CLOSED_COMMAND_BYTES).cutBytes > 0;
}

/**
 * The arguments of a `gate.amend` that replaces the command with this line; null if there is no
 * command line to edit.
 */
export function amendArguments(requested: RequestedAction, line: string): JsonObject | null {
  if (requested.form === "login_shell" || requested.form === "tool") return null;
  const args: JsonObject = { full_command: line };
  if (requested.cwd !== null) args.cwd = requested.cwd;
  if (Object.keys(requested.env).length > 0) args.env = requested.env;
  if (requested.mode !== "normal") args.mode = requested.mode;
  if (requested.timeout_seconds !== null) args.timeout = requested.timeout_seconds;
  if (requested.driver !== null) args.driver = requested.driver;
  if (requested.secrets !== undefined) args.secrets = requested.secrets;
  if (requested.files !== undefined) args.files = requested.files;
  return args;
}
