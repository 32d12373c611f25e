// What runs without a vote, and the settings that decide about the rest.

import type { PolicyRevoke } from "@protocol";
import { escapeInvisible } from "../fold";
import type { AllowRuleView } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { announce } from "../state/announcements";
import { second } from "../state/clock";
import { dateAndTime, duration } from "../ui/format";
import { Words } from "../ui/Words";
import { ConfirmButton } from "./parts";
import { nameOf } from "./people";
import { useAction } from "./request";
import { SessionConfigTable } from "./SessionConfigTable";
import { useSlowTick } from "./slow_tick";

export function RulesPanel({ connection }: { connection: SessionConnection }) {
  const tick = useSlowTick(connection);
  const { rules, me, config } = connection.view;
  const mayRevoke = me?.may_approve ?? false;
  const newestFirst = [...rules].reverse();
  return (
    <div class="screen">
      <h2>{t().rules.heading}</h2>
      <p class="quiet">{t().rules.intro}</p>
      {rules.length === 0 && <p class="center">{t().rules.empty}</p>}
      <ul class="rows">
        {newestFirst.map((rule) => (
          <Rule key={rule.rule} connection={connection} rule={rule} mayRevoke={mayRevoke} />
        ))}
      </ul>
      {rules.length > 0 && !mayRevoke && <p class="quiet small">{t().rules.mayNot}</p>}
      <section class="stack">
        <h3>{t().rules.settings}</h3>
        <p class="quiet small"><Words text={t().rules.settingsHint} /></p>
        <SessionConfigTable config={config} tick={tick} nameOf={(id) => nameOf(connection, id)} />
      </section>
    </div>
  );
}

function Rule({ connection, rule, mayRevoke }: { connection: SessionConnection; rule: AllowRuleView; mayRevoke: boolean }) {
  const action = useAction();
  const what = escapeInvisible(rule.read_root ?? rule.prefix.join(" "));
  const left = Date.parse(rule.expires_at) - (connection.now() - Date.now()) - second.value;
  const isOver = left <= 0;
  const revoke = () =>
    action.run(async () => {
      const payload: PolicyRevoke = { rule: rule.rule };
      await connection.send("policy.revoke", payload);
      announce(t().rules.revoked);
    });
  return (
    <li class={isOver ? "panel over" : "panel"}>
      <div class="row">
        <div class="grow stack tight">
          <span class="quiet small">{rule.read_root == null ? t().rules.prefix : t().rules.readRoot}</span>
          <code>{what}</code>
          <span class="quiet small">{rule.read_root == null && directoryOf(rule)}</span>
        </div>
        <span class={isOver ? "tag" : "tag write"} title={dateAndTime(rule.expires_at)}>
          {isOver ? t().rules.expired : t().rules.expires(duration(left))}
        </span>
      </div>
      <p class="quiet small">
        {t().rules.by(nameOf(connection, rule.by), dateAndTime(rule.at))}
        {rule.reason !== null && ` “${escapeInvisible(rule.reason)}”`}
      </p>
      {mayRevoke && !isOver && (
        <ConfirmButton label={t().rules.revoke} name={t().rules.revokeRule(what)} question={t().share.sure} disabled={action.busy} onConfirm={revoke} />
      )}
    </li>
  );
}

function directoryOf(rule: AllowRuleView): string {
  if (rule.directory == null) return t().rules.ownDirectory;
  return rule.directory === "*" ? t().rules.anywhere : t().rules.directory(escapeInvisible(rule.directory));
}
