// What a person is told of, about which sessions, when, and in how many words.

import { useState } from "preact/hooks";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import { announce } from "../../state/announcements";
import { useApp } from "../../ui/context";
import { CheckField, Choice, SelectField } from "../parts";
import { useAction } from "../request";
import type { NotificationEvent, NotificationPreferences, NotificationSettings, QuietHours } from "./types";

const EVENTS: readonly NotificationEvent[] = ["opened", "escalated", "closing"];

export function NotificationChoices({ settings, onSaved }: { settings: NotificationSettings; onSaved(settings: NotificationSettings): void }) {
  const app = useApp();
  const action = useAction();
  const [chosen, setChosen] = useState<NotificationPreferences>(() => preferencesOf(settings));
  const change = (part: Partial<NotificationPreferences>) => setChosen({ ...chosen, ...part });
  const isSame = JSON.stringify(chosen) === JSON.stringify(preferencesOf(settings));
  const save = () =>
    action.run(async () => {
      const saved = await app.api.put<NotificationSettings>("/api/notifications", chosen);
      setChosen(preferencesOf(saved));
      onSaved(saved);
      announce(t().notify.saved);
    });
  return (
    <form
      class="panel"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <fieldset>
        <legend>{t().notify.events}</legend>
        {EVENTS.map((event) => (
          <CheckField
            key={event}
            label={t().notify.eventNames[event] ?? event}
            checked={chosen.events.includes(event)}
            onChange={(checked) => change({ events: EVENTS.filter((known) => (known === event ? checked : chosen.events.includes(known))) })}
          />
        ))}
      </fieldset>
      <SessionChoice sessions={chosen.sessions} onChange={(sessions) => change({ sessions })} />
      <Quiet hours={chosen.quiet_hours} onChange={(quiet_hours) => change({ quiet_hours })} />
      <fieldset>
        <legend>{t().notify.content}</legend>
        <CheckField label={t().notify.showCommand} hint={t().notify.showCommandHint} checked={chosen.show_command} onChange={(show_command) => change({ show_command })} />
        {settings.vote_links_allowed !== false && (
          <CheckField label={t().notify.voteLinks} hint={t().notify.voteLinksHint} checked={chosen.vote_links} onChange={(vote_links) => change({ vote_links })} />
        )}
      </fieldset>
      {!isSame && <p class="quiet small">{t().notify.unsaved}</p>}
      <button class="primary fit" disabled={isSame || action.busy}>
        {t().notify.apply}
      </button>
    </form>
  );
}

function SessionChoice({ sessions, onChange }: { sessions: string[] | null; onChange(sessions: string[] | null): void }) {
  const app = useApp();
  const known = (app.sessions.value ?? []).filter((item) => !item.ended || sessions?.includes(item.session)).map((item) => item.session);
  const all = [...known, ...(sessions ?? []).filter((session) => !known.includes(session))];
  return (
    <>
      <Choice<"all" | "some">
        legend={t().notify.sessions}
        name="notify-sessions"
        value={sessions === null ? "all" : "some"}
        options={[
          ["all", t().notify.allSessions],
          ["some", t().notify.someSessions],
        ]}
        onChange={(which) => onChange(which === "all" ? null : [])}
      />
      {sessions !== null && (
        <fieldset aria-label={t().notify.someSessions}>
          {all.map((session) => (
            <CheckField
              key={session}
              label={escapeInvisible(app.sessionName(session))}
              checked={sessions.includes(session)}
              onChange={(checked) => onChange(checked ? [...sessions, session].sort() : sessions.filter((other) => other !== session))}
            />
          ))}
        </fieldset>
      )}
    </>
  );
}

function Quiet({ hours, onChange }: { hours: QuietHours | null; onChange(hours: QuietHours | null): void }) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zones = [...new Set([here, hours?.time_zone ?? here, ...Intl.supportedValuesOf("timeZone")])];
  return (
    <fieldset class="stack">
      <legend>{t().notify.quiet}</legend>
      <CheckField label={t().notify.quietOn} checked={hours !== null} onChange={(checked) => onChange(checked ? { from: "22:00", to: "07:00", time_zone: here } : null)} />
      {hours !== null && (
        <div class="fields">
          <label>
            {t().notify.from}
            <input type="time" required value={hours.from} onInput={(event) => onChange({ ...hours, from: event.currentTarget.value })} />
          </label>
          <label>
            {t().notify.to}
            <input type="time" required value={hours.to} onInput={(event) => onChange({ ...hours, to: event.currentTarget.value })} />
          </label>
          <SelectField label={t().notify.timeZone} value={hours.time_zone} options={zones.map((zone) => [zone, zone] as const)} onChange={(time_zone) => onChange({ ...hours, time_zone })} />
        </div>
      )}
    </fieldset>
  );
}

function preferencesOf(settings: NotificationSettings): NotificationPreferences {
  return {
    events: EVENTS.filter((event) => settings.events.includes(event)),
    sessions: settings.sessions ?? null,
    quiet_hours: settings.quiet_hours ?? null,
    show_command: settings.show_command,
    vote_links: settings.vote_links,
  };
}
