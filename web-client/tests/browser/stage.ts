// A real server, real agents and real browsers for the browser tests.

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import type { CreatedSession, GateList, GateListItem, Invitation, InviteRequest, Role } from "@protocol";

/** How long anything may take on a machine that does much else. Nothing is measured by it. */
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 60_000);

export const PROGRAM = process.env.PVP_BIN ?? fileURLToPath(new URL("../../../target/debug/pvp", import.meta.url));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** One step of a scripted agent, as docs/agent.md describes it. */
export interface Step {
  say?: string;
  think?: string;
  shell?: string;
  purpose?: string;
  mode?: string;
  together?: boolean;
  when?: string;
  wait?: "prompt";
  file_write?: { path: string; content: string };
  file_edit?: { path: string; old_text: string; new_text: string };
}

export interface StageOptions {
  /** Settings of the server, as `pvp server --config` takes them. */
  settings?: object;
  /** Further arguments of `pvp server`. */
  arguments?: string[];
  /** Where everything is kept, and removed at the end; a fresh directory unless given. */
  directory?: string;
}

export class Stage {
  readonly directory: string;
  private server: ChildProcess | null = null;
  private readonly agents: ChildProcess[] = [];
  /** Where the server listens on this machine. */
  port = 0;
  private adminToken = "";
  /** What links say of a certificate that nobody else vouches for. */
  pin = "";
  url = "";

  private constructor(private readonly options: StageOptions) {
    this.directory = options.directory ?? mkdtempSync(join(tmpdir(), "pvp-page-"));
    if (options.directory !== undefined) mkdirSync(this.directory);
  }

  static async start(options: StageOptions = {}): Promise<Stage> {
    for (const needed of [PROGRAM, CHROMIUM]) {
      if (!existsSync(needed)) throw new Error(`${needed} is missing; \`make test\` builds and installs what the browser tests need`);
    }
    const stage = new Stage(options);
    await stage.startServer();
    return stage;
  }

  /** Starts the server, on the same port as before if there was one. */
  async startServer(): Promise<void> {
    const settings = this.options.settings ?? {};
    const words = ["server", "--listen", `127.0.0.1:${this.port}`, "--data", join(this.directory, "data"), "--json"];
    words.push("--config", JSON.stringify(settings), ...(this.options.arguments ?? []));
    const server = this.run(words);
    this.server = server;
    const ready = JSON.parse(await firstLine(server)) as { listen: string; admin_link?: string };
    this.port = Number(ready.listen.split(":").at(-1));
    const link = ready.admin_link;
    if (link === undefined || link === null) return;
    this.url = link.slice(0, link.indexOf("/#"));
    const parameters = new URLSearchParams(link.slice(link.indexOf("#") + 1));
    this.adminToken = parameters.get("token") ?? "";
    this.pin = parameters.has("fp") ? `&fp=${parameters.get("fp")}` : "";
  }

  /** Ends the server as a crash would. */
  async killServer(): Promise<void> {
    await end(this.server, "SIGKILL");
  }

  async stopServer(): Promise<void> {
    await end(this.server, "SIGTERM");
  }

  /** Runs a subcommand of `pvp server` on the data directory, while the server is stopped. */
  async maintain(subcommand: string): Promise<void> {
    const command = this.run(["server", subcommand, "--data", join(this.directory, "data")]);
    command.stdout?.resume();
    let complaints = "";
    command.stderr?.on("data", (data: Buffer) => (complaints += data.toString()));
    const code = await new Promise((resolve) => command.once("close", resolve));
    if (code !== 0) throw new Error(`pvp server ${subcommand}: ${complaints}`);
  }

  async stopAgents(): Promise<void> {
    for (const agent of this.agents.splice(0)) await end(agent, "SIGTERM");
  }

