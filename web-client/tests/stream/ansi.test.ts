import { describe, expect, test } from "vitest";
import type { OutputData } from "../../src/fold";
import { ansiLines, MAX_LINE_CHARACTERS } from "../../src/terminal/ansi";
import type { AnsiLine } from "../../src/terminal/ansi";
import { BACKGROUND, contrast, indexedColour, readable } from "../../src/terminal/colours";
import type { Rgb } from "../../src/terminal/colours";
import { foldedLines, HEAD_LINES, lastLines, TAIL_LINES } from "../../src/terminal/folded";

const texts = (text: string) => ansiLines(text).map(lineText);
const ESC = "\u001b";

const lineText = (line: AnsiLine) => line.map((span) => span.text).join("");

describe("output as lines of coloured text", () => {
  test("colours and emphasis become styles", () => {
    const [line] = ansiLines(`a${ESC}[1;31mb${ESC}[0mc${ESC}[38;5;200md${ESC}[38;2;1;2;3me${ESC}[39;22mf`);
    expect(line?.map((span) => [span.text, span.style.colour, span.style.bold])).toEqual([
      ["a", null, false],
      ["b", 1, true],
      ["c", null, false],
      ["d", 200, false],
      ["e", [1, 2, 3], false],
      ["f", null, false],
    ]);
  });

  test.each([
    [`a${ESC}]0;title\u0007b`, "ab"],
    [`a${ESC}]52;c;ZXZpbA==${ESC}\\b`, "ab"],
    [`a${ESC}]8;;https://evil.example${ESC}\\b${ESC}]8;;${ESC}\\c`, "abc"],
    [`a${ESC}[2J${ESC}[Hb`, "ab"],
    [`a${ESC}Pq#0${ESC}\\b`, "ab"],
    [`a${ESC}cb`, "ab"],
    [`a${ESC}[6nb`, "ab"],
    [`a${ESC}[>cb`, "ab"],
    [`a${ESC}[?1049hb`, "ab"],
    [`a${ESC}[8mb`, "ab"],
    [`a${ESC}[41mb`, "ab"],
    ["\u0007a", "\\u{7}a"],
    ["a\u202eb", "a\\u{202e}b"],
    [`${ESC}[1ma\u202eb`, "a\\u{202e}b"],
    ["\u009b31mx", "\\u{9b}31mx"],
    [ESC, "\\u{1b}"],
  ])("%j shows only %j", (text, shown) => {
    expect(texts(text)).toEqual([shown]);
  });

  test("a sequence without an end hides nothing on the next line", () => {
    expect(texts(`${ESC}]0;title\nrm -rf /\n`)).toEqual(["", "rm -rf /"]);
    expect(texts(`${ESC}]0;${"x".repeat(5000)}seen`).join("")).toContain("seen");
  });

  test("a carriage return writes over the line, and a backspace over a character", () => {
    expect(texts("10%\r20%\r100%\n")).toEqual(["100%"]);
    expect(texts("a\r\nb\r\n")).toEqual(["a", "b"]);
    expect(texts("ab\bc\n\n")).toEqual(["ac", ""]);
    expect(texts(`building foo\r${ESC}[Kdone\n`)).toEqual(["done"]);
  });

  test("tabs stop at every eighth column, with and without colours", () => {
    expect(texts("a\tb")).toEqual(["a       b"]);
    expect(texts(`a\tb${ESC}[0m`)).toEqual(["a       b"]);
  });

  test("a very long line is cut, and characters of two units stay whole", () => {
    expect([...(texts("🦀".repeat(100_000))[0] ?? "")].length).toBe(MAX_LINE_CHARACTERS + 1);
    expect([...(texts(`${ESC}[1m${"🦀".repeat(100_000)}`)[0] ?? "")].length).toBe(MAX_LINE_CHARACTERS + 1);
    expect(texts("🦀")).toEqual(["🦀"]);
  });

  test("whatever is printed, only visible characters come out", () => {
    const alphabet = ["a", " ", "é", "🦀", "\u0000", "\u0007", "\b", "\r", "\n", "\t", ESC, "[", "]", "m", "K", ";", "3", "\u009b", "\u202e", "\u200b"];
    let seed = 1;
    for (let round = 0; round < 2000; round += 1) {
      let text = "";
      for (let length = 0; length < 40; length += 1) {
        seed = (seed * 1103515245 + 12345) % 2147483648;
        text += alphabet[seed % alphabet.length];
      }
      for (const line of texts(text)) expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e\u200b]/);
    }
  });
});

