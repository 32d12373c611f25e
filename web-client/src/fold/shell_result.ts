// Results of a person's own commands, which are sent to an agent with that person's next prompt.

import type { MessageId, OutputStream } from "@protocol";
import { byteLength } from "./text";
import type { OutputChunk, OutputData, ProposalView, StreamTotal } from "./types";

/** A stream of up to this many characters is included whole. */
export const MAX_INLINE_CHARS = 10_000;

/** Lines that an excerpt shows from the beginning, and as many again from the end. */
export const EXCERPT_LINES = 100;

/** Characters of either part of an excerpt, because one line may be as long as a file. */
export const EXCERPT_CHARS = 10_000;

/** Characters of the command that are included: enough to recognise it. */
export const PREVIEW_CHARS = 300;

/**
 * Results that may be queued at a time. Someone who runs more commands without sending a prompt loses
 * the oldest results.
 */
export const MAX_QUEUED_RESULTS = 64;

/** Bytes of result blocks sent with one prompt; a message has at most one mebibyte by default. */
export const MAX_BLOCK_BYTES_PER_PROMPT = 512 * 1024;

/** One command's result, ready to send. */
export interface ShellResult {
  /** The command's id, which also identifies its output. */
  id: MessageId;
  /** The beginning of the command, verbatim. */
  command_preview: string;
  exit_code: number | null;
  /** What the agent reads: `<shell_result>{…}</shell_result>`. */
  block: string;
}

/** The result of a finished command; null if it has not finished. */
export function shellResult(proposal: ProposalView): ShellResult | null {
  const { id, finish } = proposal;
  if (finish === null) return null;
  const [stdout, stderr] = [streamText(proposal.output, "stdout"), streamText(proposal.output, "stderr")];
  const command_preview = commandPreview(proposal.command);
  const { exit_code, signal, duration_ms } = finish;
  const reference = finish.output_ref ?? id;
  const block = {
    id,
    command_preview,
    exit_code,
    signal,
    duration_ms,
    stdout: stdout.whole,
    stderr: stderr.whole,
    stdout_excerpt: stdout.excerpt,
    stderr_excerpt: stderr.excerpt,
    stdout_cache_id: stdout.excerpt === undefined ? undefined : reference,
    stderr_cache_id: stderr.excerpt === undefined ? undefined : reference,
    truncated: {
      stdout: stdout.excerpt !== undefined,
      stderr: stderr.excerpt !== undefined,
      combined: finish.truncated,
    },
  };
  return { id, command_preview, exit_code, block: encoded(block) };
}

/** Encodes the block so that nothing inside it can be mistaken for its end. */
function encoded(block: object): string {
  // JSON has these characters only inside strings, where the escape means the same.
  const json = JSON.stringify(block).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e");
  return `<shell_result>${json}</shell_result>`;
}

function commandPreview(command: string): string {
  const end = indexAfter(command, PREVIEW_CHARS);
  return end === command.length ? command : `${command.slice(0, indexAfter(command, PREVIEW_CHARS - 1))}…`;
}

/** Where a text is so many characters long; its length if it has fewer. */
function indexAfter(text: string, characters: number): number {
  let index = 0;
  for (let count = 0; count < characters && index < text.length; count += 1) {
    index += (text.codePointAt(index) ?? 0) > 0xffff ? 2 : 1;
  }
  return index;
}

/** Where the last so many characters of a text begin. */
function indexBefore(text: string, characters: number): number {
  let index = text.length;
  for (let count = 0; count < characters && index > 0; count += 1) {
    index -= index > 1 && (text.codePointAt(index - 2) ?? 0) > 0xffff ? 2 : 1;
  }
  return index;
}

/** How much of one stream a block includes: all, an excerpt, or nothing if there is nothing. */
interface StreamText {
  whole?: string;
  excerpt?: string;
}

