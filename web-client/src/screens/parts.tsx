// Small parts that several screens share.

import { computed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Role } from "@protocol";
import { usePress } from "../card/HoldButton";
import { t } from "../i18n";
import { ApiError } from "../net/api";
import { announce } from "../state/announcements";
import { second } from "../state/clock";
import { messageOf } from "../ui/message";

/** What went wrong while loading, and a button to try again. */
export function LoadProblem({ problem, onRetry }: { problem: unknown; onRetry(): void }) {
  if (problem === null || problem === undefined) return null;
  // A server without the route will not have it the next time either.
  if (problem instanceof ApiError && problem.status === 404) return <p class="quiet">{t().settings.unsupported}</p>;
  return (
    <div class="problem row" role="alert">
      <p class="grow">{t().app.failed(messageOf(problem))}</p>
      <button type="button" onClick={onRetry}>
        {t().app.retry}
      </button>
    </div>
  );
}

/** A button that asks once more before it does something that cannot be undone. */
export function ConfirmButton(props: { label: string; name: string; question: string; disabled?: boolean; onConfirm(): void }) {
  const [asking, setAsking] = useState(false);
  const confirm = useRef<HTMLButtonElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  const wasAsking = useRef(false);
  const answer = (confirmed: boolean) => {
    setAsking(false);
    if (confirmed) props.onConfirm();
  };
  // It stands where the first button was, and must not take the second half of a double click.
  const press = usePress("tap", String(asking), () => answer(true));
  useEffect(() => {
    if (asking) confirm.current?.focus();
    else if (wasAsking.current) first.current?.focus();
    wasAsking.current = asking;
  }, [asking]);
  if (!asking) {
    return (
      <button type="button" ref={first} class="danger fit" aria-label={props.name} disabled={props.disabled} onClick={() => setAsking(true)}>
        {props.label}
      </button>
    );
  }
  return (
    <span class="row" role="group" aria-label={props.name}>
      <button type="button" ref={confirm} class="danger primary" aria-disabled={!press.isSettled} onClick={(event) => press.press.click(event.detail > 0)}>
        {props.question}
      </button>
      <button type="button" onClick={() => answer(false)}>
        {t().app.cancel}
      </button>
    </span>
  );
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(t().app.copied);
    } catch (error) {
      announce(t().app.failed(messageOf(error)), "error");
    }
  };
  return (
    <button type="button" aria-label={label} onClick={() => void copy()}>
      {t().app.copy}
    </button>
  );
}

/** A choice of one, as radio buttons in one row. */
export function Choice<T extends string>(props: { legend: string; name: string; options: readonly (readonly [T, string])[]; value: T; onChange(value: T): void }) {
  return (
    <fieldset class="radio-choice">
      <legend>{props.legend}</legend>
      <div class="row">
        {props.options.map(([value, label]) => (
          <label key={value} class="check">
            <input type="radio" name={props.name} checked={props.value === value} onChange={() => props.onChange(value)} />
            {label}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

export function SelectField<T extends string | number>(props: { label: string; value: T; options: readonly (readonly [T, string])[]; hint?: string; onChange(value: T): void }) {
  return (
    <label>
      {props.label}
      <select
        value={String(props.value)}
        onChange={(event) => {
          const chosen = props.options.find(([value]) => String(value) === event.currentTarget.value);
          if (chosen !== undefined) props.onChange(chosen[0]);
        }}
      >
        {props.options.map(([value, label]) => (
          <option key={String(value)} value={String(value)}>
            {label}
          </option>
        ))}
      </select>
      {props.hint !== undefined && <span class="hint">{props.hint}</span>}
    </label>
  );
}

export function CheckField(props: { label: string; hint?: string; name?: string; checked: boolean; disabled?: boolean; onChange(checked: boolean): void }) {
  return (
    <label class="check">
      <input type="checkbox" aria-label={props.name} checked={props.checked} disabled={props.disabled} onChange={(event) => props.onChange(event.currentTarget.checked)} />
      <span>
        {props.label}
        {props.hint !== undefined && <span class="hint block">{props.hint}</span>}
      </span>
    </label>
  );
}

/** A name and what it says. Nothing is drawn for what is not there. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  const isEmpty = children === null || children === undefined || children === "" || children === false;
  return isEmpty ? null : (
    <div class="record-fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const UNITS: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

/** Times in minutes need not be drawn again every second. */
const halfMinute = computed(() => Math.ceil(second.value / 30_000) * 30_000);

/** A time as how long ago it was. */
export function ago(at: string): string {
  const past = Math.round((halfMinute.value - Date.parse(at)) / 1000);
  const unit = UNITS.find(([, seconds]) => past >= seconds);
  if (unit === undefined) return t().time.now;
  return new Intl.RelativeTimeFormat(document.documentElement.lang, { style: "short" }).format(-Math.floor(past / unit[1]), unit[0]);
}

/** A number of seconds, such as `5 min`. */
export function spanOf(seconds: number): string {
  const [unit, length] = UNITS.find(([, length]) => seconds >= length && seconds % length === 0) ?? ["second", 1];
  return new Intl.NumberFormat(document.documentElement.lang, { style: "unit", unit, unitDisplay: "short" }).format(seconds / length);
}

export function roleNames(roles: readonly Role[]): string {
  return roles.length === 0 ? t().people.noRoles : roles.map((role) => t().roles[role] ?? role).join(", ");
}
