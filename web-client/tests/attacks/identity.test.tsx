// @vitest-environment happy-dom
// Links, tabs and people that change places on one device.

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Role } from "@protocol";
import { go } from "../../src/state/route";
import { Root, startSignIn } from "../../src/ui/Root";

interface TokenFacts {
  participant: string;
  name: string;
  roles: Role[];
  /** A token of a device, which makes no others. */
  device?: string;
  isRevoked?: boolean;
}

let tokens: Map<string, TokenFacts>;
/** What was asked, with the token it was asked with. */
let asked: string[];
/** Questions that are answered later. */
let held: { match: string; release: Promise<void> }[];
/** Long polls, by their token. */
let polls: Map<string, (answer: Response) => void>;
let host: HTMLElement;

function reply(body: unknown, status = 200): Response {
  return status === 204 ? new Response(null, { status }) : new Response(JSON.stringify(body), { status });
}

const devices = () => [...tokens].filter(([, facts]) => facts.device !== undefined && facts.isRevoked !== true);

async function serve(path: string, init: RequestInit): Promise<Response> {
  const token = (new Headers(init.headers).get("authorization") ?? "").replace("Bearer ", "");
  const request = `${init.method} ${path} ${token}`;
  asked.push(request);
  for (const { match, release } of held) if (request.includes(match)) await release;
  if (path === "/api/join") {
    const { name } = JSON.parse(init.body as string) as { name: string };
    tokens.set(`pvp_code_${name}`, { participant: `${name}-id`, name, roles: ["approver"] });
    return reply({ token: `pvp_code_${name}` }, 201);
  }
  const facts = tokens.get(token);
  if (facts === undefined || facts.isRevoked === true) return reply({ message: "the token was revoked" }, 401);
  if (path === "/api/me") return reply({ participant: facts.participant, name: facts.name, type: "human", roles: facts.roles });
  if (path === "/api/devices" && init.method === "POST") {
    const id = `device_${tokens.size}`;
    tokens.set(`pvp_${id}`, { ...facts, device: id });
    return reply({ token: `pvp_${id}`, id, name: "Browser", participant: facts.participant, participant_name: facts.name, roles: facts.roles }, 201);
  }
  if (path === "/api/devices") {
    const theirs = devices().filter(([, other]) => other.participant === facts.participant);
    return reply({ devices: theirs.map(([other, { device }]) => ({ id: device, name: "Browser", created: "2026-01-01T00:00:00.000Z", this_device: other === token })) });
  }
  if (path.startsWith("/api/devices/")) {
    const found = devices().find(([, other]) => path.endsWith(`/${other.device}`));
    if (found !== undefined) found[1].isRevoked = true;
    return reply(null, found === undefined ? 404 : 204);
  }
  if (path.startsWith("/api/gates")) {
    if (path.includes("after")) {
      return new Promise<Response>((resolve, reject) => {
        polls.set(token, resolve);
        init.signal?.addEventListener("abort", () => reject(new Error("aborted")));
      });
    }
    return reply({ gates: [], version: 1 });
  }
  if (path.startsWith("/api/sessions")) return reply({ sessions: [], more: false });
  return reply({ message: "no such route" }, 404);
}

/** Ends a token as somebody far away does; what waits is told. */
async function revoke(token: string): Promise<void> {
  (tokens.get(token) as TokenFacts).isRevoked = true;
  await act(async () => polls.get(token)?.(reply({ message: "the token was revoked" }, 401)));
  await rest();
}

const stored = () => JSON.parse(localStorage.getItem("pvp.device") ?? "null") as { token: string; name: string } | null;

async function rest(): Promise<void> {
  await act(async () => {
    for (let round = 0; round < 30; round += 1) await new Promise((resolve) => setTimeout(resolve, 0));
  });
}

async function open(hash: string): Promise<void> {
  await act(async () => {
    location.hash = hash;
    dispatchEvent(new HashChangeEvent("hashchange"));
  });
  await rest();
}

