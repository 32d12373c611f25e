// Narrows the record down to a person, a type of message or a proposal.

import { t } from "../../i18n";
import type { SessionConnection } from "../../net/connection";
import { CheckField, SelectField } from "../parts";
import { nameOf } from "../people";
import { NO_FILTER } from "./entry";
import type { AuditEntry, AuditFilter } from "./entry";

interface AuditFiltersProps {
  connection: SessionConnection;
  /** How many people have a name. */
  known: number;
  entries: readonly AuditEntry[];
  filter: AuditFilter;
  onChange(filter: AuditFilter): void;
}

export function AuditFilters({ connection, entries, filter, onChange }: AuditFiltersProps) {
  const senders = [...new Set(entries.map((entry) => entry.sender))];
  const types = [...new Set(entries.map((entry) => entry.type))].sort();
  // A choice stays in the list, also when what it chose is not loaded.
  if (filter.sender !== "" && !senders.includes(filter.sender)) senders.push(filter.sender);
  if (filter.type !== "" && filter.type !== "decisions" && !types.includes(filter.type)) types.push(filter.type);
  const isFiltered = filter.sender !== "" || filter.type !== "" || filter.proposal !== "" || filter.streamed;
  return (
    <div class="stack" role="search">
      <div class="fields">
        <SelectField
          label={t().audit.person}
          value={filter.sender}
          options={[["", t().audit.anyone], ...senders.map((id) => [id, nameOf(connection, id)] as const)]}
          onChange={(sender) => onChange({ ...filter, sender })}
        />
        <SelectField
          label={t().audit.type}
          value={filter.type}
          options={[["", t().audit.anyType], ["decisions", t().audit.decisions], ...types.map((type) => [type, type] as const)]}
          onChange={(type) => onChange({ ...filter, type })}
        />
        <label>
          {t().audit.proposal}
          <input
            type="search"
            value={filter.proposal}
            placeholder={t().audit.proposalHint}
            autocapitalize="off"
            spellcheck={false}
            onInput={(event) => onChange({ ...filter, proposal: event.currentTarget.value })}
          />
        </label>
      </div>
      <div class="row">
        <div class="grow">
          <CheckField label={t().audit.streamed} checked={filter.streamed} onChange={(streamed) => onChange({ ...filter, streamed })} />
        </div>
        {isFiltered && <button onClick={() => onChange(NO_FILTER)}>{t().audit.clear}</button>}
      </div>
    </div>
  );
}
