// @vitest-environment happy-dom
import { expect, it } from "vitest";
import type { AllowRuleView } from "../../src/fold";
import { RulesPanel } from "../../src/screens/RulesPanel";
import { settingText } from "../../src/screens/SessionConfigTable";
import { CONFIG, fakeApp, fakeConnection, human, meAs, people, show } from "./support/session";

const rule = (id: string, change: Partial<AllowRuleView> = {}): AllowRuleView => ({
  rule: id,
  by: "bob",
  at: "2026-11-18T10:00:00Z",
  prefix: ["cargo", "test"],
  expires_at: new Date(Date.now() + 3_600_000).toISOString(),
  reason: null,
  ...change,
});

const everyone = people(human("ann", "Ann", []), human("bob", "Bob", []));

it("shows rules, the newest first, and those that have expired as such", async () => {
  const rules = [
    rule("old", { prefix: ["ls"], expires_at: "2026-01-01T00:00:00Z", directory: "*" }),
    rule("read", { prefix: [], read_root: "/usr/share", reason: "docs" }),
    rule("new"),
  ];
  const connection = fakeConnection({ people: everyone, rules, me: meAs(["approver"], ["approve"]) });
  const person = await show(fakeApp(), <RulesPanel connection={connection} />);
  const shown = person.all("listitem").map((item) => item.textContent ?? "");
  expect(shown[0]).toMatch(/cargo test.*executor's own directory.*expires in (1 h 0 min|59:5\d|60:00)/);
  expect(shown[1]).toMatch(/Reading below\/usr\/share.*“docs”/);
  expect(shown[2]).toMatch(/ls.*any directory.*expired/);
  expect(person.all("button").map((button) => button.getAttribute("aria-label"))).toEqual(["Revoke the rule cargo test", "Revoke the rule /usr/share"]);
  expect(person.complaints()).toEqual([]);
  person.leave();
});

it("revokes a rule after asking once more", async () => {
  const connection = fakeConnection({ people: everyone, rules: [rule("r-1")], me: meAs(["approver"], ["approve"]) });
  const person = await show(fakeApp(), <RulesPanel connection={connection} />);
  await person.press("Revoke the rule cargo test");
  expect(connection.sent).toEqual([]);
  expect(document.activeElement?.textContent).toBe("Really revoke?");
  await person.press("Cancel");
  expect(connection.sent).toEqual([]);
  await person.press("Revoke the rule cargo test");
  await person.press("Really revoke?");
  expect(connection.sent).toEqual([{ type: "policy.revoke", payload: { rule: "r-1" } }]);
  person.leave();
});

it("offers nothing to those who may not approve", async () => {
  const connection = fakeConnection({ people: everyone, rules: [rule("r-1")], me: meAs(["observer"]) });
  const person = await show(fakeApp(), <RulesPanel connection={connection} />);
  expect(person.has("button")).toBe(false);
  expect(person.text).toContain("Only people who may approve can revoke a rule.");
  person.leave();
});

it("shows settings as they change", async () => {
  const connection = fakeConnection({ config: { ...CONFIG } });
  const person = await show(fakeApp(), <RulesPanel connection={connection} />);
  connection.view.config.default_gate_quorum = { type: "any", count: 3 };
  connection.tick.value += 1;
  await person.sees("3 approvals");
  person.leave();
});

it("says the settings in words", () => {
  const name = (id: string) => id.toUpperCase();
  expect(settingText("default_gate_quorum", { type: "role", role: "approver", count: 2 }, name)).toBe("2 approvals by: approver");
  expect(settingText("default_gate_quorum", { type: "specific", participants: ["ann", "bob"] }, name)).toBe("the approval of ANN and BOB");
  expect(settingText("quorum_by_category", { destructive: { type: "all" }, deploy: { type: "any", count: 1 } }, name)).toBe("destructive: everyone who may approve; deploy: 1 approval");
  expect(settingText("quorum_by_category", {}, name)).toBe("none");
  expect(settingText("gate_timeout_seconds", 0, name)).toBe("no limit");
  expect(settingText("gate_timeout_seconds", 300, name)).toBe("5 min");
  expect(settingText("max_participants", 10, name)).toBe("10");
  expect(settingText("solo", true, name)).toBe("on");
  expect(settingText("read_roots", ["/a", "/b\u202E"], name)).not.toContain("\u202E");
});

it("has a name for every setting", async () => {
  const person = await show(fakeApp(), <RulesPanel connection={fakeConnection({ config: CONFIG })} />);
  const rows = [...person.root.querySelectorAll("tbody th")].map((cell) => cell.textContent);
  expect(rows).toHaveLength(Object.keys(CONFIG).length);
  expect(rows.filter((row) => row?.includes("_"))).toEqual([]);
  person.leave();
});
