// The few screens that exist at a time. A stream may hold thousands of commands, and only those on
// the screen of the person need one; the others are drawn from their text.

import { t } from "../i18n";
import type { TerminalSize } from "@protocol";
import type { TerminalScreen } from "./screen";

/** Each keeps a few megabytes of cells at most. */
const MAX_SCREENS = 6;

interface Held {
  screen: TerminalScreen;
  users: number;
}

export class ScreenPool {
  /** Those used last are at the end. */
  private readonly held = new Map<string, Held>();
  private isClosed = false;

  /** The screen of a command; null if too many others are in use. */
  async acquire(id: string, options: { size: TerminalSize; isInteractive: boolean }): Promise<TerminalScreen | null> {
    const { loadLibrary, TerminalScreen } = await import("./screen");
    const library = await loadLibrary();
    if (this.isClosed) return null;
    let held = this.held.get(id);
    if (held === undefined) {
      if (!this.makeRoom()) return null;
      const screen = new TerminalScreen(library, { ...options, gapText: (bytes) => t().stream.droppedBytes(bytes) });
      held = { screen, users: 0 };
    }
    held.users += 1;
    this.held.delete(id);
    this.held.set(id, held);
    return held.screen;
  }

  /** The screen stays for a while, for those who scroll back. */
  release(id: string): void {
    const held = this.held.get(id);
    if (held !== undefined) held.users -= 1;
  }

  close(): void {
    this.isClosed = true;
    for (const { screen } of this.held.values()) screen.dispose();
    this.held.clear();
  }

  private makeRoom(): boolean {
    if (this.held.size < MAX_SCREENS) return true;
    for (const [id, { screen, users }] of this.held) {
      if (users > 0) continue;
      screen.dispose();
      this.held.delete(id);
      return true;
    }
    return false;
  }
}
