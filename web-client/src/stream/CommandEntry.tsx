// A command in the stream: what was proposed or typed, and below it what came of it.

import { escapeInvisible } from "../fold";
import type { CommandVersion, Proposal, TimelineItem } from "../fold";
import { t } from "../i18n";
import { CategoryTag, Clamped, Head } from "./parts";
import { Run, StopButton } from "./Run";
import { useSource } from "./source";
import type { Versioned } from "./source";

type Proposed = Extract<TimelineItem, { kind: "proposed" | "executed" }>;

export function CommandEntry({ item }: Versioned & { item: Proposed }) {
  const { view } = useSource();
  const proposal = view.proposal(item.proposal);
  return (
    <div class="entry command-entry">
      <Head item={item}>
        {item.kind === "proposed" ? t().stream.proposed : t().stream.executed} <CategoryTag category={item.category} isSensitiveRead={item.sensitive_read} />
      </Head>
      <CommandText id={item.id} command={item} proposal={proposal} version={proposal?.version ?? 0} />
      {proposal !== undefined && <Fate proposal={proposal} version={proposal.version} />}
      {proposal !== undefined && proposal.gate === null && <Run proposal={proposal} version={proposal.version} />}
    </div>
  );
}

/** The command as it was at that time: whole if it still is so, else as much as is kept. */
export function CommandText({ id, command, proposal }: Versioned & { id: string; command: CommandVersion; proposal: Proposal | undefined }) {
  const isCurrent = proposal !== undefined && command.digest !== null && proposal.assessment?.digest === command.digest;
  const text = isCurrent ? proposal.shown : command.shown;
  if (text === "") return <p class="quiet">{t().stream.earlierVersion}</p>;
  const sign = proposal?.form === "tool" ? "›" : "$";
  return (
    <div class="command-text">
      <Clamped id={`${id}-command`} text={text}>
        {(shown) => (
          <pre dir="ltr">
            <span class="sign" aria-hidden="true">
              {sign}{" "}
            </span>
            {shown}
          </pre>
        )}
      </Clamped>
      {isCurrent && proposal.hidden > 0 && <p class="warning-text">{t().card.hidden(proposal.hidden)}</p>}
    </div>
  );
}

/** What is to be known about a command that does not run. */
function Fate({ proposal, version }: Versioned & { proposal: Proposal }) {
  const reason = proposal.assessment?.reason ?? "";
  if (proposal.state === "blocked") {
    return (
      <p class="fate blocked">
        {t().stream.blocked}
        {reason !== "" && `: ${escapeInvisible(reason)}`}
      </p>
    );
  }
  if (proposal.state !== "waiting") return null;
  return (
    <div class="run-state">
      <p class="fate quiet">{t().stream.waits}</p>
      <StopButton proposal={proposal} version={version} />
    </div>
  );
}
