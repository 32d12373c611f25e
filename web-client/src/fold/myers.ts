// How one list of numbers becomes another, by Myers' algorithm in linear space.
//
// Every screen shows the same hunks, so where several answers are equally short, and where a search
// is given up because it costs too much, this decides as the other clients do.

/** One step; `length` counts what is equal, what is deleted of the old, or inserted of the new. */
export interface Step {
  kind: "equal" | "delete" | "insert";
  old: number;
  new: number;
  length: number;
}

type Numbers = ArrayLike<number>;

interface Span {
  start: number;
  end: number;
}

/** The cost from which on a long run of equal lines is a good enough place to split. */
const SNAKE_MIN_COST = 256;
const MIN_SNAKE = 20;
const MIN_PROGRESS_FACTOR = 4;
/** The cost at which a search is given up, at least; otherwise the root of the number of lines. */
const MIN_GIVE_UP_COST = 256;

/** A few lines against many are compared exactly. */
const MAX_SMALL_SIDE = 64;
const MIN_LARGE_SIDE = 512;

/** Lists that are at least so long lose the lines that only confuse the search. */
const MIN_REDUCED_LENGTH = 512;

/** The steps from one list to another, in order. */
export function steps(old: Numbers, fresh: Numbers): Step[] {
  const found: Step[] = [];
  const [whole, wholeNew] = [spanOf(old), spanOf(fresh)];
  const reduced = isLongAndUnlike(old, fresh) ? reduce(old, fresh) : null;
  if (reduced === null) {
    new Search(old, fresh, found).compare(whole, wholeNew, true);
    return found;
  }
  const anchors: Step[] = [];
  const search = new Search(reduced.old.values, reduced.fresh.values, anchors);
  search.compare(spanOf(reduced.old.values), spanOf(reduced.fresh.values), true);
  return widened(anchors, reduced, old.length, fresh.length);
}

function spanOf(list: Numbers): Span {
  return { start: 0, end: list.length };
}

function lengthOf(span: Span): number {
  return span.end - span.start;
}

interface Split {
  old: number;
  new: number;
  /** Whether the search in each part may be given up. */
  mayGiveUpLeft: boolean;
  mayGiveUpRight: boolean;
}

interface Candidate {
  old: number;
  new: number;
  progress: number;
  isForward: boolean;
}

class Search {
  private readonly forward: Int32Array;
  private readonly backward: Int32Array;
  /** The place of diagonal 0 in both. */
  private readonly middle: number;

  constructor(
    private readonly old: Numbers,
    private readonly fresh: Numbers,
    private readonly found: Step[],
  ) {
    this.middle = maxCost(old.length, fresh.length);
    this.forward = new Int32Array(2 * this.middle + 2);
    this.backward = new Int32Array(2 * this.middle + 2);
  }

  /** Adds the steps between two parts. */
  compare(oldSpan: Span, newSpan: Span, mayGiveUp: boolean): void {
    const [a, b] = [{ ...oldSpan }, { ...newSpan }];
    const prefix = this.prefix(a.start, a.end, b.start, b.end);
    this.add("equal", a.start, b.start, prefix);
    a.start += prefix;
    b.start += prefix;
    const suffix = this.suffix(a.start, a.end, b.start, b.end);
    a.end -= suffix;
    b.end -= suffix;
    while (this.skipToAnchor(a, b)) {
      // Each anchor moves the starts on.
    }
    if (lengthOf(b) === 0 || lengthOf(a) === 0) this.replace(a, b);
    else if (this.isSmallAgainstLarge(a, b)) this.compareSmall(a, b);
    else this.divide(a, b, mayGiveUp);
    this.add("equal", a.end, b.end, suffix);
  }

  private divide(a: Span, b: Span, mayGiveUp: boolean): void {
    const split = this.findSplit(a, b, mayGiveUp);
    if (split === null) {
      this.replace(a, b);
      return;
    }
    this.compare({ start: a.start, end: split.old }, { start: b.start, end: split.new }, split.mayGiveUpLeft);
    this.compare({ start: split.old, end: a.end }, { start: split.new, end: b.end }, split.mayGiveUpRight);
  }

