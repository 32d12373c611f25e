// Who is signed in after links, codes, other tabs and tokens that end. Without a page.

import { beforeEach, describe, expect, it } from "vitest";
import type { WhoAmI } from "@protocol";
import { en } from "../../src/i18n/en";
import type { Device, Meeting } from "../../src/net/device";
import { EMPTY_LINK } from "../../src/net/link";
import { SignIn } from "../../src/state/sign_in";
import type { Running } from "../../src/state/sign_in";

const device = (token: string, participant = "ann"): Device => ({ token, participant, name: participant, roles: ["approver"], session: null, expires: null });

/** What runs for somebody, which notes that it was stopped. */
class FakeApp implements Running {
  isStopped = false;
  constructor(
    readonly device: Device,
    readonly onLoggedOut: (app: FakeApp) => void,
    readonly onOtherServer: () => void,
  ) {}
  stop = () => {
    this.isStopped = true;
  };
}

let stored: Device | null;
/** The tokens that the server knows. */
let known: Map<string, string>;
let apps: FakeApp[];
let pushesDropped: number;
let meeting: Meeting;
/** The devices that were ended at the server. */
let ended: string[];
let signIn: SignIn<FakeApp>;

function adopt(participant: string): Device {
  stored = device(`${participant}-${apps.length + 1}`, participant);
  known.set(stored.token, participant);
  return stored;
}

beforeEach(() => {
  [stored, known, apps, pushesDropped, ended, meeting] = [null, new Map(), [], 0, [], "known"];
  signIn = new SignIn<FakeApp>({
    meetServer: async () => meeting,
    storedDevice: () => stored,
    forgetDevice: ({ token }) => {
      if (stored?.token === token) stored = null;
    },
    refreshDevice: async (kept) => (known.has(kept.token) ? kept : null),
    isAsGoodAs: (kept, link) => kept.participant === link.participant,
    whoIs: async (token) => {
      const participant = known.get(token);
      if (participant === undefined) throw new Error("the link has ended");
      return { participant, name: participant } as WhoAmI;
    },
    adoptToken: async (token) => adopt(known.get(token) ?? ""),
    redeemCode: async (code, name) => {
      if (code !== "GOOD") throw new Error("no such code");
      return adopt(name);
    },
    redeemDeviceCode: async (code) => {
      const participant = known.get(code);
      if (participant === undefined) throw new Error("each works once");
      known.delete(code);
      return device(`${participant}-once`, participant);
    },
    replaceDevice: async (fresh) => {
      known.set(fresh.token, fresh.participant);
      return (stored = fresh);
    },
    endDevice: async ({ token }) => void ended.push(token),
    dropPush: async () => void (pushesDropped += 1),
    run: (of, onLoggedOut, onOtherServer) => {
      const app = new FakeApp(of, onLoggedOut, onOtherServer);
      apps.push(app);
      return app;
    },
    openTarget: () => undefined,
  });
});

/** What is on the screen, and for whom something runs. */
function state(): string {
  const step = signIn.step.value;
  const running = apps.filter((app) => !app.isStopped).map((app) => app.device.participant);
  const shown = step.kind === "signed_in" ? step.app.device.participant : "";
  return [step.kind, shown, running.join("+")].join(" ").trim();
}

function keep(token: string, participant = "ann"): void {
  stored = device(token, participant);
  known.set(token, participant);
}

const link = (token: string) => ({ ...EMPTY_LINK, token });

describe("a page that opens", () => {
  it("asks for an invitation if nobody is signed in", async () => {
    await signIn.openLink(null);
    expect(state()).toBe("welcome");
  });

  it("goes on for whoever is signed in, until the server no longer knows them", async () => {
    keep("t1");
    await signIn.openLink(null);
    expect(state()).toBe("signed_in ann ann");
    known.clear();
    await signIn.openLink(null);
    expect(signIn.step.value).toEqual({ kind: "welcome", problem: en.net.signedOut });
    expect([state(), stored, pushesDropped]).toEqual(["welcome", null, 1]);
  });

  it("signs nobody out for a vote link", async () => {
    keep("t1");
    await signIn.openLink({ ...EMPTY_LINK, vote: "secret" });
    expect([state(), stored?.token]).toEqual(["vote", "t1"]);
  });
});

