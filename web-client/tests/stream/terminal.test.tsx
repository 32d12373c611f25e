// @vitest-environment happy-dom

import { describe, expect, test, vi } from "vitest";
import { Output } from "../../src/fold/output";
import { encodeKey, encodePaste, isLeaveKey, pieces } from "../../src/terminal/keys";
import type { KeyPress } from "../../src/terminal/keys";
import { lineRuns, ScreenPainter } from "../../src/terminal/painter";
import { ScreenPool } from "../../src/terminal/pool";
import { loadLibrary, TerminalScreen } from "../../src/terminal/screen";
import { TerminalSizes } from "../../src/terminal/sizes";
import { Feed } from "./feed";

const ESC = "\u001b";
const PLAIN_MODES = { applicationCursor: false, bracketedPaste: false };

function press(chord: string): KeyPress {
  const words = chord.split("+");
  const key = words.pop() ?? "";
  return { key, ctrlKey: words.includes("ctrl"), altKey: words.includes("alt"), shiftKey: words.includes("shift"), metaKey: words.includes("meta") };
}

describe("keys", () => {
  test.each([
    ["ctrl+c", "\u0003"],
    ["ctrl+C", "\u0003"],
    ["ctrl+[", ESC],
    ["ctrl+ ", "\u0000"],
    ["alt+x", `${ESC}x`],
    ["ArrowUp", `${ESC}[A`],
    ["shift+ArrowUp", `${ESC}[1;2A`],
    ["ctrl+ArrowRight", `${ESC}[1;5C`],
    ["Enter", "\r"],
    ["Tab", "\t"],
    ["shift+Tab", `${ESC}[Z`],
    ["Backspace", "\u007f"],
    ["Escape", ESC],
    ["Delete", `${ESC}[3~`],
    ["F1", `${ESC}OP`],
    ["F5", `${ESC}[15~`],
  ])("%s sends %j", (chord, sent) => {
    expect(encodeKey(press(chord), PLAIN_MODES)).toBe(sent);
  });

  test.each(["a", "é", "meta+c", "ctrl+alt+q", "Shift", "Dead", "Process", "F24", "ctrl+1"])("%s is left to the browser", (chord) => {
    expect(encodeKey(press(chord), PLAIN_MODES)).toBeNull();
  });

  test("full-screen programs get arrows in their form", () => {
    expect(encodeKey(press("ArrowUp"), { ...PLAIN_MODES, applicationCursor: true })).toBe(`${ESC}OA`);
  });

  test("a paste cannot end itself early", () => {
    const hostile = `a${ESC}[201~rm -rf /\n`;
    expect(encodePaste(hostile, { ...PLAIN_MODES, bracketedPaste: true })).toBe(`${ESC}[200~a[201~rm -rf /\r${ESC}[201~`);
    expect(encodePaste("a\r\nb\n", PLAIN_MODES)).toBe("a\rb\r");
  });

  test("a long paste goes in pieces that fit a message and split no character", () => {
    const text = "🦀".repeat(50_000);
    const parts = pieces(text);
    expect(parts.join("")).toBe(text);
    for (const part of parts) {
      expect(new TextEncoder().encode(part).length).toBeLessThanOrEqual(64 * 1024);
      expect(part.isWellFormed()).toBe(true);
    }
  });

  test("there is a key that leaves", () => {
    expect([press("ctrl+shift+Enter"), press("ctrl+shift+Escape"), press("Escape"), press("ctrl+Enter")].map(isLeaveKey)).toEqual([true, true, false, false]);
  });
});

async function screenOf(options: { isInteractive?: boolean; columns?: number; rows?: number } = {}): Promise<TerminalScreen> {
  const size = { columns: options.columns ?? 40, rows: options.rows ?? 5 };
  return new TerminalScreen(await loadLibrary(), { size, isInteractive: options.isInteractive === true, gapText: (bytes) => `${bytes} bytes not shown` });
}

/** Waits until everything that was fed is on the screen. */
function settled(screen: TerminalScreen): Promise<void> {
  return new Promise((resolve) => screen.terminal.write("", resolve));
}

