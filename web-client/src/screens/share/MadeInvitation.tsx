// A fresh invitation: the only time that its secret is shown.

import { useEffect, useRef } from "preact/hooks";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import { dateAndTime } from "../../ui/format";
import { CopyButton, roleNames } from "../parts";
import type { Made } from "../SharePanel";
import { QrCode } from "./QrCode";

export function MadeInvitation({ made, onDone }: { made: Made; onDone(): void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const { link: stated, roles, expires } = made.kind === "link" ? made.invitation : made.code;
  const link = reachableLink(stated, location.origin);
  const page = made.kind === "link" && made.page !== null ? reachableLink(made.page.link, location.origin) : null;
  const opened = page ?? link;
  return (
    <section class="panel made">
      <h3 ref={heading} tabIndex={-1}>
        {made.kind === "link" ? t().share.made(escapeInvisible(made.name)) : t().share.madeCode}
      </h3>
      <p>
        <span class="tag">{roleNames(roles)}</span> {expires == null ? t().share.validForever : t().share.validUntil(dateAndTime(expires))}
      </p>
      <p class="banner">{t().share.secret}</p>
      {made.kind === "code" && <SecretField label={t().share.code} text={made.code.code} />}
      {page !== null && <SecretField label={t().share.pageLink} text={page} />}
      <SecretField label={page === null ? t().share.link : t().share.terminalLink} text={link} />
      <QrCode text={opened} label={t().share.qr} />
      <div class="row">
        {"share" in navigator && (
          <button onClick={() => void navigator.share({ url: opened }).catch(() => undefined)}>{t().share.send}</button>
        )}
        <button class="primary grow" onClick={onDone}>
          {t().share.done}
        </button>
      </div>
    </section>
  );
}

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/** The link for others: a server that only knows itself as this machine is reached as this page was. */
export function reachableLink(link: string, origin: string): string {
  if (!URL.canParse(link) || !URL.canParse(origin)) return link;
  const [stated, here] = [new URL(link), new URL(origin)];
  if (!LOOPBACK.test(stated.hostname) || LOOPBACK.test(here.hostname)) return link;
  return `${here.origin}${stated.pathname}${stated.search}${stated.hash}`;
}

function SecretField({ label, text }: { label: string; text: string }) {
  return (
    <div class="row end">
      <label class="grow">
        {label}
        <input class="mono" readOnly value={text} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <CopyButton text={text} label={`${t().app.copy}: ${label}`} />
    </div>
  );
}
