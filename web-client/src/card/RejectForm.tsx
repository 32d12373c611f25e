// Denying with a reason: a few phrases to tap, and free text.

import { useState } from "preact/hooks";
import { t } from "../i18n";
import { FormPanel } from "./FormPanel";

const MAX_REASON = 2000;

export function RejectForm({ isBusy, onReject, onCancel }: { isBusy: boolean; onReject(reason: string): void; onCancel(): void }) {
  const [reason, setReason] = useState("");
  const trimmed = reason.trim();
  return (
    <FormPanel label={t().card.reject} onCancel={onCancel} onSubmit={() => trimmed !== "" && onReject(trimmed)}>
      <div class="phrases" role="group" aria-label={t().card.phrases}>
        {t().card.reasons.map((phrase) => (
          <button key={phrase} type="button" aria-pressed={reason === phrase} onClick={() => setReason(phrase)}>
            {phrase}
          </button>
        ))}
      </div>
      <label>
        {t().card.reasonLabel}
        <textarea rows={2} maxLength={MAX_REASON} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <button class="danger primary wide" disabled={isBusy || trimmed === ""}>
        {t().card.sendReject}
      </button>
    </FormPanel>
  );
}