function rows(screen: TerminalScreen, labels: { stdout: string; stderr: string } | null = null): string[] {
  const container = document.createElement("div");
  const painter = new ScreenPainter(screen, container, labels);
  painter.paint(0, painter.rowCount(true), false);
  return [...container.children].map((row) => row.textContent ?? "");
}

describe("a screen", () => {
  test("draws what programs print, and says which stream it came from", async () => {
    const screen = await screenOf();
    const output = new Output();
    output.append("stdout", undefined, "one\ntwo");
    screen.feed(output);
    output.append("stderr", undefined, "oops\n");
    output.append("stdout", undefined, "three\n");
    screen.feed(output);
    screen.feed(output);
    await settled(screen);
    expect(rows(screen, { stdout: "out ", stderr: "err " })).toEqual(["out one", "out two", "err oops", "out three"]);
  });

  test("never answers a program that asks it something, and takes no title, link or clipboard", async () => {
    const screen = await screenOf({ isInteractive: true });
    const data = vi.fn();
    const title = vi.fn();
    screen.terminal.onData(data);
    screen.terminal.onBinary(data);
    document.title = "PVP";
    const output = new Output();
    const questions = ["[c", "[>c", "[=c", "[5n", "[6n", "[?6n", "[?25$p", "[18t", "[14t", "[21t", "]10;?\u0007", "]11;?\u0007", "]4;1;?\u0007", "P$qm\u001b\\", "[?1004h", "[?1003h", "]52;c;ZXZpbA==\u0007", "]52;c;?\u0007", "]0;owned\u0007", "]8;;https://evil.example\u0007x"];
    output.append("stdout", undefined, questions.map((question) => ESC + question).join(""));
    screen.feed(output);
    await settled(screen);
    screen.terminal.onTitleChange(title);
    expect(data).not.toHaveBeenCalled();
    expect(document.title).toBe("PVP");
    const container = document.createElement("div");
    const painter = new ScreenPainter(screen, container, null);
    painter.paint(0, painter.rowCount(true), true);
    expect(container.querySelector("a")).toBeNull();
    expect(container.textContent?.trim()).toBe("x");
  });

  /** Links, clipboards and the like, however they are written. */
  const STRINGS = ["]8;;a\u0007", "]8;id=x;a\u001b\\", "\u0007]8;;a\u0007", "\u001b]8;;a\u0007", "\u007f]8;;a\u0007", "[3\u001b]8;;a\u0007", "]52;c;eA==\u009c", "P$qm\u001b\\", "P0;1|17/41\u0018", "_Ga=T;AAAA\u001b\\", "^x\u001a", "Xx\u001b\\", "]4;1;red\u0085"];
  const C1_STRINGS = ["\u009d8;;a\u0007", "\u00908;;a\u001b\\", "\u009fGa=T\u009c", "\u0098x\u009c", "\u009ex\u009c"];

  test.each([true, false])("keeps nothing of links and other commands to a terminal, wherever they are cut: %s", async (isInteractive) => {
    const screen = await screenOf({ isInteractive });
    const swallowed = vi.fn(() => true);
    for (let id = 0; id < 200; id += 1) screen.terminal.parser.registerOscHandler(id, swallowed);
    for (const final of "qpt{|") screen.terminal.parser.registerDcsHandler({ final }, swallowed);
    screen.terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, swallowed);
    const output = new Output();
    const text = [...STRINGS.map((string) => ESC + string), ...C1_STRINGS].map((string) => `${string}x`).join("");
    for (const character of text) {
      output.append("stdout", undefined, character);
      screen.feed(output);
    }
    output.append("stdout", undefined, `${ESC}]8;;a\u0007`.repeat(8000));
    screen.feed(output);
    await settled(screen);
    expect(swallowed).not.toHaveBeenCalled();
    const core = (screen.terminal as unknown as { _core: { markers: unknown[]; _oscLinkService: { _dataByLinkId: Map<number, unknown> } } })._core;
    // One says where the stream begins.
    expect(core.markers.length).toBeLessThanOrEqual(1);
    expect(core._oscLinkService._dataByLinkId.size).toBe(0);
    expect(rows(screen).join("").replaceAll(/[^x]/g, "")).toBe("x".repeat(STRINGS.length + C1_STRINGS.length));
  });

  test("a string that does not end hides nothing of what a command prints line by line", async () => {
    const screen = await screenOf();
    const output = new Output();
    output.append("stdout", undefined, `${ESC}]0;title\nshown\n${ESC}P${"x".repeat(5000)}end\n${ESC}]`);
    output.append("stderr", undefined, "oops\n");
    screen.feed(output);
    await settled(screen);
    const drawn = rows(screen).join("");
    expect(drawn).toContain("shown");
    expect(drawn).toContain("xend");
    expect(drawn).toContain("oops");
    expect(drawn).not.toContain("title");
  });

  test("starting again from nothing, and test patterns, cost no more than text", async () => {
    const screen = await screenOf({ isInteractive: true });
    const resets = vi.fn(() => false);
    screen.terminal.parser.registerEscHandler({ final: "c" }, resets);
    const output = new Output();
    output.append("stdout", undefined, `gone${ESC}[?25l${`${ESC}cx`.repeat(10_000)}${ESC}\u0007c${`${ESC}#8`.repeat(5000)}kept`);
    screen.feed(output);
    await settled(screen);
    expect(resets).toHaveBeenCalledTimes(1);
    expect(rows(screen)[0]).toBe("kept");
    expect(screen.isCursorShown).toBe(true);
  });

  test("is written to in smaller pieces where one sequence touches more cells", async () => {
    const longest = async (size: { columns: number; rows: number }) => {
      const screen = await screenOf({ isInteractive: true, ...size });
      const written = vi.spyOn(screen.terminal, "write");
      const output = new Output();
      output.append("stdout", undefined, "x".repeat(10_000));
      screen.feed(output);
      await settled(screen);
      return Math.max(...written.mock.calls.map(([data]) => data.length));
    };
    expect(await longest({ columns: 80, rows: 24 })).toBe(2048);
    expect(await longest({ columns: 500, rows: 300 })).toBe(64);
  });

  test("shows a sign where a character would not be seen", async () => {
    const screen = await screenOf();
    const output = new Output();
    output.append("stdout", undefined, "a\u202eb\u2066c\u200bd ❤\ufe0f\n");
    screen.feed(output);
    await settled(screen);
    const [row = ""] = rows(screen);
    expect(row).not.toMatch(/[\u202e\u2066\u200b]/);
    expect(row).toContain("\ufffd");
    expect(row).toContain("❤");
  });

  test("keeps text readable whatever colours it asks for", async () => {
    const screen = await screenOf();
    const output = new Output();
    output.append("stdout", undefined, `${ESC}[30;40mhidden${ESC}[0m ${ESC}[8mconcealed${ESC}[0m ${ESC}[38;2;0;0;0mblack\n`);
    screen.feed(output);
    await settled(screen);
    const runs = lineRuns(screen.terminal.buffer.active.getLine(0) as never, 40, -1);
    const text = runs.map((run) => run.text).join("");
    expect(text).toBe("hidden concealed black");
    for (const run of runs) if (run.background !== "") expect(run.colour).not.toBe(run.background);
    expect(runs.find((run) => run.text === "black")?.colour).not.toBe("rgb(0,0,0)");
  });

  test("says what was left out when it was not looked at for long", async () => {
    const screen = await screenOf({ columns: 80 });
    const output = new Output();
    output.append("stdout", undefined, "begin\n");
    screen.feed(output);
    for (let number = 0; number < 30_000; number += 1) output.append("stdout", undefined, `${"x".repeat(70)} ${number}\n`);
    screen.feed(output);
    await settled(screen);
    const shown = rows(screen).join("\n");
    expect(shown).toMatch(/\d+ bytes not shown/);
    expect(shown.endsWith("x 29999")).toBe(true);
    expect(screen.terminal.buffer.active.length).toBeLessThanOrEqual(2005);
  });

  test("starts again with the output of a command that ran after a trial", async () => {
    const screen = await screenOf();
    const trial = new Output();
    trial.append("stdout", undefined, "tried\n");
    screen.feed(trial);
    const real = new Output();
    real.append("stdout", undefined, "ran\n");
    screen.feed(real);
    await settled(screen);
    expect(rows(screen)).toEqual(["ran"]);
  });

  test("is not held up by sequences that ask to be repeated for ever", async () => {
    const screen = await screenOf();
    const output = new Output();
    const endless = [..."@ABCDEFGHILMPSTXZ`abde"].map((final) => `x${ESC}[2147483647${final}`).join("");
    output.append("stdout", undefined, `${endless}${ESC}[2J${ESC}[Hstill here\n`);
    screen.feed(output);
    await settled(screen);
    expect(rows(screen)).toContain("still here");
  });

  test("takes what programs really repeat", async () => {
    const screen = await screenOf();
    const output = new Output();
    output.append("stdout", undefined, `a${ESC}[3b\n${ESC}[2Lb\n`);
    screen.feed(output);
    await settled(screen);
    expect(rows(screen).slice(0, 2)).toEqual(["aaaa", "b"]);
  });

  test("leaves out what comes faster than it can be drawn, and shows the end", async () => {
    const screen = await screenOf();
    const output = new Output();
    for (let round = 0; round < 40; round += 1) {
      output.append("stdout", undefined, `${"x".repeat(39)}\n`.repeat(2000));
      screen.feed(output);
    }
    output.append("stdout", undefined, "the end\n");
    const { active } = screen.terminal.buffer;
    const lastLine = () => active.getLine(active.baseY + active.cursorY - 1)?.translateToString(true);
    await vi.waitFor(() => expect(lastLine()).toBe("the end"), { timeout: 60_000 });
  });

  test("hides the cursor when a program says so", async () => {
    const screen = await screenOf({ isInteractive: true });
    const output = new Output();
    output.append("stdout", undefined, `${ESC}[?25l`);
    screen.feed(output);
    await settled(screen);
    expect(screen.isCursorShown).toBe(false);
  });

  test("a size from elsewhere is held to what can be drawn", async () => {
    const screen = await screenOf();
    screen.resize({ columns: 1e9, rows: 0 });
    expect([screen.terminal.cols, screen.terminal.rows]).toEqual([500, 2]);
  });
});

