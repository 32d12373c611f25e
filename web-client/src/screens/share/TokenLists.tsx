// Who holds a token or an unused join code, for admins.

import { useState } from "preact/hooks";
import type { JoinCodeListItem, TokenList, TokenListItem } from "@protocol";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import type { SessionConnection } from "../../net/connection";
import { announce } from "../../state/announcements";
import { Capped } from "../../ui/Capped";
import { useApp } from "../../ui/context";
import { dateAndTime } from "../../ui/format";
import { CheckField, ConfirmButton, LoadProblem, ago, roleNames } from "../parts";
import { nameOf } from "../people";
import { useAction, useLoaded } from "../request";

const DRAWN = 50;

interface Revoking {
  busy: boolean;
  isAllowed: boolean;
  revoke(id: string, name: string): void;
}

export function TokenLists({ connection, round }: { connection: SessionConnection; round: number; tick: number }) {
  const app = useApp();
  const [showOld, setShowOld] = useState(false);
  const list = useLoaded(String(round), (signal) => app.api.get<TokenList>("/api/tokens", { signal }));
  const action = useAction();
  const revoking: Revoking = {
    busy: action.busy,
    isAllowed: app.device.session === null,
    revoke: (id, name) =>
      action.run(async () => {
        await app.api.delete(`/api/tokens/${encodeURIComponent(id)}`);
        announce(t().share.revoked(name));
        list.reload();
      }),
  };
  const tokens = (list.value?.tokens ?? []).filter((token) => isAbout(token.session, connection.session));
  const codes = (list.value?.codes ?? []).filter((code) => isAbout(code.session, connection.session));
  const shown = tokens.filter((token) => showOld || token.state === "valid").reverse();
  return (
    <section class="stack">
      <h3>{t().share.tokens}</h3>
      <p class="quiet small">{t().share.tokensHint}</p>
      <LoadProblem problem={list.problem} onRetry={list.reload} />
      {!revoking.isAllowed && <p class="quiet small">{t().share.mayNotRevoke}</p>}
      {list.value !== null && shown.length === 0 && <p class="center">{t().share.noTokens}</p>}
      <Capped items={shown} size={DRAWN}>
        {(drawn) => (
          <ul class="rows">
            {drawn.map((token) => (
              <Token key={token.id} connection={connection} token={token} revoking={revoking} />
            ))}
          </ul>
        )}
      </Capped>
      {tokens.some((token) => token.state !== "valid") && <CheckField label={t().share.showOld} checked={showOld} onChange={setShowOld} />}
      {codes.length > 0 && <h4>{t().share.codes}</h4>}
      <ul class="rows">
        {codes.map((code) => (
          <Code key={code.id} code={code} revoking={revoking} />
        ))}
      </ul>
    </section>
  );
}

function Token({ connection, token, revoking }: { connection: SessionConnection; token: TokenListItem; revoking: Revoking }) {
  const name = escapeInvisible(token.name);
  return (
    <li class={token.state === "valid" ? "panel" : "panel over"}>
      <div class="row">
        <strong class="grow">{name}</strong>
        {token.state !== "valid" && <span class="tag bad">{t().share.state[token.state]}</span>}
        <span class="tag">{roleNames(token.roles)}</span>
      </div>
      <p class="row quiet small">
        {token.device != null && <span>{escapeInvisible(token.device)}</span>}
        <span>{token.session ?? t().share.allSessions}</span>
        <span>{token.last_used == null ? t().share.neverUsed : t().share.lastUsed(ago(token.last_used))}</span>
        {token.expires != null && <span>{t().share.expiresAt(dateAndTime(token.expires))}</span>}
        {token.invited_by != null && <span>{t().share.madeBy(nameOf(connection, token.invited_by))}</span>}
        <span class="mono">{token.participant}</span>
      </p>
      {revoking.isAllowed && token.state === "valid" && (
        <ConfirmButton
          label={t().share.revoke}
          name={t().share.revokeWhat(name)}
          question={t().share.sure}
          disabled={revoking.busy}
          onConfirm={() => revoking.revoke(token.id, name)}
        />
      )}
    </li>
  );
}

function Code({ code, revoking }: { code: JoinCodeListItem; revoking: Revoking }) {
  return (
    <li class="panel">
      <div class="row">
        <span class="grow mono">{code.id}</span>
        <span class="tag">{roleNames(code.roles)}</span>
      </div>
      <p class="row quiet small">
        <span>{code.session ?? t().share.allSessions}</span>
        <span>{t().share.expiresAt(dateAndTime(code.expires))}</span>
      </p>
      {revoking.isAllowed && (
        <ConfirmButton
          label={t().share.revoke}
          name={t().share.revokeCode(code.id)}
          question={t().share.sure}
          disabled={revoking.busy}
          onConfirm={() => revoking.revoke(code.id, code.id)}
        />
      )}
    </li>
  );
}

/** Whether a token opens this session. */
function isAbout(bound: string | null | undefined, session: string): boolean {
  return bound == null || bound === session;
}
