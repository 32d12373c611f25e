import { expect, test } from "vitest";
import { MAX_OUTPUT_CHUNKS, Output, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES } from "../../src/fold/output";
import { byteLength } from "../../src/fold/text";
import type { OutputChunk } from "../../src/fold";
import { Random } from "./random_messages";

function chunks(output: Output): OutputChunk[] {
  return [...output.head, ...output.tail];
}

function lines(output: Output): string[] {
  const word = { stdout: "out", stderr: "err" };
  return chunks(output).map((chunk) => `${word[chunk.stream]} ${chunk.offset} ${chunk.missing} ${chunk.text}`);
}

test("streams interleave as received and continue where they stopped", () => {
  const output = new Output();
  output.append("stdout", 0, "a");
  output.append("stdout", 1, "é\n");
  output.append("stderr", 0, "oops");
  output.append("stdout", undefined, "b");
  expect(lines(output)).toEqual(["out 0 0 aé\n", "err 0 0 oops", "out 4 0 b"]);
  expect([output.stdout.bytes, output.stdout.lines]).toEqual([5, 2]);
});

test("repeated output is dropped and missing output is marked", () => {
  const output = new Output();
  output.append("stdout", 0, "abc");
  output.append("stdout", 0, "abc");
  output.append("stdout", 1, "bcd");
  output.append("stdout", 10, "xyz");
  output.append("stdout", 2, "");
  expect(lines(output)).toEqual(["out 0 0 abcd", "out 10 6 xyz"]);
  expect([output.stdout.bytes, output.stdout.missing]).toEqual([13, 6]);
});

test("an overlap inside a character loses the character and no more", () => {
  const output = new Output();
  output.append("stdout", 0, "ab");
  output.append("stdout", 1, "éx");
  expect(lines(output)).toEqual(["out 0 0 ab", "out 3 1 x"]);
});

test("lines are counted once however the text is split", () => {
  const text = "one\ntwo\n\nfour";
  for (let size = 1; size < text.length; size += 1) {
    const output = new Output();
    for (let at = 0; at < text.length; at += size) output.append("stdout", undefined, text.slice(at, at + size));
    expect(output.stdout.lines, `in pieces of ${size}`).toBe(4);
  }
});

test("the beginning and the end of long output are kept", () => {
  const output = new Output();
  const most = OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES;
  for (let number = 0; number < 40_000; number += 1) output.append("stdout", undefined, `${number} é\n`);
  const kept = chunks(output).reduce((sum, chunk) => sum + byteLength(chunk.text), 0);
  expect(kept).toBeLessThanOrEqual(most);
  expect(kept).toBeGreaterThan(most - 8);
  expect(output.stdout.bytes).toBe(output.dropped_bytes + kept);
  expect(output.head[0]?.text.startsWith("0 é\n1 é\n")).toBe(true);
  expect(output.tail.length).toBe(1);
  expect(output.tail[0]?.text.endsWith("39999 é\n")).toBe(true);
  expect((output.tail[0]?.offset ?? 0) - byteLength(output.head[0]?.text ?? "")).toBe(output.dropped_bytes);
});

test("streams that alternate byte by byte are held to so many chunks", () => {
  const output = new Output();
  for (let round = 0; round < 10_000; round += 1) {
    output.append("stdout", undefined, "a");
    output.append("stderr", undefined, "b");
  }
  expect([output.head.length, output.tail.length]).toEqual([MAX_OUTPUT_CHUNKS, MAX_OUTPUT_CHUNKS]);
  expect(output.dropped_bytes).toBe(20_000 - 2 * MAX_OUTPUT_CHUNKS);
});

test("one text larger than everything is cut in the middle", () => {
  const output = new Output();
  output.append("stderr", undefined, "é".repeat(400_000));
  expect(byteLength(output.head[0]?.text ?? "")).toBe(OUTPUT_HEAD_BYTES);
  expect(byteLength(output.tail[0]?.text ?? "")).toBe(OUTPUT_TAIL_BYTES);
  expect(output.stderr.bytes).toBe(800_000);
});

test("offsets near the maximum do no harm", () => {
  const output = new Output();
  output.append("stdout", Number.MAX_SAFE_INTEGER, "abc");
  output.append("stdout", Number.MAX_SAFE_INTEGER - 1, "abc");
  output.append("stdout", undefined, "abc");
  expect(output.stdout.bytes).toBe(Number.MAX_SAFE_INTEGER);
});

test("a screen that asks for what is new gets each text once, in order", () => {
  const random = new Random(5);
  const output = new Output();
  let [drawn, printed, position] = ["", "", 0];
  for (let round = 0; round < 3000; round += 1) {
    const text = `${random.pick(["é", "🦀", "x"])}${random.below(1000)}\n`.repeat(1 + random.below(3));
    output.append(random.pick(["stdout", "stderr"] as const), undefined, text);
    printed += text;
    if (!random.isOneIn(5)) continue;
    const { chunks: fresh, lost } = output.since(position);
    expect(lost).toBe(0);
    drawn += fresh.map((chunk) => chunk.text).join("");
    position = output.received;
  }
  expect(drawn).toBe(printed.slice(0, drawn.length));
  expect(output.since(position).chunks.map((chunk) => chunk.text).join("")).toBe(printed.slice(drawn.length));
  expect(output.since(output.received)).toEqual({ chunks: [], lost: 0 });
});

test("a screen that asks late hears how much it has missed", () => {
  const output = new Output();
  for (let number = 0; number < 40_000; number += 1) output.append("stdout", undefined, "0123456\n");
  const first = output.since(OUTPUT_HEAD_BYTES);
  expect(first.lost).toBe(output.dropped_bytes);
  expect(byteLength(first.chunks.map((chunk) => chunk.text).join(""))).toBe(OUTPUT_TAIL_BYTES);
  const all = output.since(0);
  expect(all.lost).toBe(0);
  expect(byteLength(all.chunks.map((chunk) => chunk.text).join(""))).toBe(OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES);
});
