// The head of a session: its name, whether it is connected, who is there, what waits.

import { escapeInvisible } from "../fold";
import type { ParticipantView } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { routeHash } from "../state/route";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";

/** How many people are shown by their initials; the others are a number. */
const MAX_SHOWN = 5;

export function SessionHeader({ connection }: { connection: SessionConnection }) {
  const app = useApp();
  const tick = connection.tick.value;
  const { session, view } = connection;
  const name = escapeInvisible(view.name ?? app.sessionName(session));
  return (
    <header class="session-head">
      <a class="back" href={routeHash({ screen: "sessions" })} aria-label={t().app.back}>
        <Icon name="back" />
      </a>
      <div class="session-title">
        <h1>{name}</h1>
        <p class="small quiet">
          <Connection connection={connection} />
          {view.gates.length > 0 && <span>· {t().session.openGates(view.gates.length)}</span>}
        </p>
      </div>
      <People connection={connection} tick={tick} />
    </header>
  );
}

function Connection({ connection }: { connection: SessionConnection }) {
  const state = connection.state.value;
  return (
    <span class="connection" role="status">
      <span class={`dot ${state}`} aria-hidden="true" /> {t().session.connection[state]}
    </span>
  );
}

function People({ connection }: { connection: SessionConnection; tick: number }) {
  const { session, view } = connection;
  const present = view.present();
  const shown = present.length > MAX_SHOWN ? present.slice(0, MAX_SHOWN - 1) : present;
  const rest = present.length - shown.length;
  const label = present.map((person) => `${escapeInvisible(person.name)}: ${t().presence[person.presence] ?? person.presence}`).join(", ");
  if (present.length === 0) return null;
  return (
    <a class="faces" href={routeHash({ screen: "session", session, tab: "people" })} title={label}>
      <span class="visually-hidden">{`${t().session.tabs.people}: ${label}`}</span>
      {shown.map((person) => (
        <span key={person.id} class={`face ${person.kind} ${person.presence}`} aria-hidden="true">
          {initials(person)}
        </span>
      ))}
      {rest > 0 && (
        <span class="face more" aria-hidden="true">
          +{rest}
        </span>
      )}
    </a>
  );
}

function initials(person: ParticipantView): string {
  const words = person.name.trim().split(/[\s._-]+/).filter((word) => word !== "");
  const letters = words.slice(0, 2).map((word) => [...word][0] ?? "");
  return escapeInvisible(letters.join("").toUpperCase()) || "?";
}
