// How an approval is confirmed, so that neither a pocket nor a finger that slipped approves anything.

import type { Category } from "@protocol";
import type { Confirmation, Preferences } from "../state/preferences";

/** How long a press is held. */
export const HOLD_MS = 1000;
/** A second press sooner than this is a double tap, which happens by itself. */
export const SECOND_PRESS_AFTER_MS = 300;
/** A first press is forgotten after this. */
export const SECOND_PRESS_WITHIN_MS = 5000;
/** What has just appeared under a finger does not take its press. */
export const SETTLE_MS = 600;

/** How a command of this category is confirmed. */
export function confirmationFor(category: Category, preferences: Preferences): Confirmation {
  switch (category) {
    case "read":
    case "write":
      return preferences.confirmWrite;
    case "destructive":
    case "blocked":
      return preferences.confirmDestructive;
  }
}

export type PressState =
  | "idle"
  /** A press is being held. */
  | "holding"
  /** Pressed once; a second press confirms. */
  | "armed";

/** One button that has to be pressed on purpose. */
export class Press {
  private current: PressState = "idle";
  private timer: ReturnType<typeof setTimeout> | undefined;
  private shownAt = performance.now();
  private armedAt = 0;
  private wasArmed = false;

  constructor(
    private readonly confirmation: Confirmation,
    private readonly onState: (state: PressState) => void,
    private readonly onConfirmed: () => void,
  ) {}

  get state(): PressState {
    return this.current;
  }

  /** A finger or the mouse goes down. */
  pointerDown(): void {
    if (this.confirmation === "hold" && this.isSettled()) this.hold();
  }

  /** The finger is lifted, leaves the button, or the system takes it away. */
  pointerEnd(): void {
    if (this.current === "holding") this.change("idle");
  }

  /** A tap, a click, or what a screen reader sends for one. */
  click(byPointer: boolean): void {
    if (!this.isSettled()) return;
    if (this.confirmation === "tap") this.confirm();
    else if (this.confirmation === "second_tap" || !byPointer) this.pressOnce();
  }

  /** A key that means this button goes down. */
  keyDown(isRepeat: boolean): void {
    if (isRepeat || !this.isSettled()) return;
    if (this.confirmation === "hold") this.hold();
    else this.click(false);
  }

  /** A key that was pressed shortly counts as one of two presses. */
  keyUp(): void {
    if (this.current !== "holding") return;
    this.change(this.wasArmed ? "armed" : "idle");
    this.pressOnce();
  }

  /** Forgets everything that was half done. */
  reset(): void {
    this.change("idle");
  }

  /** The button has come into sight again: a press that is on its way was meant for something else. */
  settleAgain(): void {
    this.reset();
    this.shownAt = performance.now();
  }

  private isSettled(): boolean {
    return performance.now() - this.shownAt >= SETTLE_MS;
  }

  private hold(): void {
    this.wasArmed = this.current === "armed";
    this.change("holding");
    this.timer = setTimeout(() => this.confirm(), HOLD_MS);
  }

  private pressOnce(): void {
    const now = performance.now();
    const isSecond = this.current === "armed";
    if (isSecond && now - this.armedAt >= SECOND_PRESS_AFTER_MS) return this.confirm();
    if (!isSecond) this.armedAt = now;
    this.change("armed");
    this.timer = setTimeout(() => this.change("idle"), SECOND_PRESS_WITHIN_MS);
  }

  private confirm(): void {
    this.change("idle");
    this.onConfirmed();
  }

  private change(state: PressState): void {
    clearTimeout(this.timer);
    if (state !== this.current) {
      this.current = state;
      this.onState(state);
    }
  }
}
