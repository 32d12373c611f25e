// Where a long list is scrolled to: at its end, following what is added, or at an item that keeps
// its place on the screen while others grow, shrink or are dropped.

import { HeightIndex } from "./heights";

/** So near to the end counts as being there; positions of scrolled elements are rounded. */
const NEAR_END = 4;

export interface Range {
  from: number;
  to: number;
}

export class Scroller {
  readonly heights = new HeightIndex();
  /** The height of what is seen. */
  viewport = 0;
  private anchor: { index: number; offset: number } | null = null;

  get isFollowing(): boolean {
    return this.anchor === null;
  }

  /** How far the list has to be scrolled. */
  get position(): number {
    const { heights, anchor } = this;
    const last = Math.max(0, heights.total - this.viewport);
    if (anchor === null) return last;
    if (anchor.index < heights.first) return 0;
    return Math.max(0, Math.min(last, heights.top(anchor.index) + anchor.offset));
  }

  /** Somebody scrolled: the item that is seen first stays where it is, or the end is followed. */
  scrolledTo(position: number): void {
    if (position + this.viewport >= this.heights.total - NEAR_END) return this.follow();
    const index = this.heights.at(position);
    this.anchor = { index, offset: position - this.heights.top(index) };
  }

  follow(): void {
    this.anchor = null;
  }

  /** Brings an item to the top of what is seen. */
  goTo(index: number): void {
    this.anchor = { index, offset: 0 };
  }

  /** Brings an item into what is seen, if it is not. */
  reveal(index: number): void {
    const { heights, position } = this;
    const top = heights.top(index);
    if (top < position) return this.goTo(index);
    const below = top + heights.height(index) - position - this.viewport;
    if (below > 0) this.scrolledTo(Math.min(position + below, top));
  }

  /** The items that are seen, and those within a distance of them. */
  range(distance: number): Range {
    const { heights, position } = this;
    if (heights.first === heights.end) return { from: heights.first, to: heights.first };
    const from = heights.at(position - distance);
    return { from, to: heights.at(position + this.viewport + distance) + 1 };
  }
}
