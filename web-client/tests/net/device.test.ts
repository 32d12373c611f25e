// @vitest-environment happy-dom
// Whose device this browser is at the server that answers, and what is sent to which server.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Api } from "../../src/net/api";
import * as devices from "../../src/net/device";
import type { Device } from "../../src/net/device";
import { doubtServer, ServerGuard } from "../../src/net/server_key";

interface Server {
  key: string;
  earlier_keys: string[];
}

const A: Server = { key: "aa", earlier_keys: [] };
const B: Server = { key: "bb", earlier_keys: [] };

/** Who answers at the address; nobody, or a program that is no server. */
let answering: Server | "nobody" | "other program";
/** The requests with a token, and which server got them. */
let sent: string[];
/** Every request. */
let asked: string[];
let made: number;

const device = (token: string, server: string | null): Device => ({ token, participant: `ann-${server}`, name: "Ann", roles: ["approver"], session: null, expires: null, server });

function answer(path: string, init: RequestInit): Response {
  asked.push(`${init.method} ${path}`);
  if (answering === "nobody") throw new TypeError("Failed to fetch");
  const token = new Headers(init.headers).get("authorization")?.replace("Bearer ", "");
  const server = answering === "other program" ? "other program" : answering.key;
  if (token !== undefined) sent.push(`${init.method} ${path} ${token} to ${server}`);
  if (answering === "other program") return Response.json({ hello: "world" });
  if (path === "/api/key") return Response.json(answering);
  if (path === "/api/devices" && init.method === "POST") {
    return Response.json({ token: `device-${(made += 1)}`, name: "Chrome", participant: `ann-${server}`, participant_name: "Ann", roles: ["approver"] });
  }
  if (path === "/api/devices") return Response.json({ devices: [{ id: "d1", this_device: true }] });
  if (init.method === "DELETE") return new Response(null, { status: 204 });
  return Response.json({ participant: `ann-${server}`, name: "Ann", roles: ["approver"] });
}

beforeEach(() => {
  [answering, sent, asked, made] = [A, [], [], 0];
  doubtServer();
  localStorage.clear();
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => answer(path, init));
});

afterEach(() => {
  const current = devices.storedDevice();
  if (current !== null) devices.forgetDevice(current);
  vi.unstubAllGlobals();
});

async function signInAt(server: Server, link: string): Promise<Device> {
  answering = server;
  await devices.meetServer();
  return devices.adoptToken(link);
}

test("signing in asks little, because a phone waits for each answer", async () => {
  const { token, server } = await signInAt(A, "link-a");
  expect(devices.storedDevice()).toEqual({ ...device(token, "aa"), name: "Ann" });
  await new Api(token, new ServerGuard(server ?? null)).get("/api/gates");
  expect(asked).toEqual(["GET /api/key", "POST /api/devices", "GET /api/key", "GET /api/gates"]);
});

describe("another server at the same address", () => {
  test("gets no token, and the device is there again when its server is", async () => {
    const atA = await signInAt(A, "link-a");
    expect(atA.server).toBe("aa");
    [answering, sent] = [B, []];
    expect([await devices.meetServer(), devices.storedDevice(), devices.deviceAside()?.token]).toEqual(["other", null, atA.token]);
    const atB = await signInAt(B, "link-b");
    expect([devices.storedDevice()?.token, devices.deviceAside()?.token]).toEqual([atB.token, atA.token]);
    expect(sent.filter((request) => request.includes(atA.token))).toEqual([]);
    answering = A;
    expect([await devices.meetServer(), devices.storedDevice()?.token, devices.deviceAside()?.token]).toEqual(["known", atA.token, atB.token]);
  });

  test("can sign the person out of itself alone", async () => {
    await signInAt(A, "link-a");
    for (const key of ["outbox.ann-aa.main/m1", "composer.ann-aa.main"]) localStorage.setItem(`pvp.${key}`, "{}");
    const atB = await signInAt(B, "link-b");
    localStorage.setItem("pvp.composer.ann-bb.main", "{}");
    devices.forgetDevice(atB);
    expect(Object.keys(localStorage).sort()).toEqual(["pvp.composer.ann-aa.main", "pvp.devices", "pvp.outbox.ann-aa.main/m1"]);
  });

  test("is remembered for eight servers", async () => {
    for (let index = 0; index < 12; index += 1) await signInAt({ key: `k${index}`, earlier_keys: [] }, "link");
    const aside = JSON.parse(localStorage.getItem("pvp.devices") ?? "") as Device[];
    expect(aside.map(({ server }) => server)).toEqual(["k10", "k9", "k8", "k7", "k6", "k5", "k4", "k3"]);
  });

  test.each(["nobody", "other program"] as const)("is not met if %s answers, and the device stays", async (who) => {
    const atA = await signInAt(A, "link-a");
    [answering, sent] = [who, []];
    expect([await devices.meetServer(), devices.storedDevice()?.token, sent]).toEqual(["unreachable", atA.token, []]);
  });
});

