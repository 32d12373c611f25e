// Tells the others that somebody types, but not what: it is sent when it is meant to be read.

import type { SessionConnection } from "../net/connection";

/** Whoever types nothing for so long is not typing any more. */
const PAUSE_MS = 8000;
/** Whoever joins meanwhile hears of it too. */
const REPEAT_MS = 4000;
const TYPING = "…";

export class DraftNotice {
  private toldAt: number | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly connection: SessionConnection) {}

  /** Called with every change of what is typed. */
  typed(text: string): void {
    const isMessage = text.trim() !== "" && !/^\s*[!/]/.test(text);
    if (!isMessage) return this.stop();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.stop(), PAUSE_MS);
    const now = Date.now();
    if ((this.toldAt === null || now - this.toldAt > REPEAT_MS) && this.tell(TYPING)) this.toldAt = now;
  }

  stop(): void {
    clearTimeout(this.timer);
    if (this.toldAt !== null) this.tell("");
    this.toldAt = null;
  }

  private tell(content: string): boolean {
    const { me } = this.connection.view;
    if (me === null || !me.may_prompt) return false;
    return this.connection.sendNow("prompt.draft", { content, contributors: [me.participant] });
  }
}