  async close(): Promise<void> {
    await this.stopAgents();
    await this.stopServer();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Makes a session; `config` as in docs/quorum.md. */
  async session(session: string, config: object = {}, name?: string): Promise<string> {
    await this.post<CreatedSession>("/api/sessions", { session, name, config });
    return session;
  }

  invite(request: Partial<InviteRequest> & { name: string; roles: Role[] }): Promise<Invitation> {
    return this.post<Invitation>("/api/invites", request);
  }

  /** The link of a new person in a session. */
  async person(name: string, roles: Role[], session: string): Promise<string> {
    const invitation = await this.invite({ name, roles, session });
    return this.linkOf(invitation.token, session);
  }

  private linkOf(token: string, session: string): string {
    return `${this.url}/#token=${token}&session=${session}${this.pin}`;
  }

  /** Starts an agent that follows a script, with an executor in a directory of its own. */
  async agent(session: string, steps: Step[], extra: string[] = [], directory?: string): Promise<Agent> {
    const invitation = await this.invite({ name: "bot", roles: ["driver"], kind: "agent", session });
    const home = mkdtempSync(join(this.directory, "agent-"));
    const workspace = directory ?? join(home, "workspace");
    mkdirSync(workspace, { recursive: true });
    const script = join(home, "steps.jsonl");
    writeFileSync(script, steps.map((step) => JSON.stringify(step)).join("\n"));
    const link = join(home, "link");
    writeFileSync(link, this.linkOf(invitation.token, session), { mode: 0o600 });
    const start = () => {
      const words = ["agent", "--link-file", link, "--script", script, "--workspace", workspace, "--state", join(home, "state")];
      const process = this.run([...words, "--accept-shell", ...extra], workspace);
      this.agents.push(process);
      return process;
    };
    return { workspace, participant: invitation.participant, process: start() };
  }

  async get<T>(path: string, token: string = this.adminToken): Promise<T> {
    return this.request<T>("GET", path, undefined, token);
  }

  async post<T>(path: string, body: object, token: string = this.adminToken): Promise<T> {
    return this.request<T>("POST", path, body, token);
  }

  adminHeaders(): Record<string, string> {
    return { authorization: `Bearer ${this.adminToken}` };
  }

  /** The raw answer, for tests of refusals. */
  fetch(path: string, init: RequestInit = {}): Promise<Response> {
    return fetch(this.url + path, init);
  }

  /** Waits until this many gates of a session are open, and returns them. */
  async gates(session: string, count: number): Promise<GateListItem[]> {
    let version: number | null = null;
    for (;;) {
      const query: string = version === null ? "" : `?after=${version}&wait=30`;
      const list: GateList = await this.get<GateList>(`/api/gates${query}`);
      const open = list.gates.filter((gate) => gate.session === session);
      if (open.length === count) return open;
      version = list.version;
    }
  }

  /** Approves as the admin. */
  async vote(gate: GateListItem): Promise<void> {
    const path = `/api/sessions/${gate.session}/gates/${gate.gate}/vote`;
    await this.post(path, { vote: "approve", digest: gate.assessment.digest });
  }

  /** Waits until a gate is no longer open. */
  async decided(gate: GateListItem): Promise<void> {
    let version: number | null = null;
    for (;;) {
      const query: string = version === null ? "" : `?after=${version}&wait=30`;
      const list: GateList = await this.get<GateList>(`/api/gates${query}`);
      if (!list.gates.some((open) => open.gate === gate.gate)) return;
      version = list.version;
    }
  }

  private async request<T>(method: string, path: string, body: object | undefined, token: string): Promise<T> {
    const response = await this.fetch(path, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  /** Runs a command of the program to its end; what it prints. */
  async command(words: string[]): Promise<string> {
    const child = this.run(words);
    let printed = "";
    child.stdout?.on("data", (data: Buffer) => (printed += data.toString()));
    await new Promise((resolve) => child.once("close", resolve));
    if (child.exitCode !== 0) throw new Error(`pvp ${words.join(" ")} ended with ${child.exitCode}`);
    return printed;
  }

  private run(words: string[], cwd: string = this.directory): ChildProcess {
    const home = join(this.directory, "home");
    mkdirSync(home, { recursive: true });
    const env = { PATH: process.env.PATH ?? "", HOME: home, LANG: "C.UTF-8" };
    return spawn(PROGRAM, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  }
}

export interface Agent {
  workspace: string;
  participant: string;
  process: ChildProcess;
}

async function firstLine(child: ChildProcess): Promise<string> {
  let complaints = "";
  child.stderr?.on("data", (data: Buffer) => {
    complaints = (complaints + data.toString()).slice(-4000);
  });
  if (child.stdout === null) throw new Error("the program has no output");
  const lines = createInterface(child.stdout);
  for await (const line of lines) {
    // Whatever it prints later is read and dropped, so that it never blocks.
    child.stdout.resume();
    return line;
  }
  throw new Error(`the program ended: ${complaints}`);
}

async function end(child: ChildProcess | null, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  await ended;
}

let shared: Promise<Browser> | null = null;

/** Further arguments of the browser, for tests that set them before it is started. */
export const browserArguments: string[] = [];

function launchOptions() {
  const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];
  return { executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", ...quiet, ...browserArguments] };
}

function browser(): Promise<Browser> {
  shared ??= chromium.launch(launchOptions());
  return shared;
}

export async function closeBrowser(): Promise<void> {
  await (await shared)?.close();
  shared = null;
}

export const PHONE: BrowserContextOptions = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };
export const DESK: BrowserContextOptions = { viewport: { width: 1280, height: 800 } };

/** A person with a browser of their own: nothing is shared with others but the server. */
export class Person {
  /** What the browser complained about: script errors, refused loads, breaches of the policy. */
  readonly complaints: string[] = [];

  private constructor(
    readonly page: Page,
    readonly context: BrowserContext,
  ) {}

  static async open(link: string, options: BrowserContextOptions = DESK): Promise<Person> {
    return Person.in(await (await browser()).newContext({ locale: "en-GB", ...options }), link);
  }

  /** With a browser of one's own, which keeps a history in this directory. */
  static async openWithProfile(profile: string, link: string): Promise<Person> {
    return Person.in(await chromium.launchPersistentContext(profile, { ...launchOptions(), locale: "en-GB", ...DESK }), link);
  }

  private static async in(context: BrowserContext, link: string): Promise<Person> {
    context.setDefaultTimeout(PATIENCE_MS);
    const person = new Person(await context.newPage(), context);
    person.listen();
    await person.page.goto(link);
    return person;
  }

  async close(): Promise<void> {
    await this.context.close();
  }

  private listen(): void {
    this.page.on("pageerror", (error) => this.complaints.push(`error: ${error.message}`));
    this.page.on("console", (message) => {
      // A server that is down on purpose is reported by the browser itself.
      if (message.type() === "error" && !/ERR_CONNECTION|WebSocket connection|Failed to load resource/.test(message.text())) {
        this.complaints.push(message.text());
      }
    });
  }
}