/** What is drawn once its screen is loaded. */
function shown<E extends Element>(selector: string, isIt: (found: E) => boolean = () => true): Promise<E> {
  const find = async () => {
    await act(() => new Promise((resolve) => setTimeout(resolve, 0)));
    const all = [...document.querySelectorAll<E>(selector)];
    const found = all.find(isIt);
    if (found === undefined) throw new Error(`not among ${all.length} of ${selector}: ${all.map((one) => one.textContent).join(" | ")}`);
    return found;
  };
  return vi.waitFor(find, { timeout: 10_000 });
}

async function press(name: string | RegExp): Promise<void> {
  const isIt = ({ textContent }: HTMLButtonElement) => (typeof name === "string" ? textContent === name : name.test(textContent ?? ""));
  const button = await shown<HTMLButtonElement>("button", isIt);
  // What signs somebody out takes no press in its first moment.
  while (button.getAttribute("aria-disabled") === "true") await act(() => new Promise((resolve) => setTimeout(resolve, 20)));
  await act(async () => button.click());
  await rest();
}

async function start(hash = ""): Promise<void> {
  location.hash = hash;
  await act(async () => render(<Root signIn={startSignIn()} />, host));
  await rest();
}

beforeEach(() => {
  tokens = new Map([
    ["pvp_ann", { participant: "ann", name: "Ann", roles: ["approver"] }],
    ["pvp_ben", { participant: "ben", name: "Ben", roles: ["approver"] }],
  ]);
  asked = [];
  held = [];
  polls = new Map();
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => serve(path, init));
  localStorage.clear();
  document.documentElement.lang = "en";
  host = document.body.appendChild(document.createElement("div"));
  go({ screen: "inbox" });
});

afterEach(async () => {
  await act(async () => render(null, host));
  host.remove();
  vi.unstubAllGlobals();
});

describe("a link that is opened again", () => {
  test("makes no further device, so that nobody runs out of them by opening it", async () => {
    await start("#token=pvp_ann");
    const first = stored()?.token;
    for (let times = 0; times < 3; times += 1) await open("#token=pvp_ann");
    expect(stored()?.token).toBe(first);
    expect(devices()).toHaveLength(1);
  });

  test("makes a new device if it allows something else, and ends the old one", async () => {
    await start("#token=pvp_ann");
    const first = stored()?.token as string;
    tokens.set("pvp_ann_admin", { participant: "ann", name: "Ann", roles: ["admin"] });
    await open("#token=pvp_ann_admin");
    expect(stored()?.token).not.toBe(first);
    expect(tokens.get(first)?.isRevoked).toBe(true);
    expect(devices()).toHaveLength(1);
  });

  test("makes a new device if the old one was revoked", async () => {
    await start("#token=pvp_ann");
    const first = stored()?.token as string;
    (tokens.get(first) as TokenFacts).isRevoked = true;
    await open("#token=pvp_ann");
    expect(stored()?.token).not.toBe(first);
    expect(document.querySelector("nav")).not.toBe(null);
  });
});

