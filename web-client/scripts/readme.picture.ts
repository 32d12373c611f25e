// Draws docs/screenshots/readme.png: one gate on a phone, and the same in `pvp tui`.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import type { GateListItem } from "@protocol";
import { keepPicture } from "../tests/browser/picture";
import { closeBrowser, Person, PHONE, PROGRAM, Stage } from "../tests/browser/stage";
import type { Step } from "../tests/browser/stage";

const TARGET = fileURLToPath(new URL("../../docs/screenshots/readme.png", import.meta.url));
const XTERM = createRequire(import.meta.url).resolve("@xterm/xterm");
const [COLUMNS, ROWS] = [88, 31];
/** An address of its own, so that nobody's tmux is touched. */
const SOCKET = `pvp-picture-${process.pid}`;

const STORY: Step[] = [
  { say: "I clean up before the release. Let me look at what is there." },
  { shell: "ls", purpose: "see what is there" },
  { say: "`old-notes` is from last year, and nothing refers to it." },
  { shell: "rm -rf old-notes", purpose: "delete notes that nobody needs" },
];

test("the picture of the README", async () => {
  const stage = await Stage.start({ directory: join(tmpdir(), "pvp-demo") });
  try {
    // Votes of people who were invited during a session are not counted as independent.
    const people = { ann: await invite(stage, "Ann"), bob: await invite(stage, "Bob"), cid: await invite(stage, "Cid") };
    const session = await stage.session("night-shift", { quorum_by_category: { destructive: { type: "any", count: 2 } } }, "Night shift");
    const workspace = join(stage.directory, "shop");
    mkdirSync(join(workspace, "old-notes"), { recursive: true });
    for (const name of ["notes.txt", "shop.toml"]) writeFileSync(join(workspace, name), "\n");
    await stage.agent(session, STORY, [], workspace);
    const [gate] = (await stage.gates(session, 1)) as [GateListItem];
    await stage.post(`/api/sessions/${session}/gates/${gate.gate}/vote`, { vote: "approve", digest: gate.assessment.digest }, people.cid);
    const phone = await drawPhone(`${stage.url}/#token=${people.ann}&session=${session}&gate=${gate.gate}`);
    const terminal = await drawTerminal(stage, `${stage.url}/#token=${people.bob}&session=${session}`);
    await compose(phone, terminal);
  } finally {
    await closeBrowser();
    await stage.close();
  }
});

async function invite(stage: Stage, name: string): Promise<string> {
  return (await stage.invite({ name, roles: ["approver", "driver"] })).token;
}

async function drawPhone(link: string): Promise<Buffer> {
  const ann = await Person.open(link, { ...PHONE, viewport: { width: 360, height: 760 }, colorScheme: "light" });
  await ann.page.locator("section.card .decision-bar").waitFor();
  await ann.page.evaluate(() => Promise.all([document.fonts.ready, ...document.getAnimations().map((animation) => animation.finished)]));
  // Fingers leave no ring around what has the focus.
  await ann.page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  const picture = await ann.page.screenshot();
  await ann.close();
  return picture;
}

/** What the terminal shows, with its colours, once the gate is on its screen. */
async function drawTerminal(stage: Stage, link: string): Promise<string> {
  const file = join(stage.directory, "link");
  writeFileSync(file, link, { mode: 0o600 });
  const home = join(stage.directory, "home");
  const command = `env HOME=${home} COLORTERM=truecolor LANG=C.UTF-8 ${PROGRAM} tui --link-file ${file}`;
  tmux("-f", "/dev/null", "new-session", "-d", "-x", String(COLUMNS), "-y", String(ROWS), command);
  try {
    const shown = () => tmux("capture-pane", "-p");
    await expect.poll(shown, { timeout: 30_000 }).toMatch(/✓ Cid[^]*a approve/);
    tmux("send-keys", "Tab");
    await expect.poll(shown, { timeout: 30_000 }).toContain("▶ Waiting");
    return tmux("capture-pane", "-e", "-p");
  } finally {
    tmux("kill-server");
  }
}

function tmux(...words: string[]): string {
  return execFileSync("tmux", ["-L", SOCKET, ...words], { encoding: "utf8", env: { ...process.env, LANG: "C.UTF-8", TERM: "xterm-256color" } });
}

/** Both, side by side, as they lie on a desk. */
async function compose(phone: Buffer, terminal: string): Promise<void> {
  const desk = await Person.open("about:blank", { viewport: { width: 1240, height: 860 }, deviceScaleFactor: 1.5 });
  await desk.page.setContent(`<!doctype html><style>
    body { margin: 0; display: flex; gap: 36px; align-items: center; justify-content: center; width: max-content; padding: 36px; background: #e7ebf0; }
    .phone { border: 10px solid #14181d; border-radius: 34px; width: 342px; box-shadow: 0 12px 32px #0004; }
    .window { border-radius: 10px; overflow: hidden; background: #0b0f14; box-shadow: 0 12px 32px #0004; }
    .window::before { content: "pvp tui"; display: block; padding: 8px 14px; background: #242b34; color: #c4ccd6; font: 13px sans-serif; }
    #screen { padding: 10px 12px; }
    .xterm-scrollable-element > .scrollbar { display: none !important; }
  </style><div class="window"><div id="screen"></div></div><img class="phone" src="data:image/png;base64,${phone.toString("base64")}">`);
  await desk.page.addStyleTag({ path: join(XTERM, "../../css/xterm.css") });
  await desk.page.addScriptTag({ path: XTERM });
  await desk.page.evaluate(
    async ([text, columns, rows]) => {
      const { Terminal } = window as unknown as { Terminal: new (options: object) => { open(element: unknown): void; write(text: string, done: () => void): void } };
      const theme = { background: "#0b0f14", foreground: "#e6ebf1", cursor: "#0b0f14", brightBlack: "#8a95a3" };
      const screen = new Terminal({ cols: columns, rows, theme, fontFamily: "monospace", fontSize: 13, disableStdin: true });
      screen.open(document.getElementById("screen"));
      // The cursor is not part of what is shown.
      await new Promise<void>((done) => screen.write(`\u001b[?25l${text.trimEnd().replaceAll("\n", "\r\n")}`, done));
      await new Promise(requestAnimationFrame);
      await new Promise(requestAnimationFrame);
    },
    [terminal, COLUMNS, ROWS] as const,
  );
  keepPicture(TARGET, await desk.page.locator("body").screenshot());
  await desk.close();
}
