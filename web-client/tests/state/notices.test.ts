// @vitest-environment happy-dom
// What a person is told about open gates, and when.

import { describe, expect, it } from "vitest";
import type { NotificationEvent } from "@protocol";
import { EVERYTHING, planNotices, seenNotices } from "../../src/state/notices";
import type { Wishes } from "../../src/state/notices";
import { openGate, START } from "./gates";
import type { GateFacts } from "./gates";

const at = (seconds: number) => START + seconds * 1000;
const wishes = (...events: NotificationEvent[]): Wishes => ({ ...EVERYTHING, events });
const NOTHING: ReadonlySet<string> = new Set();

/** What is told of one gate, and at which second to look again. */
function planned(facts: GateFacts, wanted: Wishes, second: number, told = NOTHING) {
  const { tell, lookAgain } = planNotices([openGate(facts)], wanted, told, at(second));
  return [tell.map(({ event }) => event).join(), lookAgain === null ? null : (lookAgain - START) / 1000];
}

describe("of one gate", () => {
  it.each<[GateFacts, Wishes, number, string, number | null]>([
    [{}, EVERYTHING, 0, "opened", 240],
    [{}, EVERYTHING, 239, "opened", 240],
    [{}, EVERYTHING, 240, "closing", null],
    [{}, EVERYTHING, 299, "closing", null],
    [{}, EVERYTHING, 300, "", null],
    [{ escalated: true }, EVERYTHING, 0, "escalated", 240],
    [{ escalated: true }, EVERYTHING, 240, "closing", null],
    [{}, wishes("opened"), 0, "opened", null],
    [{}, wishes("opened"), 299, "opened", null],
    [{ escalated: true }, wishes("opened"), 0, "", null],
    [{}, wishes("escalated"), 0, "", null],
    [{ escalated: true }, wishes("escalated"), 250, "escalated", null],
    [{}, wishes("closing"), 0, "", 240],
    [{}, wishes("closing"), 240, "closing", null],
    [{}, wishes(), 240, "", null],
    [{ deadline: null, timeout: 0 }, EVERYTHING, 9_000_000, "opened", null],
    [{ deadline: 20, timeout: 20 }, EVERYTHING, 0, "opened", 10],
    [{ deadline: 20, timeout: 20 }, EVERYTHING, 10, "closing", null],
  ])("%j with %j at second %i the latest thing that they want to know is told: %s", (facts, wanted, second, event, lookAgain) => {
    expect(planned(facts, wanted, second)).toEqual([event, lookAgain]);
  });

  it("each thing is told once, an edit is another command, and an escalation has a deadline of its own", () => {
    const steps: [GateFacts, number][] = [
      [{}, 0],
      [{}, 100],
      [{}, 240],
      [{}, 250],
      [{ digest: "d2" }, 250],
      [{ digest: "d2" }, 251],
      [{ digest: "d2", escalated: true, deadline: 600 }, 300],
      [{ digest: "d2", escalated: true, deadline: 600 }, 540],
      [{ digest: "d2", escalated: true, deadline: 600 }, 541],
    ];
    let told = NOTHING;
    const events = steps.map(([facts, second]) => {
      const plan = planNotices([openGate(facts)], EVERYTHING, told, at(second));
      told = plan.told;
      return plan.tell.map(({ event }) => event).join();
    });
    expect(events).toEqual(["opened", "", "closing", "", "closing", "", "escalated", "closing", ""]);
    // Nothing is kept of gates that are closed.
    expect(planNotices([], EVERYTHING, told, at(600)).told).toEqual(NOTHING);
  });

  it("what was seen is not told, but what comes of it is", () => {
    const seen = seenNotices([openGate()], at(0));
    expect(planned({}, EVERYTHING, 0, seen)).toEqual(["", 240]);
    expect(planned({}, EVERYTHING, 240, seen)).toEqual(["closing", null]);
    const closing = seenNotices([openGate()], at(240));
    for (const wanted of [EVERYTHING, wishes("opened"), wishes("closing")]) expect(planned({}, wanted, 241, closing)[0]).toBe("");
  });
});

it("only the chosen sessions are told of, and each gate is another", () => {
  const gates = [openGate({ session: "owl", gate: "a" }), openGate({ session: "fox", gate: "a" }), openGate({ session: "owl", gate: "b" })];
  const told = (sessions: string[] | null) => planNotices(gates, { ...EVERYTHING, sessions }, NOTHING, at(0)).tell.map(({ gate }) => `${gate.session}/${gate.gate}`);
  expect(told(null)).toEqual(["owl/a", "fox/a", "owl/b"]);
  expect(told(["owl"])).toEqual(["owl/a", "owl/b"]);
  expect(told([])).toEqual([]);
});

describe("in quiet hours", () => {
  const quiet = (from: string, to: string, time_zone = "UTC"): Wishes => ({ ...EVERYTHING, quietHours: { from, to, time_zone } });
  // The time begins at 10:00 UTC on a day in November, which is 11:00 in Berlin.
  it.each<[string, string, string, boolean]>([
    ["09:00", "11:00", "UTC", true],
    ["10:00", "10:01", "UTC", true],
    ["09:00", "10:00", "UTC", false],
    ["10:01", "11:00", "UTC", false],
    ["22:00", "10:30", "UTC", true],
    ["22:00", "07:00", "UTC", false],
    ["11:00", "11:30", "Europe/Berlin", true],
    ["10:00", "10:30", "Europe/Berlin", false],
    ["09:00", "11:00", "No/Where", false],
  ])("from %s to %s in %s nothing is told: %s", (from, to, zone, isQuiet) => {
    expect(planned({ deadline: 9000 }, quiet(from, to, zone), 0)[0]).toBe(isQuiet ? "" : "opened");
  });

  it("what still waits at their end is told then", () => {
    const wanted = quiet("09:00", "10:05");
    expect(planned({ deadline: 9000 }, wanted, 30)).toEqual(["", 300]);
    expect(planned({ deadline: 9000 }, wanted, 300)).toEqual(["opened", 8940]);
    expect(planned({ deadline: 200 }, wanted, 300)).toEqual(["", null]);
  });

  it("of many hours it is looked at now and then whether they have ended", () => {
    expect(planned({ deadline: 90_000 }, quiet("22:00", "21:00"), 0)).toEqual(["", 900]);
  });
});