test("every colour can be read on the background", () => {
  for (let index = 0; index < 256; index += 1) {
    expect(contrast(readable(indexedColour(index)), BACKGROUND)).toBeGreaterThanOrEqual(4.5);
    const background = indexedColour(index);
    expect(contrast(readable(background, background), background)).toBeGreaterThanOrEqual(4.5);
  }
  expect(readable([255, 255, 255] as Rgb)).toEqual([255, 255, 255]);
});

function output(chunks: [stream: "stdout" | "stderr", text: string][], dropped = 0, tail: typeof chunks = []): OutputData {
  const total = { bytes: 0, lines: 0, missing: 0, complete: false };
  const chunk = ([stream, text]: ["stdout" | "stderr", string]) => ({ stream, offset: 0, missing: 0, text });
  return { stdout: total, stderr: total, head: chunks.map(chunk), dropped_bytes: dropped, tail: tail.map(chunk) };
}

const shown = (data: OutputData) =>
  foldedLines(data).map((line) => (line.kind === "line" ? `${line.stream.slice(3)}|${lineText(line.line)}` : line.kind));

describe("the lines that the stream shows", () => {
  test("short output is whole and says which stream each line is of", () => {
    expect(shown(output([["stdout", "one\n"], ["stderr", "two\nthree\n"], ["stdout", "four"]]))).toEqual([
      "out|one",
      "err|two",
      "err|three",
      "out|four",
    ]);
  });

  test("long output is folded to its first and last lines", () => {
    const text = Array.from({ length: 100 }, (_, number) => `${number}\n`).join("");
    const lines = shown(output([["stdout", text]]));
    expect(lines.length).toBe(HEAD_LINES + 1 + TAIL_LINES);
    expect([lines[0], lines[HEAD_LINES], lines.at(-1)]).toEqual(["out|0", "folded", "out|99"]);
  });

  test("what was dropped in the middle is folded, even if few lines are left", () => {
    expect(shown(output([["stdout", "a\n"]], 10, [["stdout", "y\nz\n"]]))).toEqual(["out|a", "folded", "out|z"]);
    expect(shown(output([["stdout", "a\n"]], 10, [["stdout", "z"]]))).toEqual(["out|a", "folded", "out|z"]);
  });

  test("the last lines are taken from as many chunks as needed", () => {
    const chunks = Array.from({ length: 50 }, (_, number): ["stdout" | "stderr", string] => [number % 2 ? "stderr" : "stdout", `${number}\n`]);
    const lines = lastLines(output(chunks), 3).map((line) => (line.kind === "line" ? lineText(line.line) : ""));
    expect(lines).toEqual(["47", "48", "49"]);
  });

  test("what is cut off is not cut inside of an escape sequence", () => {
    const link = "\u001b]8;;http://a.example/\u0007";
    for (let shift = 0; shift < link.length; shift += 1) {
      const text = `${link.repeat(2000)}${"x".repeat(shift)}`;
      expect(shown(output([["stdout", text]])), `${shift}`).toEqual(["out|", "folded", `out|${"x".repeat(shift)}`]);
      const rest = `${link.slice(shift)}${link}end`;
      expect(shown(output([["stdout", "a\n"]], 10, [["stdout", rest]])).at(-1), `${shift}`).toBe("out|end");
    }
    expect(shown(output([["stdout", "a\n"]], 10, [["stdout", "[31m of a line\nwhole\n"]]))).toEqual(["out|a", "folded", "out|whole"]);
    const coloured = `${"y".repeat(20_000)}\u001b[31m${"z".repeat(16 * 1024 - 2)}`;
    expect(shown(output([["stdout", coloured]])).at(-1)).toBe(`out|${"z".repeat(MAX_LINE_CHARACTERS)}…`);
  });

  test("one enormous line is not looked at in full", () => {
    const [line] = foldedLines(output([["stdout", "x".repeat(1_000_000)]]));
    expect(line?.kind === "line" && lineText(line.line).length).toBe(MAX_LINE_CHARACTERS + 1);
  });
});
