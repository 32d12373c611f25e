// A form that opens above the buttons of a card, takes the focus, and gives it back.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";

interface FormPanelProps {
  label: string;
  children: ComponentChildren;
  onSubmit(): void;
  onCancel(): void;
}

export function FormPanel({ label, children, onSubmit, onCancel }: FormPanelProps) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    form.current?.querySelector<HTMLElement>("button, textarea, input, select")?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <form
      ref={form}
      class="decision-form"
      aria-label={label}
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onCancel();
      }}
    >
      {children}
      <button type="button" class="plain" onClick={onCancel}>
        {t().app.cancel}
      </button>
    </form>
  );
}

export function FormProblem({ text }: { text: string | null }) {
  return text === null ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}
