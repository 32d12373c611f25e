// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { GateDeck } from "../../src/card/GateDeck";
import type { ExecutorInfo, GateDetails, GateListItem } from "@protocol";
import { parseServerMessage, View } from "../../src/fold";
import type { SessionConnection } from "../../src/net/connection";
import { setPreference } from "../../src/state/preferences";
import { change, click, FakeApp, get, has, openDetails, pass, pointer, settle, setUp, show, text, unmount, gateItem } from "./support";

const STORIES = join(import.meta.dirname, "../../../tests/transcripts");

let app: FakeApp;
let view: View;
let lines: string[];
const tick = signal(0);

beforeEach(() => {
  setUp();
  app = new FakeApp();
  app.onPost = () => ({ ack: {}, gate: openDetails(gateItem()) });
  setPreference("confirmWrite", "tap");
  setPreference("confirmDestructive", "hold");
});

afterEach(() => {
  unmount();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Shows a story up to the first message of this type. */
async function open(story: string, until: string): Promise<void> {
  view = new View();
  lines = readFileSync(join(STORIES, `${story}.told.jsonl`), "utf8").trim().split("\n");
  await tell(until);
  show(<GateDeck connection={{ view, tick, session: "story" } as unknown as SessionConnection} />, app);
  await settle();
}

/** What the server knows of a gate besides what the view was told. */
function detailsOf(gate: string, more: Partial<GateDetails> = {}): GateDetails {
  const card = view.gates.find((open) => open.gate === gate)!;
  const { command, category, digest, proposal, edited_by, files } = card.requested === undefined ? card : { ...card, ...card.requested };
  const action = { command: { form: "shell", line: command }, mode: "normal", ...(files === undefined ? {} : { files }) } as GateListItem["action"];
  const rest = { action, proposer: card.proposer ?? "", ...(edited_by === null ? {} : { amended_by: edited_by }) };
  const item = gateItem({ gate, session: "story", category, digest, rest });
  return openDetails({ ...item, request: { ...item.request, action_ref: proposal } }, more);
}

/** Tells what comes next, to the end of this message. */
async function tell(until: string): Promise<void> {
  await change(() => {
    for (let line = lines.shift(); line !== undefined; line = lines.shift()) {
      const envelope = parseServerMessage(line);
      if (envelope !== null) view.fold(envelope);
      if (envelope?.type === until) break;
    }
    tick.value += 1;
  });
}

describe("the card of a session", () => {
  test("it is there while a gate is open, and opens to a vote on what the view shows", async () => {
    await open("an_edit_voids_the_votes", "gate.request");
    const strip = get("button", /rm -rf build cache/);
    expect(strip.getAttribute("aria-expanded")).toBe("false");
    await click(strip);
    await settle();
    expect(get("group", "Command").textContent).toBe("rm -rf build cache");
    await pointer(get("button", "Hold to approve"), "pointerdown");
    await pass(1000);
    const card = view.gates[0]!;
    expect(app.posts()).toEqual([
      { method: "POST", path: `/api/sessions/story/gates/${card.gate}/vote`, body: { vote: "approve", digest: card.digest, id: expect.any(String) } },
    ]);
  });

  test("an edit changes the command on the card and must be looked at", async () => {
    await open("an_edit_voids_the_votes", "gate.request");
    await click(get("button", /rm -rf build cache/));
    await settle();
    const before = view.gates[0]!.digest;
    const gate = view.gates[0]!.gate;
    await tell("gate.amend");
    // Nothing can be looked at before it is there.
    expect((get("button", "I have looked at it") as HTMLButtonElement).disabled).toBe(true);
    app.details.set(gate, detailsOf(gate));
    await click(get("button", "Try again"));
    expect(get("group", "Command").textContent).toBe("rm -r build");
    expect(get("alert").textContent).toContain("Cat has edited the command.");
    await click(get("button", "I have looked at it"));
    await settle();
    await pointer(get("button", "Hold to approve"), "pointerdown");
    await pass(1000);
    expect(app.posts()[0]?.body.digest).toBe(view.gates[0]!.digest);
    expect(app.posts()[0]?.body.digest).not.toBe(before);
  });

  test("a person's own command says where it runs before it can be approved", async () => {
    const answer = app.api.get;
    let arrive = () => undefined as unknown;
    app.api.get = async (path: string) => {
      if (path.includes("/gates/")) await new Promise((resolve) => (arrive = () => resolve(null)));
      return answer(path);
    };
    await open("a_person_alone_may_approve_their_own_command", "gate.request");
    const card = view.gates[0]!;
    expect([card.requested?.form ?? card.form, card.standing]).toEqual(["login_shell", "may_vote"]);
    await click(document.querySelector<HTMLElement>(".deck-strip")!);
    await settle();
    expect((get("button", "Hold to approve") as HTMLButtonElement).disabled).toBe(true);
    const executor: ExecutorInfo = { profiles: ["read"], shell_exec: true, working_directory: "/srv/production", runner: ["ssh", "production"] };
    const details = detailsOf(card.gate);
    const action = { command: { form: "login_shell", line: card.command }, mode: "normal" } as GateListItem["action"];
    app.details.set(card.gate, { ...details, open: { ...details.open!, action, executor } });
    await change(() => arrive());
    await settle();
    expect(text()).toContain("/srv/production");
    expect(text()).toContain("ssh production");
    expect((get("button", "Hold to approve") as HTMLButtonElement).disabled).toBe(false);
  });

  test("a decided card stays dead for whoever uses it, and says who decided", async () => {
    await open("a_destructive_command_is_rejected_with_reason", "gate.request");
    await click(get("button", /rm/));
    await settle();
    document.querySelector<HTMLElement>("section.card")?.focus();
    await tell("gate.resolve");
    expect(text()).toMatch(/Denied by \w+/);
    expect(has("button", /approve|Deny/i)).toBe(false);
    await click(get("button", "Close"));
    expect(has("group", "Command")).toBe(false);
  });

  test("nothing is there when nothing waits", async () => {
    await open("a_read_runs_with_output", "tool.result");
    expect(text()).toBe("");
  });
});
