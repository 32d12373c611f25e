// The screens for somebody who is not signed in on this device.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { usePress } from "../card/HoldButton";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { EMPTY_LINK, parseFragment } from "../net/link";
import type { LinkContents } from "../net/link";
import { messageOf } from "./message";
import { Words } from "./Words";

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
  return CODE.test(word) ? { ...EMPTY_LINK, code: word } : null;
}

interface WelcomeProps {
  problem: string | null;
  /** Who is signed in at another server that had this address. */
  aside: string | null;
  onLink(link: LinkContents): void;
  /** It is the same server, with another key. */
  onTrust(): Promise<void>;
}

export function Welcome({ problem, aside, onLink, onTrust }: WelcomeProps) {
  const [typed, setTyped] = useState("");
  const [bad, setBad] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  return (
    <Page heading={t().welcome.heading}>
      <Problem text={bad ? t().welcome.badLink : (failure ?? problem)} />
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
      <p class="quiet">
        <Words text={t().welcome.howTo} />
      </p>
      {aside !== null && (
        <>
          <p class="quiet">{t().welcome.aside(escapeInvisible(aside))}</p>
          <button class="wide" onClick={() => void onTrust().catch((error: unknown) => setFailure(messageOf(error)))}>
            {t().welcome.trust(escapeInvisible(aside))}
          </button>
        </>
      )}
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

interface Identity {
  name: string;
  /** Their id, which nobody chooses; `null` for somebody who gets one only now. */
  id: string | null;
}

/** Two people may call themselves the same, so each is shown with the id. */
function identified({ name, id }: Identity): string {
  return `${escapeInvisible(name)} (${id === null ? t().welcome.switchNew : escapeInvisible(id)})`;
}

export function ConfirmSwitch(props: { old: Identity; fresh: Identity; onStay(): void; onSwitch(): Promise<void> }) {
  const [old, fresh] = [identified(props.old), identified(props.fresh)];
  const press = usePress("tap", fresh, () => void props.onSwitch());
  return (
    <Page heading={t().welcome.switchHeading}>
      <p>{t().welcome.switchIntro(old, fresh)}</p>
      <div class="stack">
        <button class="wide" onClick={props.onStay}>
          {t().welcome.switchNo(old)}
        </button>
        <button class="wide" aria-disabled={!press.isSettled} onClick={(event) => press.press.click(event.detail > 0)}>
          {t().welcome.switchYes(fresh)}
        </button>
      </div>
    </Page>
  );
}
