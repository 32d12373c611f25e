// Moves the steps of a comparison so that changes that belong together are together.

import type { Step } from "./myers";

type Numbers = ArrayLike<number>;

/** A run of lines that stays, or that is replaced by others. */
export interface Run {
  isEqual: boolean;
  old: number;
  oldLength: number;
  new: number;
  newLength: number;
}

/** Compacts the steps, and joins neighbours to runs. */
export function runsOf(steps: Step[], old: Numbers, fresh: Numbers): Run[] {
  const list = new StepList(steps, old, fresh);
  list.compact("delete");
  list.compact("insert");
  return joined(list.inOrder());
}

/** Steps around a cursor: those before it in one stack, the others in another, next one last. */
class StepList {
  private readonly before: Step[] = [];
  private readonly after: Step[];

  constructor(
    steps: Step[],
    private readonly old: Numbers,
    private readonly fresh: Numbers,
  ) {
    this.after = steps.map((step) => ({ ...step })).reverse();
  }

  inOrder(): Step[] {
    return [...this.before, ...this.after.slice().reverse()];
  }

  /** Shifts all steps of a kind up and then down, and merges those that meet. */
  compact(kind: "delete" | "insert"): void {
    while (this.before.length > 0) this.after.push(this.before.pop() as Step);
    for (let step = this.after.pop(); step !== undefined; step = this.after.pop()) {
      const settled = step.kind === kind ? this.shiftDown(this.shiftUp(step)) : step;
      this.before.push(settled);
    }
  }

  /** Moves a change towards the beginning; the cursor stays behind it. */
  private shiftUp(given: Step): Step {
    let step = given;
    for (let previous = this.before.at(-1); previous !== undefined; previous = this.before.at(-1)) {
      if (previous.kind === "equal") {
        const mayMove = step.kind === "insert" || this.before.at(-2)?.kind === "delete";
        const length = mayMove ? this.sharedEnd(step, previous) : 0;
        if (length > 0) this.moveUp(step, previous, length);
        if (previous.length === 0) this.before.pop();
        else if (length === 0) break;
      } else if (previous.kind === step.kind) {
        previous.length += step.length;
        step = this.before.pop() as Step;
      } else {
        // The two consume different sides, so only their order changes.
        this.after.push(this.before.pop() as Step);
      }
    }
    return step;
  }

  /** Moves a change towards the end; the cursor stays behind it. */
  private shiftDown(step: Step): Step {
    for (let next = this.after.at(-1); next !== undefined; next = this.after.at(-1)) {
      if (next.kind === "equal") {
        const mayMove = step.kind === "insert" || this.after.at(-2)?.kind === "delete";
        const length = mayMove ? this.sharedBeginning(step, next) : 0;
        if (length > 0) this.moveDown(step, next, length);
        if (next.length === 0) this.after.pop();
        else if (length === 0) break;
      } else if (next.kind === step.kind) {
        step.length += next.length;
        this.after.pop();
      } else {
        this.before.push(this.after.pop() as Step);
      }
    }
    return step;
  }

  private moveUp(step: Step, previous: Step, length: number): void {
    const next = this.after.at(-1);
    if (next?.kind === "equal") {
      next.old -= length;
      next.new -= length;
      next.length += length;
    } else {
      const isInsert = step.kind === "insert";
      const old = (isInsert ? previous.old + previous.length : step.old + step.length) - length;
      const fresh = (isInsert ? step.new + step.length : previous.new + previous.length) - length;
      this.after.push({ kind: "equal", old, new: fresh, length });
    }
    previous.length -= length;
    step.old -= length;
    step.new -= length;
  }

  private moveDown(step: Step, next: Step, length: number): void {
    const previous = this.before.at(-1);
    const isInsert = step.kind === "insert";
    const [old, fresh] = isInsert ? [next.old, step.new] : [step.old, next.new];
    if (previous?.kind === "equal") previous.length += length;
    else this.before.push({ kind: "equal", old, new: fresh, length });
    next.old += length;
    next.new += length;
    next.length -= length;
    step.old += length;
    step.new += length;
  }

  private sharedEnd(step: Step, equal: Step): number {
    const most = Math.min(step.length, equal.length);
    let length = 0;
    while (length < most && this.lineOf(step, step.length - 1 - length) === this.lineOf(equal, equal.length - 1 - length)) {
      length += 1;
    }
    return length;
  }

  private sharedBeginning(step: Step, equal: Step): number {
    const most = Math.min(step.length, equal.length);
    let length = 0;
    while (length < most && this.lineOf(step, length) === this.lineOf(equal, length)) length += 1;
    return length;
  }

  private lineOf(step: Step, offset: number): number | undefined {
    return step.kind === "delete" ? this.old[step.old + offset] : this.fresh[step.new + offset];
  }
}

/** Joins equal steps to equal runs, and what is between them to replaced ones. */
function joined(steps: Step[]): Run[] {
  const runs: Run[] = [];
  let [old, fresh] = [0, 0];
  for (const { kind, length } of steps) {
    const isEqual = kind === "equal";
    let run = runs.at(-1);
    if (run === undefined || run.isEqual !== isEqual) {
      run = { isEqual, old, oldLength: 0, new: fresh, newLength: 0 };
      runs.push(run);
    }
    run.oldLength += kind === "insert" ? 0 : length;
    run.newLength += kind === "delete" ? 0 : length;
    old += kind === "insert" ? 0 : length;
    fresh += kind === "delete" ? 0 : length;
  }
  return runs;
}
