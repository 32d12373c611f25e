// Changes what somebody may do. The server refuses it if their roles have changed meanwhile.

import { useState } from "preact/hooks";
import type { Role, RoleChange } from "@protocol";
import { escapeInvisible } from "../fold";
import type { ParticipantView } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { announce } from "../state/announcements";
import { roleNames } from "./parts";
import { useAction } from "./request";

const ROLES: readonly Role[] = ["driver", "navigator", "adversary", "approver", "observer", "admin"];

interface RoleFormProps {
  connection: SessionConnection;
  person: ParticipantView;
  isMe: boolean;
  onDone(): void;
}

export function RoleForm({ connection, person, isMe, onDone }: RoleFormProps) {
  // What the person saw when they opened the form is what they change.
  const [before] = useState(person.roles);
  const [roles, setRoles] = useState<ReadonlySet<Role>>(new Set(person.roles));
  const [reason, setReason] = useState("");
  const action = useAction();
  const toggle = (role: Role) => setRoles((old) => new Set(ROLES.filter((known) => (known === role ? !old.has(known) : old.has(known)))));
  const save = () =>
    action.run(async () => {
      const chosen = ROLES.filter((role) => roles.has(role));
      const change: RoleChange = { participant: person.id, old_roles: before, new_roles: chosen, changed_by: connection.view.me?.participant ?? "" };
      if (reason.trim() !== "") change.reason = reason.trim();
      await connection.send("participant.role_change", change);
      announce(t().people.changed(escapeInvisible(person.name), roleNames(chosen)));
      onDone();
    });
  const isSame = roles.size === before.length && before.every((role) => roles.has(role));
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <fieldset>
        <legend>{t().people.change(escapeInvisible(person.name))}</legend>
        {ROLES.map((role) => (
          <label key={role} class="check">
            <input type="checkbox" checked={roles.has(role)} onChange={() => toggle(role)} />
            <span>
              {t().roles[role]} <span class="hint block">{t().people.rolesMean[role]}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {isMe && <p class="banner">{t().people.changeYourself}</p>}
      {person.kind === "agent" && <p class="quiet small">{t().people.agentNote}</p>}
      <label>
        {t().people.reason}
        <input value={reason} maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <div class="row">
        <button class="primary" disabled={action.busy || isSame || roles.size === 0}>
          {t().people.save}
        </button>
        <button type="button" onClick={onDone}>
          {t().app.cancel}
        </button>
      </div>
    </form>
  );
}
