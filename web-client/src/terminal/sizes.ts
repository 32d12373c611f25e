// The sizes that drivers gave to the screens of their interactive commands, so that everybody
// draws the same screen.

import type { TerminalSize } from "@protocol";
import type { Envelope } from "../fold";

/** More interactive commands than this never run at a time; the oldest are forgotten. */
const MAX_SIZES = 64;

export class TerminalSizes {
  private readonly sizes = new Map<string, TerminalSize>();

  note(envelope: Envelope): void {
    if (envelope.type !== "tool.input" || envelope.payload.resize === undefined) return;
    const { tool_proposal, resize } = envelope.payload;
    this.sizes.delete(tool_proposal);
    this.sizes.set(tool_proposal, resize);
    if (this.sizes.size <= MAX_SIZES) return;
    for (const oldest of this.sizes.keys()) {
      this.sizes.delete(oldest);
      break;
    }
  }

  get(proposal: string): TerminalSize | undefined {
    return this.sizes.get(proposal);
  }
}
