// The action that a proposal asks for, parsed from the proposal's arguments.

import type { BoundFile, FileContent } from "@protocol";
import { id, listOf, optional, recordOf, smallCount, text } from "./decode";
import type { Decoder } from "./decode";
import { compactJson } from "./json";
import type { JsonObject } from "./json";
import { runMode } from "./names";
import { action as actionDecoder, boundFile } from "./payloads";
import { sha256Hex } from "./sha256";

/** What exactly runs when a proposal is granted. */
export type CheckedAction = ReturnType<typeof actionDecoder>;
export type CheckedCommand = CheckedAction["command"];

const FILE_TOOLS = ["file_read", "file_write", "file_edit"];

/** Parses the arguments of a proposal; throws `Malformed` if they are no action. */
export function actionFromArguments(tool: string, args: JsonObject): CheckedAction {
  if (tool !== "shell") return actionOfTool(tool, args);
  const line = field(args, "full_command", text);
  return {
    ...bareAction(line === undefined ? argvOf(args) : { form: "shell", line }),
    cwd: field(args, "cwd", text),
    env: field(args, "env", recordOf(text)) ?? {},
    mode: field(args, "mode", runMode) ?? "normal",
    timeout_seconds: field(args, "timeout", smallCount),
    driver: field(args, "driver", id),
    secrets: field(args, "secrets", listOf(text)) ?? [],
    files: field(args, "files", listOf(boundFile)) ?? [],
  };
}

function argvOf(args: JsonObject): CheckedCommand {
  return { form: "argv", command: text(args.command), args: field(args, "args", listOf(text)) ?? [] };
}

function field<T>(args: JsonObject, name: string, decode: Decoder<T>): T | undefined {
  return optional(decode)(args[name]);
}

/**
 * The call of a tool other than the shell. Those of the file tools may bind files; other agents'
 * tools of the same name send anything there, which is then no binding.
 */
function actionOfTool(name: string, args: JsonObject): CheckedAction {
  let files: BoundFile[] = [];
  if (FILE_TOOLS.includes(name)) {
    try {
      files = field(args, "files", listOf(boundFile)) ?? [];
    } catch {
      files = [];
    }
  }
  return { ...bareAction({ form: "tool", name, arguments: args }), files };
}

/** An action with this command and defaults for everything else. */
export function bareAction(command: CheckedCommand): CheckedAction {
  return { command, env: {}, mode: "normal", secrets: [], files: [] };
}

/** One line that describes a command to people. It is never executed. */
export function commandSummary(command: CheckedCommand): string {
  switch (command.form) {
    case "shell":
    case "login_shell":
      return command.line;
    case "argv":
      return [command.command, ...command.args].map(shellQuoted).join(" ");
    case "tool":
      return `${command.name} ${compactJson(command.arguments)}`;
  }
}

function shellQuoted(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Contents are hashed once, however often a command is described again. */
const digests = new WeakMap<FileContent, string>();

/** Whether this is the file at this path, with this text as its content. */
export function hasContent(file: BoundFile, content: FileContent): boolean {
  if (file.path !== content.path || file.sha256 === undefined) return false;
  let digest = digests.get(content);
  if (digest === undefined) {
    digest = sha256Hex(content.text);
    digests.set(content, digest);
  }
  return file.sha256 === digest;
}

/** Whether this is the content of a file that the action binds. */
export function bindsContent(action: CheckedAction, content: FileContent): boolean {
  return action.files.some((file) => hasContent(file, content));
}
