// The entries of the record, newest first.

import { useMemo, useState } from "preact/hooks";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import type { SessionConnection } from "../../net/connection";
import { Boundary } from "../../ui/Boundary";
import { Capped } from "../../ui/Capped";
import { dateAndTime, timeOfDay } from "../../ui/format";
import { nameOf } from "../people";
import { proposalsOf, summaryOf, toolsOf } from "./entry";
import type { AuditEntry } from "./entry";
import { MAX_SHOWN, indented } from "./indented";

/** Drawing more at once would be slow on a phone. */
const DRAWN = 300;

interface AuditEntriesProps {
  connection: SessionConnection;
  /** How many people have a name. */
  known: number;
  /** All that are loaded, to know which proposal a vote is about. */
  all: readonly AuditEntry[];
  shown: readonly AuditEntry[];
  onProposal(proposal: string): void;
}

export function AuditEntries({ connection, known, all, shown, onProposal }: AuditEntriesProps) {
  const proposals = useMemo(() => proposalsOf(all), [all]);
  const tools = useMemo(() => toolsOf(all), [all]);
  return (
    <Capped items={shown} size={DRAWN}>
      {(drawn) => (
        <ol class="rows dense">
          {drawn.map((entry) => (
            <Boundary key={entry.seq} kind="entry" of={entry} as="li">
              <Entry connection={connection} known={known} entry={entry} proposal={proposals.get(entry.seq)} tools={tools} onProposal={onProposal} />
            </Boundary>
          ))}
        </ol>
      )}
    </Capped>
  );
}

interface EntryProps {
  connection: SessionConnection;
  known: number;
  entry: AuditEntry;
  proposal: string | undefined;
  /** The tools of the proposals that are loaded. */
  tools: ReadonlyMap<string, string>;
  onProposal(proposal: string): void;
}

function Entry({ connection, entry, proposal, tools, onProposal }: EntryProps) {
  const [isOpen, setOpen] = useState(false);
  const short = proposal?.slice(-6);
  const text = isOpen ? indented(entry.raw) : "";
  return (
    <li class="panel">
      <details class="fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary class="command-row">
          <span class="row small">
            <strong>{nameOf(connection, entry.sender)}</strong>
            <code class="type">{escapeInvisible(entry.type)}</code>
            <span class="place quiet">
              <time dateTime={entry.at ?? undefined} title={dateAndTime(entry.at)}>
                {timeOfDay(entry.at)}
              </time>{" "}
              <span class="mono">{entry.seq}</span>
            </span>
          </span>
          <span class="one-line">{escapeInvisible(summaryOf(entry, tools.get(proposal ?? "")))}</span>
        </summary>
        {isOpen && (
          <div class="stack details">
            <p class="quiet small">{dateAndTime(entry.at)}</p>
            {proposal !== undefined && (
              <button class="fit" onClick={() => onProposal(proposal)}>
                {t().audit.onlyProposal(short ?? "")}
              </button>
            )}
            <h4>{t().audit.raw}</h4>
            <pre class="raw-output" tabIndex={0} role="region" aria-label={`${t().audit.raw} ${entry.seq}`}>
              {escapeInvisible(text.slice(0, MAX_SHOWN))}
            </pre>
            {text.length > MAX_SHOWN && <p class="quiet small">{t().audit.cut(entry.raw.length - MAX_SHOWN)}</p>}
          </div>
        )}
      </details>
    </li>
  );
}
