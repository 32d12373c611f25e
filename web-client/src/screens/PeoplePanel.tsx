// Who is in a session, whether they are there, and what they may do.

import { useState } from "preact/hooks";
import type { ExecutorInfo } from "@protocol";
import { escapeInvisible } from "../fold";
import type { ParticipantView } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { Capped } from "../ui/Capped";
import { dateAndTime } from "../ui/format";
import { Fact, ago } from "./parts";
import { isAdmin, nameOf } from "./people";
import { RoleForm } from "./RoleForm";
import { useSlowTick } from "./slow_tick";

/** Those who can be reached come first. */
const PRESENCE_ORDER = ["active", "idle", "away", "disconnected"];

/** More would be slow to draw whenever somebody comes or goes. */
const DRAWN = 100;

export function PeoplePanel({ connection }: { connection: SessionConnection }) {
  const tick = useSlowTick(connection);
  const everyone = Object.values(connection.view.people).sort(byPresence);
  const here = everyone.filter((person) => !person.left);
  const left = everyone.filter((person) => person.left);
  return (
    <div class="screen">
      <h2>{t().people.heading}</h2>
      {here.length === 0 && <p class="center">{t().people.nobody}</p>}
      <Group heading={t().people.humans} connection={connection} tick={tick} people={here.filter((person) => person.kind === "human")} />
      <Group heading={t().people.agents} connection={connection} tick={tick} people={here.filter((person) => person.kind === "agent")} />
      {!isAdmin(connection) && <p class="quiet small">{t().people.onlyAdmins}</p>}
      {left.length > 0 && (
        <details class="fold">
          <summary>
            {t().people.left} ({left.length})
          </summary>
          <Capped items={left} size={DRAWN}>
            {(drawn) => (
              <ul class="rows">
                {drawn.map((person) => (
                  <Person key={person.id} connection={connection} person={person} tick={tick} />
                ))}
              </ul>
            )}
          </Capped>
        </details>
      )}
    </div>
  );
}

function Group({ heading, connection, people, tick }: { heading: string; connection: SessionConnection; people: ParticipantView[]; tick: number }) {
  if (people.length === 0) return null;
  return (
    <section class="stack">
      <h3>
        {heading} <span class="quiet">({people.length})</span>
      </h3>
      <Capped items={people} size={DRAWN}>
        {(drawn) => (
          <ul class="rows">
            {drawn.map((person) => (
              <Person key={person.id} connection={connection} person={person} tick={tick} />
            ))}
          </ul>
        )}
      </Capped>
    </section>
  );
}

function Person({ connection, person }: { connection: SessionConnection; person: ParticipantView; tick: number }) {
  const [isChanging, setChanging] = useState(false);
  const isMe = connection.view.me?.participant === person.id;
  const name = escapeInvisible(person.name);
  return (
    <li class="panel">
      <div class="row">
        <span class={`presence ${person.left ? "disconnected" : person.presence}`} aria-hidden="true" />
        <strong class="grow">
          {name} {isMe && <span class="quiet">({t().people.you})</span>}
        </strong>
        <span class="quiet small">{person.left ? t().presence.disconnected : t().presence[person.presence]}</span>
      </div>
      <ul class="row" aria-label={t().people.roles}>
        {person.roles.map((role) => (
          <li key={role} class="tag">
            {t().roles[role] ?? role}
          </li>
        ))}
        {person.roles.length === 0 && <li class="quiet small">{t().people.noRoles}</li>}
      </ul>
      {person.timed_out && <p class="small">{t().people.timedOut}</p>}
      <p class="row quiet small">
        <span class="mono">{person.id}</span>
        {person.invited_by != null && <span>{t().people.invitedBy(nameOf(connection, person.invited_by))}</span>}
        {person.last_active !== null && <span title={dateAndTime(person.last_active)}>{t().people.lastActive(ago(person.last_active))}</span>}
      </p>
      {person.executor !== null && <Executor info={person.executor} />}
      {isAdmin(connection) && !person.left && !isChanging && (
        <button class="fit" aria-label={t().people.change(name)} onClick={() => setChanging(true)}>
          {t().people.changeShort}
        </button>
      )}
      {isChanging && <RoleForm connection={connection} person={person} isMe={isMe} onDone={() => setChanging(false)} />}
    </li>
  );
}

function Executor({ info }: { info: ExecutorInfo }) {
  const yesOrNo = (value: boolean) => (value ? t().people.yes : t().people.no);
  return (
    <details class="fold">
      <summary>{t().people.executor}</summary>
      <dl class="record-facts">
        <Fact name={t().people.sandbox}>{info.profiles.length === 0 ? t().people.noSandbox : info.profiles.join(", ")}</Fact>
        <Fact name={t().people.workingDirectory}>{info.working_directory != null && <code>{escapeInvisible(info.working_directory)}</code>}</Fact>
        <Fact name={t().people.shell}>{info.shell != null && <code>{escapeInvisible(info.shell)}</code>}</Fact>
        <Fact name={t().people.runner}>{info.runner != null && info.runner.length > 0 && <code>{escapeInvisible(info.runner.join(" "))}</code>}</Fact>
        <Fact name={t().people.ownCommands}>{yesOrNo(info.shell_exec)}</Fact>
        <Fact name={t().people.trials}>{yesOrNo(info.trials ?? false)}</Fact>
      </dl>
    </details>
  );
}

function byPresence(one: ParticipantView, other: ParticipantView): number {
  const place = (person: ParticipantView) => PRESENCE_ORDER.indexOf(person.presence);
  return place(one) - place(other) || one.name.localeCompare(other.name) || one.id.localeCompare(other.id);
}
