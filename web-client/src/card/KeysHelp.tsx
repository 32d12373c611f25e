// The list of keys.

import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { CARD_KEYS } from "./keys";

export function KeysHelp({ onClose }: { onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class="keys-help" aria-labelledby="keys-heading" onClose={onClose}>
      <h2 id="keys-heading">{t().card.keys}</h2>
      <dl class="facts">
        {CARD_KEYS.map(([key, meaning]) => (
          <div key={key} class="row-fact">
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{t().card.keyMeanings[meaning]}</dd>
          </div>
        ))}
      </dl>
      <button class="wide" onClick={() => dialog.current?.close()}>
        {t().app.close}
      </button>
    </dialog>
  );
}
