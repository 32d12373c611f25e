// How much work something does, counted and not timed, so that it is the same on every machine.

import { Session } from "node:inspector";
import type { Profiler } from "node:inspector";

/**
 * How often `run` executes a branch or a turn of a loop in our own code, and the elements and
 * characters that built-in functions look at for it. Spreading an object and joining strings are
 * not seen.
 */
export function countWork(run: () => void): number {
  const session = new Session();
  session.connect();
  session.post("Profiler.enable");
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  executedBlocks(session);
  const builtIns = countBuiltIns();
  try {
    run();
  } finally {
    builtIns.restore();
  }
  const blocks = executedBlocks(session);
  session.disconnect();
  return blocks + builtIns.seen();
}

/** Since the last call. */
function executedBlocks(session: Session): number {
  let scripts: Profiler.ScriptCoverage[] | undefined;
  session.post("Profiler.takePreciseCoverage", (error, taken) => {
    if (error !== null) throw error;
    scripts = taken.result;
  });
  if (scripts === undefined) throw new Error("the profiler answers in its own time");
  return scripts
    .filter(({ url }) => url.includes("/web-client/src/") || url.includes("/tests/fold/"))
    .flatMap(({ functions }) => functions)
    // The first range is the function, whose calls are not counted once it is compiled.
    .flatMap(({ ranges }) => ranges.slice(1))
    .reduce((sum, { count }) => sum + count, 0);
}

type BuiltIn = (this: unknown, ...given: unknown[]) => unknown;
type Cost = (self: { length: number }, result: unknown, given: readonly unknown[]) => number;

const whole: Cost = (self) => self.length;
const given: Cost = (_, __, given) => String(given[0]).length;
const made: Cost = (_, result) => (result as ArrayLike<unknown>).length;
const one: Cost = () => 1;
const until: Cost = (self, result) => (typeof result === "number" && result >= 0 ? result + 1 : self.length);
const fields: Cost = (_, result) => Reflect.ownKeys(result as object).length;

function matched(self: { length: number }, result: unknown, given: readonly unknown[]): number {
  const match = result as RegExpExecArray | null;
  if (match !== null) return match.index + match[0].length;
  return (self as unknown as RegExp).sticky ? 1 : String(given[0]).length;
}

const iterators = [[], new Map(), new Set(), ""].map((empty) => Object.getPrototypeOf(empty[Symbol.iterator]()) as object);

/** What they look at is what their callback is called with. */
const CALLING_BACK: readonly (readonly [object, readonly string[]])[] = [
  [Array.prototype, ["every", "filter", "find", "findIndex", "findLast", "findLastIndex", "flatMap", "forEach"]],
  [Array.prototype, ["map", "reduce", "reduceRight", "some", "sort", "toSorted"]],
  [Map.prototype, ["forEach"]],
  [Set.prototype, ["forEach"]],
];

const LOOKING: readonly (readonly [object, Cost, readonly string[]])[] = [
  [Array.prototype, whole, ["splice", "unshift", "join", "reverse", "fill", "copyWithin", "flat"]],
  // An engine moves the beginning of an array and not its elements.
  [Array.prototype, one, ["shift"]],
  [Array.prototype, made, ["slice", "concat", "toReversed", "with"]],
  [Array.prototype, until, ["indexOf", "includes", "lastIndexOf"]],
  [String.prototype, whole, ["split", "replaceAll", "replace", "trim", "toLowerCase", "toUpperCase", "normalize", "match"]],
  [String.prototype, until, ["indexOf", "includes", "search"]],
  [RegExp.prototype, matched, ["exec"]],
  [Object, fields, ["keys", "values", "entries", "assign"]],
  [JSON, given, ["parse"]],
  [JSON, (_, text) => String(text).length, ["stringify"]],
  [TextEncoder.prototype, given, ["encode"]],
  ...iterators.map((iterator) => [iterator, one, ["next"]] as const),
];

/** What is replaced must not be used in here: spreading and destructuring an array iterate over it. */
function countBuiltIns(): { seen: () => number; restore: () => void } {
  let seen = 0;
  const restores: (() => void)[] = [];
  const replace = (owner: object, name: string, by: (builtIn: BuiltIn) => BuiltIn) => {
    const functions = owner as Record<string, BuiltIn>;
    const builtIn = functions[name] as BuiltIn;
    functions[name] = by(builtIn);
    restores.push(() => {
      functions[name] = builtIn;
    });
  };
  const counted = (callback: unknown): unknown =>
    typeof callback !== "function"
      ? callback
      : function (this: unknown, ...given: unknown[]) {
          seen += 1;
          return Reflect.apply(callback, this, given) as unknown;
        };
  for (const [owner, cost, names] of LOOKING)
    for (const name of names)
      replace(owner, name, (builtIn) => function (...given) {
        const result = Reflect.apply(builtIn, this, given);
        seen += cost(this as { length: number }, result, given);
        return result;
      });
  for (const [owner, names] of CALLING_BACK)
    for (const name of names)
      replace(owner, name, (builtIn) => function (...given) {
        given[0] = counted(given[0]);
        return Reflect.apply(builtIn, this, given);
      });
  return {
    seen: () => seen,
    restore: () => {
      for (const restore of restores.reverse()) restore();
    },
  };
}