function streamText(output: OutputData, stream: OutputStream): StreamText {
  const total = output[stream];
  if (total.bytes === 0) return {};
  const [head, tail] = [textOf(output.head, stream), textOf(output.tail, stream)];
  const text = head + tail;
  if (byteLength(text) !== total.bytes) return { excerpt: joined(firstLines(head), lastLines(tail), total) };
  if (indexAfter(text, MAX_INLINE_CHARS) === text.length) return { whole: text };
  const first = firstLines(text);
  return { excerpt: joined(first, lastLines(text.slice(first.length)), total) };
}

function textOf(chunks: OutputChunk[], stream: OutputStream): string {
  const ofStream = chunks.filter((chunk) => chunk.stream === stream);
  return ofStream.map((chunk) => chunk.text).join("");
}

/** The first lines of a text, up to the limits of an excerpt. */
function firstLines(text: string): string {
  let end = 0;
  for (let line = 0; line < EXCERPT_LINES && end < text.length; line += 1) {
    const feed = text.indexOf("\n", end);
    end = feed === -1 ? text.length : feed + 1;
  }
  return text.slice(0, Math.min(end, indexAfter(text, EXCERPT_CHARS)));
}

/** The last lines of a text, up to the limits of an excerpt. */
function lastLines(text: string): string {
  let start = text.length;
  for (let line = 0; line < EXCERPT_LINES && start > 0; line += 1) {
    // The line feed before `start` ends the line that is looked for.
    start = start < 2 ? 0 : text.lastIndexOf("\n", start - 2) + 1;
  }
  return text.slice(Math.max(start, indexBefore(text, EXCERPT_CHARS)));
}

/** Joins both parts, with a note of how much was omitted between them. */
function joined(first: string, last: string, total: StreamTotal): string {
  const bytes = total.bytes - byteLength(first) - byteLength(last);
  if (bytes <= 0) return first + last;
  const lines = total.lines - lineCount(first) - lineCount(last);
  const lineBreak = first.endsWith("\n") ? "" : "\n";
  const omitted = lines > 0 ? `${lines} lines` : `${bytes} bytes`;
  return `${first}${lineBreak}[… ${omitted} omitted …]\n${last}`;
}

function lineCount(text: string): number {
  return text.split("\n").length - (text === "" || text.endsWith("\n") ? 1 : 0);
}

/** Results waiting for the next prompt, in the order in which the commands finished. */
export class ShellResultQueue {
  /** `sentWith` is the prompt it was sent with, while that is unanswered. */
  private queue: { result: ShellResult; sentWith: MessageId | null }[] = [];

  /** Results that have not been delivered, oldest first. */
  get results(): ShellResult[] {
    return this.queue.map((queued) => queued.result);
  }

  get isEmpty(): boolean {
    return this.queue.length === 0;
  }

  /** Adds a result. If there are too many, removes and returns the oldest. */
  push(result: ShellResult): ShellResult | null {
    this.queue.push({ result, sentWith: null });
    if (this.queue.length <= MAX_QUEUED_RESULTS) return null;
    return this.queue.shift()?.result ?? null;
  }

  /** Removes the result of one command, so that no agent receives it. */
  remove(id: MessageId): void {
    this.queue = this.queue.filter((queued) => queued.result.id !== id);
  }

  /**
   * The text of a prompt, preceded by the results that are not yet sent. They stay queued until the
   * message with this id is accepted.
   */
  prependToPrompt(message: MessageId, text: string): string {
    let [left, prompt] = [MAX_BLOCK_BYTES_PER_PROMPT, ""];
    for (const queued of this.queue.filter((it) => it.sentWith === null)) {
      left -= byteLength(queued.result.block);
      // Results stay in order, so no later one may go first.
      if (left < 0) break;
      queued.sentWith = message;
      prompt += `${queued.result.block}\n`;
    }
    return prompt + text;
  }

  /** The server accepted the message; removes the results sent with it. */
  promptAccepted(message: MessageId): void {
    this.queue = this.queue.filter((queued) => queued.sentWith !== message);
  }

  /** The server did not accept the message; its results wait again, in their old position. */
  promptFailed(message: MessageId): void {
    for (const queued of this.queue) {
      if (queued.sentWith === message) queued.sentWith = null;
    }
  }
}
