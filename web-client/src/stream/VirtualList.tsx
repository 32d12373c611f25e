// A list of which only what is seen is in the document. Heights are measured when items appear,
// and nothing jumps when they turn out to be others than estimated.

import { Component, createRef } from "preact";
import type { ComponentChildren } from "preact";
import { Scroller } from "./scroller";
import type { Range } from "./scroller";

/** How far beyond the edges items are kept ready, so that scrolling shows no gaps. */
const OVERSCAN = 600;
/** Drawing again after measuring ends by itself; this is in case it does not. */
const MAX_ROUNDS = 8;

interface Props {
  label: string;
  /** The absolute index of the first item; grows when old ones are dropped. */
  first: number;
  /** The index behind the last item. */
  end: number;
  estimate(index: number): number;
  render(index: number): ComponentChildren;
  /** Drawn above the first item. */
  header?: ComponentChildren;
  /** Called when the end begins or ceases to be followed. */
  onFollowing?(isFollowing: boolean): void;
  class?: string;
}

export class VirtualList extends Component<Props> {
  private readonly scroller = new Scroller();
  private readonly outer = createRef<HTMLDivElement>();
  private readonly inner = createRef<HTMLDivElement>();
  private readonly elements = new Map<number, HTMLElement>();
  private readonly unobserved = new Set<HTMLElement>();
  private observer: ResizeObserver | null = null;
  private drawn: Range = { from: 0, to: 0 };
  /** The item that has the focus stays in the document, or the focus would be lost. */
  private focused: number | null = null;
  private lastSet = -1;
  private wasFollowing = true;
  private rounds = 0;
  private observeScheduled = false;

  follow(): void {
    this.scroller.follow();
    this.forceUpdate();
  }

  override componentDidMount(): void {
    // Sizes also change without us: a folded text opens, the window gets narrower.
    this.observer = new ResizeObserver(() => this.settle());
    if (this.outer.current !== null) this.observer.observe(this.outer.current);
    for (const element of this.elements.values()) this.observer.observe(element);
    this.unobserved.clear();
    this.settle();
  }

  override componentDidUpdate(): void {
    this.settle();
  }

  override componentWillUnmount(): void {
    this.observer?.disconnect();
    this.observer = null;
  }

  add(index: number, element: HTMLElement): void {
    this.elements.set(index, element);
    this.unobserved.add(element);
    if (this.observeScheduled || this.observer === null) return;
    this.observeScheduled = true;
    // An element that is observed while sizes are being told is told about one frame too late,
    // which browsers report as an error. Its first size is measured anyway.
    requestAnimationFrame(() => {
      this.observeScheduled = false;
      for (const fresh of this.unobserved) this.observer?.observe(fresh);
      this.unobserved.clear();
    });
  }

  remove(index: number, element: HTMLElement): void {
    if (this.elements.get(index) === element) this.elements.delete(index);
    this.unobserved.delete(element);
    this.observer?.unobserve(element);
  }

  /** Measures what is drawn, puts everything in its place, and draws more if that uncovered some. */
  private settle(): void {
    const { outer, inner, scroller } = this;
    if (outer.current === null || inner.current === null) return;
    scroller.viewport = outer.current.clientHeight;
    for (const [index, element] of this.elements) scroller.heights.set(index, element.getBoundingClientRect().height);
    inner.current.style.height = `${scroller.heights.total}px`;
    for (const [index, element] of this.elements) element.style.transform = `translateY(${scroller.heights.top(index)}px)`;
    this.scroll(outer.current);
    this.tellFollowing();
    const seen = scroller.range(0);
    const isCovered = seen.from >= this.drawn.from && seen.to <= this.drawn.to;
    if (isCovered || this.rounds >= MAX_ROUNDS) {
      this.rounds = 0;
    } else {
      this.rounds += 1;
      this.forceUpdate();
    }
  }

  private scroll(outer: HTMLElement): void {
    const position = this.headerHeight() + this.scroller.position;
    const wanted = this.scroller.isFollowing ? outer.scrollHeight - outer.clientHeight : position;
    if (Math.abs(outer.scrollTop - wanted) < 1) return;
    outer.scrollTop = wanted;
    this.lastSet = outer.scrollTop;
  }

