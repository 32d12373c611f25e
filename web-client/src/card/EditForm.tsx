// Editing the command. Everyone sees the edit, and all votes start again.

import { useState } from "preact/hooks";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import { editableText, editedArguments } from "./amend";
import { FormPanel, FormProblem } from "./FormPanel";
import type { CardModel } from "./model";

interface EditFormProps {
  card: CardModel;
  isBusy: boolean;
  /** Whether the editor may also approve the edit at once. */
  mayApprove: boolean;
  onEdit(args: Record<string, unknown>, line: string, thenApprove: boolean): void;
  onCancel(): void;
}

export function EditForm({ card, isBusy, mayApprove, onEdit, onCancel }: EditFormProps) {
  const [text, setText] = useState(() => editableText(card.requested));
  const [problem, setProblem] = useState<string | null>(null);
  const shown = escapeInvisible(text);
  const submit = (thenApprove: boolean) => {
    const edit = editedArguments(card.requested, text);
    setProblem("problem" in edit ? t().card.editProblems[edit.problem] : null);
    if ("arguments" in edit) onEdit(edit.arguments, text, thenApprove);
  };
  return (
    <FormPanel label={t().card.edit} onCancel={onCancel} onSubmit={() => submit(false)}>
      <label>
        {card.requested.form === "tool" ? t().card.editArguments : t().card.editLabel}
        <textarea
          class="mono"
          dir="ltr"
          rows={Math.min(12, text.split("\n").length + 1)}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
        />
      </label>
      {shown !== text && (
        <div>
          <p class="careful">{t().card.editInvisible}</p>
          <pre class="command" dir="ltr">
            {shown}
          </pre>
        </div>
      )}
      <p class="hint">{t().card.editHint}</p>
      <FormProblem text={problem} />
      <div class="decision-buttons">
        <button disabled={isBusy}>{t().card.sendEdit}</button>
        {mayApprove && (
          <button type="button" class="primary" disabled={isBusy} onClick={() => submit(true)}>
            {t().card.editAndApprove}
          </button>
        )}
      </div>
    </FormPanel>
  );
}