describe("a link", () => {
  it("makes a device, and is not used up by whoever has one that is as good", async () => {
    known.set("link", "ann");
    await signIn.openLink(link("link"));
    expect([state(), stored?.token]).toEqual(["signed_in ann ann", "ann-1"]);
    await signIn.openLink(link("link"));
    expect([state(), stored?.token]).toEqual(["signed_in ann ann", "ann-1"]);
  });

  it("of another person asks first, and both answers are respected", async () => {
    keep("t1");
    known.set("link", "bob");
    await signIn.openLink(null);
    await signIn.openLink(link("link"));
    expect([state(), stored?.token]).toEqual(["confirm_switch", "t1"]);
    await signIn.confirmSwitch(false);
    expect([state(), stored?.token]).toEqual(["signed_in ann ann", "t1"]);
    await signIn.openLink(link("link"));
    await signIn.confirmSwitch(true);
    expect([state(), stored?.participant]).toEqual(["signed_in bob bob", "bob"]);
    // The question was answered.
    await signIn.confirmSwitch(true);
    expect(state()).toBe("signed_in bob bob");
  });

  it("that has ended says so", async () => {
    await signIn.openLink(link("dead"));
    expect(signIn.step.value).toEqual({ kind: "welcome", problem: "the link has ended" });
  });
});

describe("another server at the address", () => {
  it("ends what runs, and signs nobody out of the one before", async () => {
    keep("t1");
    await signIn.openLink(null);
    const before = stored;
    [meeting, stored] = ["other", null];
    apps[0]?.onOtherServer();
    await Promise.resolve();
    await Promise.resolve();
    expect(signIn.step.value).toEqual({ kind: "welcome", problem: en.net.serverChanged });
    expect([state(), pushesDropped]).toEqual(["welcome", 0]);
    [meeting, stored] = ["known", before];
    await signIn.openLink(null);
    expect(state()).toBe("signed_in ann ann");
  });
});

describe("a link that works once", () => {
  const once = (code: string) => ({ ...EMPTY_LINK, device: code });

  it("signs in whoever made it, and nobody a second time", async () => {
    known.set("code", "ann");
    await signIn.openLink(once("code"));
    expect([state(), stored?.token]).toEqual(["signed_in ann ann", "ann-once"]);
    // Out of the history, where it still stands.
    await signIn.openLink(once("code"));
    expect([state(), stored?.token]).toEqual(["signed_in ann ann", "ann-once"]);
    stored = null;
    await signIn.openLink(once("code"));
    expect(signIn.step.value).toEqual({ kind: "welcome", problem: "each works once" });
  });

  it("of another person asks first, and leaves no device behind if they stay", async () => {
    keep("t1");
    known.set("code", "bob");
    await signIn.openLink(once("code"));
    expect([state(), stored?.token]).toEqual(["confirm_switch", "t1"]);
    await signIn.confirmSwitch(false);
    expect([state(), stored?.token, ended]).toEqual(["signed_in ann ann", "t1", ["bob-once"]]);
    known.set("code", "bob");
    await signIn.openLink(once("code"));
    await signIn.confirmSwitch(true);
    expect([state(), stored?.token, ended]).toEqual(["signed_in bob bob", "bob-once", ["bob-once"]]);
  });
});

it("a code asks for a name, and again if it does not work", async () => {
  const contents = { ...EMPTY_LINK, code: "BAD" };
  await signIn.openLink(contents);
  expect(state()).toBe("ask_name");
  await signIn.openCode("BAD", "eve", contents);
  expect(signIn.step.value).toMatchObject({ kind: "ask_name", problem: "no such code" });
  await signIn.openCode("GOOD", "eve", contents);
  expect(state()).toBe("signed_in eve eve");
  await signIn.openCode("GOOD", "bob", contents);
  expect([state(), stored?.participant]).toEqual(["confirm_switch", "eve"]);
});

describe("another tab", () => {
  it("signs in here, too, and out again", async () => {
    await signIn.openLink(null);
    keep("t1");
    signIn.onOtherTab();
    expect(state()).toBe("signed_in ann ann");
    signIn.onOtherTab();
    expect(apps).toHaveLength(1);
    stored = null;
    signIn.onOtherTab();
    expect(state()).toBe("welcome");
  });

  it("takes away no question that somebody is answering", async () => {
    await signIn.openLink({ ...EMPTY_LINK, code: "GOOD" });
    keep("t1");
    signIn.onOtherTab();
    expect(state()).toBe("ask_name");
  });

  it("that has signed somebody else in is not signed out by the end of the token before", async () => {
    keep("t1");
    await signIn.openLink(null);
    keep("t2", "bob");
    const [app] = apps as [FakeApp];
    app.onLoggedOut(app);
    expect([state(), stored?.token, pushesDropped]).toEqual(["signed_in bob bob", "t2", 0]);
    // The token before is heard of once more, and is not the one on the screen.
    app.onLoggedOut(app);
    expect(apps).toHaveLength(2);
  });
});

it("what runs ends with the page", async () => {
  keep("t1");
  await signIn.openLink(null);
  signIn.stop();
  expect(apps.map((app) => app.isStopped)).toEqual([true]);
});