  private add(kind: Step["kind"], old: number, fresh: number, length: number): void {
    if (length > 0) this.found.push({ kind, old, new: fresh, length });
  }

  private replace(a: Span, b: Span): void {
    this.add("delete", a.start, b.start, lengthOf(a));
    this.add("insert", a.end, b.start, lengthOf(b));
  }

  private prefix(oldStart: number, oldEnd: number, newStart: number, newEnd: number): number {
    const most = Math.min(oldEnd - oldStart, newEnd - newStart);
    let length = 0;
    while (length < most && this.old[oldStart + length] === this.fresh[newStart + length]) length += 1;
    return length;
  }

  private suffix(oldStart: number, oldEnd: number, newStart: number, newEnd: number): number {
    const most = Math.min(oldEnd - oldStart, newEnd - newStart);
    let length = 0;
    while (length < most && this.old[oldEnd - 1 - length] === this.fresh[newEnd - 1 - length]) length += 1;
    return length;
  }

  /**
   * Where one part is much longer than the other, skips a few of its lines if a long equal run
   * follows; says whether it did.
   */
  private skipToAnchor(a: Span, b: Span): boolean {
    const [maxSkip, minRun] = [4, 96];
    const [small, large] = [Math.min(lengthOf(a), lengthOf(b)), Math.max(lengthOf(a), lengthOf(b))];
    if (small <= minRun || large < small * 2) return false;
    const skipsNew = lengthOf(b) > lengthOf(a);
    let [best, bestRun] = [0, 0];
    for (let skip = 1; skip <= maxSkip && bestRun < minRun * 8; skip += 1) {
      const [oldStart, newStart] = skipsNew ? [a.start, b.start + skip] : [a.start + skip, b.start];
      const run = this.prefix(oldStart, a.end, newStart, b.end);
      if (run >= minRun && run > bestRun) [best, bestRun] = [skip, run];
    }
    if (best === 0) return false;
    this.add(skipsNew ? "insert" : "delete", a.start, b.start, best);
    a.start += skipsNew ? 0 : best;
    b.start += skipsNew ? best : 0;
    this.add("equal", a.start, b.start, bestRun);
    a.start += bestRun;
    b.start += bestRun;
    return true;
  }

  private isSmallAgainstLarge(a: Span, b: Span): boolean {
    const [small, large] = [Math.min(lengthOf(a), lengthOf(b)), Math.max(lengthOf(a), lengthOf(b))];
    return small <= MAX_SMALL_SIDE && large >= MIN_LARGE_SIDE;
  }

  /** Compares a few lines, the rows, with many, the columns, by their longest common sequence. */
  private compareSmall(a: Span, b: Span): void {
    const isOldSmall = lengthOf(a) <= lengthOf(b);
    const [rowSpan, columnSpan] = isOldSmall ? [a, b] : [b, a];
    const [rows, columns] = [lengthOf(rowSpan), lengthOf(columnSpan)];
    const width = columns + 1;
    const isEqual = (row: number, column: number) => {
      const [old, fresh] = isOldSmall ? [row, column] : [column, row];
      return this.old[a.start + old] === this.fresh[b.start + fresh];
    };
    const common = commonLengths(rows, columns, isEqual);
    const at = (row: number, column: number) => common[row * width + column] as number;
    const choice = (row: number, column: number): "equal" | "row" | "column" => {
      if (isEqual(row, column) && at(row, column) === at(row + 1, column + 1) + 1) return "equal";
      return at(row + 1, column) >= at(row, column + 1) ? "row" : "column";
    };
    let [row, column] = [0, 0];
    while (row < rows && column < columns) {
      const chosen = choice(row, column);
      const [fromRow, fromColumn] = [row, column];
      while (row < rows && column < columns && choice(row, column) === chosen) {
        row += chosen === "column" ? 0 : 1;
        column += chosen === "row" ? 0 : 1;
      }
      const [old, fresh] = isOldSmall ? [fromRow, fromColumn] : [fromColumn, fromRow];
      const isOldStep = (chosen === "row") === isOldSmall;
      const kind = chosen === "equal" ? "equal" : isOldStep ? "delete" : "insert";
      this.add(kind, a.start + old, b.start + fresh, Math.max(row - fromRow, column - fromColumn));
    }
    const [old, fresh] = isOldSmall ? [row, column] : [column, row];
    this.replace({ start: a.start + old, end: a.end }, { start: b.start + fresh, end: b.end });
  }