describe("the few screens", () => {
  test("are given back when others need them, and never taken from those who look at one", async () => {
    const pool = new ScreenPool();
    const options = { size: { columns: 80, rows: 24 }, isInteractive: false };
    const held = await Promise.all(Array.from({ length: 6 }, (_, number) => pool.acquire(`p${number}`, options)));
    expect(held.every((screen) => screen !== null)).toBe(true);
    expect(await pool.acquire("p6", options)).toBeNull();
    expect(await pool.acquire("p0", options)).toBe(held[0]);
    pool.release("p1");
    expect(await pool.acquire("p6", options)).not.toBeNull();
    expect(await pool.acquire("p1", options)).toBeNull();
    pool.close();
    expect(await pool.acquire("p9", options)).toBeNull();
  });
});

test("the sizes of screens are those that drivers sent, the last ones", () => {
  const sizes = new TerminalSizes();
  const feed = new Feed().begin();
  feed.runCommand("p1", "vim", { mode: "pty", driver: "ann" });
  feed.deliver("tool.input", { tool_proposal: "p1", resize: { columns: 100, rows: 30 } }, { sender: "ann" });
  expect(feed.terminalSizes.get("p1")).toEqual({ columns: 100, rows: 30 });
  for (let number = 0; number < 100; number += 1) {
    sizes.note({ v: 1, id: "i", session: "s", sender: "a", type: "tool.input", payload: { tool_proposal: `p${number}`, resize: { columns: number + 1, rows: 2 } } });
  }
  expect([sizes.get("p0"), sizes.get("p99")?.columns]).toEqual([undefined, 100]);
});
