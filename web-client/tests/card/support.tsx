// Gates, cards and a person who reads and presses them.

import { signal } from "@preact/signals";
import { render } from "preact";
import type { ComponentChild } from "preact";
import { act } from "preact/test-utils";
import { vi } from "vitest";
import type { Assessment, GateDetails, GateListItem, SessionDetails } from "@protocol";
import { ApiError } from "../../src/net/api";
import type { App } from "../../src/state/app";
import { second } from "../../src/state/clock";
import { AppContext } from "../../src/ui/context";

export const DIGEST = "aa".repeat(32);
export const OTHER_DIGEST = "bb".repeat(32);
/** By the server's clock, when the tests begin. */
export const NOW = Date.parse("2026-01-01T12:00:00.000Z");

interface GateShape {
  gate?: string;
  session?: string;
  line?: string;
  category?: Assessment["category"];
  risk?: Assessment["risk"];
  digest?: string;
  assessment?: Partial<Assessment>;
  rest?: Partial<GateListItem>;
}

export function gateItem(shape: GateShape = {}): GateListItem {
  const { gate = "g1", session = "shop", line = "make build", category = "write", digest = DIGEST } = shape;
  const assessment: Assessment = {
    category,
    risk: shape.risk ?? (category === "destructive" ? "high" : "low"),
    rule: "make",
    reason: "runs what the Makefile says",
    profile: "none",
    digest,
    policy: "cc".repeat(32),
    ...shape.assessment,
  };
  return {
    session,
    short_id: gate.slice(-6),
    handle: `${gate.slice(-6)}-${digest.slice(0, 6)}`,
    received: 0,
    required: 1,
    awaited: [],
    may_vote: true,
    gate,
    request: {
      action_type: "tool",
      action_ref: `proposal-${gate}`,
      quorum: { type: "any", count: 1 },
      timeout_seconds: 300,
      message: "",
      category,
      digest,
      deadline: "2026-01-01T12:05:00.000Z",
      on_timeout: "reject",
      voters: ["ann", "bob"],
    },
    action: { command: { form: "shell", line }, cwd: "/srv/shop", mode: "normal" },
    assessment,
    proposer: "bot",
    description: "keep the shop tidy",
    approvals: [],
    escalated: false,
    ...shape.rest,
  };
}

export function openDetails(item: GateListItem, more: Partial<GateDetails> = {}): GateDetails {
  return { session: item.session, tool_proposal: item.request.action_ref, short_id: item.short_id, status: "open", open: item, ...more };
}

export function closedDetails(item: GateListItem, resolution: Partial<NonNullable<GateDetails["resolution"]>> = {}): GateDetails {
  const resolved = { gate: item.gate, tool_proposal: item.request.action_ref, outcome: "approved", how: "quorum", at: "2026-01-01T12:00:05.000Z", ...resolution } as const;
  return { ...openDetails(item), open: undefined, status: resolved.outcome, resolution: resolved } as GateDetails;
}

export const SESSION: Pick<SessionDetails, "people" | "config"> = {
  people: [
    person("ann", "Ann", "human", ["admin"]),
    person("bob", "Bob", "human", ["approver"]),
    { ...person("bot", "Bot", "agent", []), executor: { profiles: ["read"], shell_exec: true, working_directory: "/srv/shop" } },
  ],
  config: { require_approval_for: [], default_gate_quorum: { type: "any", count: 1 }, quorum_by_category: {} } as unknown as SessionDetails["config"],
};

function person(id: string, name: string, type: "human" | "agent", roles: SessionDetails["people"][number]["roles"]): SessionDetails["people"][number] {
  return { id, name, type, roles, transport: "websocket", presence: "active" };
}

export interface Call {
  method: "GET" | "POST";
  path: string;
  body: Record<string, unknown>;
}

/** An app whose server is a function. */
export class FakeApp {
  readonly calls: Call[] = [];
  readonly gates = signal<GateListItem[] | null>(null);
  readonly sessions = signal(null);
  readonly notificationSettings = signal(null);
  readonly reachable = signal(true);
  readonly device = { token: "t", participant: "bob", name: "Bob", roles: ["approver"], session: null, expires: null };
  readonly details = new Map<string, GateDetails>();
  /** Answers a POST; throws to refuse. */
  onPost: (call: Call) => unknown = () => {
    throw new ApiError(500, "no answer was prepared");
  };

  readonly api = {
    get: async (path: string) => this.answerGet(path),
    post: async (path: string, body: Record<string, unknown>) => {
      const call: Call = { method: "POST", path, body };
      this.calls.push(call);
      return this.onPost(call);
    },
  };

  sessionName(session: string): string {
    return session === "shop" ? "The shop" : session;
  }

  /** What the page sent. */
  posts(): Call[] {
    return this.calls.filter((call) => call.method === "POST");
  }

  asApp(): App {
    return this as unknown as App;
  }

  private answerGet(path: string): unknown {
    this.calls.push({ method: "GET", path, body: {} });
    const gate = /\/gates\/(.+)$/.exec(path)?.[1];
    if (gate === undefined) return { session: "shop", head: 1, gates: [], running: [], ended: false, ...structuredClone(SESSION) };
    const listed = this.gates.value?.find((item) => item.gate === gate);
    const details = this.details.get(gate) ?? (listed && openDetails(listed));
    if (details === undefined) throw new ApiError(404, "no such gate");
    return details;
  }
}

