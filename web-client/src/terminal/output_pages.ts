// The whole output of a command, a page at a time.

import type { OutputLine, OutputPage, OutputRead, OutputStream } from "@protocol";

export const PAGE_LINES = 500;

/** A file larger than this is not for a browser; `pvp output` reads it. */
const MAX_SAVED_BYTES = 64 * 1024 * 1024;

export interface PageRequest {
  ref: string;
  stream: OutputStream | null;
  /** Only lines with this text; all if it is empty. */
  find: string;
  /** The first line, counted from 0; `end` for the last page. */
  from: number | "end";
}

export function readRequest(request: PageRequest): OutputRead {
  const read: OutputRead = { ref: request.ref };
  if (request.stream !== null) read.stream = request.stream;
  if (request.find !== "") read.grep = request.find;
  if (request.from === "end") read.tail = PAGE_LINES;
  else {
    read.offset = request.from;
    read.limit = PAGE_LINES;
  }
  return read;
}

/** Reads everything from the first line to the last and returns it as one text. */
export async function readAll(
  read: (request: OutputRead) => Promise<OutputPage>,
  ref: string,
  onProgress: (lines: number, total: number) => void,
  signal: AbortSignal,
): Promise<{ parts: string[]; isCut: boolean }> {
  const parts: string[] = [];
  let bytes = 0;
  let offset = 0;
  for (;;) {
    const page = await read({ ref, offset, limit: 5000 });
    signal.throwIfAborted();
    const text = page.lines.map(savedLine).join("");
    parts.push(text);
    bytes += text.length;
    const { next } = page;
    onProgress(next ?? page.total_lines, page.total_lines);
    if (next === undefined) return { parts, isCut: false };
    // A page that does not move on would be read for ever.
    if (next <= offset || bytes > MAX_SAVED_BYTES) return { parts, isCut: true };
    offset = next;
  }
}

function savedLine(line: OutputLine): string {
  return `${line.text}\n`;
}
