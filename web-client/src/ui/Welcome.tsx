// The screens for somebody who is not signed in on this device.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../i18n";
import { parseFragment } from "../net/link";
import type { LinkContents } from "../net/link";

function Page({ heading, children }: { heading: string; children: ComponentChildren }) {
  return (
    <main class="welcome">
      <img src="/icons/icon.svg" alt="" width="64" height="64" />
      <h1>{heading}</h1>
      {children}
    </main>
  );
}

function Problem({ text }: { text: string | null }) {
  return text === null ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

const CODE = /^[0-9A-Za-z]{5}(-[0-9A-Za-z]{5}){3}$/;

/** What somebody typed: a link, the line of `pvp join`, or a bare code. */
export function parseTyped(text: string): LinkContents | null {
  const typed = text.trim();
  const hash = typed.indexOf("#");
  const link = hash === -1 ? null : parseFragment(typed.slice(hash));
  if (link !== null) return link;
  const word = typed.split(/[\s/]+/).at(-1)?.replace(/#.*$/, "") ?? "";
  return CODE.test(word) ? { code: word, token: null, session: null, gate: null } : null;
}

export function Welcome({ problem, onLink }: { problem: string | null; onLink(link: LinkContents): void }) {
  const [typed, setTyped] = useState("");
  const [bad, setBad] = useState(false);
  return (
    <Page heading={t().welcome.heading}>
      <Problem text={bad ? t().welcome.badLink : problem} />
      <p>{t().welcome.intro}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const link = parseTyped(typed);
          setBad(link === null);
          if (link !== null) onLink(link);
        }}
      >
        <label>
          {t().welcome.linkLabel}
          <input
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            required
          />
        </label>
        <button class="primary wide">{t().welcome.join}</button>
      </form>
      <p class="quiet">{t().welcome.howTo}</p>
    </Page>
  );
}

export function AskName({ problem, onName }: { problem: string | null; onName(name: string): Promise<void> }) {
  const [name, setName] = useState("");
  const [busy, setBusy] = useState(false);
  return (
    <Page heading={t().welcome.codeHeading}>
      <Problem text={problem} />
      <p>{t().welcome.codeIntro}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setBusy(true);
          void onName(name.trim()).finally(() => setBusy(false));
        }}
      >
        <label>
          {t().welcome.nameLabel}
          <input value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="name" maxLength={64} required />
        </label>
        <button class="primary wide" disabled={busy || name.trim() === ""}>
          {t().welcome.join}
        </button>
      </form>
    </Page>
  );
}

export function ConfirmSwitch(props: { old: string; fresh: string; onStay(): void; onSwitch(): Promise<void> }) {
  return (
    <Page heading={t().welcome.switchHeading}>
      <p>{t().welcome.switchIntro(props.old, props.fresh)}</p>
      <div class="stack">
        <button class="wide" onClick={props.onStay}>
          {t().welcome.switchNo(props.old)}
        </button>
        <button class="wide" onClick={() => void props.onSwitch()}>
          {t().welcome.switchYes(props.fresh)}
        </button>
      </div>
    </Page>
  );
}