  /**
   * A point on a shortest path, searched from both ends at once, or a good enough one if that costs
   * too much; null if there is none.
   */
  private findSplit(a: Span, b: Span, mayGiveUp: boolean): Split | null {
    const [n, m] = [lengthOf(a), lengthOf(b)];
    const giveUpCost = mayGiveUp ? Math.max(Math.floor(Math.sqrt(n + m)), MIN_GIVE_UP_COST) : Infinity;
    this.forward[this.middle + 1] = 0;
    this.backward[this.middle + 1] = 0;
    for (let cost = 0; cost < maxCost(n, m); cost += 1) {
      const round = new Round(n, m, cost, mayGiveUp && cost > SNAKE_MIN_COST, cost >= giveUpCost);
      const met = this.advanceForward(a, b, round) ?? this.advanceBackward(a, b, round);
      if (met !== null) return { ...met, mayGiveUpLeft: false, mayGiveUpRight: false };
      const candidate = round.good ?? (cost >= giveUpCost ? round.furthest() : undefined);
      if (candidate === null) return null;
      if (candidate !== undefined) {
        const { isForward } = candidate;
        const [old, fresh] = [a.start + candidate.old, b.start + candidate.new];
        return { old, new: fresh, mayGiveUpLeft: !isForward, mayGiveUpRight: isForward };
      }
    }
    return null;
  }

  private advanceForward(a: Span, b: Span, round: Round): { old: number; new: number } | null {
    const { n, m, cost } = round;
    const delta = n - m;
    for (let k = cost; k >= -cost; k -= 2) {
      const startX = this.reach(this.forward, k, cost);
      const startY = startX - k;
      const isInside = startX < n && startY < m;
      const run = isInside ? this.prefix(a.start + startX, a.end, b.start + startY, b.end) : 0;
      const x = startX + run;
      this.forward[this.middle + k] = x;
      const mayMeet = delta % 2 !== 0 && Math.abs(k - delta) <= cost - 1;
      if (mayMeet && x + (this.backward[this.middle - (k - delta)] as number) >= n) {
        return { old: a.start + startX, new: b.start + startY };
      }
      round.noteForward(k, startX, x, run);
    }
    return null;
  }

  private advanceBackward(a: Span, b: Span, round: Round): { old: number; new: number } | null {
    const { n, m, cost } = round;
    const delta = n - m;
    for (let k = cost; k >= -cost; k -= 2) {
      const startX = this.reach(this.backward, k, cost);
      const startY = startX - k;
      const isInside = startX < n && startY < m;
      const run = isInside ? this.suffix(a.start, a.end - startX, b.start, b.end - startY) : 0;
      const x = startX + run;
      this.backward[this.middle + k] = x;
      const mayMeet = delta % 2 === 0 && Math.abs(k - delta) <= cost;
      if (mayMeet && x + (this.forward[this.middle - (k - delta)] as number) >= n) {
        return { old: a.end - x, new: b.end - (x - k) };
      }
      round.noteBackward(k, x, run);
    }
    return null;
  }

  /** How far a path of this cost comes on a diagonal before it follows equal lines. */
  private reach(paths: Int32Array, k: number, cost: number): number {
    const below = paths[this.middle + k + 1] as number;
    if (k === -cost) return below;
    const above = paths[this.middle + k - 1] as number;
    return k !== cost && above < below ? below : above + 1;
  }
}

