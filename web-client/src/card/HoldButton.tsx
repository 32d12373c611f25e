// A button that is pressed on purpose: by a tap, by two, or by a held press, with finger, mouse, key
// or screen reader.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Confirmation } from "../state/preferences";
import { Press, SETTLE_MS } from "./confirmation";
import type { PressState } from "./confirmation";

export interface PressHandle {
  press: Press;
  state: PressState;
  confirmation: Confirmation;
  /** Whether it has been there long enough to take a press. */
  isSettled: boolean;
}

/**
 * The state of such a button. `version` names what is confirmed and what is in the button's place:
 * when it changes, whatever was half confirmed is forgotten, and the button has just appeared.
 */
export function usePress(confirmation: Confirmation, version: string, onConfirmed: () => void): PressHandle {
  const [state, setState] = useState<PressState>("idle");
  const latest = useRef(onConfirmed);
  latest.current = onConfirmed;
  const press = useMemo(() => new Press(confirmation, setState, () => latest.current()), [confirmation, version]);
  // Before the next frame, so that no timer of the old version outlives it.
  useLayoutEffect(() => () => press.reset(), [press]);
  return { press, state, confirmation, isSettled: useSettled(press) };
}

function useSettled(press: Press): boolean {
  const [settled, setSettled] = useState<Press | null>(null);
  useLayoutEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => setSettled(press), SETTLE_MS);
    };
    const forget = onReappearing(() => {
      press.settleAgain();
      setSettled(null);
      wait();
    });
    wait();
    return () => {
      clearTimeout(timer);
      forget();
    };
  }, [press]);
  return settled === press;
}

/**
 * Calls whenever the page comes before a person's eyes: its tab is chosen, another window goes away
 * from above it, the phone is unlocked. A press may be on its way then to what was there before.
 */
function onReappearing(call: () => void): () => void {
  const onVisibility = () => {
    if (document.visibilityState === "visible") call();
  };
  addEventListener("focus", call);
  addEventListener("pageshow", call);
  document.addEventListener("visibilitychange", onVisibility);
  return () => {
    removeEventListener("focus", call);
    removeEventListener("pageshow", call);
    document.removeEventListener("visibilitychange", onVisibility);
  };
}

interface HoldButtonProps {
  handle: PressHandle;
  /** What the button says in each state. */
  labels: { [key in PressState]: string };
  class: string;
  isDisabled?: boolean;
  keyShortcut?: string;
  children?: ComponentChildren;
}

/** All labels have their place, so that the button keeps its size under the finger. */
const STATES: readonly PressState[] = ["idle", "holding", "armed"];

export function HoldButton({ handle, labels, isDisabled = false, keyShortcut, children, ...props }: HoldButtonProps) {
  const { press, state, isSettled } = handle;
  const element = useRef<HTMLButtonElement>(null);
  useAbort(press, state === "holding");
  return (
    <>
      <button
        ref={element}
        type="button"
        class={`hold-button ${props.class}`}
        data-state={state}
        disabled={isDisabled}
        aria-disabled={!isSettled}
        aria-keyshortcuts={keyShortcut}
        onPointerDown={(event) => {
          if (event.isPrimary && event.button === 0) press.pointerDown();
        }}
        onPointerMove={(event) => {
          if (!isInside(element.current, event)) press.pointerEnd();
        }}
        onPointerUp={() => press.pointerEnd()}
        onPointerCancel={() => press.pointerEnd()}
        onPointerLeave={() => press.pointerEnd()}
        onContextMenu={(event) => event.preventDefault()}
        onClick={(event) => press.click(event.detail > 0)}
        onKeyDown={(event) => {
          if (!isPressKey(event)) return;
          event.preventDefault();
          press.keyDown(event.repeat);
        }}
        onKeyUp={(event) => {
          if (!isPressKey(event)) return;
          event.preventDefault();
          press.keyUp();
        }}
        onBlur={() => press.reset()}
      >
        <span class="hold-fill" aria-hidden="true" />
        <span class="hold-labels">
          {STATES.map((other) => (
            <span key={other} aria-hidden={other === state ? undefined : "true"}>
              {children}
              <span>{labels[other]}</span>
            </span>
          ))}
        </span>
      </button>
      <span class="visually-hidden" role="status">
        {state === "idle" ? "" : labels[state]}
      </span>
    </>
  );
}

function isPressKey(event: KeyboardEvent): boolean {
  return event.key === "Enter" || event.key === " ";
}

/** A finger keeps its button while it slides away from it, so its place is looked at. */
function isInside(element: HTMLElement | null, event: PointerEvent): boolean {
  if (element === null) return false;
  const box = element.getBoundingClientRect();
  const isUnknown = box.width === 0 && box.height === 0;
  return isUnknown || (event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom);
}

/** Ends a held press when a second finger comes, a key is let go elsewhere, or the page goes out of sight. */
function useAbort(press: Press, isHolding: boolean): void {
  useEffect(() => {
    if (!isHolding) return;
    const onSecondFinger = (event: PointerEvent) => {
      if (!event.isPrimary) press.pointerEnd();
    };
    // The button and the card have looked at the key before.
    const onKeyUp = () => press.pointerEnd();
    const abort = () => press.reset();
    addEventListener("keyup", onKeyUp);
    addEventListener("pointerdown", onSecondFinger);
    addEventListener("blur", abort);
    document.addEventListener("visibilitychange", abort);
    return () => {
      removeEventListener("keyup", onKeyUp);
      removeEventListener("pointerdown", onSecondFinger);
      removeEventListener("blur", abort);
      document.removeEventListener("visibilitychange", abort);
    };
  }, [press, isHolding]);
}
