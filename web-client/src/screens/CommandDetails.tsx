// All that the log says about one command.

import type { Approval, CommandRecord, EarlierCommand } from "@protocol";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { dateAndTime, names, runTime } from "../ui/format";
import { CommandOutput } from "./CommandOutput";
import { Fact } from "./parts";
import { nameOf } from "./people";

export function CommandDetails({ connection, record }: { connection: SessionConnection; record: CommandRecord }) {
  const who = (id: string) => nameOf(connection, id);
  const { resolution, result, allowed_by } = record;
  const earlier = record.earlier ?? [];
  return (
    <div class="stack details">
      <pre class="shown-command">{escapeInvisible(record.command)}</pre>
      <dl class="record-facts">
        <Fact name={t().history.description}>{escapeInvisible(record.description)}</Fact>
        <Fact name={t().history.directory}>{record.cwd != null && <code>{escapeInvisible(record.cwd)}</code>}</Fact>
        <Fact name={t().history.rule}>
          <code>{record.rule}</code>, {t().risk[record.risk]}
        </Fact>
        <Fact name={t().history.client}>{record.origin != null && clientOf(record.origin.client, record.origin.version)}</Fact>
        <Fact name={t().card.degree}>{record.degree != null && t().card.degrees[record.degree]}</Fact>
        <Fact name={t().history.decided}>{resolution != null && decision(connection, record)}</Fact>
        <Fact name={t().history.reason}>{resolution?.reason != null && escapeInvisible(resolution.reason)}</Fact>
        <Fact name={t().history.suggestion}>{resolution?.suggestion != null && escapeInvisible(resolution.suggestion)}</Fact>
        <Fact name={t().history.approvals}>{record.approvals.length > 0 && <Approvals connection={connection} approvals={record.approvals} />}</Fact>
        <Fact name={t().history.clearedBy}>{record.cleared_by != null && t().stream.clearedBy[record.cleared_by]}</Fact>
        <Fact name={t().card.rule}>{allowed_by != null && t().history.allowedBy(who(allowed_by.participant), escapeInvisible(allowed_by.prefix.join(" ")))}</Fact>
        <Fact name={t().history.executor}>{record.executor != null && who(record.executor)}</Fact>
        <Fact name={t().history.result}>{result != null && resultText(record)}</Fact>
        <Fact name={t().stream.error}>{result?.error != null && escapeInvisible(result.error)}</Fact>
      </dl>
      {earlier.length > 0 && (
        <details class="fold">
          <summary>{t().history.earlier(earlier.length)}</summary>
          <ol class="rows">
            {earlier.map((version) => (
              <Earlier key={`${version.digest}${version.edited_at}`} connection={connection} version={version} />
            ))}
          </ol>
        </details>
      )}
      {record.executor != null && <CommandOutput session={connection.session} proposal={record.tool_proposal} command={record.command} />}
      <p class="mono quiet small">{record.tool_proposal}</p>
    </div>
  );
}

function Approvals({ connection, approvals }: { connection: SessionConnection; approvals: Approval[] }) {
  return (
    <ul>
      {approvals.map((approval) => (
        <li key={approval.participant}>
          {nameOf(connection, approval.participant)} <span class="quiet">{dateAndTime(approval.at)}</span>
          {approval.comment != null && approval.comment !== "" && <span> “{escapeInvisible(approval.comment)}”</span>}
        </li>
      ))}
    </ul>
  );
}

function Earlier({ connection, version }: { connection: SessionConnection; version: EarlierCommand }) {
  const voided = (version.void_approvals ?? []).map((approval) => nameOf(connection, approval.participant));
  return (
    <li class="stack earlier-version">
      <pre class="shown-command">{escapeInvisible(version.command)}</pre>
      <p class="row small">
        <span class={`tag ${version.category}`}>{t().category[version.category]}</span>
        <span class="quiet">{t().history.editedAt(nameOf(connection, version.edited_by), dateAndTime(version.edited_at))}</span>
        {version.reason != null && <span>“{escapeInvisible(version.reason)}”</span>}
        {voided.length > 0 && <span>{t().history.voidVotes(names(voided))}</span>}
      </p>
    </li>
  );
}

function decision(connection: SessionConnection, { resolution }: CommandRecord): string {
  if (resolution == null) return "";
  const outcome = t().outcome[resolution.outcome] ?? resolution.outcome;
  const at = dateAndTime(resolution.at);
  return resolution.by == null ? t().card.decided(outcome, at) : t().card.decidedBy(outcome, nameOf(connection, resolution.by), at);
}

function resultText({ result }: CommandRecord): string {
  if (result == null) return "";
  const ended = result.exit_code == null ? null : t().stream.exit(result.exit_code);
  const word = result.attested === true ? t().stream.attested : null;
  return [ended, runTime(result.duration_ms), dateAndTime(result.at), word].filter((part) => part !== null).join(", ");
}

function clientOf(client: string, version: string | undefined): string {
  return escapeInvisible(version == null ? client : `${client} ${version}`);
}