/** What an observer of the screen sees: everything, unless a test says otherwise. */
export const screen = { isEndVisible: true };

class VisibleObserver {
  static readonly all = new Set<VisibleObserver>();
  constructor(private readonly callback: (entries: { isIntersecting: boolean }[]) => void) {}
  observe() {
    VisibleObserver.all.add(this);
    this.callback([{ isIntersecting: screen.isEndVisible }]);
  }
  disconnect() {
    VisibleObserver.all.delete(this);
  }
}

/** The end of what is observed comes into sight, as it does a moment after scrolling to it. */
export async function reachEnd(): Promise<void> {
  screen.isEndVisible = true;
  await change(() => VisibleObserver.all.forEach((observer) => observer.observe()));
}

export function setViewport(width: number, height: number): void {
  const browser = window as unknown as { happyDOM: { setViewport(size: { width: number; height: number }): void } };
  browser.happyDOM.setViewport({ width, height });
}

/** Call before each test. */
export function setUp(): void {
  vi.useFakeTimers({ now: NOW });
  vi.stubGlobal("IntersectionObserver", VisibleObserver);
  second.value = NOW;
  setViewport(360, 740);
  screen.isEndVisible = true;
  document.body.innerHTML = "";
  document.documentElement.lang = "en";
}

export function show(child: ComponentChild, app?: FakeApp): void {
  const host = document.body.querySelector("#host") ?? document.body.appendChild(Object.assign(document.createElement("div"), { id: "host" }));
  const tree = app === undefined ? child : <AppContext.Provider value={app.asApp()}>{child}</AppContext.Provider>;
  void act(() => render(tree, host));
}

export function unmount(): void {
  const host = document.body.querySelector("#host");
  if (host !== null) void act(() => render(null, host));
}

/** Lets timers run and answers arrive. */
export async function pass(milliseconds: number): Promise<void> {
  await act(async () => {
    await vi.advanceTimersByTimeAsync(milliseconds);
  });
}

/** As long as it takes until buttons that have just appeared take a press. */
export const settle = () => pass(700);

export function text(): string {
  return document.body.textContent ?? "";
}

const ROLES: { [role: string]: string } = {
  button: "button",
  link: "a[href]",
  checkbox: "input[type=checkbox]",
  textbox: "textarea, input:not([type])",
  combobox: "select",
  alert: "[role=alert]",
  status: "[role=status]",
  group: "[role=group]",
  listitem: "li",
  heading: "h1, h2, h3",
  region: "section",
  list: "ul, ol",
};

/** Elements by role and accessible name. */
export function all(role: string, name?: string | RegExp, within: ParentNode = document.body): HTMLElement[] {
  const found = [...within.querySelectorAll<HTMLElement>(ROLES[role] ?? `[role=${role}]`)];
  const matches = (element: HTMLElement) => name === undefined || (typeof name === "string" ? nameOf(element) === name : name.test(nameOf(element)));
  return found.filter(matches);
}

export function get(role: string, name?: string | RegExp, within?: ParentNode): HTMLElement {
  const found = all(role, name, within);
  if (found.length !== 1) throw new Error(`${found.length} elements with the role ${role} and the name ${name}; there are: ${all(role).map(nameOf).join(" | ")}`);
  return found[0] as HTMLElement;
}

export function has(role: string, name?: string | RegExp): boolean {
  return all(role, name).length > 0;
}

function nameOf(element: HTMLElement): string {
  const label = element.getAttribute("aria-label");
  if (label !== null) return label;
  const field = element.closest("label");
  const source = field !== null && field !== element ? ([...field.childNodes].find((node) => node.nodeType === 3)?.textContent ?? "") : visibleText(element);
  return source.trim().replace(/\s+/g, " ");
}

function visibleText(element: Element): string {
  return [...element.childNodes]
    .map((node) => (node instanceof Element ? (node.getAttribute("aria-hidden") === "true" ? "" : visibleText(node)) : (node.textContent ?? "")))
    .join("");
}

export async function click(element: HTMLElement): Promise<void> {
  await act(async () => {
    element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1 }));
  });
  await pass(0);
}

export async function pointer(element: HTMLElement, type: string, init: PointerEventInit = {}): Promise<void> {
  await act(async () => {
    element.dispatchEvent(new PointerEvent(type, { bubbles: true, cancelable: true, isPrimary: true, button: 0, ...init }));
  });
}

export async function key(element: HTMLElement, type: "keydown" | "keyup", name: string, init: KeyboardEventInit = {}): Promise<KeyboardEvent> {
  const event = new KeyboardEvent(type, { key: name, bubbles: true, cancelable: true, ...init });
  await act(async () => {
    element.dispatchEvent(event);
  });
  await pass(0);
  return event;
}

export async function type(element: HTMLElement, value: string): Promise<void> {
  await act(async () => {
    (element as HTMLInputElement).value = value;
    element.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

export async function choose(element: HTMLElement, value: string): Promise<void> {
  await act(async () => {
    (element as HTMLSelectElement).value = value;
    element.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

/** Changes what the server tells, and lets the page draw it. */
export async function change(make: () => void): Promise<void> {
  await act(async () => make());
  await pass(0);
}
