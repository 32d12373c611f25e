// Draws a screen into the page and keeps its end in sight while it grows.

import { Component, createRef } from "preact";
import type { TerminalSize } from "@protocol";
import { ScreenPainter } from "./painter";
import type { Labels } from "./painter";
import type { TerminalScreen } from "./screen";

interface Props {
  screen: TerminalScreen;
  label: string;
  labels: Labels | null;
  isRunning: boolean;
  /** The most rows that are seen at a time. */
  maxRows: number;
  /** Whether keys go to it, so that the cursor is drawn. */
  hasCursor?: boolean;
  keepsCursorSeen?: boolean;
  /** Told how many columns and rows there is room for. */
  onRoom?(room: TerminalSize): void;
  onPress?(): void;
}

interface Measures {
  rowHeight: number;
  columnWidth: number;
}

const PROBE_CHARACTERS = 50;
const NEAR_END = 4;

export class TerminalView extends Component<Props> {
  private readonly scroll = createRef<HTMLDivElement>();
  private readonly space = createRef<HTMLDivElement>();
  private readonly rows = createRef<HTMLDivElement>();
  private painter: ScreenPainter | null = null;
  private measures: Measures | null = null;
  private observer: ResizeObserver | null = null;
  private stopWatching: () => void = () => undefined;
  private frame = 0;
  private isFollowing = true;
  private lastSet = -1;
  private toldRoom = "";

  override componentDidMount(): void {
    this.begin();
    this.observer = new ResizeObserver(() => {
      this.measures = null;
      this.schedule();
    });
    if (this.scroll.current !== null) this.observer.observe(this.scroll.current);
  }

  override componentDidUpdate(before: Props): void {
    if (before.screen !== this.props.screen) {
      this.stopWatching();
      this.begin();
    } else this.schedule();
  }

  override componentWillUnmount(): void {
    this.stopWatching();
    this.observer?.disconnect();
    cancelAnimationFrame(this.frame);
  }

  private begin(): void {
    const { screen, labels } = this.props;
    if (this.rows.current === null) return;
    this.rows.current.replaceChildren();
    this.painter = new ScreenPainter(screen, this.rows.current, labels);
    this.stopWatching = screen.watch(this.schedule);
    this.paint();
  }

  private readonly schedule = (): void => {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  };

  private paint(): void {
    const [scroll, space, rows] = [this.scroll.current, this.space.current, this.rows.current];
    if (scroll === null || space === null || rows === null || this.painter === null) return;
    const { rowHeight } = this.measured(rows);
    if (rowHeight === 0) return;
    const length = this.painter.rowCount(this.props.isRunning);
    const seenRows = Math.max(1, Math.min(length, this.props.maxRows));
    scroll.style.height = `${seenRows * rowHeight + scroll.offsetHeight - scroll.clientHeight}px`;
    space.style.height = `${length * rowHeight}px`;
    const end = (length - seenRows) * rowHeight;
    const top = this.isFollowing ? end : Math.min(scroll.scrollTop, end);
    if (Math.abs(scroll.scrollTop - top) >= 1) {
      scroll.scrollTop = top;
      this.lastSet = scroll.scrollTop;
    }
    const from = Math.floor(top / rowHeight);
    rows.style.transform = `translateY(${from * rowHeight}px)`;
    this.painter.paint(from, Math.min(length, from + seenRows + 1), this.props.hasCursor === true);
    // Whoever types sees what they type, also above a touch keyboard.
    if (this.props.keepsCursorSeen === true) rows.querySelector(".cursor")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  private measured(rows: HTMLElement): Measures {
    this.measures ??= this.measure(rows);
    return this.measures;
  }

  private measure(rows: HTMLElement): Measures {
    const probe = document.createElement("span");
    probe.className = "terminal-probe";
    probe.textContent = "W".repeat(PROBE_CHARACTERS);
    rows.append(probe);
    const { width, height } = probe.getBoundingClientRect();
    probe.remove();
    const measures = { rowHeight: height, columnWidth: width / PROBE_CHARACTERS };
    if (height > 0) this.tellRoom(measures);
    return measures;
  }

  private tellRoom({ columnWidth }: Measures): void {
    const scroll = this.scroll.current;
    if (scroll === null || this.props.onRoom === undefined) return;
    const style = getComputedStyle(scroll);
    const width = scroll.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight);
    const margin = this.props.labels === null ? 0 : Math.max(...Object.values(this.props.labels).map((word) => word.length)) + 1;
    const room = { columns: Math.max(20, Math.floor(width / columnWidth) - margin), rows: this.props.maxRows };
    if (this.toldRoom === JSON.stringify(room)) return;
    this.toldRoom = JSON.stringify(room);
    this.props.onRoom(room);
  }

  private readonly onScroll = (): void => {
    const scroll = this.scroll.current;
    if (scroll === null || Math.abs(scroll.scrollTop - this.lastSet) < 1) return;
    this.lastSet = -1;
    this.isFollowing = scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - NEAR_END;
    this.paint();
  };

  private readonly onClick = (): void => {
    // Whoever selects text wants to copy it, not to type.
    if (getSelection()?.isCollapsed !== false) this.props.onPress?.();
  };

  override render() {
    return (
      <div class="terminal-scroll" ref={this.scroll} role="group" aria-label={this.props.label} tabIndex={0} onScroll={this.onScroll} onClick={this.onClick}>
        <div class="terminal-space" ref={this.space}>
          <div class={this.props.labels === null ? "terminal-rows" : "terminal-rows with-margin"} ref={this.rows} dir="ltr" />
        </div>
      </div>
    );
  }
}
