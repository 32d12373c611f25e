// @vitest-environment happy-dom
import { expect, it } from "vitest";
import { PeoplePanel } from "../../src/screens/PeoplePanel";
import { announcements } from "../../src/state/announcements";
import { fakeApp, fakeConnection, human, meAs, people, show } from "./support/session";

const everyone = people(
  human("ann", "Ann", ["admin"]),
  human("bob", "Bob", ["approver"], { presence: "away", timed_out: true, invited_by: "ann" }),
  human("eve", "Eve", ["observer"], { left: true }),
  human("kit", "Kit", ["driver"], {
    kind: "agent",
    executor: { profiles: ["read", "workspace"], shell_exec: true, working_directory: "/work/\u202Etree", shell: "/bin/bash" },
  }),
);

it("shows who is here, what they may do, and what runs commands", async () => {
  const connection = fakeConnection({ people: everyone, me: meAs(["approver"]) });
  const person = await show(fakeApp(), <PeoplePanel connection={connection} />);
  expect(person.all("heading").map((heading) => heading.textContent)).toEqual(["People and agents", "People (2)", "Agents (1)"]);
  const bob = person.all("listitem").find((item) => item.textContent?.startsWith("Bob"));
  expect(bob?.textContent).toContain("away");
  expect(bob?.textContent).toContain("approver");
  expect(bob?.textContent).toContain("invited by Ann");
  expect(bob?.textContent).toContain("does not count for decisions");
  expect(person.text).toContain("Left the session (1)");
  expect(person.text).toContain("read, workspace");
  expect(person.text).not.toContain("\u202E");
  expect(person.has("button")).toBe(false);
  expect(person.text).toContain("Only admins change roles.");
  expect(person.complaints()).toEqual([]);
  person.leave();
});

it("lets an admin change roles, from those that were shown", async () => {
  const connection = fakeConnection({ people: everyone, me: meAs(["admin"], ["manage_participants"]) });
  const person = await show(fakeApp(), <PeoplePanel connection={connection} />);
  await person.press("Change roles of Bob");
  expect(person.find("button", "Save the roles")).toHaveProperty("disabled", true);
  await person.tick("checkbox", /^driver/);
  await person.type("textbox", "Reason (optional)", " night shift ");
  await person.press("Save the roles");
  expect(connection.sent).toEqual([
    {
      type: "participant.role_change",
      payload: { participant: "bob", old_roles: ["approver"], new_roles: ["driver", "approver"], changed_by: "ann", reason: "night shift" },
    },
  ]);
  expect(announcements.value.at(-1)?.text).toBe("Bob: driver, approver");
  expect(person.has("button", "Save the roles")).toBe(false);
  person.leave();
});

it("sends no roles that nobody chose, and warns of losing one's own", async () => {
  const connection = fakeConnection({ people: everyone, me: meAs(["admin"], ["manage_participants"]) });
  const person = await show(fakeApp(), <PeoplePanel connection={connection} />);
  await person.press("Change roles of Ann");
  expect(person.text).toContain("These are your own roles.");
  await person.tick("checkbox", /^admin/);
  expect(person.find("button", "Save the roles")).toHaveProperty("disabled", true);
  await person.press("Cancel");
  expect(connection.sent).toEqual([]);
  person.leave();
});

it("keeps the form and says why if the server refuses", async () => {
  const refusal = "`old_roles` is not what `bob` holds: observer";
  const connection = fakeConnection({ people: everyone, me: meAs(["admin"], ["manage_participants"]) }, refusal);
  const person = await show(fakeApp(), <PeoplePanel connection={connection} />);
  await person.press("Change roles of Bob");
  await person.tick("checkbox", /^observer/);
  await person.press("Save the roles");
  expect(announcements.value.at(-1)).toMatchObject({ tone: "error", text: `That did not work: ${refusal}` });
  expect(person.has("button", "Save the roles")).toBe(true);
  person.leave();
});

it("shows at once who goes and what somebody may do", async () => {
  const connection = fakeConnection({ people: people(human("bob", "Bob", ["approver"])), me: meAs(["approver"]) });
  const person = await show(fakeApp(), <PeoplePanel connection={connection} />);
  expect(person.text).toContain("here");
  // The view is changed in place.
  Object.assign(connection.view.people.bob ?? {}, { presence: "away", roles: ["observer"] });
  connection.tick.value += 1;
  await person.sees("away");
  expect(person.text).toContain("observer");
  person.leave();
});
