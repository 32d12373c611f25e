// What somebody typed into the composer.

export type Input =
  | { kind: "empty" }
  /** A command of the person's own; `sendsResult` gives the result to the agent at once. */
  | { kind: "shell"; line: string; sendsResult: boolean }
  | { kind: "slash"; name: string; rest: string }
  /** `to` is the agent's name or id after `@`, if there is one. */
  | { kind: "prompt"; text: string; to: string | null };

export function parseInput(typed: string): Input {
  const text = typed.trim();
  if (text === "") return { kind: "empty" };
  if (text.startsWith("!!")) return { kind: "shell", line: text.slice(2).trim(), sendsResult: true };
  if (text.startsWith("!")) return { kind: "shell", line: text.slice(1).trim(), sendsResult: false };
  const slash = /^\/([a-z][a-z-]*)(?:\s+([\s\S]*))?$/.exec(text);
  // A path at the beginning of a message is not a command.
  if (slash !== null) return { kind: "slash", name: slash[1] ?? "", rest: (slash[2] ?? "").trim() };
  const mention = /^@(\S+)(?:\s+([\s\S]*))?$/.exec(text);
  if (mention !== null) return { kind: "prompt", text: mention[2] ?? "", to: mention[1] ?? "" };
  return { kind: "prompt", text, to: null };
}

/** A name as it is typed after `@`. */
export function mentionName(name: string): string {
  return name.trim().split(/\s+/).join("-");
}
