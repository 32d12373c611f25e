// When each entry of a recording is shown. Long pauses are cut, because nobody wants to watch a
// night go by.

/** The longest pause that a replay makes, at single speed. */
export const LONGEST_PAUSE_MS = 2000;

export class Timeline {
  /** How long after the beginning each entry is shown, in milliseconds. */
  private readonly offsets: number[] = [];
  private last: number | null = null;

  get length(): number {
    return this.offsets.length;
  }

  /** How long the whole recording takes at single speed. */
  get duration(): number {
    return this.offsets.at(-1) ?? 0;
  }

  /** Adds an entry; without a time, it is shown together with the one before. */
  add(at: number | null): void {
    const time = at === null || Number.isNaN(at) ? this.last : at;
    // Clocks may be set back; a replay never goes back.
    const pause = this.last === null || time === null ? 0 : Math.max(0, Math.min(time - this.last, LONGEST_PAUSE_MS));
    this.offsets.push(this.duration + pause);
    this.last = time;
  }

  offset(index: number): number {
    return this.offsets[index] ?? this.duration;
  }

  /** How many entries have been shown after so long. */
  countAt(position: number): number {
    let low = 0;
    let high = this.offsets.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.offsets[middle] ?? 0) <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
