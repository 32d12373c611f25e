// Plays a recording: folds its entries into a view of its own, at the speed that somebody chose,
// and jumps to any place without holding up the page.

import { signal } from "@preact/signals";
import { parseServerMessage, View } from "../fold";
import { TerminalSizes } from "../terminal/sizes";
import type { Recording } from "./recording";

export const SPEEDS: readonly number[] = [1, 2, 4, 8, 16, 32];

/** How long entries are folded before the browser may draw. */
const SLICE_MS = 12;
const MAX_ITEMS = 100_000;

export class Player {
  view = new View({ maxItems: MAX_ITEMS });
  sizes = new TerminalSizes();
  /** Changes when the view has changed. */
  readonly tick = signal(0);
  /** Counts the views: going back starts again with an empty one. */
  readonly generation = signal(0);
  /** How long after the beginning it is, without the pauses that were cut. */
  readonly position = signal(0);
  /** How many entries are in the view. */
  readonly count = signal(0);
  readonly isPlaying = signal(false);
  readonly isSeeking = signal(false);
  readonly speed = signal(1);
  /** The time of the last entry in the view. */
  at: string | null = null;

  /** How many entries have been folded; `count` tells it to others once a slice is done. */
  private folded = 0;
  /** How many entries there were when each item of the stream appeared. */
  private marks: number[] = [];
  private wanted = 0;
  private isFolding = false;
  private frame: ReturnType<typeof setTimeout> | undefined;
  private lastFrame = 0;

  constructor(private readonly recording: Recording) {}

  close(): void {
    this.pause();
    this.wanted = this.folded;
  }

  play(): void {
    if (this.position.value >= this.recording.timeline.duration) this.seek(0);
    this.isPlaying.value = true;
    this.lastFrame = performance.now();
    this.schedule();
  }

  pause(): void {
    this.isPlaying.value = false;
    clearTimeout(this.frame);
  }

  /** Goes to a time after the beginning. */
  seek(position: number): void {
    const { timeline } = this.recording;
    this.position.value = Math.max(0, Math.min(position, timeline.duration));
    this.foldUpTo(timeline.countAt(this.position.value));
  }

  /** Goes on to the next item of the stream. */
  stepForward(): void {
    this.pause();
    const items = this.itemCount();
    while (this.folded < this.recording.length && this.itemCount() === items) this.foldNext();
    this.arriveAt(this.folded);
  }

  /** Goes back to before the last item of the stream. */
  stepBack(): void {
    this.pause();
    const last = this.marks.at(-1);
    this.arriveAt(last === undefined ? 0 : last - 1);
  }

  /** Advances while it plays; called by itself, and by tests with a time of their own. */
  advance(milliseconds: number): void {
    if (this.isSeeking.value) return;
    const { timeline } = this.recording;
    this.seek(this.position.value + milliseconds * this.speed.value);
    if (this.position.value >= timeline.duration && this.wanted >= this.recording.length) this.pause();
  }

  private schedule(): void {
    this.frame = setTimeout(() => {
      const now = performance.now();
      // A page that was hidden does not catch up.
      this.advance(Math.min(now - this.lastFrame, 100));
      this.lastFrame = now;
      if (this.isPlaying.value) this.schedule();
    }, 16);
  }

  private itemCount(): number {
    return this.view.stream.dropped + this.view.stream.items.length;
  }

  private arriveAt(count: number): void {
    this.position.value = count === 0 ? 0 : this.recording.timeline.offset(count - 1);
    this.foldUpTo(count);
  }

  private foldUpTo(count: number): void {
    this.wanted = count;
    if (count < this.folded) this.startAgain();
    if (!this.isFolding) this.foldSlice();
  }

  private startAgain(): void {
    this.view = new View({ maxItems: MAX_ITEMS });
    this.sizes = new TerminalSizes();
    this.marks = [];
    this.folded = 0;
    this.at = null;
    this.generation.value += 1;
  }

  private foldSlice(): void {
    const until = performance.now() + SLICE_MS;
    // Looking at the clock costs more than folding, so several are folded per look.
    while (this.folded < this.wanted && (this.folded % 64 !== 0 || performance.now() < until)) this.foldNext();
    this.count.value = this.folded;
    this.tick.value += 1;
    this.isFolding = this.folded < this.wanted;
    this.isSeeking.value = this.isFolding;
    if (this.isFolding) setTimeout(() => this.foldSlice(), 0);
  }

  private foldNext(): void {
    const envelope = parseServerMessage(this.recording.text(this.folded) ?? "");
    this.folded += 1;
    if (envelope === null) return;
    const items = this.itemCount();
    this.view.fold(envelope);
    this.sizes.note(envelope);
    this.at = envelope.ts ?? this.at;
    if (this.itemCount() !== items) this.marks.push(this.folded);
  }
}