function maxCost(n: number, m: number): number {
  return Math.ceil((n + m) / 2) + 1;
}

/** The best places to split that one round of the search has seen. */
class Round {
  good: Candidate | undefined;
  private bestForward: Candidate | undefined;
  private bestBackward: Candidate | undefined;

  constructor(
    readonly n: number,
    readonly m: number,
    readonly cost: number,
    private readonly wantsSnakes: boolean,
    private readonly isLast: boolean,
  ) {}

  noteForward(k: number, startX: number, x: number, run: number): void {
    if (this.isLast) {
      const point = this.onDiagonal(x, k);
      if (point !== null && this.isInterior(point.old, point.new)) {
        this.bestForward = better(this.bestForward, { ...point, isForward: true });
      }
    }
    const startY = startX - k;
    if (!this.wantsSnakes || run < MIN_SNAKE || x >= this.n || startY >= this.m) return;
    const progress = Math.max(0, x + startY - Math.abs(k));
    if (progress > MIN_PROGRESS_FACTOR * this.cost && this.isInterior(startX, startY)) {
      this.good = better(this.good, { old: startX, new: startY, progress, isForward: true });
    }
  }

  noteBackward(k: number, x: number, run: number): void {
    if (this.isLast) {
      const point = this.onDiagonal(x, k);
      const [old, fresh] = point === null ? [0, 0] : [this.n - point.old, this.m - point.new];
      if (point !== null && this.isInterior(old, fresh)) {
        const { progress } = point;
        this.bestBackward = better(this.bestBackward, { old, new: fresh, progress, isForward: false });
      }
    }
    const y = x - k;
    if (!this.wantsSnakes || run < MIN_SNAKE || x >= this.n || y >= this.m) return;
    const progress = Math.max(0, x + y - Math.abs(k));
    if (progress > MIN_PROGRESS_FACTOR * this.cost) {
      this.good = better(this.good, { old: this.n - x, new: this.m - y, progress, isForward: false });
    }
  }

  /** The place that is furthest from the end where its search began; null if there is none. */
  furthest(): Candidate | null {
    const [forward, backward] = [this.bestForward, this.bestBackward];
    if (forward === undefined || backward === undefined) return forward ?? backward ?? null;
    return forward.progress > backward.progress ? forward : backward;
  }

  private isInterior(old: number, fresh: number): boolean {
    return (old !== 0 || fresh !== 0) && (old !== this.n || fresh !== this.m);
  }

  /** The nearest point on a diagonal that is inside both lists; null if there is none. */
  private onDiagonal(x: number, k: number): { old: number; new: number; progress: number } | null {
    const [least, most] = [Math.max(k, 0), Math.min(this.n, this.m + k)];
    if (least > most) return null;
    const old = Math.min(Math.max(x, least), most);
    return { old, new: old - k, progress: old + old - k };
  }
}

function better(best: Candidate | undefined, candidate: Candidate): Candidate {
  return best === undefined || candidate.progress > best.progress ? candidate : best;
}

/** The lengths of the longest common sequences of all ends of rows and columns. */
function commonLengths(rows: number, columns: number, isEqual: (row: number, column: number) => boolean): Uint8Array {
  const width = columns + 1;
  const common = new Uint8Array((rows + 1) * width);
  for (let row = rows - 1; row >= 0; row -= 1) {
    for (let column = columns - 1; column >= 0; column -= 1) {
      const place = row * width + column;
      const [below, right] = [common[place + width] as number, common[place + 1] as number];
      common[place] = isEqual(row, column) ? (common[place + width + 1] as number) + 1 : Math.max(below, right);
    }
  }
  return common;
}

interface KeptLines {
  values: number[];
  /** Where each of them is in the whole list. */
  indexes: number[];
}

interface Reduced {
  old: KeptLines;
  fresh: KeptLines;
}