describe("another person on the same device", () => {
  test("ends the token of the one before at the server, and everything that was going on with it", async () => {
    await start("#token=pvp_ann");
    const anns = stored()?.token as string;
    await open("#token=pvp_ben");
    expect(stored()?.name).toBe("Ann");
    await press(/^Continue as Ben/);
    expect(stored()?.name).toBe("Ben");
    expect(tokens.get(anns)?.isRevoked).toBe(true);
    asked = [];
    // Ann's token has ended, and nothing of hers asks with it or signs Ben out.
    document.dispatchEvent(new Event("visibilitychange"));
    await rest();
    expect(asked.filter((request) => request.includes(anns))).toEqual([]);
    expect(stored()?.name).toBe("Ben");
  });

  test("is told apart by the id, whatever both call themselves, and takes no second half of a double click", async () => {
    tokens.set("pvp_other", { participant: "eve-2", name: "Ann", roles: ["approver"] });
    await start("#token=pvp_ann");
    await open("#token=pvp_other");
    await shown("button", ({ textContent }) => textContent?.startsWith("Continue as") === true);
    const buttons = [...document.querySelectorAll("button")];
    expect(buttons.map((button) => button.textContent)).toEqual(["Stay Ann (ann)", "Continue as Ann (eve-2)"]);
    expect(document.body.textContent).toContain("belongs to Ann (ann). The link is for Ann (eve-2).");
    await act(async () => buttons[1]?.click());
    await rest();
    expect(document.querySelector("nav")).toBe(null);
    await press("Continue as Ann (eve-2)");
    expect(document.querySelector("nav")).not.toBe(null);
  });

  test("is not signed out by what the server said about the one before", async () => {
    await start("#token=pvp_ann");
    const anns = stored()?.token as string;
    await open("#token=pvp_ben");
    await press(/^Continue as Ben/);
    await revoke(anns);
    expect(stored()?.name).toBe("Ben");
    expect(document.querySelector("nav")).not.toBe(null);
  });

  test("is not replaced by the one before when an old answer arrives late", async () => {
    await start("#token=pvp_ann");
    const anns = stored()?.token as string;
    await act(async () => render(null, host));
    let release = () => undefined as void;
    held.push({ match: `/api/me ${anns}`, release: new Promise<void>((resolve) => (release = () => resolve())) });
    await start();
    await open("#token=pvp_ben");
    await press(/^Continue as Ben/);
    expect(stored()?.name).toBe("Ben");
    release();
    await rest();
    expect(stored()?.name).toBe("Ben");
  });

  test("a join code asks too before it signs somebody out", async () => {
    await start("#token=pvp_ann");
    await open("#join=7QK2M-R8T4X-0B6FJ-ZN3WG");
    const field = await shown<HTMLInputElement>("input");
    await act(async () => {
      field.value = "Mallory";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await press("Join");
    expect(stored()?.name).toBe("Ann");
    expect(asked.some((request) => request.includes("/api/join"))).toBe(false);
    await press(/^Stay Ann/);
    expect(stored()?.name).toBe("Ann");
    expect(document.querySelector("nav")).not.toBe(null);
  });

  test("a name cannot pretend to be another one while somebody is asked", async () => {
    await start("#token=pvp_ann");
    tokens.set("pvp_fake", { participant: "eve", name: "nnA\u202e\u200b", roles: ["approver"] });
    await open("#token=pvp_fake");
    await shown("button", ({ textContent }) => textContent?.startsWith("Continue as") === true);
    expect(document.body.textContent).toContain("\\u{202e}");
    expect(document.body.textContent).not.toContain("\u202e");
  });
});

describe("a join code", () => {
  test("makes a device that can be seen and ended like any other", async () => {
    await start("#join=7QK2M-R8T4X-0B6FJ-ZN3WG");
    const field = await shown<HTMLInputElement>("input");
    await act(async () => {
      field.value = "Cat";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await press("Join");
    expect(tokens.get(stored()?.token ?? "")).toMatchObject({ name: "Cat", device: expect.any(String) });
  });

  test("is not lost if the device cannot be made", async () => {
    const whole = fetch;
    vi.stubGlobal("fetch", (path: string, init: RequestInit) =>
      path === "/api/devices" && init.method === "POST" ? Promise.resolve(reply({ message: "busy" }, 503)) : whole(path, init),
    );
    await start("#join=7QK2M-R8T4X-0B6FJ-ZN3WG");
    const field = await shown<HTMLInputElement>("input");
    await act(async () => {
      field.value = "Cat";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await press("Join");
    expect(stored()?.token).toBe("pvp_code_Cat");
  });
});

describe("two tabs", () => {
  function otherTab(device: object | null): void {
    if (device === null) localStorage.removeItem("pvp.device");
    else localStorage.setItem("pvp.device", JSON.stringify(device));
    dispatchEvent(new StorageEvent("storage", { key: "pvp.device" }));
  }

  test("who signs out in one is signed out in the other", async () => {
    await start("#token=pvp_ann");
    expect(document.querySelector("nav")).not.toBe(null);
    await act(async () => otherTab(null));
    await rest();
    expect(document.querySelector("nav")).toBe(null);
    asked = [];
    document.dispatchEvent(new Event("visibilitychange"));
    await rest();
    expect(asked).toEqual([]);
  });

  test("who becomes somebody else in one is not somebody else in the other", async () => {
    await start("#token=pvp_ann");
    const anns = stored()?.token as string;
    tokens.set("pvp_ben_device", { participant: "ben", name: "Ben", roles: ["approver"], device: "b" });
    asked = [];
    await act(async () => otherTab({ token: "pvp_ben_device", participant: "ben", name: "Ben", roles: ["approver"], session: null, expires: null }));
    await rest();
    expect(asked.filter((request) => request.includes(anns))).toEqual([]);
    expect(asked.some((request) => request.endsWith("pvp_ben_device"))).toBe(true);
  });

  test("who is signed in in one is signed in in the other", async () => {
    await start("#token=pvp_ann");
    const device = stored();
    await act(async () => otherTab(null));
    await rest();
    await act(async () => otherTab(device));
    await rest();
    expect(document.querySelector("nav")).not.toBe(null);
  });

  test("nothing of one person stays on the screens of another", async () => {
    await start("#token=pvp_ann");
    await act(async () => go({ screen: "settings" }));
    await vi.waitFor(() => expect(document.body.textContent).toContain("Signed in as Ann"));
    await rest();
    tokens.set("pvp_ben_device", { participant: "ben", name: "Ben", roles: ["approver"], device: "b" });
    asked = [];
    await act(async () => otherTab({ token: "pvp_ben_device", participant: "ben", name: "Ben", roles: ["approver"], session: null, expires: null }));
    await rest();
    expect(document.body.textContent).toContain("Signed in as Ben");
    // The list of devices is asked for again, and not left as it was.
    expect(asked).toContain("GET /api/devices pvp_ben_device");
  });

  test("a token that ended takes nothing from the person whom another tab has signed in", async () => {
    await start("#token=pvp_ann");
    const anns = stored()?.token as string;
    // The server refuses Ann's token before the other tab's change is noticed here.
    localStorage.setItem("pvp.device", JSON.stringify({ token: "pvp_ben_device", participant: "ben", name: "Ben", roles: ["approver"], session: null, expires: null }));
    tokens.set("pvp_ben_device", { participant: "ben", name: "Ben", roles: ["approver"], device: "b" });
    localStorage.setItem("pvp.composer.ben.shop", "{}");
    await revoke(anns);
    expect(stored()?.name).toBe("Ben");
    expect(localStorage.getItem("pvp.composer.ben.shop")).toBe("{}");
  });
});

describe("a device that was signed out from afar", () => {
  test("shows no more notifications of the person", async () => {
    const unsubscribe = vi.fn(async () => true);
    const registration = { pushManager: { getSubscription: async () => ({ endpoint: "https://push.example/1", unsubscribe }) } };
    vi.stubGlobal("PushManager", class {});
    Object.defineProperty(navigator, "serviceWorker", { configurable: true, value: { getRegistration: async () => registration, ready: Promise.resolve(registration) } });
    tokens.set("pvp_dev", { participant: "ann", name: "Ann", roles: ["approver"], device: "d" });
    localStorage.setItem("pvp.device", JSON.stringify({ token: "pvp_dev", participant: "ann", name: "Ann", roles: ["approver"], session: null, expires: null }));
    localStorage.setItem("pvp.push", JSON.stringify({ id: "p1", endpoint: "https://push.example/1", participant: "ann" }));
    (tokens.get("pvp_dev") as TokenFacts).isRevoked = true;
    await start();
    await shown("[role=alert]", ({ textContent }) => textContent?.startsWith("This device was signed out") === true);
    expect(unsubscribe).toHaveBeenCalled();
    expect(localStorage.getItem("pvp.push")).toBe(null);
    Reflect.deleteProperty(navigator, "serviceWorker");
  });
});