  private headerHeight(): number {
    return this.inner.current?.offsetTop ?? 0;
  }

  private readonly onScroll = (): void => {
    const outer = this.outer.current;
    if (outer === null || Math.abs(outer.scrollTop - this.lastSet) < 1) return;
    this.lastSet = -1;
    this.scroller.scrolledTo(outer.scrollTop - this.headerHeight());
    this.tellFollowing();
    const seen = this.scroller.range(OVERSCAN / 3);
    if (seen.from < this.drawn.from || seen.to > this.drawn.to) this.forceUpdate();
  };

  private tellFollowing(): void {
    const { isFollowing } = this.scroller;
    if (isFollowing === this.wasFollowing) return;
    this.wasFollowing = isFollowing;
    this.props.onFollowing?.(isFollowing);
  }

  private readonly onFocusIn = (event: FocusEvent): void => {
    this.focused = indexOf(event.target);
  };

  private readonly onFocusOut = (): void => {
    this.focused = null;
  };

  private readonly onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const target = event.target as HTMLElement;
    const isItem = target.dataset.index !== undefined;
    if (!isItem && target !== this.outer.current) return;
    if (event.key === "End") this.scroller.follow();
    else if (event.key === "Home") this.scroller.goTo(this.props.first);
    else if (isItem && event.key === "PageDown") return this.focusItem(event, Number(target.dataset.index) + 1);
    else if (isItem && event.key === "PageUp") return this.focusItem(event, Number(target.dataset.index) - 1);
    else return;
    event.preventDefault();
    this.forceUpdate();
  };

  /** Moves from item to item, as screen readers expect of a feed. */
  private focusItem(event: Event, index: number): void {
    event.preventDefault();
    if (index < this.props.first || index >= this.props.end) return;
    this.scroller.reveal(index);
    this.focused = index;
    this.forceUpdate(() => this.elements.get(index)?.focus({ preventScroll: true }));
  }

  private indexes(): number[] {
    const { from, to } = this.drawn;
    const indexes = Array.from({ length: to - from }, (_, place) => from + place);
    const { focused } = this;
    const { first, end } = this.props;
    if (focused !== null && focused >= first && focused < end && (focused < from || focused >= to)) indexes.push(focused);
    return indexes;
  }

  override render() {
    const { first, end, estimate, label, render } = this.props;
    this.scroller.heights.setRange(first, end, estimate);
    this.drawn = this.scroller.range(OVERSCAN);
    return (
      <div
        class={`virtual-list ${this.props.class ?? ""}`}
        ref={this.outer}
        // A feed without entries is an error to screen readers.
        role={end > first ? "feed" : "region"}
        aria-label={label}
        tabIndex={0}
        onScroll={this.onScroll}
        onKeyDown={this.onKeyDown}
        onFocusIn={this.onFocusIn}
        onFocusOut={this.onFocusOut}
      >
        {this.props.header}
        <div class="virtual-space" role="presentation" ref={this.inner}>
          {this.indexes().map((index) => (
            <Item key={index} index={index} total={end} list={this}>
              {render(index)}
            </Item>
          ))}
        </div>
      </div>
    );
  }
}

class Item extends Component<{ index: number; total: number; list: VirtualList; children?: ComponentChildren }> {
  private readonly element = createRef<HTMLElement>();

  override componentDidMount(): void {
    if (this.element.current !== null) this.props.list.add(this.props.index, this.element.current);
  }

  override componentWillUnmount(): void {
    if (this.element.current !== null) this.props.list.remove(this.props.index, this.element.current);
  }

  override render() {
    const { index, total } = this.props;
    return (
      <article class="virtual-item" ref={this.element} data-index={index} tabIndex={-1} aria-posinset={index + 1} aria-setsize={total}>
        {this.props.children}
      </article>
    );
  }
}

function indexOf(target: EventTarget | null): number | null {
  const item = target instanceof Element ? target.closest<HTMLElement>("[data-index]") : null;
  return item?.dataset.index === undefined ? null : Number(item.dataset.index);
}