/** Whether both lists are long and neither seems to be the other with a few lines at an end. */
function isLongAndUnlike(old: Numbers, fresh: Numbers): boolean {
  const shorter = Math.min(old.length, fresh.length);
  if (shorter < MIN_REDUCED_LENGTH) return false;
  const [oldEnd, newEnd] = [old.length - 1, fresh.length - 1];
  for (let skip = 0; skip <= 8; skip += 1) {
    if (fresh[skip] === old[0] || fresh[0] === old[skip]) return false;
    if (fresh[newEnd - skip] === old[oldEnd] || fresh[newEnd] === old[oldEnd - skip]) return false;
  }
  return true;
}

/** Leaves out lines that the other list lacks, and common ones among them; null if there are none. */
function reduce(old: Numbers, fresh: Numbers): Reduced | null {
  const reduced = { old: keptLines(old, counted(fresh)), fresh: keptLines(fresh, counted(old)) };
  const isWhole = reduced.old.values.length === old.length && reduced.fresh.values.length === fresh.length;
  return isWhole ? null : reduced;
}

function counted(list: Numbers): Map<number, number> {
  const counts = new Map<number, number>();
  for (let at = 0; at < list.length; at += 1) {
    const value = list[at] as number;
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return counts;
}

type LineUse = "keep" | "discard" | "perhaps";

function keptLines(list: Numbers, otherCounts: Map<number, number>): KeptLines {
  const frequent = Math.min(Math.max(Math.floor(Math.sqrt(list.length)), 1), 1024);
  const uses = Array.from(list, (value): LineUse => {
    const inOther = otherCounts.get(value) ?? 0;
    return inOther === 0 ? "discard" : inOther < frequent ? "keep" : "perhaps";
  });
  const kept: KeptLines = { values: [], indexes: [] };
  uses.forEach((use, index) => {
    if (use === "discard" || (use === "perhaps" && isConfusing(uses, index))) return;
    kept.values.push(list[index] as number);
    kept.indexes.push(index);
  });
  return kept;
}

/** Whether a frequent line stands among many that are left out. */
function isConfusing(uses: LineUse[], index: number): boolean {
  const [left, right] = [neighbours(uses, index, -1), neighbours(uses, index, 1)];
  if (left.discarded === 0 || right.discarded === 0) return false;
  const frequent = left.frequent + right.frequent + 1;
  return frequent * 4 < frequent + left.discarded + right.discarded;
}

function neighbours(uses: LineUse[], index: number, direction: 1 | -1): { discarded: number; frequent: number } {
  const found = { discarded: 0, frequent: 0 };
  for (let distance = 1; distance <= 100; distance += 1) {
    const use = uses[index + direction * distance];
    if (use === undefined || use === "keep") break;
    if (use === "discard") found.discarded += 1;
    else found.frequent += 1;
  }
  return found;
}

/** The steps between the whole lists, made of what is equal in the reduced ones. */
function widened(anchors: Step[], reduced: Reduced, oldLength: number, newLength: number): Step[] {
  const found: Step[] = [];
  let [old, fresh] = [0, 0];
  const skipTo = (oldAnchor: number, newAnchor: number) => {
    if (old < oldAnchor) found.push({ kind: "delete", old, new: fresh, length: oldAnchor - old });
    old = oldAnchor;
    if (fresh < newAnchor) found.push({ kind: "insert", old, new: fresh, length: newAnchor - fresh });
    fresh = newAnchor;
  };
  for (const step of anchors) {
    if (step.kind !== "equal") continue;
    for (let offset = 0; offset < step.length; ) {
      const oldAnchor = reduced.old.indexes[step.old + offset] as number;
      const newAnchor = reduced.fresh.indexes[step.new + offset] as number;
      skipTo(oldAnchor, newAnchor);
      let run = 1;
      while (
        offset + run < step.length &&
        reduced.old.indexes[step.old + offset + run] === oldAnchor + run &&
        reduced.fresh.indexes[step.new + offset + run] === newAnchor + run
      ) {
        run += 1;
      }
      found.push({ kind: "equal", old, new: fresh, length: run });
      old += run;
      fresh += run;
      offset += run;
    }
  }
  skipTo(oldLength, newLength);
  return found;
}
