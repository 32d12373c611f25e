// The commands of a session, newest first, with what was decided about each.

import { useState } from "preact/hooks";
import type { CommandPage, CommandRecord, CommandStatus } from "@protocol";
import { callOfSummary, escapeInvisible } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { Boundary } from "../ui/Boundary";
import { useApp } from "../ui/context";
import { dateAndTime } from "../ui/format";
import { CommandDetails } from "./CommandDetails";
import { LoadProblem, SelectField, ago } from "./parts";
import { nameOf, useKnownPeople } from "./people";
import { sessionPath, useAction, useLoaded } from "./request";
import { useSlowTick } from "./slow_tick";

const STATUSES: readonly CommandStatus[] = ["waiting", "running", "finished", "rejected", "blocked", "timed_out", "cancelled"];
const PAGE = 50;

interface Filter {
  text: string;
  status: CommandStatus | "";
}

export function HistoryPanel({ connection }: { connection: SessionConnection }) {
  const app = useApp();
  const known = useKnownPeople(connection);
  const [typed, setTyped] = useState("");
  const [filter, setFilter] = useState<Filter>({ text: "", status: "" });
  const path = (before: number | undefined) => sessionPath(connection.session, `history?${queryOf(filter, before)}`);
  const page = useLoaded(path(undefined), (signal) => app.api.get<CommandPage>(path(undefined), { signal }));
  const action = useAction();
  const commands = page.value?.commands ?? [];
  const next = page.value?.next ?? undefined;
  const showOlder = () =>
    action.run(async () => {
      const older = await app.api.get<CommandPage>(path(next));
      page.set({ ...older, commands: [...commands, ...older.commands] });
    });
  const isFiltered = filter.text !== "" || filter.status !== "";
  return (
    <div class="screen">
      <h2>{t().history.heading}</h2>
      <form
        class="stack"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          setFilter({ ...filter, text: typed.trim() });
        }}
      >
        <label>
          {t().history.search}
          <input type="search" value={typed} maxLength={500} autocapitalize="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <div class="row end">
          <div class="grow">
            <SelectField<CommandStatus | "">
              label={t().history.status}
              value={filter.status}
              options={[["", t().history.any], ...STATUSES.map((status) => [status, t().state[status] ?? status] as const)]}
              onChange={(status) => setFilter({ ...filter, status })}
            />
          </div>
          <button class="primary">{t().history.find}</button>
        </div>
      </form>
      <LoadProblem problem={page.problem} onRetry={page.reload} />
      {page.value === null && page.busy && <p class="center">{t().app.loading}</p>}
      {page.value !== null && commands.length === 0 && <p class="center">{emptyText(isFiltered, next !== undefined)}</p>}
      <NewCommands connection={connection} newest={commands[0]?.seq ?? 0} isShown={page.value !== null && !isFiltered} onReload={page.reload} />
      <ul class="rows">
        {commands.map((record) => (
          <Boundary key={record.tool_proposal} kind="entry" of={record} as="li">
            <Row connection={connection} record={record} known={known} />
          </Boundary>
        ))}
      </ul>
      {next !== undefined && (
        <button class="wide" disabled={action.busy} onClick={showOlder}>
          {t().history.older}
        </button>
      )}
    </div>
  );
}

function emptyText(isFiltered: boolean, hasOlder: boolean): string {
  if (hasOlder) return t().history.notYet;
  return isFiltered ? t().history.noMatch : t().history.empty;
}

/** The list stands still while it is read; a button brings what has come since. */
function NewCommands(props: { connection: SessionConnection; newest: number; isShown: boolean; onReload(): void }) {
  useSlowTick(props.connection);
  const last = props.connection.view.commands.at(-1)?.seq ?? 0;
  if (!props.isShown || last <= props.newest) return null;
  return (
    <button class="wide" onClick={props.onReload}>
      {t().history.refresh}
    </button>
  );
}

function Row({ connection, record }: { connection: SessionConnection; record: CommandRecord; known: number }) {
  const [isOpen, setOpen] = useState(false);
  const command = headlineOf(record);
  return (
    <li class="panel">
      <details class="fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary class="command-row">
          <code class="one-line">{command}</code>
          <span class="row small">
            <span class={`tag ${record.category}`}>{t().category[record.category]}</span>
            <span class={`tag ${toneOf(record)}`}>{stateOf(record)}</span>
            <span class="quiet">{t().history.proposedBy(nameOf(connection, record.proposer))}</span>
            {record.edited_by != null && <span class="quiet">{t().history.edited(nameOf(connection, record.edited_by))}</span>}
            <time class="quiet" dateTime={record.at} title={dateAndTime(record.at)}>
              {ago(record.at)}
            </time>
          </span>
        </summary>
        {isOpen && <CommandDetails connection={connection} record={record} />}
      </details>
    </li>
  );
}

/** A call of a tool is logged as its name and its arguments as JSON. It is recognised by the line that its card had. */
function headlineOf({ command, tool }: CommandRecord): string {
  return (tool === undefined ? undefined : callOfSummary(tool, command)?.headline) ?? escapeInvisible(command);
}

function stateOf(record: CommandRecord): string {
  const result = record.result;
  if (record.status !== "finished" || result == null) return t().state[record.status] ?? record.status;
  if (result.outcome === "unknown") return t().stream.unknownEnd;
  if (result.outcome === "not_run") return t().stream.notRun;
  if (result.exit_code != null) return t().stream.exit(result.exit_code);
  return result.success ? (t().state.finished as string) : t().stream.error;
}

function toneOf(record: CommandRecord): string {
  if (record.status === "finished") return record.result?.success === true ? "ok" : "bad";
  return record.status === "waiting" || record.status === "running" ? "write" : "";
}

function queryOf(filter: Filter, before: number | undefined): string {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (filter.text !== "") query.set("grep", filter.text);
  if (filter.status !== "") query.set("status", filter.status);
  if (before !== undefined) query.set("before", String(before));
  return query.toString();
}
