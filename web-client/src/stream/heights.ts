// Heights of the items of a long list, most of them only estimated. A position is found in
// logarithmic time, so that a list of a hundred thousand items scrolls like a short one.

const FIRST_CAPACITY = 1024;

export class HeightIndex {
  /** The absolute index of the first item that the list has. */
  first = 0;
  /** The absolute index behind its last item. */
  end = 0;
  /** The absolute index of slot 0. Slots of items that were dropped have no height. */
  private base = 0;
  private heights = new Float64Array(FIRST_CAPACITY);
  /** A Fenwick tree of the heights; slot 0 is not used. */
  private tree = new Float64Array(FIRST_CAPACITY + 1);
  private sum = 0;

  /** All heights together. */
  get total(): number {
    return this.sum;
  }

  /** Makes the list hold the items from `first` up to `end`. New ones get their estimate. */
  setRange(first: number, end: number, estimate: (index: number) => number): void {
    if (first > this.end || end < this.end || first < this.first) this.clear(first);
    for (let index = this.first; index < first; index += 1) this.change(index, 0);
    this.first = first;
    if (end - this.base > this.heights.length) this.rebase(end);
    for (let index = this.end; index < end; index += 1) this.change(index, estimate(index));
    this.end = end;
  }

  height(index: number): number {
    return this.heights[index - this.base] ?? 0;
  }

  /** Sets what was measured; returns by how much it differs from what was believed. */
  set(index: number, height: number): number {
    if (index < this.first || index >= this.end) return 0;
    return this.change(index, height);
  }

  /** How far an item is from the top. */
  top(index: number): number {
    let sum = 0;
    for (let slot = Math.min(index, this.end) - this.base; slot > 0; slot -= slot & -slot) sum += this.tree[slot] ?? 0;
    return sum;
  }

  /** The item at a distance from the top; the first or the last one if it lies outside. */
  at(offset: number): number {
    let slot = 0;
    let left = offset;
    for (let step = 1 << (31 - Math.clz32(this.heights.length)); step > 0; step >>= 1) {
      const sum = this.tree[slot + step];
      if (sum !== undefined && sum <= left) {
        slot += step;
        left -= sum;
      }
    }
    return Math.max(this.first, Math.min(this.base + slot, this.end - 1));
  }

  private change(index: number, height: number): number {
    const place = index - this.base;
    const difference = height - (this.heights[place] ?? 0);
    if (difference === 0) return 0;
    this.heights[place] = height;
    this.sum += difference;
    for (let slot = place + 1; slot < this.tree.length; slot += slot & -slot) this.tree[slot] = (this.tree[slot] ?? 0) + difference;
    return difference;
  }

  private clear(first: number): void {
    this.first = this.end = this.base = first;
    this.heights.fill(0);
    this.tree.fill(0);
    this.sum = 0;
  }

  /** Makes room up to an item: gives the slots of dropped ones back, and grows if it must. */
  private rebase(end: number): void {
    const kept = this.heights.slice(this.first - this.base, this.end - this.base);
    let capacity = this.heights.length;
    // Half of it stays free, so that this is rarely needed.
    while (capacity < 2 * (end - this.first)) capacity *= 2;
    this.base = this.first;
    this.heights = new Float64Array(capacity);
    this.heights.set(kept);
    this.tree = new Float64Array(capacity + 1);
    this.sum = 0;
    for (let slot = 1; slot <= capacity; slot += 1) {
      const height = this.heights[slot - 1] ?? 0;
      this.sum += height;
      this.tree[slot] = (this.tree[slot] ?? 0) + height;
      const parent = slot + (slot & -slot);
      if (parent <= capacity) this.tree[parent] = (this.tree[parent] ?? 0) + (this.tree[slot] ?? 0);
    }
  }
}
