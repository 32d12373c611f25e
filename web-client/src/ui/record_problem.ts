// What is said about a record that is not the one this device has seen.

import { t } from "../i18n";
import type { RecordProblem } from "../net/head_memory";

export function recordProblemText(problem: RecordProblem): string {
  const words = t().session.record;
  switch (problem.kind) {
    case "shorter":
      return words.shorter(problem.seen, problem.offered);
    case "rewritten":
      return words.rewritten(problem.seq);
  }
}
