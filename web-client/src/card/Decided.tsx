// A card that is decided: who, how and when. Nothing on it can be pressed.

import type { Approval, GateResolve } from "@protocol";
import { t } from "../i18n";
import type { ResolutionView } from "../fold";
import { names, timeOfDay } from "../ui/format";
import { Quote } from "./Facts";
import { nameOf } from "./model";
import { whoText } from "./Votes";

export interface Resolution {
  outcome: GateResolve["outcome"];
  how: GateResolve["how"];
  at: string;
  approvals: Approval[];
  by: string | null;
  reason: string | null;
  suggestion: string | null;
  byRule: boolean;
}

export function resolutionOf(resolve: GateResolve | ResolutionView): Resolution {
  return {
    outcome: resolve.outcome,
    how: resolve.how,
    at: resolve.at,
    approvals: resolve.approvals ?? [],
    by: resolve.by ?? null,
    reason: resolve.reason ?? null,
    suggestion: resolve.suggestion ?? null,
    byRule: (resolve.rule ?? null) !== null,
  };
}

interface Named {
  names: ReadonlyMap<string, string>;
  me: string | null;
}

/** `null` means that it is closed, and how is not known yet. */
export function Decided({ resolution, who }: { resolution: Resolution | null; who: Named }) {
  return (
    <div class={`decided ${resolution?.outcome ?? ""}`} role="status">
      <p>
        <strong>{resolution === null ? t().card.gone : resolutionText(resolution, who)}</strong>
      </p>
      {resolution?.reason != null && (
        <p>
          <Quote text={resolution.reason} />
        </p>
      )}
      {resolution?.suggestion != null && (
        <p>
          {t().card.suggestion} <Quote text={resolution.suggestion} />
        </p>
      )}
      {resolution?.approvals.map((approval) => (
        <p key={approval.participant} class="small">
          <span aria-hidden="true">✓ </span>
          {t().card.votedAt(whoText(who, approval.participant), timeOfDay(approval.at))}
          {approval.comment !== undefined && (
            <>
              {": "}
              <Quote text={approval.comment} />
            </>
          )}
        </p>
      ))}
    </div>
  );
}

/** Who decided, how and when, in a sentence. */
export function resolutionText(resolution: Resolution, who: Named): string {
  const deciders = resolution.by === null ? resolution.approvals.map((approval) => approval.participant) : [resolution.by];
  const outcome = t().outcome[resolution.outcome] ?? resolution.outcome;
  const at = timeOfDay(resolution.at);
  const cause = t().card.causes[resolution.how] ?? "";
  if (deciders.length === 0 || cause !== "") return t().card.decided(cause === "" ? outcome : `${outcome} ${cause}`, at);
  const list = names(deciders.map((id) => nameOf(who, id)));
  return resolution.byRule ? t().card.decidedByRule(outcome, list, at) : t().card.decidedBy(outcome, list, at);
}
