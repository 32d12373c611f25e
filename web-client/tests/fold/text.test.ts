import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { compactJson, ExactNumber, parseJson, prettyJson } from "../../src/fold/json";
import { sha256Hex } from "../../src/fold/sha256";
import {
  byteLength,
  compareText,
  countInvisible,
  escapeInvisible,
  placeAfter,
  placeBefore,
  TextBudget,
  trim,
  truncate,
} from "../../src/fold/text";
import { parseTimestamp } from "../../src/fold/time";
import { Random } from "./random_messages";

const encoder = new TextEncoder();

test("visible characters are left alone", () => {
  for (const text of ["", "ls -la", "echo 'héllo → 世界 🦀'", "a\tb\nc", "\\u{202e}"]) {
    expect(escapeInvisible(text)).toBe(text);
    expect(countInvisible(text)).toBe(0);
  }
});

test("invisible characters are escaped", () => {
  for (const [text, shown] of [
    ["a\u202eb", "a\\u{202e}b"],
    ["\u001b[2K\r", "\\u{1b}[2K\\u{d}"],
    ["rm\u200b x", "rm\\u{200b} x"],
    ["a\0b\u007f\u009b", "a\\u{0}b\\u{7f}\\u{9b}"],
    ["\ufeffls\u00a0-l", "\\u{feff}ls\\u{a0}-l"],
    ["\u2066x\u2069\u{e0041}", "\\u{2066}x\\u{2069}\\u{e0041}"],
    ["a\u2028b\u3164", "a\\u{2028}b\\u{3164}"],
    ["x\ufffc\u{16fe4}\u{1d159}", "x\\u{fffc}\\u{16fe4}\\u{1d159}"],
  ] as const) {
    expect(escapeInvisible(text)).toBe(shown);
  }
  expect(countInvisible("\u001b[2K\r")).toBe(2);
});

test("escaped text has no invisible characters, and no control or format character is left", () => {
  const isCharacter = (code: number) => code < 0xd800 || code > 0xdfff;
  const codes = Array.from({ length: 0x110000 }, (_, code) => code).filter(isCharacter);
  const escaped = escapeInvisible(codes.map((code) => String.fromCodePoint(code)).join(""));
  expect(countInvisible(escaped)).toBe(0);
  expect(escaped.match(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu)).toEqual(["\t", "\n"]);
});

test("bytes are counted as UTF-8 has them, and no character is split", () => {
  const random = new Random(3);
  for (let round = 0; round < 300; round += 1) {
    const text = Array.from({ length: random.below(20) }, () => random.pick(["a", "é", "世", "🦀", "\n"])).join("");
    expect(byteLength(text)).toBe(encoder.encode(text).length);
    for (let bytes = 0; bytes <= byteLength(text) + 2; bytes += 1) {
      const [before, after] = [placeBefore(text, bytes), placeAfter(text, bytes)];
      expect(before.bytes).toBe(encoder.encode(text.slice(0, before.index)).length);
      expect(after.bytes).toBe(encoder.encode(text.slice(0, after.index)).length);
      expect(before.bytes).toBeLessThanOrEqual(bytes);
      expect(after.bytes).toBeGreaterThanOrEqual(Math.min(bytes, byteLength(text)));
      expect(after.bytes - before.bytes).toBeLessThanOrEqual(4);
    }
  }
  expect([truncate("aé", 2), truncate("aé", 3), truncate("a🦀", 4), truncate("", 3)]).toEqual(["a", "aé", "a", ""]);
});

test("a budget counts what does not fit", () => {
  const budget = new TextBudget(5);
  expect(budget.take("é\u202e🦀")).toBe("é\\u{202e}");
  expect([budget.cutBytes, budget.hidden]).toEqual([4, 1]);
  expect(budget.takeLine("")).toBeNull();
  expect(budget.cutBytes).toBe(5);
});

test("white space is what Unicode calls so", () => {
  expect(trim("\u0085\u00a0 a b\t\n")).toBe("a b");
  expect(trim("\ufeffa")).toBe("\ufeffa");
  expect(trim(" \n")).toBe("");
});

test("texts are ordered by characters, not by their halves", () => {
  const sorted = ["\uffff", "🦀", "a", "é", "aa", ""].sort(compareText);
  expect(sorted).toEqual(["", "a", "aa", "é", "\uffff", "🦀"]);
});

test("hashes are those of sha256sum", () => {
  for (const length of [0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 1000, 70_000]) {
    const text = "aé🦀".repeat(length).slice(0, length);
    const whole = text.isWellFormed() ? text : text.slice(0, -1);
    expect(sha256Hex(whole)).toBe(createHash("sha256").update(whole).digest("hex"));
  }
});

test("times have one form", () => {
  for (const [text, time] of [
    ["2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.000Z"],
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"],
    ["2026-01-31t12:00:00.123999z", "2026-01-31T12:00:00.123Z"],
    ["2026-01-31 12:00:00+02:00", "2026-01-31T10:00:00.000Z"],
    ["2026-01-31T23:30:00-01:00", "2026-02-01T00:30:00.000Z"],
    ["1969-12-31T23:59:59Z", null],
    ["2026-02-30T00:00:00.000Z", null],
    ["2026-01-31T12:00:00", null],
    ["2026-01-31T12:00:00.Z", null],
    ["2026-13-01T00:00:00Z", null],
    ["now", null],
    ["+02026-01-31T12:00:00Z", null],
  ] as const) {
    expect(parseTimestamp(text), text).toBe(time);
  }
});

test("numbers are written as they were sent", () => {
  const json = '{"big":9007199254740993,"b":[1.0,-0,1e-7,1e+20,18446744073709551615,0.1,7],"a":"1.0 \\" 2.0"}';
  const parsed = parseJson(json) as Record<string, unknown>;
  expect(compactJson(parsed)).toBe(
    '{"a":"1.0 \\" 2.0","b":[1.0,-0,1e-7,1e+20,18446744073709551615,0.1,7],"big":9007199254740993}',
  );
  expect(parsed.big).toBeInstanceOf(ExactNumber);
  expect(JSON.parse(JSON.stringify(parsed)).b[0]).toBe(1);
  expect(prettyJson({ b: [], a: [1, {}], c: { d: "x" } })).toBe(
    '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": [],\n  "c": {\n    "d": "x"\n  }\n}',
  );
});

test("what is not JSON is refused, and so is what is nested too deeply or has half a character", () => {
  for (const text of ["", "{", "{}{}", "[1.0,]", "[1.0 2]", '{"a":1.0,}', '{"a" 1.0}', "[01.0]", '["\\ud800"]', '{"\\udc00":1}', '"\ud800"', "[1.0, nul]", '[1.0, "a]']) {
    expect(parseJson(text), text).toBeUndefined();
  }
  expect(parseJson("[".repeat(128) + "]".repeat(128))).toBeDefined();
  expect(parseJson("[".repeat(129) + "]".repeat(129))).toBeUndefined();
  expect(parseJson("[".repeat(1_000_000))).toBeUndefined();
  expect(parseJson('["\\ud83e\\udd80", "🦀", "\\\\ud800"]')).toEqual(["🦀", "🦀", "\\ud800"]);
});

test("exact parsing agrees with JSON.parse", () => {
  const random = new Random(8);
  for (let round = 0; round < 500; round += 1) {
    const text = JSON.stringify([1.5, random.value()]).replaceAll(",", " ,\n\t");
    // The white space goes inside strings as well, where a raw line feed is an error.
    const expected = attemptParse(text);
    expect(JSON.stringify(parseJson(text)), text).toBe(JSON.stringify(expected));
  }
});

function attemptParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