describe("a server with a new key", () => {
  test("is the same one if the old key leads to it", async () => {
    const { token } = await signInAt(A, "link-a");
    answering = { key: "cc", earlier_keys: ["zz", "aa"] };
    expect([await devices.meetServer(), devices.storedDevice()]).toMatchObject(["known", { token, server: "cc" }]);
  });

  test("is another one until the person says so", async () => {
    const { token } = await signInAt(A, "link-a");
    [answering, sent] = [B, []];
    await devices.meetServer();
    await devices.trustServer();
    expect([devices.storedDevice(), devices.deviceAside(), sent]).toMatchObject([{ token, server: "bb" }, null, []]);
    expect(await devices.meetServer()).toBe("known");
  });

  test("is taken at its word by a device whose server was never asked", async () => {
    localStorage.setItem("pvp.device", JSON.stringify({ ...device("t1", null), server: undefined }));
    expect([await devices.meetServer(), devices.storedDevice()]).toMatchObject(["known", { token: "t1", server: "aa" }]);
  });
});

describe("the guard of a token", () => {
  test("lets nothing go to another server, once the one before could not be reached", async () => {
    const onOther = vi.fn();
    const api = new Api("t", new ServerGuard("aa", onOther));
    await api.get("/api/me");
    await api.get("/api/me");
    expect(sent).toEqual(["GET /api/me t to aa", "GET /api/me t to aa"]);
    answering = "nobody";
    await expect(api.get("/api/me")).rejects.toMatchObject({ status: 0 });
    for (const other of ["other program", B, B] as const) {
      answering = other;
      await expect(api.get("/api/me")).rejects.toMatchObject({ status: 0, code: "OTHER_SERVER", isLoggedOut: false });
    }
    expect([sent.length, onOther.mock.calls.length]).toEqual([2, 1]);
    answering = { key: "cc", earlier_keys: ["aa"] };
    await api.get("/api/me");
    expect(sent.at(-1)).toBe("GET /api/me t to cc");
  });

  test("keeps the token of a device that is looked at again or ended", async () => {
    answering = B;
    await expect(devices.refreshDevice(device("t", "aa"))).rejects.toMatchObject({ code: "OTHER_SERVER" });
    await expect(devices.endDevice(device("t", "aa"))).rejects.toMatchObject({ code: "OTHER_SERVER" });
    expect(sent).toEqual([]);
  });
});

describe("a browser that keeps nothing", () => {
  function refuseToKeep(isRefused: (key: string) => boolean): void {
    const setItem = (key: string, value: string) => {
      if (isRefused(key)) throw new DOMException("full", "QuotaExceededError");
      kept.set(key, value);
    };
    const kept = new Map<string, string>();
    vi.stubGlobal("localStorage", { getItem: (key: string) => kept.get(key) ?? null, setItem, removeItem: (key: string) => kept.delete(key) });
  }

  test("uses up no device, and is signed in with the link for this visit", async () => {
    refuseToKeep(() => true);
    for (const _ of [1, 2]) {
      const visiting = await devices.adoptToken("link-a");
      expect(visiting).toMatchObject({ token: "link-a", isForVisit: true });
      expect(devices.storedDevice()).toEqual(visiting);
    }
    expect([await devices.meetServer(), devices.storedDevice()]).toMatchObject(["known", { token: "link-a", server: "aa", isForVisit: true }]);
    expect(await devices.refreshDevice(devices.storedDevice() as Device)).toMatchObject({ token: "link-a", isForVisit: true });
    expect(made).toBe(0);
    devices.forgetDevice({ token: "link-a", participant: "ann-aa" });
    expect(devices.storedDevice()).toBe(null);
  });

  test("ends the device that did not fit", async () => {
    refuseToKeep((key) => key === "pvp.device");
    expect(await devices.adoptToken("link-a")).toMatchObject({ token: "link-a", isForVisit: true });
    expect(sent.slice(-2)).toEqual(["GET /api/devices device-1 to aa", "DELETE /api/devices/d1 device-1 to aa"]);
  });
});
